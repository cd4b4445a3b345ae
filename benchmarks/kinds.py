"""Deleting 100 nodes, the features of 100 nodes, and the labels of 100 nodes from a node classifier on DBLP.

    GNNDELETE_DATA=… python benchmarks/kinds.py --seeds 5 --device cuda --epochs 1000

Each kind by GNNDelete (calibrated), Unlink and Retrain: the test accuracy and the AUC of deleted against unseen test
nodes on every graph that can be asked (as served, presented again under the old id, under a new id), with the verdict of
the audit. Settings are fixed; nothing is chosen on test data.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from statistics import mean, stdev
from typing import Any

import torch
from options import at_least_one, device_name

import gnndelete as gd

SEEDS = (42, 21, 13, 87, 100)
KINDS = ("nodes", "features", "labels")
QUERIES = ("served", "old_id", "new_id")


def cell(dataset: str, seed: int, count: int, epochs: int, lr: float, device: str) -> dict[str, dict[str, Any]]:
    """All kinds and methods from one seed; ``accuracy``, and per query the ``auc`` and the ``verdict`` against Retrain."""
    data = gd.datasets.split_nodes(gd.datasets.load(dataset), seed=seed).to(device)
    task = gd.NodeClassification()
    nodes = gd.datasets.forget_nodes(data, count, seed=seed)
    torch.manual_seed(seed)
    model = gd.models.build("gcn", data.num_features, out=int(data.y.max()) + 1).to(device)
    gd.train(model, data, task, epochs=epochs, lr=lr, seed=seed, patience=200)
    found: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        deletion = gd.Deletion(**{kind: nodes})

        def served(method: gd.methods.Method, deletion: gd.Deletion = deletion) -> gd.Unlearned:
            return gd.Unlearner(model, data, task=task, method=method, seed=seed).delete(deletion)

        reference = served(gd.Retrain(epochs=epochs, lr=lr, patience=200))
        rows = {"gnndelete": served(gd.GNNDelete()), "unlink": served(gd.Unlink()), "retrain": reference}
        for label, unlearned in rows.items():
            beside = None if unlearned is reference else reference
            tests = gd.audit(unlearned, beside, attacks=False).to_dict()["forgetting"]["unseen"]
            found[f"{kind} {label}"] = {
                "accuracy": unlearned.evaluate()["test_accuracy"],
                "gap": unlearned.evaluate()["test_accuracy"] - reference.evaluate()["test_accuracy"],
                "seconds": unlearned.seconds,
                "lam": unlearned.lam,
                **{query: tests[query]["after"]["auc"] for query in QUERIES if tests[query]["available"]},
                "verdicts": {query: tests[query].get("verdict") for query in QUERIES},
            }
    return found


def show(cells: list[dict[str, dict[str, Any]]]) -> None:
    columns = ("accuracy", "gap", *QUERIES, "seconds")
    print(f"{'':<22}" + "".join(f"{name:>17}" for name in columns) + "   verdicts (served, old id, new id)")
    for label in cells[0]:
        text = []
        for name in columns:
            values = [c[label][name] for c in cells if name in c[label]]
            text.append(f"{mean(values):.4f}±{stdev(values) if len(values) > 1 else 0:.4f}" if values else "-")
        said = [Counter(c[label]["verdicts"][query] for c in cells).most_common(1)[0] for query in QUERIES]
        words = ", ".join(f"{word} {times}/{len(cells)}" for word, times in said)
        print(f"{label:<22}" + "".join(f"{t:>17}" for t in text) + f"   {words}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="dblp")
    parser.add_argument("--seeds", type=at_least_one, default=5)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--epochs", type=at_least_one, default=1000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    cells = []
    for seed in SEEDS[: args.seeds]:
        start = time.perf_counter()
        cells.append(cell(args.dataset, seed, args.count, args.epochs, args.lr, args.device))
        print(f"seed {seed}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    show(cells)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(cells, file)


if __name__ == "__main__":
    main()
