"""The paper's WordNet18 cells: 2.5% of the triples IN and OUT of the test neighbourhood, R-GCN and R-GAT with DistMult.

    GNNDELETE_DATA=… python benchmarks/wordnet.py --seeds 5 --device cuda

Each line stands beside Retrain and Unlink of the same seed and the paper's own figure. "unseen" is the AUC of deleted
against test triples of the same relation and degree: 0.5 where they cannot be told apart. Nothing is chosen on test data:
the settings are fixed, and calibration uses validation triples. The split is WordNet18's own: with 5% of the triples for
testing only 1.4% of the others lie OUT of two hops around them. (The paper has a larger OUT part on half of the triples,
those with u < v.) OUT triples are far from the test triples they are compared with, so that there only the gap to
Retrain's own unseen AUC says something.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from typing import Any

import torch
from options import at_least_one, device_name
from tables import Cell, link_task, matched, show
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.metrics.ranking import filtered_scores

#: The paper's Table for WordNet18, 2.5%: test AUROC / deleted AUROC of GNNDelete and Retrain.
PAPER = {
    ("rgcn", "in"): {"gnndelete": (0.751, 0.845), "retrain": (0.800, 0.580)},
    ("rgcn", "out"): {"gnndelete": (0.758, 0.902), "retrain": (0.804, 0.639)},
    ("rgat", "in"): {"gnndelete": (0.893, 0.786), "retrain": (0.891, 0.783)},
    ("rgat", "out"): {"gnndelete": (0.898, 0.836), "retrain": (0.897, 0.831)},
}
SEEDS = (42, 21, 13, 87, 100)
COLUMNS = ("test_auroc", "deleted_auroc", "unseen_auc", "lam", "seconds")


def prepared(args: argparse.Namespace, seed: int) -> tuple[Data, gd.LinkPrediction, Data]:
    whole = gd.datasets.load(args.dataset)
    split = gd.datasets.split_links(whole, seed=seed, test=args.test_share, given=args.split == "given")
    task = link_task(split, seed, decoder="distmult")
    return split.data.to(args.device), task, whole


def methods(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "retrain": gd.Retrain(epochs=args.epochs, lr=args.lr),
        "unlink": gd.Unlink(),
        "ring lam=.1": gd.GNNDelete(lam=0.1),
        "aim=nonexistent": gd.GNNDelete(aim="nonexistent"),
        "calibrated": gd.GNNDelete(),
        "paper()": gd.GNNDelete.paper(hops=args.hops),
    }


def cells(name: str, seed: int, args: argparse.Namespace) -> dict[str, Cell]:
    data, task, whole = prepared(args, seed)
    torch.manual_seed(seed)
    sizes = {"embedding": args.embedding, "hidden": args.hidden, "out": args.out}
    model = gd.models.build(
        name, num_nodes=data.num_nodes, num_relations=data.num_relations, num_bases=args.bases or None, **sizes
    ).to(args.device)
    result = gd.train(model, data, task, epochs=args.epochs, lr=args.lr, seed=seed)
    assert task.test is not None
    output = model.eval()(data.edge_index, data.edge_type).detach()
    ranks = filtered_scores(output, model.relation.detach(), task.test.positives, gd.datasets.triples(whole))
    said = ", ".join(f"{key} {value:.3f}" for key, value in ranks.items())
    print(
        f"{name} seed {seed}: trained in {result.seconds:.0f} s (best epoch {result.best_epoch}), {said}",
        file=sys.stderr,
    )
    found: dict[str, Cell] = {}
    for where in args.where:
        forget = gd.datasets.forget_edges(
            data, args.share, where, test=task.test.positives.to(args.device), hops=args.hops, seed=seed
        ).cpu()
        found[where] = {}
        for label, method in methods(args).items():
            if label in args.skip:
                continue
            unlearner = gd.Unlearner(model, data, task=task, method=method, seed=seed)
            unlearned = unlearner.delete(gd.Deletion(edges=forget))
            values = unlearned.evaluate() | {"seconds": unlearned.seconds}
            values["unseen_auc"] = matched(unlearned, task, forget)
            if unlearned.lam is not None:
                values["lam"] = unlearned.lam
            found[where][label] = values
            if unlearned.calibration:
                print(f"  {where} {label}: {unlearned.calibration['sentence']}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="wordnet18")
    parser.add_argument("--seeds", type=at_least_one, default=5)
    parser.add_argument("--epochs", type=at_least_one, default=2000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=["rgcn", "rgat"])
    parser.add_argument("--where", nargs="+", default=["in", "out"])
    parser.add_argument("--share", type=float, default=0.025)
    parser.add_argument("--hops", choices=["directed", "undirected"], default="undirected")
    parser.add_argument(
        "--split", choices=["given", "random"], default="given", help="5% at random leave too little OUT"
    )
    parser.add_argument("--test-share", type=float, default=0.05, help="of a random split; fewer leave more OUT")
    parser.add_argument("--embedding", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--out", type=int, default=64)
    parser.add_argument("--bases", type=int, default=0, help="0: a full matrix per relation")
    parser.add_argument("--skip", nargs="*", default=[], help="rows to leave out, such as retrain")
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    store: dict[str, list[Cell]] = defaultdict(list)
    for name in args.models:
        for seed in SEEDS[: args.seeds]:
            start = time.perf_counter()
            for where, cell in cells(name, seed, args).items():
                store[f"{name} {where}"].append(cell)
            print(f"{name} seed {seed}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
        for where in args.where:
            show(
                f"{name}: {args.share:.1%} of the triples, {where.upper()} ({args.hops})",
                store[f"{name} {where}"],
                COLUMNS,
            )
            for row, (test, deleted) in PAPER[name, where].items():
                print(f"  the paper's {row:<12}{test:>12.3f}{deleted:>18.3f}")
        sys.stdout.flush()
        if args.json:
            with open(args.json, "w") as file:
                json.dump(store, file)


if __name__ == "__main__":
    main()
