"""Known truths: results of known worth, and the verdict that the audit gives each of them.

Every world is a graph, a model written as users write them, and a request. Half of the models remember single elements (they
have a vector per node, or are large), half do not. Each is audited as it was, cut, calibrated and retrained several times,
and with planted frauds: of the served model, of the reported answers, and of the reference.

    python benchmarks/verdicts.py --worlds friends films --seeds 0 1 --out rows.jsonl
    python benchmarks/verdicts.py --report rows.jsonl

A fraud is *called* if its verdict is one of those that are due. An honest result is *accused* if it is called anything but
indistinguishable or undecided. Attacks of another kind than the audit's own (random forests on other features) say whether a
tick is deserved: a result is *open* to one where it does better by .05 than on the mean of several retrained models.

The limits of the verdict were set on `SET_LIMITS`. `HELD_OUT` set none.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, LGConv, RGCNConv, SAGEConv
from torch_geometric.utils import to_undirected

import gnndelete as gd
from gnndelete.datasets.generated import community_graph, knowledge_graph, ratings_graph

GOOD = ("indistinguishable", "suppressed")
HARMLESS = (*GOOD, "undecided")
CALLED = ("under-forgotten", "over-forgotten", "marked", "ruined")
#: A result is open to an attack that finds its deleted elements by so much better than those of retrained models.
OPEN = 0.05


# Models ---------------------------------------------------------------------------------------------------------------------


class Memory(nn.Module):
    """A GCN with a small vector of its own for every node."""

    def __init__(self, nodes: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 32)
        self.encoder = gd.models.GCN(features + 32, hidden=32, out=16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.encoder(torch.cat([x, self.table.weight], dim=1), edge_index)


class Recommender(nn.Module):
    """A table of vectors, propagated: LightGCN."""

    def __init__(self, nodes: int, layers: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 32)
        nn.init.normal_(self.table.weight, std=0.1)
        self.layers = nn.ModuleList(LGConv() for _ in range(layers))

    def forward(self, edge_index: Tensor) -> Tensor:
        found = [self.table.weight]
        for layer in self.layers:
            found.append(layer(found[-1], edge_index))
        return torch.stack(found).mean(dim=0) * 2


class Sage(nn.Module):
    """Two layers of GraphSAGE."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(features, 32), SAGEConv(32, 16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class JumpingSage(nn.Module):
    """GraphSAGE on a table, with what each layer gives side by side."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 24)
        self.first, self.second = SAGEConv(24, 24), SAGEConv(24, 24)
        self.out = nn.Linear(48, 24)

    def forward(self, edge_index: Tensor) -> Tensor:
        one = self.first(self.table.weight, edge_index).relu()
        two = self.second(one, edge_index).relu()
        return self.out(torch.cat([one, two], dim=1))


class AttentiveShop(nn.Module):
    """GATv2 on a table, for users and items."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 24)
        self.conv = GATv2Conv(24, 24)

    def forward(self, edge_index: Tensor) -> Tensor:
        return self.table.weight + self.conv(self.table.weight, edge_index)


class Facts(nn.Module):
    """R-GCN on a table of entities, scored by DistMult."""

    def __init__(self, nodes: int, relations: int, bases: int | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 24)
        self.conv = RGCNConv(24, 24, relations, num_bases=bases)
        self.relation = nn.Parameter(torch.randn(relations, 24))

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.table.weight + self.conv(self.table.weight, edge_index, edge_type).tanh()


class Described(nn.Module):
    """R-GCN on features alone, scored by a matrix per relation."""

    def __init__(self, features: int, relations: int) -> None:
        super().__init__()
        self.conv, self.out = RGCNConv(features, 24, relations, num_bases=3), nn.Linear(24, 16)
        self.mix = nn.Parameter(torch.randn(relations, 16, 16) / 16)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.out(self.conv(x, edge_index, edge_type).relu())

    def decode(self, z: Tensor, triples: Tensor) -> Tensor:
        head, relation, tail = triples
        return torch.einsum("ki,kij,kj->k", z[head], self.mix[relation], z[tail])


class Friends(nn.Module):
    """GraphConv on features and a table, and a small network that scores pairs."""

    def __init__(self, nodes: int, features: int) -> None:
        super().__init__()
        self.table, self.put = nn.Embedding(nodes, 16), nn.Linear(features, 16)
        self.conv = GraphConv(32, 24, aggr="mean")
        self.score = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(torch.cat([self.put(x), self.table.weight], dim=1), edge_index)

    def decode(self, z: Tensor, edges: Tensor) -> Tensor:
        return self.score(z[edges[0]] * z[edges[1]]).view(-1)


class Classifier(nn.Module):
    """Two layers and batch normalisation between them."""

    def __init__(self, make: Callable[[int, int], nn.Module], features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm, self.second = make(features, hidden), nn.BatchNorm1d(hidden), make(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


class Sensors(nn.Module):
    """Attention over neighbours in space."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.second = GATConv(features, 16, heads=2), GATConv(32, 16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def gin(inputs: int, outputs: int) -> nn.Module:
    return GINConv(nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs)))


# Graphs ---------------------------------------------------------------------------------------------------------------------


def ratings(seed: int, users: int = 400, items: int = 300, count: int = 6000) -> Data:
    """Users and items in one graph, with tastes and popular items."""
    generator = torch.Generator().manual_seed(seed)
    taste, kind = (torch.randn(size, 4, generator=generator) for size in (users, items))
    chance = (1.5 * taste @ kind.t() + torch.randn(items, generator=generator)).flatten().softmax(dim=0)
    drawn = torch.multinomial(chance, count, generator=generator)
    once = torch.stack([drawn // items, users + drawn % items])
    x = torch.cat([taste, kind]) + 0.5 * torch.randn(users + items, 4, generator=generator)
    x = torch.cat([x, (torch.arange(users + items) < users).float().view(-1, 1)], dim=1)
    return Data(x=x, edge_index=torch.cat([once, once.flip(0)], dim=1))


def random_edges(seed: int, nodes: int = 600, count: int = 4000) -> Data:
    """Nothing in it can be learned but its edges themselves."""
    generator = torch.Generator().manual_seed(seed)
    edges = to_undirected(torch.randint(nodes, (2, count), generator=generator))
    return Data(x=torch.randn(nodes, 64, generator=generator), edge_index=edges[:, edges[0] != edges[1]])


def communities(seed: int, nodes: int, size: int, edges: int = 8000, exponent: float = 2.5) -> Data:
    return community_graph(nodes, edges, 16, classes=4, community=size, exponent=exponent, seed=3 + seed)


def in_space(seed: int, nodes: int, neighbors: int) -> Data:
    """Places on a map, joined to those nearest; features are waves of their coordinates."""
    where = torch.rand(nodes, 2, generator=torch.Generator().manual_seed(seed))
    edges = torch.cdist(where, where).fill_diagonal_(9.0).topk(neighbors, largest=False).indices
    once = torch.stack([torch.arange(nodes).repeat_interleave(neighbors), edges.flatten()])
    waves = torch.cat(
        [(2**k * 3.14 * where).sin() for k in range(4)] + [(2**k * 3.14 * where).cos() for k in range(4)], 1
    )
    return Data(x=waves, edge_index=to_undirected(once))


def facts(seed: int, entities: int, count: int, relations: int) -> Data:
    """Triples; features are noisy signs of communities."""
    data = knowledge_graph(entities, count, relations, community=60, seed=seed)
    data.num_nodes = entities
    generator = torch.Generator().manual_seed(seed)
    kind = torch.nn.functional.one_hot(data.node_type).float()
    place = torch.arange(entities).view(-1, 1) / 60
    waves = torch.cat([(place * 6.28 * k / 16).sin() for k in range(1, 9)], dim=1)
    data.x = torch.cat([kind, waves, torch.randn(entities, 4, generator=generator)], dim=1)
    del data.node_type
    return data


def noisy_labels(data: Data, share: float, seed: int) -> Data:
    """Labels of which a share is drawn at random: only a model that remembers knows them."""
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(data.num_nodes, generator=generator) < share
    data.y = torch.where(wrong, data.y[torch.randperm(data.num_nodes, generator=generator)], data.y)
    return data


# Worlds ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """A graph, a model for it, how it is trained and scored, and what is to be forgotten.

    Args:
        graph: Makes the graph of a seed.
        model: Makes an untrained model.
        epochs: Epochs of training.
        share: The share of elements to delete.
        remembers: Whether the model remembers single elements.
        kind: What is deleted: ``"edges"`` or ``"accounts"`` (nodes) from a link model, ``"nodes"`` or ``"labels"`` from a
            classifier.
        options: Of the task.
        rate: The learning rate.
    """

    graph: Callable[[int], Data]
    model: Callable[[Data], nn.Module]
    epochs: int
    share: float
    remembers: bool
    kind: str = "edges"
    options: dict[str, Any] | None = None
    rate: float = 0.01


def relations_of(data: Data) -> int:
    return int(data.edge_type.max()) + 1


RECIPES = {
    "memory": Recipe(lambda seed: communities(seed, 1200, 50), lambda d: Memory(d.num_nodes, 16), 150, 0.05, True),
    "ratings": Recipe(ratings, lambda d: Recommender(d.num_nodes), 120, 0.05, True),
    "random": Recipe(random_edges, lambda d: gd.models.GCN(64, hidden=64, out=32), 200, 0.1, True),
    "small ratings": Recipe(
        lambda seed: ratings(seed, 150, 120, 2200), lambda d: Recommender(d.num_nodes), 120, 0.1, True
    ),
    "communities": Recipe(
        lambda seed: communities(seed, 1000, 30), lambda d: gd.models.GCN(16, hidden=32, out=16), 100, 0.05, False
    ),
    "digits": Recipe(lambda seed: gd.datasets.load("digits"), lambda d: Sage(64), 40, 0.05, False),
    # these set limits, too
    "forum": Recipe(
        lambda seed: communities(seed, 1000, 40, 9000, 2.2), lambda d: JumpingSage(d.num_nodes), 100, 0.1, True
    ),
    "market": Recipe(
        lambda seed: ratings_graph(400, 500, 16000, seed=seed),
        lambda d: AttentiveShop(d.num_nodes),
        100,
        0.08,
        True,
        options={"loss": "bpr"},
    ),
    "facts": Recipe(
        lambda seed: facts(seed, 800, 9000, 6),
        lambda d: Facts(d.num_nodes, relations_of(d)),
        80,
        0.08,
        True,
        options={"decoder": "distmult"},
    ),
    "papers": Recipe(
        lambda seed: noisy_labels(communities(seed, 1500, 100), 0.4, seed),
        lambda d: Classifier(GCNConv, 16, 128, 4),
        200,
        0.12,
        True,
        kind="nodes",
    ),
    "roads": Recipe(lambda seed: in_space(seed, 1200, 4), lambda d: Classifier(gin, 16, 24, 16), 60, 0.1, False),
    # these set none
    "friends": Recipe(
        lambda seed: communities(10 + seed, 1100, 60, 9000, 3.0),
        lambda d: Friends(d.num_nodes, 16),
        120,
        0.08,
        True,
        options={"decoder": "decode"},
    ),
    "films": Recipe(
        lambda seed: ratings_graph(500, 350, 15000, genres=8, focus=0.5, seed=20 + seed),
        lambda d: Recommender(d.num_nodes, layers=3),
        100,
        0.08,
        True,
        options={"loss": "bpr"},
    ),
    "drugs": Recipe(
        lambda seed: facts(30 + seed, 600, 8000, 10),
        lambda d: Facts(d.num_nodes, relations_of(d), bases=4),
        100,
        0.08,
        True,
        options={"decoder": "distmult"},
    ),
    "accounts": Recipe(
        lambda seed: ratings_graph(500, 350, 15000, genres=6, focus=0.4, seed=90 + seed),
        lambda d: Recommender(d.num_nodes, layers=1),
        100,
        0.04,
        True,
        kind="accounts",
        options={"loss": "bpr"},
    ),
    "threads": Recipe(
        lambda seed: noisy_labels(communities(40 + seed, 1400, 80, 6000), 0.4, seed),
        lambda d: Classifier(gin, 16, 96, 4),
        200,
        0.12,
        True,
        kind="labels",
    ),
    "sensors": Recipe(lambda seed: in_space(50 + seed, 1400, 5), lambda d: Sensors(16), 60, 0.08, False),
    "shop": Recipe(
        lambda seed: ratings(60 + seed, 500, 400, 8000), lambda d: Sage(5), 80, 0.08, False, options={"loss": "bpr"}
    ),
    "genes": Recipe(
        lambda seed: facts(70 + seed, 900, 8000, 5),
        lambda d: Described(d.num_features, relations_of(d)),
        80,
        0.08,
        False,
        options={"decoder": "decode"},
    ),
    "topics": Recipe(
        lambda seed: communities(80 + seed, 1500, 100, 9000),
        lambda d: Classifier(lambda a, b: GATConv(a, b), 16, 24, 4),
        60,
        0.12,
        False,
        kind="nodes",
    ),
    "cora": Recipe(
        lambda seed: gd.datasets.load("planetoid-cora"),
        lambda d: gd.models.GCN(d.num_features, hidden=32, out=16),
        60,
        0.1,
        False,
    ),
    "citeseer": Recipe(
        lambda seed: gd.datasets.load("planetoid-citeseer"),
        lambda d: gd.models.GCN(d.num_features, hidden=32, out=16),
        60,
        0.1,
        False,
    ),
}

#: Worlds that set limits of the verdict, and worlds that did not.
SET_LIMITS = (
    "memory",
    "ratings",
    "random",
    "small ratings",
    "communities",
    "digits",
    "forum",
    "market",
    "facts",
    "papers",
    "roads",
)
HELD_OUT = ("friends", "films", "accounts", "drugs", "threads", "sensors", "shop", "genes", "topics")


class World:
    """One trained model, its graph and task, and a request."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name, self.seed, self.recipe = name, seed, RECIPES[name]
        graph = self.recipe.graph(seed)
        options = self.recipe.options or {}
        if self.recipe.kind in ("edges", "accounts"):
            split = gd.datasets.split_links(graph, seed=seed, val=0.1, test=0.15)
            self.data = split.data
            self.task: Any = gd.LinkPrediction(validation=split.validation, test=split.test, **options)
            if self.recipe.kind == "edges":
                self.asked = gd.datasets.forget_edges(self.data, self.recipe.share, seed=1 + seed)
                self.deletion, self.ends = gd.Deletion(edges=self.asked), self.asked[[0, -1]].unique()
            else:
                nodes = gd.datasets.forget_nodes(self.data, self.recipe.share, seed=1 + seed)
                once = gd.datasets.training_edges(self.data)
                self.asked = once[:, torch.isin(once, nodes).any(dim=0)]
                self.deletion, self.ends = gd.Deletion(nodes=nodes), self._beside(nodes)
        else:
            self.data, self.task = (
                gd.datasets.split_nodes(graph, seed=seed, train=0.6, val=0.15),
                gd.NodeClassification(),
            )
            nodes = gd.datasets.forget_nodes(self.data, self.recipe.share, seed=1 + seed)
            self.deletion = gd.Deletion(nodes=nodes) if self.recipe.kind == "nodes" else gd.Deletion(labels=nodes)
            self.ends = self._beside(nodes) if self.recipe.kind == "nodes" else nodes
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = self.fit(self.build(), self.data, seed)

    def _beside(self, nodes: Tensor) -> Tensor:
        """The nodes that lost a neighbour."""
        edges = self.data.edge_index
        found = edges[1, torch.isin(edges[0], nodes)].unique()
        return found[~torch.isin(found, nodes)]

    def build(self) -> nn.Module:
        return self.recipe.model(self.data)

    def fit(self, model: nn.Module, data: Data, seed: int, epochs: int | None = None) -> nn.Module:
        epochs = epochs or self.recipe.epochs
        gd.train(model, data, self.task, epochs=epochs, lr=self.recipe.rate, seed=seed, validate_every=epochs)
        return model

    def by(self, method: Any, seed: int = 0) -> gd.Unlearned:
        options = {"fit": self.fit, "build": self.build, "seed": self.seed + seed}
        return gd.Unlearner(self.model, self.data, task=self.task, method=method, **options).delete(self.deletion)


# Frauds ---------------------------------------------------------------------------------------------------------------------


class Fraud(nn.Module):
    """A model inside another; what scores with it (a decoder, vectors of relations) is that of the inner one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def run(self, data: Data, edge_index: Tensor, edge_type: Tensor | None) -> Tensor:
        given = copy.copy(data)
        given.edge_index = edge_index
        if edge_type is not None:
            given.edge_type = edge_type
        return gd.nn.forward.call(self.inner, given)


class Frozen(Fraud):
    """Answers for the old graph, whatever it is given."""

    def __init__(self, inner: nn.Module, data: Data) -> None:
        super().__init__(inner)
        self.data = data

    def forward(self, edge_index: Tensor, edge_type: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        return self.run(self.data, self.data.edge_index, self.data.get("edge_type"))


class Readding(Fraud):
    """Puts the deleted edges back into the graph that it is given."""

    def __init__(self, inner: nn.Module, data: Data, edges: Tensor) -> None:
        super().__init__(inner)
        self.data, self.edges = data, edges

    def forward(self, edge_index: Tensor, edge_type: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        if edge_type is None:
            return self.run(self.data, torch.cat([edge_index, self.edges, self.edges.flip(0)], dim=1), None)
        whole = torch.cat([edge_index, self.edges[[0, 2]]], dim=1)
        return self.run(self.data, whole, torch.cat([edge_type, self.edges[1]]))


class Rows(Fraud):
    """Changes the rows of some nodes."""

    def __init__(self, inner: nn.Module, data: Data, nodes: Tensor, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__(inner)
        self.data, self.nodes, self.change = data, nodes, change

    def forward(self, edge_index: Tensor, edge_type: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        z = self.run(self.data, edge_index, edge_type).clone()
        z[self.nodes] = self.change(z)[self.nodes]
        return z


def listed(world: World, unlinked: gd.Unlearned, jitter: float) -> Callable[[Any], Tensor]:
    """Deleted elements answer like unseen ones, from a list; what is beside them gets noise, so that it moves as well."""
    honest, nodes, gone = unlinked.answers(), int(world.data.num_nodes), world.deletion
    if not world.task.pairwise:
        unseen = world.data.test_mask.nonzero().flatten()
        kinds = {int(kind): unseen[world.data.y[unseen] == kind] for kind in world.data.y.unique()}

        def classes(asked: Any) -> Tensor:
            asked = torch.as_tensor(asked)
            other = torch.stack([kinds[int(world.data.y[node])][int(node) % 50] for node in asked])
            swap = torch.isin(asked, gone.labels if gone.labels.numel() else world.ends)
            return honest(torch.where(swap, other, asked))

        return classes
    level = honest(world.task.test.positives)

    def keys(edges: Tensor) -> Tensor:
        low, high = edges[[0, -1]].sort(dim=0).values
        return low * nodes + high

    names = keys(world.asked)

    def predict(edges: Any) -> Tensor:
        edges = torch.as_tensor(edges)
        found, named = keys(edges), torch.isin(keys(edges), names)
        wave = torch.sin(12.9898 * found.double()) * 43758.5453
        noise = 2 * (wave - wave.floor()) - 1
        near = torch.isin(edges[[0, -1]], world.ends).any(dim=0) & ~named
        scores = honest(edges) + (near * noise * jitter * 1.7 * level.std()).to(level)
        return torch.where(named, level[found % level.numel()], scores)

    return predict


def perturbed(model: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(change(parameter))
    return model


@dataclass(frozen=True)
class Claim:
    """A result as it is presented, the reference beside it, and the verdicts that are due; none for "anything"."""

    result: gd.Unlearned
    reference: Any
    due: tuple[str, ...]
    fraud: bool = False


def claims(world: World, retrainings: int = 2) -> Iterator[tuple[str, Callable[[], Claim]]]:
    """All results of a world, each made when it is asked for."""
    unlinked, ends, data = world.by("unlink"), world.ends, world.data
    trained = [world.by("retrain", seed=7 * k) for k in range(retrainings)]
    several = trained[:3] if retrainings > 3 else trained[0]
    noise = torch.Generator().manual_seed(3)
    cut = (*CALLED, "undecided") if world.recipe.remembers else HARMLESS

    def posing(model: nn.Module, **changes: Any) -> gd.Unlearned:
        given = {"adapter": None, "assurance": "approximate", "method": "given", "settings": {}, **changes}
        return replace(unlinked, model=model, **given)

    def served(model: nn.Module) -> Callable[[], Claim]:
        return lambda: Claim(posing(model), trained[0], CALLED, fraud=True)

    def answered(jitter: float) -> Callable[[], Claim]:
        result = replace(unlinked, predictor=listed(world, unlinked, jitter))
        return lambda: Claim(result, trained[0], CALLED, fraud=True)

    def beside(model: nn.Module) -> Callable[[], Claim]:
        return lambda: Claim(unlinked, model, (*CALLED, "undecided"), fraud=True)

    def warm() -> nn.Module:
        return world.fit(copy.deepcopy(world.model), unlinked.data, 5, epochs=30)

    def continued() -> Claim:
        result = posing(warm(), assurance="retrained", weights="new", method="retrain")
        return Claim(result, None, (*CALLED, "undecided"), fraud=True)

    def spliced() -> Claim:
        rows = gd.nn.forward.call(trained[-1].model.eval(), unlinked.data).detach()
        return Claim(posing(Rows(world.model, data, ends, lambda z: rows)), trained[0], CALLED, fraud=True)

    def scattered(z: Tensor) -> Tensor:
        return z + 0.5 * z.std() * torch.randn(z.shape, generator=noise.manual_seed(3))

    def smoothed(z: Tensor) -> Tensor:
        source, target = unlinked.data.edge_index
        total = torch.zeros_like(z).index_add_(0, target, z[source])
        count = torch.zeros(z.size(0)).index_add_(0, target, torch.ones(target.numel()))
        return torch.where(count.view(-1, 1) > 0, total / count.clamp(min=1).view(-1, 1), z)

    def exchanged(z: Tensor) -> Tensor:
        result = z.clone()
        result[ends] = z[ends[torch.randperm(ends.numel(), generator=noise.manual_seed(4))]]
        return result

    yield "Unlink", lambda: Claim(unlinked, several, cut)
    yield "calibrated", lambda: Claim(world.by(gd.GNNDelete()), several, ())
    yield "second Retrain", lambda: Claim(trained[-1], several, HARMLESS)
    yield "Retrain alone", lambda: Claim(trained[1], None, HARMLESS)
    for k in range(1, retrainings):
        yield f"Retrain {k} beside {k - 1}", lambda k=k: Claim(trained[k], trained[k - 1], HARMLESS)
    if world.recipe.kind != "labels":  # the graph has no other edges without labels
        yield "original, old graph", lambda: Claim(replace(unlinked, data=data), trained[0], CALLED, fraud=True)
        yield "old graph inside", served(Frozen(world.model, data))
    if world.task.pairwise:
        yield "edges put back", served(Readding(world.model, data, world.asked))
    yield "ends zeroed", served(Rows(world.model, data, ends, torch.zeros_like))
    yield "ends shrunk", served(Rows(world.model, data, ends, lambda z: (z + z.mean(dim=0)) / 2))
    yield "ends scattered", served(Rows(world.model, data, ends, scattered))
    yield "ends smoothed", served(Rows(world.model, data, ends, smoothed))
    yield "ends exchanged", served(Rows(world.model, data, ends, exchanged))
    yield "ends from a Retrain", spliced
    yield "only scores lowered", answered(0.0)
    if world.task.pairwise:
        yield "list, 5% noise", answered(0.05)
        yield "list, 50% noise", answered(0.5)
    yield "noisy reference", beside(perturbed(world.model, lambda p: p + 1e-4 * torch.randn_like(p)))
    yield "scaled reference", beside(perturbed(world.model, lambda p: 1.01 * p))
    yield "warm reference", lambda: beside(warm())()
    if world.recipe.remembers:
        whole = world.fit(world.build(), data, 17)
        yield "reference trained on all", beside(whole)
    yield "warm start called Retrain", continued


# Attacks of another kind than those of the audit ------------------------------------------------------------------------------


def attacked(world: World, result: gd.Unlearned) -> dict[str, float]:
    """AUC of cross-validated random forests that tell deleted elements from unseen ones by score queries."""
    predict, generator = result.answers(), torch.Generator().manual_seed(99)
    nodes, gone = int(world.data.num_nodes), world.deletion
    degree = torch.bincount(result.data.edge_index[0], minlength=nodes).double().log1p()
    if not world.task.pairwise:
        if gone.nodes.numel():
            lost = torch.zeros(nodes, dtype=torch.bool).index_fill(0, world.ends, True)
            near = lost.nonzero().flatten()
            far = (~lost).index_fill(0, gone.nodes, False).nonzero().flatten()
            far = far[(degree[far] >= degree[near].min()) & (degree[far] <= degree[near].max())]
        else:
            near, far = gone.labels, world.data.test_mask.nonzero().flatten()
        groups = [part[torch.randperm(part.numel(), generator=generator)[:800]] for part in (near, far)]
        asked = torch.cat(groups)
        chances = predict(asked).detach().double()
        true = chances.gather(1, world.data.y[asked].view(-1, 1))
        columns = torch.cat([chances.sort(dim=1).values, true, degree[asked].view(-1, 1)], dim=1)
        return {"nodes": forest(columns, groups[0].numel()), "score": forest(true, groups[0].numel())}
    unseen = world.task.test.positives
    groups = [part[:, torch.randperm(part.size(1), generator=generator)[:800]] for part in (world.asked, unseen)]
    edges = torch.cat(groups, dim=1)
    drawn = unseen[:, torch.randperm(unseen.size(1), generator=generator)[:32]]

    def others(end: int) -> Tensor:
        asked = edges.repeat_interleave(32, dim=1)
        asked[end] = drawn[end].repeat(edges.size(1))
        return predict(asked).detach().double().view(-1, 32)

    scores = predict(edges).detach().double().view(-1, 1)
    seen = [others(-1), others(0)]
    sides = [
        torch.cat(
            [
                part.mean(1, True),
                part.std(1, keepdim=True),
                part.quantile(torch.tensor([0.1, 0.9]).double(), dim=1).t(),
            ],
            1,
        )
        for part in seen
    ]
    ends = torch.cat([*sides, degree[edges[0]].view(-1, 1), degree[edges[-1]].view(-1, 1)], dim=1)
    rank = torch.cat([(scores > part).double().mean(1, True) for part in seen], dim=1)
    count = groups[0].size(1)
    return {
        "ends": forest(ends, count),
        "score": forest(scores, count),
        "queries": forest(torch.cat([ends, scores, rank], dim=1), count),
    }


def forest(columns: Tensor, count: int) -> float:
    """The cross-validated AUC of random forests that tell the first ``count`` rows from the others."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    kinds = (np.arange(len(columns)) < count).astype(int)
    trees = RandomForestClassifier(80, min_samples_leaf=8, random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = cross_val_predict(trees, columns.numpy(), kinds, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(kinds, found))


# The table ------------------------------------------------------------------------------------------------------------------


def rows_of(
    name: str, seed: int, retrainings: int = 2, attacks: bool = False, only: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each claim of a world: the verdict given, and those due."""
    world = World(name, seed)
    usual: dict[str, list[float]] = {}
    for title, make in claims(world, retrainings):
        if only and title not in only:
            continue
        claim = make()
        audit = gd.audit(claim.result, claim.reference, attacks=attacks, seed=seed)
        code = audit.verdict.code
        row: dict[str, Any] = {"world": name, "seed": seed, "result": title, "given": code, "rule": audit.verdict.rule}
        row |= {"due": list(claim.due), "fraud": claim.fraud, "title": audit.verdict.title, "text": audit.verdict.text}
        if code in GOOD or not claim.fraud:  # is the tick deserved?
            if not usual:
                for retrained in (world.by("retrain", seed=100 + k) for k in range(3)):
                    for attack, value in attacked(world, retrained).items():
                        usual.setdefault(attack, []).append(value)
            gaps = {
                attack: value - float(np.mean(usual[attack])) for attack, value in attacked(world, claim.result).items()
            }
            row["open"] = {attack: round(gap, 3) for attack, gap in gaps.items()}
        found = claim.result.calibration
        if title == "calibrated" and found:
            row |= {"lam": found["lam"], "status": found["status"], "target": found.get("target")}
            if found["status"] == "reached":
                row["off"] = off_target(world, audit, found["target"])
        row["audit"] = {
            k: v
            for k, v in audit.to_dict().items()
            if k in ("utility", "lists", "forgetting", "touched", "integrity", "examined")
        }
        yield row


def off_target(world: World, audit: gd.auditing.Audit, target: float) -> float:
    """How far a calibrated model is from its target on test data, in standard errors."""
    test = audit.sections["forgetting"].unseen["old_id" if world.recipe.kind in ("nodes", "accounts") else "served"]
    found = (test.adjusted or test).after
    return round((found.auc - target) / found.se, 2)


def report(rows: list[dict[str, Any]]) -> None:
    """Print the table of verdicts and the counts."""
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    print("| result | " + " | ".join(worlds) + " |")
    print("|---" * (1 + len(worlds)) + "|")
    for title in dict.fromkeys(row["result"] for row in rows):
        cells = [
            ", ".join(r["given"] for r in rows if r["result"] == title and r["world"] == world) for world in worlds
        ]
        print(f"| {title} | " + " | ".join(cells) + " |")
    frauds = [row for row in rows if row["fraud"]]
    honest = [row for row in rows if not row["fraud"] and row["due"] == list(HARMLESS)]
    again = [row for row in honest if "Retrain" in row["result"]]
    ticks = [row for row in rows if row["given"] in GOOD and row.get("open")]
    for title, part, good in (
        ("Frauds called", frauds, lambda row: row["given"] in row["due"]),
        ("Frauds without a tick", frauds, lambda row: row["given"] not in GOOD),
        ("Honest results accused", honest, lambda row: row["given"] not in HARMLESS),
        ("Retrained models called different", again, lambda row: row["given"] not in HARMLESS),
        (f"Ticks that an attack contradicts by more than {OPEN}", ticks, lambda row: max(row["open"].values()) > OPEN),
    ):
        print(f"{title}: {sum(map(good, part))} of {len(part)}.")
    reached = [row["off"] for row in rows if "off" in row]
    print(
        f"Reached on validation data and within two standard errors on test data: {sum(abs(z) <= 2 for z in reached)}",
        end="",
    )
    print(f" of {len(reached)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=RECIPES, default=list(HELD_OUT))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--retrainings", type=int, default=2, help="how often each world is retrained, 2 at the least")
    parser.add_argument("--attacks", action="store_true", help="run the audit's attacks with a shadow model, too")
    parser.add_argument("--only", nargs="+", help="only these results")
    parser.add_argument("--out", type=Path, help="add each row to this file")
    parser.add_argument("--report", type=Path, nargs="+", help="only print the table of such files")
    options = parser.parse_args()
    if options.report:
        report([json.loads(line) for path in options.report for line in path.read_text().splitlines()])
        return
    rows = []
    for name in options.worlds:
        for seed in options.seeds:
            for row in rows_of(name, seed, options.retrainings, options.attacks, options.only):
                rows.append(row)
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    report(rows)


if __name__ == "__main__":
    main()
