"""Every method on one link-prediction cell of the paper, beside Retrain, the controls and the paper's own figures.

    GNNDELETE_DATA=… python benchmarks/methods.py --dataset dblp --seeds 3 --device cuda --store rows.jsonl

A killed run that is started again with the same store repeats nothing that was done.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch
from options import at_least_one, device_name
from rich.console import Console

import gnndelete as gd
from gnndelete.methods import resolver
from gnndelete.methods.base import Method

#: Test AUROC / deleted AUROC of the paper for GCN (linear models for the last two), 2.5% of edges, IN.
PAPER = {
    "dblp": {
        "retrain": (0.964, 0.506),
        "gradascent": (0.555, 0.594),
        "d2d": (0.500, 0.500),
        "grapheraser": (0.527, 0.500),
        "grapheditor": (0.776, 0.432),
        "certunlearn": (0.718, 0.475),
        "gnndelete": (0.934, 0.748),
    },
    "pubmed": {
        "retrain": (0.968, 0.499),
        "gradascent": (0.470, 0.474),
        "d2d": (0.500, 0.500),
        "grapheraser": (0.538, 0.500),
        "grapheditor": (0.657, 0.467),
        "certunlearn": (0.622, 0.468),
        "gnndelete": (0.920, 0.739),
    },
}
#: Methods with a linear model of their own fit it on the same graph, as in the paper's comparison.
OPTIONS: dict[str, list[dict[str, object]]] = {
    "gnndelete": [
        {"lam": 0.5, "hops": "directed"},
        {"lam": 0.5, "operator": "shared", "targets": "original", "hops": "directed"},
    ],
    "d2d": [{"preset": "reference"}, {"preset": "paper"}],
    "grapheditor": [{"own_model": True}],
    "certunlearn": [{"own_model": True}],
    "grapheraser": [{"epochs": 300}],  # ten models per request
}


def methods(names: list[str]) -> list[Method]:
    return [resolver.lookup(name)(**options) for name in names for options in OPTIONS.get(name, [{}])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="dblp", choices=sorted(PAPER))
    parser.add_argument("--model", default="gcn")
    parser.add_argument(
        "--methods", nargs="+", default=[name for name in sorted(resolver.lookup_dict) if name != "megu"]
    )
    parser.add_argument("--seeds", type=at_least_one, default=3)
    parser.add_argument("--epochs", type=at_least_one, default=1000)
    parser.add_argument("--delete", type=float, default=0.025)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--store", default=None)
    args = parser.parse_args()

    split = gd.datasets.split_links(gd.datasets.load(args.dataset), seed=42)
    data = split.data.to(args.device)
    task = gd.LinkPrediction(
        validation=split.validation,
        test=split.test,
        validation_negatives=split.validation_negatives,
        test_negatives=split.test_negatives,
    )
    forget = gd.datasets.forget_edges(split.data, args.delete, "in", test=split.test, hops="directed", seed=42)
    torch.manual_seed(42)
    model = gd.models.build(args.model, data.num_features).to(args.device)
    gd.train(model, data, task, epochs=args.epochs, seed=42)

    def fit(model: torch.nn.Module, data: object, seed: int) -> torch.nn.Module:
        gd.train(model, data, task, epochs=args.epochs, seed=seed)
        return model

    start = time.perf_counter()
    table = gd.compare(
        model,
        data,
        gd.Deletion(edges=forget),
        task,
        methods(args.methods),
        seeds=range(args.seeds),
        fit=fit,
        store=args.store,
        schedule={"epochs": args.epochs},
        progress=True,
    )
    console = Console(width=170)
    console.print(table.table(f"{args.dataset}, {args.model}, {args.delete:.1%} of edges IN, {args.seeds} seeds"))
    console.print(f"{time.perf_counter() - start:.0f} s")
    for line in table.summary():
        name = line["method"].split(" ")[0]
        if name in PAPER[args.dataset] and line["test_auroc"]:
            test, deleted = PAPER[args.dataset][name]
            gap = line["test_auroc"]["mean"] - test
            verdict = "ok" if gap >= -0.03 else "BELOW the paper by more than 0.03"
            console.print(f"  {line['method']:<16} paper {test:.3f}/{deleted:.3f}   test AUROC {gap:+.3f}   {verdict}")
    rows = [row for row in table.rows if row.get("seed") == 0 and "scores" in row and row["label"] != "original"]
    for a, b in itertools.combinations(rows, 2):
        if a["scores"] == b["scores"]:
            console.print(f"  the same scores: {a['label']} and {b['label']}")


if __name__ == "__main__":
    main()
