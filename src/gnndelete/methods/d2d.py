"""D2D, Descent-to-Delete (Neel et al. 2021): projected gradient steps on what remains, then noise on the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gnndelete.errors import SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.methods._gradients import (
    assign,
    flat,
    has_fallen,
    known_task,
    loss_reasons,
    trainable,
    validation_scores,
)
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note
from gnndelete.tasks import Task

#: Strong convexity and steps per request: those of Neel et al., and those behind the GNNDelete paper's tables.
PRESETS: dict[str, tuple[float, int]] = {"reference": (0.05, 25), "paper": (5e-4, 1)}

#: How often a step may be halved in one request before the descent ends.
MOST_HALVINGS = 60

#: AUROC from logits and from 32-bit probabilities may differ by this much before the difference is reported.
SATURATION_GAP = 0.005

_NO_GUARANTEE = Note(
    "no-guarantee",
    "The guarantee of Descent-to-Delete needs a strongly convex, smooth and Lipschitz loss. The loss of a graph neural network "
    "is none of these: no guarantee holds, and sigma is what the formula gives for the constants, not a bound.",
)


class D2D(Method):
    """Descend on the loss of the remaining graph, then publish the weights with Gaussian noise.

    Steps are ``w ← Proj(w − η ∇f(w))`` with ``η = 2/(M+m)`` on ``f = the task's mean loss + m/2 |w − c|²``. σ follows from the
    constants and from n, the number of training elements that remain (edges in both directions). Where a step raises f, the
    model is not M-smooth there, and the step is halved until it does not. Non-edges of a link loss are drawn once, and
    gradients are taken in evaluation mode (no dropout, fixed statistics). The weights without noise are kept in memory, and
    the next request starts from them.

    Args:
        preset: Sets what is not given. ``"reference"``: m=0.05 and 25 steps; ``"paper"``: m=5e-4 and 1 step. Both have
            L=1+m, M=4−m, ε=5, δ=1/n².
        m: Strong convexity that the analysis assumes; also the weight of the penalty.
        L: Lipschitz constant that the analysis assumes.
        M: Smoothness that the analysis assumes; must be larger than ``m``.
        epsilon: Privacy parameter ε.
        delta: Privacy parameter δ, below 1.
        iterations: Steps per request.
        radius: Steps stay within this distance of c; by default the norm of the trained weights. The radius 1 that L=1+m
            stands for would destroy a network.
        center: Where the penalty's centre c is. The analysis takes f to be what the model was trained on. A model trained
            without the penalty loses half its weights in 25 steps towards ``"zero"`` (DBLP, GCN: test AUROC .961 to .806),
            so ``"base"`` puts c at the trained weights.

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

    def check(self) -> None:
        if self.center not in ("base", "zero"):
            raise SettingError(f"'center' must be 'base' or 'zero' (got {self.center!r})")
        if self.preset not in PRESETS:
            raise SettingError(f"'preset' must be {' or '.join(map(repr, PRESETS))} (got {self.preset!r})")
        for name in ("m", "L", "M", "epsilon", "delta", "iterations", "radius"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SettingError(f"'{name}' must be positive (got {value!r})")
        known = self.constants(n=2)
        if not known.m < known.M:
            raise SettingError(f"'M' must be larger than 'm' (got {known.M:g} and {known.m:g})")
        if not known.delta < 1:
            raise SettingError(f"'delta' must lie below 1 (got {self.delta!r})")

    def constants(self, n: int) -> Constants:
        """The constants of the analysis: those that were given, else those of the preset.

        Args:
            n: The number of training elements that remain.
        """
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
        before = validation_scores(model, context)
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
        after = validation_scores(model, context)
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
        context.memory[self.name] = _Previous(context.deletion, start, clean)  # last: an interruption changes nothing
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
class _Previous:
    """The previous request: what was forgotten, the weights it started from, and its result without noise."""

    deletion: Deletion
    start: Tensor
    weights: Tensor


def _elements(context: Context) -> int:
    """The number of training elements that remain."""
    return known_task(context).learned(context.remaining).size(-1)


def _start(context: Context, base: Tensor) -> tuple[Tensor, bool]:
    """The weights that this request starts from, and whether they have forgotten all earlier requests."""
    previous: _Previous | None = context.memory.get(D2D.name)
    if previous is not None and previous.deletion == context.deletion:  # the same request again
        return previous.start, True
    if previous is not None and previous.deletion | context.request == context.deletion:
        return previous.weights, True
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
            if following <= value or halvings == MOST_HALVINGS:
                break
            rate, halvings = rate / 2, halvings + 1
        if not following <= value:  # no step reduces the objective any more
            assign(weights, here)
            break
        value = following
    return halvings


def _notes(details: dict[str, Any], remembered: bool) -> tuple[Note, ...]:
    notes = [_NO_GUARANTEE]
    ratio = details["sigma"] / max(details["weight_rms"], 1e-30)
    size = f"sigma {details['sigma']:.3g} is {ratio:.3g} times the size of a weight (RMS {details['weight_rms']:.3g})"
    before, after = details.get("validation_before"), details.get("validation")
    scores = "" if before is None or after is None else f"; the validation score went from {before:.3f} to {after:.3f}"
    if ratio >= 1:
        text = f"The noise destroys the weights: {size}{scores}. More steps, a larger m or more data lower sigma."
        notes.append(Note("noise-destroys", text))
    elif has_fallen(before, after):
        text = f"The model is destroyed{scores}: by noise ({size}) or by the descent towards the penalty's centre."
        notes.append(Note("validation-fell", text))
    else:
        notes.append(Note("noise", f"{size[0].upper()}{size[1:]}{scores}."))
    logits, squashed = details.get("auroc_from_logits"), details.get("auroc_from_probabilities")
    if logits is not None and squashed is not None and abs(logits - squashed) > SATURATION_GAP:
        text = (
            f"Validation AUROC is {logits:.3f} from logits and {squashed:.3f} from 32-bit probabilities, which saturate and "
            "tie: the second figure is an artefact."
        )
        notes.append(Note("saturation", text))
    if details["halvings"]:
        text = f"The step was halved {details['halvings']} times, since the loss is less smooth than M={details['M']:g} says."
        notes.append(Note("step-halved", text))
    if not remembered:
        text = "The weights of earlier requests are gone, so this one started from the base model."
        notes.append(Note("started-from-base", text))
    return tuple(notes)
