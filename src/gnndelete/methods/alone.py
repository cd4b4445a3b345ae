"""Nodes that a deletion leaves without any edge: what a link model's trained vectors know of them came from what was deleted.

Training again would leave the vector of such a node as it began. The graph layers of a blank vector say what that looks like,
so that the rows of these nodes are mapped there, whatever lam is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.methods.base import Context
from gnndelete.methods.passes import rows_of, visited
from gnndelete.probe import Site
from gnndelete.taps import all_rows


@dataclass(frozen=True)
class Alone:
    """Such nodes, and their rows at every site with blank vectors; none where the model has no trained vectors of nodes."""

    nodes: Tensor
    rows: dict[Site, Tensor] = field(default_factory=dict)

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
    nodes = _without_edges(context) if possible else none.nodes
    if not nodes.numel():
        return none
    found = [vectors for vectors in possible if _speaks_of_them_alone(context, model, sites, vectors, nodes)]
    if not found:
        return none
    with _filled(model, found, nodes, 0.0):
        return Alone(nodes, rows_of(context.prepared.forward, model, context.remaining, sites, nodes))


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


def _without_edges(context: Context) -> Tensor:
    """Nodes with edges before the deletion and none after it, but for those that are deleted or lose features themselves."""
    edges = context.data.edge_index
    had, has = (torch.zeros(context.prepared.table.num_nodes, dtype=torch.bool, device=edges.device) for _ in range(2))
    had[edges.flatten()] = True
    has[context.remaining.edge_index.flatten()] = True
    had[context.deletion.nodes.to(edges.device)] = False
    had[context.deletion.feature_nodes.to(edges.device)] = False
    return (had & ~has).nonzero().flatten()


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
        with _filled(model, [vectors], nodes, float("nan")):
            visited(context.prepared.forward, model, context.remaining, sites, look)
    except Exception:  # a model of the user's that refuses NaN: nothing is known then
        return False
    return reached and not spread


@contextmanager
def _filled(model: nn.Module, found: list[Vectors], nodes: Tensor, value: float) -> Iterator[None]:
    """The model with other values in the rows of some nodes, for the length of a block."""
    parameters = dict(model.named_parameters())
    before: list[tuple[Any, Tensor]] = []
    try:
        for vectors in found:
            parameter = parameters[vectors.parameter]
            before.append((parameter, parameter.data))
            parameter.data = parameter.data.index_fill(0, vectors.rows(nodes), value)
        yield
    finally:
        for parameter, data in before:
            parameter.data = data
