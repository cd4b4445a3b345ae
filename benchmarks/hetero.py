"""Deleting links of one edge type of a `HeteroData`: items that are near each other, and the features they have.

    python benchmarks/hetero.py --dataset digits --seeds 3

Features are nodes of their own (the lit pixels of images, the words of papers), joined to the items that have them; both
types have learned embeddings and nothing else, as users and products do. A two-layer HeteroConv (GraphSAGE) predicts links
of one edge type, 2.5% of its training links are deleted, and GNNDelete (calibrated) stands beside Unlink and Retrain: AUROC
on test links, and the AUC of deleted against unseen test links. Settings are fixed; nothing is chosen on test data.
"""

from __future__ import annotations

import argparse
import json
from statistics import mean
from typing import Any

import torch
import torch_geometric.transforms as T
from options import at_least_one
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

import gnndelete as gd

SEEDS = (42, 21, 13, 87, 100)
NEAR, HAS = ("item", "near", "item"), ("item", "has", "feature")


class Encoder(nn.Module):
    """An embedding per node, then two layers of one GraphSAGE per edge type."""

    def __init__(self, data: HeteroData, hidden: int = 64, out: int = 32) -> None:
        super().__init__()
        self.table = nn.ModuleDict({kind: nn.Embedding(data[kind].num_nodes, hidden) for kind in data.node_types})
        self.layers = nn.ModuleList(
            HeteroConv({kind: SAGEConv(hidden, width) for kind in data.edge_types}) for width in (hidden, out)
        )

    def forward(self, edge_index_dict: dict[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        x = {kind: table.weight for kind, table in self.table.items()}
        x = {kind: h.relu() for kind, h in self.layers[0](x, edge_index_dict).items()}
        return self.layers[1](x, edge_index_dict)


def items_and_features(dataset: str) -> HeteroData:
    """A graph with features as one of two node types: an item has those above half of its largest value."""
    plain = gd.datasets.load(dataset)
    x = plain.x.to_dense()
    data = HeteroData()
    data["item"].num_nodes, data["feature"].num_nodes = x.shape
    data[NEAR].edge_index = plain.edge_index
    data[HAS].edge_index = (x > x.max(dim=1, keepdim=True).values / 2).nonzero().t().contiguous()
    return T.ToUndirected()(data)


def cell(dataset: str, kind: tuple[str, str, str], seed: int, epochs: int, lr: float) -> dict[str, dict[str, Any]]:
    """All methods from one seed on one edge type."""
    torch.manual_seed(seed)
    source, relation, target = kind
    split = T.RandomLinkSplit(
        num_val=0.05,
        num_test=0.05,
        is_undirected=source == target,
        edge_types=kind,
        rev_edge_types=None if source == target else (target, f"rev_{relation}", source),
        neg_sampling_ratio=0.0,  # false links are drawn by the task, from its seed
    )
    data, validation, test = split(items_and_features(dataset))
    for name in ("edge_label_index", "edge_label"):
        del data[kind][name]
    task = gd.LinkPrediction(edge_type=kind, validation=validation, test=test, seed=seed)
    model = Encoder(data)
    gd.train(model, data, task, epochs=epochs, lr=lr, seed=seed)
    own = data[kind].edge_index
    own = own[:, own[0] < own[1]] if source == target else own
    gone = own[:, torch.randperm(own.size(1))[: round(0.025 * own.size(1))]]
    deletion = gd.Deletion(edges={kind: gone})

    def served(method: gd.Method) -> gd.Unlearned:
        return gd.Unlearner(model, data, task, method, seed=seed).delete(deletion)

    reference = served(gd.Retrain(epochs=epochs, lr=lr))
    rows = {"gnndelete": served(gd.GNNDelete()), "unlink": served(gd.Unlink()), "retrain": reference}
    found: dict[str, dict[str, Any]] = {}
    for name, unlearned in rows.items():
        beside = None if unlearned is reference else reference
        audit = gd.audit(unlearned, beside, attacks=False).to_dict()
        auc = audit["forgetting"]["unseen"]["served"]
        found["before"] = {"test_auroc": audit["utility"]["metrics"]["auroc"]["before"], "auc": auc["before"]["auc"]}
        found[name] = {
            "test_auroc": audit["utility"]["metrics"]["auroc"]["after"],
            "auc": auc["after"]["auc"],
            "verdict": auc["verdict"],
            "deleted_auroc": unlearned.evaluate()["deleted_auroc"],
            "seconds": unlearned.seconds,
            "lam": unlearned.lam,
            "parameters": unlearned.parameters,
            "deleted": gone.size(1),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--seeds", type=at_least_one, default=3)
    parser.add_argument("--epochs", type=at_least_one, default=200)
    parser.add_argument("--lr", type=float, default=0.01)
    given = parser.parse_args()
    for kind in (NEAR, HAS):
        cells = [cell(given.dataset, kind, seed, given.epochs, given.lr) for seed in SEEDS[: given.seeds]]
        for row in cells:
            print(json.dumps({"edge_type": kind, **row}), flush=True)
        for name in cells[0]:
            numbers = [key for key in ("test_auroc", "auc", "deleted_auroc", "seconds") if key in cells[0][name]]
            means = "  ".join(f"{key} {mean(row[name][key] for row in cells):.3f}" for key in numbers)
            print(f"{kind[1]:<6} {name:<10} {means}", flush=True)


if __name__ == "__main__":
    main()
