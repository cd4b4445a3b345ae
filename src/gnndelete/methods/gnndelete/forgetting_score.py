"""What a trial of calibration measures, on validation data only: the unseen AUC of deleted elements, and utility."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.errors import GraphError, ModelError
from gnndelete.graph.edge_table import ends_of
from gnndelete.methods.base import Context
from gnndelete.metrics.unseen_test import degrees

#: Below this share of deleted elements with unseen ones to compare with, the result says that lam was chosen by a few.
FEW_MATCHED = 0.5

#: A node that lost its features is still trained on its label. Of what its AUC lies above 0.5 when the features are presented
#: again, retraining kept 0.69 on DBLP, 0.82 on CiteSeer, 0.57 on Cora and 0.5 on a random graph, with much scatter. The
#: constant was chosen on these runs, so they are no test of it. Without it such nodes would be forgotten too strongly.
KEPT_WITH_LABEL = 2 / 3


class ForgettingScore:
    """How deleted elements score against unseen ones, and what the model still can do.

    Args:
        context: The request.
        by_surroundings: Compare edges by their surroundings as well, not by the degree of their ends alone.

    Attributes:
        missing: Why forgetting cannot be measured; empty where it can. Utility may be measurable all the same.
        presented: Ask on the original graph, where deleted elements are presented again: as served they are blank.
        kept: Of what the AUC is above 0.5 with the graph only cut, the share that retraining would keep, too.
    """

    def __init__(self, context: Context, by_surroundings: bool = True) -> None:
        self.task, self.data, self.original = context.remaining_task, context.remaining, context.data
        self.presented, self.kept, self.missing = False, 0.0, ""
        self._context, self._by_surroundings = context, by_surroundings
        self._nearby: Any = None
        if self.task is None:
            self.missing = "no task says how deleted elements are scored (pass task=…)"
            return
        deletion = context.deletion
        self.deleted = self.task.elements(deletion, self.original)
        if not self.deleted.size(-1):
            self.missing = self.task.unscored(deletion, self.original)
            self.missing = self.missing or "a link model scores edges, and the request names none"
            return
        self.unseen = self.task.unseen(self.data, "validation", deletion)
        if self.task.pairwise:
            self.unseen = _unmoved(self.unseen, context)
        else:
            self.presented = True
            self.kept = KEPT_WITH_LABEL * self.task.still_learned(deletion, self.deleted)
        if not self.unseen.size(-1):
            self.missing = self.task.no_unseen("validation")
        elif self.task.pairwise and not _comparable(degrees(self.data), self.deleted, self.unseen):
            self.missing = (
                "no deleted edge can be compared with an unseen one: all edges of one kind have an isolated end, and none of "
                "the other"
            )
        if not self.missing:
            self.matching = self.task.match(self.deleted, self.unseen, self.original, self.data, by_surroundings)
            self._elements = torch.cat([self.deleted.to(self.unseen.device), self.unseen], dim=-1)
            if self.task.pairwise and self.task.validates(self.data):
                with suppress(GraphError):  # no negatives can be drawn
                    self._nearby = self.task.validation_near(self.data, ends_of(self.deleted).unique())

    def unseen_auc(self, model: nn.Module, output: Any) -> tuple[float, float]:
        """The unseen AUC in a model's output, and its standard error."""
        assert self.task is not None
        scores = self.task.scores(model, output, self.original if self.presented else self.data, self._elements)
        bad = int((~torch.isfinite(scores)).sum())
        if bad:
            raise ModelError(
                f"{bad} of {scores.numel()} answers about deleted and unseen elements are NaN or infinite",
                "check the model's weights and features",
            )
        test = self.matching.test(*scores.split([self.deleted.size(-1), self.unseen.size(-1)]))
        return test.auc, test.standard_error

    def utility(self, model: nn.Module, output: Any) -> float | None:
        """The task's score on its validation data; None where there is none."""
        if self.task is None or not self.task.validates(self.data):
            return None
        try:
            return self.task.validate(model, output, self.data)
        except GraphError:  # nothing is left to validate on
            return None

    def nearby_utility(self, model: nn.Module, output: Any) -> float | None:
        """The same score on validation edges that touch the deletion; None where there are too few of them."""
        return None if self._nearby is None or self.task is None else self.task.validate_on(model, output, self._nearby)

    def remarks(self) -> list[str]:
        """Sentences about the comparison itself, for the note of a calibration."""
        if self.missing:
            return []
        assert self.task is not None
        found = []
        if self._by_surroundings and self.matching.matched < FEW_MATCHED:
            found.append(
                f"Only {self.matching.matched:.0%} of the deleted {self.task.noun}s have unseen ones to compare with; lam was "
                "chosen by these."
            )
        overlap = self.task.count_overlap(self.unseen, self.original, self._context.session.table)
        found += [self.task.overlap_sentence(overlap), self.matching.how]
        return [sentence for sentence in found if sentence]


def _unmoved(unseen: Tensor, context: Context) -> Tensor:
    """Unseen edges without those of which the deletion isolated an end.

    The operator that moves the deleted edges moves these, too, so their comparison says the same at every lam. Where there
    are no others, they have to do.
    """
    degree, before = degrees(context.remaining), degrees(context.data)
    ends = ends_of(unseen).to(degree.device)
    unmoved = ~((degree[ends] == 0) & (before[ends] > 0)).any(dim=0).to(unseen.device)
    return unseen[:, unmoved] if bool(unmoved.any()) else unseen


def _comparable(degree: Tensor, deleted: Tensor, unseen: Tensor) -> bool:
    """Whether some deleted and some unseen edge both have an isolated end, or both have none."""
    one, other = ((degree[ends_of(part).to(degree.device)] == 0).any(dim=0) for part in (deleted, unseen))
    return bool((one.any() & other.any()) | (~one.all() & ~other.all()))
