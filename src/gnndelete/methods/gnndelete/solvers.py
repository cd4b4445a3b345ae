"""The two solvers of the objective: closed form for a linear map, and gradient descent for any map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnndelete.errors import RunError
from gnndelete.methods.gnndelete.objective import Problem
from gnndelete.nn.operator import LinearMap

#: Of systems that are checked later: the mean of the diagonal, and the error code of the factorisation.
Unchecked = list[tuple[Tensor, Tensor]]

#: Rows of one block of a long product.
PRODUCT_BLOCK_ROWS = 4096


def closed_form(problem: Problem, ridge: float = 1e-6, unchecked: Unchecked | None = None) -> LinearMap:
    """The W that minimises the objective, with a ridge towards the identity.

    It is solved for W - I, so that a problem at rest gives the identity to the last bit.

    Args:
        problem: The objective.
        ridge: Weight of the ridge, relative to the mean of the system's diagonal.
        unchecked: Where given, nothing waits for the device. What `sound` must look at is appended here; where it finds
            a failure, solve again without this argument.

    Returns:
        The map.

    Raises:
        RunError: The rows are NaN or infinite.

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
    # a contiguous copy: column by column it would multiply in another order
    return LinearMap(width, change.to(dtype, copy=True, memory_format=torch.contiguous_format))


def sound(unchecked: Unchecked) -> bool:
    """Whether every unchecked system was finite, positive and could be factored."""
    scales, failed = (torch.stack(values) for values in zip(*unchecked, strict=True))
    numbers = torch.cat([scales, failed]).tolist()  # one wait for all of them
    return all(0 < scale < float("inf") for scale in numbers[: len(unchecked)]) and not any(numbers[len(unchecked) :])


def _identity(problem: Problem, dtype: torch.dtype) -> LinearMap:
    return LinearMap(problem.width, torch.eye(problem.width, dtype=dtype, device=problem.h.device))


def _sides(problem: Problem) -> tuple[Tensor, Tensor]:
    """Both sides of the system for W - I, without the ridge: L = H'(A + B)H and H'(A(1 mu - H) + B(T - H))."""
    mu = problem.mu.flatten().double()
    left: Tensor | None = None
    right: Tensor | None = None
    for h, a, b, t in problem.chunks():
        pull = None if a is None else (mu - h).mul_(a)
        if t is not h:
            back = (t - h).mul_(b)
            pull = back if pull is None else pull.add_(back)
        assert pull is not None  # a problem at rest is solved without this
        left = _added(left, _product(h, h * (b if a is None else a + b)))
        right = _added(right, _product(h, pull))
    assert left is not None
    assert right is not None
    return left, right


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total.add_(part)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """``a.t() @ b`` of long and narrow matrices, in blocks of rows: as one product it would keep few cores busy."""
    if a.size(0) < PRODUCT_BLOCK_ROWS:
        return a.t() @ b
    whole = a.size(0) // PRODUCT_BLOCK_ROWS * PRODUCT_BLOCK_ROWS
    rest = a[whole:].t() @ b[whole:]
    blocks = [part[:whole].unflatten(0, (-1, PRODUCT_BLOCK_ROWS)) for part in (a, b)]
    return rest + torch.bmm(blocks[0].transpose(1, 2), blocks[1]).sum(dim=0)


def _zero_or_fail(scale: float, identity: LinearMap) -> LinearMap:
    if scale == 0:  # all rows are zero: every W gives the same loss, so change nothing
        return identity
    raise RunError(
        "a graph layer gives NaN or infinite values on the remaining graph; check the model's weights and features"
    )


def gradient(problem: Problem, apply: nn.Module, epochs: int, lr: float) -> nn.Module:
    """Train a map on the objective with Adam. The rows are constants, so no gradient reaches other layers.

    Args:
        problem: The objective.
        apply: The map. It is trained in at least 32 bits: in 16 bits small steps are lost.
        epochs: Number of steps.
        lr: Learning rate.

    Returns:
        The trained map.

    Raises:
        RunError: The training diverged.
    """
    dtype = torch.promote_types(problem.h.dtype, torch.float32)
    apply = apply.to(problem.h.device, dtype)
    rows = problem.h[problem.rows].flatten(1).detach().to(dtype)
    t = rows if problem.t is None else problem.t.flatten(1).to(rows.dtype)
    mu = problem.mu.flatten().to(rows.dtype)
    a, b = (0 if v is None else v.to(rows.dtype)[:, None] for v in (problem.a, problem.b))
    with torch.enable_grad():
        optimizer = torch.optim.Adam(apply.parameters(), lr=lr)
        for _ in range(epochs):
            optimizer.zero_grad()
            out = apply(rows)
            loss = (a * (out - mu).square() + b * (out - t).square()).sum() / problem.width
            loss.backward()
            optimizer.step()
    apply.zero_grad(set_to_none=True)
    if not all(bool(torch.isfinite(p).all()) for p in apply.parameters()):
        raise RunError(f"the gradient solver diverged at lr={lr}; use a smaller lr, or solver='closed-form'")
    return apply
