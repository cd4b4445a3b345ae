"""What is solved: segments on top of a generation, what they change, and new generations.

A `Solver` holds one generation in memory and the segments that are in force on it. It knows deletions in rows, no customer, no
database and no request.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete import __version__
from gnndelete.auditing import audit
from gnndelete.datasets import NamedGraph
from gnndelete.datasets.ids import without_names
from gnndelete.engine.segments import Version
from gnndelete.engine.session import Session
from gnndelete.errors import GNNDeleteError, ModelError, UnfitError
from gnndelete.graph.batch import collate
from gnndelete.graph.deletion import NOTHING, Deletion
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.validation import edge_table
from gnndelete.io.code import load_module
from gnndelete.methods import Method
from gnndelete.methods import resolver as methods
from gnndelete.methods.base import Context, Reason, plain, reasons
from gnndelete.nn.adapter import model_fingerprint
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key, Rows, representations
from gnndelete.result import Unlearned
from gnndelete.service.elements import Elements
from gnndelete.service.folders import Changes, Made, ModelFolder, Operators
from gnndelete.service.logs import error_code
from gnndelete.service.screening import rehearse
from gnndelete.tasks import Task
from gnndelete.tasks.base import Predict
from gnndelete.training.loop import train
from gnndelete.unlearner import Unlearner

#: The verdict about what nobody measured.
NOT_AUDITED = "not-audited"

#: Methods for new weights, the cheapest first.
SECOND_CLOCK = ("regrow", "retrain")


def software() -> dict[str, str]:
    """Versions of what computes."""
    import torch_geometric

    versions = {"gnndelete": __version__, "torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    return {**versions, "python": platform.python_version(), "threads": str(torch.get_num_threads())}


@dataclass(frozen=True)
class Solved:
    """One segment.

    Attributes:
        deletion: What was cut, as far as it was not gone before.
        operators: Its operators.
        changes: Rows of the output that it changed.
        facts: Method, level, notes and figures, as plain values.
    """

    deletion: Deletion
    operators: Operators
    changes: Changes
    facts: dict[str, Any] = field(default_factory=dict)


class Solver:
    """One generation in memory, and the segments on it.

    Args:
        folder: The folder of the model.
        generation: The number of the generation.
    """

    def __init__(self, folder: ModelFolder, generation: int) -> None:
        self.generation, self._folder = generation, folder
        self.made = folder.open_generation(generation)
        self.manifest = self.made.facts
        self.data = collate(self.made.graph.data)
        self._start()
        session = self.unlearner.session
        self.elements = Elements(self.made.graph, session.data, session.table, self.made.task)

    def _start(self) -> None:
        method = make_method(self.manifest["method"], self.manifest["settings"])
        self.unlearner = Unlearner(
            self.made.model, self.made.graph.data, task=self.made.task, method=method, sequence="segments"
        )
        if self.manifest["local"]:
            self.unlearner.prepare(self._folder.cache_folder(self.generation))
        self.gone = NOTHING
        self.segments = 0

    def restore(self, deletion: Deletion, operators: Operators) -> None:
        """Take up a segment that was solved before."""
        left = deletion.not_deleted(self.gone) if self.segments else deletion
        if len(left):
            self.unlearner.restore(left, operators)
        self._remember(deletion)

    def suppress(self, deletion: Deletion) -> Solved:
        """Solve a deletion on top of what is in force."""
        left = deletion.not_deleted(self.gone) if self.segments else deletion
        if not len(left):
            self._remember(deletion)
            return Solved(
                left, [], Changes({}, _NO_IDS), {"level": "inference-only", "notes": ["already-gone"], **self._said()}
            )
        solved = self._solved(left, self.unlearner.delete(left))
        self._remember(deletion)
        return solved

    def alone(self, deletion: Deletion | None) -> Solved:
        """Solve one deletion from the generation itself, in place of all segments: a compaction, or an undo."""
        self._start()
        if deletion is None:
            return Solved(NOTHING, [], Changes({}, _NO_IDS), {"level": "none", "notes": [], **self._said()})
        return self.suppress(deletion)

    def _remember(self, deletion: Deletion) -> None:
        self.gone = self.gone | deletion if self.segments else deletion
        self.segments += 1

    def _said(self) -> dict[str, Any]:
        return {
            "method": self.manifest["method"],
            "settings": self.manifest["settings"],
            "weights": "base",  # new ones, too, have learned what an adapter on top of them hides
            "software": software(),
            "figures": {},
        }

    def _solved(self, deletion: Deletion, unlearned: Unlearned) -> Solved:
        answers, blocks = unlearned.served, self.unlearner.session.blocks
        if answers is None or blocks is None:
            operators: Operators = [] if unlearned.adapter is None else list(unlearned.adapter.operators)
            rows = {
                key: (torch.arange(len(value)), value) for key, value in outputs(unlearned.output(), self.data).items()
            }
        else:
            operators = self.unlearner.segment
            rows = {key: _changed(version) for key, version in answers.output.items()}
        facts = {
            **self._said(),
            "level": unlearned.assurance if operators else "inference-only",
            "notes": sorted({note.code for note in unlearned.notes}),
            "lam": unlearned.lam,
            "engine": unlearned.engine,
            "figures": self._figures(deletion, unlearned),
            "counts": deletion.counts,
        }
        return Solved(deletion, operators, Changes(rows, deletion.nodes), facts)

    def _figures(self, deletion: Deletion, unlearned: Unlearned) -> dict[str, Any]:
        """What the model says of the elements: its weights alone, and as it is served now."""
        task, output = self.made.task, self.made.output
        if unlearned.served is None:
            return {}
        try:
            found = task.elements(deletion, self.data)
            if not found.size(-1):
                return {"scored": 0}
            asked: dict[str, Predict] = {"score_after": unlearned.predict}
            if list(output) == [None]:
                asked["score_before"] = lambda elements: task.predict(self.made.model, output[None], elements)
            with evaluating(self.made.model), torch.no_grad():
                scores = {name: task.scores(predict, self.data, found) for name, predict in asked.items()}
        except GNNDeleteError:
            return {"scored": 0}
        means = {name: round(float(values.double().mean()), 6) for name, values in scores.items()}
        return {"scored": int(found.size(-1)), **means}


def _changed(version: Any) -> tuple[Tensor, Tensor]:
    """The rows of an answer that differ from the version before, with their ids."""
    ids = version.appended() if isinstance(version, Version) else version.ids
    return ids, version.read(ids)


_NO_IDS = torch.empty(0, dtype=torch.long)


def make_method(name: str, settings: Mapping[str, Any]) -> Method:
    """A method by its name."""
    return methods.lookup(name)(**settings)


def outputs(output: Any, data: Any) -> dict[Key, Tensor]:
    """The entries of a model's output that have a row per node or graph."""
    found = {key: value for key, value, _ in representations(output, Rows(data))}
    if not found and isinstance(output, Tensor):
        found = {None: output}
    return {key: value.detach() for key, value in found.items()}


def first_generation(
    model: Any, graph: NamedGraph, task: Task, training: Mapping[str, Any], settings: Any = None
) -> Made:
    """The generation that a service starts from: the model as it was trained, with a rehearsed lam.

    Args:
        model: The trained model.
        graph: The graph it was trained on, with the names of its nodes.
        task: What it was trained for.
        training: How an untrained model is made and trained, for new weights: ``build`` and ``schedule``.
        settings: Settings of the method; lam is rehearsed where they leave it open.
    """
    data = collate(graph.data)
    task = task.on(data)
    unlearner = Unlearner(
        model, graph.data, task=task, method=make_method("gnndelete", settings or {}), sequence="segments"
    )
    unlearner.prepare()
    session = unlearner.session
    training = dict(training)
    if not _can_build(training):
        training["build"] = None
    ways = {"fit": _fit(training, task), "build": _build(training)}
    second_clock(Context(session, task, **ways), training.get("schedule") or {})
    chosen = dict(settings or {})
    if "lam" not in chosen and session.rehearsed is not None:
        chosen |= _rehearsed(session)
    return _made(session, model, graph, task, "base", training, chosen)


def _rehearsed(session: Session) -> dict[str, Any]:
    """The rehearsed lam, and the operator that it is for: it would be far too strong for maps behind layers."""
    found = session.rehearsed
    return {"lam": found.lam, "operator": "rows"} if found.rows and found.lam else {"lam": found.lam}


def _made(
    session: Session,
    model: Any,
    graph: NamedGraph,
    task: Task,
    weights: str,
    training: Mapping[str, Any],
    settings: Any,
) -> Made:
    with evaluating(session.model):
        output = outputs(session.answer(session.model, session.data), session.data)
    facts = {
        "base": model_fingerprint(model),
        "graph": fingerprint(session.data),
        "weights": weights,
        "method": "gnndelete",
        "settings": plain(settings),
        "local": session.blocks is not None,
        "not_local": session.not_local if session.blocks is None else "",
        "build": training.get("build"),
        "schedule": dict(training.get("schedule") or {}),
        "fit": training.get("fit"),
        "nodes": session.table.num_nodes,
        "edges": session.table.num_edges,
        "damage": rehearse(session),
        "software": software(),
    }
    return Made(model, task, graph, output, facts)


def new_generation(
    folder: ModelFolder, generation: int, deletion: Deletion, seed: int, audited: bool = True
) -> tuple[Made, dict[str, Any]]:
    """New weights that never saw what was deleted, on the graph that remains, whose deleted nodes have no names any more.

    Args:
        folder: The folder of the model.
        generation: The generation whose weights are replaced.
        deletion: What must be gone.
        seed: The seed of the new weights.
        audited: Whether to measure what they achieved.

    Returns:
        The generation, and what a receipt says about it.
    """
    made = folder.open_generation(generation)
    training = made.facts
    ways = {"fit": _fit(training, made.task.without(deletion.nodes)), "build": _build(training)}
    start = Unlearner(made.model, made.graph.data, task=made.task, method="unlink", engine="full").session
    method = second_clock(Context(start, made.task, **ways), training["schedule"])
    unlearner = Unlearner(made.model, made.graph.data, task=made.task, method=method, engine="full", seed=seed, **ways)
    unlearned = unlearner.delete(deletion)
    if unlearned.model is None:
        raise ModelError("the method for new weights made no model")
    ids = None if made.graph.ids is None else without_names(made.graph.ids, deletion.nodes)
    graph = replace(made.graph, data=unlearned.data, ids=ids)
    task = made.task.without(deletion.nodes)
    model = unlearned.model.eval()
    settings = {**training["settings"]}
    settings.pop("lam", None)
    session = Unlearner(model, graph.data, task=task, method=make_method("gnndelete", settings), sequence="segments")
    session.prepare()
    if session.session.rehearsed is not None:
        settings |= _rehearsed(session.session)
    found = _made(session.session, model, graph, task, unlearned.weights, training, settings)
    said = {
        "method": unlearned.method,
        "settings": plain(unlearned.settings),
        "level": unlearned.assurance,
        "weights": unlearned.weights,
        "notes": sorted({note.code for note in unlearned.notes}),
        "software": software(),
        **(evidence(unlearned) if audited else {"figures": {}}),
    }
    return found, said


def evidence(unlearned: Unlearned) -> dict[str, Any]:
    """What an audit without attacks finds: its verdict, the rule behind it, and the figures that a receipt can hold.

    Args:
        unlearned: What was achieved.
    """
    try:
        found = audit(unlearned, attacks=False).to_dict()
    except Exception as error:  # the weights are good, whether or not they can be measured
        return {"verdict": NOT_AUDITED, "figures": {"audit_failed": error_code(error)}}
    figures: dict[str, Any] = {"rule": found["verdict"]["rule"]}
    if tested := found["utility"].get("tested"):
        values = {name: tested["values"][name] for name in ("before", "after")}
        figures["test"] = {"metric": tested["metric"], **_rounded(values), "elements": tested["count"]}
    served = found["forgetting"].get("unseen", {}).get("served", {})
    for name, test in (("unseen", served), ("unseen_adjusted", served.get("adjusted") or {})):
        if after := test.get("after"):
            values = {each: after[each] for each in ("auc", "low", "high")}
            figures[name] = {**_rounded(values), "deleted": after["deleted"], "unseen": after["unseen"]}
    return {"verdict": found["verdict"]["code"], "figures": figures}


def _rounded(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 4) for name, value in values.items()}


def second_clock(context: Context, schedule: Mapping[str, Any]) -> Method:
    """The cheapest method for new weights that fits a model.

    Args:
        context: The model, its graph and its task, and how it is built and trained.
        schedule: How it was trained.

    Raises:
        UnfitError: If there is none: then nothing could be answered for good.
    """
    found: list[Reason] = []
    for name in SECOND_CLOCK:
        kind = methods.lookup(name)
        takes = inspect.signature(kind).parameters
        method = kind(**{name: value for name, value in schedule.items() if name in takes and value is not None})
        found = reasons(method, context)
        if not found:
            return method
    raise UnfitError(f"no new weights can be made of this model: {found[0].why}", found[0].remedy)


def _build(training: Mapping[str, Any]) -> Any:
    """A function that makes an untrained model; None where the weights of a copy can be drawn again."""
    build = training.get("build")
    if not build or ":" not in build["name"]:
        return None
    path, _, attribute = build["name"].rpartition(":")
    return lambda: getattr(load_module(path), attribute)(**build["options"])


def _can_build(training: Mapping[str, Any]) -> bool:
    """Whether the factory makes a model of its options alone; some ask for sizes of a graph."""
    build = _build(training)
    try:
        return build is not None and isinstance(build(), nn.Module)
    except Exception:  # the user's code may raise anything; weights of a copy are drawn again instead
        return False


def _fit(training: Mapping[str, Any], task: Task) -> Any:
    """A function that trains as the model was trained: the user's own, or by the schedule."""
    if training.get("fit"):
        path, _, attribute = training["fit"].rpartition(":")
        return getattr(load_module(path), attribute)
    chosen = {name: value for name, value in (training.get("schedule") or {}).items() if value is not None}

    def fit(model: Any, data: Any, seed: int, **more: Any) -> Any:
        train(model, data, task, seed=seed, progress=False, **{**chosen, **more})
        return model

    return fit


def live_elements(made: Made) -> Elements:
    """The elements of a generation, for a process that only reads."""
    data = collate(made.graph.data)
    return Elements(made.graph, data, edge_table(data), made.task)
