"""Rows of a made-up sweep, in the form in which the runner keeps them: numbers near the paper's, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from gnndelete.bench.cells import Cell
from gnndelete.bench.published import published
from gnndelete.bench.report.results import Plan
from gnndelete.io.store import Store

SEEDS = (42, 21, 13)
PAPER = {"operator": "shared", "layers": "all", "targets": "original", "hops": "directed", "solver": "closed-form"}
RING = PAPER | {"operator": "ring", "targets": "remaining"}
METHODS: dict[str, dict[str, Any]] = {
    "retrain": {"name": "retrain"},
    "unlink": {"name": "unlink"},
    "zeroed": {"name": "zeroed", "value": 0.0},
    "paper()": {"name": "gnndelete", "aim": "nonexistent", "lam": 0.5, **PAPER},
    "calibrated": {"name": "gnndelete", "aim": "retrained", "lam": "auto", **RING},
    "nonexistent": {"name": "gnndelete", "aim": "nonexistent", "lam": "auto", **RING},
    "gradascent": {"name": "gradascent", "epochs": 10},
}
#: What a method adds to Retrain's (E_t, E_d, unseen AUC), and its seconds.
_EFFECTS = {
    "unlink": (0.001, -0.02, 0.012, 0.002),
    "zeroed": (-0.26, 0.25, -0.4, 0.002),
    "paper()": (-0.03, 0.24, -0.25, 0.006),
    "calibrated": (-0.001, 0.01, 0.004, 0.05),
    "nonexistent": (-0.01, 0.38, -0.28, 0.06),
    "gradascent": (-0.4, 0.05, -0.1, 0.2),
    "retrain": (0.0, 0.0, 0.0, 7.0),
}
HARDWARE = {"device": "cuda", "name": "NVIDIA H200", "cpus": 16}


Job = Cell


def key(
    dataset: str, model: str, method: dict[str, Any], seed: int, where: str = "in", amount: float = 0.025, **rest: Any
) -> dict[str, Any]:
    forget = {"kind": "edges", "where": where, "amount": amount, "hops": "directed", "steps": 1}
    return {
        "format": 1,
        "device": "cuda",
        "dataset": dataset,
        "task": "link",
        "split": {"val": 0.05, "test": 0.05},
        "model": {"name": model, "hidden": 128},
        "train": {"epochs": 2000, "lr": 0.001},
        "seed": seed,
        "forget": forget | rest.pop("forget", {}),
        "method": method,
        "measures": ["scores", "unseen"],
        **rest,
    }


def row(label: str, seconds: float, **scores: float) -> dict[str, Any]:
    return {
        "label": label,
        "scores": scores,
        "seconds": seconds,
        "parameters": 5120,
        "lam": None,
        "version": "0.1.0",
        "git": "ab12cd34ef56",
        "hardware": HARDWARE,
        "torch": "2.11.0",
        "finished": "2026-11-15T16:00:00Z",
    }


def link_plan(dataset: str = "dblp", models: tuple[str, ...] = ("gcn", "gat"), **options: Any) -> Plan:
    """The paper's link prediction on a dataset."""
    jobs = [
        Job(label, key(dataset, model, method, seed, where, amount))
        for seed in SEEDS
        for model in models
        for where in ("in", "out")
        for amount in (0.025, 0.05)
        for label, method in METHODS.items()
    ]
    title = f"Link prediction on {dataset}"
    return Plan(f"paper/link-{dataset}", title, jobs, "link_prediction", **options)


def lam_plan() -> Plan:
    """Two shapes of GNNDelete over lam, and Retrain."""
    lams = (0, 0.2, 0.4, 0.5, 0.6, 0.8, 1)
    paper = {f"lam {lam}": METHODS["paper()"] | {"lam": lam} for lam in lams}
    ring = {f"ring {lam}": METHODS["paper()"] | RING | {"lam": lam} for lam in lams}
    methods = {"retrain": METHODS["retrain"], **paper, **ring}
    jobs = [Job(label, key("dblp", "gcn", method, seed)) for seed in SEEDS for label, method in methods.items()]
    return Plan("paper/lambda", "The weight of forgetting", jobs, "lambda")


def time_plan() -> Plan:
    """Graphs of several sizes, timed."""
    method = METHODS["calibrated"]
    sizes = (100_000, 1_000_000, 10_000_000, 100_000_000)
    jobs = [
        Job("calibrated", key(f"generated:collab?edges={size}", "gcn", method, 42, measures=["time"])) for size in sizes
    ]
    return Plan("beyond/scale", "Time against the size of the graph", jobs)


def rows(plan: Plan) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A row for every job of a plan."""
    for job in plan.cells:
        forget, method, draw = job.key["forget"], job.key["method"], random.Random(str(sorted(job.key.items())))
        if job.key["measures"] == ["time"]:
            size = int(job.key["dataset"].split("=")[1])
            spent = {"forward": 2e-3 + 1e-9 * size, "epoch": 6e-3 + 4e-9 * size}
            spent |= {"delete": 3e-3 + 1.4e-9 * size, "calibrated": 2e-2 + 9e-9 * size, "retrain": 12 + 8e-6 * size}
            yield job.key, row(job.label, spent["calibrated"]) | {"seconds_of": spent}
            continue
        place = (job.key["dataset"], job.key["model"]["name"], forget["where"], forget["amount"])
        base = [published("link_prediction", *place, "retrain", name) for name in ("test_auroc", "deleted_auroc")]
        use, deleted = (each.value if each else 0.9 for each in base)
        if job.label in _EFFECTS:
            effect = _EFFECTS[job.label]
        else:
            lam = float(method["lam"])
            ring = method["operator"] == "ring"
            effect = (-(0.04 if ring else 0.1) * lam**2, (0.42 if ring else 0.27) * lam**0.6, -0.3 * lam, 0.006)
        noise = [draw.gauss(0, 0.003) for _ in range(4)]
        yield (
            job.key,
            row(
                job.label,
                effect[3] * (1 + abs(noise[3])),
                test_auroc=use + effect[0] + noise[0],
                deleted_auroc=min(deleted + effect[1] + noise[1], 0.999),
                unseen_auc=0.51 + effect[2] + noise[2],
            ),
        )


def store_of(*plans: Plan) -> Store:
    store = Store(None)
    for plan in plans:
        for cell, result in rows(plan):
            store.add(cell, result)
    return store
