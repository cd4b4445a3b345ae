"""CertUnlearn: a noisy logistic regression on propagated features, one Newton step per request, under a kept budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import RunError, SettingError
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, check_numbers
from gnndelete.methods.linear.features import Adjacency, project, propagate
from gnndelete.methods.linear.rows import (
    Rows,
    alive_nodes,
    as_ends,
    classes,
    linear_reasons,
    shared_notes,
    training_rows,
)
from gnndelete.notes import Note
from gnndelete.tasks.base import Predict


class CertUnlearn(Method):
    """Certified removal for a linear graph model (Chien, Pan and Milenkovic, 2022).

    Features are standardised over the nodes that remain and divided by the largest row norm, Z = P^hops X with
    P = D^-1 (A + I), and one logistic regression per class minimises
    ``sum -log sigmoid(y w.z) + lam m/2 |w|^2 + b.w`` with noise b ~ N(0, alpha^2 I). A request moves w by one Newton step.
    What the step may be off by adds up over requests; past ``budget`` the model is trained again with fresh noise.
    On links (our construction, the paper has none) one such regression works on ``z_u * z_v``.

    Args:
        lam: Ridge of the regression, per training row.
        alpha: Standard deviation of the noise.
        epsilon: Privacy parameter ε of the certificate.
        delta: Privacy parameter δ of the certificate, below 1.
        hops: Propagation steps.
        dim: Wider features go through a random map to this many columns.
        own_model: Fit a linear model of its own where yours is not linear, as the paper's comparison does.

    >>> round(CertUnlearn().budget, 4)
    0.0228
    """

    name: ClassVar[str] = "certunlearn"
    keeps_model: ClassVar[bool] = False
    assurance: ClassVar[Assurance] = "certified"
    summary: ClassVar[str] = "one Newton step on a noisy linear model of its own, within a privacy budget"

    def __init__(
        self,
        lam: float = 1e-2,
        alpha: float = 0.1,
        epsilon: float = 1.0,
        delta: float = 1e-4,
        hops: int = 2,
        dim: int = 512,
        own_model: bool = False,
    ) -> None:
        self.lam = lam
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.hops = hops
        self.dim = dim
        self.own_model = own_model

    def check(self) -> None:
        check_numbers(self, positive=("lam", "alpha", "epsilon", "delta"), whole=("hops", "dim"))
        if not self.delta < 1:
            raise SettingError(f"'delta' is a probability and must be below 1 (got {self.delta!r})")

    @property
    def budget(self) -> float:
        """The largest gradient on the remaining data that the noise hides at (epsilon, delta)."""
        return self.alpha * self.epsilon / math.sqrt(2 * math.log(1.5 / self.delta))

    def unfit(self, context: Context) -> list[Reason]:
        return linear_reasons("CertUnlearn", context, self.own_model)

    def unlearn(self, context: Context) -> Outcome:
        memory = f"{self!r} seed={context.seed}"
        previous: _State | None = context.memory.get(memory)
        before = previous or self._fit(context, self._objective(context, context.data, alive_nodes(context)), fits=0)
        after = self._objective(context, context.remaining, alive_nodes(context, context.deletion.nodes))

        # g = grad F(w; Z, D) - grad F(w; Z', D'); the noise is in both and drops out
        g = before.objective.gradient(before.weight) - after.gradient(before.weight)
        step, left = after.newton(before.weight, g)
        error = after.spectral_norm() / 4 * step.norm(dim=0) * (after.z @ step).norm(dim=0) + left
        spent = before.spent + error
        retrained = not _joint(spent) <= self.budget
        if retrained:
            state = self._fit(context, after, fits=before.fits + 1)
        else:
            state = _State(after, before.weight + step, before.noise, spent, before.fits, before.requests + 1)
        details = {
            "spent": _joint(state.spent),
            "budget": self.budget,
            "retrained": retrained,
            "would_have_spent": _joint(spent),
            "requests_since_fit": state.requests,
            "gradient_before": float((after.gradient(before.weight) + before.noise).norm()),
            "gradient_after": float((after.gradient(state.weight) + state.noise).norm()),
        }
        link = state.objective.classes is None
        level: Assurance = "retrained" if retrained else "approximate" if link else "certified"
        notes = self._notes(context, details, link)
        context.memory[memory] = state  # last of all: whatever fails before leaves budget and weights as they were
        return Outcome(
            None, state.weight.numel(), predict=_predictor(state), assurance=level, notes=notes, details=details
        )

    def _objective(self, context: Context, data: Data, alive: Tensor) -> _Objective:
        x = standardised(project(data.x, self.dim, context.seed), alive)
        z = propagate(Adjacency(data.edge_index, alive.numel()), x, self.hops)[-1]
        return _Objective(z, alive, training_rows(context, data, alive), classes(context), self.lam)

    def _fit(self, context: Context, objective: _Objective, fits: int) -> _State:
        generator = torch.Generator().manual_seed((1_000_003 * fits + context.seed) % (1 << 63))
        shape = (objective.z.size(1), objective.y.size(1))
        noise = self.alpha * torch.randn(shape, dtype=torch.float64, generator=generator).to(objective.z.device)
        weight = objective.minimum(noise)
        off = (objective.gradient(weight) + noise).norm(dim=0)  # the minimum is not exact, and that counts too
        if not _joint(off) <= self.budget / 100:
            raise RunError(
                f"the logistic regression did not converge (gradient {_joint(off):.2g}, budget {self.budget:.2g}); "
                "raise lam= or alpha="
            )
        return _State(objective, weight, noise, off, fits, 0)

    def _notes(self, context: Context, details: dict[str, Any], link: bool) -> tuple[Note, ...]:
        notes = shared_notes("CertUnlearn", context, self.dim)
        spent = f"{details['spent']:.2g} of a budget of {details['budget']:.2g} is spent"
        if details["retrained"]:
            text = (
                f"The step would have brought the spending to {details['would_have_spent']:.2g}, past the budget of "
                f"{details['budget']:.2g}: the linear model was trained again on the remaining graph with fresh noise."
            )
            notes.append(Note("budget-exceeded", text))
        elif link:
            text = (
                "Our construction: the paper does not define CertUnlearn on links, so no certificate is claimed although the "
                f"same budget is used ({spent})."
            )
            notes.append(Note("construction", text))
        else:
            text = (
                f"Certified: after each request so far, the weights of all classes together are (epsilon={self.epsilon:g}, "
                f"delta={self.delta:g})-indistinguishable from those trained on what then remained; {spent} by "
                f"{details['requests_since_fit']} request(s). The certificate covers only these weights, and only against "
                "those who do not know the noise: keep the seed secret, since it decides the noise."
            )
            notes.append(Note("certified", text))
        return tuple(notes)


def standardised(x: Tensor, alive: Tensor) -> Tensor:
    """Columns with zero mean and unit variance, then all rows divided by the largest norm.

    All three statistics come from the nodes that are alive: those of the original graph would still reflect deleted nodes.

    >>> x = torch.tensor([[1.0], [3.0], [99.0]])
    >>> standardised(x, torch.tensor([True, True, False])).flatten().tolist()
    [-1.0, 1.0, 0.0]
    """
    own = x[alive]
    spread = own.std(dim=0, correction=0)
    varies = spread > 1e-9 * own.abs().amax(dim=0)  # what a constant column seems to vary by is rounding
    x = (x - own.mean(dim=0)) / torch.where(varies, spread, torch.ones_like(spread))
    x = x * (alive[:, None] & varies)
    return x / x.norm(dim=1).max().clamp(min=1e-12)


class _Objective:
    """The sum of logistic losses over the training rows and the ridge, one column of weights per class, without noise."""

    def __init__(self, nodes: Tensor, alive: Tensor, rows: Rows, classes: int | None, lam: float) -> None:
        self.nodes, self.alive, self.rows, self.classes = nodes, alive, rows, classes
        self.ridge = lam * len(rows)
        self.y = rows.signs(classes)

    def features(self, ends: Tensor) -> Tensor:
        """z of nodes (given in both places), z_u * z_v of pairs."""
        return self.nodes[ends[0]] if self.classes is not None else self.nodes[ends[0]] * self.nodes[ends[1]]

    @property
    def z(self) -> Tensor:
        """Features of the training rows."""
        return self.features(self.rows.ends)

    def gradient(self, weight: Tensor, z: Tensor | None = None) -> Tensor:
        z = self.z if z is None else z
        return z.t() @ (-self.y * torch.sigmoid(-self.y * (z @ weight))) + self.ridge * weight

    def newton(self, weight: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """``H^-1 g`` for every class, and what conjugate gradients left of ``g``.

        Rows of Z have norm at most 1, so that H is conditioned like 1 + 1/(4 lam) at worst: H itself is never formed.
        """
        z = self.z
        bend = torch.sigmoid(z @ weight)
        bend = bend * (1 - bend)

        def times(v: Tensor) -> Tensor:
            return z.t() @ (bend * (z @ v)) + self.ridge * v

        x, r = torch.zeros_like(g), g.clone()
        p, size = r.clone(), r.square().sum(dim=0)
        goal = 1e-26 * size
        for _ in range(2_000):
            if bool((size <= goal).all()):
                break
            hp = times(p)
            length = size / (p * hp).sum(dim=0).clamp(min=1e-300)
            x, r = x + length * p, r - length * hp
            size, old = r.square().sum(dim=0), size
            p = r + size / old.clamp(min=1e-300) * p
        return x, (g - times(x)).norm(dim=0)

    def minimum(self, noise: Tensor) -> Tensor:
        """The weights that minimise the loss with ``noise``: L-BFGS, then Newton steps to the last digits."""
        z = self.z

        def mean(flat: np.ndarray) -> tuple[float, np.ndarray]:
            w = torch.from_numpy(flat).view(noise.shape).to(z)
            loss = -torch.nn.functional.logsigmoid(self.y * (z @ w)).sum()
            value = loss + self.ridge / 2 * w.square().sum() + (noise * w).sum()
            slope = self.gradient(w, z) + noise
            return float(value) / len(self.rows), (slope / len(self.rows)).cpu().numpy().ravel()

        from scipy.optimize import minimize  # takes longer to import than a local request

        found = minimize(
            mean, np.zeros(noise.numel()), jac=True, method="L-BFGS-B", options={"maxiter": 1000, "gtol": 1e-9}
        )
        weight = torch.from_numpy(found.x).view(noise.shape).to(z)
        for _ in range(10):
            slope = self.gradient(weight, z) + noise
            if float(slope.norm()) <= 1e-14 * len(self.rows):
                break
            weight = weight - self.newton(weight, slope)[0]
        return weight

    def spectral_norm(self) -> float:
        """The largest singular value of Z, never below the true one by more than rounding."""
        z = self.z
        return math.sqrt(max(float(torch.linalg.eigvalsh(z.t() @ z)[-1]), 0.0))


@dataclass(frozen=True, eq=False)
class _State:
    """A model with the data it stands for, its noise, and what requests since its last training may have cost."""

    objective: _Objective
    weight: Tensor
    noise: Tensor
    spent: Tensor  # [C]: bound on the gradient of each class
    fits: int
    requests: int


def _predictor(state: _State) -> Predict:
    """Logits of pairs, class probabilities of nodes, on the graph of one state."""
    objective = state.objective

    def predict(elements: Any) -> Tensor:
        ends = as_ends(elements, objective.classes is not None, objective.alive)
        logits = objective.features(ends) @ state.weight
        if objective.classes is None:
            return logits.flatten()
        each = torch.sigmoid(logits)  # one against the rest
        return each / each.sum(dim=-1, keepdim=True)

    return predict


def _joint(each: Tensor) -> float:
    """The norm over all classes: the certificate is about all weights together."""
    return float(each.norm())
