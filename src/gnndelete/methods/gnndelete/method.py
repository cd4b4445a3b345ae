"""GNNDelete: one small operator behind each graph layer, solved layer by layer inside the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from numbers import Real
from typing import Any, ClassVar, Literal

from torch import nn

from gnndelete.engine.session import MODEL_RANDOM
from gnndelete.errors import ModelError, SettingError, some
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.neighborhood import Hops
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.methods.gnndelete.calibration import (
    Aim,
    Calibration,
    Trial,
    as_nonexistent,
    as_retrained,
    fallback,
    nothing_learned,
)
from gnndelete.methods.gnndelete.forgetting_score import MOST, RULES, Ruler, ruler
from gnndelete.methods.gnndelete.layerwise import MakeMap, Solved, Solving
from gnndelete.methods.gnndelete.node_embeddings import left_alone
from gnndelete.methods.gnndelete.row_groups import learned_labels, only_untrained_graphs
from gnndelete.methods.gnndelete.sentences import Done
from gnndelete.methods.gnndelete.solvers import Problem, Unchecked, closed_form, gradient
from gnndelete.nn.adapter import Adapter
from gnndelete.nn.forward import eagerly, evaluating
from gnndelete.nn.hooks import Site
from gnndelete.nn.layers import Layers, graph_layers, working_copy
from gnndelete.nn.operator import LinearMap
from gnndelete.nn.receptive_field import Probe
from gnndelete.nn.reset import seeded
from gnndelete.nn.sparse import sparse_products
from gnndelete.notes import Note
from gnndelete.tasks import LinkPrediction
from gnndelete.tasks.overlap import overlap_sentence

Watch = Callable[[Site, Problem, nn.Module], None]


class GNNDelete(Method):
    """Learn what the layers around a deleted element must say once it is gone (ICLR 2023, and past it).

    ``lam`` weighs forgetting (1) against keeping the neighbourhood (0). With ``"auto"`` it is calibrated on validation
    data: for ``aim="retrained"`` so that deleted elements score like unseen ones, for ``aim="nonexistent"`` as strong as
    ``budget``, the accepted loss of the validation score, allows. ``operator="ring"`` gives the endpoints a map of
    their own, ``"shared"`` is the paper's one map per layer, and a factory ``width -> nn.Module`` any other (with
    ``solver="gradient"``). ``targets`` says on which graph the representations to keep are computed; with ``"remaining"``
    lam=0 is exactly Unlink. ``inputs="enclosing"`` sets the problem as the paper's authors ran it: the rows that an operator
    learns from come from the edges among the neighbourhood alone, the deleted ones with them, and the endpoints are not
    among the rows to keep. ``watch`` is called with every solved problem, for those who want to look inside.

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
        self._watch = watch
        self._check()

    @classmethod
    def paper(cls, hops: Hops = "undirected", **changes: Any) -> GNNDelete:
        """The paper's setting: lam 0.5, one shared map behind every layer, targets from the original graph.

        ``hops="directed"`` is for its tables: neighbourhoods and problems as its authors ran them.
        """
        setting = {"aim": "nonexistent", "lam": 0.5, "operator": "shared", "layers": "all", "targets": "original"}
        setting["inputs"] = "enclosing" if hops == "directed" else "remaining"
        return cls(**{**setting, "hops": hops, **changes})

    def _check(self) -> None:
        choices = {
            "aim": ("retrained", "nonexistent"),
            "solver": ("closed-form", "gradient"),
            "targets": ("remaining", "original"),
            "hops": ("undirected", "directed"),
            "inputs": ("remaining", "enclosing"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise SettingError(f"'{name}' must be {' or '.join(map(repr, allowed))} (got {getattr(self, name)!r})")
        if self.lam != "auto" and (
            isinstance(self.lam, (bool, str)) or not isinstance(self.lam, Real) or not 0 <= self.lam <= 1
        ):
            raise SettingError(f"'lam' must be 'auto' or a number from 0 to 1 (got {self.lam!r})")
        if isinstance(self.budget, (bool, str)) or not isinstance(self.budget, Real) or not 0 <= self.budget < 1:
            raise SettingError(
                f"'budget' must be a share of the validation score from 0 to below 1 (got {self.budget!r})"
            )
        names = self.layers if isinstance(self.layers, (list, tuple)) else ()
        if self.layers not in ("all", "last") and not (names and all(isinstance(name, str) for name in names)):
            raise SettingError(
                "'layers' must be 'all', 'last' or a list of names of modules, such as ['convs.1'] "
                f"(got {self.layers!r})"
            )
        if self.inputs == "enclosing" and (self.operator == "ring" or self.lam == "auto"):
            raise SettingError(
                "inputs='enclosing' is the way of the paper's authors with one map per layer and a lam of their own; use "
                "operator='shared' and a number for lam with it"
            )
        if not self.ridge >= 0:
            raise SettingError(f"'ridge' must not be negative (got {self.ridge!r})")
        if self.epochs < 1 or not self.lr > 0:
            raise SettingError(f"'epochs' must be at least 1 and 'lr' positive (got {self.epochs!r} and {self.lr!r})")
        if callable(self.operator):
            if self.solver == "closed-form":
                raise SettingError("an operator of your own has no closed form; use solver='gradient' with it")
        elif self.operator not in ("ring", "shared"):
            raise SettingError(
                f"'operator' must be 'ring', 'shared' or a factory width -> nn.Module (got {self.operator!r})"
            )

    def rule(self, task: str, vectors: bool = False) -> int:
        if vectors and task == LinkPrediction.name and self._lets_go:
            return RULES["vectors", self.aim]
        return RULES.get((task, self.aim), 1) if self.lam == "auto" else 1

    def unfit(self, context: Context) -> list[Reason]:
        try:
            if not isinstance(self.layers, str) or not graph_layers(context.model):
                context.session.probe(self.layers)
        except ModelError as error:  # a name that the model does not have is a mistake in the setting, and raises
            return [Reason(error.why, error.remedy or "name the layers with layers=[…]")]
        return []

    def unlearn(self, context: Context) -> Outcome:
        probe = context.session.probe(self.layers)
        model = working_copy(context.model)
        notes, details = (
            (*self._notes(context, probe), *self._passed_over(context, probe), *_never_learned(context)),
            {},
        )
        loopless = context.session.loopless
        sparse = sparse_products(model, context.remaining, context.data, loopless=loopless)
        with eagerly(model), evaluating(model), sparse:
            alone = left_alone(context, model, probe.sites) if self._lets_go else None
            solving = Solving(
                context,
                model,
                probe,
                self.targets,
                self.hops,
                self.operator != "ring",
                alone,
                self.inputs == "enclosing",
            )
            notes = (*notes, *(alone.note if alone else ()))
            if not solving.acts or only_untrained_graphs(context):
                solved: Solved = []  # nothing that was deleted has rows, or was ever learned from
                if self.lam == "auto":
                    details = {"calibration": nothing_learned(self.aim).to_dict()}
            elif self.lam == "auto":
                calibration, solved = self._calibrated(context, solving)
                note = Note("calibration", calibration.sentence)
                notes, details = (*notes, note), {"calibration": calibration.to_dict()}
            elif self.lam == 0 and self.targets == self.inputs == "remaining":
                solved = []  # that setting is Unlink: nothing to solve
            else:
                solved = self._solved(solving, float(self.lam))
        notes = (*notes, *solving.note)
        solving.attach(solved)
        adapter = Adapter(model)
        return Outcome(
            model=model,
            parameters=adapter.num_parameters,
            adapter=adapter,
            assurance=None if solved else "inference-only",  # without an operator only the graph has changed
            notes=notes,
            details=details,
        )

    @property
    def _lets_go(self) -> bool:
        """Whether trained vectors of nodes that are left alone are to count no more."""
        return self.aim == "retrained" and self.operator == "ring" and self.lam != 0

    def _calibrated(self, context: Context, solving: Solving) -> tuple[Calibration, Solved]:
        """Find lam with the exact solver of a linear map; another solver or operator then runs once, with that lam."""
        measured = ruler(context, finely=self.aim == "retrained")
        kept: dict[float, Solved] = {}

        def measure(lam: float) -> Trial:
            trial, kept[lam] = _trial(lam, solving, measured, self._closed_form)
            return trial

        calibration = self._search(measured, measure, solving)
        if calibration.trials and self.aim == "retrained" and measured.compared < MOST:
            what = "elements" if measured.ends is None else "edges"
            few = f" Only {measured.compared:.0%} of the deleted {what} have unseen ones like them: lam was chosen by these."
            calibration = replace(calibration, sentence=calibration.sentence + few)
        if calibration.trials and measured.seen and measured.task is not None:
            seen = overlap_sentence(measured.seen, measured.task)
            calibration = replace(calibration, sentence=f"{calibration.sentence} {seen}")
        if calibration.trials and measured.finely:
            calibration = replace(calibration, sentence=f"{calibration.sentence} {measured.finely}")
        if calibration.lam == 0 and solving.only_cut:
            return calibration, []
        if calibration.lam in kept and self.solver == "closed-form" and self._watch is None:
            return calibration, kept[calibration.lam]
        return calibration, self._solved(solving, calibration.lam)

    def _solved(self, solving: Solving, lam: float) -> Solved:
        seeds = count(solving.context.seed)

        def make(site: Site, problem: Problem, unchecked: Unchecked | None = None) -> nn.Module:
            return self._map(site, problem, unchecked, next(seeds))

        return solving.run(lam, make, free=callable(self.operator))[0]

    def _search(self, measured: Ruler, measure: Callable[[float], Trial], solving: Solving) -> Calibration:
        if self.aim == "retrained":
            if measured.forgetting is None:
                return fallback(self.aim, measured.missing)
            at = Done.of(solving.context.deletion.counts, solving.gives_rows)
            return as_retrained(measure, measured.kept, at)
        if measured.task is None or not measured.task.validates(measured.data):
            return fallback(self.aim, "there is no validation data to measure a loss of utility on", lam=0.5)
        return as_nonexistent(measure, self.budget)

    def _closed_form(self, site: Site, problem: Problem, unchecked: Unchecked | None = None) -> nn.Module:
        return closed_form(problem, self.ridge, unchecked).requires_grad_(False)

    def _map(self, site: Site, problem: Problem, unchecked: Unchecked | None, seed: int) -> nn.Module:
        apply: nn.Module
        if self.solver == "closed-form":
            apply = closed_form(problem, self.ridge, unchecked)
        elif callable(self.operator):
            with seeded(seed, problem.h.device):
                apply = self.operator(site.width)
            apply = gradient(problem, apply, self.epochs, self.lr).to(problem.h.dtype)
        else:
            apply = gradient(problem, LinearMap(site.width), self.epochs, self.lr)
        if self._watch is not None:
            self._watch(site, problem, apply)
        return apply.requires_grad_(False)

    def _notes(self, context: Context, probe: Probe) -> tuple[str, ...]:
        notes: list[Any] = [MODEL_RANDOM] if context.session.random else []
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
        if self.inputs == "enclosing":
            notes.append(
                "inputs='enclosing' reproduces the paper's tables: operators learned from the edges around the deletion alone, "
                "and what they do on the whole graph was not looked at. After few deleted edges scores can even rise."
            )
        return tuple(notes)

    def _passed_over(self, context: Context, probe: Probe) -> tuple[str, ...]:
        """Graph layers that got no operator: they are not called, or their rows are not those of the graph's nodes."""
        known = {site.layer for site in probe.sites}
        left = [name for name in graph_layers(context.model) if name not in known]
        if not left or self.layers != "all" or isinstance(context.data, HeteroGraph):
            return ()
        nodes = context.session.table.num_nodes
        return (
            f"No operator follows {some(left)}, which gave no output with one row for each of the {nodes:,} nodes.",
        )


def _never_learned(context: Context) -> tuple[str, ...]:
    """What to say of labels and graphs that the model was not trained on."""
    if only_untrained_graphs(context):
        why = "The model was trained on none of these graphs: they"
    elif not context.deletion.labels.numel() or learned_labels(context).numel():
        return ()
    elif isinstance(context.task, LinkPrediction):
        why = "A link model learns from no labels: these labels"
    else:
        why = "The model was trained on none of these labels: they"
    return (f"{why} play no part in its weights and were only taken out of the data.",)


def _trial(lam: float, solving: Solving, measured: Ruler, make: MakeMap) -> tuple[Trial, Solved]:
    """Solve at one lam and measure what came of it."""
    solved, output = solving.run(lam, make, whole=True)
    model = solving.model
    if measured.forgetting is None:
        return Trial(lam, utility=measured.utility(model, output)), solved
    asked = solving.presented(solved) if measured.presented else output
    auc, se = measured.forgetting(model, asked)
    return Trial(lam, auc, se, measured.utility(model, output), measured.near(model, output)), solved
