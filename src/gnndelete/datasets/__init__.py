"""Graphs to work on: loaders by name, splits of their links and nodes, pairs that are not edges, and forget sets."""

from __future__ import annotations

from gnndelete.batch import GraphBatch, collate
from gnndelete.datasets import negatives
from gnndelete.datasets.assembly import NamedGraph
from gnndelete.datasets.communities import communities
from gnndelete.datasets.folder import save_graph
from gnndelete.datasets.forget import edge_pool, forget_edges, forget_graphs, forget_nodes, training_edges
from gnndelete.datasets.formats import from_networkx, load_graph
from gnndelete.datasets.graphs import graph_loader
from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.named import from_tables
from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.datasets.registry import describe, load, names
from gnndelete.datasets.sampling import NeighborSampler, link_loader, node_loader
from gnndelete.datasets.saved import load_split, save_split
from gnndelete.datasets.splits import GraphSplit, LinkSplit, split_graphs, split_links, split_nodes
from gnndelete.datasets.triples import TripleCorrupter, triples, with_reverse

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
