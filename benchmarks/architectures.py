"""Calibrated deletion on models that no constant of it was chosen on, beside Retrain, a second Retrain and Unlink.

    GNNDELETE_DATA=… python benchmarks/architectures.py --out architectures.jsonl

Models are PyG's own, or a few lines of its layers: other sums (SAGE), other attention (GATv2, TransformerConv), many hops
in one module (APPNP), three layers with batch norm and jumping knowledge, and an MLP in place of inner products as
decoder. Each is trained, trained again without 2.5% of the edges, and deletes the same edges by calibration, in one process.
lam is chosen on validation edges, figures are of test edges. Finished cells are kept in the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from options import at_least_one, device_name
from tables import link_task, record
from torch import Tensor, nn
from torch_geometric.nn import APPNP, GAT, GCN, GraphSAGE, TransformerConv

import gnndelete as gd
from gnndelete.auditing.case import open_case
from gnndelete.auditing.measures.forgetting import Forgetting

HIDDEN, OUT = 128, 64
METHODS = {"retrain": "retrain", "again": gd.Retrain(seed=7), "unlink": gd.Unlink(), "calibrated": gd.GNNDelete()}


class Attention(nn.Module):
    """Two TransformerConv layers, the second with one head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = TransformerConv(width, HIDDEN // 4, heads=4), TransformerConv(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Spread(nn.Module):
    """A perceptron, and then personalised PageRank over four hops."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))
        self.spread = APPNP(K=4, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.spread(self.encode(x), edge_index)


class Judged(nn.Module):
    """GraphSAGE of which a perceptron judges pairs of nodes, the same either way round."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = GraphSAGE(width, HIDDEN, num_layers=2, out_channels=OUT)
        self.judge = nn.Sequential(nn.Linear(OUT, OUT), nn.ReLU(), nn.Linear(OUT, 1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.encoder(x, edge_index)

    def decode(self, z: Tensor, edges: Tensor) -> Tensor:
        return self.judge(z[edges[0]] * z[edges[1]]).view(-1)


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "SAGE": lambda width: GraphSAGE(width, HIDDEN, num_layers=2, out_channels=OUT),
    "GATv2": lambda width: GAT(width, HIDDEN, num_layers=2, out_channels=OUT, v2=True, heads=4),
    "Transformer": Attention,
    "APPNP": Spread,
    "GCN-3-JK": lambda width: GCN(width, HIDDEN, num_layers=3, out_channels=OUT, jk="cat", norm="batch_norm"),
    "SAGE-MLP": Judged,
}


def cell(dataset: str, name: str, seed: int, epochs: int, lr: float, device: str) -> dict[str, Any]:
    """One model: what each method makes of it, and in how many seconds."""
    split = gd.datasets.split_links(gd.datasets.load(dataset), seed=seed)
    data = split.data.to(device)
    torch.manual_seed(seed)
    model = MODELS[name](data.num_features).to(device)
    task = link_task(split, seed, decoder="decode" if hasattr(model, "decode") else "dot")

    def fit(model: nn.Module, data: Any, seed: int) -> nn.Module:
        gd.train(model, data, task, epochs=epochs, lr=lr, seed=seed)
        return model

    model = fit(model, data, seed)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(split.data, 0.025, seed=seed))
    row: dict[str, Any] = {"key": [dataset, name, seed], "device": device, "epochs": epochs, "lr": lr}
    for label, method in METHODS.items():
        result = gd.Unlearner(model, data, task=task, method=method, fit=fit, seed=seed).delete(deletion)
        test = Forgetting().run(open_case(result)).unseen["served"]
        row["original"] = {"unseen": test.before.auc}
        row[label] = {
            "unseen": test.after.auc,
            "test_auroc": result.evaluate()["test_auroc"],
            "lam": result.lam,
            "status": (result.calibration or {}).get("status"),
            "seconds": result.seconds,
        }
    return row


def show(rows: Iterable[dict[str, Any]]) -> None:
    """Distances to Retrain: unseen AUC of Unlink, the second Retrain and ours, E_t of the last two."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["key"][0], row["key"][1]), []).append(row)
    every = [row for group in groups.values() for row in group]
    print(
        f"{'cell':<30}{'seeds':>6}{'original':>9}{'retrain':>8}{'ours':>7}{'lam':>8}"
        f"{'| unlink':>10}{'again':>7}{'ours':>7}{'| E_t: again':>13}{'ours':>7}{'| times':>9}"
    )
    for (dataset, name), group in [*groups.items(), *([(("all", ""), every)] if every else [])]:
        held = {label: mean(row[label]["unseen"] for row in group) for label in ("original", "retrain", "calibrated")}
        lam = mean(row["calibrated"]["lam"] for row in group)
        faster = min(row["retrain"]["seconds"] / row["calibrated"]["seconds"] for row in group)
        print(
            f"{dataset + ' ' + name:<30}{len(group):>6}{held['original']:>9.3f}{held['retrain']:>8.3f}"
            f"{held['calibrated']:>7.3f}{lam:>8.3f}"
            f"{far(group, 'unlink'):>10.4f}{far(group, 'again'):>7.4f}{far(group, 'calibrated'):>7.4f}"
            f"{far(group, 'again', 'test_auroc'):>13.4f}{far(group, 'calibrated', 'test_auroc'):>7.4f}{faster:>8.0f}x"
        )


def far(rows: list[dict[str, Any]], label: str, score: str = "unseen") -> float:
    """The mean distance to Retrain in one score, seed by seed."""
    return mean(abs(row[label][score] - row["retrain"][score]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["planetoid-cora", "pubmed"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 21, 13])
    parser.add_argument("--epochs", type=at_least_one, default=500)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default=None, help="JSON-lines file of finished cells")
    args = parser.parse_args()
    done = Path(args.out).read_text().splitlines() if args.out and Path(args.out).exists() else []
    rows = [json.loads(line) for line in done]
    for seed, dataset, name in product(args.seeds, args.datasets, args.models):
        if any(row["key"] == [dataset, name, seed] for row in rows):
            continue
        start = time.perf_counter()
        rows.append(cell(dataset, name, seed, args.epochs, args.lr, args.device))
        record(args.out, rows[-1])
        print(f"{dataset} {name} {seed}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
