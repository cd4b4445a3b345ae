"""What a trial of calibration measures, on validation data only: the unseen AUC of deleted elements, and utility."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.errors import GraphError, ModelError
from gnndelete.graph.edge_table import ends_of
from gnndelete.methods.base import Context
from gnndelete.metrics.lists import Lists
from gnndelete.metrics.marks import EDGE_LIMIT, row_features, tell_by_quadratics
from gnndelete.metrics.unseen_test import degrees
from gnndelete.tasks import Task
from gnndelete.tasks.base import draw

#: Below this share of deleted elements with unseen ones to compare with, the result says that lam was chosen by a few.
FEW_MATCHED = 0.5

#: A node that lost its features is still trained on its label. Of what its AUC lies above 0.5 when the features are presented
#: again, retraining kept 0.69 on DBLP, 0.82 on CiteSeer, 0.57 on Cora and 0.5 on a random graph, with much scatter. The
#: constant was chosen on these runs, so they are no test of it. Without it such nodes would be forgotten too strongly.
KEPT_WITH_LABEL = 2 / 3

#: How near to 0.5 the AUC of corrected labels must come.
CORRECTED_WITHIN = 0.05

#: Nodes that each end is scored with to see its spread, and pairs that are asked about for it.
PARTNERS, PARTNER_LIMIT = 16, 100_000

#: Nodes of each kind from which it can be learned how to tell them.
TOLD_MINIMUM = 20

#: Validation edges that are ranked in lists at most.
RANKED_LIMIT = 400


@dataclass(frozen=True)
class Trial:
    """What one lam gave on validation data; None where it cannot be measured."""

    lam: float
    auc: float | None = None  # unseen AUC: deleted against matched unseen elements
    se: float | None = None  # its standard error
    utility: float | None = None  # the validation score
    near: float | None = None  # the validation score on edges that touch the deletion
    mark: float | None = None  # how far the nodes of the deletion can be told by themselves, beyond lam 0
    mrr: float | None = None  # the mean reciprocal rank of validation edges in lists, where lists are what users see

    def loss(self, first: Trial) -> float:
        """U(0) - U(lam): what the trial costs of the validation score.

        Where users see lists, a share of the mean reciprocal rank counts like the same share of the AUROC's skill above 0.5.

        >>> Trial(0.1, utility=0.9, mrr=0.2).loss(Trial(0.0, utility=0.9, mrr=0.25))
        0.08
        """
        score = 0.0 if first.utility is None or self.utility is None else first.utility - self.utility
        return max(score, round(self.lost_mrr(first) * max((first.utility or 0.5) - 0.5, 0.0), 12))

    def lost_mrr(self, first: Trial) -> float:
        """The share of the mean reciprocal rank that the trial costs; 0 where lists are not what users see."""
        return 0.0 if self.mrr is None or not first.mrr else 1 - self.mrr / first.mrr

    def loss_near(self, first: Trial) -> float:
        """The same around the deletion."""
        return 0.0 if first.near is None or self.near is None else first.near - self.near


class ForgettingScore:
    """How deleted elements score against unseen ones, and what the model still can do.

    Args:
        context: The request.
        by_surroundings: Compare edges by their surroundings as well, not by the degree of their ends alone.

    Attributes:
        missing: Why forgetting cannot be measured; empty where it can. Utility may be measurable all the same.
        corrected: Nodes whose label is replaced, where nothing else is deleted: it is measured whether the new one is learned.
        presented: Ask on the original graph, where deleted elements are presented again: as served they are blank.
        chance: The validation score up to which a model is no better than chance; None where that is not known.
        kept: Of what the AUC is above 0.5 with the graph only cut, the share that retraining would keep, too.
    """

    def __init__(self, context: Context, by_surroundings: bool = True) -> None:
        self.task, self.data, self.original = context.task, context.remaining, context.data
        self.presented, self.kept, self.missing = False, 0.0, ""
        self.corrected: Tensor | None = None
        self._table, self._by_surroundings = context.session.table, by_surroundings
        self._near: Task | None = None
        self._untold: float | None = None
        self._still_served = False  # nodes that are asked as they are served
        self._lists: Lists | None = None
        self.chance: float | None = None
        if self.task is None:
            self.missing = "no task says how deleted elements are scored (pass task=…)"
            return
        deletion = context.deletion
        self.task = self.task.without(deletion.nodes)
        with suppress(GraphError):  # there is nothing to validate on
            self.chance = self.task.chance(self.data)
        self._lists = self.task.lists(self.original)
        self.corrected = (
            deletion.new_labels[0] if set(deletion.counts) == {"labels"} and not self.task.pairwise else None
        )
        if self.corrected is not None and self.corrected.numel():
            self._learn(deletion.new_labels)
            return
        self.corrected = None
        self.deleted = self.task.elements(deletion, self.original)
        if not self.deleted.size(-1):
            self.missing = self.task.unscored(deletion, self.original)
            if not self.missing and not self.task.unseen(self.data, "validation", deletion).size(-1):
                self.missing = self.task.no_unseen("validation")
            self.missing = self.missing or "a link model scores edges, and the request names none"
            return
        self.unseen = self.task.unseen(self.data, "validation", deletion)
        if not self.unseen.size(-1):
            self.missing = self.task.no_unseen("validation")
            return
        if self.task.pairwise:
            self.unseen = comparable_edges(context, self.deleted, self.unseen)
        else:
            self.presented = True
            self._still_served = self.task.on_nodes and not self.task.blank(deletion)
            self.kept = KEPT_WITH_LABEL * self.task.still_learned(deletion, self.deleted)
        if not self.unseen.size(-1):
            self.missing = (
                "no deleted edge can be compared with an unseen one: all edges of one kind have an isolated end, and none of "
                "the other"
            )
            return
        self.matching = self.task.match(self.deleted, self.unseen, self.original, self.data, by_surroundings)
        self._elements = torch.cat([self.deleted.to(self.unseen.device), self.unseen], dim=-1)
        self._unmarked: list[float] | None = None
        self._neighbors: Tensor | None = None
        if self.task.pairwise:
            self._beside = beside(self._elements, self.unseen)
            with suppress(GraphError):  # no negatives can be drawn
                self._near = self.task.validation_near(self.data, ends_of(self.deleted).unique())

    def _learn(self, new_labels: Tensor) -> None:
        """Compare corrected nodes, by the score of their new class, with training nodes of that class: they should be alike.

        Training nodes stand where deleted elements do, so that the AUC falls to 0.5 as the new labels are learned.
        """
        assert self.task is not None
        self.original, learned = self.data, self.task.learned(self.data)
        nodes = new_labels[0].to(learned.device)
        same = torch.isin(self.task.classes(self.data, learned), new_labels[1].to(learned.device))
        self.deleted = learned[same & ~torch.isin(learned, nodes)]
        self.unseen = nodes
        if not self.deleted.numel():
            self.missing = "no other node of the new class is trained on"
            return
        self.matching = self.task.match(self.deleted, self.unseen, self.data, self.data, self._by_surroundings)
        self._elements = torch.cat([self.deleted, self.unseen])
        self._unmarked = None

    def trial(self, lam: float, model: nn.Module, output: Any, presented: Any) -> Trial:
        """Measure one lam by the model's output on the remaining graph, and by the one where deleted elements are asked."""
        auc, se, utility, near, mark, mrr = None, None, None, None, None, None
        if self.task is not None:
            with suppress(GraphError):  # there is nothing to validate on
                utility = self.task.validate(model, output, self.data)
            if self._lists is not None and self.task.validates(self.data):
                edges = draw(self.task.unseen(self.data, "validation"), RANKED_LIMIT, torch.Generator().manual_seed(0))
                mrr = float((1 / self._lists.ranks(partial(self.task.predict, model, output), edges)).mean())
        if self.task is not None and not self.missing:
            data = self.original if self.presented else self.data
            self.task.check_output(presented, data)
            scores = self.task.scores(partial(self.task.predict, model, presented), data, self._elements)
            bad = int((~torch.isfinite(scores)).sum())
            if bad:
                raise ModelError(
                    f"{bad} of {scores.numel()} answers about deleted and unseen elements are NaN or infinite",
                    "check the model's weights and features",
                )
            test = self.matching.test(*scores.split([self.deleted.size(-1), self.unseen.size(-1)]))
            auc, se = test.auc, test.standard_error
            if self.corrected is not None:  # these very nodes are meant, and not others like them
                se = min(se, CORRECTED_WITHIN)
            near = None if self._near is None else self._near.validate(model, output, self.data)
            if self.task.pairwise:
                spread = self.task.scores(partial(self.task.predict, model, presented), data, self._beside)
                mark = self._mark(spread.view(2, self._elements.size(1), -1), presented)
            elif self._still_served:
                mark = self._mark_of_classes(self.task.predict(model, presented, self._elements))
        return Trial(lam, auc, se, utility, near, mark, mrr)

    def _mark(self, scores: Tensor, output: Any) -> float:
        """How much better anything that is seen of their ends alone tells deleted edges than at lam 0; 0 where it is no better.

        That is the spread of the ends' scores with other nodes, and where the model gives rows of nodes, their length and how
        like those of their neighbours they are. A map that is too strong draws the ends together: their deleted edges then
        score like unseen ones, and all their other edges lose as much, so that the ends can be recognised.
        """
        seen = [scores.double().std(dim=2).clamp(min=1e-12).log().sum(dim=0)]
        if isinstance(output, Tensor) and output.dim() == 2 and output.size(0) == self._table.num_nodes:
            ends, place = ends_of(self._elements).unique(return_inverse=True)
            length, _, _, alike = row_features(output.detach().double(), ends, self._edges_at(ends))
            seen += [part[place].sum(dim=0) for part in (length.clamp(min=1e-12).log(), alike)]
        parts = [self.deleted.size(-1), self.unseen.size(-1)]
        found = [self.matching.test(*part.split(parts)).auc for part in seen]
        if self._unmarked is None:  # the first trial is lam 0
            self._unmarked = found
        told = [abs(one - 0.5) - abs(first - 0.5) for one, first in zip(found, self._unmarked, strict=True)]
        return max(0.0, *told)

    def _edges_at(self, nodes: Tensor) -> Tensor:
        """Remaining edges at some nodes, a sample of them where there are many."""
        if self._neighbors is None:
            edges = self.data.edge_index
            near = edges[:, torch.isin(edges[1], nodes) & (edges[0] != edges[1])]
            self._neighbors = draw(near, EDGE_LIMIT, torch.Generator().manual_seed(0))
        return self._neighbors

    def _mark_of_classes(self, chances: Tensor) -> float | None:
        """How well answers alone tell nodes with deleted labels from unseen ones, beyond lam 0.

        What was remembered is answered more surely than unseen nodes are, and forgetting it brings it among these. A map that
        is too strong gives all of them answers that no other node gets.
        """
        if min(self.deleted.size(-1), self.unseen.size(-1)) < TOLD_MINIMUM:
            return None
        answers = chances.double().clamp(min=1e-9).log()
        found = tell_by_quadratics(answers.cpu().numpy(), self.deleted.size(-1))
        if self._untold is None:  # the first trial is lam 0
            self._untold = max(found.auc, 0.5) + found.standard_error
        return max(found.auc - self._untold, 0.0)

    def remarks(self) -> list[str]:
        """Sentences about the comparison itself, for the note of a calibration."""
        if self.task is None or self.missing:
            return []
        found = []
        if self._by_surroundings and self.matching.matched < FEW_MATCHED:
            found.append(
                f"Only {self.matching.matched:.0%} of the deleted {self.task.noun}s have unseen ones to compare with; lam was "
                "chosen by these."
            )
        if self.corrected is not None:
            return found
        if overlap := self.task.count_overlap(self.unseen, self.original, self._table):
            found.append(self.task.overlap_sentence(overlap))
        return [*found, self.matching.how] if self.matching.how else found


def beside(edges: Tensor, unseen: Tensor) -> Tensor:
    """Each edge with its second end replaced by those of some unseen edges, and then with its first end replaced."""
    count = max(4, min(PARTNERS, PARTNER_LIMIT // edges.size(1)))
    chosen = torch.randint(unseen.size(1), (count,), generator=torch.Generator().manual_seed(0)).to(unseen.device)
    second = edges.repeat_interleave(count, dim=1)
    first = second.clone()
    second[-1], first[0] = unseen[-1, chosen].repeat(edges.size(1)), unseen[0, chosen].repeat(edges.size(1))
    return torch.cat([second, first], dim=1)


def comparable_edges(context: Context, deleted: Tensor, unseen: Tensor) -> Tensor:
    """The unseen edges to compare deleted ones with; none where only one of the two kinds has isolated ends.

    Unseen edges of which the deletion isolated an end are left out, unless there are no others: the operator that moves the
    deleted edges moves these, too, so their comparison says the same at every lam.
    """
    is_isolated = degrees(context.remaining) == 0
    lost_last_edge = is_isolated & (degrees(context.data) > 0)
    unmoved = ~lost_last_edge[ends_of(unseen).to(is_isolated.device)].any(dim=0).to(unseen.device)
    if bool(unmoved.any()):
        unseen = unseen[:, unmoved]
    one, other = (is_isolated[ends_of(part).to(is_isolated.device)].any(dim=0) for part in (deleted, unseen))
    return unseen if bool((one.any() & other.any()) | (~one.all() & ~other.all())) else unseen[:, :0]
