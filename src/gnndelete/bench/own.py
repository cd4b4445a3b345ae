"""Datasets of an experiment: by name, or the path of a graph of one's own with a digest of what lies there."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnndelete.errors import GraphError

if TYPE_CHECKING:
    from gnndelete.datasets.registry import Entry

#: Between a path and its digest.
_MARK = "@"


def is_path(dataset: str) -> bool:
    """Whether an experiment names a graph of one's own: no dataset has a slash in its name.

    >>> is_path("./tables"), is_path("generated:collab?nodes=100")
    (True, False)
    """
    return "/" in dataset or "\\" in dataset


def stamped(dataset: str) -> str:
    """A path with the digest of the graph that lies there; names as they are. What is not there is refused."""
    return f"{dataset}{_MARK}{_digest(dataset)}" if is_path(dataset) else dataset


def as_written(dataset: str) -> str:
    """What the experiment says, without the digest.

    >>> as_written("./tables/mine@0123456789ab"), as_written("dblp")
    ('./tables/mine', 'dblp')
    """
    return dataset.rpartition(_MARK)[0] if is_path(dataset) else dataset


def named(dataset: str) -> tuple[Entry, dict[str, int | float]]:
    """What is known of a dataset, and the parameters in its name; a graph of one's own is looked at."""
    from gnndelete.datasets import registry

    return (_entry(dataset), {}) if is_path(dataset) else registry.named(dataset)


def effective(dataset: str) -> tuple[str, dict[str, int | float]]:
    """What two datasets have in common that are the same."""
    from gnndelete.datasets import registry

    return (dataset.rpartition(_MARK)[2], {}) if is_path(dataset) else registry.effective(dataset)


def load(dataset: str) -> Any:
    """The graph of a key, as it was when the experiment was read."""
    from gnndelete import datasets

    if not is_path(dataset):
        return datasets.load(dataset)
    path = as_written(dataset)
    graph = datasets.load_graph(path).data
    if stamped(path) != dataset:
        raise GraphError(f"the graph '{path}' has changed since the experiment was read; start again")
    return graph


def _digest(path: str) -> str:
    from gnndelete.datasets.formats import graph_files

    whole = hashlib.sha256()
    for file in graph_files(path):
        with file.open("rb") as content:
            whole.update(f"{file.suffix} {hashlib.file_digest(content, 'sha256').hexdigest()} ".encode())
    return whole.hexdigest()[:12]


@lru_cache
def _entry(dataset: str) -> Entry:
    """The sizes of a graph of one's own; untyped edges count twice, as those of undirected graphs do."""
    from gnndelete.datasets import training_edges
    from gnndelete.datasets.registry import Entry
    from gnndelete.graph.validation import count_nodes, count_relations

    data = load(dataset)
    typed, edges, y = "edge_type" in data, training_edges(data).size(1), data.get("y")
    classes = 0 if y is None or y.is_floating_point() or y.dim() > 1 or not y.numel() else int(y.max()) + 1
    return Entry(
        name=Path(as_written(dataset)).name,
        nodes=count_nodes(data),
        edges=edges if typed else 2 * edges,
        features=0 if data.get("x") is None else data.x.size(1),
        classes=classes,
        relations=count_relations(data) if typed else 0,
        origin="a graph of one's own",
    )
