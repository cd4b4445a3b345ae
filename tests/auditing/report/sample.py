"""An audit with made-up numbers as plain values, `made` into an `Audit`, and the variants a report must cope with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from gnndelete.auditing.entry import Audit, Done, Request
from gnndelete.auditing.measures import Unmeasured
from gnndelete.auditing.measures.cost import CostSection
from gnndelete.auditing.measures.distance import DistanceSection
from gnndelete.auditing.measures.figure_data import EmbeddingSection, ScoresSection
from gnndelete.auditing.measures.forgetting import ForgettingSection, QueryTest, UnseenAUC
from gnndelete.auditing.measures.membership import MembershipSection
from gnndelete.auditing.measures.outliers import OutliersSection
from gnndelete.auditing.measures.theorem import TheoremSection
from gnndelete.auditing.measures.trend import TrendSection
from gnndelete.auditing.measures.utility import UtilitySection
from gnndelete.auditing.verdict import Verdict

Report = dict[str, Any]

SECTIONS = {
    "utility": UtilitySection,
    "forgetting": ForgettingSection,
    "membership": MembershipSection,
    "trend": TrendSection,
    "distance": DistanceSection,
    "theorem": TheoremSection,
    "outliers": OutliersSection,
    "cost": CostSection,
    "scores": ScoresSection,
    "embedding": EmbeddingSection,
}


def _models(kind: Any, part: Report, value: Any) -> Any:
    """A `PerModel` of dataclasses."""
    return kind(
        **{key: value(**held) if isinstance(held, dict) else held for key, held in part.items() if key != "available"}
    )


def _section(name: str, part: Report) -> Any:
    if not part.get("available", True):
        return Unmeasured(reason=part["reason"])
    part = dict(part)
    if name == "forgetting":
        part["unseen"] = {query: _models(QueryTest, test, UnseenAUC) for query, test in part["unseen"].items()}
    return TypeAdapter(SECTIONS[name]).validate_python(part)


def _aim_meaning(report: Report) -> str:
    """As a result says it: what the aim means, and how calibration served it."""
    calibration = report["calibration"] or {}
    return f"{report['done']['aim_meaning']} {calibration.get('sentence', '')}".strip()


def made(report: Report) -> Audit:
    """The audit of plain values."""
    sections = {name: _section(name, report[name]) for name in SECTIONS if report.get(name) is not None}
    return Audit(
        verdict=TypeAdapter(Verdict).validate_python(report["verdict"]),
        sections=sections,
        request=TypeAdapter(Request).validate_python(report["request"]),
        done=TypeAdapter(Done).validate_python({**report["done"], "aim_meaning": _aim_meaning(report)}),
        **{name: tuple(report[name]) for name in ("limits", "higher")},
        **{
            name: report[name]
            for name in ("reference", "calibration", "seed", "created", "seconds", "versions", "gnndelete")
        },
    )


def _gone(reason: str) -> Report:
    return {"available": False, "reason": reason}


def _attack(auc: float, mean: float) -> Report:
    fpr = np.linspace(0, 1, 101)
    tpr = fpr ** ((1 - auc) / auc)
    return {"auc": auc, "mean": mean, "roc": {"fpr": fpr.round(4).tolist(), "tpr": tpr.round(4).tolist()}}


def _unseen(auc: float, deleted: int = 1189, se: float = 0.0098) -> Report:
    return {
        "auc": auc, "low": round(auc - 1.96 * se, 4), "high": round(auc + 1.96 * se, 4), "se": se,
        "plain_auc": auc - 0.004,
        "deleted": deleted, "unseen": 2643, "matched": 0.981,
    }  # fmt: skip


def _query(graph: str, before: float, after: float, reference: float, verdict: str) -> Report:
    return {
        "available": True, "graph": graph, "before": _unseen(before), "after": _unseen(after),
        "reference": _unseen(reference), "gap": round(after - reference, 4), "verdict": verdict,
        "sentence": f"The AUC is {after:.3f}.",
    }  # fmt: skip


def _scores(random: np.random.Generator, deleted: float) -> dict[str, list[float]]:
    middles = {"deleted": deleted, "unseen": 2.1, "remaining": 3.4, "random": -2.6}
    return {kind: random.normal(middle, 1.3, 2000).round(4).tolist() for kind, middle in middles.items()}


def _points(random: np.random.Generator, shift: float) -> dict[str, list[list[float]]]:
    spread = {"ring 0": 1.0 + shift, "ring 1": 1.2, "elsewhere": 1.6}
    return {name: random.normal((shift, 0), width, (400, 2)).round(4).tolist() for name, width in spread.items()}


def link() -> Report:
    """Edges of a link task, with a retrained reference."""
    random = np.random.default_rng(0)
    return {
        "format": 1, "gnndelete": "0.1.0", "created": "2026-11-15T12:00:00+00:00", "seed": 7, "seconds": 4.21,
        "reference": True,
        "versions": {"torch": "2.13.0", "torch_geometric": "2.8.0", "python": "3.11.2"},
        "request": {"counts": {"edges": 1189}, "requests": 1, "task": "link",
                    "task_title": "link prediction", "nodes": 17716, "edges_before": 95162,
                    "edges_after": 92784},
        "done": {"method": "gnndelete", "model": "GCN", "aim": "retrained", "lam": 0.0213, "assurance": "approximate",
                 "aim_meaning": "Deleted edges should score like unseen edges that the model never trained on.",
                 "assurance_meaning": "The result behaves as if it had forgotten, without a bound. "
                                      "The base weights still hold the data, and disabling the adapter brings it back.",
                 "settings": {"lam": "auto", "solver": "closed-form", "operator": "ring", "layers": "all", "ridge": 1e-06,
                              "hops": None},
                 "notes": [{"code": "rows", "text": "GCN of 2 layers: 4,120 rows of 17,716 were changed."}], "adapter": True},
        "calibration": {"aim": "retrained", "lam": 0.0213, "status": "reached", "target": 0.5, "budget": None,
                        "sentence": "lam 0.0213 brings deleted edges to 0.504 ± 0.010 on validation edges.",
                        "trials": [{"lam": 0.0, "auc": 0.551, "se": 0.0098, "utility": 0.9645},
                                   {"lam": 1.0, "auc": 0.058, "se": 0.0041, "utility": 0.8911},
                                   {"lam": 0.1, "auc": 0.402, "se": 0.0095, "utility": 0.9601},
                                   {"lam": 0.03, "auc": 0.487, "se": 0.0097, "utility": 0.9635},
                                   {"lam": 0.0213, "auc": 0.504, "se": 0.0098, "utility": 0.9640}],
                        "retrain_recommended": False},
        "verdict": {"code": "indistinguishable", "title": "Indistinguishable from data the model never saw",
                    "text": "Asked on the graph as it is served, the model scores the 1,189 deleted edges like unseen ones "
                                "(AUC 0.512, 95% interval 0.493 to 0.531; Retrain 0.507).",
                    "warnings": [{"code": "new-id-differs",
                                  "text": "Under a new id deleted edges are still recognised: the weights speak."}],
                    "by_query": {"served": "indistinguishable", "old_id": "indistinguishable",
                                 "new_id": "under-forgotten"}},
        "utility": {"available": True,
                    "metrics": {"auroc": {"before": 0.9651, "after": 0.9638, "reference": 0.9644},
                                "auprc": {"before": 0.9672, "after": 0.9661, "reference": 0.9668}},
                    "tested": {"metric": "auroc", "count": 5286, "what": "test elements", "chance": 0.5, "constant": 0.5,
                               "values": {"before": 0.9651, "after": 0.9638, "reference": 0.9644}},
                    "retained": {"count": 5000, "share_fell": 0.314, "mean_change": -0.0042, "median_change": -0.0011,
                                 "worst": -0.297,
                                 "reference_share_fell": 0.487, "reference_mean_change": -0.0017},
                    "near": {"metric": "auroc", "count": 320, "what": "test edges that touch the deletion", "chance": 0.5,
                             "constant": 0.5, "values": {"before": 0.9411, "after": 0.9352, "reference": 0.9377}}},
        "forgetting": {"available": True,
                       "ranking": {"auroc": {"before": 0.5031, "after": 0.6172, "reference": 0.6093},
                                   "auprc": {"before": 0.5102, "after": 0.6044, "reference": 0.5991}},
                       "unseen": {"served": _query("The remaining graph, as it is served.", 0.671, 0.512, 0.507,
                                   "indistinguishable"),
                                   "old_id": _query("The remaining graph with the edge put back.", 0.674, 0.516, 0.511,
                                                    "indistinguishable"),
                                   "new_id": _query("Copies of both ends under new ids.", 0.583, 0.548, 0.502,
                                                    "under-forgotten")},
                       "not_asked": {}},
        "membership": {"available": True, "form": "edge", "elements": "deleted edges", "carry_messages": False,
                       "counts": {"deleted": 1189, "test": 2643}, "before": _attack(0.6213, 0.6871), "after": _attack(0.5384,
                       0.5672),
                       "reference": _attack(0.5331, 0.5498), "mi_ratio": 1.211, "mi_ratio_reference": 1.249,
                       "shadow": {"auc": 0.6417, "seconds": 3.37,
                                  "what": "A GCN of the same build on half of the remaining edges."},
                       "sentence": "The shadow attack finds deleted edges with AUC 0.538; Retrain's 0.533."},
        "trend": {"available": True, "counts": {"deleted": 1189, "non_edges": 1189},
                  "without_bits": {"before": None, "after": 0.551, "reference": 0.5491},
                  "shadow": {"auc": 0.6171, "without_bits": 0.601}, "before": None,
                  "after": _attack(0.5641, 0.52), "reference": _attack(0.5588, 0.51),
                  "sentence": "Neighbours tell little more than after retraining.", "what": "Fits a trend over neighbours."},
        "distance": {"available": True, "left_out": {}, "what": "Jensen-Shannon divergence in bits.",
                     "js": {"deleted": {"after": 0.0123, "before": 0.2034, "floor": 0.006, "count": 1189},
                            "unseen": {"after": 0.0081, "before": 0.0109, "floor": 0.005, "count": 2643},
                            "remaining": {"after": 0.0074, "before": 0.0095, "floor": 0.002, "count": 5000},
                            "random": {"after": 0.0102, "before": 0.0098, "floor": 0.002, "count": 5000}},
                     "agreement": {"after": 0.9812, "before": 0.9641, "count": 5286,
                                   "what": "share of test pairs decided alike"},
                     "difference": {"after": 0.0213, "before": 0.0309, "what": "mean absolute difference"},
                     "sentence": "On deleted edges the scores are 0.012 bits from the retrained model's."},
        "theorem": {"available": True, "edges": 1180, "deleted": 1189, "operator_norm": 1.042,
                    "unit": {"holds": 0.9983, "tightness": -0.214, "slack": 0.31, "actual_mean": 0.113,
                             "bound_mean": -0.587, "lowered": 0.874},
                    "sharper": {"holds": 0.9971, "tightness": -0.431},
                    "operator": {"holds": 0.9991, "tightness": -0.2, "slack": 0.3, "actual_mean": 0.11,
                                 "bound_mean": -0.58},
                    "served": {"holds": 0.9117, "tightness": 0.1, "slack": 2.0, "actual_mean": 1.9,
                               "bound_mean": -12.4},
                    "identity_max_error": 3.2e-07, "assumptions": "The theorem takes the last layer alone.",
                    "sentence": "Theorem 1 holds for 99.8% of the deleted edges."},
        "outliers": {"available": True, "what": "An isolation forest.", "counts": {"nodes": 1874, "edges": 1189},
                     "touched": {"before": 0.061, "after": 0.072, "reference": 0.069},
                     "untouched": {"before": 0.049, "after": 0.051, "reference": 0.05},
                     "deleted": {"before": 0.941, "after": 0.903, "reference": 0.911},
                     "remaining": {"before": 0.952, "after": 0.951, "reference": 0.949},
                     "sentence": "7.2% of the touched nodes stand out."},
        "cost": {"deletion": {"seconds": 0.0498, "parameters": 20480},
                 "reference": {"seconds": 6.12, "parameters": 228736},
                 "ratio": 122.9, "sentence": "122 times less time than retraining."},
        "scores": {"axis": "score (logit)", "deleted": "deleted edges",
                   "scores": {"before": _scores(random, 3.3), "after": _scores(random, 2.15),
                              "reference": _scores(random, 2.1)}},
        "embedding": {"before": _points(random, 0.0), "after": _points(random, 0.4), "explained": [0.41, 0.22]},
        "limits": ["The base weights are unchanged and still hold the data.",
                   "The rows in the adapter name the neighbourhood of what was deleted."],
        "higher": ["Retrain, and hand out the retrained weights: level 'retrained'.",
        "Use a certified method where one fits."],
    }  # fmt: skip


def without_reference() -> Report:
    """Nothing was retrained: every reference is null or absent."""

    def strip(part: Any) -> Any:
        if isinstance(part, list):
            return part
        return {
            key: False
            if key == "reference" and value is True
            else None
            if "reference" in key or key in {"gap", "ratio"}
            else strip(value)
            if isinstance(value, dict)
            else value
            for key, value in part.items()
        }

    report = strip(link())
    del report["scores"]["scores"]["reference"]
    report["distance"] = _gone("there is no reference; pass reference= the result of method 'retrain'")
    return dict(report)


def node() -> Report:
    """Nodes of a node task: no random pairs, no ranking, some parts do not apply."""
    report = link()
    report["request"] |= {"task": "node", "task_title": "node classification", "counts": {"nodes": 40}}
    report["utility"]["metrics"] = {"accuracy": {"before": 0.871, "after": 0.868, "reference": 0.869}}
    report["utility"] |= {"near": None, "near_reason": "no test node lies near the deletion"}
    report["forgetting"]["ranking"] = {}
    del report["forgetting"]["unseen"]["new_id"]
    report["forgetting"]["not_asked"] = {"new_id": "a node has no second id under this task"}
    report["verdict"]["by_query"]["new_id"] = None
    report["membership"]["form"] = "node"
    report["theorem"] = _gone("Theorem 1 is about deleted edges, and this deletion names none")
    for side in report["scores"]["scores"].values():
        del side["random"]
    report["scores"]["axis"] = "probability of the true class"
    del report["distance"]["js"]["random"]
    return report


def unavailable() -> Report:
    """Almost nothing could be measured."""
    report = without_reference()
    for key in ("utility", "forgetting", "membership", "trend", "distance", "theorem", "outliers"):
        report[key] = _gone(f"there is no unseen data for {key}")
    report["scores"] = _gone("there are no scores")
    report["embedding"] = _gone("the model gives no representation of every node")
    report["calibration"] = None
    report["verdict"] = {"code": "undecided", "title": "Not enough data to judge",
    "text": "There is no unseen data.",
                         "warnings": [], "by_query": {"served": None, "old_id": None, "new_id": None}}  # fmt: skip
    return report


def fixed_strength() -> Report:
    """lam was given: there is no calibration."""
    return link() | {"calibration": None}


def nonexistent() -> Report:
    """The paper's aim: a budget instead of a target, and trials without a unseen AUC."""
    report = link()
    report["calibration"] |= {"aim": "nonexistent", "target": None, "budget": 0.01, "lam": 0.1}
    report["calibration"]["trials"] = [trial | {"auc": None, "se": None} for trial in report["calibration"]["trials"]]
    report["verdict"] |= {"code": "over-forgotten", "title": "Over-forgotten: suppressed below unseen data"}
    return report


def already() -> Report:
    """Cutting the graph was enough: one trial."""
    report = link()
    report["done"]["lam"] = 0.0
    report["calibration"] |= {"lam": 0.0, "status": "already", "trials": report["calibration"]["trials"][:1]}
    return report


def fallback() -> Report:
    """Nothing could be tried, and training again is advised."""
    report = link()
    report["calibration"] |= {"status": "fallback", "trials": [], "target": None, "retrain_recommended": True,
                              "sentence": "lam was not calibrated, since there is no unseen data."}  # fmt: skip
    return report


def one_edge() -> Report:
    """A single deleted edge."""
    report = link()
    report["request"]["counts"] = {"edges": 1}
    for side in report["scores"]["scores"].values():
        side["deleted"] = side["deleted"][:1]
    for side in ("before", "after"):
        report["embedding"][side]["ring 0"] = report["embedding"][side]["ring 0"][:2]
    for query in report["forgetting"]["unseen"].values():
        for side in ("before", "after", "reference"):
            query[side] |= {"deleted": 1, "low": 0.0, "high": 1.0, "se": 0.29}
    report["trend"] = _gone("one edge has too few neighbours")
    report["verdict"] |= {"code": "undecided", "title": "One edge is too little to judge"}
    return report


VARIANTS: dict[str, Callable[[], Report]] = {
    "link": link, "without_reference": without_reference, "node": node, "unavailable": unavailable,
    "fixed_strength": fixed_strength, "nonexistent": nonexistent, "one_edge": one_edge, "already": already, "fallback": fallback,
}  # fmt: skip


def hostile() -> Report:
    """Strings that would do harm if they were not escaped."""
    report = copy.deepcopy(link())
    nasty = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'$x^2$"
    report["done"]["notes"] = [{"code": "remark", "text": nasty}]
    report["done"]["method"] = nasty
    report["verdict"]["title"] = nasty
    report["verdict"]["warnings"] = [{"code": "remark", "text": nasty}]
    report["limits"] = [nasty]
    report["scores"]["axis"] = nasty
    report["forgetting"]["unseen"]["served"]["graph"] = nasty
    return report
