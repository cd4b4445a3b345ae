"""One cell: delete by one method from one trained model, and measure what the cell asks for."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.measures import NotMeasuredError
from gnndelete.auditing.measures.attack import train_shadow
from gnndelete.auditing.measures.forgetting import NOT_FINITE, measure_unseen, why_untestable
from gnndelete.auditing.measures.membership import Membership
from gnndelete.auditing.measures.outliers import Outliers
from gnndelete.auditing.queries import ask
from gnndelete.bench.cells import Cell, make_method, search_rule
from gnndelete.bench.experiment import TIMED_LAM
from gnndelete.bench.material import (
    Material,
    TrainedModel,
    all_edges_inside,
    base_model,
    load_material,
    loop_options,
    model_file,
    requests,
    train_once,
)
from gnndelete.graph.deletion import Deletion
from gnndelete.io.memory import PeakMemory
from gnndelete.methods import GNNDelete, Method, Retrain
from gnndelete.methods.base import Fit, synchronize
from gnndelete.nn.forward import call, evaluating
from gnndelete.notes import Note
from gnndelete.result import Unlearned, evidence_by
from gnndelete.tasks import Task
from gnndelete.training.loop import LoopFit
from gnndelete.unlearner import Unlearner

#: A deletion that takes fewer seconds than this is repeated and its time is the median of these repeats: the first one
#: in a process also pays for what the device sets up.
QUICK_SECONDS, QUICK_REPEATS = 1.0, 3

#: How often the measure ``time`` repeats everything that it times.
TIMING_REPEATS = 7


@dataclass(frozen=True)
class Setting:
    """Everything a cell needs, made from its key."""

    key: Mapping[str, Any]
    material: Material
    base: TrainedModel
    requests: list[Deletion]
    folder: Path

    @classmethod
    def of(cls, cell: Cell, folder: Path, device: torch.device) -> Setting:
        material, base = load_material(cell.key, device), base_model(cell.base, folder, device)
        return cls(cell.key, material, base, requests(cell.key, material), folder)

    @property
    def data(self) -> Data:
        return self.material.data

    @property
    def task(self) -> Task:
        return self.material.task

    def unlearner(self, method: Method) -> Unlearner:
        """An `Unlearner` of the trained model that retrains by the schedule of the cell."""
        fit = schedule_fit(self.key, method, self.task.without(reduce(or_, self.requests).nodes))
        return Unlearner(self.base.model, self.data, task=self.task, method=method, fit=fit, seed=self.key["seed"])


def schedule_fit(key: Mapping[str, Any], method: Method, task: Task) -> Fit:
    """A training function with the schedule of the cell; settings of Retrain take precedence."""
    settings = method.settings() if isinstance(method, Retrain) else {}
    return LoopFit(task, {name: settings.get(name, value) for name, value in loop_options(key["train"]).items()})


def measure(cell: Cell, folder: Path, device: torch.device) -> dict[str, Any]:
    """The row of a cell, without its provenance."""
    setting, method, measures = Setting.of(cell, folder, device), make_method(cell.key["method"]), cell.key["measures"]
    timed: dict[str, Any] = {"seconds_of": seconds_of(setting, method)} if "time" in measures else {}
    if "calibrated" in timed.get("seconds_of", ()):
        timed["search_rule"] = search_rule(cell.key["method"], cell.key["task"], cell.key["model"]["name"])
    with PeakMemory(setting.data.edge_index.device) as memory:
        unlearned, steps, seconds = _delete(setting, method)
    if timed and method.needs == "a training function":
        timed["seconds_of"]["retrain" if method.name == "retrain" else "delete"] = seconds
    case = open_setting(setting, unlearned)
    notes = [] if isinstance(method, Retrain) else list(unlearned.notes)
    if all_edges_inside(cell.key, setting.material):
        text = "All training edges are IN (within two hops of test edges), so this equals where: random."
        notes.append(Note("all-edges-in", text))
    found = unlearned.calibration
    row: dict[str, Any] = {
        **{
            part: dict(
                evidence_by(case.subjects[name].predict, case.task, case.deletion, case.remaining, seed=case.seed)
            )
            for part, name in (("scores", "after"), ("before", "before"))
        },
        "seconds": seconds,
        "train_seconds": setting.base.seconds,
        "trained_by": setting.base.source,
        "parameters": unlearned.parameters,
        "peak_mb": memory.peak_mb,
        "lam": unlearned.lam,
        "assurance": unlearned.assurance,
        "weights": unlearned.weights,
        "calibration": found and {"status": found["status"], "trials": len(found["trials"])},
        "counts": unlearned.deletion.counts,
        **({"steps": steps} if len(steps) > 1 else {}),
        **timed,
    }
    for name, add in _ADDED.items():
        if name in measures:
            notes += [Note("not-measured", text) for text in add(case, row)]
    row["notes"] = [note.to_dict() for note in notes]
    return row


def train_shadow_of(cell: Cell, folder: Path, device: torch.device) -> float:
    """Train and store the shadow model that all methods of a cell's deletion are attacked with; the seconds it took."""
    setting = Setting.of(cell, folder, device)
    unlearned, _ = _sequence(setting, make_method({"name": "unlink"}), score=False)
    return train_shadow(open_setting(setting, unlearned)).seconds


# The deletion.


def _delete(setting: Setting, method: Method) -> tuple[Unlearned, list[dict[str, Any]], float]:
    """The result of all requests, the scores after each, and the seconds of all of them."""
    unlearned, steps = _sequence(setting, method)
    times = [sum(step["seconds"] for step in steps)]
    if times[0] < QUICK_SECONDS and method.needs == "nothing":
        repeats = [_sequence(setting, method, score=False)[1] for _ in range(QUICK_REPEATS)]
        times = [sum(step["seconds"] for step in repeat) for repeat in repeats]
    return unlearned, steps, median(times)


def _sequence(setting: Setting, method: Method, score: bool = True) -> tuple[Unlearned, list[dict[str, Any]]]:
    unlearner, steps = setting.unlearner(method), []
    for number, request in enumerate(setting.requests, 1):
        unlearned = unlearner.delete(request)
        amount = setting.key["forget"]["amount"] * number / len(setting.requests)
        scores = unlearned.evaluate() if score and len(setting.requests) > 1 else {}
        steps.append({"amount": amount, **scores, "seconds": unlearned.seconds, "lam": unlearned.lam})
    return unlearned, steps


def open_setting(setting: Setting, unlearned: Unlearned) -> Case:
    """The deletion as an audit case; it was made a moment ago, so nothing is checked again."""
    assert unlearned.data is not None
    task, forward = setting.task.without(unlearned.deletion.nodes), unlearned.forward
    subjects = {"before": Subject.of_model("before", setting.base.model, setting.data, task, forward)}
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
        base=setting.base.model,
        subjects=subjects,
        forward=forward,
        fit=_stored_fit(setting, unlearned.fit),
        seed=setting.key["seed"],
    )


def _stored_fit(setting: Setting, fit: Fit | None) -> Fit | None:
    """A training function that trains a shadow model once and then loads it."""
    shadow = Cell("", dict(setting.key)).shadow
    if fit is None or shadow is None:
        return fit
    path = model_file(setting.folder, shadow)

    def stored(model: nn.Module, data: Data, seed: int) -> nn.Module:
        train_once(path, model, lambda: fit(model, data, seed))
        return model

    return stored


# What is measured. Each function adds to the row and returns why a number is missing.


def _add_unseen(case: Case, row: dict[str, Any]) -> list[str]:
    """Deleted against unseen elements: as served, or presented again where they have no answer there."""
    reason = why_untestable(case)
    query = "served" if case.deleted_edges.size(1) else "old_id"
    if not reason:
        for name, subject in case.subjects.items():
            asked = ask(case, query, subject)
            test = None if asked.subject is None else measure_unseen(case, asked.subject, asked.move)
            if test is None:
                reason = asked.reason or NOT_FINITE
            else:
                row["scores" if name == "after" else name]["unseen_auc"] = test.auc
                row["unseen"] = {"query": query, "se": test.standard_error, "matched": test.matched}
    return [] if "unseen_auc" in row["scores"] else [f"No unseen AUC: {reason}."]


def _add_membership(case: Case, row: dict[str, Any]) -> list[str]:
    try:
        found = Membership().run(replace(case, shadow=train_shadow(case)))
    except NotMeasuredError as reason:
        return [f"No membership attack: {reason}."]
    row["mi"] = {"shadow_auc": found.shadow.auc}
    row["scores"]["mi_ratio"] = found.mi_ratio
    for result, part in ((found.after, "scores"), (found.before, "before")):
        if result is not None and not result.same:
            row[part]["mi_auc"] = result.auc
    if found.after.same:
        return [f"No MI AUC: the attack gives every element the same answer ({found.after.mean:.3g})."]
    return []


def _add_outliers(case: Case, row: dict[str, Any]) -> list[str]:
    try:
        found = Outliers().run(case)
    except NotMeasuredError as reason:
        return [f"No detection of outliers: {reason}."]
    for name, part in (("after", "scores"), ("before", "before")):
        if (touched := found.touched.get(name)) is not None:
            row[part]["outlier_share"] = touched
        if found.deleted is not None and (regular := found.deleted.get(name)) is not None:  # the paper's share
            row[part]["regular_share"] = regular
    return []


#: What the measures beside scores and times add to a row.
_ADDED: dict[str, Callable[[Case, dict[str, Any]], list[str]]] = {
    "unseen": _add_unseen,
    "mi": _add_membership,
    "outliers": _add_outliers,
}


# Times.


def seconds_of(setting: Setting, method: Method, repeats: int = TIMING_REPEATS) -> dict[str, float]:
    """Median seconds. Repeats take turns, so that a slow moment of the machine hits all of them.

    ``forward`` is the base model on the original graph, ``epoch`` one full-batch step of its training. ``delete`` is
    everything from a trained model and a graph to the result of the method, ``further`` the same request where edges,
    neighbourhoods and receptive field are already known. For GNNDelete ``delete`` is at a fixed lam and ``calibrated``
    with the search for it. A method that trains is timed once, by its cell.
    """
    request = setting.requests[0]
    device = setting.data.edge_index.device

    def forward() -> None:
        with evaluating(setting.base.model):
            call(setting.base.model, setting.data)

    work: dict[str, Callable[[], object]] = {"forward": forward, "epoch": _epoch(setting)}
    if isinstance(method, GNNDelete):
        fixed = GNNDelete(**method.settings() | {"lam": TIMED_LAM if method.lam == "auto" else method.lam})
        warm = setting.unlearner(fixed)
        warm.delete(request)
        work |= {"delete": lambda: setting.unlearner(fixed).delete(request), "further": warm.compact}
        if method.inputs == "remaining":  # inputs="enclosing" has no search for lam
            search = GNNDelete(**method.settings() | {"lam": "auto"})
            work["calibrated"] = lambda: setting.unlearner(search).delete(request)
    elif method.needs != "a training function":
        work["delete"] = lambda: setting.unlearner(method).delete(request)
    samples: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(1 + repeats):
        for name, call_once in work.items():
            synchronize(device)
            start = time.perf_counter()
            call_once()
            synchronize(device)
            samples[name].append(time.perf_counter() - start)
    return {
        name: median(values[1:]) for name, values in samples.items()
    }  # the first also pays for what the device sets up


def _epoch(setting: Setting) -> Callable[[], None]:
    model = copy.deepcopy(setting.base.model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=setting.key["train"]["lr"])
    generator = torch.Generator(setting.data.edge_index.device).manual_seed(setting.key["seed"])
    size = setting.key["train"]["batch_size"]

    def epoch() -> None:
        for batch in setting.task.batches(setting.data, size, generator):
            optimizer.zero_grad()
            setting.task.loss(model, call(model, batch), batch, generator).backward()
            optimizer.step()

    return epoch
