"""`audit`: measured evidence about one deletion, and `Audit`, which holds it, prints it and writes the report."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data

from gnndelete import __version__
from gnndelete.auditing.case import Case, Reference, open_case
from gnndelete.auditing.measures import Measure, NotMeasuredError, Section, Unmeasured, measures
from gnndelete.auditing.measures.attack import LEFT_OUT, train_shadow
from gnndelete.auditing.report.figures import figure_files
from gnndelete.auditing.report.html import card, page
from gnndelete.auditing.report.text import text
from gnndelete.auditing.verdict import Findings, Verdict, decide, judge_tests
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.fingerprint import fingerprint, tensor_digest
from gnndelete.io.files import commit
from gnndelete.io.progress import track
from gnndelete.nn.adapter import model_fingerprint
from gnndelete.notes import Note
from gnndelete.result import Unlearned

FORMAT = 1
PAGE, VALUES, FIGURES = "report.html", "audit.json", "figures"

_ADAPTER_LIMITS = (
    "The base weights are unchanged and still hold the data: whoever disables or removes the adapter has the old model back.",
    "The rows in the adapter identify the neighbourhood of what was deleted. Protect its files as you protect the graph.",
)
_RETURNING_LIMIT = (
    "A deleted id that comes back is answered by what was solved for it, whatever it does from then on. Give a node that "
    "returns a new id; a model with a vector per node must be trained with one for that id first."
)
_LEVEL_LIMITS = {
    "inference-only": (
        "No weight was changed: the weights still hold whatever they learned from the deleted elements.",
    ),
    "approximate": (
        "There is no bound on what the result may still give away. An attack that was not tried may do better.",
    ),
    "retrained": (
        "Features, splits or hyperparameters that were made with the deleted elements may still contain traces of them.",
    ),
}
_SAMPLE_LIMIT = "These are measurements on one sample of test data with one seed, not a proof."
_HIGHER = (
    "Retrain without the data (method='retrain', level retrained) and destroy the old weights, the adapter and backups. An "
    "adapter can serve until then.",
    "For linear models GraphEditor reaches 'exact', and CertUnlearn 'certified' within a stated budget.",
)


@dataclass(frozen=True)
class Request:
    """What was to be forgotten, and from which graph."""

    counts: dict[str, int]
    requests: int
    task: str
    task_title: str
    nodes: int
    edges_before: int
    edges_after: int


@dataclass(frozen=True)
class Done:
    """What was done: the method, its settings, and what it promises."""

    method: str
    model: str
    settings: dict[str, Any]
    assurance: str
    assurance_meaning: str
    weights: str = "base"
    aim: str | None = None
    aim_meaning: str | None = None
    lam: float | None = None
    notes: tuple[Note, ...] = ()
    adapter: bool = False


@dataclass(frozen=True, repr=False)
class Audit:
    """The evidence about one deletion. It has no ids of what was deleted.

    Args:
        verdict: The verdict, with its code, its reason and warnings.
        sections: What each measure found, by the name of the measure.
        request: What was to be forgotten.
        done: What was done.
        reference: Whether a reference was measured as well.
        references: The number of references.
        calibration: How lam was found, as the method stored it.
        limits: What this result does not give, in sentences.
        higher: How to reach a higher assurance level.
        seed: Of every random choice.
        created: When, as an ISO date.
        seconds: How long the audit took.
        versions: Of Python, torch and torch_geometric.
        gnndelete: The version of this library.
        subject: Fingerprints of the base model, the model after it, both graphs and the request.
    """

    verdict: Verdict
    sections: Mapping[str, Section]
    request: Request
    done: Done
    reference: bool = False
    references: int = 0
    calibration: Mapping[str, Any] | None = None
    limits: tuple[str, ...] = ()
    higher: tuple[str, ...] = ()
    seed: int = 0
    created: str = ""
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    gnndelete: str = __version__
    subject: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> dict[str, str]:
        """The models that have a column in tables, with their headings."""
        return {"before": "before", "after": "after", **({"reference": "Retrain"} if self.reference else {})}

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain values, for JSON.

        Returns:
            ``verdict``, ``request``, ``done`` and one entry per measure. A measure that does not apply has ``available``
            False and a ``reason``.
        """
        values = {
            name: getattr(self, name)
            for name in ("gnndelete", "created", "seed", "seconds", "reference", "references", "calibration")
        }
        return {
            "format": FORMAT,
            **values,
            "versions": dict(self.versions),
            "subject": dict(self.subject),
            "request": asdict(self.request),
            "done": _plain(asdict(self.done)),
            "verdict": _plain(asdict(self.verdict)),
            **{name: _plain(section.to_dict()) for name, section in self.sections.items()},
            "limits": list(self.limits),
            "higher": list(self.higher),
        }

    def to_html(self) -> str:
        """The whole report as one HTML page that fetches nothing.

        Returns:
            The page.
        """
        return page(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the report: ``report.html``, the values as ``audit.json``, and the figures as PNG and SVG in ``figures/``.

        Args:
            path: A folder; it is made where it does not exist.

        Raises:
            StorageError: If a file cannot be written. Then none is.
        """
        folder = Path(path)
        values = (json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n").encode()
        figures = {folder / FIGURES / name: figure for name, figure in figure_files(self).items()}
        commit({**figures, folder / VALUES: values, folder / PAGE: self.to_html().encode()})

    def __repr__(self) -> str:
        return f"Audit(verdict={self.verdict.code!r}, counts={self.request.counts})"

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return card(self)


def audit(
    unlearned: Unlearned,
    reference: Reference | Sequence[Reference] | None = None,
    *,
    deletion: Deletion | None = None,
    original: Data | None = None,
    attacks: bool = True,
    seed: int | None = None,
    progress: bool = False,
) -> Audit:
    """Measure what a deletion achieved: utility, forgetting, attacks, the distance to retraining, and the cost.

    Everything is measured on the task's *test* data; calibration saw validation data only.

    Args:
        unlearned: What `Unlearner.delete` or `load` returned.
        reference: The same deletion by `Retrain`, or a model trained without the elements. With it every number of the
            deletion is shown next to the reference's, and the verdict is about the difference. A list of several, each
            trained with a seed of its own, shows how much trainings differ; the first is shown, and differences are from the
            mean of all.
        deletion: What was deleted, for an adapter from disk, which does not say so.
        original: The graph before the deletion, for an adapter from disk.
        attacks: Whether to run the attacks. They train a shadow model, which takes as long as the training did, and a second
            retraining for a result with new weights and a reference.
        seed: Of every random choice; that of the deletion by default.
        progress: Whether to show a progress bar.

    Returns:
        The evidence, with a verdict.

    Raises:
        SettingError: If the reference does not stand for training without the elements.
        DeletionError: If it is not known what was deleted, or the reference forgot something else.
        GraphError: If the graphs do not belong together.
        ModelError: If there is no task.
        AdapterError: If the adapter is damaged or was made for another graph.

    >>> import gnndelete as gd
    >>> from gnndelete.testing import problem
    >>> model, data, task = problem("link")
    >>> unlearned = gd.Unlearner(model, data, task=task).delete(gd.Deletion(edges=data.edge_index[:, :20]))
    >>> audit(unlearned, attacks=False).to_dict()["request"]["task"]
    'link'
    """
    started = time.perf_counter()
    case = open_case(unlearned, reference, deletion, original, seed, progress)
    if attacks:
        case = replace(case, shadow=train_shadow(case))
    sections = {measure.name: run_measure(measure, case) for measure in track(measures(), "auditing", progress, _name)}
    sections = judge_tests(case, sections)
    findings = Findings(sections, adapter=unlearned.adapter is not None, aim=unlearned.aim)
    return Audit(
        verdict=decide(findings),
        sections=sections,
        request=_request(case),
        done=_done(case),
        reference=case.reference is not None,
        references=len(case.references),
        calibration=unlearned.calibration,
        limits=_limits(case),
        higher=() if unlearned.assurance == "retrained" else _HIGHER,
        seed=case.seed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=time.perf_counter() - started,
        versions={
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "python": platform.python_version(),
        },
        subject=_subject(case),
    )


def run_measure(measure: Measure, case: Case) -> Section:
    """The section of one measure, or the reason why there is none."""
    if measure.attack and case.shadow is None:
        return Unmeasured(reason=LEFT_OUT)
    try:
        return measure.run(case)
    except NotMeasuredError as missing:
        return Unmeasured(reason=str(missing))


def _name(measure: Measure) -> str:
    return measure.name


def _plain(value: Any) -> Any:
    """Tuples as lists, so that values are the same before and after a round trip through JSON."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _limits(case: Case) -> tuple[str, ...]:
    adapter, level = case.unlearned.adapter, case.unlearned.assurance
    operators = adapter is not None and bool(adapter.operators)
    found = [*(_ADAPTER_LIMITS if operators else ()), *_LEVEL_LIMITS.get(level, ())]
    if adapter is not None and case.deletion.nodes.numel():
        found.append(_RETURNING_LIMIT)
    return (*found, _SAMPLE_LIMIT)


def _request(case: Case) -> Request:
    return Request(
        counts=dict(case.deletion.counts),
        requests=max(len(case.unlearned.history), 1),
        task=case.task.name,
        task_title=case.task.description,
        nodes=case.original.num_nodes,
        edges_before=case.original.edge_index.size(1),
        edges_after=case.remaining.edge_index.size(1),
    )


def _subject(case: Case) -> dict[str, str]:
    model = case.unlearned.model
    weights = {} if model is None else {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}
    return {
        "base model": model_fingerprint(case.base),
        "result": tensor_digest(weights),
        "graph": fingerprint(case.original),
        "remaining graph": fingerprint(case.remaining),
        "request": case.deletion.fingerprint,
    }


def _done(case: Case) -> Done:
    unlearned = case.unlearned
    model = unlearned.model if unlearned.model is not None else case.base
    return Done(
        method=unlearned.method,
        model=type(model).__name__,
        settings=dict(unlearned.settings),
        assurance=unlearned.assurance,
        assurance_meaning=unlearned.assurance_meaning,
        weights=unlearned.weights,
        aim=unlearned.aim,
        aim_meaning=unlearned.aim_meaning,
        lam=unlearned.lam,
        notes=unlearned.notes,
        adapter=unlearned.adapter is not None,
    )
