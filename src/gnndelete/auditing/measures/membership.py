"""The shadow membership attack (Olatunji et al. 2021): was this edge, or this node, among the training data?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.edges import link_edges
from gnndelete.auditing.measures.attack import ASKED, FEW, Attack, Floats, answer, unavailable
from gnndelete.auditing.measures.forgetting import NO_FEATURE_SCORE, NO_LINK_LABEL, NO_OTHER_SCORE
from gnndelete.auditing.measures.shadow import Shadow
from gnndelete.auditing.samples import labels
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.edge_table import ends_of
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification

EDGE = (
    "Input: the logarithms of [1-p,\u00a0p] in double precision, p the probability of the edge; p itself rounds to 1 for sure "
    "edges. Present: edges the shadow was trained on, absent: edges held out from it."
)
NODE = (
    "Input: the logarithms of the class probabilities, largest first, and the log-odds of the true label, which the "
    "attacker is taken to know. Present: nodes the shadow was trained on, absent: training nodes whose labels were held "
    "out from it."
)
GRAPH = NODE.replace("nodes", "graphs")
SERVED = "Each model is asked on the graph it is served on: the original one before, the remaining one after."
AGAIN = (
    "Deleted nodes are blank in the graph as served, so that every model is asked on the original graph, where they are "
    "presented again under their old ids."
)
KEPT = "Every model is asked on the original graph, where what was deleted of these nodes is presented again under their old ids."
OWN_MESSAGES = (
    "Their edges carry messages there, which the test edges do not: even a model that never saw them answers above 0.5, so "
    "read the retrained model's value beside it."
)
#: An attack below WEAK on its own shadow proves little; a model below BELOW says of deleted elements too firmly "never seen".
WEAK, BELOW = 0.53, 0.4


@dataclass(frozen=True)
class _Question:
    """What is asked: deleted elements against test elements, and whether the original graph is put in front of the model."""

    deleted: Tensor
    test: Tensor
    again: bool
    word: str


def membership(case: Case, shadow: Shadow) -> dict[str, Any]:
    """Train the attack on the shadow's answers and ask it about deleted and test elements, model by model.

    ``auc`` is that of the presence probability, deleted against test elements; ``mi_ratio`` the paper's: mean presence
    probability of the deleted elements before over after, above 1 where less is left.
    """
    question = _question(case)
    if isinstance(question, str):
        return unavailable(question)
    if shadow.subject is None:
        return unavailable(shadow.reason)
    present, absent = (_features(case, shadow.subject, part) for part in (shadow.present, shadow.absent))
    attack = Attack(present, absent, case.seed)
    found: dict[str, Any] = {"before": None, "after": None, "reference": None}
    for name, subject in case.subjects.items():
        asked = _presented(case, subject) if question.again else subject
        if asked is not None:
            parts = (attack.presence(_features(case, asked, part)) for part in (question.deleted, question.test))
            found[name] = answer(*parts)
    if found["after"] is None:
        return unavailable(
            f"method '{case.unlearned.method}' keeps no model of its own, and deleted nodes can only be presented again "
            "to a model; use a method that keeps yours"
        )
    form = "edge" if isinstance(case.task, LinkPrediction) else case.task.name
    again = AGAIN.replace("nodes", "graphs") if form == "graph" else AGAIN if case.deletion.nodes.numel() else KEPT
    graph = SERVED if not question.again else again if form != "edge" else f"{again} {OWN_MESSAGES}"
    what = " ".join([shadow.what, {"edge": EDGE, "node": NODE, "graph": GRAPH}[form], graph])
    result = {
        "available": True,
        "form": form,
        "elements": question.word,
        "counts": {"deleted": question.deleted.size(-1), "test": question.test.size(-1)},
        "shadow": {"auc": attack.quality, "seconds": shadow.seconds, "what": what},
        **found,
        "mi_ratio": _ratio(found["before"], found["after"]),
        "mi_ratio_reference": _ratio(found["before"], found["reference"]),
    }
    return {**result, "sentence": _sentence(result)}


def _question(case: Case) -> _Question | str:
    """Which elements are asked about; a sentence where there is nothing to ask."""
    deletion, task = case.deletion, case.task
    if isinstance(task, LinkPrediction):
        if task.test is None:
            return "there are no test edges to compare deleted edges with; pass LinkPrediction(test=…)"
        if deletion.edges.size(1) and not case.asked_edges.size(1):
            return NO_OTHER_SCORE
        if not deletion.edges.size(1) and not deletion.nodes.numel():
            return NO_FEATURE_SCORE if deletion.features.size(1) else NO_LINK_LABEL
        again, word, deleted = False, "deleted edges", case.asked_edges
        deleted = deleted[
            :, ~torch.isin(ends_of(deleted), deletion.nodes).any(dim=0)
        ]  # others have a blank end as served
        if not deleted.size(1):
            edges = (task.learned if task.relation else link_edges)(case.original).cpu()
            deleted = edges[:, torch.isin(ends_of(edges), deletion.nodes).any(dim=0)]
            again, word = True, "edges of deleted nodes"
        test = task.test.positives
    elif isinstance(task, NodeClassification):
        if not case.asked_nodes.numel():
            return (
                "only edges were deleted, and a node classifier gives edges no score; the trend attack asks about them, or "
                "audit a link model"
            )
        trained = task.part(case.original, "train").cpu()
        again, word, deleted = True, "deleted training nodes", case.asked_nodes[trained[case.asked_nodes]]
        if not deletion.nodes.numel():
            word = f"training nodes without their {'features' if deletion.features.size(1) else 'labels'}"
        try:
            test = task.part(case.remaining, "test").nonzero().flatten()
        except GNNDeleteError as error:
            return f"there are no test nodes to compare deleted nodes with: {error}"
    elif isinstance(task, GraphClassification):
        if not deletion.graphs.numel():
            return "edges or nodes within graphs were deleted, and a graph classifier gives them no score"
        trained = task.part(case.original, "train").cpu()
        again, word, deleted = True, "deleted training graphs", deletion.graphs[trained[deletion.graphs]]
        try:
            test = task.part(case.remaining, "test").nonzero().flatten()
        except GNNDeleteError as error:
            return f"there are no test graphs to compare deleted graphs with: {error}"
    else:
        return f"a '{task.name}' task has no form of this attack yet"
    if not deleted.size(-1) or not test.size(-1):
        return f"there are {deleted.size(-1)} {word} and {test.size(-1)} test elements, and both are needed to compare"
    return _Question(_some(case, deleted, 11), _some(case, test, 12), again, word)


def _some(case: Case, elements: Tensor, offset: int) -> Tensor:
    pick = torch.randperm(elements.size(-1), generator=case.generator(offset))[:ASKED]
    return elements.cpu()[..., pick]


def _presented(case: Case, subject: Subject) -> Subject | None:
    """The same model in front of the original graph; None where there is no model to put there."""
    if subject.graph is case.original:
        return subject
    if subject.model is None:
        return None
    return Subject.of_model(subject.name, subject.model, case.original, case.task, case.forward)


def _features(case: Case, subject: Subject, elements: Tensor) -> Floats:
    """What the attacker reads off the answers, in double precision and in logarithms, so that sure answers still differ."""
    answers = subject.predict(elements.to(subject.graph.edge_index.device)).detach().double().cpu()
    if isinstance(case.task, LinkPrediction):
        features = torch.nn.functional.logsigmoid(torch.stack([-answers, answers], dim=1))
    else:
        chances = answers.clamp(min=1e-30)
        true = labels(case)[elements.cpu()].view(-1, 1)
        # 1 - p as the sum of the other classes keeps the digits that the difference would lose
        rest = chances.scatter(1, true, 0.0).sum(dim=1, keepdim=True).clamp(min=1e-30)
        odds = chances.gather(1, true).log() - rest.log()
        features = torch.cat([chances.sort(dim=1, descending=True).values.log(), odds], dim=1)
    return features.numpy()


def _ratio(before: dict[str, Any] | None, after: dict[str, Any] | None) -> float | None:
    if before is None or after is None or not after["mean"] > 0:
        return None
    return float(before["mean"] / after["mean"])


def _sentence(result: dict[str, Any]) -> str:
    before, after, reference = (result[name] for name in ("before", "after", "reference"))
    parts = [f"The attack tells {result['elements']} from test elements with AUC {after['auc']:.3f} after the deletion"]
    parts += [f"{before['auc']:.3f} before it"] if before else []
    parts += [f"{reference['auc']:.3f} for the retrained model"] if reference else []
    text = ", ".join(parts) + " (0.5: cannot tell)."
    if result["mi_ratio"] is not None:
        text += f" MI ratio {result['mi_ratio']:.2f}"
        if result["mi_ratio_reference"] is not None:
            text += f", retrained {result['mi_ratio_reference']:.2f}"
        text += " (above 1: less is left)."
    if after["same"]:
        text += (
            f" After the deletion every element gets the same answer ({after['mean']:.3f}): that AUC measures nothing."
        )
    if after["auc"] < BELOW:
        text += " Well below 0.5 they stand out from below: suppressed, and recognisable as such."
    if result["counts"]["deleted"] < FEW:
        text += f" With {result['counts']['deleted']} {result['elements']} this is an anecdote, not a measurement."
    if result["shadow"]["auc"] < WEAK:
        text += f" The attack hardly works on its own shadow (AUC {result['shadow']['auc']:.3f}), so it proves little."
    return text
