"""Training, held-out and test parts of a graph's links or nodes: the same on every machine for the same seed."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.adjacency import EdgeTable
from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.errors import GraphError, NotYetError, SettingError


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """A training graph, and true edges (with as many non-edges) that it does not contain.

    Edges of an undirected graph are listed once, as u < v; the training graph holds both directions.
    """

    data: Data
    heldout: Tensor
    test: Tensor
    heldout_negatives: Tensor
    test_negatives: Tensor
    seed: int


def split_links(data: Data, seed: int = 0, val: float = 0.05, test: float = 0.05) -> LinkSplit:
    """Take ``val`` and ``test`` of the edges out of the graph and pair them with as many non-edges.

    Self-loops stay in the training graph; parallel copies of an edge stay or go together.

    >>> from gnndelete.datasets import load
    >>> split = split_links(load("digits"), seed=1)
    >>> split.heldout.shape == split.heldout_negatives.shape == split.test.shape
    True
    """
    _check_fractions(val=val, test=test)
    if not isinstance(data, Data) or "edge_type" in data:
        raise NotYetError(
            f"links of typed graphs cannot be split yet (got a '{type(data).__name__}' with typed edges); "
            "split the triples yourself and pass them to LinkPrediction(heldout=…, test=…)"
        )
    if data.edge_index is None:
        raise GraphError(
            f"the graph has no 'edge_index' (it has: {', '.join(data.keys()) or 'nothing'}); links need it"
        )
    num_nodes = int(data.num_nodes or 0)
    device = data.edge_index.device
    edge_index = data.edge_index.cpu()
    table = EdgeTable(edge_index, num_nodes)
    generator = torch.Generator().manual_seed(seed)

    key = torch.unique_consecutive(table.keys)
    head, tail = key // num_nodes, key % num_nodes
    key = key[head < tail if table.undirected else head != tail]
    num_val, num_test = int(val * key.numel()), int(test * key.numel())
    order = torch.randperm(key.numel(), generator=generator)
    taken = key[order[: num_val + num_test]]
    positives = torch.stack([taken // num_nodes, taken % num_nodes]).to(device)
    sampler = NegativeSampler(edge_index, num_nodes, undirected=table.undirected)
    negatives = sampler.sample(num_val + num_test, generator, distinct=True).to(device)

    head, tail = edge_index
    if table.undirected:
        head, tail = torch.minimum(head, tail), torch.maximum(head, tail)
    keep = ~torch.isin(head * num_nodes + tail, taken)
    return LinkSplit(
        data=_with_edges(data, keep.to(device), num_nodes),
        heldout=positives[:, :num_val],
        test=positives[:, num_val:],
        heldout_negatives=negatives[:, :num_val],
        test_negatives=negatives[:, num_val:],
        seed=seed,
    )


def split_nodes(data: Data, seed: int = 0, train: float = 0.9, val: float = 0.05) -> Data:
    """A copy of the graph with ``train_mask``, ``val_mask`` and ``test_mask``; what is neither train nor val is test.

    Nodes without a label (``y == -1``) are in no mask.

    >>> from gnndelete.datasets import load
    >>> data = split_nodes(load("digits"), seed=1)
    >>> int(data.train_mask.sum() + data.val_mask.sum() + data.test_mask.sum()) == data.num_nodes
    True
    """
    _check_fractions(train=train, val=val)
    num_nodes = int(data.num_nodes or 0)
    nodes = torch.arange(num_nodes)
    if isinstance(data.y, Tensor) and data.y.numel() == num_nodes:
        nodes = nodes[data.y.view(-1).cpu() != -1]
    nodes = nodes[torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))]
    num_train, num_val = int(train * nodes.numel()), int(val * nodes.numel())
    parts = nodes[:num_train], nodes[num_train : num_train + num_val], nodes[num_train + num_val :]
    device = data.x.device if data.x is not None else data.edge_index.device
    split = copy.copy(data)
    for name, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        mask[part] = True
        split[name] = mask.to(device)
    return split


def _with_edges(data: Data, keep: Tensor, num_nodes: int) -> Data:
    """A copy whose edges, and whatever belongs to an edge, are those marked in ``keep``; the rest is shared."""
    split = copy.copy(data)
    if data.x is None:
        split.num_nodes = num_nodes  # otherwise inferred from the edges, which are fewer now
    for key in list(data.keys()):
        if key in ("edge_label", "edge_label_index", "adj_t"):
            del split[key]  # these would bring the held-out edges back
        elif data.is_edge_attr(key):
            split[key] = data[key][..., keep] if key == "edge_index" else data[key][keep]
    return split


def _check_fractions(**fractions: float) -> None:
    for name, value in fractions.items():
        if not 0 <= value <= 1:
            raise SettingError(f"'{name}' must lie between 0 and 1 (got {value})")
    if sum(fractions.values()) > 1:
        shown = " and ".join(f"'{name}' {value}" for name, value in fractions.items())
        raise SettingError(f"{shown} add up to more than 1; leave something for the rest")
