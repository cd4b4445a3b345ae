"""GIF, graph influence function (WWW 2023): one Newton step for what a deletion takes out of the loss and changes in it."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gnndelete.errors import ModelError, RunError, SettingError
from gnndelete.graph.edge_table import ends_of
from gnndelete.methods._gradients import assign, flat, known_task, loss_reasons, trainable, validation_change
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note
from gnndelete.tasks import Task
from gnndelete.tasks.base import Terms

Product = Callable[[Tensor], Tensor]

#: A Hessian counts as symmetric where v·HHv and |Hv|² differ by at most this share.
SYMMETRY_TOLERANCE = 0.02

#: scale="auto" is this many times the estimated spectral norm, which power iteration approaches from below.
SCALE_MARGIN = 1.5

#: Relative residuals above these are reported: the iteration was cut off, or moves away from a solution.
RESIDUAL_CUT_OFF, RESIDUAL_DIVERGING = 0.1, 1.0


class GIF(Method):
    """Move the weights to where the loss without the deleted elements would have its minimum, to first order.

    With ``v = ∇L1 − ∇L2`` (L1: deleted and influenced terms of the loss on the graph, L2: influenced terms on what
    remains), ``H x = v`` is solved by ``h ← v + (1 − damp) h − H h / scale``, and ``x = h / scale`` is added to the weights.
    Influenced are training nodes, or pairs with an end, within ``hops`` hops of the deletion, one more around deleted
    nodes. A deleted label influences no other term. All losses are divided by the number of training terms, and a link
    loss has one fixed non-edge for each edge. Gradients are taken in evaluation mode (no dropout, fixed statistics). All
    requests so far are served together, from the user's weights.

    Args:
        iterations: Steps of the iteration that solves for x.
        damp: Between 0 and 1; ``damp * scale`` acts as a ridge on H. For weight decay λ take ``damp = λ / scale``.
        scale: Must exceed the spectral norm of H, which is estimated by power iteration. ``"auto"`` takes 1.5 times the
            estimate.
        hops: How far from the deletion terms are influenced.

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

    def check(self) -> None:
        if self.iterations < 1 or self.hops < 0:
            raise SettingError(
                f"'iterations' must be at least 1 and 'hops' not negative (got {self.iterations!r} and {self.hops!r})"
            )
        if not 0 <= self.damp < 1:
            raise SettingError(f"'damp' must lie between 0 and 1 (got {self.damp!r})")
        scale = self.scale
        if scale != "auto" and (isinstance(scale, bool) or not isinstance(scale, Real) or not scale > 0):
            raise SettingError(f"'scale' must be 'auto' or a positive number (got {scale!r})")

    def unfit(self, context: Context) -> list[Reason]:
        if context.task is not None and not context.task.on_nodes:
            why = "what a deletion influences is defined here for terms of links and nodes, not of whole graphs"
            return [Reason(why, "use method='gnndelete' or method='retrain'")]
        return loss_reasons(context)

    def unlearn(self, context: Context) -> Outcome:
        task, model = known_task(context), working_copy(context.model)
        weights = trainable(model)
        generator = torch.Generator().manual_seed(context.seed)
        terms = task.terms(context.data, context.remaining, context.deletion, generator)
        touched = self._touched(context, terms)
        details: dict[str, Any] = {
            "terms": terms.classes.numel(),
            "deleted": int(terms.deleted.sum()),
            "influenced": int((touched & ~terms.deleted).sum()),
        }
        if not bool(touched.any()):
            text = "No training term lies near the deletion, so nothing influences the weights and none was changed."
            return Outcome(model=model, parameters=0, notes=(Note("no-training-term-near", text),), details=details)
        with evaluating(model), torch.enable_grad():
            v, product = _problem(context, task, model, weights, terms, touched)
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
        scores, fallen = validation_change(model, context, "Raise 'damp', lower 'iterations', or train again.")
        notes = (*_notes(details), *fallen)
        return Outcome(model=model, parameters=theta.numel(), notes=notes, details=details | scores)

    def _touched(self, context: Context, terms: Terms) -> Tensor:
        """Which terms are deleted or influenced."""
        deletion, neighborhood = context.deletion, context.session.neighborhood("undirected")
        near = torch.zeros(context.session.table.num_nodes, dtype=torch.bool, device=terms.classes.device)
        named = torch.cat([ends_of(deletion.edges).flatten(), deletion.feature_nodes])
        near[neighborhood.within(named, self.hops)] = True
        near[neighborhood.within(deletion.nodes, self.hops + 1)] = True
        ends = ends_of(terms.elements.view(-1, terms.classes.numel()))
        return near[ends].any(dim=0) | terms.deleted

    def _scale(self, norm: float) -> float:
        if self.scale == "auto":
            return max(SCALE_MARGIN * norm, 1e-12)
        if self.scale <= norm:
            raise SettingError(
                f"'scale' must exceed the spectral norm of the Hessian, or the iteration diverges (got {self.scale:g}, and "
                f"the norm is {norm:.6g}); give a larger one, or scale='auto'"
            )
        return float(self.scale)


def _problem(
    context: Context, task: Task, model: nn.Module, weights: list[nn.Parameter], terms: Terms, touched: Tensor
) -> tuple[Tensor, Product]:
    """v, and the product of any vector with the Hessian of the whole loss on the graph."""

    def loss(output: Any, chosen: Tensor) -> Tensor:
        elements, classes = terms.elements[..., chosen], terms.classes[chosen]
        total = task.losses(model, output, context.data, elements, "sum", classes)
        return total / terms.classes.numel()

    output = context.session.forward(model, context.data)
    rest = context.session.forward(model, context.remaining)
    v = _slope(loss(output, touched), weights)
    if not bool((touched == terms.deleted).all()):
        v = v - _slope(loss(rest, touched & ~terms.deleted), weights)
    product = _hessian(loss(output, torch.ones_like(touched)), model, weights)
    # a layer that hides part of its second derivative does not raise: its Hessian is just not symmetric
    probe = torch.randn(v.numel(), generator=torch.Generator().manual_seed(context.seed)).to(v)
    once = product(probe)
    if not torch.isclose(product(once) @ probe, once @ once, rtol=SYMMETRY_TOLERANCE):
        raise _not_smooth(model, "its Hessian is not symmetric")
    return v, product


def _hessian(loss: Tensor, model: nn.Module, weights: list[nn.Parameter]) -> Product:
    """The product of any vector with the Hessian of a loss; weights that take no part have zero rows in it."""
    slopes = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
    used = [weight for weight, slope in zip(weights, slopes, strict=True) if slope is not None]
    slope = torch.cat([s.flatten() for s in slopes if s is not None])
    mask = torch.cat(
        [torch.full_like(w, s is not None, dtype=torch.bool).flatten() for w, s in zip(weights, slopes, strict=True)]
    )

    def product(vector: Tensor) -> Tensor:
        result = torch.zeros_like(vector)
        try:
            parts = torch.autograd.grad(slope, used, grad_outputs=vector[mask], retain_graph=True)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise _not_smooth(model, str(error)) from error
        result[mask] = flat(parts)
        return result

    return product


def _slope(loss: Tensor, weights: list[nn.Parameter]) -> Tensor:
    return flat(torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True))


def _not_smooth(model: nn.Module, why: str) -> ModelError:
    return ModelError(
        f"the model '{type(model).__name__}' has no second derivatives that torch can take ({why}); use method='gnndelete'"
    )


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


def _notes(details: dict[str, Any]) -> tuple[Note, ...]:
    residual = details["residual"]
    text = (
        f"{details['deleted']} terms of the loss were deleted and {details['influenced']} influenced; "
        f"scale {details['scale']:.4g}, spectral norm of the Hessian {details['spectral_norm']:.4g}."
    )
    notes = [Note("influence", text)]
    if residual > RESIDUAL_DIVERGING:
        text = (
            f"The iteration moves away from a solution (relative residual {residual:.2g}): the loss curves downwards in some "
            "direction. Raise 'damp', or lower 'iterations'."
        )
        notes.append(Note("iteration-diverging", text))
    elif residual > RESIDUAL_CUT_OFF:
        text = (
            f"The iteration was cut off at a relative residual of {residual:.2g}: directions of little curvature are solved "
            "only in part. More iterations reduce it."
        )
        notes.append(Note("iteration-cut-off", text))
    if details["update_norm"] > details["weight_norm"]:
        text = (
            f"The update (norm {details['update_norm']:.3g}) is larger than the weights ({details['weight_norm']:.3g}): "
            "a first-order step means nothing at this distance."
        )
        notes.append(Note("update-large", text))
    return tuple(notes)
