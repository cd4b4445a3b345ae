"""Known truths: results of known worth, and the verdict that the audit gives each of them.

Four models remember single elements and four do not. Each is audited as it was, cut, calibrated and retrained twice, and with
planted frauds: of the served model, of the reported answers, and of the reference. A fraud is *called* if its verdict is no tick;
an honest result is *accused* if it is called anything but indistinguishable or undecided.

    python benchmarks/verdicts.py --worlds memory ratings --seeds 0 1

The limits of the verdict were set on the worlds ``memory``, ``communities``, ``ratings`` and ``random`` with seed 0.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import LGConv, SAGEConv
from torch_geometric.utils import to_undirected

import gnndelete as gd
from gnndelete.datasets.generated import community_graph

GOOD = ("indistinguishable", "suppressed")
HARMLESS = (*GOOD, "undecided")


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
    """A table of vectors, propagated twice: LightGCN."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, 32)
        nn.init.normal_(self.table.weight, std=0.1)
        self.first, self.second = LGConv(), LGConv()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        own = self.table.weight
        one = self.first(own, edge_index)
        return (own + one + self.second(one, edge_index)) * 2 / 3


class Sage(nn.Module):
    """Two layers of GraphSAGE."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(features, 32), SAGEConv(32, 16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


# Graphs ---------------------------------------------------------------------------------------------------------------------


def ratings(seed: int, users: int = 400, items: int = 300, count: int = 6000) -> Data:
    """Users and items in one graph, with tastes and popular items."""
    generator = torch.Generator().manual_seed(seed)
    taste, kind = (torch.randn(size, 4, generator=generator) for size in (users, items))
    chance = (1.5 * taste @ kind.t() + torch.randn(items, generator=generator)).flatten().softmax(dim=0)
    drawn = torch.multinomial(chance, count, generator=generator)
    once = torch.stack([drawn // items, users + drawn % items])
    x = torch.randn(users + items, 8, generator=generator)
    return Data(x=x, edge_index=torch.cat([once, once.flip(0)], dim=1))


def random_edges(seed: int, nodes: int = 600, count: int = 4000) -> Data:
    """Nothing in it can be learned but its edges themselves."""
    generator = torch.Generator().manual_seed(seed)
    edges = to_undirected(torch.randint(nodes, (2, count), generator=generator))
    return Data(x=torch.randn(nodes, 64, generator=generator), edge_index=edges[:, edges[0] != edges[1]])


def communities(seed: int, nodes: int, size: int) -> Data:
    return community_graph(nodes, 8000, 16, classes=4, community=size, seed=3 + seed)


@dataclass(frozen=True)
class Recipe:
    """A graph, a model for it, epochs, the share of edges to delete, and whether the model remembers single edges."""

    graph: Callable[[int], Data]
    model: Callable[[Data], nn.Module]
    epochs: int
    share: float
    remembers: bool


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


class World:
    """One trained model, its graph and task, and a request to forget edges."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name, self.seed, self.recipe = name, seed, RECIPES[name]
        split = gd.datasets.split_links(self.recipe.graph(seed), seed=seed, val=0.1, test=0.15)
        self.data = split.data
        self.task = gd.LinkPrediction(validation=split.validation, test=split.test)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = self.fit(self.build(), self.data, seed)
        self.edges = gd.datasets.forget_edges(self.data, self.recipe.share, seed=1 + seed)

    def build(self) -> nn.Module:
        return self.recipe.model(self.data)

    def fit(self, model: nn.Module, data: Data, seed: int, epochs: int | None = None) -> nn.Module:
        epochs = epochs or self.recipe.epochs
        gd.train(model, data, self.task, epochs=epochs, lr=0.01, seed=seed, validate_every=epochs)
        return model

    def by(self, method: Any, seed: int = 0) -> gd.Unlearned:
        options = {"fit": self.fit, "build": self.build, "seed": self.seed + seed}
        unlearner = gd.Unlearner(self.model, self.data, task=self.task, method=method, **options)
        return unlearner.delete(gd.Deletion(edges=self.edges))


# Frauds ---------------------------------------------------------------------------------------------------------------------


class Frozen(nn.Module):
    """Answers for the old graph, whatever it is given."""

    def __init__(self, inner: nn.Module, data: Data) -> None:
        super().__init__()
        self.inner, self.x, self.edge_index = inner, data.x, data.edge_index

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(self.x, self.edge_index)


class Readding(nn.Module):
    """Puts the deleted edges back into the graph that it is given."""

    def __init__(self, inner: nn.Module, edges: Tensor) -> None:
        super().__init__()
        self.inner, self.edges = inner, torch.cat([edges, edges.flip(0)], dim=1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, torch.cat([edge_index, self.edges], dim=1))


class Rows(nn.Module):
    """Changes the rows of some nodes."""

    def __init__(self, inner: nn.Module, nodes: Tensor, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.nodes, self.change = inner, nodes, change

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        z = self.inner(x, edge_index).clone()
        z[self.nodes] = self.change(z)[self.nodes]
        return z


def listed(world: World, unlinked: gd.Unlearned, jitter: float) -> Callable[[Any], Tensor]:
    """Deleted pairs answer like unseen ones, from a list; pairs at their ends get noise, so that they move as well."""
    honest, nodes, ends = unlinked.answers(), world.data.num_nodes, world.edges.unique()
    level = honest(world.task.test.positives)

    def keys(edges: Tensor) -> Tensor:
        low, high = edges.sort(dim=0).values
        return low * nodes + high

    gone = keys(world.edges)

    def predict(edges: Any) -> Tensor:
        edges = torch.as_tensor(edges)
        found, named = keys(edges), torch.isin(keys(edges), gone)
        wave = torch.sin(12.9898 * found.double()) * 43758.5453
        noise = 2 * (wave - wave.floor()) - 1
        near = torch.isin(edges, ends).any(dim=0) & ~named
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


def claims(world: World) -> Iterator[tuple[str, Callable[[], Claim]]]:
    """All results of a world, each made when it is asked for."""
    unlinked, retrained, ends = world.by("unlink"), world.by("retrain"), world.edges.unique()
    noise = torch.Generator().manual_seed(3)
    called = ("under-forgotten", "over-forgotten", "marked", "ruined")
    cut = (*called, "undecided") if world.recipe.remembers else HARMLESS

    def posing(model: nn.Module) -> gd.Unlearned:
        return replace(unlinked, model=model, adapter=None, assurance="approximate", method="given", settings={})

    def served(model: nn.Module) -> Callable[[], Claim]:
        return lambda: Claim(posing(model), retrained, called, fraud=True)

    def answered(jitter: float) -> Callable[[], Claim]:
        result = replace(unlinked, predictor=listed(world, unlinked, jitter))
        return lambda: Claim(result, retrained, called, fraud=True)

    def beside(model: nn.Module) -> Callable[[], Claim]:
        return lambda: Claim(unlinked, model, (*called, "undecided"), fraud=True)

    def scattered(z: Tensor) -> Tensor:
        return z + 0.5 * z.std() * torch.randn(z.shape, generator=noise.manual_seed(3))

    yield "Unlink", lambda: Claim(unlinked, retrained, cut)
    yield "calibrated", lambda: Claim(world.by(gd.GNNDelete()), retrained, ())
    yield "second Retrain", lambda: Claim(world.by("retrain", seed=11), retrained, HARMLESS)
    yield "Retrain alone", lambda: Claim(world.by("retrain", seed=12), None, HARMLESS)
    yield "original, old graph", lambda: Claim(replace(unlinked, data=world.data), retrained, called, fraud=True)
    yield "old graph inside", served(Frozen(world.model, world.data))
    yield "edges put back", served(Readding(world.model, world.edges))
    yield "ends zeroed", served(Rows(world.model, ends, torch.zeros_like))
    yield "ends shrunk", served(Rows(world.model, ends, lambda z: (z + z.mean(dim=0)) / 2))
    yield "ends scattered", served(Rows(world.model, ends, scattered))
    yield "only scores lowered", answered(0.0)
    yield "list, 5% noise", answered(0.05)
    yield "list, 50% noise", answered(0.5)
    yield "noisy reference", beside(perturbed(world.model, lambda p: p + 1e-4 * torch.randn_like(p)))
    yield "scaled reference", beside(perturbed(world.model, lambda p: 1.01 * p))
    yield "warm reference", lambda: beside(world.fit(copy.deepcopy(world.model), unlinked.data, 5, epochs=30))()


def table(worlds: list[str], seeds: list[int], attacks: bool = False) -> dict[str, dict[str, list[tuple[str, Claim]]]]:
    """The verdict given on each claim, by claim and world."""
    rows: dict[str, dict[str, list[tuple[str, Claim]]]] = {}
    for name in worlds:
        for seed in seeds:
            for title, make in claims(World(name, seed)):
                claim = make()
                verdict = gd.audit(claim.result, claim.reference, attacks=attacks, seed=seed).verdict
                rows.setdefault(title, {}).setdefault(name, []).append((verdict.code, claim))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--attacks", action="store_true", help="run the attacks with a shadow model, too")
    options = parser.parse_args()
    rows = table(options.worlds, options.seeds, options.attacks)
    print("| result | " + " | ".join(options.worlds) + " |")
    print("|---" * (1 + len(options.worlds)) + "|")
    for title, cells in rows.items():
        given = (", ".join(code for code, _ in cells[name]) for name in options.worlds)
        print(f"| {title} | " + " | ".join(given) + " |")
    every = [found for cells in rows.values() for part in cells.values() for found in part]
    frauds = [code in claim.due for code, claim in every if claim.fraud]
    honest = [code in claim.due for code, claim in every if not claim.fraud and claim.due == HARMLESS]
    print(
        f"\nFrauds called: {sum(frauds)} of {len(frauds)}. Honest results not accused: {sum(honest)} of {len(honest)}."
    )


if __name__ == "__main__":
    main()
