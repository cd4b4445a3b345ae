"""The trend attack (WSDM 2026): do nodes next to a deleted edge betray it by a dip in the model's confidence?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.formatting import number
from gnndelete.auditing.measures.attack import (
    EXAMPLE_LIMIT,
    EXAMPLE_MINIMUM,
    QUESTION_LIMIT,
    QUESTION_MINIMUM,
    Attack,
    AttackResult,
    trained_shadow,
)
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Row, Table, row
from gnndelete.auditing.measures.membership import AttackSection, several
from gnndelete.datasets.forget import training_edges
from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import count_nodes
from gnndelete.methods import CONTROLS, Method, resolver
from gnndelete.metrics.ranking import Floats
from gnndelete.tasks.base import representation
from gnndelete.unlearner import Unlearner

WHAT = (
    "The question, on the graph as served: was there an edge between these two nodes? Deleted edges are compared with pairs that "
    "never were edges. The attack reads how similar the model's outputs at the two ends are, and two bits for each end: is its "
    "confidence c below the mean c1 of its neighbours, and is c1 below the mean of c1 over its neighbours. {confidence} "
    "It learns from the shadow model of the membership attack after {count} of the shadow's edges were deleted by the same "
    "method. Deleted edges join similar nodes whatever the model has seen, so the AUC is high for a retrained model too: "
    "only the gap to it counts."
)
CLASS_CONFIDENCE = "c is the largest class probability."
LINK_CONFIDENCE = (
    "A link model has no class probabilities. Here c is the mean probability that it gives to the remaining edges of a node, "
    "a construction of this library."
)
#: Columns of the features that are trend bits: two for each end.
TREND_BITS = 4
#: The least number of edges that are deleted from the shadow, unless that is more than a fifth of its edges.
SHADOW_DELETION = 200


@dataclass(frozen=True, kw_only=True)
class TrendSection(AttackSection):
    """The attack on deleted edges against pairs without an edge.

    Args:
        without_bits: The AUC of the same attack on similarity alone; the trend adds the difference.
        shadow: The AUC of both attacks on the shadow model itself.
    """

    without_bits: PerModel[float]
    shadow: dict[str, float]

    def tables(self, names: Names) -> Iterable[Table]:
        rows = (*self.result_rows(names), row("AUC without the trend", self.without_bits, names))
        caption = f"On the shadow model itself the attack reaches an AUC of {number(self.shadow['auc'])}."
        yield Table(("attack on deleted elements", *names.values()), rows, caption)

    def key_rows(self, names: Names) -> Iterable[Row]:
        title = "Trend attack, AUC against pairs without an edge"
        yield row(title, self.results, names, lambda result: number(result and result.auc))


class Trend(Measure):
    """Delete a part of the shadow's edges by the same method, learn how they look, and ask about the real deleted edges."""

    name: ClassVar[str] = "trend"
    title: ClassVar[str] = "Trend attack"
    attack: ClassVar[bool] = True

    def run(self, case: Case) -> TrendSection:
        _require_edges(case)
        _, shadow = trained_shadow(case)
        deleted = ends_of(case.deletion.edges)
        deleted = deleted[:, ~torch.isin(deleted, case.deletion.nodes).any(dim=0)]
        deleted = case.sample(deleted, QUESTION_LIMIT, 21)
        try:
            unlearned, shadow_deleted = _unlearned_shadow(case, shadow)
            counts = (
                min(shadow_deleted.size(1), EXAMPLE_LIMIT),
                min(max(deleted.size(1), SHADOW_DELETION), QUESTION_LIMIT),
            )
            example_pairs, question_pairs = _non_edges(case, *counts)
            examples = [_features(case, unlearned, pairs) for pairs in (shadow_deleted, example_pairs)]
            questions = {
                name: [_features(case, subject, pairs) for pairs in (deleted, question_pairs)]
                for name, subject in {**case.subjects, **case.references}.items()
                if subject.model is not None
            }
        except GNNDeleteError as error:
            raise NotMeasuredError(f"the shadow could not be unlearned by the same method: {error}") from error
        attack = Attack(examples[0], examples[1], case.seed, bits=TREND_BITS)
        plain = Attack(examples[0][:, :-TREND_BITS], examples[1][:, :-TREND_BITS], case.seed)
        found: dict[str, Any] = {
            name: AttackResult.of(*(attack.presence(part) for part in parts)) for name, parts in questions.items()
        }
        without = {
            name: AttackResult.of(*(plain.presence(part[:, :-TREND_BITS]) for part in parts)).auc
            for name, parts in questions.items()
            if name in case.subjects
        }
        confidence = LINK_CONFIDENCE if case.task.pairwise else CLASS_CONFIDENCE
        section = TrendSection(
            **several(case, found),
            without_bits=PerModel(**without),
            shadow={"auc": attack.quality, "without_bits": plain.quality},
            counts={"deleted": deleted.size(1), "non_edges": question_pairs.size(1)},
            what=WHAT.format(confidence=confidence, count=shadow_deleted.size(1)),
        )
        return replace(section, sentence=_sentence(section))


def trend_bits(confidence: Tensor, edge_index: Tensor) -> Tensor:
    """``[c < c1, c1 < c2]`` of every node, as 0 and 1; a node without neighbours has two zeros. O(edges).

    >>> path = torch.tensor([[0, 1], [1, 2]])
    >>> trend_bits(torch.tensor([0.9, 0.1, 0.9]), path).tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    first = neighbor_mean(confidence, edge_index)
    second = neighbor_mean(first, edge_index)
    return torch.stack([confidence < first, first < second], dim=1).long()


def neighbor_mean(values: Tensor, edge_index: Tensor) -> Tensor:
    """The mean over a node's neighbours in either direction, self-loops left out. An isolated node keeps its own value."""
    ends = edge_index[:, edge_index[0] != edge_index[1]]
    source, target = torch.cat([ends, ends.flip(0)], dim=1)
    total = torch.zeros_like(values).index_add_(0, target, values[source])
    count = torch.zeros_like(values).index_add_(0, target, torch.ones_like(values[source]))
    return torch.where(count > 0, total / count.clamp(min=1), values)


def _require_edges(case: Case) -> None:
    """Raise `NotMeasuredError` where there is no deleted edge to ask about, or no model with rows of nodes."""
    edges = ends_of(case.deletion.edges)
    if isinstance(case.original, HeteroGraph):
        raise NotMeasuredError(
            "the attack compares the two ends of an edge, and the rows of different node types do not compare"
        )
    if case.task.confidence(case.after.predict, case.after.graph) is None:
        raise NotMeasuredError(
            "the attack reads how sure a model is about single nodes, and this one answers for whole graphs"
        )
    if not edges.size(1) and not case.deletion.nodes.numel():
        raise NotMeasuredError("the attack is about deleted edges, and none was deleted")
    if not edges.size(1) or bool(torch.isin(edges, case.deletion.nodes).any(dim=0).all()):
        raise NotMeasuredError(
            "no edge was deleted between nodes that remain; the attack looks at both ends of an edge"
        )
    if case.unlearned.model is None:
        raise NotMeasuredError(
            f"method '{case.unlearned.method}' keeps no model, and the attack reads representations; it answers only through "
            "predict"
        )


def _unlearned_shadow(case: Case, shadow: Subject) -> tuple[Subject, Tensor]:
    """The shadow after a part of its edges was deleted, and those edges."""
    assert shadow.model is not None
    method = _same_method(case)
    edges = case.task.learned_once(shadow.graph) if case.task.pairwise else training_edges(shadow.graph)
    share = case.deletion.edges.size(1) / max(training_edges(case.original).size(1), 1)
    # as large a share as the real request, but enough to learn from, and never so much that the graph falls apart
    count = min(max(round(share * edges.size(1)), SHADOW_DELETION), edges.size(1) // 5)
    if count < EXAMPLE_MINIMUM:
        raise GNNDeleteError(f"{edges.size(1)} edges are too few to delete some and learn from them")
    chosen = case.sample(edges, count, 22)
    unlearner = Unlearner(
        shadow.model,
        shadow.graph,
        task=case.task,
        method=method,
        forward=case.forward,
        fit=case.fit,
        build=case.build,
        seed=case.seed,
    )
    result = unlearner.delete(Deletion(edges=chosen))
    assert result.model is not None
    assert result.data is not None
    return Subject.of_model("shadow", result.model, result.data, case.task, case.forward), ends_of(chosen).cpu()


def _same_method(case: Case) -> Method:
    """The method of the audited deletion again, with the strength it actually used."""
    name, settings = case.unlearned.method, dict(case.unlearned.settings)
    lam = (case.unlearned.details.get("calibration") or {}).get("lam")
    if lam is not None:
        settings["lam"] = lam
    controls = {control.name: control for control in CONTROLS}
    try:
        kind: type[Method] = controls.get(name) or resolver.lookup(name)
        if kind.needs == "a training function":
            raise GNNDeleteError(f"method '{name}' trains again, and another training is more than an audit may cost")
        method = kind() if name in controls else kind(**settings)
    except (KeyError, TypeError, ValueError) as error:
        raise GNNDeleteError(f"method '{name}' cannot be made again from its settings ({error})") from error
    return method


def _non_edges(case: Case, *counts: int) -> list[Tensor]:
    """Pairs that are edges of no part, drawn together so that no pair is used twice."""
    known = [case.original.edge_index.cpu()]
    if case.task.pairwise:
        known += [ends_of(case.task.unseen(case.original, part).cpu()) for part in ("validation", "test")]
        known.append(ends_of(case.task.learned_once(case.original).cpu()))
    sampler = NegativeSampler(torch.cat(known, dim=1), count_nodes(case.original), undirected=True)
    total = min(sum(counts), sampler.available)
    if total < 2 * EXAMPLE_MINIMUM:
        raise GNNDeleteError(f"the graph has only {total} pairs that are not edges; that is too few to compare with")
    pairs = sampler.sample(total, case.generator(23), distinct=True)
    sizes = [round(total * count / sum(counts)) for count in counts[:-1]]
    return list(pairs.split([*sizes, total - sum(sizes)], dim=1))


def _features(case: Case, subject: Subject, pairs: Tensor) -> Floats:
    """Similarity of the two ends, then the trend bits of both, the lower pair first, so that direction plays no part.

    Similarities are measured in units of the model's own pairs of neighbours: models differ in scale, not in kind.
    """
    z = representation(subject.output).detach().double().cpu()
    if not case.task.pairwise:
        z = z.softmax(dim=-1)
    confidence = case.task.confidence(subject.predict, subject.graph)
    assert confidence is not None
    bits = trend_bits(confidence.cpu(), subject.graph.edge_index.cpu())
    neighbors = case.sample(ends_of(training_edges(subject.graph).cpu()), EXAMPLE_LIMIT, 24)
    unit = _similarity(z, neighbors).abs().mean(dim=0).clamp(min=1e-12)
    ends = bits[pairs[0]], bits[pairs[1]]
    both = torch.cat([torch.minimum(*ends), torch.maximum(*ends)], dim=1)
    return np.asarray(torch.cat([_similarity(z, pairs) / unit, both.double()], dim=1).numpy())


def _similarity(z: Tensor, pairs: Tensor) -> Tensor:
    a, b = z[pairs[0]], z[pairs[1]]
    dot = (a * b).sum(dim=1)
    lengths = a.norm(dim=1), b.norm(dim=1)
    cosine = dot / (lengths[0] * lengths[1]).clamp(min=1e-12)
    correlation = torch.nn.functional.cosine_similarity(
        a - a.mean(dim=1, keepdim=True), b - b.mean(dim=1, keepdim=True)
    )
    return torch.stack([dot, cosine, (a - b).norm(dim=1), (a - b).abs().sum(dim=1), correlation], dim=1)


def _sentence(section: TrendSection) -> str:
    text = f"The trend attack finds deleted edges among pairs that never were edges with AUC {section.after.auc:.3f}"
    if section.reference is not None:
        gap = section.after.auc - section.reference.auc
        text += f", and with {section.reference.auc:.3f} on the retrained model: a gap of {gap:+.3f}"
    text += f". Without the trend bits it reaches {section.without_bits.after:.3f}."
    if section.reference is None:
        text += " Similar nodes look like neighbours to any model, so this says little without a retrained reference."
    if section.counts["deleted"] < QUESTION_MINIMUM:
        text += f" {section.counts['deleted']} deleted edges are an anecdote, not a measurement."
    return text
