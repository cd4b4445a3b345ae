"""The solving pass: operators solved layer by layer while the model runs, for any lam, from one pass of the base model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.methods.base import Context
from gnndelete.methods.passes import BasePass, base_pass, first_output_given, presented_rows
from gnndelete.neighborhood import Hops
from gnndelete.operator import Operator, attach, detach
from gnndelete.probe import Probe, Site
from gnndelete.solver import Problem
from gnndelete.taps import Finished, entry, listening, replaced
from gnndelete.tasks import LinkPrediction

Solved = list[tuple[Site, Operator]]
MakeMap = Callable[[Site, Problem], nn.Module]


@dataclass(frozen=True)
class Group:
    """Rows that share one map. ``forget``: lam pulls them away; ``gone``: they belong to deleted nodes.

    ``again``: their nodes have lost features, and what must be forgotten is what they say when these are presented again.
    """

    rows: Tensor
    forget: bool
    gone: bool = False
    again: bool = False
    alive: Tensor | None = None  # 0 for rows of deleted nodes, which have nothing to keep
    ends: Tensor | None = None  # how often each row is an end of something deleted: the weights of forgetting


class Solving:
    """One deletion on a working copy of the model; what does not depend on lam is computed once."""

    def __init__(
        self, context: Context, model: nn.Module, probe: Probe, targets: str, hops: Hops, shared: bool
    ) -> None:
        self.context, self.model, self.probe, self.targets = context, model, probe, targets
        self._shape = Shape(context, probe, hops, shared)
        self._base: BasePass | None = None
        self._presented: dict[Site, Tensor] = {}

    @property
    def acts(self) -> bool:
        """Whether anything that was deleted has rows at all."""
        return any(self._shape.rows(site).numel() for site in self.probe.sites)

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

        ``free`` maps may not have the identity among them, so that they are trained where nothing pulls, too.
        """
        probe, base = self.probe, self.base(whole)
        if lam == 0 and self.targets == "remaining" and base.output is not None:
            return [], base.output
        sites: dict[tuple[str, int], list[Site]] = {}
        for site in probe.sites:
            sites.setdefault((site.layer, site.call), []).append(site)
        last = (probe.sites[-1].layer, probe.sites[-1].call)
        solved: Solved = []

        def visit(name: str, call: int, output: Any) -> Any:
            goes_on = whole or (name, call) != last
            untouched = not solved and self.targets == "remaining"  # operators of other types here change nothing below
            for site in sites.get((name, call), []):
                h = entry(output, site.key)
                operator = self._operator(site, h, lam, make, untouched, free)
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
                listening(self.model, list(probe.calls), visit),
            ):
                output = self.context.prepared.forward(self.model, self.context.remaining)
        except Finished:
            pass
        return solved, output

    def attach(self, solved: Solved) -> None:
        """Put the operators behind the layers of the working copy, in place of any others."""
        detach(self.model)
        for site, operator in solved:
            attach(self.model, site.layer, site.call, site.key, operator, self.probe.calls[site.layer])

    def presented(self, solved: Solved) -> Any:
        """The output on the original graph, where what was deleted is presented again under its old id."""
        self.attach(solved)
        try:
            return self.context.prepared.forward(self.model, self.context.data)
        finally:
            detach(self.model)

    def _operator(
        self, site: Site, h: Tensor, lam: float, make: MakeMap, untouched: bool, free: bool
    ) -> Operator | None:
        """DEL behind one site, or None where the identity is the answer; ``untouched``: nothing below changed anything."""
        base, shape = self.base(), self._shape
        groups, maps = [], []
        offset = 0
        for group in shape.groups(site):
            rows = group.rows
            keep = None if untouched else base.keep[site][offset : offset + rows.numel()]
            offset += rows.numel()
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
        own = self._shape.problem(
            group, h, lam, self.base().mean[site], keep
        )  # what deleted edges or labels ask of them
        share = torch.full((count,), 1 / max(count, 1), device=h.device)
        return Problem(
            torch.cat([served, presented]),
            torch.arange(2 * count, device=h.device),
            torch.cat([own.dec, lam * share]) / 2,
            torch.cat([own.ni, (1 - lam) * share]) / 2,
            own.away,
            None if keep is None else torch.cat([keep, presented]),
        )


class Shape:
    """Which rows each operator has, and how often each row is an endpoint of something deleted."""

    def __init__(self, context: Context, probe: Probe, hops: Hops, shared: bool) -> None:
        deletion, device = context.deletion, context.data.edge_index.device
        edges, nodes = deletion.edges[[0, -1]].flatten().to(device), deletion.nodes.to(device)
        features, labels = deletion.feature_nodes.to(device), learned_labels(context).to(device)
        count = context.prepared.table.num_nodes
        self.gone = nodes[:0] if shared else nodes
        self.again = features[:0] if shared else features
        self.presented = torch.cat([self.gone, self.again])  # whose rows on the original graph are needed
        ends = torch.cat([edges, nodes, features]) if shared else edges
        self._ends = torch.bincount(ends, minlength=count).float()
        self._ends_told = torch.bincount(torch.cat([ends, labels]), minlength=count).float()
        # a deleted node has nothing to keep: staying close to what it was would be the opposite of forgetting
        self._alive = torch.ones(count, device=device).index_fill(0, nodes, 0.0)
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
        if site.rows.start == 0 and site.rows.stop == self._alive.numel():
            return replace(group, alive=self._alive[group.rows])
        own = (group.rows >= site.rows.start) & (group.rows < site.rows.stop)
        alive = self._alive[group.rows][own]
        return replace(
            group, rows=site.local(group.rows), alive=alive, ends=None if group.ends is None else group.ends[own]
        )

    def _grouped(self, site: Site) -> list[Group]:
        rings = self._rings[: site.hops + 1]
        told = self._labels if self._probe.is_last(site) else self._labels[:0]
        counts = self._ends_told if told.numel() else self._ends
        if self._shared:
            rows = torch.cat([*rings, told]).unique()
            return [Group(rows, forget=True, ends=counts[rows])]
        apart = torch.cat([self.gone, self.again, told])
        inner = _without(rings[0], apart)
        result = [Group(inner, forget=True, ends=counts[inner])]
        if self.gone.numel():
            result.append(Group(self.gone, forget=True, gone=True))
        if self.again.numel():
            result.append(Group(self.again, forget=True, again=True, ends=counts[self.again]))
        if told.numel():
            told = _without(told, self.again)
            result.append(Group(told, forget=True, ends=counts[told]))
        if site.hops:
            outer = rings[1] if len(rings) == 2 else torch.cat(rings[1:]).sort().values
            result.append(Group(_without(outer, apart), forget=False))
        return result

    def rows(self, site: Site) -> Tensor:
        return torch.cat([group.rows for group in self.groups(site)])

    def problem(self, group: Group, h: Tensor, lam: float, mean: Tensor, keep: Tensor | None) -> Problem:
        weight = lam if group.forget else 0.0  # outer rings see Neighborhood Influence alone
        assert group.alive is not None
        ends = torch.zeros_like(group.alive) if group.ends is None else group.ends
        if weight < 0:  # away from the mean, every end alike: then no row has a negative weight in all
            ends = torch.ones_like(ends)
        dec = weight * ends / ends.sum().clamp(min=1)
        ni = group.alive / group.alive.sum().clamp(min=1) * (1 - weight)
        return Problem(h, group.rows, dec, ni, mean, keep)


def _without(rows: Tensor, others: Tensor) -> Tensor:
    return rows[~torch.isin(rows, others)] if others.numel() else rows


def learned_labels(context: Context) -> Tensor:
    """The deleted labels that a model may have learned from: none where its task is to predict links."""
    labels = context.deletion.labels
    return labels[:0] if isinstance(context.task, LinkPrediction) else labels
