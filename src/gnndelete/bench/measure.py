"""One cell: delete by one method from one trained model, and measure what the cell asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.measures.forgetting import measure_unseen, missing
from gnndelete.auditing.measures.membership import membership
from gnndelete.auditing.measures.outliers import outliers
from gnndelete.auditing.measures.shadow import train_shadow
from gnndelete.auditing.queries import ask
from gnndelete.bench.cells import Cell, make_method, search_rule
from gnndelete.bench.kept import base_model, once, place
from gnndelete.bench.material import Material, all_inside, material, requests
from gnndelete.bench.timing import seconds_of
from gnndelete.graph.deletion import Deletion
from gnndelete.methods import Method, Retrain
from gnndelete.methods.base import Fit
from gnndelete.notes import Note
from gnndelete.result import Unlearned, evidence_by
from gnndelete.tasks import LinkPrediction, Task
from gnndelete.training.loop import train
from gnndelete.unlearner import Unlearner

#: A deletion that is quicker than this many seconds is done REPEATS times, and its time is the median: the first one in a
#: process also pays for what the device sets up.
QUICK, REPEATS = 1.0, 3


@dataclass(frozen=True)
class Setting:
    """Everything a cell needs, made from its key."""

    key: Mapping[str, Any]
    model: nn.Module
    train_seconds: float
    trained_by: str | None
    data: Data
    task: Task
    requests: list[Deletion]
    folder: Path

    @classmethod
    def of(cls, cell: Cell, folder: Path, device: torch.device) -> Setting:
        made, base = material(cell.key, device), base_model(cell.base, folder, device)
        asked = requests(cell.key, made)
        return cls(cell.key, base.model, base.seconds, base.source, made.data, made.task, asked, folder)

    def unlearner(self, method: Method) -> Unlearner:
        gone = self.requests[0]
        for further in self.requests[1:]:
            gone = gone | further
        fit = schedule_fit(self.key, method, self.task.without(gone.nodes))
        return Unlearner(self.model, self.data, task=self.task, method=method, fit=fit, seed=self.key["seed"])


def schedule_fit(key: Mapping[str, Any], method: Method, task: Task) -> Fit:
    """Training by the schedule of the cell; what Retrain says of its own has the last word."""
    own = method.settings() if isinstance(method, Retrain) else {}
    schedule = {name: own.get(name, value) for name, value in key["train"].items()}

    def fit(model: nn.Module, data: Data, seed: int) -> nn.Module:
        train(model, data, task, seed=seed, **schedule)
        return model

    return fit


def measure(cell: Cell, folder: Path, device: torch.device) -> dict[str, Any]:
    """The row of a cell, without its provenance."""
    setting, method, asked = Setting.of(cell, folder, device), make_method(cell.key["method"]), cell.key["measures"]
    timed: dict[str, Any] = {"seconds_of": seconds_of(setting, method)} if "time" in asked else {}
    if "calibrated" in timed.get("seconds_of", ()):
        timed["search_rule"] = search_rule(cell.key["method"], cell.key["task"], cell.key["model"]["name"])
    unlearned, steps, seconds = _deleted(setting, method)
    if timed and method.needs == "a training function":
        timed["seconds_of"]["retrain" if method.name == "retrain" else "delete"] = seconds
    case = open_setting(setting, unlearned)
    row: dict[str, Any] = {
        "scores": _scores(case, "after"),
        "before": _scores(case, "before"),
        "seconds": seconds,
        "train_seconds": setting.train_seconds,
        "trained_by": setting.trained_by,
        "parameters": unlearned.parameters,
        "peak_mb": unlearned.peak_mb,
        "lam": unlearned.lam,
        "assurance": unlearned.assurance,
        "calibration": _calibration(unlearned),
        "counts": unlearned.deletion.counts,
        "notes": [note.to_dict() for note in (() if isinstance(method, Retrain) else unlearned.notes)],
        **({"steps": steps} if len(steps) > 1 else {}),
        **timed,
    }
    if said := all_inside(cell.key, Material(setting.data, setting.task)):
        row["notes"].append(Note("all-edges-in", said).to_dict())
    if "unseen" in asked:
        _unseen(case, row)
    if "mi" in asked:
        _membership(case, row)
    if "outliers" in asked:
        _outliers(case, row)
    return row


def _deleted(setting: Setting, method: Method) -> tuple[Unlearned, list[dict[str, Any]], float]:
    """The result of all requests, the scores after each, and the seconds they took together."""
    unlearned, steps = _sequence(setting, method)
    times = [sum(step["seconds"] for step in steps)]
    if times[0] < QUICK and method.needs == "nothing":
        times = [sum(step["seconds"] for step in _sequence(setting, method, score=False)[1]) for _ in range(REPEATS)]
    return unlearned, steps, median(times)


def _sequence(setting: Setting, method: Method, score: bool = True) -> tuple[Unlearned, list[dict[str, Any]]]:
    unlearner, steps = setting.unlearner(method), []
    for number, request in enumerate(setting.requests, 1):
        unlearned = unlearner.delete(request)
        amount = setting.key["forget"]["amount"] * number / len(setting.requests)
        scores = unlearned.evaluate() if score and len(setting.requests) > 1 else {}
        steps.append({"amount": amount, **scores, "seconds": unlearned.seconds, "lam": unlearned.lam})
    return unlearned, steps


def _scores(case: Case, name: str) -> dict[str, Any]:
    predict = case.subjects[name].predict
    return {**evidence_by(predict, case.task, case.deletion, case.remaining, seed=case.seed)}


def _calibration(unlearned: Unlearned) -> dict[str, Any] | None:
    found = unlearned.calibration
    return None if found is None else {"status": found["status"], "trials": len(found["trials"])}


def open_setting(setting: Setting, unlearned: Unlearned) -> Case:
    """The deletion as an audit sees it; what was made here a moment ago is not checked again."""
    assert unlearned.data is not None
    task, forward = setting.task.without(unlearned.deletion.nodes), unlearned.forward
    subjects = {"before": Subject.of_model("before", setting.model, setting.data, task, forward)}
    if unlearned.model is None or unlearned.predictor is not None:
        subjects["after"] = Subject("after", unlearned.predict, unlearned.data, unlearned.model)
    else:
        subjects["after"] = Subject.of_model("after", unlearned.model, unlearned.data, task, forward)
    return Case(
        unlearned=unlearned,
        reference=None,
        deletion=unlearned.deletion,
        original=setting.data,
        remaining=unlearned.data,
        task=task,
        base=setting.model,
        subjects=subjects,
        forward=forward,
        fit=_kept_fit(setting, unlearned.fit),
        seed=setting.key["seed"],
    )


def train_shadow_of(cell: Cell, folder: Path, device: torch.device) -> float:
    """Train and keep the shadow model that all methods of a cell's deletion are attacked with; the seconds it took."""
    setting = Setting.of(cell, folder, device)
    unlearned, _ = _sequence(setting, make_method({"name": "unlink"}), score=False)
    return train_shadow(open_setting(setting, unlearned)).seconds


def _kept_fit(setting: Setting, fit: Fit | None) -> Fit | None:
    """A way to train that trains a shadow model only once."""
    shadow = Cell("", dict(setting.key)).shadow
    if fit is None or shadow is None:
        return fit
    path = place(setting.folder, shadow)

    def kept(model: nn.Module, data: Data, seed: int) -> nn.Module:
        once(path, model, lambda: fit(model, data, seed))
        return model

    return kept


def _unseen(case: Case, row: dict[str, Any]) -> None:
    """Deleted against unseen elements: in the graph as served, or presented again where they have no answer there."""
    reason = missing(case)
    query = "served" if isinstance(case.task, LinkPrediction) and case.deletion.edges.size(1) else "old_id"
    if not reason:
        for name, subject in case.subjects.items():
            asked = ask(case, query, subject)
            test = None if asked.subject is None else measure_unseen(case, asked.subject, asked.move)
            if test is None:
                reason = asked.reason or "some answers are no finite numbers"
            else:
                row["scores" if name == "after" else name]["unseen_auc"] = test.auc
                row["unseen"] = {"query": query, "se": test.standard_error, "matched": test.matched}
    if "unseen_auc" not in row["scores"]:
        row["notes"].append(_not_measured(f"No unseen AUC: {reason}."))


def _not_measured(text: str) -> dict[str, str]:
    return Note("not-measured", text).to_dict()


def _membership(case: Case, row: dict[str, Any]) -> None:
    found = membership(case, train_shadow(case))
    if not found["available"]:
        row["notes"].append(_not_measured(f"No membership attack: {found['reason']}."))
        return
    row["scores"]["mi_ratio"] = found["mi_ratio"]
    for name, part in (("after", "scores"), ("before", "before")):
        if not found[name]["same"]:
            row[part]["mi_auc"] = found[name]["auc"]
    if found["after"]["same"]:
        answer = f"{found['after']['mean']:.3g}"
        row["notes"].append(_not_measured(f"No MI AUC: the attack gives every element the same answer ({answer})."))
    row["mi"] = {"shadow_auc": found["shadow"]["auc"]}


def _outliers(case: Case, row: dict[str, Any]) -> None:
    found = outliers(case)
    if not found["available"]:
        row["notes"].append(_not_measured(f"No detection of outliers: {found['reason']}."))
        return
    for name, part in (("after", "scores"), ("before", "before")):
        row[part]["outlier_share"] = found["nodes"][name]["touched"]
        if found["edges"] is not None:  # the paper's form
            row[part]["regular_share"] = found["edges"][name]["deleted"]
