"""GIF, graph influence function (WWW 2023): one Newton step for what a deletion takes out of the loss and changes in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndelete.errors import ModelError, RunError, SettingError
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.validation import edge_table
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.methods.gradients import assign, flat, known_task, loss_reasons, trainable
from gnndelete.methods.validation import fall
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task
from gnndelete.tasks.base import representation
from gnndelete.tasks.supervision import SupervisionCache

Product = Callable[[Tensor], Tensor]

_SYMMETRY = 0.02  # how far v·HHv may be from |Hv|², relatively
_MARGIN = 1.5  # of an automatic scale over the estimated spectral norm, which power iteration approaches from below


class GIF(Method):
    """Move the weights to where the loss without the deleted elements would have had its minimum, to first order.

    With ``v = ∇L1 − ∇L2`` (L1: deleted and influenced terms of the loss on the graph, L2: influenced terms on what
    remains), ``H x = v`` is solved by ``h ← v + (1 − damp) h − H h / scale`` and ``x = h / scale`` is added to the weights.
    Influenced are training nodes, or pairs with an end, within ``hops`` hops (one more around deleted nodes; a deleted label
    influences no other term). All losses
    are divided by the number of training terms. ``scale`` must exceed the spectral norm of H, which is estimated by
    power iteration; ``"auto"`` takes 1.5 times the estimate. ``damp * scale`` acts as a ridge on H: a model trained with
    weight decay λ has ``damp = λ / scale``. A link loss has one fixed negative for each edge. Gradients are taken in
    evaluation mode (no dropout, statistics frozen); all requests so far are served together, from the user's weights.

    >>> GIF(scale=500.0).settings()
    {'iterations': 100, 'damp': 0.0, 'scale': 500.0, 'hops': 2}
    """

    name: ClassVar[str] = "gif"
    assurance: ClassVar[Assurance] = "approximate"
    needs = "a loss"
    summary: ClassVar[str] = "one influence-function step on the weights"

    def __init__(
        self, iterations: int = 100, damp: float = 0.0, scale: float | Literal["auto"] = "auto", hops: int = 2
    ) -> None:
        self.iterations = iterations
        self.damp = damp
        self.scale = scale
        self.hops = hops
        if iterations < 1 or hops < 0:
            raise SettingError(
                f"'iterations' must be at least 1 and 'hops' not negative (got {iterations!r} and {hops!r})"
            )
        if not 0 <= damp < 1:
            raise SettingError(f"'damp' must lie between 0 and 1 (got {damp!r})")
        if scale != "auto" and (isinstance(scale, bool) or not isinstance(scale, Real) or not scale > 0):
            raise SettingError(f"'scale' must be 'auto' or a positive number (got {scale!r})")

    def unfit(self, context: Context) -> list[Reason]:
        if isinstance(context.task, GraphClassification):
            why = "what a deletion influences is defined here for terms of links and nodes, not of whole graphs"
            return [Reason(why, "use method='gnndelete' or method='retrain'")]
        return loss_reasons(context)

    def unlearn(self, context: Context) -> Outcome:
        task, model = known_task(context), working_copy(context.model)
        weights = trainable(model)
        terms = loss_terms(context, task)
        touched, deleted = self._touched(context, terms)
        details: dict[str, Any] = {
            "terms": terms.labels.numel(),
            "deleted": int(deleted.sum()),
            "influenced": int((touched & ~deleted).sum()),
        }
        if not bool(touched.any()):
            note = "No training term lies near the deletion, so nothing influences the weights and none was changed."
            return Outcome(model=model, parameters=0, notes=(note,), details=details)
        with evaluating(model), torch.enable_grad():
            v, product = self._problem(context, task, model, weights, terms, touched, deleted)
            theta = flat(weights)
            norm = spectral_norm(product, theta, context.seed)
            scale = self._scale(norm)
            h = v.clone()
            for _ in range(self.iterations):
                h = v + (1 - self.damp) * h - product(h) / scale
            residual = v - self.damp * h - product(h) / scale
        if not bool(torch.isfinite(h).all()):
            raise RunError(
                f"the iteration diverged: the loss curves downwards here (spectral norm {norm:.4g}, scale {scale:.4g}); "
                "raise 'damp', or lower 'iterations'"
            )
        details |= {
            "spectral_norm": norm,
            "scale": scale,
            "residual": float(residual.norm() / v.norm().clamp(min=1e-30)),
            "update_norm": float(h.norm() / scale),
            "weight_norm": float(theta.norm()),
        }
        assign(weights, theta + h / scale)
        scores, fallen = fall(model, context, "Raise 'damp', lower 'iterations', or train again.")
        notes = (*_notes(details), *fallen)
        return Outcome(model=model, parameters=theta.numel(), notes=notes, details=details | scores)

    def _touched(self, context: Context, terms: Terms) -> tuple[Tensor, Tensor]:
        """Which terms are deleted or influenced, and which of them are deleted."""
        deletion, near = context.deletion, context.session.neighborhood("undirected")
        around = torch.zeros(context.session.table.num_nodes, dtype=torch.bool, device=terms.labels.device)
        around[near.within(torch.cat([ends_of(deletion.edges).flatten(), deletion.feature_nodes]), self.hops)] = True
        around[near.within(deletion.nodes, self.hops + 1)] = True
        return around[ends_of(terms.members)].any(dim=0) | terms.deleted, terms.deleted

    def _problem(
        self,
        context: Context,
        task: Task,
        model: nn.Module,
        weights: list[nn.Parameter],
        terms: Terms,
        touched: Tensor,
        deleted: Tensor,
    ) -> tuple[Tensor, Product]:
        """v, and the product of any vector with the Hessian of the whole loss on the graph."""
        output = context.session.forward(model, context.data)
        if isinstance(task, NodeClassification):
            task.logits(output, context.data)  # too few columns are said here, not by an index
        rest = context.session.forward(model, context.remaining)
        v = _slope(terms.loss(task, model, output, touched), weights)
        if not bool((touched == deleted).all()):
            v = v - _slope(terms.loss(task, model, rest, touched & ~deleted), weights)
        whole = terms.loss(task, model, output, torch.ones_like(touched))
        slopes = torch.autograd.grad(whole, weights, create_graph=True, allow_unused=True)
        used = [weight for weight, slope in zip(weights, slopes, strict=True) if slope is not None]
        slope = torch.cat([s.flatten() for s in slopes if s is not None])
        place = torch.cat(
            [
                torch.full_like(w, s is not None, dtype=torch.bool).flatten()
                for w, s in zip(weights, slopes, strict=True)
            ]
        )

        def product(vector: Tensor) -> Tensor:
            result = torch.zeros_like(vector)
            try:
                parts = torch.autograd.grad(slope, used, grad_outputs=vector[place], retain_graph=True)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise _not_smooth(model, str(error)) from error
            result[place] = flat(parts)
            return result

        # a layer that hides part of its second derivative does not raise: its Hessian is just not symmetric
        probe = torch.randn(v.numel(), generator=torch.Generator().manual_seed(context.seed)).to(v)
        once = product(probe)
        if not torch.isclose(product(once) @ probe, once @ once, rtol=_SYMMETRY):
            raise _not_smooth(model, "its Hessian is not symmetric")
        return v, product

    def _scale(self, norm: float) -> float:
        if self.scale == "auto":
            return max(_MARGIN * norm, 1e-12)
        if self.scale <= norm:
            raise SettingError(
                f"'scale' must exceed the spectral norm of the Hessian, or the iteration diverges (got {self.scale:g}, and "
                f"the norm is {norm:.6g}); give a larger one, or scale='auto'"
            )
        return float(self.scale)


def _slope(loss: Tensor, weights: list[nn.Parameter]) -> Tensor:
    return flat(torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True))


def _not_smooth(model: nn.Module, why: str) -> ModelError:
    return ModelError(
        f"the model '{type(model).__name__}' has no second derivatives that torch can take ({why}); use method='gnndelete'"
    )


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of the training loss: pairs ``[2, k]`` and whether they are edges, or nodes ``[1, k]`` and their classes."""

    members: Tensor
    labels: Tensor
    deleted: Tensor  # bool: the term leaves the loss

    def loss(self, task: Task, model: nn.Module, output: Any, chosen: Tensor) -> Tensor:
        """The sum over the chosen terms, divided by the number of all."""
        members, labels = self.members[:, chosen], self.labels[chosen]
        if isinstance(task, LinkPrediction):
            logits = task.score(model, output, members)
            total = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
        else:
            total = F.cross_entropy(representation(output).index_select(0, members[0]), labels, reduction="sum")
        return total / self.labels.numel()


def loss_terms(context: Context, task: Task) -> Terms:
    """What the base model was trained on; a deletion takes out deleted edges and labels, and whatever names a deleted node."""
    data, rest = context.data, context.remaining
    nodes = context.deletion.nodes.to(data.edge_index.device)
    if isinstance(task, NodeClassification):
        members = task.part(data, "train").nonzero().flatten()
        gone = torch.cat([nodes, context.deletion.labels.to(nodes.device)])
        return Terms(members.unsqueeze(0), task.labels(data)[members], torch.isin(members, gone))
    supervision = SupervisionCache().of(data)
    positives = supervision.positives
    negatives = supervision.negatives(torch.Generator().manual_seed(context.seed))
    kept, label = rest.get("edge_label_index"), rest.get("edge_label")
    if kept is None:
        table = edge_table(rest)
    else:
        table = EdgeTable(kept if label is None else kept[:, label.view(-1) > 0], context.session.table.num_nodes)
    deleted = torch.cat([~table.contains(positives), torch.isin(ends_of(negatives), nodes).any(dim=0)])
    labels = torch.cat([torch.ones_like(positives[0]), torch.zeros_like(negatives[0])])
    return Terms(torch.cat([positives, negatives], dim=1), labels, deleted)


def spectral_norm(product: Product, like: Tensor, seed: int, iterations: int = 100, tolerance: float = 1e-4) -> float:
    """The largest absolute eigenvalue of a symmetric operator by power iteration, which approaches it from below.

    >>> matrix = torch.diag(torch.tensor([1.0, -3.0]))
    >>> round(spectral_norm(lambda vector: matrix @ vector, torch.zeros(2), seed=0), 3)
    3.0
    """
    vector = torch.randn(like.numel(), generator=torch.Generator().manual_seed(seed)).to(like)
    norm = 0.0
    for _ in range(iterations):
        vector = product(vector / vector.norm())
        following = float(vector.norm())
        if not following or abs(following - norm) <= tolerance * following:
            return following
        norm = following
    return norm


def _notes(details: dict[str, Any]) -> tuple[str, ...]:
    notes = [
        f"{details['deleted']} terms of the loss were deleted and {details['influenced']} influenced; "
        f"scale {details['scale']:.4g}, spectral norm of the Hessian {details['spectral_norm']:.4g}."
    ]
    if details["residual"] > 1:
        notes.append(
            f"The iteration moves away from a solution (relative residual {details['residual']:.2g}): the loss curves downwards "
            "in some direction. Raise 'damp', or lower 'iterations'."
        )
    elif details["residual"] > 0.1:
        notes.append(
            f"The iteration was cut off at a relative residual of {details['residual']:.2g}: directions of little curvature are "
            "solved in part only. More iterations bring it down."
        )
    if details["update_norm"] > details["weight_norm"]:
        notes.append(
            f"The update (norm {details['update_norm']:.3g}) is larger than the weights ({details['weight_norm']:.3g}): "
            "a first-order step means nothing at this distance."
        )
    return tuple(notes)
