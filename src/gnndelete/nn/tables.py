"""Tables: parameters of a model with a trained row per node, or per node of one type.

They are found by what they do, not by their class: one row is made NaN, and it must show at the node of that row and at no
node that is not joined with it. It does not matter whether the model reads the table whole or by ids, alone or joined with
features, before its layers or past them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.nn.forward import Forward
from gnndelete.nn.hooks import Rows, Site
from gnndelete.nn.receptive_field import Reading, line, run


@dataclass(frozen=True)
class Vectors:
    """A parameter with one row per node, or per node of one type.

    Attributes:
        parameter: Its name.
        nodes: The nodes that have a row.
        embedding: Whether it is the table of an `nn.Embedding`.
        first: The first layer behind which the rows show; None where they show behind none.
        beyond: Whether they also show past the layers, as where a model adds up all layers or skips some.
    """

    parameter: str
    nodes: range
    embedding: bool = False
    first: str | None = field(default=None, compare=False)
    beyond: bool = field(default=False, compare=False)

    def rows(self, nodes: Tensor) -> Tensor:
        """The rows of those nodes that the parameter has."""
        return nodes[(nodes >= self.nodes.start) & (nodes < self.nodes.stop)] - self.nodes.start

    @property
    def site(self) -> Site:
        """Where an operator replaces rows of the parameter."""
        layer, _, name = self.parameter.rpartition(".")
        return Site(layer, key=name, rows=self.nodes, table=True)


def possible_vectors(model: nn.Module, data: Data, parts: bool = False) -> list[Vectors]:
    """Parameters with one row per node. One that is frozen while others learn was given, not trained: it is a feature.

    With ``parts`` also those that could share the nodes of a ``Data`` with another one, such as users first and then items.
    """
    rows = Rows(data)
    parameters = dict(model.named_parameters())
    any_learns = any(value.requires_grad for value in parameters.values())
    tables = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}

    count, heights = len(rows.whole), {value.size(0) for value in parameters.values() if value.dim() == 2}

    def ranges(name: str, height: int) -> list[range]:
        """The nodes that rows may be of; first those of a type that is part of the name, as in a dict by type."""
        named = [nodes for kind, nodes in rows.types.items() if kind in name.split(".")]
        shared = parts and not rows.types and count - height in heights
        ends = [range(height), range(count - height, count)] if shared else []
        return list(dict.fromkeys([*named, rows.whole, *rows.types.values(), *ends]))

    return [
        Vectors(name, nodes, name in tables)
        for name, value in parameters.items()
        for nodes in ranges(name, value.size(0) if value.dim() == 2 else 0)
        if value.dim() == 2 and value.size(0) == len(nodes) > 0 and (value.requires_grad or not any_learns)
    ]


def node_tables(model: nn.Module, data: Data, forward: Forward, layers: list[str]) -> tuple[Vectors, ...]:
    """The tables of a working copy of a model, and where it reads them.

    Two node types of one size have tables of one size; which is which shows, too.
    """
    possible = possible_vectors(model, data, parts=True)
    if not possible:
        return ()
    (graph, places), rows = line(data), Rows(data)
    found: dict[str, tuple[int, Vectors]] = {}
    for vectors in possible:
        here = places[vectors.nodes.start : vectors.nodes.stop]
        if not bool((here >= 0).any()):
            continue
        node = (
            torch.where(here >= 0, here, len(places)).argmin().view(1)
        )  # the first of its line; where types share one, of these
        start = int(here[node])
        nan = model.get_parameter(vectors.parameter)[node] * torch.nan
        trace = _Trace(places, start)
        try:
            with filled(model, {vectors.parameter: (node, nan)}):
                run(model, graph, forward, layers, change=trace)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # whatever a user's model has against another graph or NaN: its class has to do
            trace = _Trace(places, start)
        shows = [reading.site.title for reading in trace.seen if not reading.output]
        known = replace(vectors, first=next(iter(shows), None), beyond=any(reading.output for reading in trace.seen))
        of_type = vectors.nodes == rows.whole or vectors.nodes in rows.types.values()
        shown = trace.near if not of_type else bool(trace.seen) or vectors.embedding
        if shown and not trace.spread and trace.reach < found.get(vectors.parameter, (len(places),))[0]:
            found[vectors.parameter] = trace.reach, known  # of two types of one size, the one whose node is at the row
    return tuple(vectors for _, vectors in found.values())


class _Trace:
    """Where NaN in the row of a node shows, if it is mended behind every layer.

    Args:
        places: The place of every node in a line, or -1.
        start: The place of the node.

    Attributes:
        seen: Where it shows.
        spread: Whether it shows in the row of a node that is not in the line.
        reach: How far from the node it shows.
        near: Whether it first shows at the node, or beside it.
    """

    def __init__(self, places: Tensor, start: int = 0) -> None:
        self._places, self._start = places, start
        self.seen: list[Reading] = []
        self.spread, self.reach, self.near = False, 0, False

    def __call__(self, reading: Reading) -> Tensor:
        nan = torch.isnan(reading.h.flatten(1)).any(dim=1)
        moved = self._places[reading.site.rows.start : reading.site.rows.stop][nan]
        if moved.numel():
            away = (moved - self._start).abs()
            self.near |= not self.seen and int(away.min()) <= 1
            self.spread |= bool((moved < 0).any())
            self.reach = max(self.reach, int(away.max()))
            self.seen.append(reading)
        return reading.h.masked_fill(nan.view(-1, *[1] * (reading.h.dim() - 1)), 0.0)


@contextmanager
def filled(model: nn.Module, rows: dict[str, tuple[Tensor, Tensor]]) -> Iterator[None]:
    """A working copy with other rows in some of its parameters, for the length of a block.

    Args:
        model: The working copy.
        rows: By the name of the parameter, which rows, and what they are meanwhile.
    """
    before = {name: (parameter := model.get_parameter(name), parameter.data) for name in rows}
    try:
        for name, (ids, values) in rows.items():
            parameter, base = before[name]
            parameter.data = base.index_copy(0, ids, values.to(base))
        yield
    finally:
        for parameter, base in reversed(before.values()):
            parameter.data = base
