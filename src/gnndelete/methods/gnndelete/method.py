"""GNNDelete: one small operator behind each graph layer, solved layer by layer inside the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from numbers import Real
from typing import Any, ClassVar, Literal

from torch import nn

from gnndelete.engine.session import MODEL_RANDOM
from gnndelete.errors import ModelError, SettingError, some
from gnndelete.graph.edge_table import Hops
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.methods.gnndelete.calibration import (
    Aim,
    Calibration,
    Trials,
    as_nonexistent,
    as_retrained,
    cut_action,
    fallback,
    nothing_learned,
)
from gnndelete.methods.gnndelete.forgetting_score import ForgettingScore
from gnndelete.methods.gnndelete.layerwise import Layerwise, Solved
from gnndelete.methods.gnndelete.node_embeddings import isolated_nodes
from gnndelete.methods.gnndelete.objective import Problem
from gnndelete.methods.gnndelete.solvers import Unchecked, closed_form, gradient
from gnndelete.nn.adapter import Adapter
from gnndelete.nn.forward import eagerly, evaluating
from gnndelete.nn.hooks import Site
from gnndelete.nn.layers import Layers, graph_layers, working_copy
from gnndelete.nn.operator import LinearMap
from gnndelete.nn.receptive_field import Probe
from gnndelete.nn.reset import seeded
from gnndelete.nn.sparse import sparse_products
from gnndelete.notes import Note

Watch = Callable[[Site, Problem, nn.Module], None]

#: The settings that are one of a few words.
CHOICES: dict[str, tuple[str, ...]] = {
    "aim": ("retrained", "nonexistent"),
    "solver": ("closed-form", "gradient"),
    "targets": ("remaining", "original"),
    "hops": ("undirected", "directed"),
    "inputs": ("remaining", "enclosing"),
}


class GNNDelete(Method):
    """Solve a small operator behind each graph layer so that the served answers no longer know what was deleted.

    From the paper (Cheng et al., ICLR 2023), with a closed-form solver, one map per ring and a calibrated lam. The objective is
    in `gnndelete.methods.gnndelete.objective`.

    Args:
        aim: What deleted elements should look like. ``"retrained"``: like elements that the model never trained on.
            ``"nonexistent"``: as unlikely as possible; anyone who knows typical scores can recognise them.
        lam: The weight of forgetting (1) against keeping the neighbourhood (0). ``"auto"`` calibrates it on the validation data
            of the task.
        solver: ``"closed-form"`` solves one linear system per map, ``"gradient"`` trains it with Adam.
        operator: ``"ring"`` has one map for the endpoints and one for the rings around them, ``"shared"`` one map per layer
            (the paper's). A factory ``width -> nn.Module`` makes any other operator and needs ``solver="gradient"``.
        layers: ``"all"`` graph layers, the ``"last"`` one, or a list of module names, such as ``["convs.1"]``.
        targets: The graph on which the rows to keep are computed. With ``"remaining"``, lam 0 is exactly `Unlink`;
            ``"original"`` is the paper's.
        hops: ``"undirected"`` counts distance along edges in both directions; ``"directed"`` reproduces the paper's tables.
        inputs: The graph on which operators are solved. ``"enclosing"`` is what the paper's authors ran: the edges among the
            neighbourhood, the deleted ones included, with endpoints left out of the rows to keep.
        ridge: Pull of the closed form towards the identity, relative to the size of the system.
        budget: With ``aim="nonexistent"``: the loss of the validation score that is accepted.
        epochs: Steps of the gradient solver.
        lr: Learning rate of the gradient solver.
        watch: Called as ``watch(site, problem, map)`` with every solved problem.

    >>> GNNDelete.paper().settings()["targets"]
    'original'
    """

    name: ClassVar[str] = "gnndelete"
    assurance: ClassVar[Assurance] = "approximate"
    summary: ClassVar[str] = "solve a small operator behind each graph layer, in about one forward pass"
    node_types: ClassVar[bool] = True
    presets: ClassVar[tuple[str, ...]] = ("paper",)

    def __init__(
        self,
        aim: Aim = "retrained",
        lam: float | Literal["auto"] = "auto",
        solver: Literal["closed-form", "gradient"] = "closed-form",
        operator: str | Callable[[int], nn.Module] = "ring",
        layers: Layers = "all",
        targets: Literal["remaining", "original"] = "remaining",
        hops: Hops = "undirected",
        inputs: Literal["remaining", "enclosing"] = "remaining",
        ridge: float = 1e-6,
        budget: float = 0.01,
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
        self.inputs = inputs
        self.ridge = ridge
        self.budget = budget
        self.epochs = epochs
        self.lr = lr
        self.watch = watch

    @classmethod
    def paper(cls, hops: Hops = "undirected", **changes: Any) -> GNNDelete:
        """The paper's setting: lam 0.5, one shared map behind every layer, targets from the original graph.

        Args:
            hops: ``"undirected"`` follows the paper's text; ``"directed"`` reproduces its tables, with neighbourhoods and
                inputs as its authors ran them.
            changes: Other settings of `GNNDelete`.

        Returns:
            The method.

        >>> GNNDelete.paper(hops="directed").inputs
        'enclosing'
        """
        setting = {"aim": "nonexistent", "lam": 0.5, "operator": "shared", "layers": "all", "targets": "original"}
        setting["inputs"] = "enclosing" if hops == "directed" else "remaining"
        return cls(**{**setting, "hops": hops, **changes})

    def check(self) -> None:
        """Check the settings.

        Raises:
            SettingError: A setting has a value that is not allowed.
        """
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SettingError(f"'{name}' must be {' or '.join(map(repr, allowed))} (got {getattr(self, name)!r})")
        if self.lam != "auto" and not (_is_number(self.lam) and 0 <= float(self.lam) <= 1):
            raise SettingError(f"'lam' must be 'auto' or a number from 0 to 1 (got {self.lam!r})")
        if not (_is_number(self.budget) and 0 <= self.budget < 1):
            raise SettingError(
                f"'budget' must be a share of the validation score from 0 to below 1 (got {self.budget!r})"
            )
        names = self.layers if isinstance(self.layers, (list, tuple)) else ()
        if self.layers not in ("all", "last") and not (names and all(isinstance(name, str) for name in names)):
            raise SettingError(
                "'layers' must be 'all', 'last' or a list of names of modules, such as ['convs.1'] "
                f"(got {self.layers!r})"
            )
        if not self.ridge >= 0:
            raise SettingError(f"'ridge' must not be negative (got {self.ridge!r})")
        if self.epochs < 1 or not self.lr > 0:
            raise SettingError(f"'epochs' must be at least 1 and 'lr' positive (got {self.epochs!r} and {self.lr!r})")
        if not callable(self.operator) and self.operator not in ("ring", "shared"):
            raise SettingError(
                f"'operator' must be 'ring', 'shared' or a factory width -> nn.Module (got {self.operator!r})"
            )
        if callable(self.operator) and self.solver == "closed-form":
            raise SettingError("an operator of your own has no closed form", "use solver='gradient' with it")
        if self.inputs == "enclosing" and (self.operator == "ring" or self.lam == "auto"):
            raise SettingError(
                "inputs='enclosing' has one map per layer and a fixed lam, as the paper's authors ran it",
                "use operator='shared' and a number for lam with it",
            )

    def settings(self) -> dict[str, Any]:
        """The parameters by name; ``GNNDelete(**method.settings())`` is the same method.

        Returns:
            Plain values, and `watch` and a factory as they are.
        """
        found = super().settings()
        return {name: value for name, value in found.items() if name != "watch" or value is not None}

    def unfit(self, context: Context) -> list[Reason]:
        """Why the method cannot serve this model: it has no graph layer, and none is named.

        Args:
            context: Model, graph and task.

        Returns:
            The reasons; an empty list where it fits.
        """
        try:
            if not isinstance(self.layers, str) or not graph_layers(context.model):
                context.session.probe(self.layers)
        except ModelError as error:  # a name that the model does not have is a SettingError, and raises
            return [Reason(error.why, error.remedy or "name the layers with layers=[…]")]
        return []

    def unlearn(self, context: Context) -> Outcome:
        """Find lam, solve the operators and attach them to a copy of the model.

        Args:
            context: The request.

        Returns:
            The copy with its operators, and how lam was chosen.
        """
        probe = context.session.probe(self.layers)
        model = working_copy(context.model)
        notes = self._notes(context, probe)
        loopless = context.session.loopless
        with (
            eagerly(model),
            evaluating(model),
            sparse_products(model, context.remaining, context.data, loopless=loopless),
        ):
            isolated = isolated_nodes(context, model, probe.sites) if self.resets_embeddings else None
            shared, enclosing = self.operator != "ring", self.inputs == "enclosing"
            layerwise = Layerwise(context, model, probe, self.targets, self.hops, shared, isolated, enclosing)
            calibration, solved = self._solved(context, layerwise)
        layerwise.attach(solved)
        adapter = Adapter(model)
        return Outcome(
            model=model,
            parameters=adapter.num_parameters,
            adapter=adapter,
            assurance=None if solved else "inference-only",  # without an operator only the graph has changed
            notes=(
                *notes,
                *(isolated.notes if isolated else ()),
                *(calibration.notes if calibration is not None else ()),
                *layerwise.notes,
            ),
            details={} if calibration is None else {"calibration": calibration.to_dict()},
        )

    @property
    def resets_embeddings(self) -> bool:
        """Whether trained embeddings of isolated nodes are reset: only then does the aim ask for it."""
        return self.aim == "retrained" and self.operator == "ring" and self.lam != 0

    def _solved(self, context: Context, layerwise: Layerwise) -> tuple[Calibration | None, Solved]:
        """The operators, and how lam was chosen where it was not given."""
        if not layerwise.acts or (
            context.task is not None and context.task.untrained(context.deletion, context.data)
        ):  # nothing that was deleted has rows, or was ever learned from
            return nothing_learned(self.aim) if self.lam == "auto" else None, []
        if self.lam != "auto":
            unlink = self.lam == 0 and self.targets == self.inputs == "remaining"
            return None, [] if unlink else self._solve_at(layerwise, float(self.lam))
        # the search uses the closed form of a linear map; another solver or operator then runs once with its lam
        score = ForgettingScore(context, by_surroundings=self.aim == "retrained")
        trials = Trials(layerwise, score, self._closed_form)
        calibration = self._search(score, trials, layerwise)
        if calibration.lam == 0 and layerwise.only_cut:
            return calibration, []
        if calibration.lam in trials.solved and self.solver == "closed-form" and self.watch is None:
            return calibration, trials.solved[calibration.lam]
        return calibration, self._solve_at(layerwise, calibration.lam)

    def _search(self, score: ForgettingScore, trials: Trials, layerwise: Layerwise) -> Calibration:
        noun = "element" if score.task is None else score.task.noun
        if self.aim == "retrained":
            if score.missing:
                return fallback(self.aim, score.missing)
            action = cut_action(layerwise.context.deletion.counts, layerwise.sets_rows)
            return as_retrained(trials.measure, score.kept, noun, action).with_remarks(score.remarks())
        if score.task is None or not score.task.validates(score.data):
            return fallback(self.aim, "there is no validation data to measure a loss of utility on")
        return as_nonexistent(trials.measure, self.budget, noun).with_remarks(score.remarks())

    def _solve_at(self, layerwise: Layerwise, lam: float) -> Solved:
        seeds = count(layerwise.context.seed)

        def solve(site: Site, problem: Problem, unchecked: Unchecked | None) -> nn.Module:
            return self._map(site, problem, unchecked, next(seeds))

        return layerwise.run(lam, solve, free=callable(self.operator))[0]

    def _closed_form(self, site: Site, problem: Problem, unchecked: Unchecked | None) -> nn.Module:
        return closed_form(problem, self.ridge, unchecked).requires_grad_(False)

    def _map(self, site: Site, problem: Problem, unchecked: Unchecked | None, seed: int) -> nn.Module:
        """Solve one problem with the solver and the operator that were chosen."""
        apply: nn.Module
        if self.solver == "closed-form":
            apply = closed_form(problem, self.ridge, unchecked)
        elif callable(self.operator):
            with seeded(seed, problem.h.device):
                apply = self.operator(site.width)
            apply = gradient(problem, apply, self.epochs, self.lr).to(problem.h.dtype)
        else:
            apply = gradient(problem, LinearMap(site.width), self.epochs, self.lr)
        if self.watch is not None:
            self.watch(site, problem, apply)
        return apply.requires_grad_(False)

    def _notes(self, context: Context, probe: Probe) -> tuple[Note, ...]:
        """What the user must know about the model, before anything is solved."""
        notes = [MODEL_RANDOM] if context.session.random else []
        if not probe.bounded:
            notes.append(Note("reach-unbounded", UNBOUNDED))
        counted = [site.title for site in probe.sites if not site.probed]
        if counted:
            text = f"The reach of {', '.join(counted)} could not be measured and was counted as one hop per layer."
            notes.append(Note("reach-counted", text))
        if self.hops == "directed":
            notes.append(Note("hops-directed", DIRECTED))
        if self.inputs == "enclosing":
            notes.append(Note("inputs-enclosing", ENCLOSING))
        known = {site.layer for site in probe.sites}
        skipped = [name for name in graph_layers(context.model) if name not in known]
        if skipped and self.layers == "all" and not isinstance(context.data, HeteroGraph):
            nodes = context.session.table.num_nodes
            text = f"No operator follows {some(skipped)}, whose output does not have one row for each of the {nodes:,} nodes."
            notes.append(Note("layers-skipped", text))
        text = "" if context.task is None else context.task.never_learned(context.deletion, context.data)
        return (*notes, *((Note("never-learned", text),) if text else ()))


DIRECTED = "hops='directed' reproduces the paper's tables; rows outside the neighbourhood can change all the same."
ENCLOSING = (
    "inputs='enclosing' reproduces the paper's tables: operators were solved on the edges around the deletion alone, and what "
    "they do on the whole graph was not measured. After few deleted edges scores can even rise."
)
UNBOUNDED = (
    "Some layers let every node see every other. Operators act near the deletion, but distance does not bound its "
    "influence."
)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
