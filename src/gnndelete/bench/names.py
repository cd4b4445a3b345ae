"""Titles of datasets, models, methods and scores, and the form of numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import PurePath

from gnndelete.bench.experiment import is_path, without_digest
from gnndelete.methods import CONTROLS, Method, RetrainAgain
from gnndelete.methods import resolver as methods

#: Titles of scores, in the order of the columns of a table.
METRICS = {
    "test_auroc": "test AUROC",
    "test_accuracy": "accuracy",
    "test_f1": "F1",
    "deleted_auroc": "deleted AUROC",
    "unseen_auc": "unseen AUC",
    "mi_ratio": "MI ratio",
    "mi_auc": "MI AUC",
    "regular_share": "regular share",
    "outlier_share": "outlier share",
    "parameters": "parameters",
    "speedup": "times faster",
}

#: One sentence for each score that its title does not explain.
EXPLANATIONS = {
    "test_auroc": "*Test AUROC* (the paper's E_t): how well test elements are separated from false ones.",
    "deleted_auroc": "*Deleted AUROC* (the paper's E_d): how often a deleted edge scores below a remaining one. "
    "A ruined model can score high, so read it together with the test AUROC.",
    "unseen_auc": "*Unseen AUC*: how well deleted elements are separated from matched ones that were never trained on. "
    "Compare it with Retrain; 0.5 means that nothing distinguishes them.",
    "mi_ratio": "*MI ratio* (the paper's): a membership attack's mean probability that deleted elements were trained on, "
    "before the deletion divided by after it. Above 1, less is left.",
    "mi_auc": "*MI AUC*: how well the attack separates deleted from test elements after the deletion; 0.5 is best.",
    "regular_share": "*Regular share* (the paper's): the share of deleted edges that an outlier detector calls regular. "
    "Compare it with Retrain.",
    "outlier_share": "*Outlier share*: the share of affected nodes that the detector calls outliers. "
    "Compare it with Retrain.",
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

#: How an experiment file names a choice of edges, and how a report does.
_WHERE = {"in": "IN", "out": "OUT", "random": "at random"}


def dataset_title(name: str) -> str:
    """The title of a dataset.

    >>> dataset_title("dblp"), dataset_title("generated:collab?nodes=2000000&edges=24000000")
    ('DBLP', 'generated collab, 24M edges')
    >>> dataset_title("./tables/payments@0123456789ab")
    'payments'
    """
    if is_path(name):
        return PurePath(without_digest(name)).name
    if name.startswith("generated:"):
        kind, size = name[10:].partition("?")[0], re.search(r"(?:edges|triples)=(\d+)", name)
        return f"generated {kind}, {short_count(int(size[1]))} edges" if size else f"generated graph ({name[10:]})"
    return _DATASETS.get(name, name)


def method_title(label: str) -> str:
    """The title of a method: its class name where the label is a method's name, else the label itself.

    >>> method_title("gradascent"), method_title("zeroed"), method_title("ring lam 0.5")
    ('GradAscent', 'zeroed (control)', 'ring lam 0.5')
    """
    if label == "original":
        return "before the deletion"
    if is_control(label):
        return f"{label} (control)"
    return methods.lookup_dict[label].__name__ if label in methods.lookup_dict else label


def is_control(name: str) -> bool:
    """Whether a method is a control, which others are compared with."""
    controls: tuple[type[Method], ...] = (*CONTROLS, RetrainAgain)
    return name in [control.name for control in controls]


def metric_title(metric: str) -> str:
    """The title of a score."""
    return METRICS.get(metric, metric.replace("_", " "))


def model_titles(variants: Iterable[str]) -> dict[str, str]:
    """Titles of models by their options as JSON; options are named where models of one name differ in them.

    >>> list(model_titles(['{"name": "gcn"}', '{"name": "gin", "hidden": 32}', '{"name": "gin", "hidden": 128}']).values())
    ['GCN', 'GIN (hidden 32)', 'GIN (hidden 128)']
    """
    titles = {}
    for variant, options in model_options(variants).items():
        name = json.loads(variant)["name"]
        titles[variant] = _MODELS.get(name, name) + (f" ({options})" if options else "")
    return titles


def model_options(variants: Iterable[str]) -> dict[str, str]:
    """By model the options in which it differs from other models of its name."""
    models = {variant: json.loads(variant) for variant in variants}
    found = {}
    for variant, model in models.items():
        same = [other for other in models.values() if other["name"] == model["name"]]
        names = dict.fromkeys(name for other in same for name in other)
        differing = [name for name in names if any(other.get(name) != model.get(name) for other in same)]
        found[variant] = ", ".join(f"{name.replace('_', ' ')} {model.get(name)}" for name in differing)
    return found


def counted(number: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "cell"), counted(1200, "cell")
    ('1 cell', '1,200 cells')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def measured(amount: int | float, nouns: str) -> str:
    """An amount: an integer counts elements, a float is a share of all.

    >>> measured(1, "relations"), measured(1000, "nodes"), measured(0.025, "edges")
    ('1 relation', '1,000 nodes', '2.5% of edges')
    """
    return counted(amount, nouns.removesuffix("s")) if isinstance(amount, int) else f"{100 * amount:g}% of {nouns}"


def span(seconds: float) -> str:
    """A rough duration.

    >>> span(42.0), span(90.0), span(7200.0)
    ('42 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def request_title(kind: str, amount: int | float, where: str = "", steps: int = 1) -> str:
    """What is deleted.

    >>> request_title("edges", 0.025, "in", 5), request_title("nodes", 100)
    ('2.5% of edges, IN, in 5 requests', '100 nodes')
    >>> request_title("features", 100)
    'features of 100 elements'
    """
    owner = "elements" if kind == "features" else kind
    parts = ["features of " * (kind == "features") + measured(amount, owner)]
    if kind == "edges" and where:
        parts.append(_WHERE.get(where, where))
    if steps > 1:
        parts.append(f"in {steps} requests")
    return ", ".join(parts)


def is_share(amount: float) -> bool:
    """Whether an amount is a share: a float up to 1.0. Integers count elements."""
    return amount < 1 or (isinstance(amount, float) and amount == 1)


def amount_title(amount: float) -> str:
    """An amount without its unit.

    >>> amount_title(0.005), amount_title(1.0), amount_title(100)
    ('0.5%', '100%', '100')
    """
    return f"{100 * amount:.3g}%" if is_share(amount) else f"{amount:,.0f}"


def listed(names: Iterable[str]) -> str:
    """Join names.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def short_count(number: float) -> str:
    """A rounded count.

    >>> short_count(2_400_000), short_count(105734), short_count(820)
    ('2.4M', '106k', '820')
    """
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{sign}"
    return f"{number:.0f}"


def seconds(value: float) -> str:
    """A time.

    >>> seconds(0.00521), seconds(0.25), seconds(6.13), seconds(431.2)
    ('5.2 ms', '250 ms', '6.13 s', '431 s')
    """
    if value < 1:
        return f"{1000 * value:.3g} ms" if value >= 0.01 else f"{1000 * value:.2g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def times(value: float) -> str:
    """A ratio.

    >>> times(1234.5), times(12.3), times(1.474)
    ('1,230×', '12.3×', '1.47×')
    """
    return f"{float(f'{value:.3g}'):,.{0 if value >= 100 else 1 if value >= 10 else 2}f}×"


def number(metric: str, value: float, signed: bool = False) -> str:
    """A value in the form its column has.

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
