"""MEGU (AAAI 2024): the model and a small unlearning operator on its logits are trained together, then the operator goes."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gnndelete.errors import RunError, SettingError
from gnndelete.methods._gradients import descend, known_task, loss_reasons, trainable, validation_change
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, check_numbers
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note
from gnndelete.tasks.base import representation

#: The paper's neighbourhood: how far around the deletion nodes hold the model in place.
NEIGHBOR_HOPS = 2


class MEGU(Method):
    """Mutual evolution of the model (logits o) and an operator f = Linear(C, C) behind it; node classification only.

    Minimises ``κ [KD(o_U, f(o)_U) − CE(f(o)_U, p0)] + KD(f(o)_N, o_N) + CE(o_N, p0)``. U are the forgotten nodes, those whose
    features or label are forgotten, and the ends of forgotten edges. N are the other nodes within two hops whose propagated
    features the deletion changes at least as much as on average. p0 are the classes that the original model predicts. Both
    parts are trained by SGD on the graph without the deleted edges; forgotten nodes stay in it as isolated nodes, and
    features that are to be forgotten are still there.

    Predictions come from the updated model alone: f is dropped after training, and the model keeps its class and forward.
    Labels are not smoothed, so none of U can leak through them. Everything runs in evaluation mode: dropout is off and
    running statistics do not change. All requests so far are served together, from the user's weights.

    Args:
        kappa: Weight κ of forgetting against the neighbours.
        temperature: Temperature of the distillation KD.
        lr: Learning rate of SGD.
        epochs: Number of steps.

    >>> MEGU().settings()
    {'kappa': 0.01, 'temperature': 1.5, 'lr': 0.05, 'epochs': 30}
    """

    name: ClassVar[str] = "megu"
    assurance: ClassVar[Assurance] = "approximate"
    needs = "a loss"
    summary: ClassVar[str] = "train the classifier against an unlearning operator on its logits"

    def __init__(self, kappa: float = 0.01, temperature: float = 1.5, lr: float = 0.05, epochs: int = 30) -> None:
        self.kappa = kappa
        self.temperature = temperature
        self.lr = lr
        self.epochs = epochs

    def check(self) -> None:
        if not self.kappa >= 0:
            raise SettingError(f"'kappa' must not be negative (got {self.kappa!r})")
        check_numbers(self, positive=("temperature", "lr"), whole=("epochs",))

    def unfit(self, context: Context) -> list[Reason]:
        task = context.task
        if task is not None and (task.pairwise or not task.on_nodes):
            why = f"it is defined on class predictions of nodes, and the task is '{task.name}'"
            return [Reason(why, "use method='gif'" if task.pairwise else "use method='gnndelete' or method='retrain'")]
        return loss_reasons(context)

    def unlearn(self, context: Context) -> Outcome:
        model = working_copy(context.model)
        weights = trainable(model)
        forward, graph = context.session.forward, _forgetting_graph(context)
        device = context.data.edge_index.device
        forgotten = context.deletion.named_nodes.to(device)
        near = influenced(context, forgotten)
        with evaluating(model):
            known = known_task(context).logits(forward(model, context.data), context.data).argmax(dim=-1)
            logits = representation(forward(model, graph))
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(context.seed)
                operator = nn.Linear(logits.size(1), logits.size(1))
            operator = operator.to(logits)
            together = [*weights, *operator.parameters()]
            optimizer = torch.optim.SGD(together, lr=self.lr)
            with torch.enable_grad():
                for _ in range(self.epochs):
                    loss = self._loss(representation(forward(model, graph)), operator, known, forgotten, near)
                    descend(loss, together, optimizer)
            after = representation(forward(model, graph))
        if not bool(torch.isfinite(after).all()):
            raise RunError(
                f"the model's outputs are no longer finite; lower 'lr' (now {self.lr}) or 'kappa' (now {self.kappa})"
            )
        details: dict[str, Any] = {
            "forgotten": forgotten.numel(),
            "neighbors": near.numel(),
            "confidence_before": _confidence(logits, known, forgotten),
            "confidence_after": _confidence(after, known, forgotten),
        }
        remedy = f"Lower 'lr' (now {self.lr}) or 'epochs' (now {self.epochs}), or train again."
        scores, fallen = validation_change(model, context, remedy)
        return Outcome(
            model=model,
            parameters=sum(p.numel() for p in together),
            notes=(*_notes(details), *fallen),
            details=details | scores,
        )

    def _loss(self, o: Tensor, operator: nn.Module, known: Tensor, forgotten: Tensor, near: Tensor) -> Tensor:
        f = operator(o)
        away = self._distance(o[forgotten], f[forgotten]) - F.cross_entropy(f[forgotten], known[forgotten])
        if not near.numel():
            return self.kappa * away
        keep = self._distance(f[near], o[near]) + F.cross_entropy(o[near], known[near])
        return self.kappa * away + keep

    def _distance(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Knowledge distillation; gradients reach both sides, since both evolve."""
        t = self.temperature
        scores, wanted = F.log_softmax(student / t, dim=-1), F.softmax(teacher / t, dim=-1)
        return F.kl_div(scores, wanted, reduction="batchmean") * t**2


def influenced(context: Context, forgotten: Tensor) -> Tensor:
    """The nodes within two hops whose propagated features P²x the deletion changes at least as much as their mean.

    Without dense features there is nothing to rank by, and all of them are taken.
    """
    rings = context.session.neighborhood("undirected").rings(forgotten, NEIGHBOR_HOPS)
    near = torch.cat(rings[1:]).sort().values
    x = context.data.get("x")
    if not near.numel() or not isinstance(x, Tensor) or x.layout != torch.strided or not x.is_floating_point():
        return near
    change = (_propagated(context.data) - _propagated(context.remaining))[near].flatten(1).norm(dim=1)
    return near[change >= change.mean()]


def _propagated(data: Data) -> Tensor:
    edges, weight = gcn_norm(data.edge_index, num_nodes=data.x.size(0), dtype=data.x.dtype)
    P = torch.sparse_coo_tensor(edges.flip(0), weight, (data.x.size(0),) * 2, check_invariants=False)
    x = data.x.flatten(1)
    for _ in range(NEIGHBOR_HOPS):
        x = P @ x
    return x


def _forgetting_graph(context: Context) -> Data:
    """Edges as they remain, nodes as they were: a forgotten node is isolated and has its features."""
    graph = context.data.__copy__()
    for name in context.data.to_dict():
        if context.data.is_edge_attr(name):
            graph[name] = context.remaining[name]
    graph.num_nodes = context.session.table.num_nodes
    return graph


def _confidence(logits: Tensor, known: Tensor, nodes: Tensor) -> float:
    return float(logits[nodes].softmax(dim=-1).gather(1, known[nodes].unsqueeze(1)).mean())


def _notes(details: dict[str, Any]) -> tuple[Note, ...]:
    before, after = details["confidence_before"], details["confidence_after"]
    text = (
        f"The probability of their old classes went from {before:.3f} to {after:.3f} for {details['forgotten']} forgotten nodes "
        f"or endpoints; {details['neighbors']} neighbours held the model in place."
    )
    notes = [Note("confidence-change", text)]
    if after >= before:
        text = "They are no less certain than before: the neighbours pull harder than 'kappa'. Raise it."
        notes.append(Note("confidence-not-fallen", text))
    if not details["neighbors"]:
        text = "The forgotten elements have no neighbours, so nothing held the model in place."
        notes.append(Note("no-neighbors", text))
    return tuple(notes)
