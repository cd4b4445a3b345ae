"""Graphs to work on: loaders by name, splits of their links and nodes, pairs that are not edges, and forget sets."""

from __future__ import annotations

from gnndelete.datasets import negatives
from gnndelete.datasets.forget import edge_pool, forget_edges, forget_nodes, training_edges
from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.datasets.registry import describe, load, names
from gnndelete.datasets.splits import LinkSplit, split_links, split_nodes

__all__ = [
    "LinkSplit",
    "NegativeSampler",
    "describe",
    "edge_pool",
    "forget_edges",
    "forget_nodes",
    "load",
    "names",
    "negatives",
    "split_links",
    "split_nodes",
    "training_edges",
]
