"""`audit`: measured evidence about one deletion, and `Audit`, which holds it, prints it and writes the report."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import nn
from torch_geometric.data import Data

from gnndelete import __version__
from gnndelete.auditing.case import Case, open_case, still_there
from gnndelete.auditing.judging import judge
from gnndelete.auditing.measures.cost import cost
from gnndelete.auditing.measures.distance import distance, score_samples
from gnndelete.auditing.measures.embedding import embedding
from gnndelete.auditing.measures.forgetting import forgetting
from gnndelete.auditing.measures.membership import membership
from gnndelete.auditing.measures.outliers import outliers
from gnndelete.auditing.measures.shadow import train_shadow
from gnndelete.auditing.measures.theorem import theorem
from gnndelete.auditing.measures.trend import trend
from gnndelete.auditing.measures.utility import utility
from gnndelete.auditing.report import html as page
from gnndelete.auditing.reported import only_reported
from gnndelete.auditing.samples import tested_on_learned
from gnndelete.auditing.verdict import verdict
from gnndelete.graph.deletion import Deletion
from gnndelete.io.files import commit
from gnndelete.io.progress import track
from gnndelete.result import Unlearned

FORMAT = 1
PAGE, VALUES, FIGURES = "report.html", "audit.json", "figures"

_LIMITS = {
    "adapter": (
        "The base weights are unchanged and still hold the data: whoever disables or strips the adapter has the old model back.",
        "The rows in the adapter name the neighbourhood of what was deleted; treat its files as you treat the graph.",
    ),
    "inference-only": (
        "No weight was changed: the weights still hold whatever they learned from the deleted elements.",
    ),
    "approximate": (
        "There is no bound on what the result may still give away; an attack that was not tried may do better.",
    ),
    "retrained": (
        "Features, splits or hyperparameters that were made with the deleted elements may still carry them.",
    ),
}
_TRAINED_AGAIN = (
    "But it was trained again: either the deleted elements are of another kind than the unseen ones, or that training began "
    "from something that knew them. A reference tells."
)
_SAMPLE = "These are measurements on one sample of test data from one seed, not a proof."
_HIGHER = (
    "Train again without the data (method='retrain', level retrained) and destroy the old weights, the adapter and backups; "
    "an adapter can serve until then.",
    "For linear models GraphEditor reaches 'exact' and CertUnlearn 'certified' within a stated budget.",
)


@dataclass(frozen=True, repr=False)
class Audit:
    """The evidence about one deletion, as plain values: no ids of what was deleted are in it."""

    values: dict[str, Any]

    @property
    def verdict(self) -> str:
        """``ruined``, ``under-forgotten``, ``indistinguishable``, ``over-forgotten`` or ``undecided``."""
        return str(self.values["verdict"]["word"])

    def to_dict(self) -> dict[str, Any]:
        return self.values

    def to_html(self) -> str:
        """The whole report as one page that fetches nothing."""
        return page.html(self.values)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page and the values as JSON, and in a folder of their own the figures as PNG and SVG."""
        folder = Path(path)
        values = (json.dumps(self.values, indent=1, allow_nan=False) + "\n").encode()
        figures = {folder / FIGURES / name: figure for name, figure in page.figures(self.values).items()}
        commit({**figures, folder / VALUES: values, folder / PAGE: self.to_html().encode()})

    def __repr__(self) -> str:
        return f"Audit(verdict={self.verdict!r}, counts={self.values['request']['counts']})"

    def __str__(self) -> str:
        return page.text(self.values)

    def _repr_html_(self) -> str:
        return page.card_html(self.values)


def audit(
    unlearned: Unlearned,
    reference: Unlearned | nn.Module | None = None,
    *,
    deletion: Deletion | None = None,
    original: Data | None = None,
    attacks: bool = True,
    seed: int | None = None,
    progress: bool = False,
) -> Audit:
    """Measure what a deletion achieved: utility, forgetting, attacks, the distance to retraining, and the cost.

    ``reference`` is the same deletion by `Retrain` (or any model trained without the elements); every figure then stands
    beside its own. Everything is measured on the task's *test* data, while calibration saw validation data only. The
    attacks train a shadow model, which takes as long as training did: ``attacks=False`` leaves them out. An adapter
    from disk does not say what was deleted: give ``deletion`` and the ``original`` graph.

    >>> import gnndelete as gd
    >>> from gnndelete.testing import problem
    >>> model, data, task = problem("link")
    >>> unlearned = gd.Unlearner(model, data, task=task).delete(gd.Deletion(edges=data.edge_index[:, :20]))
    >>> audit(unlearned, attacks=False).to_dict()["request"]["task"]
    'link'
    """
    started = time.perf_counter()
    case = open_case(unlearned, reference, deletion, original, seed, progress)
    steps = {
        "utility": utility,
        "forgetting": _forgetting,
        "distance": distance,
        "theorem": theorem,
        "outliers": outliers,
        "cost": cost,
        **({"attacks": _attacks} if attacks else {}),
    }
    found: dict[str, Any] = {}
    for name in track(list(steps), "auditing", progress, str):
        found[name] = steps[name](case)
    found |= found.pop("attacks", {name: _left_out() for name in ("membership", "trend")})
    parts = found["utility"], found["forgetting"], found["membership"], found["trend"], found["distance"]
    word = verdict(case, *parts, still_there(case), only_reported(case), tested_on_learned(case))
    return Audit(
        {
            **_frame(case),
            "verdict": word,
            **found,
            "figures": {**score_samples(case), "embedding": embedding(case)},
            "limits": _limits(case),
            "higher": [] if unlearned.assurance == "retrained" else list(_HIGHER),
            "seconds": time.perf_counter() - started,
        }
    )


def _forgetting(case: Case) -> dict[str, Any]:
    found = forgetting(case)
    for test in found.get("unseen", {}).values():
        if test["available"]:
            word, sentence = judge(test)
            if word.endswith("-forgotten") and case.unlearned.assurance == "retrained" and case.reference is None:
                word, sentence = "undecided", f"{sentence} {_TRAINED_AGAIN}"
            test["verdict"], test["sentence"] = word, sentence
    return found


def _attacks(case: Case) -> dict[str, Any]:
    shadow = train_shadow(case)
    return {"membership": membership(case, shadow), "trend": trend(case, shadow)}


def _left_out() -> dict[str, Any]:
    return {"available": False, "reason": "the attacks were left out (attacks=False); they train a shadow model"}


def _limits(case: Case) -> list[str]:
    unlearned = case.unlearned
    operators = unlearned.adapter is not None and bool(unlearned.adapter.operators)
    keys = ["adapter"] * operators + [unlearned.assurance]
    return [*(sentence for key in keys for sentence in _LIMITS.get(key, ())), _SAMPLE]


def _frame(case: Case) -> dict[str, Any]:
    """What was asked, what was done, and with what."""
    unlearned = case.unlearned
    model = unlearned.model if unlearned.model is not None else case.base
    return {
        "format": FORMAT,
        "gnndelete": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": case.seed,
        "versions": {
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "python": platform.python_version(),
        },
        "request": {
            "counts": case.deletion.counts,
            "requests": max(len(unlearned.history), 1),
            "task": case.task.name,
            "nodes": case.original.num_nodes,
            "edges_before": case.original.edge_index.size(1),
            "edges_after": case.remaining.edge_index.size(1),
            "edges_word": "directed entries of edge_index",
        },
        "done": {
            "method": unlearned.method,
            "model": type(model).__name__,
            "settings": unlearned.settings,
            "aim": unlearned.aim,
            "aim_meaning": unlearned.aim_meaning,
            "lam": unlearned.lam,
            "assurance": unlearned.assurance,
            "assurance_meaning": unlearned.assurance_meaning,
            "notes": [note.to_dict() for note in unlearned.notes],
            "adapter": unlearned.adapter is not None,
        },
        "calibration": unlearned.calibration,
    }
