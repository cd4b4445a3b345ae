"""What the tables of a graph mean: which hold nodes, which hold edges, and which column is what.

A `Description` is read from a TOML or YAML file, or found by looking at the tables. Its text is such a file, with everything
that was understood as comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from gnndelete.datasets.columns import kind_of, read_texts
from gnndelete.datasets.table_files import DATABASES, SUFFIXES, as_list, database_tables, open_table
from gnndelete.errors import GraphError, SettingError, some, unknown
from gnndelete.graph.parsing import short
from gnndelete.io.yaml import read_toml, read_yaml

Features = Sequence[str] | Mapping[str, Any] | None

#: The usual names of the ends of an edge.
ENDS = (("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("u", "v"))

#: Rows that are looked at to find out what a table holds, and rows in which ids are not distinct by chance.
SAMPLE, _ENOUGH = 10_000, 20
#: The share of distinct ids with which a column that is called like the ids of its table is taken for them.
NEARLY = 0.9

#: The name of a column that holds ids.
_ID = re.compile(r"(.*)(_id|Id|ID|_key)")


@dataclass(frozen=True)
class Nodes:
    """A table of nodes.

    Args:
        name: The node type.
        table: The name of the table.
        key: The column with the ids.
        index: A column with the row that each node has in the model, from 0; by default its place in the table.
        features: The columns of features, or the kind of each; by default all that can be encoded.
        label: The column with labels.
        split: The column that says which nodes train, validate and test.
    """

    name: str
    table: str
    key: str
    index: str | None = None
    features: Features = None
    label: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Edges:
    """A table of edges.

    Args:
        name: The relation.
        table: The name of the table.
        source: The column with the ids of the sources.
        target: The column with the ids of the targets.
        source_type: The node type of the sources.
        target_type: The node type of the targets.
        relation: The column with a relation per edge, where a table holds several.
        weight: The column with weights.
        features: The columns of features, or the kind of each; by default all that can be encoded.
        split: The column that says which edges the model was trained on, validated and tested with.
        directed: Whether edges go one way only; by default where both ends are of one type.
    """

    name: str
    table: str
    source: str
    target: str
    source_type: str
    target_type: str
    relation: str | None = None
    weight: str | None = None
    features: Features = None
    split: str | None = None
    directed: bool | None = None

    @property
    def kind(self) -> tuple[str, str, str]:
        """The edge type."""
        return self.source_type, self.name, self.target_type


@dataclass(frozen=True)
class Description:
    """What the tables of a graph mean.

    Args:
        nodes: The tables of nodes.
        edges: The tables of edges.
        delimiter: What separates the cells of text files.
        missing: What an id of an edge without a node becomes: ``"error"``, or a node with features of zero (``"zeros"``).
        empty: What stands for empty cells of features: ``"mean"`` of the column, ``"zero"``, or an ``"error"``.
        layout: ``"hetero"`` for a ``HeteroData``, ``"single"`` for one ``Data`` with the types one after the other,
            ``"auto"`` for a ``HeteroData`` where there are several node types.
        named_by_options: Whether its columns are options of a call, which errors then name.
        unused: Tables that were looked at and hold neither nodes nor edges.
    """

    nodes: tuple[Nodes, ...] = ()
    edges: tuple[Edges, ...] = ()
    delimiter: str | None = None
    missing: Literal["error", "zeros"] = "error"
    empty: Literal["mean", "zero", "error"] = "mean"
    layout: Literal["auto", "hetero", "single"] = "auto"
    named_by_options: bool = False
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choices = {
            "missing": ("error", "zeros"),
            "empty": ("mean", "zero", "error"),
            "layout": ("auto", "hetero", "single"),
        }
        for name, values in choices.items():
            if getattr(self, name) not in values:
                raise SettingError(f"'{name}' must be {some(map(repr, values))} (got {getattr(self, name)!r})")

    @property
    def types(self) -> tuple[str, ...]:
        """The node types: those with tables, then those that only edges name."""
        named = [end for edges in self.edges for end in (edges.source_type, edges.target_type)]
        return tuple(dict.fromkeys([*(nodes.name for nodes in self.nodes), *named]))

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain values, which `from_dict` reads."""
        values: dict[str, Any] = {
            name: getattr(self, name) for name in _OPTIONS if getattr(self, name) != _DEFAULTS[name]
        }
        for section, parts in (("nodes", self.nodes), ("edges", self.edges)):
            values[section] = {
                part.name: {
                    each.name: _plain(getattr(part, each.name))
                    for each in fields(part)
                    if each.name != "name" and getattr(part, each.name) is not None
                }
                for part in parts
            }
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "the description") -> Description:
        """Read what a file says, or what `to_dict` gave.

        Args:
            values: The sections ``nodes`` and ``edges``, with one entry by type, and options.
            where: What errors call the description.

        Raises:
            SettingError: If something is missing or not known.
        """
        for name in values:
            if name not in ("nodes", "edges", *_OPTIONS):
                raise SettingError(unknown(f"{where} has a section", str(name), ("nodes", "edges", *_OPTIONS)))
        nodes = tuple(_part(Nodes, name, part, where) for name, part in _section(values, "nodes", where))
        edges = []
        for name, part in _section(values, "edges", where):
            part = dict(part)
            for end in ("source", "target"):
                if f"{end}_type" not in part:
                    part[f"{end}_type"] = _type_of(part.get(end), nodes, name, end, where)
            edges.append(_part(Edges, name, part, where))
        if not edges:
            raise SettingError(f"{where} names no edges; add a section [edges.NAME] with table, source and target")
        return cls(nodes, tuple(edges), **{name: values[name] for name in _OPTIONS if name in values})


_OPTIONS = ("delimiter", "missing", "empty", "layout")
_DEFAULTS = {each.name: each.default for each in fields(Description)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: list(part) if isinstance(part, tuple) else part for name, part in value.items()}
    return list(value) if isinstance(value, (list, tuple)) else value


def _section(values: Mapping[str, Any], name: str, where: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = values.get(name) or {}
    if not isinstance(found, Mapping) or not all(isinstance(part, Mapping) for part in found.values()):
        raise SettingError(
            f"{where} has a section '{name}' of another form; write [{name}.NAME] with table = … below it"
        )
    return [(str(key), part) for key, part in found.items()]


def _part(kind: Any, name: str, values: Mapping[str, Any], where: str) -> Any:
    section = "nodes" if kind is Nodes else "edges"
    known = [each.name for each in fields(kind) if each.name != "name"]
    needed = ("table", "key") if kind is Nodes else ("table", "source", "target")
    for option, value in values.items():
        if option not in known:
            raise SettingError(unknown(f"{where} has in [{section}.{name}] an option", str(option), known))
        text = option not in ("features", "directed")
        if (text and not isinstance(value, str)) or (option == "directed" and not isinstance(value, bool)):
            form = "a name" if text else "true or false"
            raise SettingError(f"{where}: '{option}' in [{section}.{name}] is {short(value)}; give {form}")
        if option == "features" and not (
            isinstance(value, (list, tuple, Mapping)) and all(isinstance(each, str) for each in value)
        ):
            raise SettingError(
                f"{where}: 'features' in [{section}.{name}] is {short(value)}; list names of columns, or give the kind of each"
            )
    for option in needed:
        if option not in values:
            raise SettingError(f"{where} has no '{option}' in [{section}.{name}]; name the {_MEANT[option]}")
    return kind(name=name, **values)


_MEANT = {
    "table": "file or table",
    "key": "column with the ids of the nodes",
    "source": "column with the ids of the sources",
    "target": "column with the ids of the targets",
}


def _type_of(column: Any, nodes: tuple[Nodes, ...], name: str, end: str, where: str) -> str:
    """The node type that a column names: the one whose key it shares, or the only one."""
    found = [each.name for each in nodes if each.key == column] or [each.name for each in nodes]
    if len(found) == 1:
        return found[0]
    if not nodes:
        return "node"
    keys = some((f"{each.key} of {each.name}" for each in nodes), 12)
    raise SettingError(
        f"{where} does not say which nodes the column {column!r} of [edges.{name}] names, since it is no key (keys: {keys}); "
        f"add {end}_type = {json.dumps(found[0])} or another type"
    )


def read_description(path: Path) -> Description:
    """Read a description from a TOML or YAML file.

    Args:
        path: The file.

    Raises:
        SettingError: If it cannot be read, or says something that is not known.
    """
    toml = path.suffix.lower() == ".toml"
    values = read_toml(path) if toml else read_yaml(path, "sections nodes: and edges:")
    return Description.from_dict(values, f"'{path}'")


class Sources(Mapping[str, Any]):
    """The tables that a description can name, by name: the files of a folder, the tables of a database, or data frames.

    Args:
        tables: What `open_table` opens, by name.
        place: What errors call all of them.
    """

    def __init__(self, tables: Mapping[str, Any], place: str) -> None:
        self._tables, self.place = dict(tables), place

    @classmethod
    def at(cls, path: Path) -> Sources:
        """The tables at a path: those of a folder or a database, or one file.

        Args:
            path: A folder, a database or a table.
        """
        if cls.is_database(path):
            return cls({name: f"{path}::{name}" for name in database_tables(path)}, str(path))
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.name.lower().endswith((*SUFFIXES, *DATABASES)))
        found: dict[str, Any] = {}
        for file in files:
            if path.is_dir() and file.name.lower().endswith(DATABASES):
                found |= {f"{file.name}::{name}": f"{file}::{name}" for name in database_tables(file)}
            else:
                found[file.name] = file
        return cls(found, str(path))

    @staticmethod
    def is_database(path: Any) -> bool:
        """Whether a path is that of a database.

        Args:
            path: The path.
        """
        return str(path).lower().endswith(DATABASES)

    def __getitem__(self, name: str) -> Any:
        stems = [key for key in self._tables if key == name or _stem(key) == name]
        if len(stems) != 1 and name not in self._tables:
            raise GraphError(unknown(f"there is no table in '{self.place}' called", name, list(self._tables)))
        return self._tables[name if name in self._tables else stems[0]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    @contextmanager
    def open(self, name: str, delimiter: str | None = None) -> Iterator[Any]:
        """Open a table.

        Args:
            name: Its name.
            delimiter: What separates the cells of a text file.
        """
        with open_table(self[name], delimiter, f"the table '{name}'") as table:
            yield table

    def files(self) -> list[Path]:
        """The files that hold the tables."""
        paths = [
            Path(str(source).partition("::")[0]) for source in self._tables.values() if isinstance(source, (str, Path))
        ]
        return list(dict.fromkeys(paths))


def _stem(name: str) -> str:
    name = name.rpartition("::")[2]
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


# What tables look like.


@dataclass(frozen=True)
class _Look:
    """What the first rows of a table show."""

    name: str
    columns: tuple[str, ...]
    cells: Mapping[str, list[str]]  # of the columns that could be ids
    whole: bool  # whether these are all of its rows
    key: str | None

    @property
    def stem(self) -> str:
        return _singular(_stem(self.name).lower())

    @property
    def usual_ends(self) -> tuple[str, str] | None:
        """The columns of both ends, where they have the usual names."""
        return _usual_ends_of(self.columns)


def find_description(sources: Sources, delimiter: str | None = None) -> Description:
    """Find out what tables mean: by the names of their columns, and where these do not tell, by the ids in them.

    A table whose rows have an id of their own holds nodes; a table with two columns that name nodes holds edges.

    Args:
        sources: The tables.
        delimiter: What separates the cells of text files.

    Raises:
        GraphError: If there are no edges, or it is not clear which columns name nodes.
    """
    if not sources:
        raise GraphError(
            f"'{sources.place}' holds neither graph.json nor edges.csv nor another table; give it files such as users.csv "
            f"and interactions.csv ({', '.join(SUFFIXES)}) or a database"
        )
    looks = [_look(sources, name, delimiter) for name in sources]
    strong = [look for look in looks if look.key is not None]
    looks = [replace(look, key=look.key or _weak_key(look, strong)) for look in looks]
    keyed = [look for look in looks if look.key is not None]
    references = {look.name: _references(look, keyed) for look in looks}
    named = {end for found in references.values() for end in found.values()}
    # a table with an id of its own and two references holds edges, unless something refers to it
    nodes = [look for look in keyed if look.name in named or len(references[look.name]) < 2]
    nodes = [look for look in nodes if look.name in named or len(keyed) < 2 or not look.usual_ends]
    types = {look.name: _type_name(look) for look in nodes}
    if len(set(types.values())) < len(types):
        types = {look.name: look.stem for look in nodes}
    edges: list[Edges] = []
    for look in looks:
        ends = [(column, types[table]) for column, table in references[look.name].items() if table in types]
        own = [(str(look.key), types[look.name])] if look.name in types else []
        if own:
            ends = [*own, *(end for end in ends if end[0] != look.key)]
        elif len(ends) < 2:
            ends = _ends_without_tables(look, ends, list(types.values()))
        edges += [_edges(look, ends[0], other, len(ends) > 2 or bool(own)) for other in ends[1:]]
    if not edges:
        raise GraphError(_no_edges(sources, looks, types))
    parts = {types[look.name]: _nodes(look, types[look.name]) for look in nodes}
    order = dict.fromkeys([end for each in edges for end in (each.source_type, each.target_type)])  # users before items
    in_order = [
        parts[name] for name in order if name in parts
    ]  # nodes that no edge could name are no part of the graph
    used = {*(each.table for each in in_order), *(each.table for each in edges)}
    unused = tuple(look.name for look in looks if look.name not in used)
    return Description(tuple(in_order), tuple(_distinct(edges)), delimiter, unused=unused)


def _look(sources: Sources, name: str, delimiter: str | None) -> _Look:
    with sources.open(name, delimiter) as table:
        cells: dict[str, list[Any]] = {column: [] for column in table.columns}
        count, whole = 0, True
        for block in islice(table.blocks, 1):
            count = len(block.rows)
            cells = {column: list(as_list(block.columns[column][:SAMPLE])) for column in table.columns}
        if not count:  # a table without a row that can be read would be left out without a word
            table.problems.check()
        whole = count < SAMPLE
        columns = table.columns
    texts = {column: read_texts(part) for column, part in cells.items() if _may_be_ids(part)}
    stem = _singular(_stem(name).lower())
    own = ("id", f"{stem}_id", f"{stem}id", stem, "key", f"{stem}_key")
    key = next((column for column in texts if column.lower() in own and _nearly_unique(texts[column])), None)
    return _Look(name, columns, texts, whole, None if _usual_ends_of(columns) else key)


def _weak_key(look: _Look, strong: Sequence[_Look]) -> str | None:
    """The column with the ids of a table that is not called after it: the first one, or one that ends with ``id``."""
    if look.usual_ends:
        return None
    known = _references(look, strong)
    for column in (*look.columns[:1], *look.columns):
        if column in known or not _unique(look.cells.get(column, ())):
            continue
        if not _ID.fullmatch(column):
            if column == look.columns[0]:
                return column
            continue
        others = sum(bool(_ID.fullmatch(other)) for other in look.columns if other != column)
        if (
            others != 1 or len(look.cells[column]) >= _ENOUGH
        ):  # two columns of ids in a short table are the ends of edges
            return column
    return None


def _unique(texts: Sequence[str]) -> bool:
    return bool(texts) and "" not in texts and len(set(texts)) == len(texts)


def _nearly_unique(texts: Sequence[str]) -> bool:
    """Whether a column that is called like the ids of its table holds them; reading it refuses rows without one of their own."""
    return bool(texts) and len({*texts} - {""}) >= NEARLY * len(texts)


def _may_be_ids(cells: Sequence[Any]) -> bool:
    """Whether cells could be ids: texts and whole numbers."""
    kind = kind_of(cells[:1000])
    if kind in ("boolean", "date"):
        return False
    numbers = [cell for cell in cells[:1000] if isinstance(cell, float) and not cell.is_integer() and cell == cell]
    return not numbers and not any(
        isinstance(cell, str) and re.fullmatch(r"-?\d+\.\d+", cell.strip()) for cell in cells[:1000]
    )


def _references(look: _Look, keyed: Sequence[_Look]) -> dict[str, str]:
    """The columns that name rows of other tables, and these tables."""
    found: dict[str, str] = {}
    for column in look.columns:
        found_id = _ID.fullmatch(column)
        for other in keyed:
            own = other.name == look.name
            same = column == other.key and column.lower() not in ("id", "key")
            if not own and (same or (found_id is not None and found_id[1].lower() == other.stem)):
                found[column] = other.name
                break
        else:
            for other in keyed:  # by the ids: only where all of them are known, and they are no plain numbers
                if column == look.key or column not in look.cells or not other.whole:
                    continue
                ids, known = set(look.cells[column]) - {""}, set(other.cells[str(other.key)])
                named = column in {end for pair in ENDS for end in pair} or found_id is not None
                if ids and ids <= known and (named or not all(re.fullmatch(r"-?\d+", each) for each in ids)):
                    found[column] = other.name
                    break
    return found


def _usual_ends_of(columns: Sequence[str]) -> tuple[str, str] | None:
    lower = {column.lower(): column for column in columns}
    return next(((lower[a], lower[b]) for a, b in ENDS if a in lower and b in lower), None)


def _ends_without_tables(look: _Look, ends: list[tuple[str, str]], types: list[str]) -> list[tuple[str, str]]:
    """The ends of edges where not both name rows of a table: columns of the usual names, or those that end with ``id``."""
    if (usual := look.usual_ends) is not None:
        known = dict(ends)
        other = next(iter(known.values()), types[0] if len(types) == 1 else "node")
        return [(column, known.get(column, other)) for column in usual]
    known = dict(ends)
    for column in look.columns:
        plain = _ID.fullmatch(column)
        if column != look.key and column not in known and column in look.cells and plain is not None:
            known[column] = plain[1].lower()
    order = {column: place for place, column in enumerate(look.columns)}
    return sorted(known.items(), key=lambda end: order[end[0]]) if len(known) == 2 else []


def _edges(look: _Look, source: tuple[str, str], target: tuple[str, str], several: bool) -> Edges:
    stem = _stem(look.name)
    name = f"{stem}_{target[1]}" if several else stem
    usual = {column.lower(): column for column in look.columns if column not in (source[0], target[0])}
    chosen: dict[str, Any] = (
        {} if several else {each: usual[each] for each in ("relation", "weight", "split") if each in usual}
    )
    features: Features = () if several else None
    return Edges(name, look.name, source[0], target[0], source[1], target[1], features=features, **chosen)


def _nodes(look: _Look, name: str) -> Nodes:
    usual = {column.lower(): column for column in look.columns if column != look.key}
    chosen = {each: usual[each] for each in ("label", "split") if each in usual}
    return Nodes(name, look.name, str(look.key), **chosen)


def _distinct(edges: list[Edges]) -> list[Edges]:
    """Edges with distinct names."""
    names = [each.name for each in edges]
    return [
        replace(each, name=f"{each.name}_{each.target_type}") if names.count(each.name) > 1 else each for each in edges
    ]


def _type_name(look: _Look) -> str:
    plain = _ID.fullmatch(str(look.key))
    return plain[1].lower() if plain is not None and plain[1] else look.stem


def _singular(name: str) -> str:
    """A table's name as that of one row.

    >>> [_singular(name) for name in ("users", "categories", "boxes", "glass", "news")]
    ['user', 'category', 'box', 'glass', 'news']
    """
    if name.endswith("ies") and len(name) > 4:
        return name[:-3] + "y"
    if name.endswith(("xes", "ches", "shes", "sses")):
        return name[:-2]
    return name[:-1] if name.endswith("s") and not name.endswith(("ss", "us", "news")) else name


def _no_edges(sources: Sources, looks: Sequence[_Look], types: Mapping[str, str]) -> str:
    for look in looks:
        only = look.columns[0] if len(look.columns) == 1 else ""
        mark = next((sign for sign in (";", "\t", "|") if sign in only), None)
        if mark is not None:
            return (
                f"the columns of '{look.name}' are separated by {mark!r} ('{only}'); say so by delimiter = {json.dumps(mark)} in "
                f"a description, or --set 'data.delimiter={json.dumps(mark)}' on the command line"
            )
    tables = "; ".join(f"'{look.name}' has {some(look.columns, 8)}" for look in looks[:6])
    example = next((look for look in looks if look.name not in types), looks[0])
    columns = [column for column in example.columns if column != example.key][:2] or list(example.columns)[:1]
    pair = columns if len(columns) == 2 else [columns[0], columns[0]]
    return (
        f"no table in '{sources.place}' was recognised as one of edges, with two columns that name nodes ({tables}); say it in "
        f"a file such as graph.toml: [edges.{_stem(example.name)}] table = {json.dumps(example.name)}, source = "
        f"{json.dumps(pair[0])}, target = {json.dumps(pair[1])}, and [nodes.NAME] with table and key"
    )


# The text of a description.


def to_toml(description: Description, comments: Mapping[str, Sequence[str]] | None = None) -> str:
    """A description as TOML, with comments on its parts.

    Args:
        description: The description.
        comments: Lines about parts, by ``nodes.NAME`` and ``edges.NAME``; those of ``""`` come first.
    """
    comments = comments or {}
    lines = [f"# {line}" for line in comments.get("", ())]
    values = description.to_dict()
    lines += [f"{name} = {_toml(value)}" for name, value in values.items() if name not in ("nodes", "edges")]
    for section in ("nodes", "edges"):
        for name, part in values[section].items():
            title = f"{section}.{name}"
            key = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name, ensure_ascii=False)
            lines += ["", f"[{section}.{key}]", *(f"{option} = {_toml(value)}" for option, value in part.items())]
            lines += [f"# {line}" for line in comments.get(title, ())]
    return "\n".join(lines).strip("\n") + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{json.dumps(str(k), ensure_ascii=False)} = {_toml(v)}" for k, v in value.items()) + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
