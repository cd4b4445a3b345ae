"""A small knowledge graph, split, with a trained model of each kind: what the tests of typed graphs work on."""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.datasets.generated import knowledge_graph

NODES, RELATIONS = 160, 4


@cache
def _parts(name: str) -> tuple[nn.Module, Data, gd.LinkPrediction]:
    data = knowledge_graph(NODES, 1_200, RELATIONS, community=40, seed=1)
    del data.node_type
    split = gd.datasets.split_links(data, seed=1, val=0.1, test=0.1)
    task = gd.LinkPrediction(
        validation=split.validation,
        test=split.test,
        validation_negatives=split.validation_negatives,
        test_negatives=split.test_negatives,
        decoder="distmult",
        seed=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = gd.models.build(
            name, num_nodes=NODES, num_relations=RELATIONS, embedding=16, hidden=16, out=8, num_bases=3
        )
    gd.train(model, split.data, task, epochs=60, lr=0.02, seed=1)
    return model, split.data, task


def problem(name: str = "rgcn") -> tuple[nn.Module, Data, gd.LinkPrediction]:
    """A trained model, the graph it was trained on, and its task; copies, so that a test may do what it likes."""
    model, data, task = _parts(name)
    return copy.deepcopy(model), copy.copy(data), copy.copy(task)


def columns(edges: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(column) for column in edges.t().tolist()}
