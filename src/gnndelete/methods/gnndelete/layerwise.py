"""The two passes of a deletion: the base pass gives the targets, the solving pass solves layer by layer as the model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.graph.edge_table import Hops
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.remaining import among
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.node_embeddings import IsolatedNodes
from gnndelete.methods.gnndelete.objective import (
    Problem,
    deleted_nodes_problem,
    lost_features_problem,
    mean_row,
    ring_problem,
)
from gnndelete.methods.gnndelete.row_groups import Group, RowGroups
from gnndelete.methods.gnndelete.solvers import Unchecked, sound
from gnndelete.nn.hooks import Finished, Site, entry, listening, replaced
from gnndelete.nn.operator import Operator, attach, detach
from gnndelete.nn.receptive_field import Probe
from gnndelete.notes import Note

Solved = list[tuple[Site, Operator]]
#: Solves one problem. What it appends to the list is checked at the end of the pass instead of waiting for the device.
Solve = Callable[[Site, Problem, Unchecked | None], nn.Module]

#: How many rows outside the neighbourhood are compared, and the relative change (in steps of their precision, too) that is
#: no more than rounding.
FAR_ROWS, FAR_ROUNDING, FAR_STEPS = 256, 1e-4, 16

FAR_ROWS_MOVED = Note(
    "reach-unbounded",
    "Rows further from the deletion than the model was seen to reach changed as well. The model chooses or groups nodes by "
    "their rows, so distance does not bound the influence of the deletion.",
)


@dataclass
class BasePass:
    """What the base model gave: the targets t and the mean row mu of each site, and what a later pass can reuse."""

    t: dict[Site, Tensor] = field(default_factory=dict)
    mu: dict[Site, Tensor] = field(default_factory=dict)
    first: Any = None  # the whole output of the first layer; None where it cannot be reused
    output: Any = None  # of the whole model on the remaining graph; None where the pass ended before it


class Layerwise:
    """One deletion on a working copy of the model. What does not depend on lam is computed once.

    Args:
        context: The request.
        model: The working copy.
        probe: Its sites.
        targets: ``"remaining"`` or ``"original"``: the graph on which the rows to keep are computed.
        hops: How distance is counted.
        shared: One map per layer instead of one per ring.
        isolated: Isolated nodes whose rows are set.
        enclosing: Operators learn from the original graph among S^L, as the paper's authors ran it, instead of from the
            remaining graph.

    Attributes:
        acts: Whether anything that was deleted has rows.
        sets_rows: Whether rows of isolated nodes are set, whatever lam is.
        only_cut: Whether lam 0 leaves every row as the remaining graph has it, so that there is nothing to solve.
    """

    def __init__(
        self,
        context: Context,
        model: nn.Module,
        probe: Probe,
        targets: str,
        hops: Hops,
        shared: bool,
        isolated: IsolatedNodes | None = None,
        enclosing: bool = False,
    ) -> None:
        self.context, self.model, self.probe, self.targets = context, model, probe, targets
        self._isolated = IsolatedNodes(context.gone[:0]) if isolated is None else isolated
        self._groups = RowGroups(context, probe, hops, shared, self._isolated.nodes, keep_ends=not enclosing)
        self._graph = among(context.data, self._groups.nodes) if enclosing else context.remaining
        #: whether a row that nothing pulls is its own target
        self._rests = targets == "remaining" and not enclosing
        # beyond directed hops nothing is claimed, and with other targets the base pass is on another graph
        self._far = FarRows(context, probe, self._groups.nodes) if self._rests and hops == "undirected" else None
        self.acts = any(group.rows.numel() for site in probe.sites for group in self._groups.at(site))
        self.sets_rows = bool(self._isolated.nodes.numel())
        self.only_cut = self._rests and not self.sets_rows
        self._base: BasePass | None = None
        self._presented: dict[Site, Tensor] = {}

    @property
    def defers(self) -> bool:
        """Whether reading a number would wait for a device that works on its own."""
        return self.context.data.edge_index.is_cuda

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the passes showed that the probe had not."""
        return (FAR_ROWS_MOVED,) if self._far is not None and self._far.moved else ()

    def run(self, lam: float, solve: Solve, whole: bool = False, free: bool = False) -> tuple[Solved, Any]:
        """Solve at one lam.

        Args:
            lam: The weight of forgetting.
            solve: Solves one problem.
            whole: Run the pass to the end of the model and return its output, too.
            free: The maps may not include the identity, so they are trained even where nothing pulls.

        Returns:
            The operators, and the output or None.
        """
        if not self.defers:
            return self._run(lam, solve, whole, free, None)
        # on a GPU failures are looked at once, at the end; where there was one, every step is checked in a second run
        unchecked: Unchecked = []
        result = self._run(lam, solve, whole, free, unchecked)
        return self._run(lam, solve, whole, free, None) if unchecked and not sound(unchecked) else result

    def _run(
        self, lam: float, solve: Solve, whole: bool, free: bool, unchecked: Unchecked | None
    ) -> tuple[Solved, Any]:
        base = self.base(whole)
        if lam == 0 and self.only_cut and base.output is not None:
            return [], base.output
        sites = self.probe.sites
        last = sites[-1].layer, sites[-1].call
        solved: Solved = []
        behind_model = self._isolated.behind_model()

        def visit(name: str, call: int, output: Any) -> Any:
            if name == "" and behind_model:
                for site, operator in behind_model:
                    output = replaced(output, site.key, operator(entry(output, site.key)))
                return output
            goes_on = whole or (name, call) != last
            unchanged = not solved and self._rests  # operators of other node types here change nothing below
            for site in sites:
                if (site.layer, site.call) != (name, call):
                    continue
                h = entry(output, site.key)
                if solved and self._far is not None:
                    self._far.compare(site, h)
                found = self._operator(site, h, lam, solve, unchanged, free, unchecked)
                if found is not None:
                    solved.append((site, found))
                    if goes_on:
                        output = replaced(output, site.key, found(h))
            if not goes_on:
                raise Finished
            return output

        names = [*self.probe.layers, *([""] if behind_model else [])]
        with _first_output_given(self.model, sites[0], base.first):
            output = self._watch(self._graph, names, visit)
        return [*solved, *behind_model], output

    def _operator(
        self,
        site: Site,
        h: Tensor,
        lam: float,
        solve: Solve,
        unchanged: bool,
        free: bool,
        unchecked: Unchecked | None,
    ) -> Operator | None:
        """The operator of one site, or None where it is the identity; ``unchanged``: no operator acts below."""
        rows: list[Tensor] = []
        maps: list[nn.Module] = []
        start = 0
        for group in self._groups.at(site):
            stop = start + group.rows.numel()
            t = None if unchanged else self.base().t[site][start:stop]
            start = stop
            if group.kind == "isolated":
                given = self._isolated.map(site, h)
                if given is not None:
                    rows.append(group.rows)
                    maps.append(given)
                continue
            if (lam == 0 and self._rests) or not group.rows.numel():
                continue
            problem = self._problem(site, group, h, lam, t)
            if not problem.at_rest or free:
                rows.append(group.rows)
                maps.append(solve(site, problem, unchecked))
        return Operator(h.size(0), site.width, rows, maps) if rows else None

    def _problem(self, site: Site, group: Group, h: Tensor, lam: float, t: Tensor | None) -> Problem:
        mu = self.base().mu[site]
        deleted = site.local(self._groups.deleted)
        if group.kind == "deleted":
            presented = self._presented[site][: deleted.numel()]
            return deleted_nodes_problem(h.index_select(0, deleted), presented, lam, mu)
        problem = ring_problem(h, group.rows, group.c, group.k, lam, mu, t)
        if group.kind == "lost-features":
            return lost_features_problem(problem, self._presented[site][deleted.numel() :], lam)
        return problem

    def base(self, whole: bool = False) -> BasePass:
        """The pass of the base model on the graph that sets the targets; ``whole`` runs it to the end for its output."""
        if self._base is None:
            self._base = self._base_pass(whole)
            if self._groups.presented.numel():
                self._presented = self._presented_rows(self._groups.presented)
        return self._base

    def _base_pass(self, whole: bool) -> BasePass:
        """Of each layer only the rows that operators need are kept, and the mean of all rows.

        On the remaining graph the first layer's output is also what the solving pass starts from: it is kept whole, and
        its rows are their own targets.
        """
        result, sites = BasePass(), self.probe.sites
        graph = self.context.remaining if self.targets == "remaining" else self.context.data
        versions: list[tuple[Tensor, int]] = []

        def visit(name: str, call: int, output: Any) -> None:
            here = [site for site in sites if (site.layer, site.call) == (name, call)]
            for site in here:
                h = entry(output, site.key)
                if self._far is not None:
                    self._far.remember(site, h)
                result.mu[site] = mean_row(h, site.local(self.context.gone).to(h.device))
                if not self._rests or site is not sites[0]:
                    result.t[site] = h.index_select(0, self._groups.rows(site))
            if self._rests and sites[0] in here:
                first = [entry(output, site.key) for site in here]
                if not any(h.is_inference() for h in first):  # inference tensors do not count writes
                    result.first = output
                    versions.extend((h, h._version) for h in first)
            if sites[-1] in here and not (whole and self.targets == "remaining"):
                raise Finished

        result.output = self._watch(graph, self.probe.layers, visit)
        if any(h._version != version for h, version in versions):  # the model wrote into it (relu_, +=)
            result.first = None
        return result

    def _presented_rows(self, nodes: Tensor) -> dict[Site, Tensor]:
        """Rows p of deleted nodes in the base model's output on the original graph, at every site."""
        result: dict[Site, Tensor] = {}

        def visit(name: str, call: int, output: Any) -> None:
            for site in self.probe.sites:
                if (site.layer, site.call) == (name, call):
                    result[site] = entry(output, site.key).index_select(0, site.local(nodes))
            if len(result) == len(self.probe.sites):
                raise Finished

        self._watch(self.context.data, self.probe.layers, visit)
        return result

    def _watch(self, graph: Data, names: list[str], visit: Callable[[str, int, Any], Any]) -> Any:
        """Run the model with a visitor behind layers; None where the visitor ended the pass."""
        try:
            with listening(self.model, names, visit):
                return self.context.session.forward(self.model, graph)
        except Finished:
            return None

    def attach(self, solved: Solved) -> None:
        """Put the operators behind the layers of the working copy, in place of any others."""
        detach(self.model)
        for site, operator in solved:
            attach(self.model, site, operator)

    def present(self, solved: Solved) -> Any:
        """The output on the original graph, where what was deleted is presented again under its old id."""
        self.attach(solved)
        try:
            return self.context.session.forward(self.model, self.context.data)
        finally:
            detach(self.model)


class FarRows:
    """Some rows outside S^L, compared between the base pass and the solving pass.

    The probe cannot see a choice among all nodes (the nearest of some centres, say) that falls elsewhere when a row
    changes. Both passes are there anyway, and a few rows cost nothing.
    """

    def __init__(self, context: Context, probe: Probe, near: Tensor) -> None:
        count, device = context.session.table.num_nodes, near.device
        self._first = probe.sites[0]
        self._base: dict[Site, Tensor] = {}
        self._moved: list[Tensor] = []
        local = probe.bounded and len(probe.sites) > 1 and not context.session.random
        self._watched = local and not isinstance(context.data, HeteroGraph)
        if self._watched:
            self._rows = torch.linspace(0, count - 1, min(FAR_ROWS, count), device=device).long()
            self._outside = torch.ones(count, dtype=torch.bool, device=device).index_fill_(0, near, False)[self._rows]

    def remember(self, site: Site, h: Tensor) -> None:
        """Keep the rows of the base model."""
        if self._watched and site is not self._first:
            self._base[site] = h.index_select(0, self._rows)

    def compare(self, site: Site, h: Tensor) -> None:
        """Compare the rows behind operators; nothing here waits for a device."""
        if site in self._base:
            before = self._base[site]
            gap = (h.index_select(0, self._rows) - before).abs().flatten(1).amax(dim=1)
            rounding = max(FAR_ROUNDING, FAR_STEPS * torch.finfo(h.dtype).eps)
            self._moved.append((gap * self._outside).max() > rounding * before.abs().max())

    @property
    def moved(self) -> bool:
        """Whether any row outside moved."""
        return bool(self._moved) and bool(torch.stack(self._moved).any())


@contextmanager
def _first_output_given(model: nn.Module, site: Site, output: Any) -> Iterator[None]:
    """Let the first call of the first layer return a known output instead of computing it again."""
    layer = model.get_submodule(site.layer)
    if output is None or site.call != 0 or layer._forward_hooks:  # a hook that is there would act on it twice
        yield
        return
    compute, replaced_before = layer.forward, vars(layer).get("forward")
    given = [output]

    def forward(*args: Any, **kwargs: Any) -> Any:
        return given.pop() if given else compute(*args, **kwargs)

    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward
        if replaced_before is not None:
            layer.forward = replaced_before
