"""The two solvers of the objective: closed form for a linear map, and gradient descent for any map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnndelete.errors import RunError
from gnndelete.methods.gnndelete.objective import Problem
from gnndelete.nn.operator import LinearMap

#: Rows of one block of a long product.
PRODUCT_BLOCK_ROWS = 4096


def closed_form(problem: Problem, ridge: float = 1e-6) -> LinearMap:
    """The W that minimises the objective, with a ridge towards the identity.

    It is solved for W - I, so that a problem at rest gives the identity to the last bit.

    Args:
        problem: The objective.
        ridge: Weight of the ridge, relative to the mean of the system's diagonal.

    Returns:
        The map.

    Raises:
        RunError: The rows are NaN or infinite.

    >>> h = torch.eye(2)
    >>> p = Problem(h, torch.arange(2), torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.5]), torch.tensor([0.0, 1.0]), None)
    >>> closed_form(p).weight.data.round(decimals=3).abs().tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    dtype = torch.float64 if problem.h.dtype == torch.float64 else torch.float32
    identity = torch.eye(problem.width, dtype=dtype, device=problem.h.device)
    if problem.at_rest or not problem.rows.numel():
        return LinearMap(problem.width, identity)
    # the system for W - I: H'(A + B)H (W - I) = H'(A(1 mu - H) + B(T - H))
    mu = problem.mu.flatten().double()
    left, right = torch.zeros(2, problem.width, problem.width, dtype=torch.float64, device=problem.h.device)
    for h, a, b, t in problem.chunks():
        pull = torch.zeros_like(h) if a is None else (mu - h).mul_(a)
        if t is not h:
            pull += (t - h).mul_(b)
        left += _product(h, h * (b if a is None else a + b))
        right += _product(h, pull)
    diagonal = left.diagonal()
    scale = diagonal.mean()
    diagonal.add_(scale, alpha=ridge)
    factor, failed = torch.linalg.cholesky_ex(left)
    size, is_singular = torch.stack([scale, failed.to(scale)]).tolist()  # one wait for the device
    if size == 0:  # all rows are zero: every W gives the same loss, so change nothing
        return LinearMap(problem.width, identity)
    if not size < float("inf"):
        raise RunError(
            "a graph layer gives NaN or infinite values on the remaining graph; check the model's weights and features"
        )
    change = torch.linalg.lstsq(left, right).solution if is_singular else torch.cholesky_solve(right, factor)
    change.diagonal().add_(1)
    # a contiguous copy: column by column it would multiply in another order
    return LinearMap(problem.width, change.to(dtype, copy=True, memory_format=torch.contiguous_format))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """``a.t() @ b`` of long and narrow matrices, in blocks of rows: as one product it would keep few cores busy."""
    if a.size(0) < PRODUCT_BLOCK_ROWS:
        return a.t() @ b
    whole = a.size(0) // PRODUCT_BLOCK_ROWS * PRODUCT_BLOCK_ROWS
    rest = a[whole:].t() @ b[whole:]
    blocks = [part[:whole].unflatten(0, (-1, PRODUCT_BLOCK_ROWS)) for part in (a, b)]
    return rest + torch.bmm(blocks[0].transpose(1, 2), blocks[1]).sum(dim=0)


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
