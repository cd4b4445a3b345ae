"""Datasets by name: a table of those that are known, which needs no torch, and `load`, which does.

Nothing is ever written into the data folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from gnndelete.errors import GraphError, SettingError, unknown

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True)
class Entry:
    """What is known of a dataset without loading it."""

    name: str  # as `load` takes it
    nodes: int  # of all graphs together
    edges: int  # of all graphs; undirected ones count in both directions
    features: int
    classes: int  # 0 for typed graphs
    kind: str = ""  # the class of PyG or OGB that reads the raw files; empty for graphs that are generated
    title: str = ""  # its name in that class
    folder: str = ""  # where the raw files are, relative to the data folder
    files: tuple[str, ...] = ()  # the raw files, relative to `folder`
    graphs: int = 1
    relations: int = 0
    origin: str = ""  # where it comes from, if `kind` and `title` do not say it

    @property
    def generated(self) -> bool:
        """Whether it is made on each load instead of being read from raw files."""
        return not self.kind

    @property
    def typed(self) -> bool:
        """Whether its edges have types."""
        return self.relations > 0

    @property
    def split_for(self) -> str:
        """The task that it has an original split for: link, node or graph; empty where a split must be drawn."""
        return _SPLITS.get(self.kind, "")

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return self.origin or f"{self.kind} {self.title}".strip()

    @property
    def held(self) -> str:
        """What the cache folder holds of it."""
        if self.generated:
            return "nothing: it is made on each load"
        return "one file of plain tensors" + (", features sparse (dense once loaded)" if self.sparse else "")

    @property
    def sparse(self) -> bool:
        """Whether most of its features are zero."""
        return self.kind in ("CitationFull", "Planetoid", "Coauthor", "LINKXDataset")

    @property
    def normalised(self) -> bool:
        """Whether features are scaled to sum to one per node, as the paper's authors do."""
        return self.kind in ("CitationFull", "Planetoid", "Coauthor")


#: Classes whose datasets come with a split, and the task it is for.
_SPLITS = {
    "Planetoid": "node",
    "WordNet18": "link",
    "WordNet18RR": "link",
    "PygLinkPropPredDataset": "link",
    "PygGraphPropPredDataset": "graph",
}


#: Numbers of nodes, edges, features and classes.
Sizes = tuple[int, int, int, int]


def _citation(name: str, title: str, sizes: Sizes) -> Entry:
    low = title.lower()
    return Entry(
        name, *sizes, kind="CitationFull", title=title, folder=f"CitationFull/{low}/raw", files=(f"{low}.npz",)
    )


def _planetoid(title: str, sizes: Sizes) -> Entry:
    name, folder = f"planetoid-{title.lower()}", f"Planetoid/{title}/raw"
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{title.lower()}.{part}" for part in parts)
    return Entry(name, *sizes, kind="Planetoid", title=title, folder=folder, files=files)


def _wordnet(kind: str, edges: int, relations: int) -> Entry:
    files = ("train.txt", "valid.txt", "test.txt")
    return Entry(kind.lower(), 40_943, edges, 0, 0, kind, "", f"{kind}/raw", files, relations=relations)


def _tu(title: str, graphs: int, nodes: int, edges: int, features: int) -> Entry:
    files = tuple(f"{title}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", "node_labels"))
    folder = f"TUDataset/{title}/raw"
    return Entry(title.lower(), nodes, edges, features, 2, "TUDataset", title, folder, files, graphs=graphs)


def _ogb(name: str, sizes: Sizes, raw: tuple[str, ...], split: str, relations: int = 0, graphs: int = 1) -> Entry:
    kind, ending = ("PygGraphPropPredDataset", "csv.gz") if graphs > 1 else ("PygLinkPropPredDataset", "pt")
    files = tuple(f"raw/{file}.csv.gz" for file in raw)
    files += tuple(f"split/{split}/{part}.{ending}" for part in ("train", "valid", "test"))
    folder = f"ogb/{name.replace('-', '_')}"
    return Entry(name, *sizes, kind, name, folder, files, graphs=graphs, relations=relations)


_COLLAB = ("edge", "node-feat", "edge_weight", "edge_year", "num-node-list", "num-edge-list")
_BIOKG = ("num-node-dict", "triplet-type-list")
_MOLHIV = ("edge", "node-feat", "edge-feat", "graph-label", "num-node-list", "num-edge-list")
_HERE = "gnndelete.datasets.generated"

ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("digits", 1_797, 19_858, 64, 10, origin="bundled with scikit-learn"),
        _citation("cora", "Cora", (19_793, 126_842, 8_710, 70)),
        _citation("cora_ml", "Cora_ML", (2_995, 16_316, 2_879, 7)),
        _citation("citeseer", "CiteSeer", (4_230, 10_674, 602, 6)),
        _citation("dblp", "DBLP", (17_716, 105_734, 1_639, 4)),
        _citation("pubmed", "PubMed", (19_717, 88_648, 500, 3)),
        _planetoid("Cora", (2_708, 10_556, 1_433, 7)),
        _planetoid("CiteSeer", (3_327, 9_104, 3_703, 6)),
        _planetoid("PubMed", (19_717, 88_648, 500, 3)),
        Entry("cs", 18_333, 163_788, 6_805, 15, "Coauthor", "CS", "Coauthor/CS/raw", ("ms_academic_cs.npz",)),
        Entry("cornell5", 18_660, 1_581_554, 4_735, 2, "LINKXDataset", "cornell5", "LINKX/cornell5/raw", ("data.mat",)),
        _ogb("ogbl-collab", (235_868, 2_358_104, 128, 0), raw=_COLLAB, split="time"),
        _ogb("ogbl-biokg", (93_773, 5_088_434, 0, 0), raw=_BIOKG, split="random", relations=51),
        _wordnet("WordNet18", 151_442, 18),
        _wordnet("WordNet18RR", 93_003, 11),
        Entry(
            "debian",
            107_264,
            409_459,
            0,
            0,
            "debian",
            folder="debian_bookworm_kg",
            files=("triples.npz", "nodes.tsv.gz"),
            relations=9,
            origin="dependencies of Debian's packages (bookworm)",
        ),
        _ogb("ogbg-molhiv", (1_049_163, 2_259_376, 9, 2), raw=_MOLHIV, split="scaffold", graphs=41_127),
        _tu("MUTAG", 188, 3_371, 7_442, 7),
        _tu("PROTEINS", 1_113, 43_471, 162_088, 3),
        Entry("generated:collab", 235_868, 2_358_104, 128, 10, origin=f"{_HERE}.community_graph"),
        Entry("generated:biokg", 93_773, 5_088_434, 0, 0, relations=51, origin=f"{_HERE}.knowledge_graph"),
        Entry("generated:ratings", 1_700, 68_000, 0, 12, origin=f"{_HERE}.ratings_graph"),
    )
}


def names() -> list[str]:
    """List the names that `load` knows.

    Returns:
        The names, in the order of `describe`.

    >>> "digits" in names()
    True
    """
    return list(ENTRIES)


def describe() -> list[Entry]:
    """List the known datasets with their sizes and origins.

    Returns:
        One `Entry` per dataset; none is loaded.

    >>> describe()[0].source
    'bundled with scikit-learn'
    """
    return list(ENTRIES.values())


def load(name: str, root: str | Path | None = None, *, sparse: bool = False) -> Any:
    """Load a dataset by its name.

    Raw files are read from the layout of PyG and OGB, such as ``CitationFull/dblp/raw/dblp.npz`` or
    ``ogb/ogbg_molhiv/raw``, or downloaded. The content is cached as one file of tensors in ``$GNNDELETE_CACHE`` (else
    ``~/.cache/gnndelete``). Nothing is written into the data folder. Features of the citation and co-author graphs are
    normalised to sum to one per node, as in the paper.

    Args:
        name: A name from `names`, in any case. Generated graphs take parameters: ``"generated:collab?nodes=500&seed=3"``.
        root: The folder of raw files; ``$GNNDELETE_DATA`` by default.
        sparse: Return features that are mostly zero as a sparse tensor, which GCN and GAT take and GIN does not.

    Returns:
        A ``Data``, or a PyG dataset of many graphs. Typed graphs have ``edge_type`` and, where they came with a split,
        ``train_mask``, ``val_mask`` and ``test_mask`` over their edges. ``debian`` also has ``entity_names`` and
        ``relation_names``, each an `IdMap`. ``ogbl-collab`` is the graph of its training edges with ``validation``,
        ``test`` and their ``_negatives``. ``ogbg-molhiv`` has its scaffold split as ``.split``.

    Raises:
        GraphError: If there is no such dataset, or its raw files are missing or damaged.
        SettingError: If a parameter in the name is unknown or has a bad value.

    >>> load("digits")
    Data(x=[1797, 64], edge_index=[2, 19858], y=[1797])
    >>> load("generated:collab?nodes=500&edges=3000&features=16&seed=3")
    Data(x=[500, 16], edge_index=[2, 3000], y=[500])
    """
    entry, parameters = named(name)
    if entry.generated:
        return _maker(entry)(**parameters)
    from gnndelete.datasets.raw_files import load_raw

    return load_raw(entry, root, sparse)


def named(name: str) -> tuple[Entry, dict[str, int | float]]:
    """The entry of a dataset and the parameters in its name, without loading it; names that `load` refuses are refused.

    >>> entry, parameters = named("generated:collab?nodes=500&edges=3000")
    >>> entry.graphs, parameters
    (1, {'nodes': 500, 'edges': 3000})
    """
    key, _, query = name.strip().partition("?")
    entry = ENTRIES.get(key.lower())
    if entry is None:
        raise GraphError(unknown("no dataset is called", key.lower(), ENTRIES))
    if not query:
        return entry, {}
    if not entry.generated:
        generated = ", ".join(other.name for other in ENTRIES.values() if other.generated)
        raise SettingError(f"'{entry.name}' takes no parameters (got '?{query}'); those that do are: {generated}")
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True)
    except ValueError:
        raise SettingError(f"'{name}' does not read as NAME?parameter=value&parameter=value") from None
    known, parameters = _defaults(entry), {}
    for parameter, value in pairs:
        if parameter not in known:
            raise SettingError(unknown(f"'{name}' has no parameter", parameter, known))
        kind = type(known[parameter])
        try:
            parameters[parameter] = kind(value.replace(",", "").replace("_", ""))
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise SettingError(f"parameter '{parameter}' of '{name}' must be {what} (got '{value}')") from None
    from gnndelete.datasets.generated import CHECKS

    try:
        CHECKS[entry.name](**known | parameters)
    except SettingError as error:
        raise SettingError(f"'{name}': {error}") from None
    return entry, parameters


def effective(name: str) -> tuple[str, dict[str, int | float]]:
    """The name and all parameters of a dataset: the same for every spelling of the same dataset.

    >>> effective("Digits") == effective("digits?neighbors=8")
    True
    """
    entry, parameters = named(name)
    return entry.name, _defaults(entry) | parameters if entry.generated else {}


def _maker(entry: Entry) -> Callable[..., Data]:
    from gnndelete.datasets import generated

    return generated.MAKERS[entry.name]


def _defaults(entry: Entry) -> dict[str, int | float]:
    return {name: parameter.default for name, parameter in inspect.signature(_maker(entry)).parameters.items()}
