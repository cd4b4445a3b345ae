"""Names of datasets in experiments: a name of the catalog, or ``path@digest`` for a graph of the user."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnndelete.errors import GraphError

if TYPE_CHECKING:
    from gnndelete.datasets.registry import Entry

#: Stands between the path of a graph and the digest of its files.
_SEPARATOR = "@"


def is_path(dataset: str) -> bool:
    """Whether this is the path of a graph: no name of the catalog has a slash in it.

    >>> is_path("./tables"), is_path("generated:collab?nodes=100")
    (True, False)
    """
    return "/" in dataset or "\\" in dataset


def with_digest(dataset: str) -> str:
    """A path with the digest of its files, so that changed files make other cells; a catalog name unchanged."""
    return f"{dataset}{_SEPARATOR}{_digest(dataset)}" if is_path(dataset) else dataset


def without_digest(dataset: str) -> str:
    """The name as the experiment file has it.

    >>> without_digest("./tables/mine@0123456789ab"), without_digest("dblp")
    ('./tables/mine', 'dblp')
    """
    return dataset.rpartition(_SEPARATOR)[0] if is_path(dataset) else dataset


def identity(dataset: str) -> object:
    """Equal for two names of the same graph."""
    from gnndelete.datasets import registry

    return dataset.rpartition(_SEPARATOR)[2] if is_path(dataset) else registry.effective(dataset)


def load_dataset(dataset: str) -> Any:
    """The graph of a name; a graph whose files changed after the experiment was read is refused."""
    from gnndelete import datasets

    if not is_path(dataset):
        return datasets.load(dataset)
    path = without_digest(dataset)
    graph = datasets.load_graph(path).data
    if with_digest(path) != dataset:
        raise GraphError(f"the graph '{path}' has changed since the experiment was read; start again")
    return graph


def describe(dataset: str) -> Entry:
    """The sizes of a dataset, with the parameters in its name applied; a graph of the user is loaded and measured."""
    from gnndelete.datasets import registry

    if is_path(dataset):
        return _measured(dataset)
    entry, parameters = registry.named(dataset)
    sizes: dict[str, Any] = {}
    for name, value in parameters.items():
        name = {"entities": "nodes", "triples": "edges"}.get(name, name)
        if name in ("nodes", "edges", "features", "relations"):
            sizes[name] = value
    if "neighbors" in parameters:
        sizes["edges"] = 2 * entry.nodes * int(parameters["neighbors"])  # an upper bound
    return replace(entry, **sizes)


def _digest(path: str) -> str:
    from gnndelete.datasets.formats import graph_files

    whole = hashlib.sha256()
    for file in graph_files(path):
        with file.open("rb") as content:
            whole.update(f"{file.suffix} {hashlib.file_digest(content, 'sha256').hexdigest()} ".encode())
    return whole.hexdigest()[:12]


@lru_cache
def _measured(dataset: str) -> Entry:
    """The sizes of a graph of the user. Untyped edges count twice, as in the catalog's undirected graphs."""
    from gnndelete.datasets import training_edges
    from gnndelete.datasets.registry import Entry
    from gnndelete.graph.validation import count_nodes, count_relations

    data = load_dataset(dataset)
    typed, edges, y = "edge_type" in data, training_edges(data).size(1), data.get("y")
    has_classes = y is not None and not y.is_floating_point() and y.dim() == 1 and y.numel() > 0
    return Entry(
        name=Path(without_digest(dataset)).name,
        nodes=count_nodes(data),
        edges=edges if typed else 2 * edges,
        features=0 if data.get("x") is None else data.x.size(1),
        classes=int(y.max()) + 1 if has_classes else 0,
        relations=count_relations(data) if typed else 0,
        origin="a graph of the user",
    )
