"""The paper's DBLP cells that need no baseline: 2.5% of edges IN the test neighbourhood, and 100 deleted nodes.

    GNNDELETE_DATA=… python benchmarks/dblp.py --seeds 5 --device cuda

Each line stands beside Retrain and Unlink of the same seed and the paper's own figure. Nothing is chosen on test data:
the settings are fixed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict

import torch
from options import at_least_one, device_name
from tables import link_task, show

import gnndelete as gd

#: The paper's Table for DBLP, IN, 2.5%: test AUROC / deleted AUROC of GNNDelete and Retrain.
PAPER = {
    "gcn": {"gnndelete": (0.934, 0.748), "retrain": (0.964, 0.506)},
    "gat": {"gnndelete": (0.914, 0.774), "retrain": (0.956, 0.525)},
    "gin": {"gnndelete": (0.897, 0.740), "retrain": (0.931, 0.581)},
}
SEEDS = (42, 21, 13, 87, 100)


def link_cell(name: str, seed: int, epochs: int, device: str) -> dict[str, dict[str, float]]:
    split = gd.datasets.split_links(gd.datasets.load("dblp"), seed=seed)
    data = split.data.to(device)
    task = link_task(split, seed)
    forget = gd.datasets.forget_edges(split.data, 0.025, "in", test=split.test, hops="directed", seed=seed)
    torch.manual_seed(seed)
    model = gd.models.build(name, data.num_features).to(device)
    gd.train(model, data, task, epochs=epochs, seed=seed)
    methods = {
        "paper()": gd.GNNDelete.paper(hops="directed"),
        "ring lam=.5": gd.GNNDelete(lam=0.5, hops="directed"),
        "ring lam=.5 undirected": gd.GNNDelete(lam=0.5),
        "unlink": gd.Unlink(),
        "retrain": gd.Retrain(epochs=epochs),
    }
    results = {}
    for label, method in methods.items():
        unlearner = gd.Unlearner(model, data, task=task, method=method, seed=seed)
        unlearned = unlearner.delete(gd.Deletion(edges=forget))
        results[label] = unlearned.evaluate() | {"seconds": unlearned.seconds}
    return results


def node_cell(name: str, seed: int, epochs: int, device: str) -> dict[str, dict[str, float]]:
    data = gd.datasets.split_nodes(gd.datasets.load("dblp"), seed=seed).to(device)
    task = gd.NodeClassification()
    nodes = gd.datasets.forget_nodes(data, 100, seed=seed)
    torch.manual_seed(seed)
    model = gd.models.build(name, data.num_features, out=int(data.y.max()) + 1).to(device)
    gd.train(model, data, task, epochs=epochs, seed=seed, patience=200)
    results = {}
    for label, method in {
        "ring lam=.5": gd.GNNDelete(lam=0.5),
        "paper()": gd.GNNDelete.paper(),
        "unlink": gd.Unlink(),
        "retrain": gd.Retrain(epochs=epochs, patience=200),
    }.items():
        unlearned = gd.Unlearner(model, data, task=task, method=method, seed=seed).delete(gd.Deletion(nodes=nodes))
        with torch.no_grad():
            before = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(nodes=nodes)).output()
        change = (unlearned.output()[nodes.to(device)] - before[nodes.to(device)]).norm(dim=1).mean()
        results[label] = unlearned.evaluate() | {"row_change": float(change), "seconds": unlearned.seconds}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=at_least_one, default=5)
    parser.add_argument("--epochs", type=at_least_one, default=2000)
    parser.add_argument("--node-epochs", type=at_least_one, default=1000)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=["gcn", "gat", "gin"])
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    store: dict[str, list] = defaultdict(list)
    for name in args.models:
        for kind, cell, epochs in (("link", link_cell, args.epochs), ("node", node_cell, args.node_epochs)):
            for seed in SEEDS[: args.seeds]:
                start = time.perf_counter()
                store[f"{kind} {name}"].append(cell(name, seed, epochs, args.device))
                print(f"{kind} {name} seed {seed}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
        show(f"{name}: 2.5% of edges, IN (directed)", store[f"link {name}"], ["test_auroc", "deleted_auroc", "seconds"])
        for row, (test, deleted) in PAPER[name].items():
            print(f"  the paper's {row:<12}{test:>22.3f}{deleted:>22.3f}")
        show(f"{name}: 100 nodes", store[f"node {name}"], ["test_accuracy", "test_f1", "row_change", "seconds"])
        sys.stdout.flush()
    if args.json:
        with open(args.json, "w") as file:
            json.dump(store, file)


if __name__ == "__main__":
    main()
