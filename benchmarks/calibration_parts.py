"""What each correction in the search for lam is worth: the distance to Retrain with all of them, and without each.

    GNNDELETE_DATA=… python benchmarks/calibration_parts.py --out parts.jsonl
    python benchmarks/calibration_parts.py --show parts.jsonl

A cell is a graph, a model, a seed and a request of 2.5% of the edges. In each cell a model is trained, trained again without
the deleted edges, and the same edges are deleted with lam="auto": once as it is, and once without each correction. The
distance is |unseen AUC - Retrain's unseen AUC| on test edges, which the search never reads. Differences are paired over
cells, so their standard error is that of the difference itself. Two further corrections, peers and lifting, changed the
distance by less than that error and were removed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch_geometric.nn import LGConv

import gnndelete as gd
from gnndelete.metrics.edge_matching import match_edges
from gnndelete.metrics.unseen_test import degrees, edge_strata, unseen_test

#: Per part, what is replaced to leave it out: no quantiles of the degree, and a regression that never has enough edges.
PARTS: dict[str, dict[str, Any]] = {
    "strata": {"gnndelete.metrics.edge_matching.DEGREE_QUANTILES": 1},
    "surroundings": {"gnndelete.metrics.edge_matching.EDGES_PER_COEFFICIENT": 10**9},
}
DATASETS = ("digits", "citeseer", "cora_ml")
MODELS = ("gcn", "gat", "lightgcn")
FORGET = {"gcn": ("random", "out"), "gat": ("random", "out"), "lightgcn": ("random",)}
SEEDS = (1, 2, 3, 4, 5)


class LightGCN(nn.Module):
    """Trained vectors of nodes, averaged over two propagation layers; no features."""

    def __init__(self, nodes: int, width: int = 32) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, width)
        nn.init.normal_(self.table.weight, std=0.1)
        self.convs = nn.ModuleList([LGConv(), LGConv()])

    def forward(self, edge_index: Tensor) -> Tensor:
        layers = [self.table.weight]
        for conv in self.convs:
            layers.append(conv(layers[-1], edge_index))
        return torch.stack(layers).mean(dim=0)


@contextmanager
def without(part: str) -> Iterator[None]:
    """The search without one of its corrections; "" leaves out nothing."""
    patches = [mock.patch(target, value) for target, value in PARTS.get(part, {}).items()]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def build(name: str, data: Any, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if name == "lightgcn":
        return LightGCN(data.num_nodes)
    return gd.models.build(name, data.num_features, hidden=64, out=32)


def cells(dataset: str, name: str, seed: int, epochs: int) -> Iterator[dict[str, Any]]:
    """All requests to one trained model."""
    split = gd.datasets.split_links(gd.datasets.load(dataset), val=0.1, test=0.1, seed=seed)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)

    def fit(model: nn.Module, data: Any, seed: int) -> nn.Module:
        gd.train(model, data, task, epochs=epochs, lr=0.01, validate_every=epochs, seed=seed)
        return model

    model = fit(build(name, split.data, seed), split.data, seed)
    for where in FORGET[name]:
        hops = {"test": split.test, "hops": "directed"} if where == "out" else {}
        try:
            edges = gd.datasets.forget_edges(split.data, 0.025, where, seed=seed, **hops)
        except gd.errors.GNNDeleteError:  # too few edges lie outside
            continue
        deletion = gd.Deletion(edges=edges)

        def by(method: Any, deletion: gd.Deletion = deletion) -> gd.Unlearned:
            return gd.Unlearner(model, split.data, task=task, method=method, fit=fit, seed=seed).delete(deletion)

        row: dict[str, Any] = {"dataset": dataset, "model": name, "seed": seed, "where": where, "edges": edges.size(1)}
        row["retrain"] = unseen_auc(by(gd.Retrain()), split.test)
        row["unlink"] = unseen_auc(by(gd.Unlink()), split.test)
        for part in ("", *PARTS):
            with without(part):
                began = time.perf_counter()
                result = by(gd.GNNDelete())
            found = {"seconds": time.perf_counter() - began, "lam": result.lam, **unseen_auc(result, split.test)}
            row[part or "all"] = found | {"target": (result.calibration or {}).get("target")}
        yield row


def unseen_auc(result: gd.Unlearned, test: Any) -> dict[str, float]:
    """Deleted against test edges: within strata of degree as an audit reports it, and adjusted for surroundings."""
    deleted, unseen = result.deletion.edges, test.positives if hasattr(test, "positives") else test
    scores = [result.predict(edges).double().cpu() for edges in (deleted, unseen)]
    matched = unseen_test(*scores, **edge_strata(degrees(result.data), deleted, unseen))
    adjusted = match_edges(result.data, deleted, unseen).test(*scores)
    return {"matched": matched.auc, "adjusted": adjusted.auc, "plain": matched.plain_auc}


def show(rows: list[dict[str, Any]]) -> None:
    groups = {"all models": rows}
    groups |= {name: [row for row in rows if row["model"] == name] for name in MODELS}
    groups |= {f"where={where}": [row for row in rows if row["where"] == where] for where in ("random", "out")}
    for kind in ("matched", "adjusted", "plain"):
        print(f"\n{kind}: mean distance to Retrain's unseen AUC, and how much larger it is without a part")
        print(f"{'':14}{'cells':>6}{'all':>8}" + "".join(f"{part:>22}" for part in (*PARTS, "unlink")))
        for title, chosen in groups.items():
            if len(chosen) < 2:
                continue

            def distance(row: dict[str, Any], part: str, kind: str = kind) -> float:
                return abs(row[part][kind] - row["retrain"][kind])

            line = f"{title:14}{len(chosen):6}{mean(distance(row, 'all') for row in chosen):8.4f}"
            for part in (*PARTS, "unlink"):
                found = [distance(row, part) - distance(row, "all") for row in chosen]
                line += f"{mean(found):+12.4f} ± {stdev(found) / len(found) ** 0.5:.4f}"
            print(line)
    print("\nseconds per deletion: ", end="")
    print(", ".join(f"{part} {mean(row[part]['seconds'] for row in rows):.3f}" for part in ("all", *PARTS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("parts.jsonl"))
    parser.add_argument("--show", type=Path, default=None, help="print the table of a finished run")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    args = parser.parse_args()
    if args.show is None:
        with args.out.open("w") as file:
            for seed in args.seeds:  # a stopped run still holds every graph and model
                for dataset in DATASETS:
                    for name in MODELS:
                        for row in cells(dataset, name, seed, args.epochs):
                            file.write(json.dumps(row) + "\n")
                            file.flush()
    rows = [json.loads(line) for line in (args.show or args.out).read_text().splitlines()]
    show(rows)


if __name__ == "__main__":
    main()
