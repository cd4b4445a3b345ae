"""The solving pass: operators solved layer by layer while the model runs, for any lam, from one pass of the base model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.graph.neighborhood import Hops
from gnndelete.graph.remaining import among
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.beyond import Beyond
from gnndelete.methods.gnndelete.node_embeddings import Alone
from gnndelete.methods.gnndelete.passes import BasePass, base_pass, first_output_given, presented_rows
from gnndelete.methods.gnndelete.row_groups import Group, Shape
from gnndelete.methods.gnndelete.solvers import Problem, Unchecked, sound
from gnndelete.nn.hooks import Finished, Site, entry, listening, replaced
from gnndelete.nn.operator import Operator, attach, detach
from gnndelete.nn.receptive_field import Probe

Solved = list[tuple[Site, Operator]]
#: Makes the map of a problem; in the list it may leave to be checked later what would have to wait for the device now.
MakeMap = Callable[[Site, Problem, Unchecked | None], nn.Module]


class Solving:
    """One deletion on a working copy of the model; what does not depend on lam is computed once.

    ``enclosing``: the rows that operators learn from come from the original graph among S^L alone, not from the remaining one;
    then a ``whole`` pass would not end in what is served.
    """

    def __init__(
        self,
        context: Context,
        model: nn.Module,
        probe: Probe,
        targets: str,
        hops: Hops,
        shared: bool,
        alone: Alone | None = None,
        enclosing: bool = False,
    ) -> None:
        self.context, self.model, self.probe, self.targets = context, model, probe, targets
        self._alone = Alone(context.gone[:0]) if alone is None else alone
        self._shape = Shape(context, probe, hops, shared, self._alone.nodes, keep_ends=not enclosing)
        self._enclosing = among(context.data, self._shape.nodes) if enclosing else None
        # further than "undirected" hops nothing is claimed, and with other targets the base pass is on another graph
        self._beyond = Beyond(context, probe, self._shape.nodes, self._rests and hops == "undirected")
        self._base: BasePass | None = None
        self._presented: dict[Site, Tensor] = {}

    @property
    def acts(self) -> bool:
        """Whether anything that was deleted has rows at all."""
        return any(group.rows.numel() for site in self.probe.sites for group in self._shape.groups(site))

    @property
    def note(self) -> tuple[str, ...]:
        """What the passes showed that the probe had not."""
        return self._beyond.note

    @property
    def only_cut(self) -> bool:
        """Whether lam 0 leaves every row as the cut graph has it, so that there is nothing to solve."""
        return self._rests and not self.gives_rows

    @property
    def gives_rows(self) -> bool:
        """Whether rows of nodes left alone are given, whatever lam is."""
        return bool(self._alone.nodes.numel())

    @property
    def _rests(self) -> bool:
        """Whether a row that nothing pulls away is where it should be already."""
        return self.targets == "remaining" and self._enclosing is None

    @property
    def defers(self) -> bool:
        """Whether a look at a number would have to wait for a device that works on its own."""
        return self.context.data.edge_index.is_cuda

    def base(self, whole: bool = False) -> BasePass:
        """The targets. ``whole`` lets the pass run to its end, so that it also gives the output with the graph only cut."""
        if self._base is None:
            sites = self.probe.sites
            reuse = self._enclosing is None  # what the solving pass starts from is then the remaining graph, too
            self._base = base_pass(
                self.context, self.model, sites, self.targets, self._shape.rows, whole, reuse, self._beyond.keep
            )
            if self._shape.presented.numel():
                self._presented = presented_rows(self.context, self.model, sites, self._shape.presented)
        return self._base

    def run(self, lam: float, make: MakeMap, whole: bool = False, free: bool = False) -> tuple[Solved, Any]:
        """Solve at one lam; with ``whole`` the pass runs to its end and its output comes along.

        ``free`` maps may not have the identity among them, so that they are trained where nothing pulls, too. On a GPU
        what could go wrong in a solve is looked at once, at the end, so that the pass need not wait for it; where it did,
        all is solved again with a look at every step.
        """
        unchecked: Unchecked | None = [] if self.defers else None
        result = self._run(lam, make, whole, free, unchecked)
        return self._run(lam, make, whole, free, None) if unchecked and not sound(unchecked) else result

    def _run(
        self, lam: float, make: MakeMap, whole: bool, free: bool, unchecked: Unchecked | None
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
        names = [*probe.layers, ""] if outside else probe.layers

        def solve(site: Site, problem: Problem) -> nn.Module:
            return make(site, problem, unchecked)

        def visit(name: str, call: int, output: Any) -> Any:
            if name == "" and outside:
                for site, given in outside:
                    output = replaced(output, site.key, given(entry(output, site.key)))
                return output
            goes_on = whole or (name, call) != last
            untouched = not solved and self._rests  # operators of other types here change nothing below
            for site in sites.get((name, call), []):
                h = entry(output, site.key)
                if solved:
                    self._beyond.compare(site, h)
                operator = self._operator(site, h, lam, solve, untouched, free)
                if operator is not None:
                    solved.append((site, operator))
                    if goes_on:
                        output = replaced(output, site.key, operator(h))
            if not goes_on:
                raise Finished
            return output

        output = None
        graph = self.context.remaining if self._enclosing is None else self._enclosing
        try:
            with (
                first_output_given(self.model, probe.sites[0], base.first),
                listening(self.model, names, visit),
            ):
                output = self.context.session.forward(self.model, graph)
        except Finished:
            pass
        return [*solved, *outside], output

    def attach(self, solved: Solved) -> None:
        """Put the operators behind the layers of the working copy, in place of any others."""
        detach(self.model)
        for site, operator in solved:
            attach(self.model, site, operator)

    def presented(self, solved: Solved) -> Any:
        """The output on the original graph, where what was deleted is presented again under its old id."""
        self.attach(solved)
        try:
            return self.context.session.forward(self.model, self.context.data)
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
            if (lam == 0 and self._rests) or not rows.numel():
                continue  # as they are on the cut graph, or none of this type
            if group.gone:
                problem = self._gone_problem(site, h, lam, base)
            elif group.again:
                problem = self._again_problem(site, group, h, lam, keep)
            else:
                problem = shape.problem(group, h, lam, base.mean[site], keep)
            if problem.at_rest and not free:
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
