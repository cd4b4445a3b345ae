"""The two passes of a deletion: the base pass gives the targets, the solving pass solves layer by layer as the model runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.graph.kinds import among
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.node_embeddings import IsolatedNodes
from gnndelete.methods.gnndelete.objective import (
    Problem,
    deleted_nodes_problem,
    lost_features_problem,
    ring_problem,
    toward_class,
)
from gnndelete.methods.gnndelete.row_groups import RowGroups
from gnndelete.nn.hooks import Finished, Site, entry, replaced
from gnndelete.nn.operator import Operator
from gnndelete.nn.receptive_field import Probe

Solved = list[tuple[Site, Operator]]
Solve = Callable[[Site, Problem], nn.Module]
Visit = Callable[[str, int, Any], Any]


@dataclass
class BasePass:
    """What the base model gave: the targets t and the mean row mu of each site, and what a later pass can reuse."""

    t: dict[Site, Tensor] = field(default_factory=dict)
    mu: dict[Site, Tensor] = field(default_factory=dict)
    presented: dict[Site, Tensor] = field(default_factory=dict)  # rows p of deleted nodes, on the original graph
    first: Any = None  # the whole output of the first layer; None where it cannot be reused
    output: Any = None  # of the whole model on the remaining graph; None where the pass ended before it


class Layerwise:
    """One deletion on a working copy of the model. What does not depend on lam is computed once.

    Args:
        context: The request.
        model: The working copy.
        probe: Its sites.
        groups: The rows of each site that share a map.
        isolated: Isolated nodes whose rows are set, whatever lam is.
        targets: ``"remaining"`` or ``"original"``: the graph on which the rows to keep are computed.
        enclosing: Operators learn from the original graph among S^L, as the paper's authors ran it, instead of from the
            remaining graph.
    """

    def __init__(
        self,
        context: Context,
        model: nn.Module,
        probe: Probe,
        groups: RowGroups,
        isolated: IsolatedNodes | None,
        targets: str,
        enclosing: bool,
    ) -> None:
        self.context, self.model, self.probe, self.groups, self.targets = context, model, probe, groups, targets
        self.isolated = isolated
        self._graph = among(context.data, groups.nodes) if enclosing else context.remaining
        #: whether a row that nothing pulls is its own target
        self._rests = targets == "remaining" and not enclosing
        self._base: BasePass | None = None
        self._sites_at: dict[tuple[str, int], list[Site]] = defaultdict(list)
        for site in probe.sites:
            self._sites_at[site.layer, site.call].append(site)

    @property
    def resets(self) -> bool:
        """Whether rows of isolated nodes are set, whatever lam is."""
        return self.isolated is not None

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
        only_cut = lam == 0 and self._rests and self.isolated is None  # every row stays as the remaining graph has it
        if only_cut and not whole:
            return [], None
        if self._base is None:
            self._base = self._base_pass(whole)
        base = self._base
        solved: Solved = []
        if only_cut and base.output is not None:
            return solved, base.output
        behind_model = [] if self.isolated is None else self.isolated.behind_model()
        last = self.probe.sites[-1]

        def visit(name: str, call: int, output: Any) -> Any:
            if name == "" and behind_model:
                for site, operator in behind_model:
                    output = replaced(output, site.key, operator(entry(output, site.key)))
                return output
            goes_on = whole or (name, call) != (last.layer, last.call)
            unchanged = not solved and self._rests  # operators of other node types here change nothing below
            for site in self._sites_at.get((name, call), []):
                h = entry(output, site.key)
                found = self._operator(site, h, lam, solve, base, unchanged, free)
                if found is not None:
                    solved.append((site, found))
                    if goes_on:
                        output = replaced(output, site.key, found(h))
            if not goes_on:
                raise Finished
            return output

        with _first_output_given(self.model, self.probe.sites[0], base.first, self.context.session.hooks):
            layers = [*self.probe.layers, *([""] if behind_model else [])]
            output = self.context.session.watch(self.model, self._graph, layers, visit)
        return [*solved, *behind_model], output

    def present(self, solved: Solved) -> Any:
        """The output on the original graph, where what was deleted is presented again under its old id."""
        at: dict[tuple[str, int], Solved] = defaultdict(list)
        for site, operator in solved:
            at[site.layer, site.call].append((site, operator))

        def visit(name: str, call: int, output: Any) -> Any:
            for site, operator in at.get((name, call), []):
                output = replaced(output, site.key, operator(entry(output, site.key)))
            return output

        layers = list(dict.fromkeys(site.layer for site, _ in solved))
        return self.context.session.watch(self.model, self.context.data, layers, visit)

    def _operator(
        self, site: Site, h: Tensor, lam: float, solve: Solve, base: BasePass, unchanged: bool, free: bool
    ) -> Operator | None:
        """The operator of one site, or None where it is the identity; ``unchanged``: no operator acts below."""
        rows: list[Tensor] = []
        maps: list[nn.Module] = []
        start = 0
        for group in self.groups.at[site]:
            stop = start + group.rows.numel()
            t = None if unchanged else base.t[site][start:stop]
            start = stop
            found: nn.Module | None = None
            if group.kind == "isolated" and self.isolated is not None:
                found = self.isolated.map(site, h)
            elif group.rows.numel() and not (lam == 0 and self._rests):
                mu, presented = base.mu[site], base.presented.get(site)
                if group.kind == "deleted" and presented is not None:
                    served = h.index_select(0, group.rows)
                    problem = deleted_nodes_problem(served, presented[: group.rows.numel()], lam, mu)
                else:
                    problem = ring_problem(h, group.rows, group.c, group.k, lam, mu, t)
                if group.kind == "lost-features" and presented is not None:
                    problem = lost_features_problem(problem, presented[-group.rows.numel() :], lam)
                if group.toward is not None:
                    found = toward_class(h, group.rows, h.index_select(0, group.toward).mean(dim=0), lam, t)
                else:
                    found = None if problem.at_rest and not free else solve(site, problem)
            if found is not None:
                rows.append(group.rows)
                maps.append(found)
        return Operator(h.size(0), site.width, rows, maps) if rows else None

    def _base_pass(self, whole: bool) -> BasePass:
        """The base model on the graph that sets the targets; ``whole`` runs it to the end for its output.

        Of each layer only the rows that operators need are kept, and the mean of all rows. On the remaining graph the first
        layer's output is also what the solving pass starts from: it is kept whole, and its rows are their own targets.
        """
        result, sites = BasePass(), self.probe.sites
        on_remaining = self.targets == "remaining"
        versions: list[tuple[Tensor, int]] = []

        def visit(name: str, call: int, output: Any) -> None:
            here = self._sites_at.get((name, call), [])
            for site in here:
                h = entry(output, site.key)
                result.mu[site] = self.context.session.mean_row(site, h, site.local(self.groups.gone).to(h.device))
                if not (self._rests and site is sites[0]):
                    rows = [group.rows for group in self.groups.at[site]]
                    result.t[site] = h.index_select(0, torch.cat([self.groups.nodes[:0], *rows]))
            if self._rests and sites[0] in here and self.context.session.keeps_first:
                first = [entry(output, site.key) for site in here]
                if not any(h.is_inference() for h in first):  # inference tensors do not count writes
                    result.first = output
                    versions.extend((h, h._version) for h in first)
            if sites[-1] in here and not (whole and on_remaining):
                raise Finished

        def visit_presented(name: str, call: int, output: Any) -> None:
            for site in self._sites_at.get((name, call), []):
                result.presented[site] = entry(output, site.key).index_select(0, site.local(presented))
            if len(result.presented) == len(sites):
                raise Finished

        graph = self.context.remaining if on_remaining else self.context.data
        result.output = self.context.session.watch(self.model, graph, self.probe.layers, visit, base=True)
        if any(h._version != version for h, version in versions):  # the model wrote into it (relu_, +=)
            result.first = None
        presented = torch.cat([self.groups.deleted, self.groups.lost_features])
        if presented.numel():
            self.context.session.watch(self.model, self.context.data, self.probe.layers, visit_presented)
        return result


@contextmanager
def _first_output_given(model: nn.Module, site: Site, output: Any, hooks: int) -> Iterator[None]:
    """Let the first call of the first layer return a known output instead of computing it again."""
    layer = model.get_submodule(site.layer)
    if output is None or site.call != 0 or len(layer._forward_hooks) > hooks:  # another hook would act on it twice
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
