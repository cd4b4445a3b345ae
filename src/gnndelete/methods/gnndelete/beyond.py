"""Some rows beyond the reach that the probe found: where they move with an operator, distance bounds nothing after all."""

from __future__ import annotations

import torch
from torch import Tensor

from gnndelete.graph.hetero import HeteroGraph
from gnndelete.methods.base import Context
from gnndelete.nn.hooks import Site
from gnndelete.nn.receptive_field import Probe

#: Rows that are looked at, and the part of their size (and steps of their precision) that is no more than rounding.
_ROWS, _NEAR, _STEPS = 256, 1e-4, 16

MOVED = (
    "Rows further from the deletion than the model was seen to reach changed as well: it chooses or groups nodes by what their "
    "rows hold, so that distance does not bound the influence of a deletion."
)


class Beyond:
    """Rows outside S^L at every site but the first, as the base model and the solving pass have them on the remaining graph.

    A NaN does not show a choice among all nodes (the nearest of some centres, say) that falls elsewhere when a row changes.
    Both passes are there in any case, and few rows cost nothing.
    """

    def __init__(self, context: Context, probe: Probe, near: Tensor, asked: bool) -> None:
        count, device = context.session.table.num_nodes, near.device
        watches = asked and probe.bounded and len(probe.sites) > 1 and not context.session.random
        self._rows: Tensor | None = None
        if watches and not isinstance(context.data, HeteroGraph):
            self._rows = torch.linspace(0, count - 1, min(_ROWS, count), device=device).long()
            self._far = torch.ones(count, dtype=torch.bool, device=device).index_fill_(0, near, False)[self._rows]
        self._first = probe.sites[0]
        self._kept: dict[Site, Tensor] = {}
        self._moved: list[Tensor] = []

    def keep(self, site: Site, h: Tensor) -> None:
        """The base model says this."""
        if self._rows is not None and site is not self._first:
            self._kept[site] = h.index_select(0, self._rows)

    def compare(self, site: Site, h: Tensor) -> None:
        """The same with operators behind the layers before; nothing here waits for a device."""
        if self._rows is not None and site in self._kept:
            before = self._kept[site]
            gap = (h.index_select(0, self._rows) - before).abs().flatten(1).amax(dim=1)
            near = max(_NEAR, _STEPS * torch.finfo(h.dtype).eps)
            self._moved.append((gap * self._far).max() > near * before.abs().max())

    @property
    def note(self) -> tuple[str, ...]:
        return (MOVED,) if self._moved and bool(torch.stack(self._moved).any()) else ()
