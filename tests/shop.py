"""A shop as three tables, a recommender of its own, and weights that were trained elsewhere on all of its edges."""

from __future__ import annotations

import csv
import random
from pathlib import Path

CODE = """
import torch
from torch import nn
from torch_geometric.nn import SAGEConv


class RecNet(nn.Module):
    def __init__(self, num_users: int, num_items: int, dim: int = 8):
        super().__init__()
        self.user, self.item = nn.Embedding(num_users, dim), nn.Embedding(num_items, dim)
        self.conv = SAGEConv(dim, dim)

    def forward(self, edge_index):
        h = torch.cat([self.user.weight, self.item.weight])
        return h + self.conv(h, edge_index)


class TypedNet(nn.Module):
    def __init__(self, num_nodes_dict: dict, metadata: tuple, dim: int = 8):
        super().__init__()
        from torch_geometric.nn import HeteroConv

        self.vectors = nn.ModuleDict({name: nn.Embedding(count, dim) for name, count in num_nodes_dict.items()})
        self.conv = HeteroConv({kind: SAGEConv(dim, dim) for kind in metadata[1]})

    def forward(self, x_dict, edge_index_dict):
        h = {name: table.weight for name, table in self.vectors.items()}
        out = self.conv(h, edge_index_dict)
        return {name: h[name] + out[name] for name in h}


def bpr(model, data, seed, epochs=30):
    torch.manual_seed(seed)
    typed = hasattr(model, "vectors")
    users, items = (model.vectors["user"], model.vectors["item"]) if typed else (model.user, model.item)
    count = users.num_embeddings
    edges = data["user", "interactions", "item"].edge_index if typed else data.edge_index
    edges = edges if typed else edges[:, edges[0] < count] - torch.tensor([[0], [count]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(epochs):
        rows = model(None, data.edge_index_dict) if typed else model(data.edge_index)
        user, item = (rows["user"], rows["item"]) if typed else (rows[:count], rows[count:])
        other = torch.randint(items.num_embeddings, (edges.size(1),))
        gap = (user[edges[0]] * (item[edges[1]] - item[other])).sum(dim=1)
        optimizer.zero_grad()
        torch.nn.functional.softplus(-gap).mean().backward()
        optimizer.step()
    return model


def short(model, data):
    return model


number = 3
"""

USERS, ITEMS = 60, 30


def write_shop(folder: Path, seed: int = 0) -> list[tuple[str, str]]:
    """Write users.csv, items.csv, interactions.csv and recnet.py; returns the interactions."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(seed)
    kinds = ("toys", "books", "garden")
    users = [(f"u-{100 + u}", drawn.choice(["de", "fr", "it"]), drawn.choice(["", 20, 35, 50])) for u in range(USERS)]
    items = [(f"i-{i}", f"Thing {drawn.random()}", kinds[i % 3], round(drawn.random() * 50, 2)) for i in range(ITEMS)]
    pairs = sorted(
        {(u, i) for u in range(USERS) for i in range(ITEMS) if drawn.random() < (0.5 if i % 3 == u % 3 else 0.1)}
    )
    pairs = [(users[u][0], items[i][0]) for u, i in pairs]
    drawn.shuffle(pairs)
    rows = [(*pair, 1_700_000_000 + drawn.randrange(10**7)) for pair in pairs]
    _write(folder / "users.csv", ("user_id", "country", "age"), users)
    _write(folder / "items.csv", ("item_id", "title", "category", "price"), items)
    _write(folder / "interactions.csv", ("user_id", "item_id", "ts"), rows)
    (folder / "recnet.py").write_text(CODE)
    return pairs


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> Path:
    """Write interactions to a file, by the columns of the tables."""
    _write(path, ("user_id", "item_id"), pairs)
    return path


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[object, ...]] | list[tuple[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
