"""Trained vectors of nodes: take out of a row what the deleted edges taught it.

In a model with a table of vectors, the memory of an edge (u, v) sits in the rows of u and v, and a map that all endpoints
share cannot reach it. With everything else fixed, a row is nearly what a ridge regression on its partners gives: a score of 1
with each of them, 0 with as many others,

    fit_u(N) = (sum_{v in N} g_v g_v^T + |N| A + rho I)^-1 sum_{v in N} g_v

where g_v is the derivative of the decoder's score by the row of u (the row of v, for inner products), N the partners of u and
A = E[g g^T] over all training edges. After the deletion the partners are N_r, and the row becomes

    e_u' = e_u - b s (fit_u(N) - fit_u(N_r))

with one strength b for all rows; s gives the fits the size of rows. What other partners teach a row as well stays in it, so
neither its length nor its other scores show that it was changed. Nothing depends on what else is in the request.

Nodes without any partner left get the row of a node that was never trained.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.engine.local import BlockSession, Solved
from gnndelete.engine.session import Session
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.parsing import distinct
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.node_embeddings import nodes_without_edges, untrained_vectors
from gnndelete.nn.operator import GivenRows, Operator
from gnndelete.nn.tables import Vectors, filled
from gnndelete.notes import Note
from gnndelete.tasks import Task

#: rho, relative to the mean of the other terms over the ends of all edges. Chosen with the form of the fit on four models of
#: generated ratings, Cora_ML and CiteSeer (one seed each), where .3 to 2 differ little.
RIDGE = 0.5

#: Training edges that A is estimated from.
SAMPLED_EDGES = 8192

#: The largest lam: beyond it b = lam / (1 - lam) has no bound.
LARGEST = 0.98

#: Numbers in the matrices that are solved at once.
CHUNK = 1 << 22


def strength(lam: float) -> float:
    """b: how often what the fit says of the deleted edges is taken out; lam 0.5 takes it once.

    >>> strength(0.0), strength(0.5), round(strength(0.8), 6)
    (0.0, 1.0, 4.0)
    """
    lam = min(lam, LARGEST)
    return lam / (1 - lam)


@dataclass(frozen=True)
class Facts:
    """What is the same for all requests, by table.

    Attributes:
        moment: A.
        ridge: rho.
        scale: s.
    """

    moment: Tensor
    ridge: float
    scale: float


def table_facts(session: Session, task: Task) -> dict[str, Facts]:
    """A, rho and s of every table of a model; estimated once, from a sample of the training edges."""
    if session.row_model is None:
        learned = task.learned_once(session.data)
        degree = torch.bincount(ends_of(learned).flatten(), minlength=session.table.num_nodes).double()
        order = torch.randperm(learned.size(1), generator=torch.Generator().manual_seed(0))
        sample = learned[:, order[:SAMPLED_EDGES].to(learned.device)]
        typical = float(degree.square().sum() / degree.sum().clamp(min=1))
        values = {vectors: session.parameter(vectors.parameter) for vectors in session.vectors}
        session.row_model = {
            vectors.parameter: _facts(_pulls(task, session.model, values, vectors, [(sample, (0, -1))]), table, typical)
            for vectors, table in values.items()
        }
    found: dict[str, Facts] = session.row_model
    return found


def _facts(pulls: tuple[Tensor, Tensor], table: Tensor, typical: float) -> Facts:
    rows, g = (part.double() if part.is_floating_point() else part for part in pulls)
    if not rows.numel():
        return Facts(torch.eye(table.size(1)).to(table.device).double(), 1.0, 0.0)
    moment = g.t() @ g / g.size(0)
    size = max(float(moment.trace()), 1e-12)
    length = float(table[rows].double().square().sum(dim=1).mean())
    return Facts(moment, 2 * RIDGE * typical * size / g.size(1), (size * length) ** 0.5)


def _pulls(
    task: Task,
    model: nn.Module,
    tables: dict[Vectors, Tensor],
    vectors: Vectors,
    parts: list[tuple[Tensor, tuple[int, ...]]],
    nodes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Which rows of a table are pulled by edges, and the derivative of each edge's score by that row.

    Args:
        task: Gives the derivatives.
        model: The model.
        tables: All tables, with their rows.
        vectors: The table in question.
        parts: Edges, and which of their ends (0 and -1) count.
        nodes: Only the rows of these nodes; by default all.
    """
    rows, pulls = [torch.empty(0, dtype=torch.long, device=tables[vectors].device)], [tables[vectors][:0]]
    for edges, sides in parts:
        for side in sides:
            own, other = edges[side], edges[-1 - side]
            inside = (own >= vectors.nodes.start) & (own < vectors.nodes.stop)
            inside = inside if nodes is None else inside & torch.isin(own, nodes)
            chosen, own, other = edges[:, inside], own[inside], other[inside]
            partner = _partner(tables, vectors, other)
            if not own.numel() or partner is None:
                continue
            pair = tables[vectors][own - vectors.nodes.start], tables[partner][other - partner.nodes.start]
            heads, tails = pair if side == 0 else pair[::-1]
            rows.append(own - vectors.nodes.start)
            pulls.append(task.row_gradients(model, chosen, heads, tails)[0 if side == 0 else 1])
    return torch.cat(rows), torch.cat(pulls)


def _partner(tables: dict[Vectors, Tensor], vectors: Vectors, nodes: Tensor) -> Vectors | None:
    """The table with the rows of the other ends: the same one, or one as wide."""
    if not nodes.numel():
        return None
    low, high = int(nodes.min()), int(nodes.max())
    fitting = [
        other
        for other, table in tables.items()
        if other.nodes.start <= low and high < other.nodes.stop and table.size(1) == tables[vectors].size(1)
    ]
    return vectors if vectors in fitting else next(iter(fitting), None)


def losses(found: Facts, rows: Tensor, g: Tensor, gone: Tensor, count: int) -> Tensor:
    """s (fit(N) - fit(N_r)) of some rows.

    Args:
        found: A, rho and s.
        rows: Which of the rows each partner pulls, from 0.
        g: Where to.
        gone: Which of the partners are deleted.
        count: The number of rows.

    >>> found = Facts(torch.zeros(1, 1), ridge=1.0, scale=1.0)
    >>> one, two = torch.ones(2, 1), torch.zeros(2, dtype=torch.long)
    >>> losses(found, two, one, torch.tensor([True, False]), 1).tolist()  # 2 / (2 + 1) - 1 / (1 + 1)
    [[0.1666666716337204]]
    """
    width, result = g.size(1), g.new_zeros(count, g.size(1))
    order = rows.argsort(stable=True)
    rows, g, gone = rows[order], g[order].double(), gone[order]
    degree = torch.bincount(rows, minlength=count)
    start = degree.cumsum(0) - degree
    left = degree.argsort(descending=True)[: int((degree > 0).sum())]
    ridge = found.ridge * torch.eye(width, dtype=torch.double, device=g.device)
    moment = found.moment.double()
    while left.numel():
        most = int(degree[left[0]])
        part, left = left.split(
            [k := min(max(CHUNK // (width * (2 * most + 4 * width)), 1), left.numel()), left.numel() - k]
        )
        place = torch.arange(most, device=g.device)
        there = place < degree[part, None]
        position = torch.where(there, start[part, None] + place, 0)
        deleted = gone[position] & there
        pulls = g[position]
        stays, leaves = (pulls * mask[:, :, None] for mask in (there & ~deleted, deleted))
        numbers = [mask.sum(dim=1)[:, None, None] for mask in (there & ~deleted, deleted)]
        remaining = stays.transpose(1, 2) @ stays + numbers[0] * moment + ridge
        whole = remaining + leaves.transpose(1, 2) @ leaves + numbers[1] * moment
        fits = [
            torch.linalg.solve(matrix, pulled.sum(dim=1))
            for matrix, pulled in ((whole, stays + leaves), (remaining, stays))
        ]
        result[part] = (found.scale * (fits[0] - fits[1])).to(result)
    return result


@dataclass(frozen=True)
class Correction:
    """The rows of one table that a deletion changes.

    Attributes:
        vectors: The table.
        ids: The rows, sorted.
        before: What they were.
        loss: What leaves them at b = 1.
        given: Which of them are replaced whatever b is: those of nodes without a partner.
    """

    vectors: Vectors
    ids: Tensor
    before: Tensor
    loss: Tensor
    given: Tensor

    def at(self, lam: float) -> tuple[Tensor, Tensor]:
        """The rows that change at one lam, and their values."""
        if lam == 0:
            return self.ids[self.given], (self.before - self.loss)[self.given]
        b = torch.where(self.given, 1.0, strength(lam)).to(self.before)[:, None]
        return self.ids, self.before - b * self.loss

    def operator(self, lam: float, num_rows: int) -> Operator | None:
        """The operator of the table at one lam."""
        ids, rows = self.at(lam)
        maps: list[nn.Module] = [GivenRows(rows).requires_grad_(False)]
        return Operator(num_rows, rows.size(1), [ids], maps) if ids.numel() else None


class RowCorrection:
    """One deletion on a working copy of the model, in the place of `Layerwise`: what changes is rows of tables.

    Args:
        context: The request, on the whole graph or on its block.
        model: The working copy.
        known: A, rho and s of every table.
    """

    def __init__(self, context: Context, model: nn.Module, known: dict[str, Facts]) -> None:
        self.context, self.model = context, model
        with self._running():
            self._tables = {vectors: self._table(vectors) for vectors in context.session.vectors}
            self.isolated = nodes_without_edges(context)
            if isinstance(context.session, BlockSession):  # in the order of ids, as untrained rows are drawn
                self.isolated = self.isolated[context.session.block.nodes[self.isolated].argsort()]
            self.corrections = self._corrections(known)
        if self.resets and not finite(self._output(0.0, context.remaining)):  # the model cannot take rows of zeros
            for correction in self.corrections:
                mean = context.session.parameter(correction.vectors.parameter).mean(dim=0)
                correction.loss[correction.given] = correction.before[correction.given] - mean

    def _table(self, vectors: Vectors) -> Tensor:
        """The rows of a table, those of the block where there is one."""
        table = self.model.get_parameter(vectors.parameter).detach()
        rows = torch.arange(len(vectors.nodes), device=table.device)
        place = self.context.session.placed(vectors, rows)
        return table if place is rows else table.index_select(0, place)

    def _running(self) -> AbstractContextManager[None]:
        session = self.context.session
        return session.running() if isinstance(session, BlockSession) else nullcontext()

    def _corrections(self, known: dict[str, Facts]) -> list[Correction]:
        context, result = self.context, []
        assert context.task is not None
        gone = deleted_edges(context)
        nodes = torch.cat([ends_of(gone).flatten(), self.isolated]).unique()
        left, sides = remaining_edges(context, nodes)
        generator = torch.Generator().manual_seed(context.seed)
        for vectors, table in self._tables.items():
            ids = vectors.rows(nodes)
            if not ids.numel():
                continue
            parts = [_pulls(context.task, self.model, self._tables, vectors, [(gone, (0, -1))], nodes)]
            parts.append(_pulls(context.task, self.model, self._tables, vectors, [(left, sides)], nodes))
            rows, g = (torch.cat(both) for both in zip(*parts, strict=True))
            is_gone = torch.arange(rows.numel(), device=rows.device) < parts[0][0].numel()
            place, before = torch.searchsorted(ids, rows), table[ids]
            loss = losses(known[vectors.parameter], place, g, is_gone, ids.numel())
            isolated = torch.searchsorted(ids, vectors.rows(self.isolated))
            untrained = untrained_vectors(vectors, table, context, self.isolated, generator)
            loss[isolated] = before[isolated] - untrained.to(before)
            given = torch.zeros_like(ids, dtype=torch.bool).index_fill_(0, isolated, True)
            result.append(Correction(vectors, ids, before, loss, given))
        return result

    @property
    def changes(self) -> bool:
        """Whether there is a row to change."""
        return any(correction.ids.numel() for correction in self.corrections)

    @property
    def resets(self) -> bool:
        """Whether there are nodes without a partner, whose rows are replaced whatever lam is."""
        return any(bool(correction.given.any()) for correction in self.corrections)

    def present(self, solved: Solved) -> Any:
        """Deleted edges are asked about on the remaining graph alone."""
        raise NotImplementedError

    def run(self, lam: float, *_: Any, **__: Any) -> tuple[Solved, Any]:
        """The operators at one lam, and the model's output with them on the remaining graph."""
        return self._solved(lam), self._output(lam, self.context.remaining)

    def _solved(self, lam: float) -> Solved:
        found = []
        for correction in self.corrections:
            table = self._tables[correction.vectors]
            operator = correction.operator(lam, table.size(0))
            if operator is not None:
                found.append((replace(correction.vectors.site, width=table.size(1)), operator))
        return found

    def _output(self, lam: float, graph: Any) -> Any:
        rows = {}
        for correction in self.corrections:
            ids, values = correction.at(lam)
            rows[correction.vectors.parameter] = self.context.session.placed(correction.vectors, ids), values
        with self._running(), filled(self.model, rows):
            return self.context.session.forward(self.model, graph)

    def notes(self) -> tuple[Note, ...]:
        """What the user must know."""
        count = self.isolated.numel()
        if not count or not self.corrections:
            return ()
        who = "1 node lost all its edges" if count == 1 else f"{count:,} nodes lost all their edges"
        text = f"{who}. What their trained embeddings knew came from the deleted data, so it was reset."
        return (Note("isolated-nodes", text),)


def finite(output: Any) -> bool:
    """Whether everything that a model returned is finite."""
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
    return all(bool(torch.isfinite(part).all()) for part in parts if isinstance(part, Tensor))


def deleted_edges(context: Context) -> Tensor:
    """The edges that the model learned from and that leave, those of deleted nodes included; each once."""
    assert context.task is not None
    deletion, data = context.deletion, context.data
    edges = context.task.elements(deletion, data)
    if deletion.nodes.numel():
        nodes = deletion.replace(edges=deletion.edges[:, :0])
        more = context.task.elements(nodes, data, incident=True)
        if "edge_type" not in data and both_ways(context.session):  # a block lists some edges in one direction only
            edges, more = edges.sort(dim=0).values, more.sort(dim=0).values
        edges = distinct(torch.cat([edges.to(more.device), more], dim=1) if edges.size(1) else more)
    return edges.to(data.edge_index.device)


def both_ways(session: Session) -> bool:
    """Whether the graph lists every edge in both directions; of a block, the graph that it is a part of."""
    table = session.blocks.session.table if isinstance(session, BlockSession) else session.table
    return table.undirected or table.mirrored


def remaining_edges(context: Context, nodes: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The edges at some nodes that the model learned from and that stay, and which of their ends count.

    A block has the edges into its nodes, so of an undirected graph those with their second end among the nodes are taken.
    """
    assert context.task is not None
    session, data = context.session, context.remaining
    if isinstance(session, BlockSession) and "edge_type" not in data:
        edges, undirected = data.edge_index, both_ways(session)
        near = torch.isin(edges[1], nodes) if undirected else torch.isin(edges, nodes).any(dim=0)
        return torch.unique(edges[:, near & (edges[0] != edges[1])], dim=1), (-1,) if undirected else (0, -1)
    edges = context.task.learned_once(data)
    return edges[:, torch.isin(ends_of(edges), nodes).any(dim=0)], (0, -1)
