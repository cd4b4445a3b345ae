"""THE EQUATION: what an operator behind one graph layer is solved for, in the symbols of docs/solver.md.

For the rows h_i of a layer's output on the remaining graph, the loss of a map f (h W for a linear one) is

    L(f) = 1/d  sum_i ( a_i |f(h_i) - mu|^2  +  b_i |f(h_i) - t_i|^2 )

    a_i = lam c_i / sum_j c_j      Deleted Edge Consistency: deleted ends move to the mean row mu
    b_i = (1 - lam) / |K|          Neighborhood Influence: every row stays at its target t_i

    c_i    how often node i is an end of something deleted
    K      the rows of the map that are not deleted nodes
    mu     the mean row of the base model: the expectation of the row of a random node; for nodes whose label is replaced,
           the mean row of training nodes of the new class
    t_i    the row of the base model; on the remaining graph, at the first layer, that is h_i itself

The outer rings have a_i = 0. Deleted nodes and nodes that lost features also enter with the row p_i that the base model
gives them on the original graph, since that is what anyone sees who presents them again. `solvers` minimises L.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from gnndelete.nn.operator import AddedRows

#: Numbers that are held in double precision at once: as many as stay in a processor's cache, or as keep a GPU busy.
CHUNK, CHUNK_ON_DEVICE = 1 << 22, 1 << 26


@dataclass(frozen=True)
class Problem:
    """The loss of one map.

    Attributes:
        h: ``[n, d]``: all rows of the layer's output.
        rows: ``[k]``: the rows that the map acts on.
        a: ``[k]`` weights of the pull to ``mu``; None where nothing pulls.
        b: ``[k]`` weights of the pull to ``t``.
        mu: ``[d]``: the mean row.
        t: ``[k, d]``: the rows to keep; None where every row is its own target.
    """

    h: Tensor
    rows: Tensor
    a: Tensor | None
    b: Tensor
    mu: Tensor
    t: Tensor | None

    @property
    def width(self) -> int:
        """d: the numbers in one row."""
        return prod(self.h.shape[1:])

    @property
    def at_rest(self) -> bool:
        """Whether the identity is the minimum: nothing pulls, and every row is its own target."""
        return self.t is None and self.a is None

    def chunks(self) -> Iterator[tuple[Tensor, Tensor | None, Tensor, Tensor]]:
        """(h, a, b, t) of some rows at a time, in double precision."""
        size = max((CHUNK if self.h.device.type == "cpu" else CHUNK_ON_DEVICE) // self.width, 1)
        for start in range(0, self.rows.numel(), size):
            part = slice(start, start + size) if self.rows.numel() > size else slice(None)
            h = self.h.index_select(0, self.rows[part]).flatten(1).double()
            a = None if self.a is None else self.a[part, None].double()
            yield h, a, self.b[part, None].double(), h if self.t is None else self.t[part].flatten(1).double()


def objective(problem: Problem, apply: nn.Module) -> float:
    """L of a map, without the ridge of the solver."""
    total = 0.0
    with torch.no_grad():
        for h, a, b, t in problem.chunks():
            out = apply(h.to(problem.h.dtype)).double()
            pull = 0 if a is None else a * (out - problem.mu.flatten().double()).square()
            total += float((pull + b * (out - t).square()).sum())
    return total / problem.width


def ring_problem(
    h: Tensor, rows: Tensor, c_shares: Tensor | None, k_shares: Tensor | float, lam: float, mu: Tensor, t: Tensor | None
) -> Problem:
    """Rows of one ring: a_i = lam c_i / sum c where something pulls, b_i = (1 - lam) / |K|; without ``c_shares`` lam is 0."""
    lam = 0.0 if c_shares is None else lam
    a = lam * c_shares if c_shares is not None and lam else None
    b = k_shares * (1 - lam) if lam else k_shares
    if not isinstance(b, Tensor):
        b = torch.full(rows.shape, b, dtype=torch.float64, device=h.device)
    return Problem(h, rows, a, b, mu, t)


def toward_class(h: Tensor, rows: Tensor, mu: Tensor, lam: float, t: Tensor | None) -> AddedRows:
    """The minimum of L for nodes whose label is replaced, where each has a row of its own: lam mu + (1 - lam) t_i.

    No linear map could take rows of both sides of a boundary to one of them.
    """
    now = h.index_select(0, rows)
    return AddedRows(lam * mu + (1 - lam) * (now if t is None else t) - now)


def deleted_nodes_problem(h: Tensor, presented: Tensor, lam: float, mu: Tensor) -> Problem:
    """Deleted nodes: served rows h_i, blank and with nothing to keep, and presented rows p_i, which move part of the way.

    Between its old self (lam 0) and the mean (lam 1) lies the point where a presented node scores like an unseen one.
    """
    count = presented.size(0)
    share = torch.full((count,), 0.5 / max(count, 1), device=h.device)
    b = torch.cat([torch.zeros_like(share), (1 - lam) * share])
    rows = torch.arange(2 * count, device=h.device)
    return Problem(torch.cat([h, presented]), rows, lam * share.repeat(2), b, mu, None)


def lost_features_problem(served: Problem, presented: Tensor, lam: float) -> Problem:
    """Nodes that lost features: served rows as in their ring's problem, and presented rows, which move part of the way."""
    count = presented.size(0)
    h = served.h.index_select(0, served.rows)
    share = torch.full((count,), 1 / max(count, 1), dtype=served.b.dtype, device=h.device)
    a = torch.zeros_like(share) if served.a is None else served.a
    return Problem(
        torch.cat([h, presented]),
        torch.arange(2 * count, device=h.device),
        torch.cat([a, lam * share]) / 2,
        torch.cat([served.b, (1 - lam) * share]) / 2,
        served.mu,
        None if served.t is None else torch.cat([served.t, presented]),
    )
