"""Data of a figure: what each model answers on deleted, unseen, remaining and random elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import deleted_title
from gnndelete.auditing.measures.base import Measure, NotMeasuredError, Section
from gnndelete.auditing.samples import answers, deleted, samples

#: Scores of each group that are kept.
SAMPLE_LIMIT = 2_000


@dataclass(frozen=True, kw_only=True)
class ScoresSection(Section):
    """Scores by model and group; ``deleted`` says what the group of that name holds."""

    scores: dict[str, dict[str, list[float]]]
    axis: str
    deleted: str = ""


class Scores(Measure):
    """A sample of scores for the figure of score distributions."""

    name: ClassVar[str] = "scores"

    def run(self, case: Case) -> ScoresSection:
        chosen, gone = samples(case, SAMPLE_LIMIT), deleted(case)
        if not chosen:
            raise NotMeasuredError(f"a '{case.task.name}' task has no scores of single elements")
        scores: dict[str, dict[str, list[float]]] = {}
        for name in case.subjects:
            scores[name] = {}
            for group, elements in chosen.items():
                models = gone.subjects if group == "deleted" else case.subjects
                if name in models:
                    values = answers(case, models[name], elements)
                    scores[name][group] = [round(value, 4) for value in values[torch.isfinite(values)].tolist()]
        shown = any("deleted" in groups for groups in scores.values())
        title = deleted_title(gone.title, gone.graph) if shown else ""
        return ScoresSection(scores=scores, axis=case.task.score_title, deleted=title)
