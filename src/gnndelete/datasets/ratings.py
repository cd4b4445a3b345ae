"""Ratings in the files in which they are published: MovieLens of every age, and Gowalla."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Literal

from gnndelete.datasets.description import Description, Edges, Sources
from gnndelete.datasets.table_files import BLOCK, Block, Problems, Table, as_list, open_table
from gnndelete.datasets.tables import NamedGraph, build
from gnndelete.errors import GraphError, why

#: The files that are known, in the order in which they are looked for: what separates their cells, and the places of user, item
#: and rating (None where there is none). ``ratings.csv`` has a header, and lists of LightGCN's authors have a line per user.
FORMATS: dict[str, tuple[str | None, tuple[int, int, int | None]]] = {
    "ratings.csv": (",", (0, 1, 2)),
    "ratings.dat": ("::", (0, 1, 2)),
    "u.data": (None, (0, 1, 2)),
    "Gowalla_totalCheckins.txt": (None, (0, 4, None)),
    "loc-gowalla_totalCheckins.txt": (None, (0, 4, None)),
    "train.txt": (None, (0, 1, None)),
}

_COLUMNS = ("user", "item", "split")


def load_ratings(
    path: str | PathLike[str], *, least: float | None = None, layout: Literal["single", "hetero"] = "single"
) -> NamedGraph:
    """Read users, items and what users liked, from the files of MovieLens or Gowalla.

    MovieLens: ``ratings.csv``, ``ratings.dat`` or ``u.data``. Gowalla: the check-ins of SNAP
    (``loc-gowalla_totalCheckins.txt``), or ``train.txt`` and ``test.txt`` with a line ``user item item …`` as LightGCN's authors
    split it; the second is then named as unseen. All may be gzipped. A pair that is listed again counts once.

    Args:
        path: The folder, or one of these files.
        least: Keep ratings of at least so much; by default all.
        layout: ``"single"`` makes one ``Data``, users first, ``"hetero"`` a ``HeteroData``.

    Returns:
        The graph with the ids of users and items, and ``unseen`` test pairs where the files have some.

    Raises:
        GraphError: If no such file is there, or lines cannot be read.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "ratings.csv").write_text("userId,movieId,rating,timestamp\\n1,31,2.5,12\\n7,31,4.0,13\\n7,50,5.0,14\\n")
    >>> load_ratings(folder, least=4.0).ids
    IdMap('7', '31', '50')
    """
    file, name = _find(Path(path))
    both = [(file, "train")]
    if name == "train.txt":
        test = file.with_name(file.name.replace("train", "test"))
        both += [(test, "test")] if test.is_file() else []
    problems = Problems(str(file))
    table = Table(str(file), _COLUMNS, _blocks(both, name, least, problems), problems)
    edges = Edges("rated", "ratings", "user", "item", "user", "item", features=(), split="split")
    graph = build(Sources({"ratings": table}, str(path)), Description((), (edges,), layout=layout))
    if not graph.data.num_edges:
        raise GraphError(f"'{file}' holds no rating of at least {least}; lower least")
    return graph


def _find(path: Path) -> tuple[Path, str]:
    """The file to read, and the name of its format."""
    if path.is_dir():
        for name in FORMATS:
            for file in (path / name, path / f"{name}.gz"):
                if file.is_file():
                    return file, name
        raise GraphError(f"'{path}' holds none of {', '.join(FORMATS)}; unpack the ratings there")
    name = path.name.removesuffix(".gz")
    if not path.is_file():
        raise GraphError(f"there are no ratings at '{path}'; check the path")
    if name not in FORMATS:
        raise GraphError(
            f"'{path}' is called like no file of ratings that is known ({', '.join(FORMATS)}); rename it, or read it as a table "
            "with load_graph"
        )
    return path, name


def _blocks(files: list[tuple[Path, str]], name: str, least: float | None, problems: Problems) -> Iterator[Block]:
    for file, split in files:
        pairs = _of_csv(file, problems) if name == "ratings.csv" else _of_lines(file, name, problems)
        chosen = (each for each in pairs if least is None or each[3] is None or each[3] >= least)
        while found := list(islice(chosen, BLOCK)):
            rows, users, items, _ = zip(*found, strict=True)
            yield Block(rows, {"user": list(users), "item": list(items), "split": [split] * len(found)})


Pair = tuple[int, str, str, float | None]


def _of_csv(file: Path, problems: Problems) -> Iterator[Pair]:
    with open_table(file) as table:
        for block in table.blocks:
            user, item, rating = (as_list(block.columns[column]) for column in table.columns[:3])
            for row, *cells in zip(block.rows, user, item, rating, strict=True):
                yield from _pair(row, [str(cell) for cell in cells], (0, 1, 2), problems)


def _of_lines(file: Path, name: str, problems: Problems) -> Iterator[Pair]:
    separator, places = FORMATS[name]
    try:
        with gzip.open(file, "rt") if file.name.endswith(".gz") else file.open() as lines:
            for row, line in enumerate(lines, 1):
                cells = line.strip().split(separator)
                if name == "train.txt":
                    yield from ((row, cells[0], item, None) for item in cells[1:])
                elif line.strip():
                    yield from _pair(row, cells, places, problems)
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError(f"the ratings '{file}' cannot be read ({why(error)}); check the file") from None


def _pair(row: int, cells: list[str], places: tuple[int, int, int | None], problems: Problems) -> Iterator[Pair]:
    user, item, rating = places
    if len(cells) <= max(user, item, rating or 0):
        problems.add(row, f"{len(cells)} cell{'s' * (len(cells) != 1)}, and a user, an item and a rating are needed")
        return
    try:
        yield row, cells[user], cells[item], None if rating is None else float(cells[rating])
    except ValueError:
        problems.add(row, f"the rating is {cells[rating or 0]!r}, no number")
