"""Blocks give the rows of the whole graph, on models of every kind; where they cannot, the reason is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GATConv,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GINConv,
    GPSConv,
    GraphNorm,
    JumpingKnowledge,
    LGConv,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.utils import degree

import gnndelete as gd
from gnndelete.engine.blocks import Blocks
from gnndelete.engine.session import Session
from gnndelete.engine.trial import close, find
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.kinds import cut
from gnndelete.graph.validation import check_deletion
from gnndelete.nn.forward import call, evaluating
from gnndelete.nn.layers import working_copy
from tests.hetero import WRITES, Convs, make_hetero

NODES, WIDTH, HIDDEN = 400, 6, 8


def make_graph(seed: int = 0) -> Data:
    """A ring with a few chords, so that neighbourhoods stay far below the graph."""
    generator = torch.Generator().manual_seed(seed)
    ring = torch.stack([torch.arange(NODES), (torch.arange(NODES) + 1) % NODES])
    chords = torch.randint(NODES, (2, 60), generator=generator)
    once = torch.cat([ring, chords[:, chords[0] != chords[1]]], dim=1)
    once = torch.unique(torch.sort(once, dim=0).values, dim=1)
    weight = 0.5 + torch.rand(once.size(1), generator=generator)
    attr = torch.randn(once.size(1), 3, generator=generator)
    return Data(
        x=torch.randn(NODES, WIDTH, generator=generator),
        edge_index=torch.cat([once, once.flip(0)], dim=1),
        edge_weight=torch.cat([weight, weight]),
        edge_attr=torch.cat([attr, attr]),
        edge_type=torch.zeros(2 * once.size(1), dtype=torch.long),
        y=torch.arange(NODES) % 4,
    )


class Deep(nn.Module):
    """Two layers of one kind, with batch norm, a residual and jumping knowledge."""

    def __init__(self, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList([make(WIDTH, HIDDEN), make(HIDDEN, HIDDEN)])
        self.norm, self.skip, self.join = nn.BatchNorm1d(HIDDEN), nn.Linear(WIDTH, HIDDEN), JumpingKnowledge("cat")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.norm(self.convs[0](x, edge_index)).relu() + self.skip(x)
        return self.join([first, self.convs[1](first, edge_index)])


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(WIDTH, HIDDEN), GCNConv(HIDDEN, HIDDEN)])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.convs[1](self.convs[0](x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class Again(nn.Module):
    """One layer, called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.conv = nn.Linear(WIDTH, HIDDEN), SAGEConv(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.into(x)
        for _ in range(3):
            h = self.conv(h, edge_index).relu()
        return h


class Farthest(MessagePassing):
    """A layer of a user's own: the largest difference to a neighbour."""

    def __init__(self) -> None:
        super().__init__(aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_i - x_j).abs()


class OwnDegrees(MessagePassing):
    """A layer of a user's own that divides messages by the degree of their source."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        share = 1 / degree(edge_index[1], x.size(0)).clamp(min=1)
        return self.propagate(edge_index, x=x * share[:, None])


class Sequence(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.into, self.layers = nn.Linear(WIDTH, HIDDEN), nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.into(x)
        for layer in self.layers:
            h = layer(h, edge_index).tanh()
        return h


class EdgeFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GATConv(WIDTH, HIDDEN, edge_dim=3), TransformerConv(HIDDEN, HIDDEN, edge_dim=3)])

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.convs[1](self.convs[0](x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class WholeTable(nn.Module):
    """LightGCN's propagation over a table that is read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.convs = nn.Embedding(NODES, HIDDEN), nn.ModuleList([LGConv(), LGConv()])

    def forward(self, edge_index: Tensor) -> Tensor:
        rows = [self.table.weight]
        for conv in self.convs:
            rows.append(conv(rows[-1], edge_index))
        return torch.stack(rows).mean(dim=0)


class TableById(nn.Module):
    """A table that is looked up by ``n_id``."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.convs = (
            nn.Embedding(NODES, HIDDEN),
            nn.ModuleList([SAGEConv(HIDDEN, HIDDEN) for _ in range(2)]),
        )

    def forward(self, n_id: Tensor, edge_index: Tensor) -> Tensor:
        return self.convs[1](self.convs[0](self.table(n_id), edge_index).relu(), edge_index)


class Relational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([RGCNConv(WIDTH, HIDDEN, 2), RGCNConv(HIDDEN, HIDDEN, 2)])

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.convs[1](self.convs[0](x, edge_index, edge_type).relu(), edge_index, edge_type)


class GCN2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.convs = nn.Linear(WIDTH, HIDDEN), nn.ModuleList([GCN2Conv(HIDDEN, 0.1) for _ in range(2)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = h = self.into(x)
        for conv in self.convs:
            h = conv(h, first, edge_index).relu()
        return h


def gin(a: int, b: int) -> GINConv:
    return GINConv(nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, b)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "sage": lambda: Deep(SAGEConv),
    "gcn": lambda: Deep(GCNConv),
    "gcn-weights": Weighted,
    "gatv2": lambda: Deep(GATv2Conv),
    "gin": lambda: Deep(gin),
    "called-three-times": Again,
    "own-max": lambda: Sequence(Farthest(), Farthest()),
    "own-degrees": lambda: Sequence(OwnDegrees(), OwnDegrees()),
    "edge-features": EdgeFeatures,
    "table-whole": WholeTable,
    "table-by-id": TableById,
    "rgcn": Relational,
    "appnp": lambda: Sequence(APPNP(3, 0.1)),
    "gcn-appnp": lambda: Sequence(GCNConv(HIDDEN, HIDDEN), APPNP(2, 0.1)),
    "tag": lambda: Sequence(TAGConv(HIDDEN, HIDDEN, K=2)),
    "gcn2": GCN2,
}

NOT_LOCAL: dict[str, Callable[[], nn.Module]] = {
    "graph-norm": lambda: Normed(),
    "gps": lambda: Attending(),
    "virtual-node": lambda: Virtual(),
}


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = SAGEConv(WIDTH, HIDDEN), GraphNorm(HIDDEN), SAGEConv(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.norm(self.conv(x, edge_index)), edge_index)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.gps = nn.Linear(WIDTH, HIDDEN), GPSConv(HIDDEN, SAGEConv(HIDDEN, HIDDEN), heads=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gps(self.into(x), edge_index)


class Virtual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = SAGEConv(WIDTH, HIDDEN), SAGEConv(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        return self.out(h + h.mean(dim=0, keepdim=True), edge_index)


def session_of(name: str) -> Session:
    torch.manual_seed(0)
    data, model = make_graph(), MODELS[name]()
    if name == "table-by-id":
        data.n_id = torch.arange(NODES)
    if name != "rgcn":
        del data.edge_type
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return Session(model.eval(), data, call)


REQUESTS: dict[str, Callable[[Data], dict[str, Any]]] = {
    "edge": lambda data: {"edges": data.edge_index[:, 7:8]},
    "edges-and-node": lambda data: {"edges": data.edge_index[:, [3, 90]], "nodes": [200]},
    "features": lambda data: {"features": [11, 250]},
}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("name", MODELS)
def test_computed_rows_are_those_of_the_whole_graph(name: str, request_name: str) -> None:
    session = session_of(name)
    blocks = find(session)
    assert isinstance(blocks, Blocks), blocks
    kinds = REQUESTS[request_name](session.data)
    if name == "rgcn" and "edges" in kinds:
        pairs = kinds["edges"]
        kinds["edges"] = torch.stack([pairs[0], torch.zeros_like(pairs[0]), pairs[1]])
    deletion = Deletion(**kinds).check(session.data, session.table)
    block = blocks.near(deletion, share=1.0)
    computed = block.nodes[block.computed]
    remaining = cut(block.deletion(deletion), block.data, block.table)
    with torch.no_grad():
        rows = blocks.forward(block, blocks.model, remaining)
    model = working_copy(session.model)
    with evaluating(model):
        whole = call(model, cut(deletion, session.data, session.table))
        before = call(model, session.data)
    assert close(rows[block.computed], whole[computed])
    outside = torch.ones(NODES, dtype=torch.bool).index_fill_(0, computed, False)
    assert torch.equal(whole[outside], before[outside]) or close(whole[outside], before[outside])
    if blocks.hops_of_call == 1 and not blocks.reads.all_edges:
        assert block.nodes.numel() < NODES / 2
    assert blocks.reads.all_edges == (name == "own-degrees")


@pytest.mark.parametrize("name", NOT_LOCAL)
def test_models_that_mix_all_nodes_are_not_local(name: str) -> None:
    torch.manual_seed(0)
    session = Session(NOT_LOCAL[name]().eval(), make_graph(), call)
    assert isinstance(find(session), str)


def test_types_of_nodes() -> None:
    torch.manual_seed(0)
    hetero = make_hetero()
    data = gd.datasets.collate(hetero)
    model = Convs(hetero)
    with torch.no_grad():
        call(model, data)  # lazy layers get their widths
    session = Session(model.eval(), data, call)
    blocks = find(session)
    assert isinstance(blocks, Blocks), blocks
    deletion = Deletion(edges={WRITES: hetero[WRITES].edge_index[:, [4, 30]]}, nodes={"author": [20]})
    deletion = check_deletion(deletion, data, session.table)
    block = blocks.near(deletion, share=1.0)
    assert block is not None
    assert block.nodes.numel() < data.num_nodes
    rows = blocks.forward(block, blocks.model, cut(block.deletion(deletion), block.data, block.table))
    with evaluating(model):
        whole = call(model, cut(deletion, data, session.table))
    for key, value in whole.items():
        ids, computed = blocks.computed_output(block, key)
        assert close(rows[key][computed], value[ids])


def test_the_model_of_the_user_is_not_changed() -> None:
    session = session_of("gcn")
    before = dict(vars(session.model.convs[0]))
    assert isinstance(find(session), Blocks)
    assert vars(session.model.convs[0]).keys() == before.keys()
    assert not session.model.convs[0]._forward_hooks


@pytest.mark.parametrize(("name", "adds_up"), [("sage", True), ("gcn-weights", True), ("gatv2", False), ("gin", False)])
def test_blocks_end_with_the_computed_rows_where_layers_add_up_messages(name: str, adds_up: bool) -> None:
    session = session_of(name)
    blocks = find(session)
    assert isinstance(blocks, Blocks)
    assert blocks.sums == adds_up
    block = blocks.near(Deletion(edges=session.data.edge_index[:, [7]]).check(session.data, session.table), share=1.0)
    assert (block.nodes.numel() == block.computed.numel()) == adds_up
