"""The exact solution against torch.linalg.lstsq and against converged gradient runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gnndelete.errors import RunError
from gnndelete.methods.gnndelete import objective as objectives
from gnndelete.methods.gnndelete.objective import Problem, objective
from gnndelete.methods.gnndelete.solvers import closed_form, gradient
from gnndelete.nn.operator import LinearMap


def problem(seed=0, rows=40, width=5, lam=0.5, keep="other", dtype=torch.float64, rank=None):
    """Some rows of a larger layer, a few of them endpoints."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(rows + 7, width, generator=generator, dtype=torch.float64)
    if rank is not None:
        h = h[:, :rank] @ torch.randn(rank, width, generator=generator, dtype=torch.float64)
    chosen = torch.randperm(rows + 7, generator=generator)[:rows].sort().values
    counts = torch.randint(0, 4, (rows,), generator=generator).double()
    counts[0] = 1
    targets = {"other": torch.randn(rows, width, generator=generator, dtype=torch.float64), "own": None}[keep]
    return Problem(
        h=h.to(dtype),
        rows=chosen,
        a=(lam * counts / counts.sum()).to(dtype),
        b=torch.full((rows,), (1 - lam) / rows, dtype=dtype),
        mu=torch.randn(width, generator=generator, dtype=torch.float64),
        t=None if targets is None else targets.to(dtype),
    )


def stacked(p, ridge):
    """The weighted system row by row, the ridge towards the identity included, solved by an independent routine."""
    h = p.h[p.rows].double()
    keep = h if p.t is None else p.t.double()
    dec, ni = p.a.double(), p.b.double()
    scale = float(((dec + ni)[:, None] * h * h).sum(dim=0).mean())
    eye = torch.eye(p.width, dtype=torch.float64)
    pull = (ridge * scale) ** 0.5 * eye
    left = torch.cat([dec.sqrt()[:, None] * h, ni.sqrt()[:, None] * h, pull])
    right = torch.cat([dec.sqrt()[:, None] * p.mu.double(), ni.sqrt()[:, None] * keep, pull])
    return torch.linalg.lstsq(left, right, driver="gelsd").solution


@given(
    seed=st.integers(0, 500),
    rows=st.integers(1, 30),
    width=st.integers(1, 8),
    lam=st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    keep=st.sampled_from(["other", "own"]),
    ridge=st.sampled_from([1e-6, 1e-3, 0.5]),
)
def test_exact_equals_least_squares_on_the_stacked_system(seed, rows, width, lam, keep, ridge):
    p = problem(seed, rows, width, lam, keep)
    torch.testing.assert_close(closed_form(p, ridge).weight.data, stacked(p, ridge), rtol=1e-5, atol=1e-6)


def test_one_edge_has_two_rows_and_moves_both_where_asked():
    p = problem(rows=2, width=16, lam=1.0)
    p.a[:] = 0.5
    weight = closed_form(p).weight.data
    torch.testing.assert_close(weight, stacked(p, 1e-6), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(p.h[p.rows] @ weight, p.mu.expand(2, -1), rtol=1e-4, atol=1e-4)
    across = torch.linalg.svd(p.h[p.rows])[2][2:]  # directions that no row has are left alone
    torch.testing.assert_close(across @ weight, across, rtol=0, atol=1e-8)


@pytest.mark.parametrize("rank", [1, 3])
def test_rank_deficient_rows(rank):
    p = problem(rows=30, width=8, rank=rank)
    weight = closed_form(p).weight.data
    assert torch.isfinite(weight).all()
    torch.testing.assert_close(p.h @ weight, p.h @ stacked(p, 1e-6), rtol=1e-5, atol=1e-5)


def test_nothing_to_do_is_the_identity_to_the_last_bit():
    p = problem(lam=0.0, keep="own", dtype=torch.float32)
    assert torch.equal(closed_form(p).weight.data, torch.eye(5)), "weights that are all zero pull nowhere"
    p = replace(p, a=None)
    assert p.at_rest
    assert torch.equal(closed_form(p).weight.data, torch.eye(5))
    zero = Problem(torch.zeros(9, 4), torch.arange(9), torch.full((9,), 0.1), torch.zeros(9), torch.ones(4), None)
    assert torch.equal(closed_form(zero).weight.data, torch.eye(4))


def test_lam_is_one_knob():
    """More lam: closer to where endpoints shall go, further from what rows shall keep."""
    pulls, keeps = [], []
    for lam in (0.0, 0.1, 0.5, 0.9, 1.0):
        p = problem(lam=lam)
        out = p.h[p.rows] @ closed_form(p).weight.data
        counts = problem(lam=1.0).a[:, None]
        pulls.append(float((counts * (out - p.mu).square()).sum()))
        keeps.append(float((out - p.t).square().sum()))
    assert pulls == sorted(pulls, reverse=True)
    assert keeps == sorted(keeps)
    assert pulls[0] > pulls[-1]


@pytest.mark.parametrize("size", [1, 7, 39, 40, 41])
def test_chunks_give_the_same_answer(monkeypatch, size):
    p = problem()
    whole, loss = closed_form(p), objective(p, closed_form(p))
    monkeypatch.setattr(objectives, "CHUNK", size * p.width)
    assert max(h.size(0) for h, *_ in p.chunks()) <= size
    torch.testing.assert_close(closed_form(p).weight, whole.weight, rtol=1e-9, atol=1e-9)
    assert objective(p, whole) == pytest.approx(loss, rel=1e-12)


def test_double_precision_where_conditioning_needs_it():
    """Float32 rows of very different size: sums in float32 would lose the small ones."""
    p = problem(rows=60, width=4, dtype=torch.float32)
    scale = torch.tensor([1.0, 1e-2, 1e-3, 10.0])
    p = Problem(p.h * scale, p.rows, p.a, p.b, p.mu, p.t)
    weight = closed_form(p, ridge=1e-12).weight.data
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight.double(), stacked(p, 1e-12), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lam", [0.1, 0.5, 1.0])
def test_exact_equals_a_converged_gradient_run(lam):
    p = problem(lam=lam)
    found = LinearMap(5, torch.eye(5, dtype=torch.float64))
    optimizer = torch.optim.LBFGS(
        found.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )
    rows = p.h[p.rows]

    def closure():
        optimizer.zero_grad()
        out = found(rows)
        loss = (p.a[:, None] * (out - p.mu).square() + p.b[:, None] * (out - p.t).square()).sum() / p.width
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(closed_form(p, ridge=1e-14).weight.data, found.weight.data, rtol=1e-5, atol=1e-6)
    assert objective(p, found) == pytest.approx(float(closure().detach()), rel=1e-9)


def test_the_gradient_solver_converges_to_the_exact_one_from_above():
    p = problem(rows=60, width=3)
    best = objective(p, closed_form(p, ridge=0))
    losses = [objective(p, gradient(p, LinearMap(3).double(), epochs, lr=0.02)) for epochs in (1, 50, 3000)]
    assert losses == sorted(losses, reverse=True)
    assert all(loss >= best for loss in losses)
    assert losses[-1] == pytest.approx(best, rel=1e-6)
    assert objective(p, LinearMap(3).double()) > losses[0]


@given(
    seed=st.integers(0, 300), lam=st.sampled_from([0.0, 0.2, 0.8, 1.0]), dtype=st.sampled_from(["float32", "float64"])
)
def test_exact_is_never_above_the_gradient_solver(seed, lam, dtype):
    dtype = getattr(torch, dtype)
    p = problem(seed, rows=20, width=4, lam=lam, dtype=dtype)
    reached = objective(p, gradient(p, LinearMap(4).to(dtype), epochs=40, lr=0.05))
    assert objective(p, closed_form(p)) <= reached + 1e-7


def test_an_operator_of_any_kind_can_be_trained():
    torch.manual_seed(0)
    p = problem(dtype=torch.float32)
    mlp = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 5))
    before = objective(p, mlp)
    assert gradient(p, mlp, epochs=150, lr=0.02) is mlp
    assert objective(p, mlp) < 0.6 * before


def test_gradients_do_not_leave_the_layer():
    p = problem(dtype=torch.float32)
    weight = torch.randn(5, 5, requires_grad=True)
    reached = Problem(p.h @ weight, p.rows, p.a, p.b, p.mu, p.t)
    found = gradient(reached, LinearMap(5), epochs=3, lr=0.1)
    assert weight.grad is None
    assert all(parameter.grad is None for parameter in found.parameters())
    with torch.no_grad():  # the caller runs the model without gradients
        gradient(p, LinearMap(5), epochs=1, lr=0.1)


def test_failures_are_told():
    p = problem(dtype=torch.float32)
    broken = Problem(p.h * float("nan"), p.rows, p.a, p.b, p.mu, p.t)
    with pytest.raises(RunError, match="NaN or infinite"):
        closed_form(broken)
    with pytest.raises(RunError, match=r"diverged at lr=0\.5"):
        gradient(broken, LinearMap(5), epochs=2, lr=0.5)


def test_a_singular_system_without_a_ridge_is_solved_by_least_squares():
    assert torch.isfinite(closed_form(problem(rank=2), ridge=0.0).weight).all()
