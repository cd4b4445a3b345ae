"""The trend attack (WSDM 2026): do nodes beside a deleted edge betray it by a dip in the model's confidence?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.edges import link_edges
from gnndelete.auditing.measures.attack import ASKED, FEW, LEARNT, LEAST, Attack, Floats, answer, unavailable
from gnndelete.auditing.measures.shadow import Shadow
from gnndelete.datasets.forget import training_edges
from gnndelete.datasets.negatives import NegativeSampler
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import count_nodes
from gnndelete.methods import CONTROLS, Method, resolver
from gnndelete.tasks import LinkPrediction
from gnndelete.tasks.base import representation
from gnndelete.unlearner import Unlearner

WHAT = (
    "Asked on the graph as served: was there an edge between these two nodes? Deleted edges against pairs that never were "
    "edges. The attack reads how similar the model's outputs at the two ends are, and two bits for each end: is its "
    "confidence c below the mean c1 of its neighbours, and c1 below the two-step mean c2 (the neighbours' c1 averaged). {c} "
    "It learns from the shadow model of the membership attack after {count} of its own edges were deleted by the same "
    "method. Deleted edges join similar nodes whatever the model has seen, so the AUC is high for a retrained model too: "
    "only the gap to it counts."
)
CLASSES = "c is the largest class probability."
LINKS = (
    "A link model has no class probabilities; here c is the mean probability the model gives to a node's own remaining "
    "edges, a construction of this library."
)
#: Columns of `_similarity` and `trend_bits`.
BITS = 4


def trend(case: Case, shadow: Shadow) -> dict[str, Any]:
    """Unlearn a part of the shadow by the same method, learn how its deleted edges look, and ask about the real ones.

    ``without_bits`` are the AUCs of the same attack on similarity alone: what the trend itself adds is the difference.
    """
    reason = _reason(case, shadow)
    if reason:
        return unavailable(reason)
    assert shadow.subject is not None
    deleted = ends_of(case.deletion.edges)  # of a triple the attack looks at its ends
    deleted = deleted[:, ~torch.isin(deleted, case.deletion.nodes).any(dim=0)]
    deleted = deleted[:, torch.randperm(deleted.size(1), generator=case.generator(21))[:ASKED]]
    try:
        unlearned, own = _unlearned_shadow(case, shadow.subject)
        learnt, asked = _non_edges(case, min(own.size(1), LEARNT), min(max(deleted.size(1), 200), ASKED))
        examples = [_features(case, unlearned, pairs) for pairs in (own, learnt)]
        questions = {
            name: [_features(case, subject, pairs) for pairs in (deleted, asked)]
            for name, subject in case.subjects.items()
            if subject.model is not None
        }
    except GNNDeleteError as error:
        return unavailable(f"the shadow could not be unlearned by the same method: {error}")
    attack = Attack(examples[0], examples[1], case.seed, keep=BITS)
    plain = Attack(examples[0][:, :-BITS], examples[1][:, :-BITS], case.seed)
    found: dict[str, Any] = {"before": None, "after": None, "reference": None}
    without: dict[str, float | None] = dict.fromkeys(found)
    for name, (present, absent) in questions.items():
        found[name] = answer(attack.presence(present), attack.presence(absent))
        without[name] = answer(plain.presence(present[:, :-BITS]), plain.presence(absent[:, :-BITS]))["auc"]
    c = LINKS if isinstance(case.task, LinkPrediction) else CLASSES
    return {
        "available": True,
        **found,
        "without_bits": without,
        "shadow": {"auc": attack.quality, "without_bits": plain.quality},
        "counts": {"deleted": deleted.size(1), "non_edges": asked.size(1)},
        "sentence": _sentence(found, without, deleted.size(1)),
        "what": WHAT.format(c=c, count=own.size(1)),
    }


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
    """The mean over a node's neighbours in either direction, self-loops left out; alone, a node keeps its own value."""
    ends = edge_index[:, edge_index[0] != edge_index[1]]
    source, target = torch.cat([ends, ends.flip(0)], dim=1)
    return _mean_at(target, values[source], values)


def _mean_at(place: Tensor, values: Tensor, otherwise: Tensor) -> Tensor:
    total = torch.zeros_like(otherwise).index_add_(0, place, values)
    count = torch.zeros_like(otherwise).index_add_(0, place, torch.ones_like(values))
    return torch.where(count > 0, total / count.clamp(min=1), otherwise)


def _reason(case: Case, shadow: Shadow) -> str:
    """Why there is nothing to ask, or nobody; empty where there is."""
    edges = ends_of(case.deletion.edges)
    if isinstance(case.original, HeteroGraph):
        return (
            "the attack compares the two ends of an edge, and node types have representations that are not comparable"
        )
    if case.task.name == "graph":
        return "a graph classifier answers for graphs, and the attack reads how sure a model is about single nodes"
    if not edges.size(1) and not case.deletion.nodes.numel():
        return "the attack is about deleted edges, and the request names none"
    if not edges.size(1) or bool(torch.isin(edges, case.deletion.nodes).any(dim=0).all()):
        return (
            "no edge was deleted between nodes that are still there; deleted nodes are blank in the graph as served, and "
            "their edges leave no end to look at"
        )
    if case.unlearned.model is None:
        return (
            f"method '{case.unlearned.method}' keeps no model, and the attack reads representations; it answers only "
            "through predict"
        )
    return shadow.reason if shadow.subject is None else ""


def _unlearned_shadow(case: Case, shadow: Subject) -> tuple[Subject, Tensor]:
    """The shadow after a part of its edges was deleted, on its own remaining graph, and those edges."""
    assert shadow.model is not None
    method = _same_method(case)
    edges = (link_edges if isinstance(case.task, LinkPrediction) else training_edges)(shadow.graph)
    share = case.deletion.edges.size(1) / max(training_edges(case.original).size(1), 1)
    # as large a part as the real request, but enough to learn from; never so much that the graph falls apart
    count = min(max(round(share * edges.size(1)), 200), edges.size(1) // 5)
    if count < LEAST:
        raise GNNDeleteError(f"{edges.size(1)} edges are too few to delete some and learn from them")
    own = edges[:, torch.randperm(edges.size(1), generator=case.generator(22)).to(edges.device)[:count]]
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
    result = unlearner.delete(Deletion(edges=own))
    assert result.model is not None
    assert result.data is not None
    return Subject.of_model("shadow", result.model, result.data, case.task, case.forward), ends_of(own).cpu()


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
    """Pairs that are no edges of any part, drawn together so that no pair serves twice."""
    known = [case.original.edge_index.cpu()]
    if isinstance(case.task, LinkPrediction):
        known += [ends_of(part.positives.cpu()) for part in (case.task.validation, case.task.test) if part is not None]
        known.append(ends_of(link_edges(case.original).cpu()))
    sampler = NegativeSampler(torch.cat(known, dim=1), count_nodes(case.original), undirected=True)
    total = min(sum(counts), sampler.available)
    if total < 2 * LEAST:
        raise GNNDeleteError(f"the graph has only {total} pairs that are not edges, too few to compare with")
    pairs = sampler.sample(total, case.generator(23), distinct=True)
    sizes = [round(total * count / sum(counts)) for count in counts[:-1]]
    return list(pairs.split([*sizes, total - sum(sizes)], dim=1))


def _features(case: Case, subject: Subject, pairs: Tensor) -> Floats:
    """Similarity of the two ends, then the trend bits of both, the lower pair first, so that direction plays no part.

    Similarities are measured in units of the model's own pairs of neighbours: models differ in scale, not in kind.
    """
    z = representation(subject.output).detach().double().cpu()
    if not isinstance(case.task, LinkPrediction):
        z = z.softmax(dim=-1)
    bits = trend_bits(_confidence(case, subject).cpu(), subject.graph.edge_index.cpu())
    some = training_edges(subject.graph).cpu()
    some = ends_of(some)[:, torch.randperm(some.size(1), generator=case.generator(24))[:LEARNT]]
    unit = _similarity(z, some).abs().mean(dim=0).clamp(min=1e-12)
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


def _confidence(case: Case, subject: Subject) -> Tensor:
    """How sure the model is about each node."""
    graph: Data = subject.graph
    nodes = count_nodes(graph)
    if not isinstance(case.task, LinkPrediction):
        everyone = torch.arange(nodes, device=graph.edge_index.device)
        return subject.predict(everyone).detach().double().max(dim=1).values
    edges = link_edges(graph)
    chance = subject.predict(edges).detach().double().sigmoid()
    average = chance.mean().expand(nodes)  # a node without edges shows neither dip nor peak
    return _mean_at(ends_of(edges).flatten(), chance.repeat(2), average)


def _sentence(found: dict[str, Any], without: dict[str, float | None], count: int) -> str:
    after, reference = found["after"], found["reference"]
    text = f"The trend attack finds deleted edges among pairs that never were edges with AUC {after['auc']:.3f}"
    if reference is not None:
        text += (
            f", and with {reference['auc']:.3f} on the retrained model: a gap of {after['auc'] - reference['auc']:+.3f}"
        )
    text += f". Without the trend bits it reaches {without['after']:.3f}."
    if reference is None:
        text += " Similar nodes look like neighbours to any model; without a retrained reference this says little."
    if count < FEW:
        text += f" With {count} deleted edges this is an anecdote, not a measurement."
    return text
