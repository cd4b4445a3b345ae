"""A small graph of authors, papers and venues, and models of the kinds that take it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, Linear, SAGEConv, to_hetero

from gnndelete.nn.forward import call

WRITES, IN, CITES = ("author", "writes", "paper"), ("paper", "in", "venue"), ("paper", "cites", "paper")
AUTHORS, PAPERS, VENUES = 40, 60, 6
HIDDEN, OUT = 6, 4


def make_hetero(seed: int = 0) -> HeteroData:
    """A long thin graph: neighbouring authors share papers, papers cite the next one, and only a few are in a venue."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for kind, count, width in (("author", AUTHORS, 5), ("paper", PAPERS, 7), ("venue", VENUES, 3)):
        data[kind].x = torch.randn(count, width, generator=generator)
    papers = torch.arange(PAPERS)
    data["paper"].y = papers % OUT
    data["paper"].train_mask, data["paper"].val_mask = papers % 4 < 2, papers % 4 == 2
    data["paper"].test_mask = papers % 4 == 3
    first = torch.stack([papers * AUTHORS // PAPERS, papers])
    second = torch.stack([(papers[::3] * AUTHORS // PAPERS + 1).clamp(max=AUTHORS - 1), papers[::3]])
    data[WRITES].edge_index = torch.unique(torch.cat([first, second], dim=1), dim=1)
    data[WRITES].edge_attr = torch.randn(data[WRITES].edge_index.size(1), 2, generator=generator)
    data[CITES].edge_index = torch.stack([papers[:-1:2], papers[1::2]])
    data[IN].edge_index = torch.stack([papers[::10], torch.arange(VENUES)])
    return T.ToUndirected()(data)


class Convs(nn.Module):
    """Two HeteroConv layers; in the first, every other edge type has attention."""

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        kinds = enumerate(data.edge_types)
        self.first = HeteroConv(
            {
                kind: GATConv((-1, -1), HIDDEN, add_self_loops=False) if i % 2 else SAGEConv((-1, -1), HIDDEN)
                for i, kind in kinds
            }
        )
        self.second = HeteroConv({kind: SAGEConv((-1, -1), OUT) for kind in data.edge_types}, aggr="mean")

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]
    ) -> dict[str, Tensor]:
        x = {kind: h.relu() for kind, h in self.first(x_dict, edge_index_dict).items()}
        return self.second(x, edge_index_dict)


class Attention(nn.Module):
    """Two HGT layers."""

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.inputs = nn.ModuleDict({kind: nn.Linear(data[kind].num_features, HIDDEN) for kind in data.node_types})
        self.layers = nn.ModuleList(HGTConv(HIDDEN, width, data.metadata(), heads=2) for width in (HIDDEN, OUT))

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]
    ) -> dict[str, Tensor]:
        x = {kind: self.inputs[kind](h).relu() for kind, h in x_dict.items()}
        for layer in self.layers:
            x = layer(x, edge_index_dict)
        return x


class Sage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), HIDDEN), SAGEConv((-1, -1), OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class Gat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GATConv((-1, -1), width, add_self_loops=False) for width in (HIDDEN, OUT))
        self.skips = nn.ModuleList(Linear(-1, width) for width in (HIDDEN, OUT))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = (self.convs[0](x, edge_index) + self.skips[0](x)).relu()
        return self.convs[1](x, edge_index) + self.skips[1](x)


MODELS: dict[str, Callable[[HeteroData], nn.Module]] = {
    "HeteroConv": Convs,
    "HGT": Attention,
    "to_hetero(SAGE)": lambda data: to_hetero(Sage(), data.metadata()),
    "to_hetero(GAT)": lambda data: to_hetero(Gat(), data.metadata(), aggr="mean"),
}


def make_model(name: str, data: HeteroData, seed: int = 0) -> nn.Module:
    """A model of the table with its widths known."""
    with torch.random.fork_rng(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        model = MODELS[name](data)
        call(model, data)
    return model.eval()
