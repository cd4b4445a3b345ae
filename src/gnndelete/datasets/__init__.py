"""Graphs to work on: datasets by name, your own tables, splits, forget sets, negative pairs and loaders.

Everything is imported when first used, so that datasets can be listed without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnndelete.datasets import negatives
    from gnndelete.datasets.forget import (
        communities,
        edge_pool,
        forget_edges,
        forget_graphs,
        forget_nodes,
        training_edges,
    )
    from gnndelete.datasets.formats import from_networkx, load_graph, save_graph
    from gnndelete.datasets.ids import IdMap
    from gnndelete.datasets.negatives import NegativeSampler, TripleCorrupter, triples, with_reverse
    from gnndelete.datasets.ratings import load_ratings
    from gnndelete.datasets.registry import describe, load, names
    from gnndelete.datasets.sampling import NeighborSampler, graph_loader, link_loader, node_loader
    from gnndelete.datasets.splits import (
        GraphSplit,
        LinkSplit,
        load_split,
        save_split,
        split_graphs,
        split_links,
        split_nodes,
    )
    from gnndelete.datasets.tables import NamedGraph, from_tables
    from gnndelete.graph.batch import GraphBatch, collate

#: Where each name is defined.
_NAMES = {
    "forget": ("communities", "edge_pool", "forget_edges", "forget_graphs", "forget_nodes", "training_edges"),
    "formats": ("from_networkx", "load_graph", "save_graph"),
    "ids": ("IdMap",),
    "negatives": ("NegativeSampler", "TripleCorrupter", "triples", "with_reverse"),
    "ratings": ("load_ratings",),
    "registry": ("describe", "load", "names"),
    "sampling": ("NeighborSampler", "graph_loader", "link_loader", "node_loader"),
    "splits": ("GraphSplit", "LinkSplit", "load_split", "save_split", "split_graphs", "split_links", "split_nodes"),
    "tables": ("NamedGraph", "from_tables"),
}
_HOME = {name: f"gnndelete.datasets.{module}" for module, names in _NAMES.items() for name in names}
_HOME |= dict.fromkeys(("GraphBatch", "collate"), "gnndelete.graph.batch")

__all__ = [
    "GraphBatch",
    "GraphSplit",
    "IdMap",
    "LinkSplit",
    "NamedGraph",
    "NegativeSampler",
    "NeighborSampler",
    "TripleCorrupter",
    "collate",
    "communities",
    "describe",
    "edge_pool",
    "forget_edges",
    "forget_graphs",
    "forget_nodes",
    "from_networkx",
    "from_tables",
    "graph_loader",
    "link_loader",
    "load",
    "load_graph",
    "load_ratings",
    "load_split",
    "names",
    "negatives",
    "node_loader",
    "save_graph",
    "save_split",
    "split_graphs",
    "split_links",
    "split_nodes",
    "training_edges",
    "triples",
    "with_reverse",
]


def __getattr__(name: str) -> Any:
    if name == "negatives":
        return importlib.import_module("gnndelete.datasets.negatives")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gnndelete.datasets' has no attribute {name!r}")
