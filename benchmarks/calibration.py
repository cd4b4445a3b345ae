"""Calibrated deletion beside Retrain and Unlink: 54 cells of models that know features, 24 of models that know nodes.

    GNNDELETE_DATA=… python benchmarks/calibration.py --device cuda --out calibration.jsonl
    python benchmarks/calibration.py --show calibration.jsonl

Each cell trains a base model, trains again without 2.5% (or 5%) of its edges, and deletes the same edges by calibration.
lam is chosen on validation edges; every figure is taken on test edges. Finished cells are kept in the file, so that a
stopped run goes on. ``--embeddings`` runs the cells with a trained vector per node beside the features.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from options import at_least_one, device_name
from tables import link_task
from torch import nn

import gnndelete as gd
from gnndelete.auditing.case import open_case
from gnndelete.auditing.measures.attack import train_shadow
from gnndelete.auditing.measures.forgetting import Forgetting
from gnndelete.auditing.measures.membership import Membership
from gnndelete.auditing.verdict import judge
from gnndelete.metrics.ranking import auc

SEEDS = (42, 21, 13)
#: The paper's GNNDelete, edges IN the test neighbourhood: test AUROC / deleted AUROC at 0.5, 2.5 and 5%.
PAPER_IN = {
    ("dblp", "gcn"): {0.005: (0.951, 0.829), 0.025: (0.934, 0.748), 0.05: (0.917, 0.713)},
    ("dblp", "gat"): {0.005: (0.928, 0.889), 0.025: (0.914, 0.774), 0.05: (0.912, 0.733)},
    ("dblp", "gin"): {0.005: (0.906, 0.736), 0.025: (0.897, 0.740), 0.05: (0.864, 0.732)},
    ("pubmed", "gcn"): {0.005: (0.951, 0.838), 0.025: (0.920, 0.739), 0.05: (0.916, 0.691)},
    ("pubmed", "gat"): {0.005: (0.909, 0.888), 0.025: (0.891, 0.759), 0.05: (0.887, 0.713)},
    ("pubmed", "gin"): {0.005: (0.929, 0.835), 0.025: (0.909, 0.782), 0.05: (0.895, 0.761)},
}


class WithMemory(nn.Module):
    """An encoder that sees a trained vector of each node beside its features."""

    def __init__(self, encoder: nn.Module, nodes: int, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.table = nn.Embedding(nodes, width)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.encoder(torch.cat([x, self.table.weight], dim=1), edge_index)


def build(name: str, data: Any, width: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    encoder = gd.models.build(name, data.num_features + width)
    return WithMemory(encoder, data.num_nodes, width) if width else encoder


def group(dataset: str, name: str, width: int, seed: int, epochs: int, device: str, attacks: bool) -> list[dict]:
    """All deletions from one base model."""
    split = gd.datasets.split_links(gd.datasets.load(dataset), seed=seed)
    data = split.data.to(device)
    task = link_task(split, seed)
    model = build(name, data, width, seed).to(device)

    def fit(model: nn.Module, data: Any, seed: int) -> nn.Module:
        gd.train(model, data, task, epochs=epochs, seed=seed)
        return model

    fit(model, data, seed)
    draw = gd.datasets.forget_edges
    if width:
        sets = {share: draw(split.data, share, seed=seed) for share in (0.025, 0.05)}
    else:
        inside = draw(split.data, 0.025, "in", test=split.test, hops="directed", seed=seed)
        sets = {"random": draw(split.data, 0.025, seed=seed), "in": inside}
    rows = []
    for which, edges in sets.items():
        deletion = gd.Deletion(edges=edges)

        def by(method: Any, deletion: gd.Deletion = deletion) -> gd.Unlearned:
            unlearner = gd.Unlearner(model, data, task=task, method=method, fit=fit, seed=seed)
            return unlearner.delete(deletion)

        retrained = by("retrain")
        methods = {
            "unlink": gd.Unlink(),
            "calibrated": gd.GNNDelete(),
            "paper": gd.GNNDelete.paper(hops="directed"),
        }
        results = {label: by(method) for label, method in methods.items()}
        row: dict[str, Any] = {"key": [dataset, name, width, seed, which], "device": device, "epochs": epochs}
        row["retrain"] = figures(retrained, retrained)
        row |= {label: figures(result, retrained) for label, result in results.items()}
        if which == "in":
            row["nonexistent"] = {
                share: nonexistent(model, data, task, split, share, seed) for share in (0.005, 0.025, 0.05)
            }
        if attacks:
            case = open_case(results["calibrated"], retrained)
            found = Membership().run(replace(case, shadow=train_shadow(case))).results
            row["attack"] = {name: found.get(name).auc for name in ("before", "after", "reference")}
        rows.append(row)
    return rows


def nonexistent(model: nn.Module, data: Any, task: Any, split: Any, share: float, seed: int) -> dict[str, Any]:
    """The paper's aim, with its default budget; nothing is trained for it."""
    edges = gd.datasets.forget_edges(split.data, share, "in", test=split.test, hops="directed", seed=seed)
    method = gd.GNNDelete(aim="nonexistent")
    result = gd.Unlearner(model, data, task=task, method=method, seed=seed).delete(gd.Deletion(edges=edges))
    return {**result.evaluate(), "lam": result.lam, "seconds": result.seconds}


def figures(result: gd.Unlearned, retrained: gd.Unlearned) -> dict[str, Any]:
    test = Forgetting().run(open_case(result, retrained)).unseen["served"]
    return {
        **result.evaluate(),
        "unseen": test.after.auc,
        "original": test.before.auc,
        "verdict": judge(test).code,
        "lam": result.lam,
        "status": (result.calibration or {}).get("status"),
        "trials": len((result.calibration or {}).get("trials", ())),
        "seconds": result.seconds,
        "alone": left_alone(result),
    }


def left_alone(result: gd.Unlearned) -> float | None:
    """The AUC of deleted edges of which an end has no edge any more against test edges of that kind; None without any."""
    assert result.data is not None
    assert isinstance(result.task, gd.LinkPrediction)
    assert result.task.test is not None
    known = torch.bincount(result.data.edge_index[0], minlength=result.data.num_nodes) > 0
    parts = (result.deletion.edges, result.task.test.positives)
    chosen = [edges.to(known.device)[:, ~known[edges.to(known.device)].all(dim=0)] for edges in parts]
    if not all(edges.size(1) for edges in chosen):
        return None
    return auc(*(result.predict(edges).double().cpu().numpy() for edges in chosen))


def show(rows: list[dict]) -> None:
    for kind, chosen in (
        ("features", [r for r in rows if not r["key"][2]]),
        ("memory", [r for r in rows if r["key"][2]]),
    ):
        if not chosen:
            continue
        print(f"\n{kind}: {len(chosen)} cells")
        print(
            f"{'cell':<28}{'unseen: before':>17}{'retrain':>9}{'unlink':>8}{'ours':>7}{'lam':>7}{'E_t retrain':>13}{'ours':>7}"
        )
        for r in chosen:
            ours, ref = r["calibrated"], r["retrain"]
            print(
                f"{' '.join(map(str, r['key'])):<28}{ours['original']:>17.3f}{ref['heldout']:>9.3f}{r['unlink']['heldout']:>8.3f}"
                f"{ours['heldout']:>7.3f}{ours['lam']:>7.3f}{ref['test_auroc']:>13.4f}{ours['test_auroc']:>7.4f}"
            )
        gaps = [abs(r["calibrated"]["unseen"] - r["retrain"]["unseen"]) for r in chosen]
        cut = [abs(r["unlink"]["unseen"] - r["retrain"]["unseen"]) for r in chosen]
        far = [(g, c) for g, c in zip(gaps, cut, strict=True) if c > 0.02]
        utility = [r["calibrated"]["test_auroc"] - r["retrain"]["test_auroc"] for r in chosen]
        times = [r["retrain"]["seconds"] / r["calibrated"]["seconds"] for r in chosen]
        print(f"distance to Retrain: ours {mean(gaps):.4f} (largest {max(gaps):.3f}), Unlink {mean(cut):.4f}")
        for limit in (0.025, 0.03):
            print(f"  within {limit}: {sum(g <= limit for g in gaps)} of {len(gaps)}")
        if far:
            print(f"  where Unlink is off by more than .02 ({len(far)}): ours closer in {sum(g < c for g, c in far)}")
        show_alone(chosen)
        print(f"E_t against Retrain: mean {mean(utility):+.4f}, lowest {min(utility):+.4f}")
        print(f"Retrain takes {min(times):.0f} to {max(times):.0f} times as long")
        words = [r["paper"]["verdict"] for r in chosen]
        print(f"paper() is called: { {word: words.count(word) for word in set(words)} }")
        hit = [r["attack"] for r in chosen if "attack" in r]
        if hit:
            before = [a["before"] for a in hit]
            off = [abs(a["after"] - a["reference"]) for a in hit]
            print(
                f"shadow attack: original {mean(before):.3f} (lowest {min(before):.3f}); calibrated against Retrain: mean "
                f"{mean(off):.3f}, largest {max(off):.3f}, within .03: {sum(o <= 0.03 for o in off)} of {len(off)}"
            )
        show_nonexistent(chosen)


def show_alone(rows: list[dict]) -> None:
    found = [r for r in rows if all(r[name].get("alone") is not None for name in ("retrain", "unlink", "calibrated"))]
    if found:
        means = {name: mean(r[name]["alone"] for r in found) for name in ("unlink", "calibrated", "retrain")}
        said = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
        print(f"deleted edges with an end left alone against test edges of that kind, mean AUC: {said}")


def show_nonexistent(rows: list[dict]) -> None:
    for (dataset, name), cells in PAPER_IN.items():
        for share, (test, deleted) in cells.items():
            found = [
                r["nonexistent"][str(share)] for r in rows if r["key"][:2] == [dataset, name] and "nonexistent" in r
            ]
            if found:
                own = mean(f["test_auroc"] for f in found), mean(f["deleted_auroc"] for f in found)
                ok = own[0] > test and own[1] > deleted
                print(
                    f"  as nonexistent, {dataset} {name} IN {share:.1%}, {len(found)} seeds: {own[0]:.3f}/{own[1]:.3f} "
                    f"(lam {mean(f['lam'] for f in found):.2f}), paper {test}/{deleted}{'' if ok else '   BELOW'}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["dblp", "pubmed", "cs"])
    parser.add_argument("--models", nargs="+", default=["gcn", "gat", "gin"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--embeddings", type=int, default=0, help="width of the trained vectors per node")
    parser.add_argument("--epochs", type=at_least_one, default=2000)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-attacks", action="store_true")
    parser.add_argument("--out", default=None, help="JSON-lines file of finished cells")
    parser.add_argument("--show", nargs="+", default=None, help="only show such files")
    args = parser.parse_args()
    if args.show:
        return show([json.loads(line) for name in args.show for line in Path(name).read_text().splitlines()])
    done = Path(args.out).read_text().splitlines() if args.out and Path(args.out).exists() else []
    rows = [json.loads(line) for line in done]
    for dataset, name, seed in product(args.datasets, args.models, args.seeds):
        if any(row["key"][:4] == [dataset, name, args.embeddings, seed] for row in rows):
            continue
        start = time.perf_counter()
        found = group(dataset, name, args.embeddings, seed, args.epochs, args.device, not args.no_attacks)
        rows += json.loads(json.dumps(found))
        if args.out:
            with open(args.out, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
        print(f"{dataset} {name} {seed}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
