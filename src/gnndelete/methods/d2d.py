"""D2D, Descent-to-Delete (Neel et al. 2021): projected gradient steps on what remains, then noise on the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gnndelete.errors import SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.methods.gradients import assign, flat, known_task, loss_reasons, trainable
from gnndelete.methods.validation import ruined, validation
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.tasks import GraphClassification, NodeClassification, Task

#: Strong convexity and steps per request: those of Neel et al., and those behind the GNNDelete paper's tables.
PRESETS: dict[str, tuple[float, int]] = {"reference": (0.05, 25), "paper": (5e-4, 1)}

_MOST_HALVINGS = 60
_NO_GUARANTEE = (
    "The guarantee of Descent-to-Delete needs a strongly convex, smooth and Lipschitz loss. A graph neural network has "
    "none of these: no guarantee holds, and sigma is what the formula gives for the constants, not a bound."
)


class D2D(Method):
    """Descend on the loss of the remaining graph, then publish the weights with Gaussian noise.

    Steps are ``w ← Proj(w − η ∇f(w))`` with ``η = 2/(M+m)`` on ``f = the task's mean loss + m/2 |w − c|²``; σ follows from the
    constants and from n, the directed edges that remain (training nodes under node classification). ``preset`` sets
    what is not given: ``"reference"`` m=0.05 and 25 steps, ``"paper"`` m=5e-4 and 1 step; both L=1+m, M=4−m, ε=5, δ=1/n².
    The analysis takes f to be what the model was trained on. A model trained without that penalty loses half its weights
    in 25 steps towards c = 0 (``center="zero"``: DBLP, GCN, test AUROC .961 to .806), so that ``center="base"`` puts c at
    the trained weights. Steps stay within ``radius`` of c, by default the norm of the trained weights: the radius 1 that
    L=1+m stands for would crush a network. Where a step raises f, the model is not M-smooth there, and the step is halved
    until it does not.
    Negatives of a link loss are drawn once, and gradients are taken in evaluation mode (no dropout, statistics frozen).

    The weights without noise are kept in memory, and the next request starts from them.

    >>> D2D("paper").constants(n=92_782).sigma()  # doctest: +ELLIPSIS
    981.8...
    """

    name: ClassVar[str] = "d2d"
    assurance: ClassVar[Assurance] = "approximate"
    needs = "a loss"
    summary: ClassVar[str] = "descend on what remains, then add noise to the weights"

    def __init__(
        self,
        preset: Literal["reference", "paper"] = "reference",
        m: float | None = None,
        L: float | None = None,
        M: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        iterations: int | None = None,
        radius: float | None = None,
        center: Literal["base", "zero"] = "base",
    ) -> None:
        self.preset = preset
        self.m = m
        self.L = L
        self.M = M
        self.epsilon = epsilon
        self.delta = delta
        self.iterations = iterations
        self.radius = radius
        self.center = center
        if center not in ("base", "zero"):
            raise SettingError(f"'center' must be 'base' or 'zero' (got {center!r})")
        if preset not in PRESETS:
            raise SettingError(f"'preset' must be {' or '.join(map(repr, PRESETS))} (got {preset!r})")
        for name in ("m", "L", "M", "epsilon", "delta", "iterations", "radius"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SettingError(f"'{name}' must be positive (got {value!r})")
        known = self.constants(n=2)
        if not known.m < known.M:
            raise SettingError(f"'M' must be larger than 'm' (got {known.M:g} and {known.m:g})")
        if not known.delta < 1:
            raise SettingError(f"'delta' must lie below 1 (got {delta!r})")

    def constants(self, n: int) -> Constants:
        """What was given, and for the rest the preset, for ``n`` remaining elements."""
        m, iterations = PRESETS[self.preset]
        m = m if self.m is None else self.m
        return Constants(
            m=m,
            L=1 + m if self.L is None else self.L,
            M=4 - m if self.M is None else self.M,
            epsilon=5.0 if self.epsilon is None else self.epsilon,
            delta=1 / n**2 if self.delta is None else self.delta,
            iterations=iterations if self.iterations is None else self.iterations,
            n=n,
        )

    def unfit(self, context: Context) -> list[Reason]:
        reasons = loss_reasons(context)
        if not reasons and len(context.deletion) and _elements(context) < 2:
            reasons.append(Reason("fewer than two elements remain to descend on", "use method='retrain'"))
        return reasons

    def unlearn(self, context: Context) -> Outcome:
        task, model = known_task(context), working_copy(context.model)
        weights = trainable(model)
        constants = self.constants(_elements(context))
        base = flat(weights)
        radius = float(base.norm()) if self.radius is None else self.radius
        start, remembered = _start(context, base)
        before = validation(model, context)
        with evaluating(model):
            assign(weights, start)
            center = base if self.center == "base" else torch.zeros_like(base)
            halvings = _steps(context, task, model, weights, constants, radius, center)
            clean = flat(weights)
            # another request must not get the same noise, or two published models would reveal their difference
            generator = torch.Generator().manual_seed(
                (context.seed + int(context.deletion.fingerprint[:12], 16)) % 2**63
            )
            noise = torch.randn(clean.numel(), generator=generator).to(clean) * constants.sigma()
            assign(weights, clean + noise)
        after = validation(model, context)
        details = {
            **vars(constants),
            "gamma": constants.gamma,
            "sigma": constants.sigma(),
            "radius": radius,
            "halvings": halvings,
            "weight_rms": float(clean.square().mean().sqrt()),
            "weight_norm": float(clean.norm()),
            "noise_norm": float(noise.norm()),
            **{f"{name}_before": value for name, value in before.items()},
            **after,
        }
        outcome = Outcome(model, clean.numel(), notes=_notes(details, remembered), details=details)
        context.memory[self.name] = _Kept(context.deletion, start, clean)  # last: an interruption changes nothing
        return outcome


@dataclass(frozen=True)
class Constants:
    """What the analysis of Neel et al. assumes of a loss, and what it then demands."""

    m: float
    L: float
    M: float
    epsilon: float
    delta: float
    iterations: int
    n: int

    @property
    def gamma(self) -> float:
        """How far one step contracts."""
        return (self.M - self.m) / (self.M + self.m)

    def sigma(self) -> float:
        """The standard deviation of the published noise."""
        shrunk = self.gamma**self.iterations
        log = math.log(1 / self.delta)
        budget = math.sqrt(log + self.epsilon) - math.sqrt(log)
        return 4 * math.sqrt(2) * self.L * shrunk / (self.m * self.n * (1 - shrunk) * budget)


@dataclass(frozen=True)
class _Kept:
    """The weights without noise, what they have forgotten, and where that request started."""

    deletion: Deletion
    start: Tensor
    weights: Tensor


def _elements(context: Context) -> int:
    if isinstance(context.task, (NodeClassification, GraphClassification)):
        return int(context.task.part(context.remaining, "train").sum())
    return context.remaining.edge_index.size(1)


def _start(context: Context, base: Tensor) -> tuple[Tensor, bool]:
    """Where this request starts, and whether that remembers all requests before it."""
    kept: _Kept | None = context.memory.get(D2D.name)
    if kept is not None and kept.deletion == context.deletion:  # the last request again
        return kept.start, True
    if kept is not None and kept.deletion | context.request == context.deletion:
        return kept.weights, True
    return base, context.request == context.deletion


def _steps(
    context: Context,
    task: Task,
    model: nn.Module,
    weights: list[nn.Parameter],
    constants: Constants,
    radius: float,
    center: Tensor,
) -> int:
    """Projected gradient descent in place; returns how often the step had to be halved."""
    data = context.remaining

    def objective() -> Tensor:
        generator = torch.Generator().manual_seed(context.seed)  # the same negatives in every step: one fixed data set
        loss = task.loss(model, context.session.forward(model, data), data, generator)
        vector = torch.cat([parameter.flatten() for parameter in weights])
        return loss + constants.m / 2 * (vector - center).square().sum()

    rate, halvings = 2 / (constants.M + constants.m), 0
    with torch.enable_grad():
        value = objective()
    for _ in range(constants.iterations):
        gradients = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
        here, slope = flat(weights), flat(gradients)
        while True:
            away = here - rate * slope - center
            assign(weights, center + away * min(1.0, radius / max(float(away.norm()), 1e-30)))
            with torch.enable_grad():
                following = objective()
            if following <= value or halvings == _MOST_HALVINGS:
                break
            rate, halvings = rate / 2, halvings + 1
        if not following <= value:  # no step leads down any more
            assign(weights, here)
            break
        value = following
    return halvings


def _notes(details: dict[str, Any], remembered: bool) -> tuple[str, ...]:
    notes = [_NO_GUARANTEE]
    ratio = details["sigma"] / max(details["weight_rms"], 1e-30)
    size = f"sigma {details['sigma']:.3g} is {ratio:.3g} times the size of a weight (RMS {details['weight_rms']:.3g})"
    before, after = details.get("validation_before"), details.get("validation")
    scores = "" if before is None or after is None else f"; the validation score went from {before:.3f} to {after:.3f}"
    if ratio >= 1:
        notes.append(
            f"The noise destroys the weights: {size}{scores}. More steps, a larger m or more data lower sigma."
        )
    elif ruined(before, after):
        notes.append(
            f"The model is destroyed{scores}: by noise ({size}) or by the descent towards the penalty's center."
        )
    else:
        notes.append(f"{size[0].upper()}{size[1:]}{scores}.")
    logits, squashed = details.get("auroc_from_logits"), details.get("auroc_from_probabilities")
    if logits is not None and squashed is not None and abs(logits - squashed) > 0.005:
        notes.append(
            f"Validation AUROC is {logits:.3f} from logits and {squashed:.3f} from 32-bit probabilities, which saturate and "
            "tie: the second figure is an artefact."
        )
    if details["halvings"]:
        notes.append(
            f"The step was halved {details['halvings']} times, since the loss is less smooth than M={details['M']:g} says."
        )
    if not remembered:
        notes.append("The weights kept by earlier requests are gone, so this one started from the base model.")
    return tuple(notes)
