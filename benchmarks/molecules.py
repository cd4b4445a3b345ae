"""ogbg-molhiv: 2.5% of the bonds, or the features of 100 molecules, deleted from graph classifiers beside Retrain and Unlink.

    GNNDELETE_DATA=… python benchmarks/molecules.py --models gcn gin --seeds 3 --device cuda --out molecules.jsonl

Test AUROC on the scaffold split, and its gap to Retrain; nothing is chosen on test data. Retrain begins with the weights and
the order of batches that the original had, so that only the data differ. A model sees each molecule alone: what is deleted
from training molecules moves no test score of GNNDelete or Unlink, and their gap is the difference between two trainings.
``--requests`` also has ``anywhere`` (bonds of test molecules, too, which does move them) and ``graphs`` (whole molecules,
with the unseen test). ``--graphs 2000`` takes about so many molecules, to try it out. The raw tables (1.7 MB) are read
without OGB's package, batches are cut on the device.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from options import at_least_one, device_name
from tables import Cell, record, show

import gnndelete as gd
from gnndelete.methods.base import Method
from gnndelete.nn.reset import fresh

#: Test AUROC in the paper: 2.5% of edges, and 100 graphs' features; GNNDelete and Retrain.
PAPER = {"edges": {"gnndelete": 0.710, "retrain": 0.758}, "features": {"gnndelete": 0.724, "retrain": 0.753}}
SEEDS = (42, 21, 13, 87, 100)
#: For every model, that of experiments/paper/downstream-graphs.yaml; of its epochs the best by validation score is kept.
RECIPE: dict[str, Any] = {
    "epochs": 40,
    "lr": 1e-3,
    "weight_decay": 1e-5,
    "batch_size": 256,
    "hidden": 256,
    "num_layers": 4,
    "dropout": 0.3,
    "pool": "mean",
}
_SCHEDULE = ("epochs", "lr", "weight_decay", "batch_size")


def molecules(count: int | None) -> gd.datasets.GraphBatch:
    data = gd.datasets.collate(gd.datasets.load("ogbg-molhiv"))
    if count is None:
        return data
    part = data.select(torch.arange(data.num_graphs)[:: max(data.num_graphs // count, 1)])
    del part["n_id"], part["graph_id"]  # from here on the part is the whole
    return part


def request(kind: str, data: gd.datasets.GraphBatch, amount: int, seed: int) -> gd.Deletion:
    if kind in ("features", "graphs"):
        graphs = gd.datasets.forget_graphs(data, amount, seed=seed)
        return gd.Deletion(graphs=graphs) if kind == "graphs" else gd.Deletion(features=data.nodes_of(graphs))
    if kind == "anywhere":
        data = data.__copy__()
        del data["train_mask"]  # then edges are drawn from all molecules, those of the test part too
    return gd.Deletion(edges=gd.datasets.forget_edges(data, 0.025, seed=seed))


def methods(seed: int) -> dict[str, Method]:
    return {
        "retrain": gd.Retrain(seed=seed),
        "unlink": gd.Unlink(),
        "gnndelete": gd.GNNDelete(),
        "gnndelete nonexistent": gd.GNNDelete(aim="nonexistent"),
        "gnndelete paper()": gd.GNNDelete.paper(),
    }


def recipe(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schedule and the shape of a model."""
    chosen = {key: getattr(options, key) for key in RECIPE}
    return (
        {key: chosen[key] for key in _SCHEDULE},
        {key: value for key, value in chosen.items() if key not in _SCHEDULE},
    )


def cells(name: str, data: gd.datasets.GraphBatch, options: argparse.Namespace, seed: int) -> dict[str, Cell]:
    task = gd.GraphClassification()
    schedule, shape = recipe(options)

    def fit(model: torch.nn.Module, remaining: Any, chosen: int) -> None:
        found = gd.train(model, remaining, task, seed=chosen, validate_every=1, progress=True, **schedule)
        say(f"  {name} seed {chosen}: {found.seconds:.0f} s, best epoch {found.best_epoch}, {found.best_score:.4f}")

    sizes = gd.models.Categories.sizes(data.x)
    built = gd.models.build(name, data.num_features, out=1, categories=sizes, norm=True, **shape).to(data.x.device)
    model = fresh(built, seed)  # as Retrain does: the same seed is the same weights
    started = time.perf_counter()
    fit(model, data, seed)
    original = {f"test_{key}": value for key, value in gd.evaluate(model, data, task).items()}
    original |= {"seconds": time.perf_counter() - started, "parameters": sum(p.numel() for p in model.parameters())}
    say(f"  {name} seed {seed}: {original}")
    results: dict[str, Cell] = {}
    for kind in options.requests:
        deletion = request(kind, data, options.molecules, seed)
        results[kind] = {"original": dict(original)}
        for label, method in methods(seed).items():
            unlearned = gd.Unlearner(model, data, task=task, method=method, seed=seed, fit=fit).delete(deletion)
            found = unlearned.evaluate() | {"seconds": unlearned.seconds, "parameters": unlearned.parameters}
            found |= {"lam": unlearned.lam} if unlearned.lam is not None else {}
            if kind == "graphs":
                asked = gd.audit(unlearned, attacks=False).to_dict()["forgetting"]
                for query in ("old_id", "new_id") if asked["available"] else ():
                    found[f"unseen_{query}"] = asked["unseen"][query]["after"]["auc"]
            results[kind][label] = found
        reference = results[kind]["retrain"]["test_auroc"]
        for label, found in results[kind].items():
            found["gap"] = found["test_auroc"] - reference
            line = {"model": name, "seed": seed, "request": kind, "counts": deletion.counts, "method": label, **found}
            record(options.out, line | {"schedule": schedule, "shape": shape, "device": str(data.x.device)})
            say(f"  {kind:<10} {label:<22} " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()))
    return results


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gcn", "gin"], help="also gat, gps, graphormer")
    known = ["edges", "features", "anywhere", "graphs"]
    parser.add_argument("--requests", nargs="*", default=["edges", "features"], choices=known, help="none: only train")
    parser.add_argument("--seeds", type=at_least_one, default=1)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    for key, value in RECIPE.items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=type(value), default=value, help=f"{value} by default")
    parser.add_argument("--molecules", type=int, default=100, help="how many lose their features, or are deleted")
    parser.add_argument("--graphs", type=int, default=None, help="only about so many of all, to try it out")
    parser.add_argument("--out", default=None, help="file to add one JSON line per result to")
    options = parser.parse_args()
    data = molecules(options.graphs).to(options.device)
    say(f"{data.num_graphs:,} molecules, {data.num_nodes:,} atoms, {data.edge_index.size(1):,} directed bonds")
    for name in options.models:
        runs = [cells(name, data, options, seed) for seed in SEEDS[: options.seeds]]
        for kind in options.requests:
            columns = ["test_auroc", "gap", "seconds", *(["unseen_old_id"] if kind == "graphs" else [])]
            show(f"{name}, {kind} (paper: {PAPER.get(kind, 'none')})", [run[kind] for run in runs], columns, digits=3)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
