"""The table of known datasets: how large each is, which class of PyG or OGB reads it, and from which raw files.

`gnndelete.datasets` loads them; here is what can be said of them without torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One dataset: its size (nodes and edges of all its graphs, edges in both directions where undirected) and origin.

    ``kind`` is the class of PyG or OGB that reads ``files`` under ``folder`` of the data folder. Typed graphs have
    ``relations`` and no classes.
    """

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    kind: str = ""
    title: str = ""
    folder: str = ""
    files: tuple[str, ...] = ()
    graphs: int = 1
    relations: int = 0
    origin: str = ""

    @property
    def typed(self) -> bool:
        """Whether its edges have types."""
        return self.relations > 0

    @property
    def split_for(self) -> str:
        """The task whose split it comes with: link, node or graph; empty where a split has to be drawn."""
        return _SPLITS.get(self.kind, "")

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return self.origin or f"{self.kind} {self.title}".strip()

    @property
    def held(self) -> str:
        """What the cache folder keeps of it."""
        if not self.kind:
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


def _citation(name: str, title: str, nodes: int, edges: int, features: int, classes: int) -> Entry:
    low = title.lower()
    return Entry(
        name, nodes, edges, features, classes, "CitationFull", title, f"CitationFull/{low}/raw", (f"{low}.npz",)
    )


def _planetoid(title: str, nodes: int, edges: int, features: int, classes: int) -> Entry:
    low = title.lower()
    files = tuple(f"ind.{low}.{part}" for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"))
    return Entry(
        f"planetoid-{low}", nodes, edges, features, classes, "Planetoid", title, f"Planetoid/{title}/raw", files
    )


def _wordnet(kind: str, edges: int, relations: int) -> Entry:
    files = ("train.txt", "valid.txt", "test.txt")
    return Entry(kind.lower(), 40_943, edges, 0, 0, kind, "", f"{kind}/raw", files, relations=relations)


def _tu(title: str, graphs: int, nodes: int, edges: int, features: int) -> Entry:
    files = tuple(f"{title}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", "node_labels"))
    folder = f"TUDataset/{title}/raw"
    return Entry(title.lower(), nodes, edges, features, 2, "TUDataset", title, folder, files, graphs=graphs)


def _ogb(
    name: str, kind: str, files: tuple[str, ...], split: str, ending: str
) -> tuple[str, str, str, tuple[str, ...]]:
    split_files = tuple(f"split/{split}/{part}.{ending}" for part in ("train", "valid", "test"))
    raw_files = tuple(f"raw/{file}.csv.gz" for file in files)
    return kind, name, f"ogb/{name.replace('-', '_')}", raw_files + split_files


_COLLAB = ("edge", "node-feat", "edge_weight", "edge_year", "num-node-list", "num-edge-list")
_BIOKG = ("num-node-dict", "triplet-type-list")
_MOLHIV = ("edge", "node-feat", "edge-feat", "graph-label", "num-node-list", "num-edge-list")
_LINKS, _GRAPHS = "PygLinkPropPredDataset", "PygGraphPropPredDataset"
_HERE = "gnndelete.datasets.generated"

ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("digits", 1_797, 19_858, 64, 10, origin="bundled with scikit-learn"),
        _citation("cora", "Cora", 19_793, 126_842, 8_710, 70),
        _citation("cora_ml", "Cora_ML", 2_995, 16_316, 2_879, 7),
        _citation("citeseer", "CiteSeer", 4_230, 10_674, 602, 6),
        _citation("dblp", "DBLP", 17_716, 105_734, 1_639, 4),
        _citation("pubmed", "PubMed", 19_717, 88_648, 500, 3),
        _planetoid("Cora", 2_708, 10_556, 1_433, 7),
        _planetoid("CiteSeer", 3_327, 9_104, 3_703, 6),
        _planetoid("PubMed", 19_717, 88_648, 500, 3),
        Entry("cs", 18_333, 163_788, 6_805, 15, "Coauthor", "CS", "Coauthor/CS/raw", ("ms_academic_cs.npz",)),
        Entry("cornell5", 18_660, 1_581_554, 4_735, 2, "LINKXDataset", "cornell5", "LINKX/cornell5/raw", ("data.mat",)),
        Entry("ogbl-collab", 235_868, 2_358_104, 128, 0, *_ogb("ogbl-collab", _LINKS, _COLLAB, "time", "pt")),
        Entry("ogbl-biokg", 93_773, 5_088_434, 0, 0, *_ogb("ogbl-biokg", _LINKS, _BIOKG, "random", "pt"), relations=51),
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
        Entry(
            "ogbg-molhiv",
            1_049_163,
            2_259_376,
            9,
            2,
            *_ogb("ogbg-molhiv", _GRAPHS, _MOLHIV, "scaffold", "csv.gz"),
            graphs=41_127,
        ),
        _tu("MUTAG", 188, 3_371, 7_442, 7),
        _tu("PROTEINS", 1_113, 43_471, 162_088, 3),
        Entry("generated:collab", 235_868, 2_358_104, 128, 10, origin=f"{_HERE}.community_graph"),
        Entry("generated:biokg", 93_773, 5_088_434, 0, 0, relations=51, origin=f"{_HERE}.knowledge_graph"),
    )
}
