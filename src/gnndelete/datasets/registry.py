"""The known datasets: one table, and loading by name. Nothing is ever written into the data folder."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from torch_geometric.data import Data

from gnndelete.datasets.digits import digits
from gnndelete.datasets.mirror import data_folder, open_pyg
from gnndelete.errors import GraphError


@dataclass(frozen=True)
class Entry:
    """One dataset: its size (edges in both directions), and the raw files that PyG's class ``kind`` expects."""

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    kind: str = ""
    title: str = ""
    folder: str = ""
    files: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return f"{self.kind} {self.title}" if self.kind else "bundled with scikit-learn"


def _citation(name: str, title: str, nodes: int, edges: int, features: int, classes: int) -> Entry:
    folder = title.lower()
    return Entry(name, nodes, edges, features, classes, "CitationFull", title, folder, (f"{folder}.npz",))


def _planetoid(title: str, nodes: int, edges: int, features: int, classes: int) -> Entry:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{title.lower()}.{part}" for part in parts)
    return Entry(f"planetoid-{title.lower()}", nodes, edges, features, classes, "Planetoid", title, title, files)


_ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("digits", 1_797, 19_858, 64, 10),
        _citation("cora", "Cora", 19_793, 126_842, 8_710, 70),
        _citation("cora_ml", "Cora_ML", 2_995, 16_316, 2_879, 7),
        _citation("citeseer", "CiteSeer", 4_230, 10_674, 602, 6),
        _citation("dblp", "DBLP", 17_716, 105_734, 1_639, 4),
        _citation("pubmed", "PubMed", 19_717, 88_648, 500, 3),
        _planetoid("Cora", 2_708, 10_556, 1_433, 7),
        _planetoid("CiteSeer", 3_327, 9_104, 3_703, 6),
        _planetoid("PubMed", 19_717, 88_648, 500, 3),
        Entry("cs", 18_333, 163_788, 6_805, 15, "Coauthor", "CS", "CS", ("ms_academic_cs.npz",)),
    )
}


def names() -> list[str]:
    """Names that `load` knows.

    >>> "digits" in names()
    True
    """
    return list(_ENTRIES)


def describe() -> list[Entry]:
    """Every known dataset with its size and origin.

    >>> describe()[0].source
    'bundled with scikit-learn'
    """
    return list(_ENTRIES.values())


def load(name: str, root: str | Path | None = None) -> Data:
    """A dataset by its name, in any case.

    Raw files are looked for under ``root`` (else ``$GNNDELETE_DATA``) in PyG's usual layout, such as
    ``CitationFull/dblp/raw/dblp.npz``, else downloaded into the cache folder. Features of the citation and co-author
    graphs are normalised to sum to one per node, as the paper's authors do.

    >>> load("digits")
    Data(x=[1797, 64], edge_index=[2, 19858], y=[1797])
    """
    key = name.strip().lower()
    entry = _ENTRIES.get(key)
    if entry is None:
        close = difflib.get_close_matches(key, _ENTRIES, n=1, cutoff=0.5)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise GraphError(f"no dataset is called '{name}'; {hint}there are: {', '.join(_ENTRIES)}")
    if not entry.kind:
        return digits()
    return open_pyg(entry.kind, entry.title, f"{entry.kind}/{entry.folder}/raw", entry.files, data_folder(root))
