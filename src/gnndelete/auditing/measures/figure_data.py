"""Data of two figures: what each model answers, and where the rows near the deletion lie before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.decomposition import PCA

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import deleted_title
from gnndelete.auditing.measures.base import Measure, NotMeasuredError, Section
from gnndelete.auditing.samples import answers, deleted, node_rows, rings, samples
from gnndelete.graph.validation import count_nodes

#: Scores of each group that are kept.
SCORE_LIMIT = 2_000
#: Points of each ring that are kept.
POINT_LIMIT = 400

RINGS = ("ring 0", "ring 1", "elsewhere")


@dataclass(frozen=True, kw_only=True)
class ScoresSection(Section):
    """Scores by model and group; ``deleted`` says what the group of that name holds."""

    scores: dict[str, dict[str, list[float]]]
    axis: str
    deleted: str = ""


class Scores(Measure):
    """A sample of what each model answers on deleted, unseen, remaining and random elements."""

    name: ClassVar[str] = "scores"

    def run(self, case: Case) -> ScoresSection:
        chosen, gone = samples(case, SCORE_LIMIT), deleted(case)
        if not chosen:
            raise NotMeasuredError(f"a '{case.task.name}' task has no scores of single elements")
        scores: dict[str, dict[str, list[float]]] = {name: {} for name in case.subjects}
        for group, elements in chosen.items():
            for name, subject in (gone.subjects if group == "deleted" else case.subjects).items():
                values = answers(case, subject, elements)
                scores[name][group] = [round(value, 4) for value in values[torch.isfinite(values)].tolist()]
        shown = any("deleted" in groups for groups in scores.values())
        title = deleted_title(gone.title, gone.graph) if shown else ""
        return ScoresSection(scores=scores, axis=case.task.score_title, deleted=title)


@dataclass(frozen=True, kw_only=True)
class EmbeddingSection(Section):
    """Points by ring, before and after; ``explained`` is the share of the variance that each axis shows."""

    before: dict[str, list[list[float]]]
    after: dict[str, list[list[float]]]
    explained: list[float]


class Embedding(Measure):
    """The same nodes in the same random order before and after, in two principal components fitted on both."""

    name: ClassVar[str] = "embedding"

    def run(self, case: Case) -> EmbeddingSection:
        rows = {name: node_rows(case.subjects[name], count_nodes(case.original)) for name in ("before", "after")}
        before, after = rows["before"], rows["after"]
        if before is None or after is None:
            missing = "before" if before is None else "after"
            raise NotMeasuredError(f"the model {missing} the deletion gives no finite representation of every node")
        if before.size(1) != after.size(1):
            raise NotMeasuredError(
                f"the models' representations have different widths ({before.size(1)} and {after.size(1)})"
            )
        chosen = [case.sample(ring, POINT_LIMIT, 10 + offset) for offset, ring in enumerate(rings(case))]
        points = {
            name: [h[ring.to(h.device)].double().cpu().numpy() for ring in chosen]
            for name, h in (("before", before), ("after", after))
        }
        together = np.concatenate([part for parts in points.values() for part in parts])
        if not np.ptp(together, axis=0).any():
            raise NotMeasuredError("all representations are the same, so there is nothing to draw")
        pca = PCA(n_components=min(2, *together.shape), svd_solver="full").fit(together)
        flat: dict[str, Any] = {
            name: {ring: _flat(pca, part) for ring, part in zip(RINGS, parts, strict=True)}
            for name, parts in points.items()
        }
        return EmbeddingSection(**flat, explained=[round(float(part), 4) for part in pca.explained_variance_ratio_])


def _flat(pca: PCA, part: np.ndarray) -> list[list[float]]:
    flat = pca.transform(part) if len(part) else np.empty((0, 2))
    flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))  # representations of width 1 lie on a line
    return [[round(float(x), 4), round(float(y), 4)] for x, y in flat]
