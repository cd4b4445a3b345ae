"""Parameters with a row per node are found by what they do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.graph.batch import collate
from gnndelete.io.code import load_module
from gnndelete.nn.forward import resolve_forward
from gnndelete.nn.tables import filled
from tests.shop import ITEMS, USERS, write_shop

NODES = 40


def graph() -> Data:
    data = gd.datasets.load(f"generated:collab?nodes={NODES}&edges=160&features=4")
    data.n_id = torch.arange(NODES)
    return data


def found(model: nn.Module, data: Data | HeteroData | None = None) -> dict[str, tuple[str | None, bool]]:
    session = Session(model.eval(), collate(graph() if data is None else data), resolve_forward(None))
    return {vectors.parameter: (vectors.first, vectors.beyond) for vectors in session.vectors}


class Whole(nn.Module):
    """A parameter that is read whole and joined with features."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(NODES, 4))
        self.conv = GCNConv(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(torch.cat([x, self.rows], dim=1), edge_index)


class ById(nn.Module):
    """A table that is looked up by id, and a layer with as many outputs as there are nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(NODES, 4)
        self.wide = nn.Linear(4, NODES)
        self.conv = GCNConv(NODES, 4)

    def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(self.wide(self.table(n_id)), edge_index)


class Past(Whole):
    """Rows go past the layer as well."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + self.rows


class Frozen(Whole):
    """Rows that were given, not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.rows.requires_grad_(False)


def test_where_a_table_is_read() -> None:
    torch.manual_seed(0)
    assert found(Whole()) == {"rows": ("conv", False)}
    assert found(ById()) == {"table.weight": ("conv", False)}, "a layer with a column per node is no table"
    assert found(Past()) == {"rows": ("conv", True)}
    assert found(Frozen()) == {}
    assert found(gd.models.GCN(4)) == {}
    assert found(gd.models.LightGCN(NODES, 8, 2)) == {"embedding.weight": ("convs.0", True)}


def test_two_types_of_one_size_are_told_apart() -> None:
    data = HeteroData({"user": {"num_nodes": 20}, "item": {"num_nodes": 20}})
    pairs = torch.randint(20, (2, 60), generator=torch.Generator().manual_seed(0)).unique(dim=1)
    data["user", "likes", "item"].edge_index = pairs
    data["item", "liked", "user"].edge_index = pairs.flip(0)

    class Rater(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ParameterDict({kind: torch.randn(20, 4) for kind in ("user", "item")})
            self.conv = HeteroConv({kind: SAGEConv(4, 4) for kind in data.edge_types})

        def forward(self, edge_index_dict: dict) -> dict[str, Tensor]:
            return self.conv(dict(self.tables), edge_index_dict)

    torch.manual_seed(0)
    session = Session(Rater().eval(), collate(data), resolve_forward(None))
    known = {each.parameter: each.nodes for each in session.vectors}
    assert known == {"tables.user": range(20), "tables.item": range(20, 40)}


@pytest.mark.parametrize("users", [12, 20, 28])
@pytest.mark.parametrize("items_first", [False, True])
def test_two_tables_share_the_nodes_of_a_data(users: int, items_first: bool) -> None:
    class Shop(nn.Module):
        """Tables of users and of items, one after the other; a layer as high as one of them is no table."""

        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = nn.Embedding(users, 4), nn.Embedding(NODES - users, 4)
            self.wide, self.conv = nn.Linear(4, users), SAGEConv(users, 4)

        def forward(self, edge_index: Tensor) -> Tensor:
            tables = [self.item.weight, self.user.weight] if items_first else [self.user.weight, self.item.weight]
            return self.conv(self.wide(torch.cat(tables)), edge_index)

    torch.manual_seed(0)
    session = Session(Shop().eval(), collate(graph()), resolve_forward(None))
    known = {each.parameter: each.nodes for each in session.vectors}
    start = NODES - users if items_first else 0
    other = range(NODES - users) if items_first else range(users, NODES)
    assert known == {"user.weight": range(start, start + users), "item.weight": other}


def test_a_shop_of_two_tables_forgets_by_its_rows(tmp_path: Path) -> None:
    pairs = write_shop(tmp_path / "shop")
    data = gd.datasets.load_graph(tmp_path / "shop", layout="single")
    code = load_module(str(tmp_path / "shop" / "recnet.py"))
    model = code.bpr(code.RecNet(USERS, ITEMS), data.data, 0)
    unlearner = gd.Unlearner(model, data.data, task=gd.RankingPrediction(), method=gd.GNNDelete(lam=0.5))
    unlearned = unlearner.delete(gd.Deletion(nodes=[pairs[0][0]], ids=data.ids))
    assert {site.layer for site, _ in unlearned.adapter.operators} <= {"user", "item"}
    unlearned.save(tmp_path / "adapter")
    loaded = gd.load(tmp_path / "adapter", model, unlearned.data, task=gd.RankingPrediction())
    assert torch.equal(loaded.output(), unlearned.output())
    assert gd.audit(unlearned, attacks=False).verdict.code == "undecided"


def test_rows_are_put_back() -> None:
    model = Whole()
    before = model.rows.detach().clone()
    with filled(model, {"rows": (torch.tensor([1, 3]), torch.zeros(2, 4))}):
        assert not model.rows[[1, 3]].any()
        assert torch.equal(model.rows[[0, 2]], before[[0, 2]])
    assert torch.equal(model.rows, before)


def test_inspect_names_tables() -> None:
    torch.manual_seed(0)
    text = str(gd.inspect(Past(), graph()))
    assert "trained vectors of nodes:" in text
    assert "rows" in text
    assert "read by conv and past the layers" in text
    assert gd.inspect(Past(), graph()).to_dict()["tables"] == [
        {"parameter": "rows", "width": 4, "nodes": NODES, "first": "conv", "beyond": True}
    ]
    assert "trained vectors" not in str(gd.inspect(gd.models.GCN(4), graph()))
