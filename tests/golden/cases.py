"""The cases of the golden test: small models, small graphs, and what a deletion gives on them.

Every case deletes something from a small trained model and writes down what came out. ``golden.json`` holds these
records as they were when it was last written; ``test_golden.py`` compares. Only the public interface is used here, so
that the library can be rebuilt inside without a change to this file.

    python -m tests.golden.cases --write             run all cases and write golden.json
    python -m tests.golden.cases --only NAME         run one case and print its record
    python -m tests.golden.cases --write --only NAME run one case and replace its record in golden.json
"""

from __future__ import annotations

import tests.processor  # noqa: F401

# isort: split
import argparse
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GATConv, GCNConv, HeteroConv, LGConv, SAGEConv, Sequential, to_hetero

import gnndelete as gd

FILE = Path(__file__).with_name("golden.json")


# Names that a later version changes: each of them is used in one place only.


def link_task(split: Any, **options: Any) -> gd.LinkPrediction:
    """The link task of a split."""
    held, negatives = split.validation, split.validation_negatives
    return link_task_of(
        held, split.test, validation_negatives=negatives, test_negatives=split.test_negatives, **options
    )


def link_task_of(held: Tensor, test: Tensor, **options: Any) -> gd.LinkPrediction:
    """A link task of validation and test edges that are given."""
    return gd.LinkPrediction(validation=held, test=test, **options)


def graph_parts(train: range, held: range, test: range) -> dict[str, range]:
    """Which graphs of a set are for training, validation and testing."""
    return {"train": train, "validation": held, "test": test}


def closed_form() -> str:
    """The name of the solver that trains nothing."""
    return "closed-form"


# Graphs


def pairs_in_groups(nodes: int, edges: int, groups: int, seed: int, mixing: float = 0.1) -> Tensor:
    """Distinct pairs u < v; all but a share ``mixing`` of them join two nodes of one group."""
    generator = torch.Generator().manual_seed(seed)
    size, count = nodes // groups, edges * 8
    source = (torch.rand(count, generator=generator) ** 1.5 * size).long()  # some nodes have more edges than others
    group = torch.randint(groups, (count,), generator=generator)
    target = (torch.rand(count, generator=generator) ** 1.5 * size).long()
    other = torch.randint(groups, (count,), generator=generator)
    leaves = torch.rand(count, generator=generator) < mixing
    u, v = source * groups + group, target * groups + torch.where(leaves, other, group)
    found = torch.unique(torch.stack([torch.minimum(u, v), torch.maximum(u, v)])[:, u != v], dim=1)
    return found[:, torch.randperm(found.size(1), generator=generator)[:edges].sort().values]


def community_graph(nodes: int = 160, edges: int = 700, groups: int = 8, features: int = 8, seed: int = 0) -> Data:
    """An undirected graph of groups; a node's features are near those of its group, its class is its group modulo 4."""
    pairs = pairs_in_groups(nodes, edges, groups, seed)
    generator = torch.Generator().manual_seed(seed)
    group = torch.arange(nodes) % groups
    x = torch.randn(groups, features, generator=generator)[group] + torch.randn(nodes, features, generator=generator)
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=group % 4)


def knowledge_graph(nodes: int = 120, triples: int = 900, relations: int = 4, seed: int = 1) -> Data:
    """A directed graph with types: each relation joins nodes of a group, in one direction."""
    pairs = pairs_in_groups(nodes, triples, 6, seed)
    return Data(edge_index=pairs, edge_type=(pairs[0] + 3 * pairs[1]) % relations, num_nodes=nodes)


def rings_and_paths(count: int = 60, seed: int = 0) -> list[Data]:
    """Small graphs of two classes."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for index in range(count):
        size = int(torch.randint(5, 9, (1,), generator=generator))
        ends = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
        ends = ends if index % 2 else ends[:, :-1]
        x = torch.randn(size, 4, generator=generator) + 0.5 * (index % 2)
        found.append(Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=torch.tensor([index % 2])))
    return found


RATES, FOLLOWS = ("user", "rates", "item"), ("user", "follows", "user")
USERS, ITEMS = 70, 50


def shop() -> tuple[HeteroData, Tensor, Tensor]:
    """Users who rate items and follow each other, and ratings for validation and for testing."""
    generator = torch.Generator().manual_seed(5)
    user, item = torch.randint(USERS, (2400,), generator=generator), torch.randint(ITEMS, (2400,), generator=generator)
    alike = (user % 5 == item % 5) | (torch.rand(2400, generator=generator) < 0.1)
    rated = torch.unique(torch.stack([user, item])[:, alike], dim=1)
    rated = rated[:, torch.randperm(rated.size(1), generator=generator)]
    held, test, learned = rated.split([60, 60, rated.size(1) - 120], dim=1)
    data = HeteroData()
    data["user"].x = torch.randn(USERS, 5, generator=generator)
    data["item"].x = torch.randn(ITEMS, 7, generator=generator)
    items = torch.arange(ITEMS)
    data["item"].y = items % 5
    data["item"].train_mask, data["item"].val_mask, data["item"].test_mask = (
        items < 30,
        (items >= 30) & (items < 40),
        items >= 40,
    )
    data[RATES].edge_index = learned
    data[FOLLOWS].edge_index = pairs_in_groups(USERS, 100, 5, seed=2)
    return T.ToUndirected()(data), held, test


# Models that a user may have written


class Remembers(nn.Module):
    """Two SAGE layers on features and on a trained vector per node."""

    def __init__(self, nodes: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 16)
        self.first, self.second = SAGEConv(features + 16, 16), SAGEConv(16, 12)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.cat([x, self.table.weight], dim=1)
        return self.second(self.first(h, edge_index).relu(), edge_index)

    def decode(self, z: Tensor, edges: Tensor) -> Tensor:
        u, v = z[edges[0]], z[edges[1]]
        return (u[:, :6] * v[:, 6:] + v[:, :6] * u[:, 6:]).sum(dim=1)


class Recommender(nn.Module):
    """LightGCN: nothing but a trained vector per node."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 12)
        self.first, self.second = LGConv(), LGConv()

    def forward(self, edge_index: Tensor) -> Tensor:
        h = self.table.weight
        once = self.first(h, edge_index)
        return (h + once + self.second(once, edge_index)) / 3


class Directed(nn.Module):
    """Two SAGE layers on features and on a trained vector per node."""

    def __init__(self, nodes: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 8)
        self.convs = nn.ModuleList([SAGEConv(features + 8, 16), SAGEConv(16, 8)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.convs[0](torch.cat([x, self.table.weight], dim=1), edge_index)
        return self.convs[1](h.relu(), edge_index)

    def decode(self, z: Tensor, edges: Tensor) -> Tensor:
        return (z[edges[0], :4] * z[edges[1], 4:]).sum(dim=1)


class WholeData(nn.Module):
    """A model whose forward takes the graph."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, 12), GCNConv(12, 6)

    def forward(self, data: Data) -> Tensor:
        return self.second(self.first(data.x, data.edge_index).relu(), data.edge_index)


class Repeated(nn.Module):
    """One layer that is called three times."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.embed, self.conv = nn.Linear(features, 8), GCNConv(8, 8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.embed(x)
        for _ in range(3):
            x = torch.tanh(self.conv(x, edge_index))
        return x


class Attention(nn.Module):
    """Layers that return their attention beside the rows."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.second = GATConv(features, 4, heads=2), GATConv(8, 6)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        x, (_, alpha) = self.first(x, edge_index, return_attention_weights=True)
        x, _ = self.second(x.relu(), edge_index, return_attention_weights=True)
        return x, alpha


class Shop(nn.Module):
    """Two HeteroConv layers on features and on a trained vector per user."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(USERS, 6)
        kinds = (RATES, FOLLOWS, ("item", "rev_rates", "user"))
        widths = {"user": 11, "item": 7}
        self.first = HeteroConv({kind: SAGEConv((widths[kind[0]], widths[kind[2]]), 10) for kind in kinds})
        self.second = HeteroConv({kind: SAGEConv((10, 10), 6) for kind in kinds}, aggr="mean")

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
        x = {"user": torch.cat([x_dict["user"], self.table.weight], dim=1), "item": x_dict["item"]}
        x = {kind: h.relu() for kind, h in self.first(x, edge_index_dict).items()}
        return self.second(x, edge_index_dict)


class Sage(nn.Module):
    """For to_hetero."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


# Settings: a trained model, its graph and its task


@dataclass(frozen=True)
class Setting:
    """A trained model with its graph, its task, and elements to ask about after a deletion."""

    model: nn.Module
    data: Any
    task: Any = None
    elements: Any = None
    forward: Any = None


def trained(
    build: Callable[[], nn.Module], data: Any, task: Any, epochs: int, lr: float = 0.02, seed: int = 1, **options: Any
) -> nn.Module:
    """A model that was trained for a few epochs from fixed weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build()
    gd.train(model, data, task, epochs=epochs, lr=lr, seed=seed, **options)
    return model.eval()


def untrained(build: Callable[[], nn.Module], data: Any, call: Callable[[nn.Module, Any], Any]) -> nn.Module:
    """A model with random weights that are always the same."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        model = build()
        call(model, data)
        for parameter in model.parameters():
            parameter.normal_(0, 0.4)
    return model.eval()


LINK_MODELS: dict[str, tuple[Callable[[Data], nn.Module], int, float]] = {
    "gcn": (lambda data: gd.models.build("gcn", data.num_features, hidden=16, out=8), 30, 0.02),
    "gat": (lambda data: gd.models.build("gat", data.num_features, hidden=16, out=8), 30, 0.02),
    "gin": (lambda data: gd.models.build("gin", data.num_features, hidden=16, out=8), 30, 0.005),
    "gps": (lambda data: gd.models.build("gps", data.num_features, hidden=16, out=8, heads=2), 10, 0.005),
    "graphormer": (lambda data: gd.models.build("graphormer", data.num_features, hidden=16, out=8, heads=2), 5, 0.005),
    "whole-data": (lambda data: WholeData(data.num_features), 30, 0.02),
    "sequential": (
        lambda data: Sequential(
            "x, edge_index",
            [(GCNConv(data.num_features, 12), "x, edge_index -> x"), nn.ReLU(), (GCNConv(12, 6), "x, edge_index -> x")],
        ),
        30,
        0.02,
    ),
}


@cache
def link(name: str, seed: int = 0) -> Setting:
    """Link prediction on a graph of groups."""
    split = gd.datasets.split_links(community_graph(seed=seed), seed=seed, val=0.12, test=0.12)
    build, epochs, lr = LINK_MODELS[name]
    task = link_task(split)
    return Setting(trained(lambda: build(split.data), split.data, task, epochs, lr), split.data, task, split.test)


@cache
def by_heart(mixing: float = 0.3, decoder: str = "dot") -> Setting:
    """Link prediction by a model that has learned edges by heart; without validation data nothing stops it."""
    data, pairs = community_graph(features=4), pairs_in_groups(160, 800, 8, seed=0, mixing=mixing)
    data.edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    split = gd.datasets.split_links(data, val=0.12, test=0.12)
    model = trained(lambda: Remembers(160, 4), split.data, gd.LinkPrediction(decoder=decoder), 80, 0.03)
    return Setting(model, split.data, link_task(split, decoder=decoder), split.test)


@cache
def digits() -> Setting:
    """Link prediction on the first nodes of the bundled graph."""
    whole = gd.datasets.load("digits")
    whole.x = whole.x.double()
    split = gd.datasets.split_links(whole.subgraph(torch.arange(whole.num_nodes) < 300), val=0.1, test=0.1)
    task = link_task(split)
    model = trained(lambda: gd.models.GCN(split.data.num_features, hidden=32, out=16), split.data, task, 30, 0.01)
    return Setting(model, split.data, task, split.test)


@cache
def recommender() -> Setting:
    """Link prediction between users and items, all in one table of nodes."""
    data, _, _ = shop()
    pairs = data[RATES].edge_index + torch.tensor([[0], [USERS]])
    graph = Data(edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), num_nodes=USERS + ITEMS)
    split = gd.datasets.split_links(graph, val=0.12, test=0.12)
    task = link_task(split)
    model = trained(lambda: Recommender(USERS + ITEMS), split.data, task, 80, 0.05)
    return Setting(model, split.data, task, split.test)


@cache
def directed() -> Setting:
    """Link prediction on a directed graph; the decoder is a method of the model."""
    data = community_graph(seed=4)
    data.edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    split = gd.datasets.split_links(data, val=0.12, test=0.12)
    task = link_task(split, decoder="decode")
    learned = gd.LinkPrediction(decoder="decode")  # without validation it learns by heart
    model = trained(lambda: Directed(data.num_nodes, data.num_features), split.data, learned, 120, 0.03)
    return Setting(model, split.data, task, split.test)


@cache
def typed(name: str, reverse: bool = False) -> Setting:
    """Link prediction of triples; with ``reverse`` the graph also holds each triple the other way."""
    split = gd.datasets.split_links(knowledge_graph(), seed=1, val=0.1, test=0.1)
    data = gd.datasets.with_reverse(split.data) if reverse else split.data
    task = link_task(split, decoder="distmult")
    options = {"num_nodes": 120, "num_relations": 8 if reverse else 4, "embedding": 12, "hidden": 12, "out": 8}
    options |= {"reverse": False} if reverse else {"num_bases": 3}
    learned = gd.LinkPrediction(decoder="distmult")  # without validation it learns by heart
    model = trained(lambda: gd.models.build(name, **options), data, learned, 80)
    return Setting(model, data, task, split.test)


@cache
def node(name: str) -> Setting:
    """Node classification."""
    data = gd.datasets.split_nodes(community_graph(features=6, seed=2), seed=1, train=0.6, val=0.2)
    model = trained(lambda: gd.models.build(name, 6, hidden=12, out=4), data, "node", 40)
    return Setting(model, data, "node", torch.arange(30))


@cache
def graphs(name: str) -> Setting:
    """Classification of whole graphs."""
    data = gd.datasets.collate(rings_and_paths(), graph_parts(range(36), range(36, 48), range(48, 60)))
    options = {"heads": 2} if name == "gps" else {}
    model = trained(
        lambda: gd.models.build(name, 4, hidden=8, out=2, pool="mean", num_layers=2, **options),
        data,
        "graph",
        12,
        batch_size=12,
    )
    return Setting(model, data, "graph", torch.arange(40, 60))


@cache
def hetero_link() -> Setting:
    """Link prediction of ratings on a graph with node types."""
    data, held, test = shop()
    task = link_task_of(held, test, edge_type=RATES)
    return Setting(trained(Shop, data, task, 80), data, task, {RATES: test})


@cache
def hetero_node() -> Setting:
    """Classification of items on a graph with node types."""
    data, _, _ = shop()
    task = gd.NodeClassification(node_type="item")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = trained(lambda: to_hetero(Sage(), data.metadata()), data, task, 20)
    return Setting(model, data, task, {"item": torch.arange(20)})


@cache
def no_task(name: str) -> Setting:
    """A model without a task."""
    data = community_graph(features=6, seed=6)
    if name == "hetero":
        model = untrained(Shop, shop()[0], lambda m, d: m(d.x_dict, d.edge_index_dict))
        return Setting(model, shop()[0])
    kinds = {"repeated": Repeated, "tuples": Attention, "gcn": lambda width: gd.models.GCN(width, 8, 6)}
    model = untrained(lambda: kinds[name](6), data, lambda m, d: m(d.x, d.edge_index))
    return Setting(model, data)


# Requests


def some(share: float = 0.06, seed: int = 0, **options: Any) -> Callable[[Setting], list[gd.Deletion]]:
    """Edges that are drawn at random."""
    return lambda s: [gd.Deletion(edges=gd.datasets.forget_edges(s.data, share, seed=seed, **options))]


def two_of(share: float = 0.06) -> Callable[[Setting], list[gd.Deletion]]:
    """Two requests for edges, one after the other."""

    def ask(setting: Setting) -> list[gd.Deletion]:
        edges = gd.datasets.forget_edges(setting.data, share, seed=3)
        half = edges.size(1) // 2
        return [gd.Deletion(edges=edges[:, :half]), gd.Deletion(edges=edges[:, half:])]

    return ask


def of_nodes(count: int, more: int = 0, seed: int = 0) -> Callable[[Setting], list[gd.Deletion]]:
    """All edges of ``count`` nodes, which then have none, and ``more`` other edges."""

    def ask(setting: Setting) -> list[gd.Deletion]:
        edges = gd.datasets.training_edges(setting.data)
        chosen = gd.datasets.forget_nodes(setting.data, count, seed=seed)
        gone = torch.isin(edges, chosen).any(dim=0)
        others = gd.datasets.forget_edges(setting.data, more, seed=seed) if more else edges[:, :0]
        return [gd.Deletion(edges=torch.cat([edges[:, gone], others], dim=1))]

    return ask


def given(*requests: dict[str, Any]) -> Callable[[Setting], list[gd.Deletion]]:
    """Requests that are written down."""
    return lambda _: [gd.Deletion(**request) for request in requests]


def mixed(setting: Setting) -> list[gd.Deletion]:
    """Edges, nodes and features at once."""
    edges = gd.datasets.forget_edges(setting.data, 0.04, seed=1)
    return [gd.Deletion(edges=edges, nodes=[5, 17], features={3: [0, 2], 40: [1]}, fill=0.5)]


def mixed_nodes(setting: Setting) -> list[gd.Deletion]:
    """Two requests for different kinds of elements of a node task."""
    train = setting.data.train_mask.nonzero().flatten()
    edges = gd.datasets.forget_edges(setting.data, 0.02, seed=1)
    edges = edges[:, ~torch.isin(edges, train[:4]).any(dim=0)]
    return [gd.Deletion(nodes=train[:4], labels=train[10:14]), gd.Deletion(edges=edges, features=train[20:23])]


def trained_nodes(kind: str, count: int) -> Callable[[Setting], list[gd.Deletion]]:
    """Training nodes, their labels or their features."""
    return lambda s: [gd.Deletion(**{kind: gd.datasets.forget_nodes(s.data, count, seed=2)})]


def triple_nodes(setting: Setting) -> list[gd.Deletion]:
    """A node and some triples of a graph with types."""
    return [gd.Deletion(nodes=[7], edges=gd.datasets.forget_edges(setting.data, 0.03, seed=1))]


def in_graphs(setting: Setting) -> list[gd.Deletion]:
    """An edge of one graph and a node of another, then whole graphs."""
    data = setting.data
    return [gd.Deletion(edges=data.at(7, [[0], [1]]), nodes=data.at(9, [2])), gd.Deletion(graphs=[3, 11])]


def ratings(setting: Setting) -> list[gd.Deletion]:
    """Every ninth rating."""
    return [gd.Deletion(edges={RATES: setting.data[RATES].edge_index[:, ::9]})]


def shop_mixed(setting: Setting) -> list[gd.Deletion]:
    """Elements of several types."""
    first = {"nodes": {"item": [3]}, "features": {"user": {4: [0, 2]}}, "fill": 0.5, "labels": {"item": [9, 12]}}
    return [
        gd.Deletion(**first),
        gd.Deletion(edges={RATES: setting.data[RATES].edge_index[:, :3]}, nodes={"user": [8]}),
    ]


# The cases


@dataclass(frozen=True)
class Case:
    """What is deleted from what, and by which method."""

    setting: Callable[[], Setting]
    requests: Callable[[Setting], list[gd.Deletion]]
    method: Callable[[], Any] = gd.GNNDelete
    options: dict[str, Any] = field(default_factory=dict)


def gnndelete(**settings: Any) -> Callable[[], gd.GNNDelete]:
    return lambda: gd.GNNDelete(**settings)


def widened(width: int) -> nn.Module:
    """An operator of the user's own."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width))


HALF = gnndelete(lam=0.5)
NONEXISTENT = gnndelete(aim="nonexistent")

CASES: dict[str, Case] = {
    # links: models, with a search for lam
    "link-gcn-default": Case(lambda: link("gcn"), some()),
    "link-gat-default": Case(lambda: link("gat"), some(0.08)),
    "link-gin-nonexistent": Case(lambda: link("gin"), some(), NONEXISTENT),
    "link-gps-default": Case(lambda: link("gps"), some()),
    "link-graphormer-half": Case(lambda: link("graphormer"), some(0.03), HALF),
    "link-sequential-nonexistent": Case(lambda: link("sequential"), some(), NONEXISTENT),
    "link-whole-data-half": Case(lambda: link("whole-data"), some(), HALF),
    "link-digits-default": Case(digits, some(0.05)),
    "link-digits-nonexistent-sequence": Case(digits, two_of(0.05), NONEXISTENT),
    # this model is no better than chance on validation data, so that nothing would be calibrated by it
    "link-embedding-default": Case(by_heart, some(0.1), gnndelete(lam=0.3)),
    "link-embedding-sequence": Case(by_heart, two_of(0.12), gnndelete(lam=0.3)),
    "link-embedding-left-alone": Case(lambda: by_heart(0.6, "decode"), of_nodes(3, more=40), gnndelete(lam=0.3)),
    "link-embedding-nodes": Case(by_heart, given({"nodes": [3, 30, 31]})),
    "link-recommender-default": Case(recommender, some(0.1)),
    "link-recommender-left-alone": Case(recommender, of_nodes(2, more=30, seed=1)),
    "link-recommender-hubs": Case(recommender, some(0.06, where="hubs")),
    "link-directed-default": Case(directed, some(0.1)),
    # links: settings of the method, and kinds of deletion
    "link-gcn-half": Case(lambda: link("gcn"), some(), gnndelete(lam=0.5, solver=closed_form())),
    "link-gcn-shared": Case(lambda: link("gcn"), some(), gnndelete(lam=0.5, operator="shared")),
    "link-gcn-paper": Case(lambda: link("gcn"), some(), lambda: gd.GNNDelete.paper()),
    "link-directed-paper-directed": Case(directed, some(), lambda: gd.GNNDelete.paper(hops="directed")),
    "link-gat-gradient": Case(lambda: link("gat"), some(), gnndelete(lam=0.5, solver="gradient", epochs=20)),
    "link-gcn-own-operator": Case(
        lambda: link("gcn"), some(), gnndelete(lam=0.4, solver="gradient", epochs=15, operator=widened)
    ),
    "link-gat-original-targets": Case(lambda: link("gat"), some(), gnndelete(lam=0.3, targets="original")),
    "link-gin-last-layer": Case(lambda: link("gin"), some(), gnndelete(lam=0.5, layers="last")),
    "link-gcn-mixed": Case(lambda: link("gcn"), mixed),
    "link-gcn-features-sequence": Case(
        lambda: link("gcn"), given({"features": {3: [0, 2], 8: [1]}, "fill": 0.5}, {"features": [12, 13]}), HALF
    ),
    # no task
    "no-task-gcn-default": Case(lambda: no_task("gcn"), some(0.02)),
    "no-task-repeated-nodes": Case(lambda: no_task("repeated"), given({"nodes": [4, 9]}), HALF),
    "no-task-tuples": Case(lambda: no_task("tuples"), some(0.02), HALF),
    "no-task-hetero": Case(lambda: no_task("hetero"), shop_mixed, HALF),
    # triples
    "typed-rgcn-default": Case(lambda: typed("rgcn"), some(0.08)),
    "typed-rgat-nonexistent": Case(lambda: typed("rgat"), some(0.05), NONEXISTENT),
    "typed-rgcn-relation": Case(lambda: typed("rgcn"), given({"relations": [2]}), HALF),
    "typed-rgat-nodes": Case(lambda: typed("rgat"), triple_nodes),
    "typed-rgcn-reverse": Case(lambda: typed("rgcn", reverse=True), two_of(0.06)),
    # node types
    "hetero-link-default": Case(hetero_link, ratings),
    "hetero-link-half": Case(hetero_link, ratings, HALF),
    "hetero-node-mixed": Case(hetero_node, shop_mixed, gnndelete(lam=0.5)),
    # nodes
    "node-gcn-nodes": Case(lambda: node("gcn"), trained_nodes("nodes", 12)),
    "node-gat-labels": Case(lambda: node("gat"), trained_nodes("labels", 15)),
    "node-gin-features": Case(lambda: node("gin"), trained_nodes("features", 12), NONEXISTENT),
    "node-gcn-mixed-sequence": Case(lambda: node("gcn"), mixed_nodes, HALF),
    # graphs
    "graph-gin-default": Case(lambda: graphs("gin"), given({"graphs": [1, 4, 6, 9, 12, 15, 18, 21]})),
    "graph-gcn-sequence": Case(lambda: graphs("gcn"), in_graphs, HALF),
    "graph-gps-half": Case(lambda: graphs("gps"), given({"graphs": [2, 5]}), HALF),
    # other methods
    "retrain-link": Case(lambda: link("gcn"), some(), lambda: gd.Retrain(epochs=10, lr=0.02)),
    "retrain-graph": Case(lambda: graphs("gin"), given({"graphs": [2, 5]}), lambda: gd.Retrain(epochs=5, lr=0.02)),
    "unlink-node": Case(lambda: node("gat"), mixed_nodes, gd.Unlink),
    "unlink-typed": Case(lambda: typed("rgcn"), given({"relations": [1]}), gd.Unlink),
    "gradascent-link": Case(lambda: link("gcn"), two_of(), lambda: gd.GradAscent(epochs=5)),
    "d2d-node": Case(lambda: node("gcn"), trained_nodes("nodes", 5), lambda: gd.D2D(iterations=5)),
    "grapheraser-node": Case(
        lambda: node("gcn"), trained_nodes("nodes", 3), lambda: gd.GraphEraser(shards=3, epochs=5, lr=0.02)
    ),
    "grapheditor-link": Case(lambda: link("gcn"), two_of(), lambda: gd.GraphEditor(dim=16, own_model=True)),
    "certunlearn-node": Case(
        lambda: node("gcn"), trained_nodes("nodes", 3), lambda: gd.CertUnlearn(dim=16, own_model=True)
    ),
    "gif-node": Case(lambda: node("gat"), trained_nodes("features", 4), lambda: gd.GIF(iterations=10)),
    "gif-link": Case(lambda: link("gcn"), some(0.03), lambda: gd.GIF(iterations=10)),
    "megu-node": Case(lambda: node("gcn"), trained_nodes("nodes", 5), lambda: gd.MEGU(epochs=5)),
    "jodie-link": Case(lambda: link("gcn"), some(0.03), lambda: gd.JODIE(dim=8, epochs=2)),
}


# Records


def digest(tensor: Tensor) -> str:
    """Tells any two tensors apart that differ in a single bit, in their type or in their shape."""
    tensor = tensor.detach().cpu().contiguous()
    hashed = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return hashed.hexdigest()[:20]


def rounded(value: float, places: int = 8) -> float:
    return float(f"{value:.{places}g}")


def described(tensor: Tensor) -> dict[str, Any]:
    """A tensor in a few numbers; what holds on one processor only stands under ``exact``."""
    tensor = tensor.detach().cpu()
    shape = list(tensor.shape)
    if not tensor.is_floating_point():
        return {"shape": shape, "digest": digest(tensor)}
    values = tensor.double()
    said: dict[str, Any] = {"shape": shape, "norm": rounded(float(values.norm())), "sum": rounded(float(values.sum()))}
    if tensor.dim() == 2 and shape[0] == shape[1]:
        said["trace"] = rounded(float(values.trace()))
    return said | {"exact": digest(tensor)}


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of an output, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            yield from tensors(value[name])
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


def graph_record(data: Any) -> dict[str, Any]:
    """Every tensor of a graph by its name."""
    found = {}
    for store in data.stores:
        for name, value in store.items():
            if isinstance(value, Tensor):
                key = store._key if isinstance(data, HeteroData) else None
                prefix = "" if key is None else key if isinstance(key, str) else " ".join(key)
                found[f"{prefix} {name}".strip()] = described(value)
    return dict(sorted(found.items()))


def operator_records(unlearned: gd.Unlearned) -> list[dict[str, Any]]:
    """Where every operator sits, which rows it changes, and its weights."""
    places = [] if unlearned.adapter is None else unlearned.adapter.operators
    return [
        {
            "layer": place.layer,
            "call": place.call,
            "key": place.key,
            "width": operator.width,
            "sizes": list(operator.sizes),
            "rows": described(operator.rows),
            "maps": [described(weight) for weight in operator.parameters()],
        }
        for place, operator in places
    ]


def search_record(unlearned: gd.Unlearned) -> dict[str, Any] | None:
    """How lam was found."""
    found = unlearned.calibration
    if found is None:
        return None
    trials = [{name: numbers(value) for name, value in trial.items()} for trial in found["trials"]]
    return {"status": found["status"], "trials": trials}


def numbers(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else value


def record(unlearned: gd.Unlearned, setting: Setting) -> dict[str, Any]:
    """What is kept of one result."""
    codes = [getattr(note, "code", None) for note in unlearned.notes]
    said: dict[str, Any] = {
        "method": unlearned.method,
        "assurance": unlearned.assurance,
        "parameters": unlearned.parameters,
        "lam": numbers(unlearned.lam),
        "search": search_record(unlearned),
        "counts": unlearned.counts,
        "notes": len(codes),
        "codes": None if None in codes else sorted(codes),
        "graph": graph_record(unlearned.data),
        "operators": operator_records(unlearned),
    }
    if unlearned.model is not None:
        said["output"] = [described(tensor) for tensor in tensors(unlearned.output())]
    if setting.task is not None:
        said["scores"] = {name: rounded(score, 6) for name, score in sorted(unlearned.evaluate().items())}
        said["predicted"] = described(unlearned.predict(setting.elements))
    return said


@contextmanager
def same_everywhere() -> Iterator[None]:
    """One thread and double precision: what processors round differently stays far below the tolerance."""
    threads, precision = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(precision)


@cache
def run(name: str) -> list[dict[str, Any]]:
    """The records of one case: one for each of its requests, as they come back from JSON."""
    case = CASES[name]
    with same_everywhere():
        setting = case.setting()
        server = gd.Unlearner(
            setting.model,
            setting.data,
            task=setting.task,
            method=case.method(),
            forward=setting.forward,
            **case.options,
        )
        found = [record(server.delete(request), setting) for request in case.requests(setting)]
    return json.loads(json.dumps(found))


def stored() -> dict[str, list[dict[str, Any]]]:
    """The golden records of all cases."""
    return json.loads(FILE.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write golden.json")
    parser.add_argument("--only", metavar="NAME", action="append", choices=sorted(CASES), help="run this case")
    chosen = parser.parse_args()
    names = chosen.only or list(CASES)
    found = {}
    for name in names:
        began = time.perf_counter()
        try:
            found[name] = run(name)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            if chosen.write or chosen.only:
                raise
            continue
        last = found[name][-1]
        search = last["search"] or {"status": "-", "trials": []}
        print(
            f"{name:36} {time.perf_counter() - began:5.2f} s  lam {last['lam']!s:12} {search['status']:9} "
            f"{len(search['trials'])} trials, {last['parameters']} parameters, {last['notes']} notes"
        )
    if chosen.write:
        kept = stored() if FILE.exists() and chosen.only else {}
        every = {name: (kept | found)[name] for name in CASES if name in kept or name in found}
        FILE.write_text(json.dumps(every, indent=1) + "\n")
    elif chosen.only:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
