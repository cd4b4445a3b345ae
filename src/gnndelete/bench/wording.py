"""How datasets, models, scores and numbers of a benchmark are written for a reader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from gnndelete.bench.dataset_names import is_path, without_digest
from gnndelete.bench.gathered import Place, Stat

#: Scores in the order in which tables show them, with their titles.
METRICS = {
    "test_auroc": "E_t AUROC",
    "test_accuracy": "accuracy",
    "test_f1": "F1",
    "deleted_auroc": "E_d AUROC",
    "unseen_auc": "unseen AUC",
    "mi_ratio": "MI ratio",
    "mi_auc": "MI AUC",
    "regular_share": "regular share",
    "outlier_share": "outlier share",
    "parameters": "parameters",
    "speedup": "times faster",
}

#: Scores that their titles alone do not tell, in one sentence each.
EXPLAINED = {
    "mi_ratio": "*MI ratio* is the paper's: the mean probability, by an attack that a shadow model trains, that deleted "
    "elements were trained on, before the deletion over after it; above 1 less is left.",
    "mi_auc": "*MI AUC* says how well that attack tells deleted elements from test elements after the deletion: 0.5 is best, "
    "and far below 0.5 they stand out as well.",
    "regular_share": "*Regular share* is the paper's: the share of deleted edges that a detector of outliers calls regular; "
    "what counts is the distance to Retrain's.",
    "outlier_share": "*Outlier share* is the share that the detector calls outliers among the nodes that the deletion "
    "touched; what counts is the distance to Retrain's.",
}

_DATASETS = {
    "dblp": "DBLP",
    "pubmed": "PubMed",
    "cora": "Cora",
    "cs": "CS",
    "cora_ml": "Cora-ML",
    "citeseer": "CiteSeer",
    "planetoid-cora": "Planetoid Cora",
    "planetoid-citeseer": "Planetoid CiteSeer",
    "cornell5": "Cornell5",
    "ogbg-molhiv": "OGB-molhiv",
    "ogbl-collab": "OGB-Collab",
    "ogbl-biokg": "OGB-BioKG",
    "wordnet18": "WordNet18",
}
_MODELS = {"gcn": "GCN", "gat": "GAT", "gin": "GIN", "rgcn": "R-GCN", "rgat": "R-GAT", "gps": "GPS"}
_METHODS = {
    "original": "before the deletion",
    "retrain": "Retrain",
    "retrain-again": "Retrain again (control)",
    "unlink": "Unlink",
    "gradascent": "GradAscent",
    "d2d": "D2D",
    "grapheraser": "GraphEraser",
    "grapheditor": "GraphEditor",
    "certunlearn": "CertUnlearn",
    "gif": "GIF",
    "megu": "MEGU",
    "jodie": "JODIE",
    "gnndelete": "GNNDelete",
    "zeroed": "zeroed (control)",
    "untrained": "untrained (control)",
}


def dataset_name(name: str) -> str:
    """
    >>> dataset_name("dblp"), dataset_name("generated:collab?nodes=2000000&edges=24000000")
    ('DBLP', 'generated collab, 24M edges')
    >>> dataset_name("./tables/payments@0123456789ab")
    'payments'
    """
    if is_path(name):
        return PurePath(without_digest(name)).name
    if name.startswith("generated:"):
        kind, size = name[10:].partition("?")[0], re.search(r"(?:edges|triples)=(\d+)", name)
        return f"generated {kind}, {count(int(size[1]))} edges" if size else f"generated graph ({name[10:]})"
    return _DATASETS.get(name, name)


def model_name(name: str) -> str:
    return _MODELS.get(name, name)


def model_titles(variants: Iterable[str]) -> dict[str, str]:
    """Names of models by all their options as text; options are told only where two of the same name differ in them.

    >>> list(model_titles(['{"name": "gcn"}', '{"name": "gin", "hidden": 32}', '{"name": "gin", "hidden": 128}']).values())
    ['GCN', 'GIN (hidden 32)', 'GIN (hidden 128)']
    """
    told = model_options(variants)
    names = {variant: model_name(str(_model(variant)["name"])) for variant in told}
    return {variant: f"{names[variant]} ({said})" if said else names[variant] for variant, said in told.items()}


def model_options(variants: Iterable[str]) -> dict[str, str]:
    """In which options a model differs from the others of its name; empty where there is no other."""
    models = {variant: _model(variant) for variant in variants}
    return {
        variant: _differing(model, [other for other in models.values() if other["name"] == model["name"]])
        for variant, model in models.items()
    }


def _model(variant: str) -> dict[str, Any]:
    made = json.loads(variant)
    return made if isinstance(made, dict) else {"name": str(made)}


def _differing(model: Mapping[str, Any], same: Sequence[Mapping[str, Any]]) -> str:
    names = dict.fromkeys(name for other in same for name in other)
    differing = [name for name in names if any(other.get(name) != model.get(name) for other in same)]
    return ", ".join(f"{name.replace('_', ' ')} {model.get(name)}" for name in differing)


def method_name(label: str) -> str:
    return _METHODS.get(label, label)


def metric_name(metric: str, task: str = "link") -> str:
    """The title of a score; only links have a set E_t of test edges.

    >>> metric_name("test_auroc"), metric_name("test_auroc", "graph")
    ('E_t AUROC', 'AUROC')
    """
    if metric == "test_auroc" and task in ("node", "graph"):
        return "AUROC"
    return METRICS.get(metric, metric.replace("_", " "))


def many(number: int, what: str) -> str:
    """
    >>> many(1, "cell"), many(39, "cell")
    ('1 cell', '39 cells')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def span(counts: Iterable[int], what: str) -> str:
    """
    >>> span([3, 1, 3], "seed"), span([1], "seed")
    ('1 to 3 seeds', '1 seed')
    """
    known = sorted(counts)
    return many(known[0], what) if known[0] == known[-1] else f"{known[0]} to {many(known[-1], what)}"


def listed(names: Iterable[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def request_name(place: Place) -> str:
    """What is deleted.

    >>> from gnndelete.bench.gathered import Place
    >>> request_name(Place("dblp", "gcn", "edges", "in", 0.025, 5, "link"))
    '2.5% of the edges, IN, in 5 requests'
    >>> request_name(Place("dblp", "gcn", "nodes", "", 100, 1, "node"))
    '100 nodes'
    >>> request_name(Place("wordnet18", "rgcn", "relations", "", 1, 1, "link"))
    '1 relation'
    >>> request_name(Place("ogbg-molhiv", "gcn", "features", "", 100, 1, "graph"))
    'features of 100 graphs'
    """
    kind = place.kind or "elements"
    whose = ("graphs" if place.task == "graph" else "nodes") if kind == "features" else kind
    prefix = "features of " * (kind == "features")
    parts = [kind if place.amount is None else f"{prefix}{_amount_of(place.amount, whose)}"]
    if place.kind == "edges" and place.where:
        parts.append({"in": "IN", "out": "OUT", "random": "at random"}.get(place.where, place.where))
    if place.steps > 1:
        parts.append(f"in {place.steps} requests")
    return ", ".join(parts)


def _amount_of(amount: float, kind: str) -> str:
    if is_share(amount):
        return f"{amount_name(amount)} of the {kind}"
    return f"1 {kind[:-1]}" if amount == 1 else f"{amount_name(amount)} {kind}"


def amount_name(amount: float) -> str:
    """
    >>> amount_name(0.005), amount_name(1.0), amount_name(100)
    ('0.5%', '100%', '100')
    """
    return f"{100 * amount:g}%" if is_share(amount) else f"{amount:,.0f}"


def is_share(amount: float) -> bool:
    """Shares are fractions up to 1.0; whole numbers count elements."""
    return amount < 1 or (isinstance(amount, float) and amount == 1)


def count(number: float) -> str:
    """
    >>> count(2_400_000), count(105734), count(820)
    ('2.4M', '106k', '820')
    """
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{sign}"
    return f"{number:.0f}"


def seconds(value: float) -> str:
    """
    >>> seconds(0.00521), seconds(0.25), seconds(6.13), seconds(431.2)
    ('5.2 ms', '250 ms', '6.13 s', '431 s')
    """
    if value < 1:
        return f"{1000 * value:.3g} ms" if value >= 0.01 else f"{1000 * value:.2g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def times(value: float) -> str:
    """
    >>> times(1234.5), times(12.3), times(1.474)
    ('1,230×', '12.3×', '1.47×')
    """
    return f"{float(f'{value:.3g}'):,.{0 if value >= 100 else 1 if value >= 10 else 2}f}×"


def number(metric: str, value: float, signed: bool = False) -> str:
    """A value as a table shows it.

    >>> number("test_auroc", 0.9461), number("test_auroc", -0.0004, signed=True), number("parameters", 5120)
    ('0.946', '0.000', '5,120')
    """
    if metric == "parameters":
        return f"{value:+,.0f}" if signed else f"{value:,.0f}"
    if metric == "speedup":
        return f"{value:+,.1f}" if signed else times(value)
    if metric in ("seconds", "train_seconds"):
        return seconds(value)
    if metric == "lam":
        return f"{value:.2g}"
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text[1:] if float(text) == 0 and text[0] in "+-" else text


def spread(metric: str, stat: Stat) -> str:
    """A mean and its standard error.

    >>> spread("test_auroc", Stat(0.9461, 0.0021, 5)), spread("test_auroc", Stat(0.9461, None, 1))
    ('0.946 ± 0.002', '0.946')
    """
    shown = number(metric, stat.mean)
    if metric in ("seconds", "train_seconds", "speedup", "lam") or stat.error is None:
        return shown
    if metric == "parameters" and not stat.error:
        return shown
    return f"{shown} ± {number(metric, stat.error)}"
