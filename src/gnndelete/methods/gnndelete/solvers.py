"""The least-squares problem of one operator, solved exactly or by gradient descent.

For rows h of a layer on the remaining graph the loss of a map f is
    sum_i dec_i |f(h_i) - away|^2 + sum_i ni_i |f(h_i) - keep_i|^2        (divided by the width: a mean squared error)
where dec = lam * (deleted edges at i) / |A| pulls endpoints to the mean representation (Deleted Edge Consistency) and
ni = (1 - lam) / |B| keeps rows where they are (Neighborhood Influence). For f(h) = h W its minimum is one linear system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from gnndelete.errors import RunError
from gnndelete.nn.operator import LinearMap

#: Numbers that are held in double precision at once: as many as stay in a processor's cache, or as keep a GPU busy.
CHUNK, CHUNK_ON_DEVICE = 1 << 22, 1 << 26

#: Of systems that nobody has looked at yet, the mean of the diagonal and what the factorisation says of itself.
Unchecked = list[tuple[Tensor, Tensor]]

#: Rows of one block of a long product.
BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Problem:
    """The loss of one map: which rows of ``h`` it acts on, and what each of them is pulled to."""

    h: Tensor  # [n, d]: all rows of the layer's output on the graph that is solved on
    rows: Tensor  # [k]: those the map acts on
    dec: Tensor | None  # [k] weights of the pull to `away`; None where nothing pulls
    ni: Tensor  # [k] weights of the pull to `keep`
    away: Tensor  # [d]
    keep: Tensor | None  # [k, d]; None where every row is its own target

    @property
    def width(self) -> int:
        return prod(self.h.shape[1:])

    @property
    def at_rest(self) -> bool:
        """Whether the identity already is the minimum: nothing pulls away, and every row is its own target."""
        return self.keep is None and self.dec is None

    def chunks(self) -> Iterator[tuple[Tensor, Tensor | None, Tensor, Tensor]]:
        """Rows with both weights and their targets, a few at a time, in double precision."""
        size = max((CHUNK if self.h.device.type == "cpu" else CHUNK_ON_DEVICE) // self.width, 1)
        for start in range(0, self.rows.numel(), size):
            part = slice(start, start + size) if self.rows.numel() > size else slice(None)
            h = self.h.index_select(0, self.rows[part]).flatten(1).double()
            dec = None if self.dec is None else self.dec[part, None].double()
            yield h, dec, self.ni[part, None].double(), h if self.keep is None else self.keep[part].flatten(1).double()


def closed_form(problem: Problem, ridge: float = 1e-6, unchecked: Unchecked | None = None) -> LinearMap:
    """The W that minimises the loss, with a ridge of relative size ``ridge`` that pulls it to the identity.

    Solved for W - I, so that a problem at rest gives the identity to the last bit. With ``unchecked`` nothing waits for the
    device: what `sound` has to look at is put there, and where that finds something amiss, solve again without it.

    >>> h = torch.eye(2)
    >>> p = Problem(h, torch.arange(2), torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.5]), torch.tensor([0.0, 1.0]), None)
    >>> closed_form(p).weight.data.round(decimals=3).abs().tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    width = problem.width
    dtype = torch.float64 if problem.h.dtype == torch.float64 else torch.float32
    if problem.at_rest or not problem.rows.numel():
        return _identity(problem, dtype)
    left, right = _sides(problem)
    diagonal = left.diagonal()
    scale = diagonal.mean()
    diagonal.add_(scale, alpha=ridge)
    factor, failed = torch.linalg.cholesky_ex(left)
    if unchecked is not None:
        unchecked.append((scale, failed))
        failed = None
    elif not 0 < float(scale) < float("inf"):
        return _zero_or_fail(float(scale), _identity(problem, dtype))
    plain = failed is None or not int(failed)
    change = torch.cholesky_solve(right, factor) if plain else torch.linalg.lstsq(left, right).solution
    change.diagonal().add_(1)
    # as it comes, column by column, it would multiply in another order
    return LinearMap(width, change.to(dtype, copy=True, memory_format=torch.contiguous_format))


def sound(unchecked: Unchecked) -> bool:
    """Whether every system that was left unchecked was of an ordinary size and could be factored."""
    scales, failed = (torch.stack(values) for values in zip(*unchecked, strict=True))
    numbers = torch.cat([scales, failed]).tolist()  # one look for all of them
    return all(0 < scale < float("inf") for scale in numbers[: len(unchecked)]) and not any(numbers[len(unchecked) :])


def _identity(problem: Problem, dtype: torch.dtype) -> LinearMap:
    return LinearMap(problem.width, torch.eye(problem.width, dtype=dtype, device=problem.h.device))


def _sides(problem: Problem) -> tuple[Tensor, Tensor]:
    """Both sides of the linear system for W - I, without the ridge: sums over rows."""
    away = problem.away.flatten().double()
    left: Tensor | None = None
    right: Tensor | None = None
    for h, dec, ni, keep in problem.chunks():
        pull = None if dec is None else (away - h).mul_(dec)
        if keep is not h:
            kept = (keep - h).mul_(ni)
            pull = kept if pull is None else pull.add_(kept)
        assert pull is not None  # a problem at rest is solved without this
        left = _added(left, _product(h, h * (ni if dec is None else dec + ni)))
        right = _added(right, _product(h, pull))
    assert left is not None
    assert right is not None
    return left, right


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total.add_(part)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """``a.t() @ b`` for long and narrow matrices, in blocks of rows side by side: as one product it would keep few cores busy."""
    if a.size(0) < BLOCK_ROWS:
        return a.t() @ b
    whole = a.size(0) // BLOCK_ROWS * BLOCK_ROWS
    rest = a[whole:].t() @ b[whole:]
    blocks = [part[:whole].unflatten(0, (-1, BLOCK_ROWS)) for part in (a, b)]
    return rest + torch.bmm(blocks[0].transpose(1, 2), blocks[1]).sum(dim=0)


def _zero_or_fail(scale: float, identity: LinearMap) -> LinearMap:
    if scale == 0:  # all rows are zero: every W gives the same loss, so change nothing
        return identity
    raise RunError(
        "a graph layer gives NaN or infinite values on the remaining graph; check the model's weights and features"
    )


def gradient(problem: Problem, apply: nn.Module, epochs: int, lr: float) -> nn.Module:
    """Train ``apply`` on the loss with an Adam of its own, in at least 32 bits: with fewer its steps would be lost.

    The rows are constants, so nothing reaches other layers.
    """
    dtype = torch.promote_types(problem.h.dtype, torch.float32)
    apply = apply.to(problem.h.device, dtype)
    rows = problem.h[problem.rows].flatten(1).detach().to(dtype)
    keep = rows if problem.keep is None else problem.keep.flatten(1).to(rows.dtype)
    away = problem.away.flatten().to(rows.dtype)
    dec, ni = (0 if v is None else v.to(rows.dtype)[:, None] for v in (problem.dec, problem.ni))
    with torch.enable_grad():
        optimizer = torch.optim.Adam(apply.parameters(), lr=lr)
        for _ in range(epochs):
            optimizer.zero_grad()
            out = apply(rows)
            loss = (dec * (out - away).square() + ni * (out - keep).square()).sum() / problem.width
            loss.backward()
            optimizer.step()
    apply.zero_grad(set_to_none=True)
    if not all(bool(torch.isfinite(p).all()) for p in apply.parameters()):
        raise RunError(f"the gradient solver diverged at lr={lr}; use a smaller lr, or solver='closed-form'")
    return apply


def objective(problem: Problem, apply: nn.Module) -> float:
    """The loss of a map, without the ridge."""
    total = 0.0
    with torch.no_grad():
        for h, dec, ni, keep in problem.chunks():
            out = apply(h.to(problem.h.dtype)).double()
            away = 0 if dec is None else dec * (out - problem.away.flatten().double()).square()
            total += float((away + ni * (out - keep).square()).sum())
    return total / problem.width
