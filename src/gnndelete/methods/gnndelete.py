"""GNNDelete: one small operator behind each graph layer, solved layer by layer inside the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gnndelete.adapter import Adapter
from gnndelete.errors import ModelError, NotYetError, SettingError
from gnndelete.forward import evaluating
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.methods.passes import BasePass, base_pass, first_output_given
from gnndelete.neighborhood import Hops
from gnndelete.operator import LinearMap, Operator, attach
from gnndelete.probe import Layers, Probe, Site, graph_layers, working_copy
from gnndelete.solver import Problem, exact, gradient
from gnndelete.taps import Finished, entry, listening, replaced

Watch = Callable[[Site, Problem, nn.Module], None]


class GNNDelete(Method):
    """Learn what the layers around a deleted element must say once it is gone (ICLR 2023, and past it).

    ``lam`` weighs forgetting (1) against keeping the neighbourhood (0). ``operator="ring"`` gives the endpoints a map of
    their own, ``"shared"`` is the paper's one map per layer, and a factory ``width -> nn.Module`` any other (with
    ``solver="gradient"``). ``targets`` says on which graph the representations to keep are computed; with ``"remaining"``
    lam=0 is exactly Unlink. ``watch`` is called with every solved problem, for those who want to look inside.

    >>> GNNDelete.paper().settings()["targets"]
    'original'
    """

    name: ClassVar[str] = "gnndelete"
    assurance: ClassVar[Assurance] = "approximate"
    summary: ClassVar[str] = "solve a small operator behind each graph layer, in about one forward pass"

    def __init__(
        self,
        aim: Literal["retrained", "nonexistent"] = "nonexistent",
        lam: float | Literal["auto"] = 0.5,
        solver: Literal["exact", "gradient"] = "exact",
        operator: str | Callable[[int], nn.Module] = "ring",
        layers: Layers = "all",
        targets: Literal["remaining", "original"] = "remaining",
        hops: Hops = "undirected",
        ridge: float = 1e-6,
        epochs: int = 1500,
        lr: float = 1e-3,
        watch: Watch | None = None,
    ) -> None:
        self.aim = aim
        self.lam = lam
        self.solver = solver
        self.operator = operator
        self.layers = layers
        self.targets = targets
        self.hops = hops
        self.ridge = ridge
        self.epochs = epochs
        self.lr = lr
        self._watch = watch
        self._check()

    @classmethod
    def paper(cls, hops: Hops = "undirected", **changes: Any) -> GNNDelete:
        """The paper's setting: lam 0.5, one shared map behind every layer, targets from the original graph."""
        return cls(
            **{"lam": 0.5, "operator": "shared", "layers": "all", "targets": "original", "hops": hops, **changes}
        )

    def _check(self) -> None:
        choices = {
            "aim": ("retrained", "nonexistent"),
            "solver": ("exact", "gradient"),
            "targets": ("remaining", "original"),
            "hops": ("undirected", "directed"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise SettingError(f"'{name}' must be {' or '.join(map(repr, allowed))} (got {getattr(self, name)!r})")
        if self.lam == "auto":
            raise NotYetError(
                "lam='auto' (calibration) is not in this version; give lam= a number from 0 to 1, the default is 0.5"
            )
        if isinstance(self.lam, bool) or not isinstance(self.lam, Real) or not 0 <= self.lam <= 1:
            raise SettingError(f"'lam' must be a number from 0 to 1 (got {self.lam!r})")
        if not self.ridge >= 0:
            raise SettingError(f"'ridge' must not be negative (got {self.ridge!r})")
        if self.epochs < 1 or not self.lr > 0:
            raise SettingError(f"'epochs' must be at least 1 and 'lr' positive (got {self.epochs!r} and {self.lr!r})")
        if callable(self.operator):
            if self.solver == "exact":
                raise SettingError("an operator of your own has no closed form; use solver='gradient' with it")
        elif self.operator not in ("ring", "shared"):
            raise SettingError(
                f"'operator' must be 'ring', 'shared' or a factory width -> nn.Module (got {self.operator!r})"
            )

    def unfit(self, context: Context) -> list[Reason]:
        try:
            if not isinstance(self.layers, str) or not graph_layers(context.model):
                context.prepared.probe(self.layers)
        except (ModelError, SettingError) as error:
            why, _, remedy = str(error).partition("; ")
            return [Reason(why, remedy or "name the layers with layers=[…]")]
        return []

    def unlearn(self, context: Context) -> Outcome:
        probe = context.prepared.probe(self.layers)
        model = working_copy(context.model)
        notes = self._notes(probe)
        if not (self.lam == 0 and self.targets == "remaining"):  # that setting is Unlink: nothing to solve
            with evaluating(model):
                self._solve(context, model, probe)
        adapter = Adapter(model)
        return Outcome(model=model, parameters=adapter.num_parameters, adapter=adapter, notes=notes)

    def _solve(self, context: Context, model: nn.Module, probe: Probe) -> None:
        shape = _Shape(context, probe, self.hops, shared=self.operator != "ring")
        sites = {
            (site.layer, site.call): [s for s in probe.sites if (s.layer, s.call) == (site.layer, site.call)]
            for site in probe.sites
        }
        last = (probe.sites[-1].layer, probe.sites[-1].call)
        base = base_pass(context, model, probe.sites, self.targets, shape.rows)
        solved: list[tuple[Site, Operator]] = []

        def visit(name: str, call: int, output: Any) -> Any:
            for site in sites.get((name, call), []):
                h = entry(output, site.key)
                operator = self._operator(site, h, shape, base, untouched=not solved and self.targets == "remaining")
                if operator is not None:
                    solved.append((site, operator))
                    output = replaced(output, site.key, operator(h))
            if (name, call) == last:
                raise Finished
            return output

        try:
            with first_output_given(model, probe.sites[0], base.first), listening(model, list(probe.calls), visit):
                context.prepared.forward(model, context.remaining)
        except Finished:
            pass
        for site, operator in solved:
            attach(model, site.layer, site.call, site.key, operator, probe.calls[site.layer])

    def _operator(self, site: Site, h: Tensor, shape: _Shape, base: BasePass, untouched: bool) -> Operator | None:
        """DEL behind one site, or None where the identity is the answer; ``untouched``: nothing below changed anything."""
        lam = float(self.lam)
        groups, maps = [], []
        offset = 0
        for index, rows in enumerate(shape.groups(site)):
            keep = None if untouched else base.keep[site][offset : offset + rows.numel()]
            offset += rows.numel()
            weight = lam if index == 0 else 0.0  # outer rings see Neighborhood Influence alone
            dec = weight * shape.ends[rows] / shape.ends.sum().clamp(min=1)
            ni = shape.alive[rows] / shape.alive[rows].sum().clamp(min=1) * (1 - weight)
            problem = Problem(h, rows, dec, ni, base.mean[site], keep)
            if not rows.numel() or (problem.at_rest and not callable(self.operator)):
                continue
            groups.append(rows)
            maps.append(self._map(site, problem))
        return Operator(h.size(0), site.width, groups, maps) if groups else None

    def _map(self, site: Site, problem: Problem) -> nn.Module:
        apply: nn.Module
        if self.solver == "exact":
            apply = exact(problem, self.ridge)
        else:
            apply = self.operator(site.width) if callable(self.operator) else LinearMap(site.width)
            apply = gradient(problem, apply.to(problem.h.device, problem.h.dtype), self.epochs, self.lr)
        if self._watch is not None:
            self._watch(site, problem, apply)
        return apply.requires_grad_(False)

    def _notes(self, probe: Probe) -> tuple[str, ...]:
        notes = []
        if not probe.bounded:
            notes.append(
                "Some layers let every node see every other: operators act near the deletion, but distance does not "
                "bound its influence."
            )
        if any(not site.probed for site in probe.sites):
            names = ", ".join(site.title for site in probe.sites if not site.probed)
            notes.append(f"The reach of {names} could not be measured and was counted as one hop per layer.")
        if self.hops == "directed":
            notes.append(
                "hops='directed' reproduces the paper's tables; rows outside the neighbourhood can change all the same."
            )
        return tuple(notes)


class _Shape:
    """Which rows each operator has, and how often each row is an endpoint of something deleted."""

    def __init__(self, context: Context, probe: Probe, hops: Hops, shared: bool) -> None:
        deletion, device = context.deletion, context.data.edge_index.device
        ends = torch.cat([deletion.edges[[0, -1]].flatten(), deletion.nodes]).to(device)
        nodes = context.prepared.table.num_nodes
        self.ends = torch.bincount(ends, minlength=nodes).float()
        # a deleted node has nothing to keep: staying close to what it was would be the opposite of forgetting
        self.alive = torch.ones(nodes, device=device).index_fill(0, deletion.nodes.to(device), 0.0)
        self._rings = context.prepared.neighborhood(hops).rings(ends, max(site.hops for site in probe.sites))
        self._shared = shared

    def groups(self, site: Site) -> list[Tensor]:
        rings = self._rings[: site.hops + 1]
        if self._shared:
            return [torch.cat(rings).sort().values]
        return [rings[0], torch.cat(rings[1:]).sort().values] if site.hops else [rings[0]]

    def rows(self, site: Site) -> Tensor:
        return torch.cat(self.groups(site))
