"""ogbg-molhiv: 2.5% of the edges, and 100 training molecules (or their features), deleted from graph classifiers.

    GNNDELETE_DATA=… python benchmarks/molecules.py --model gcn --seeds 3 --device cuda

Test AUROC of Retrain, Unlink and GNNDelete on the scaffold split, and for deleted molecules the probability of their true
label against held-out molecules of the same class and size (test part; 0.5: cannot be told apart). Nothing is chosen on
test data. A model sees each molecule alone, so what is deleted from training molecules moves no test score: GNNDelete and
Unlink keep the original model's. Only edges drawn anywhere, from test molecules too, change it. ``--graphs 2000`` takes
about so many molecules, to try it out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from statistics import mean, stdev
from typing import Any

import torch

import gnndelete as gd

#: Test AUROC in the paper: 2.5% of edges, and 100 graphs' features; GNNDelete and Retrain.
PAPER = {"edges": {"gnndelete": 0.710, "retrain": 0.758}, "graphs": {"gnndelete": 0.724, "retrain": 0.753}}
SEEDS = (42, 21, 13, 87, 100)


def molecules(count: int | None) -> gd.datasets.GraphBatch:
    data = gd.datasets.collate(gd.datasets.load("ogbg-molhiv"))
    if count is None:
        return data
    part = data.select(torch.arange(data.num_graphs)[:: max(data.num_graphs // count, 1)])
    del part["n_id"], part["graph_id"]  # from here on the part is the whole
    return part


def requests(data: gd.datasets.GraphBatch, amount: int, seed: int) -> dict[str, gd.Deletion]:
    graphs = gd.datasets.forget_graphs(data, amount, seed=seed)
    everywhere = data.__copy__()
    del everywhere["train_mask"]  # then edges are drawn from all molecules, those of the test part too
    found = {
        "edges": gd.Deletion(edges=gd.datasets.forget_edges(data, 0.025, seed=seed)),
        "edges anywhere": gd.Deletion(edges=gd.datasets.forget_edges(everywhere, 0.025, seed=seed)),
        "graphs": gd.Deletion(graphs=graphs),
    }
    try:  # the paper's own: the molecules stay, their atoms lose all features
        features = gd.Deletion(features=data.nodes_of(graphs))
        features.check(data)
        found["features"] = features
    except gd.errors.GNNDeleteError as error:
        print(f"features of molecules are left out: {error}", file=sys.stderr)
    return found


def cell(data: gd.datasets.GraphBatch, options: argparse.Namespace, seed: int) -> dict[str, dict[str, dict[str, Any]]]:
    task = gd.GraphClassification()
    schedule = {"epochs": options.epochs, "lr": options.lr, "batch_size": options.batch_size}
    shape = {"hidden": options.hidden, "num_layers": options.layers, "dropout": options.dropout, "norm": True}
    torch.manual_seed(seed)
    model = gd.models.build(
        options.model, data.num_features, out=1, pool="mean", categories=gd.models.Categories.sizes(data.x), **shape
    ).to(data.x.device)
    started = time.perf_counter()
    trained = gd.train(model, data, task, seed=seed, validate_every=1, progress=True, **schedule)
    original = gd.evaluate(model, data, task)
    say(f"seed {seed}: trained in {time.perf_counter() - started:.0f} s, best epoch {trained.best_epoch}, {original}")

    def fit(fresh: torch.nn.Module, remaining: Any, chosen: int) -> None:
        gd.train(fresh, remaining, task, seed=chosen, validate_every=1, progress=True, **schedule)

    methods = {
        "gnndelete": gd.GNNDelete(),
        "gnndelete lam=.5": gd.GNNDelete(lam=0.5),
        "paper()": gd.GNNDelete.paper(),
        "unlink": gd.Unlink(),
        "retrain": gd.Retrain(),
    }
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for kind, deletion in requests(data, options.molecules, seed).items():
        results[kind] = {"original": {"test_auroc": original["auroc"]}}
        for label, method in methods.items():
            unlearner = gd.Unlearner(model, data, task=task, method=method, seed=seed, fit=fit)
            unlearned = unlearner.delete(deletion)
            found = unlearned.evaluate() | {"seconds": unlearned.seconds, "peak_mb": unlearned.peak_mb or 0.0}
            found["parameters"] = unlearned.parameters
            if unlearned.lam is not None:
                found["lam"] = unlearned.lam
            if kind == "graphs":
                asked = gd.audit(unlearned, attacks=False).to_dict()["forgetting"]
                for query in ("old_id", "new_id") if asked["available"] else ():
                    found[f"heldout_{query}"] = asked["heldout"][query]["after"]["auc"]
            results[kind][label] = found
            say(f"  {kind:<15} {label:<18} " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()))
    return results


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gcn", choices=["gcn", "gin", "gat"])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--molecules", type=int, default=100, help="how many are deleted")
    parser.add_argument("--graphs", type=int, default=None, help="only about so many of all, to try it out")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    data = molecules(options.graphs).to(options.device)
    say(f"{data.num_graphs:,} molecules, {data.num_nodes:,} atoms, {data.edge_index.size(1):,} directed bonds")
    runs = [cell(data, options, seed) for seed in SEEDS[: options.seeds]]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "seeds": SEEDS[: options.seeds], "runs": runs}, file, indent=1)
    for kind in runs[0]:
        printed = PAPER["edges" if kind.startswith("edges") else "graphs"]
        print(f"\n{options.model}, {kind} deleted; test AUROC (paper: {printed})")
        lines: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            for label, found in run[kind].items():
                lines[label].append(found["test_auroc"])
        reference = lines["retrain"]
        for label, values in lines.items():
            gap = mean(value - other for value, other in zip(values, reference, strict=True))
            spread = f" ±{stdev(values):.3f}" if len(values) > 1 else ""
            seconds = mean(run[kind][label].get("seconds", 0.0) for run in runs)
            held = [run[kind][label]["heldout_old_id"] for run in runs if "heldout_old_id" in run[kind][label]]
            asked = f"   held-out AUC {mean(held):.3f}" if held else ""
            print(f"  {label:<18} {mean(values):.3f}{spread}   gap to Retrain {gap:+.3f}   {seconds:.3g} s{asked}")


if __name__ == "__main__":
    main()
