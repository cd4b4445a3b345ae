"""Graphs to work on: datasets by name, your own tables, splits, forget sets, negative pairs and loaders.

Everything is imported when first used, so that datasets can be listed without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnndelete.datasets import negatives
    from gnndelete.datasets.community_detection import communities
    from gnndelete.datasets.forget import edge_pool, forget_edges, forget_graphs, forget_nodes, training_edges
    from gnndelete.datasets.formats import from_networkx, load_graph, save_graph
    from gnndelete.datasets.ids import IdMap
    from gnndelete.datasets.negatives import NegativeSampler
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
    from gnndelete.datasets.typed_edges import TripleCorrupter, triples, with_reverse
    from gnndelete.graph.batch import GraphBatch, collate

_HOME = {
    "GraphBatch": "gnndelete.graph.batch",
    "GraphSplit": "gnndelete.datasets.splits",
    "IdMap": "gnndelete.datasets.ids",
    "LinkSplit": "gnndelete.datasets.splits",
    "NamedGraph": "gnndelete.datasets.tables",
    "NegativeSampler": "gnndelete.datasets.negatives",
    "NeighborSampler": "gnndelete.datasets.sampling",
    "TripleCorrupter": "gnndelete.datasets.typed_edges",
    "collate": "gnndelete.graph.batch",
    "communities": "gnndelete.datasets.community_detection",
    "describe": "gnndelete.datasets.registry",
    "edge_pool": "gnndelete.datasets.forget",
    "forget_edges": "gnndelete.datasets.forget",
    "forget_graphs": "gnndelete.datasets.forget",
    "forget_nodes": "gnndelete.datasets.forget",
    "from_networkx": "gnndelete.datasets.formats",
    "from_tables": "gnndelete.datasets.tables",
    "graph_loader": "gnndelete.datasets.sampling",
    "link_loader": "gnndelete.datasets.sampling",
    "load": "gnndelete.datasets.registry",
    "load_graph": "gnndelete.datasets.formats",
    "load_split": "gnndelete.datasets.splits",
    "names": "gnndelete.datasets.registry",
    "node_loader": "gnndelete.datasets.sampling",
    "save_graph": "gnndelete.datasets.formats",
    "save_split": "gnndelete.datasets.splits",
    "split_graphs": "gnndelete.datasets.splits",
    "split_links": "gnndelete.datasets.splits",
    "split_nodes": "gnndelete.datasets.splits",
    "training_edges": "gnndelete.datasets.forget",
    "triples": "gnndelete.datasets.typed_edges",
    "with_reverse": "gnndelete.datasets.typed_edges",
}

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
