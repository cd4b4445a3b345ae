"""Nodes that a deletion leaves without any edge: what a link model's trained vectors know of them came from what was deleted.

Training again would leave the vector of such a node as it began. Nodes that never had an edge show what that looks like; where
there are none, the vector is blank. The rows of the layers are given as they would be with such vectors, whatever lam is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.methods.base import Context
from gnndelete.methods.passes import rows_of, visited
from gnndelete.operator import GivenRows
from gnndelete.probe import Site
from gnndelete.taps import all_rows


@dataclass(frozen=True)
class Alone:
    """Such nodes, and their rows at every site with untrained vectors; none where the model has no vectors of nodes."""

    nodes: Tensor
    rows: dict[Site, Tensor] = field(default_factory=dict)

    def already(self, site: Site, h: Tensor) -> bool:
        """Whether the rows are so without an operator: behind the first layer they follow from what was given there."""
        return _alike(h.index_select(0, site.local(self.nodes)), self.rows[site], 1e-3)

    def map(self, site: Site) -> GivenRows:
        """The map to these rows; a single one where they are all alike."""
        rows = self.rows[site].flatten(1)
        alike = _alike(rows[:1].expand_as(rows), rows, 1e-5)
        return GivenRows((rows[:1] if alike else rows).clone()).requires_grad_(False)

    @property
    def note(self) -> tuple[str, ...]:
        count = self.nodes.numel()
        if not count:
            return ()
        who, whom = ("1 node is", "it") if count == 1 else (f"{count:,} nodes are", "them")
        return (
            f"{who} left without an edge: what the model's trained vectors knew of {whom} came from what was deleted and counts "
            "no more.",
        )


@dataclass(frozen=True)
class Vectors:
    """A parameter with one row per node, or per node of one type."""

    parameter: str
    nodes: range

    def rows(self, nodes: Tensor) -> Tensor:
        return nodes[(nodes >= self.nodes.start) & (nodes < self.nodes.stop)] - self.nodes.start


def left_alone(context: Context, model: nn.Module, sites: tuple[Site, ...]) -> Alone:
    """The nodes that lost their last edge, where ``model`` (a working copy) has trained vectors that say so much of them."""
    none = Alone(context.deletion.nodes[:0].to(context.data.edge_index.device))
    possible = possible_vectors(model, context.data)
    if not possible:
        return none
    nodes, never = _without_edges(context)
    if not nodes.numel():
        return none
    found = [vectors for vectors in possible if _speaks_of_them_alone(context, model, sites, vectors, nodes)]
    if not found:
        return none
    generator = torch.Generator().manual_seed(context.seed)

    def untrained(vectors: Vectors, values: Tensor) -> Tensor:
        """One of those that no edge ever trained for each node, or nothing but zeros."""
        known, count = vectors.rows(never), vectors.rows(nodes).numel()
        if not known.numel():
            return values.new_zeros(count, values.size(1))
        drawn = torch.randint(known.numel(), (count,), generator=generator).to(known.device)
        return values[known[drawn]]

    with _filled(model, found, nodes, untrained):
        return Alone(nodes, rows_of(context.prepared.forward, model, context.remaining, sites, nodes))


def _alike(one: Tensor, other: Tensor, share: float) -> bool:
    """Whether two tensors differ by no more than a share of their size; empty ones are."""
    return not other.numel() or torch.allclose(one, other, rtol=share, atol=share * float(other.abs().mean()))


def possible_vectors(model: nn.Module, data: Data) -> list[Vectors]:
    """Parameters whose shape would do. What is frozen while others learn was given, not trained: it is like a feature."""
    places = all_rows(data)
    parameters = dict(model.named_parameters())
    some_learn = any(value.requires_grad for value in parameters.values())
    return [
        Vectors(name, nodes)
        for name, value in parameters.items()
        for nodes in dict.fromkeys([places.whole, *places.types.values()])
        if value.dim() == 2 and value.size(0) == len(nodes) > 0 and (value.requires_grad or not some_learn)
    ]


def _without_edges(context: Context) -> tuple[Tensor, Tensor]:
    """Nodes that lost their last edge, and those that never had one; without those that are deleted or lose features."""
    edges = context.data.edge_index
    had, has, named = torch.zeros(3, context.prepared.table.num_nodes, dtype=torch.bool, device=edges.device)
    had[edges.flatten()] = True
    has[context.remaining.edge_index.flatten()] = True
    named[torch.cat([context.deletion.nodes, context.deletion.feature_nodes]).to(edges.device)] = True
    return (had & ~has & ~named).nonzero().flatten(), (~had & ~named).nonzero().flatten()


def _speaks_of_them_alone(
    context: Context, model: nn.Module, sites: tuple[Site, ...], vectors: Vectors, nodes: Tensor
) -> bool:
    """Whether NaN in the parameter's rows of these nodes shows in their rows of a layer, and nowhere else."""
    mine = nodes[(nodes >= vectors.nodes.start) & (nodes < vectors.nodes.stop)]
    reached, spread = False, False

    def look(site: Site, h: Tensor) -> None:
        nonlocal reached, spread
        poisoned, own = torch.isnan(h.flatten(1)).any(dim=1), site.local(mine)
        count = int(poisoned.sum())
        reached |= 0 < own.numel() == count
        spread |= count != int(poisoned[own].sum())

    try:
        with _filled(model, [vectors], nodes, lambda of, values: values[of.rows(nodes)] * float("nan")):
            visited(context.prepared.forward, model, context.remaining, sites, look)
    except Exception:  # a model of the user's that refuses NaN: nothing is known then
        return False
    return reached and not spread


@contextmanager
def _filled(
    model: nn.Module, found: list[Vectors], nodes: Tensor, filling: Callable[[Vectors, Tensor], Tensor]
) -> Iterator[None]:
    """The model with other values in the rows of some nodes, for the length of a block."""
    parameters = dict(model.named_parameters())
    before = [(parameters[vectors.parameter], parameters[vectors.parameter].data) for vectors in found]
    try:
        for vectors, (parameter, values) in zip(found, before, strict=True):
            parameter.data = parameter.data.index_copy(0, vectors.rows(nodes), filling(vectors, values))
        yield
    finally:
        for parameter, values in reversed(before):
            parameter.data = values
