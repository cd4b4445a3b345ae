"""Drawn requests that must be refused, on nine kinds of graphs: one short sentence each, and nothing has changed.

``GNNDELETE_FUZZ=20`` draws twenty times as many (``make fuzz``).
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, RGCNConv, SAGEConv, global_add_pool

import gnndelete as gd
from gnndelete.errors import RequestError

FUZZ = int(os.environ.get("GNNDELETE_FUZZ", "1"))
NODES, KINDS = 24, [("a", "writes", "p"), ("p", "rev_writes", "a")]


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(4, 6), GCNConv(6, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Typed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = RGCNConv(4, 6, 6), RGCNConv(6, 3, 6)

    def forward(self, x, edge_index, edge_type):
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


class Hetero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = HeteroConv({kind: SAGEConv(4, 6) for kind in KINDS})
        self.second = HeteroConv({kind: SAGEConv(6, 3) for kind in KINDS})

    def forward(self, x_dict, edge_index_dict):
        h = self.first(x_dict, edge_index_dict)
        return self.second({name: rows.relu() for name, rows in h.items()}, edge_index_dict)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = GCNConv(4, 6), nn.Linear(6, 2)

    def forward(self, x, edge_index, batch, num_graphs):
        return self.last(global_add_pool(self.conv(x, edge_index).relu(), batch, num_graphs))


class Vectors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv = nn.Embedding(NODES, 4), GCNConv(4, 3)

    def forward(self, edge_index):
        return self.conv(self.table.weight, edge_index)


@cache
def graphs() -> dict[str, tuple[nn.Module, Any, Any]]:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(NODES, 4, generator=draw), torch.randint(3, (NODES,), generator=draw)
    one_way = torch.randint(NODES, (2, 50), generator=draw)
    one_way = one_way[:, one_way[0] < one_way[1]].unique(dim=1)
    both = torch.cat([one_way, one_way.flip(0)], dim=1)
    kind = torch.randint(3, (one_way.size(1),), generator=draw)
    hetero = HeteroData()
    hetero["a"].x, hetero["p"].x = (torch.randn(count, 4, generator=draw) for count in (10, 14))
    hetero["p"].y, hetero["p"].train_mask = torch.arange(14) % 3, torch.ones(14, dtype=torch.bool)
    pairs = torch.stack([torch.arange(30) % 10, torch.arange(30) % 14])
    hetero[KINDS[0]].edge_index, hetero[KINDS[1]].edge_index = pairs, pairs.flip(0)
    reverses = Data(x=x, edge_index=both, edge_type=torch.cat([kind, kind + 3]), y=y)
    reverses.num_relations, reverses.reverse_offset = 6, 3
    line = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    many = [Data(x=torch.randn(4, 4, generator=draw), edge_index=line, y=torch.tensor([k % 2])) for k in range(6)]
    labels = torch.where(torch.arange(NODES) < 8, -1, y)
    link = gd.LinkPrediction(decoder="dot")
    return {
        "undirected": (Plain(), Data(x=x, edge_index=both, y=y), link),
        "directed": (Plain(), Data(x=x, edge_index=one_way, y=y), link),
        "node": (Plain(), Data(x=x, edge_index=both, y=labels, train_mask=torch.arange(NODES) % 2 == 0), "node"),
        "typed": (Typed(), Data(x=x, edge_index=one_way, edge_type=kind, y=y), link),
        "reverses": (Typed(), reverses, "node"),
        "hetero node": (Hetero(), hetero, "node"),
        "hetero link": (Hetero(), hetero, gd.LinkPrediction()),
        "graphs": (Pooled(), many, "graph"),
        "no features": (Vectors(), Data(edge_index=both, num_nodes=NODES, y=y), link),
    }


class Broken:
    """Raises whatever is asked of it."""

    def __iter__(self) -> Any:
        raise RuntimeError("two\nlines")

    to_numpy = __array__ = __iter__


def itself() -> list[Any]:
    found: list[Any] = []
    found.append((found, found))
    return found


def nested(depth: int) -> list[Any]:
    found: Any = 3
    for _ in range(depth):
        found = [found]
    return found


#: Things that are the id of no node, and things that are no ids at all.
NO_ID: list[Callable[[], Any]] = [
    lambda: None, lambda: 1.0, lambda: float("nan"), lambda: True, lambda: np.bool_(True), lambda: "3", lambda: b"3",
    lambda: 3 + 0j, lambda: Fraction(3), lambda: Decimal(3), lambda: 10**30, lambda: 2**63, lambda: -1, lambda: NODES,
    lambda: 2**62, lambda: {"a": 3}, lambda: nested(5000), itself, object, Broken, lambda: int, lambda: ..., lambda: slice(3),
    lambda: np.datetime64("2020-01-01"), lambda: np.float32(3), lambda: torch.tensor(3.5), lambda: torch.tensor(True),
    lambda: torch.tensor(3, device="meta"), lambda: np.str_("3"), lambda: "x" * 100_000, lambda: 10**5000,
]  # fmt: skip
NO_IDS: list[Callable[[torch.Tensor], Any]] = [
    lambda ids: ids.float(), lambda ids: ids.bool(), lambda ids: ids.to(torch.complex64), lambda ids: ids.to_sparse(),
    lambda ids: ids.to("meta"), lambda ids: ids.view(1, 1, -1), lambda ids: -1 - ids, lambda ids: ids + 10**6,
    lambda ids: torch.quantize_per_tensor(ids.float(), 1.0, 0, torch.qint8), lambda ids: np.ma.array(ids.numpy()),
    lambda ids: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), lambda ids: ids.numpy().astype(str),
    lambda ids: ids.numpy().astype("datetime64[D]"), lambda ids: ids.numpy().astype(np.uint64) + np.uint64(2**63),
    lambda ids: str(ids.tolist()), lambda ids: Broken(), lambda ids: {"x": 1}, lambda ids: itself(), lambda ids: 5.5,
    lambda ids: nested(3000), lambda ids: map(int, ["x"]), lambda ids: Data(x=ids), lambda ids: iter([None]),
]  # fmt: skip
NO_FILL: list[Callable[[], Any]] = [
    lambda: float("nan"), lambda: 1e308, lambda: 1e39, lambda: 10**400, lambda: "0", lambda: None, lambda: True, list,
    lambda: [0.0] * 9, lambda: [0.0, "x", 1, 2], lambda: torch.ones(4).to_sparse(), lambda: torch.ones(4, device="meta"),
    lambda: torch.ones(2, 4), lambda: torch.ones(4) + 1j, lambda: np.ma.array([0.0] * 4, mask=[1, 0, 0, 0]), Broken, itself,
    lambda: [10**400] * 4, lambda: complex(1), lambda: Decimal("1e500"), lambda: [1e308] * 4, lambda: Fraction(10**400),
]  # fmt: skip
NO_RELATIONS: list[Callable[[], Any]] = [
    lambda: "nosuch", lambda: [99], lambda: [-1], lambda: [("a", "b")], lambda: ("a", "writes", "q"), lambda: 1.5, Broken,
    lambda: True, lambda: [None], itself, lambda: [10**30], lambda: [("a", "writes", "p", 4)], lambda: [("x" * 9999, "y", "z")],
]  # fmt: skip
NOTHING: list[dict[str, Any]] = [
    {}, {"edges": []}, {"nodes": range(NODES)}, {"nodes": [3], "ids": "x"}, {"fill": 3.0}, {"nodes": {"a": {"p": [1]}}},
    {"nodes": {}}, {"graphs": [99]}, {"labels": [NODES]}, {"features": [3], "fill": {"a": 0.0, "zz": 1.0}},
]  # fmt: skip


def drawn(draw: random.Random, hetero: bool) -> dict[str, Any]:
    """A request in which at least one thing is wrong."""

    def listed(bad: Any, good: Callable[[], Any]) -> Any:
        items = [good() for _ in range(draw.randrange(3))]
        items.insert(draw.randrange(len(items) + 1), bad)
        return draw.choice([list, tuple, deque, iter])(items)

    def node() -> int:
        return draw.randrange(4)

    def ids() -> Any:
        if draw.random() < 0.5:
            return draw.choice(NO_IDS)(torch.tensor([1, 2, 3]))
        return listed(draw.choice(NO_ID)(), node)

    def edges() -> Any:
        if draw.random() < 0.5:
            return draw.choice(NO_IDS)(torch.tensor([[0, 1, 2], [1, 2, 3]]))
        wrong = draw.choice(NO_ID)()
        row = draw.choice([(wrong, node()), (node(), wrong), (node(),), (node(),) * 4, (), wrong])
        return listed(row, lambda: (node(), node()))

    def by_type(part: Any, name: Any) -> Any:
        return {name: part} if hetero and draw.random() < 0.8 else part

    kind = draw.choice(["edges", "nodes", "features", "fill", "labels", "relations", "graphs", "two", "nothing"])
    if kind == "two":
        first, second = drawn(draw, hetero), drawn(draw, hetero)
        return {**{name: value for name, value in second.items() if name != "fill"}, **first}
    found = {
        "edges": lambda: {"edges": by_type(edges(), KINDS[0])},
        "nodes": lambda: {"nodes": by_type(ids(), "p")},
        "features": lambda: {"features": by_type(ids(), "p")},
        "fill": lambda: {"features": by_type([node()], "a"), "fill": draw.choice(NO_FILL)()},
        "labels": lambda: {"labels": by_type(ids(), "p")},
        "relations": lambda: {"relations": draw.choice(NO_RELATIONS)()},
        "graphs": lambda: {"graphs": ids()},
        "nothing": lambda: draw.choice(NOTHING),
    }
    return found[kind]()


def everything(model: nn.Module, data: Any) -> list[Any]:
    """All numbers of a model and its graph."""
    stores = [store for part in (data if isinstance(data, list) else [data]) for store in part.stores]
    values = [*model.state_dict().items(), *(item for store in stores for item in store.items())]
    return [(name, value.tolist() if isinstance(value, torch.Tensor) else repr(value)) for name, value in values]


@pytest.mark.parametrize("method", ["unlink", "gnndelete"])
@pytest.mark.parametrize("name", graphs())
def test_what_must_be_refused_is_refused_in_one_sentence_and_changes_nothing(name: str, method: str) -> None:
    model, data, task = graphs()[name]
    unlearner = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.1) if method == "gnndelete" else method)
    before = everything(model, data)
    draw = random.Random(f"{name} {method}")
    for _ in range(60 * FUZZ):
        request = drawn(draw, isinstance(data, HeteroData))
        with pytest.raises(RequestError) as caught:
            unlearner.delete(gd.Deletion(**request))
        said = str(caught.value)
        assert "\n" not in said
        assert len(said) < 700
        assert caught.value.exit_code == 2
    assert unlearner.history == ()
    assert everything(model, data) == before
