"""The solving pass: operators solved layer by layer while the model runs, for any lam, from one pass of the base model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.methods.alone import Alone
from gnndelete.methods.base import Context
from gnndelete.methods.passes import BasePass, base_pass, first_output_given, presented_rows
from gnndelete.neighborhood import Hops
from gnndelete.operator import Operator, attach, detach
from gnndelete.probe import Probe, Site
from gnndelete.solver import Problem, sound
from gnndelete.taps import Finished, entry, listening, replaced
from gnndelete.tasks import LinkPrediction

Solved = list[tuple[Site, Operator]]
#: Makes the map of a problem; in the list it may leave to be checked later what would have to wait for the device now.
MakeMap = Callable[[Site, Problem, list[Tensor] | None], nn.Module]


@dataclass(frozen=True)
class Group:
    """Rows that share one map. ``forget``: lam pulls them away; ``gone``: they belong to deleted nodes.

    ``again``: their nodes have lost features, and what must be forgotten is what they say when these are presented again.
    ``alone``: their nodes have lost their last edge, and trained vectors know nothing of them any more.
    """

    rows: Tensor
    forget: bool
    gone: bool = False
    again: bool = False
    alone: bool = False
    alive: Tensor | None = None  # weights of keeping, 1 in all: none for rows of deleted nodes
    ends: Tensor | None = None  # weights of forgetting, 1 in all: how often each row is an end of something deleted


class Solving:
    """One deletion on a working copy of the model; what does not depend on lam is computed once."""

    def __init__(
        self,
        context: Context,
        model: nn.Module,
        probe: Probe,
        targets: str,
        hops: Hops,
        shared: bool,
        alone: Alone | None = None,
    ) -> None:
        self.context, self.model, self.probe, self.targets = context, model, probe, targets
        self._alone = Alone(context.deletion.nodes[:0].to(context.data.edge_index.device)) if alone is None else alone
        self._shape = Shape(context, probe, hops, shared, self._alone.nodes)
        self._base: BasePass | None = None
        self._presented: dict[Site, Tensor] = {}

    @property
    def acts(self) -> bool:
        """Whether anything that was deleted has rows at all."""
        return any(self._shape.rows(site).numel() for site in self.probe.sites)

    @property
    def only_cut(self) -> bool:
        """Whether lam 0 leaves every row as the cut graph has it, so that there is nothing to solve."""
        return self.targets == "remaining" and not self._alone.nodes.numel()

    @property
    def defers(self) -> bool:
        """Whether a look at a number would have to wait for a device that works on its own."""
        return self.context.data.edge_index.is_cuda

    def base(self, whole: bool = False) -> BasePass:
        """The targets. ``whole`` lets the pass run to its end, so that it also gives the output with the graph only cut."""
        if self._base is None:
            sites = self.probe.sites
            self._base = base_pass(self.context, self.model, sites, self.targets, self._shape.rows, whole)
            if self._shape.presented.numel():
                self._presented = presented_rows(self.context, self.model, sites, self._shape.presented)
        return self._base

    def run(self, lam: float, make: MakeMap, whole: bool = False, free: bool = False) -> tuple[Solved, Any]:
        """Solve at one lam; with ``whole`` the pass runs to its end and its output comes along.

        ``free`` maps may not have the identity among them, so that they are trained where nothing pulls, too. On a GPU
        what could go wrong in a solve is looked at once, at the end, so that the pass need not wait for it; where it did,
        all is solved again with a look at every step.
        """
        unchecked: list[Tensor] | None = [] if self.defers else None
        result = self._run(lam, make, whole, free, unchecked)
        return self._run(lam, make, whole, free, None) if unchecked and not sound(unchecked) else result

    def _run(
        self, lam: float, make: MakeMap, whole: bool, free: bool, unchecked: list[Tensor] | None
    ) -> tuple[Solved, Any]:
        probe, base = self.probe, self.base(whole)
        if lam == 0 and self.only_cut and base.output is not None:
            return [], base.output
        sites: dict[tuple[str, int], list[Site]] = {}
        for site in probe.sites:
            sites.setdefault((site.layer, site.call), []).append(site)
        last = (probe.sites[-1].layer, probe.sites[-1].call)
        solved: Solved = []
        outside = self._alone.outside()
        names = [*probe.calls, ""] if outside else list(probe.calls)

        def solve(site: Site, problem: Problem) -> nn.Module:
            return make(site, problem, unchecked)

        def visit(name: str, call: int, output: Any) -> Any:
            if name == "" and outside:
                for site, given in outside:
                    output = replaced(output, site.key, given(entry(output, site.key)))
                return output
            goes_on = whole or (name, call) != last
            untouched = not solved and self.targets == "remaining"  # operators of other types here change nothing below
            for site in sites.get((name, call), []):
                h = entry(output, site.key)
                operator = self._operator(site, h, lam, solve, untouched, free)
                if operator is not None:
                    solved.append((site, operator))
                    if goes_on:
                        output = replaced(output, site.key, operator(h))
            if not goes_on:
                raise Finished
            return output

        output = None
        try:
            with (
                first_output_given(self.model, probe.sites[0], base.first),
                listening(self.model, names, visit),
            ):
                output = self.context.prepared.forward(self.model, self.context.remaining)
        except Finished:
            pass
        return [*solved, *outside], output

    def attach(self, solved: Solved) -> None:
        """Put the operators behind the layers of the working copy, in place of any others."""
        detach(self.model)
        for site, operator in solved:
            attach(self.model, site.layer, site.call, site.key, operator, self.probe.calls.get(site.layer, 1))

    def presented(self, solved: Solved) -> Any:
        """The output on the original graph, where what was deleted is presented again under its old id."""
        self.attach(solved)
        try:
            return self.context.prepared.forward(self.model, self.context.data)
        finally:
            detach(self.model)

    def _operator(
        self, site: Site, h: Tensor, lam: float, make: Callable[[Site, Problem], nn.Module], untouched: bool, free: bool
    ) -> Operator | None:
        """DEL behind one site, or None where the identity is the answer; ``untouched``: nothing below changed anything."""
        base, shape = self.base(), self._shape
        groups: list[Tensor] = []
        maps: list[nn.Module] = []
        offset = 0
        for group in shape.groups(site):
            rows = group.rows
            keep = None if untouched else base.keep[site][offset : offset + rows.numel()]
            offset += rows.numel()
            if group.alone:
                if not self._alone.past and not self._alone.already(site, h):
                    groups.append(rows)
                    maps.append(self._alone.map(site))
                continue
            if lam == 0 and self.targets == "remaining":
                continue  # as they are on the cut graph
            if group.gone:
                problem = self._gone_problem(site, h, lam, base)
            elif group.again:
                problem = self._again_problem(site, group, h, lam, keep)
            else:
                problem = shape.problem(group, h, lam, base.mean[site], keep)
            if not rows.numel() or (problem.at_rest and not free):
                continue
            groups.append(rows)
            maps.append(make(site, problem))
        return Operator(h.size(0), site.width, groups, maps) if groups else None

    def _gone_problem(self, site: Site, h: Tensor, lam: float, base: BasePass) -> Problem:
        """Deleted nodes twice: as they are served, blank and with nothing to keep, and as they speak when presented again.

        The second kind is what an attacker would ask. Between its old self (lam 0) and the mean (lam 1) lies the point
        where it scores like a node that was never seen, so there both pulls are needed.
        """
        gone = site.local(self._shape.gone)
        presented = self._presented[site][: gone.numel()]
        count = presented.size(0)
        rows = torch.cat([h.index_select(0, gone), presented])
        share = torch.full((count,), 0.5 / max(count, 1), device=h.device)
        keep = torch.cat([torch.zeros_like(share), (1 - lam) * share])
        return Problem(
            rows, torch.arange(2 * count, device=h.device), lam * share.repeat(2), keep, base.mean[site], None
        )

    def _again_problem(self, site: Site, group: Group, h: Tensor, lam: float, keep: Tensor | None) -> Problem:
        """Nodes that lost features twice: as they are served, which is to stay, and as they speak with the old features."""
        served, presented = h.index_select(0, group.rows), self._presented[site]
        presented = presented[site.local(self._shape.gone).numel() :]
        count = presented.size(0)
        own = self._shape.problem(  # what deleted edges or labels ask of them
            group, h, lam, self.base().mean[site], keep
        )
        share = torch.full((count,), 1 / max(count, 1), dtype=own.ni.dtype, device=h.device)
        asked = torch.zeros_like(share) if own.dec is None else own.dec
        return Problem(
            torch.cat([served, presented]),
            torch.arange(2 * count, device=h.device),
            torch.cat([asked, lam * share]) / 2,
            torch.cat([own.ni, (1 - lam) * share]) / 2,
            own.away,
            None if keep is None else torch.cat([keep, presented]),
        )


class Shape:
    """Which rows each operator has, and how often each row is an endpoint of something deleted."""

    def __init__(self, context: Context, probe: Probe, hops: Hops, shared: bool, alone: Tensor) -> None:
        deletion, device = context.deletion, context.data.edge_index.device
        edges, nodes = deletion.edges[[0, -1]].flatten().to(device), deletion.nodes.to(device)
        features, labels = deletion.feature_nodes.to(device), learned_labels(context).to(device)
        count = context.prepared.table.num_nodes
        self.gone = nodes[:0] if shared else nodes
        self.again = features[:0] if shared else _without(features, alone)
        self.presented = torch.cat([self.gone, self.again])  # whose rows on the original graph are needed
        ends = torch.cat([edges, nodes, features]) if shared else edges
        self._count, self._dead, self._alone = count, nodes, alone
        self._ends = _counted(ends, count)
        self._ends_told = _counted(torch.cat([ends, labels]), count) if labels.numel() else self._ends
        near = context.prepared.neighborhood(hops)
        # a label carries no messages: nothing around its node has to be repaired
        self._rings = near.rings(torch.cat([edges, nodes, features]), max(site.hops for site in probe.sites))
        self._labels, self._probe = labels, probe
        self._shared = shared
        self._groups: dict[Site, list[Group]] = {}

    def groups(self, site: Site) -> list[Group]:
        """The groups of a site, in its own rows; found once, since every pass asks for them."""
        if site not in self._groups:
            self._groups[site] = [self._local(group, site) for group in self._grouped(site)]
        return self._groups[site]

    def _local(self, group: Group, site: Site) -> Group:
        rows, ends = group.rows, group.ends
        if site.rows.start > 0 or site.rows.stop < self._count:
            own = (rows >= site.rows.start) & (rows < site.rows.stop)
            rows, ends = rows[own], None if ends is None else ends[own]
        alive = torch.full((rows.numel(),), 1 / max(rows.numel(), 1), dtype=torch.float64, device=rows.device)
        if self._dead.numel():  # nothing of them is kept: staying close to what they were is the opposite of forgetting
            alive = _shared_out(alive.masked_fill_(torch.isin(rows, self._dead), 0))
        ends = None if ends is None else _shared_out(ends)
        return replace(group, rows=rows - site.rows.start if site.rows.start else rows, alive=alive, ends=ends)

    def _grouped(self, site: Site) -> list[Group]:
        rings = self._rings[: site.hops + 1]
        told = self._labels if self._probe.is_last(site) else self._labels[:0]
        counts = self._ends_told if told.numel() else self._ends
        if self._shared:
            rows = torch.cat([*rings, told]).unique()
            return [Group(rows, forget=True, ends=counts[rows])]
        special = [part for part in (self.gone, self.again, told, self._alone) if part.numel()]
        apart = torch.cat(special) if special else told
        inner = _without(rings[0], apart)
        result = [Group(inner, forget=True, ends=counts[inner])]
        if self.gone.numel():
            result.append(Group(self.gone, forget=True, gone=True))
        if self.again.numel():
            result.append(Group(self.again, forget=True, again=True, ends=counts[self.again]))
        if self._alone.numel():
            result.append(Group(self._alone, forget=True, alone=True))
        if told.numel():
            told = _without(told, self.again)
            result.append(Group(told, forget=True, ends=counts[told]))
        if site.hops:
            outer = rings[1] if len(rings) == 2 else torch.cat(rings[1:]).sort().values
            result.append(Group(_without(outer, apart), forget=False))
        return result

    def rows(self, site: Site) -> Tensor:
        parts = [group.rows for group in self.groups(site)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def problem(self, group: Group, h: Tensor, lam: float, mean: Tensor, keep: Tensor | None) -> Problem:
        weight = lam if group.forget else 0.0  # outer rings see Neighborhood Influence alone
        assert group.alive is not None
        ends = group.ends if weight else None
        if ends is not None and weight < 0:
            # away from the mean, every end alike: then no row has a negative weight in all
            ends = torch.full_like(ends, 1 / max(ends.numel(), 1))
        dec = None if ends is None else weight * ends
        return Problem(h, group.rows, dec, group.alive * (1 - weight) if weight else group.alive, mean, keep)


def _shared_out(weights: Tensor) -> Tensor:
    """The same weights, 1 in all; none at all stay none."""
    return weights / weights.sum().clamp_(min=1e-30)


def _counted(nodes: Tensor, count: int) -> Tensor:
    """How often each of ``count`` nodes is named (`bincount` would ask a GPU for the largest, and wait)."""
    result = torch.zeros(count, dtype=torch.float64, device=nodes.device)
    return result.scatter_add_(0, nodes, torch.ones_like(nodes, dtype=torch.float64))


def _without(rows: Tensor, others: Tensor) -> Tensor:
    return rows[~torch.isin(rows, others)] if others.numel() else rows


def learned_labels(context: Context) -> Tensor:
    """The deleted labels that a model may have learned from: none where its task is to predict links."""
    labels = context.deletion.labels
    return labels[:0] if isinstance(context.task, LinkPrediction) else labels
