"""GraphEditor: a linear model in closed form, edited by rank-k updates until it equals a fresh fit without the data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import RunError
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, Weights, check_numbers, synchronize
from gnndelete.methods.linear.features import Adjacency, project, propagate, propagate_again, reached
from gnndelete.methods.linear.rows import (
    Rows,
    alive_nodes,
    as_ends,
    changed_rows,
    classes,
    linear_reasons,
    shared_notes,
    training_rows,
)
from gnndelete.notes import Note
from gnndelete.tasks.base import Predict

#: Rows that are held as features at once.
CHUNK_ROWS = 8_192

#: Rows of one rank-k update, so that the k x k system stays small.
CHUNK_UPDATE = 512

#: An update is replaced by a fresh solve where its weights are relatively further than this from solving their equations.
MAX_DRIFT = 1e-6


class GraphEditor(Method):
    """Ridge regression on propagated features, exact after every deletion (Cong and Mahdavi, 2022).

    Nodes are regressed on one-hot classes from ``[X, PX, …, P^hops X]``, links on +1 and -1 (one non-edge per edge) from
    ``F_i * F_j``, ``F = P^hops X``, and the number of common neighbours. P averages over a node and its neighbours, each
    row of a block is scaled to unit length by itself, and features wider than ``dim`` go through a fixed random matrix:
    nothing is estimated from the data, so nothing of what was deleted stays behind in it.

    Args:
        hops: Propagation steps.
        lam: Ridge of the regression.
        dim: Wider features go through a random map to this many columns.
        own_model: Fit a linear model of its own where yours is not linear, as the paper's comparison does.

    >>> GraphEditor(own_model=True).settings()
    {'hops': 2, 'lam': 0.1, 'dim': 512, 'own_model': True}
    """

    name: ClassVar[str] = "grapheditor"
    keeps_model: ClassVar[bool] = False
    assurance: ClassVar[Assurance] = "exact"
    weights: ClassVar[Weights] = "new"
    summary: ClassVar[str] = "edit a linear model of its own until it equals a fresh fit"

    def __init__(self, hops: int = 2, lam: float = 0.1, dim: int = 512, own_model: bool = False) -> None:
        self.hops = hops
        self.lam = lam
        self.dim = dim
        self.own_model = own_model

    def check(self) -> None:
        check_numbers(self, positive=("lam",), whole=("hops", "dim"))

    def unfit(self, context: Context) -> list[Reason]:
        return linear_reasons("GraphEditor", context, self.own_model)

    def unlearn(self, context: Context) -> Outcome:
        begun, device = time.perf_counter(), context.data.edge_index.device
        memory = f"{self!r} seed={context.seed}"
        before: _State = context.memory.get(memory) or self._state(context, context.data, alive_nodes(context))
        fitted = _since(begun, device)
        # the adjacency is edited first: everything in `after` is computed on the remaining graph
        after = self._state(context, context.remaining, alive_nodes(context, context.deletion.nodes), before)
        gone, come = changed_rows(before.rows, after.rows, after.moved)
        ridge = None
        if max(gone.numel(), come.numel()) <= before.width:
            start = time.perf_counter()
            fresh = before.ridge or before.solved(self.lam)
            fitted += _since(start, device)
            ridge = fresh.updated(before.chunks(gone, CHUNK_UPDATE), after.chunks(come, CHUNK_UPDATE))
        path = "solve" if ridge is None else "update"
        ridge = ridge or after.solved(self.lam)
        after = replace(after, ridge=ridge)
        details = {
            "path": path,
            "rows": len(after.rows),
            "rows_changed": max(gone.numel(), come.numel()),
            "width": after.width,
            "fit_seconds": fitted,
            "edit_seconds": _since(begun, device) - fitted,
        }
        notes = self._notes(context, path, first=memory not in context.memory)
        context.memory[memory] = after  # last of all: whatever fails before leaves the sequence as it was
        return Outcome(None, ridge.weight.numel(), predict=_predictor(after, ridge), notes=notes, details=details)

    def _state(self, context: Context, data: Data, alive: Tensor, before: _State | None = None) -> _State:
        adjacency = Adjacency(data.edge_index, alive.numel())
        rows, moved, replaced = training_rows(context, data, alive), torch.zeros_like(alive), torch.zeros_like(alive)
        if before is None:
            levels = propagate(adjacency, project(data.x, self.dim, context.seed), self.hops)
        else:
            replaced[context.deletion.features[0].to(alive.device)] = True
            exchanged = ((alive != before.alive) | replaced | before.replaced).nonzero().flatten()
            x = before.levels[0].clone()
            if exchanged.numel():
                x[exchanged] = project(data.x.to_dense()[exchanged], self.dim, context.seed)
            reach = reached(before.adjacency, adjacency, exchanged, self.hops)
            levels = propagate_again(adjacency, x, before.levels, reach)
            moved[reach] = True
        return _State(adjacency, alive, levels, rows, classes(context), moved, replaced)

    def _notes(self, context: Context, path: str, first: bool) -> tuple[Note, ...]:
        text = (
            "Exact: weights equal a fresh fit on the remaining graph with the same seed, up to rounding. Each true edge draws "
            "its own non-edge from the seed, and a deleted pair may be drawn like any other pair without an edge, so the "
            "training rows depend on nothing deleted. The paper's optional fine-tuning is left out: it would not be exact."
        )
        notes = [*shared_notes("GraphEditor", context, self.dim), Note("exact", text)]
        if classes(context) is not None:
            text = "Class probabilities are a softmax of regression values: their order counts, not their size."
            notes.append(Note("probabilities-not-calibrated", text))
        if path == "solve":
            text = "The model was solved again instead of updated: more rows changed than it has columns, or rounding grew."
            notes.append(Note("solved-again", text))
        elif first:
            text = "The first request also fits the model that is edited: compare fit_seconds with edit_seconds."
            notes.append(Note("first-fit", text))
        return tuple(notes)


@dataclass(frozen=True, eq=False)
class _Ridge:
    """(Phi^T Phi + lam I) W = Phi^T Y: both sides, the inverse and the solution, in double precision."""

    gram: Tensor
    moment: Tensor
    inverse: Tensor
    weight: Tensor

    @classmethod
    def solve(cls, chunks: Iterator[tuple[Tensor, Tensor]], lam: float) -> _Ridge:
        gram, moment = torch.zeros(()), torch.zeros(())
        for phi, y in chunks:
            gram, moment = gram.to(phi) + phi.t() @ phi, moment.to(phi) + phi.t() @ y
        gram.diagonal().add_(lam)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if int(failed):
            raise RunError(f"the ridge regression has no stable solution with lam={lam:g}; raise lam=")
        return cls(gram, moment, torch.cholesky_inverse(factor), torch.cholesky_solve(moment, factor))

    def updated(self, gone: Iterator[tuple[Tensor, Tensor]], come: Iterator[tuple[Tensor, Tensor]]) -> _Ridge | None:
        """The solution without the rows ``gone`` and with the rows ``come``; None where rounding has eaten it.

        Rows come before others go: sums are the same in any order, and this one keeps the inverse small.
        """
        gram, moment, inverse, weight = self.gram, self.moment, self.inverse, self.weight
        for sign, chunks in ((1.0, come), (-1.0, gone)):
            for phi, y in chunks:
                a = inverse @ phi.t()
                small = torch.eye(len(phi), dtype=a.dtype, device=a.device) + sign * (phi @ a)
                factor, failed = torch.linalg.cholesky_ex(small)
                if int(failed):
                    return None
                weight = weight + sign * (a @ torch.cholesky_solve(y - phi @ weight, factor))
                inverse = inverse - sign * (a @ torch.cholesky_solve(a.t(), factor))
                gram, moment = gram + sign * (phi.t() @ phi), moment + sign * (phi.t() @ y)
        # one step of refinement: rounding of many updates in a row does not add up in the weights
        step = inverse @ (moment - gram @ weight)
        if not float(step.norm()) <= MAX_DRIFT * float(weight.norm()):
            return None
        return _Ridge(gram, moment, (inverse + inverse.t()) / 2, weight + step)


@dataclass(frozen=True, eq=False)
class _State:
    """A graph with its propagated features, its training rows and, once solved, its weights."""

    adjacency: Adjacency
    alive: Tensor
    levels: list[Tensor]
    rows: Rows
    classes: int | None
    moved: Tensor  # nodes whose features differ from those in the state before
    replaced: Tensor  # nodes that have lost features of their own
    ridge: _Ridge | None = None

    @property
    def width(self) -> int:
        columns = self.levels[0].size(1)
        return columns * len(self.levels) if self.classes is not None else columns + 1

    def features(self, ends: Tensor) -> Tensor:
        """phi of nodes (given in both places) or of pairs."""
        if self.classes is not None:
            return torch.cat([F.normalize(level[ends[0]]) for level in self.levels], dim=1)
        both = F.normalize(self.levels[-1][ends[0]]) * F.normalize(self.levels[-1][ends[1]])
        return torch.cat([both, self.adjacency.common_neighbors(ends).to(both)[:, None]], dim=1)

    def chunks(self, places: Tensor, size: int = CHUNK_ROWS) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and targets of the rows at these places, a few at a time."""
        for part in places.split(size):
            target = self.rows.target[part]
            if self.classes is None:
                y = target.double()[:, None]
            else:
                y = F.one_hot(target, self.classes).double()
            yield self.features(self.rows.ends[:, part]), y

    def solved(self, lam: float) -> _Ridge:
        return _Ridge.solve(self.chunks(torch.arange(len(self.rows), device=self.alive.device)), lam)


def _predictor(state: _State, ridge: _Ridge) -> Predict:
    """Regression values of pairs, class probabilities of nodes, on the graph of one state."""

    def predict(elements: Any) -> Tensor:
        ends = as_ends(elements, state.classes is not None, state.alive)
        parts = [state.features(part) @ ridge.weight for part in ends.split(CHUNK_ROWS, dim=1)]
        values = torch.cat(parts) if parts else ridge.weight.new_empty(0, ridge.weight.size(1))
        return values.flatten() if state.classes is None else values.softmax(dim=-1)

    return predict


def _since(start: float, device: torch.device) -> float:
    synchronize(device)
    return time.perf_counter() - start
