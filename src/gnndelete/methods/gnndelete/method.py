"""GNNDelete: one small operator behind each graph layer, solved layer by layer inside the forward pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from itertools import count
from numbers import Real
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gnndelete.engine.local import BlockSession
from gnndelete.engine.session import MODEL_RANDOM
from gnndelete.errors import ModelError, SettingError, some
from gnndelete.graph.deletion import NOTHING
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.edge_table import Hops
from gnndelete.graph.fingerprint import tensor_digest
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import check_deletion
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, plain
from gnndelete.methods.gnndelete.calibration import (
    ACTIONS,
    CUTTING,
    CUTTING_AND_RESETTING,
    MAPS,
    REHEARSED_LEAST,
    REHEARSED_MOST,
    REHEARSED_SHARE,
    ROWS,
    SMALL_REQUEST,
    Aim,
    Calibration,
    Strengths,
    choose_lam,
    nothing_learned,
    rehearsed,
)
from gnndelete.methods.gnndelete.forgetting_score import ForgettingScore, Trial
from gnndelete.methods.gnndelete.layerwise import Layerwise, Solved
from gnndelete.methods.gnndelete.node_embeddings import IsolatedNodes, isolated_nodes, isolates
from gnndelete.methods.gnndelete.node_rows import RowCorrection, table_facts
from gnndelete.methods.gnndelete.objective import Problem
from gnndelete.methods.gnndelete.row_groups import row_groups
from gnndelete.methods.gnndelete.solvers import closed_form, gradient
from gnndelete.nn.adapter import Adapter
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Site
from gnndelete.nn.layers import Layers, graph_layers, working_copy
from gnndelete.nn.operator import LinearMap, attach
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


#: The kinds of deletions that rows of tables learned from; features and labels they did not.
LEARNED_BY_ROWS = {"edges", "nodes", "relations"}


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
        operator: ``"rows"`` corrects the trained vectors of the nodes whose edges leave, in a table of the model.
            ``"ring"`` has one map for the endpoints and one for the rings around them, ``"shared"`` one map per layer (the
            paper's). ``"auto"`` takes ``"rows"`` where edges are scored and the model has a trained vector per node, else
            ``"ring"``. A factory ``width -> nn.Module`` makes any other operator and needs ``solver="gradient"``.
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
        operator: str | Callable[[int], nn.Module] = "auto",
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
        is_share = {
            name: isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1
            for name, value in (("lam", self.lam), ("budget", self.budget))
        }
        names = self.layers if isinstance(self.layers, (list, tuple)) else ()
        free = callable(self.operator)
        rules = {
            "lam": (self.lam == "auto" or is_share["lam"], "'auto' or a number from 0 to 1"),
            "budget": (is_share["budget"], "a share of the validation score from 0 to 1"),
            "layers": (
                self.layers in ("all", "last") or (names and all(isinstance(name, str) for name in names)),
                "'all', 'last' or a list of names of modules, such as ['convs.1']",
            ),
            "ridge": (self.ridge >= 0, "0 or more"),
            "epochs": (self.epochs >= 1, "at least 1"),
            "lr": (self.lr > 0, "positive"),
            "operator": (
                free or self.operator in ("auto", "rows", "ring", "shared"),
                "'auto', 'rows', 'ring', 'shared' or a factory width -> nn.Module",
            ),
        }
        for name, (is_allowed, wanted) in rules.items():
            if not is_allowed:
                raise SettingError(f"'{name}' must be {wanted} (got {getattr(self, name)!r})")
        if free and self.solver == "closed-form":
            raise SettingError("an operator of your own has no closed form", "use solver='gradient' with it")
        if self.operator == "rows" and (self.solver != "closed-form" or self.watch is not None):
            raise SettingError(
                "operator='rows' has no maps to train or to watch",
                "use operator='ring' or 'shared' with 'solver' or 'watch'",
            )
        if self.inputs == "enclosing" and (self.operator in ("auto", "rows", "ring") or self.lam == "auto"):
            raise SettingError(
                "inputs='enclosing' has one map per layer and a fixed lam, as the paper's authors ran it",
                "use operator='shared' and a number for lam with it",
            )

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
        if self.lam == "auto" and isinstance(context.data, DiskGraph):
            return [
                Reason("lam='auto' is searched on the whole graph, which a DiskGraph is too large for", LAM_ON_DISK)
            ]
        if self.operator != "rows":
            return []
        if context.task is None or not context.task.pairwise:
            return [Reason("operator='rows' serves models that score pairs of nodes", "use operator='auto'")]
        if not context.session.vectors:
            return [Reason("the model has no trained vector per node to correct", "use operator='auto'")]
        return []

    def corrects_rows(self, context: Context) -> bool:
        """Whether a request is served by correcting rows of tables, instead of by maps behind layers.

        Args:
            context: The request.
        """
        if self.lam == 0 or self.operator != "auto":  # lam 0 is `Unlink`
            return self.lam != 0 and self.operator == "rows"
        fits = self.aim == "retrained" and self.solver == "closed-form" and self.layers == "all" and self.watch is None
        if not fits or self.hops != "undirected" or self.targets != "remaining":
            return False
        if context.task is None or not context.task.pairwise or set(context.deletion.counts) - LEARNED_BY_ROWS:
            return False
        return bool(context.session.vectors)

    def runs_on_block(self, context: Context) -> bool:
        """Whether a block is enough. It is not for the paper's neighbourhoods, nor where embeddings are reset.

        Args:
            context: The request.

        Returns:
            Whether the request can be solved on a block.
        """
        if self.hops != "undirected" or self.inputs != "remaining" or not isinstance(self.layers, str):
            return False
        if context.deletion.new_labels.size(1):  # they are pulled to nodes of their new class, which are anywhere
            return False
        # a block has the edges into its nodes: with both directions all there are, else half; and the tables it has rows of
        session, data = context.session, context.data
        both_ways = session.table.undirected or session.table.mirrored
        if self.corrects_rows(context):
            only_edges = set(context.deletion.counts) <= {"edges"}
            return (both_ways or only_edges) and not isinstance(data, HeteroGraph) and "edge_label_index" not in data
        tables = self._tables(context)
        if not tables:
            return True
        learns_apart = not isinstance(data, HeteroGraph) and "edge_label_index" in data
        known = set() if session.blocks is None else {name for name, _ in session.blocks.reads.tables}
        return (both_ways and not learns_apart and tables <= known) or not isolates(context)

    def unlearn(self, context: Context) -> Outcome:
        """Find lam, solve the operators and attach them to a copy of the model.

        Args:
            context: The request.

        Returns:
            The copy with its operators, and how lam was chosen.
        """
        near, task = context.near, context.task  # where the layers run: the block of the request, or the whole graph
        if self.corrects_rows(context):
            outcome = self._correct_rows(context)
            if self.operator == "rows" or not outcome.details.get("calibration", {}).get("retrain_recommended"):
                return outcome
            # rows do not reach the aim, as where layers turn them before they are scored: maps may
            maps = type(self)(**{**self.settings(), "operator": "ring"})
            return maps.unlearn(context if maps.runs_on_block(context) else replace(context, block=None))
        on_block = isinstance(near.session, BlockSession)
        probe = near.session.probe(self.layers)  # the sites
        model = near.model if on_block else working_copy(context.model)
        calibration: Calibration | None = None
        solved: Solved = []
        output: Any = None
        with evaluating(model), nullcontext() if on_block else self._products(context, model):
            isolated, found = self._isolated(near, model, probe) if self._tables(context) else (None, ())
            nodes, enclosing = None if isolated is None else isolated.nodes, self.inputs == "enclosing"
            one_map = self.operator not in ("auto", "ring")
            groups = row_groups(near, probe, self.hops, one_map, nodes, keep_ends=not enclosing)
            layerwise = Layerwise(near, model, probe, groups, isolated, self.targets, enclosing)
            untrained = task is not None and task.untrained(context.deletion, context.data)
            if untrained or not any(groups.at.values()):
                calibration = nothing_learned(self.aim) if self.lam == "auto" else None
            elif self.lam == "auto":
                calibration, solved, output = self._search(context, layerwise)
            else:
                solved, output = self._solve(float(self.lam), layerwise)
            if on_block and output is None:
                output = near.session.forward(model, near.remaining)
        notes = [*self._notes(context, context.session.probe(self.layers)), *found]
        return self._outcome(near, model, solved, output, calibration, notes)

    def _correct_rows(self, context: Context, rehearses: bool = False) -> Outcome:
        """The request served by corrected rows of the model's tables; in a rehearsal, with its own lam."""
        near, task = context.near, context.task
        assert task is not None
        known = table_facts(context.session, task)
        on_block = isinstance(near.session, BlockSession)
        model = near.model if on_block else working_copy(context.model)
        calibration: Calibration | None = None
        with evaluating(model), nullcontext() if on_block else self._products(context, model):
            correction = RowCorrection(near, model, known)
            if not correction.changes or task.untrained(context.deletion, context.data):
                calibration = nothing_learned(self.aim) if self.lam == "auto" else None
                solved, output = correction.run(0.0)
            elif self.lam == "auto":
                calibration, solved, output = self._search_rows(context, correction, rehearses)
            else:
                solved, output = correction.run(float(self.lam))
        probe = context.session.probe(self.layers)
        notes = [note for note in self._notes(context, probe) if note.code != "layers-skipped"]
        return self._outcome(near, model, solved, output, calibration, [*notes, *correction.notes()])

    def _outcome(
        self,
        near: Context,
        model: nn.Module,
        solved: Solved,
        output: Any,
        calibration: Calibration | None,
        notes: list[Note],
    ) -> Outcome:
        """The copy with its operators; on a block, what they are on the whole graph."""
        if calibration is not None and (calibration.trials or calibration.status in ("fallback", "rehearsed")):
            notes.append(Note("calibration", calibration.sentence))
        facts: dict[str, Any] = {
            "parameters": sum(p.numel() for _, operator in solved for p in operator.parameters()),
            "assurance": None if solved else "inference-only",  # without an operator only the graph has changed
            "notes": tuple(notes),
            "details": {} if calibration is None else {"calibration": asdict(calibration)},
        }
        if isinstance(near.session, BlockSession):
            answers, operators = near.session.answers(output), near.session.lift(solved)
            return Outcome(model=None, answers=answers, operators=operators, **facts)
        for site, operator in solved:
            attach(model, site, operator)
        return Outcome(model=model, adapter=Adapter(model), **facts)

    def _products(self, context: Context, model: nn.Module) -> AbstractContextManager[None]:
        return sparse_products(model, context.remaining, context.data, loopless=context.session.loopless)

    @property
    def resets_embeddings(self) -> bool:
        """Whether trained embeddings of isolated nodes are reset: only then does the aim ask for it."""
        return self.aim == "retrained" and self.operator in ("auto", "ring") and self.lam != 0

    def _tables(self, context: Context) -> set[str]:
        """The embeddings that are reset for isolated nodes: those of the model, if its scores are of pairs."""
        if not self.resets_embeddings or context.task is None or not context.task.pairwise:
            return set()
        rows = context.session.row_ranges
        sizes = {len(nodes) for nodes in (rows.whole, *rows.types.values())}
        named = context.model.named_parameters()
        return {name for name, value in named if value.dim() == 2 and value.size(0) in sizes}

    def _isolated(self, near: Context, model: nn.Module, probe: Probe) -> tuple[IsolatedNodes | None, tuple[Note, ...]]:
        """Isolated nodes whose embeddings are reset."""
        with near.session.running() if isinstance(near.session, BlockSession) else nullcontext():
            return isolated_nodes(near, model, probe.sites)

    def prepare(self, context: Context) -> None:
        """Rehearse lam: calibrate it on training elements that stay, for requests that are too small to calibrate by.

        Args:
            context: Model, graph and task.
        """
        session = context.session
        if self.lam == "auto" and context.task is not None and session.rehearsed is None and session.blocks is not None:
            digest = self._rehearsal_digest(context)
            if (kept := session.read_kept(digest)) is not None:
                session.rehearsed = Calibration(**kept)
            elif (found := self._rehearsal(context)) is not None:
                session.rehearsed = found
                session.keep(digest, {**asdict(found), "trials": []})

    def _rehearsal_digest(self, context: Context) -> str:
        """A digest of all that a rehearsal depends on, beside the model and the graph."""
        tensors = {name: value for name, value in vars(context.task).items() if isinstance(value, Tensor)}
        settings = [type(context.task).__name__, context.seed, plain(self.settings())]
        return hashlib.sha256(f"{settings} {tensor_digest(tensors)}".encode()).hexdigest()

    def _rehearsal(self, context: Context) -> Calibration | None:
        """The lam of a trial deletion of training elements; None where it cannot be calibrated."""
        task, session = context.task, context.session
        assert task is not None
        learned = task.learned_once(context.data)
        count = _rehearsed_elements(learned.size(-1))
        chosen = torch.randperm(learned.size(-1), generator=torch.Generator().manual_seed(context.seed))[:count]
        deletion = task.deletion_of(learned[..., chosen.to(learned.device)].cpu()) if count else None
        if deletion is None:
            return None
        trial = replace(context, request=NOTHING, earlier=NOTHING, block=None)
        trial = trial.for_deletion(check_deletion(deletion, context.data, session.table))
        if session.blocks is not None and session.blocks.segments is None and self.runs_on_block(trial):
            trial = replace(trial, block=session.blocks.near(trial.deletion))
        rows = self.corrects_rows(trial)
        outcome = self._correct_rows(trial, rehearses=True) if rows else self.unlearn(trial)
        found = outcome.details.get("calibration")
        if found is None or found["status"] == "fallback":
            return None
        return replace(rehearsed(Calibration(**found), count, task.noun), rows=rows)

    def _search(self, context: Context, layerwise: Layerwise) -> tuple[Calibration, Solved, Any]:
        """The lam that reaches the aim on validation data, its operators, and on a block the output."""
        known, task = context.session.rehearsed, context.task
        small = task is not None and task.elements(context.deletion, context.data).size(-1) < SMALL_REQUEST
        if known is not None and small and not known.rows and not context.deletion.new_labels.size(1):
            return known, *self._solve(known.lam, layerwise)
        return self._trials(context, layerwise)

    def _search_rows(
        self, context: Context, correction: RowCorrection, rehearses: bool
    ) -> tuple[Calibration, Solved, Any]:
        """The same for corrected rows. The larger sample decides, the request's own edges or those of the rehearsal.

        One strength serves all requests, so what many training edges need is right for a few deleted ones and for accounts.
        """
        task, session = context.task, context.session
        assert task is not None
        own = task.elements(context.deletion, context.data).size(-1)
        if not rehearses and own < _rehearsed_elements(task.learned_once(context.data).size(-1)):
            if session.rehearsed is None or not session.rehearsed.rows:
                session.rehearsed = self._rehearsal(context) or session.rehearsed
            known = session.rehearsed
            if known is not None and known.rows:
                return known, *correction.run(known.lam)
        return self._trials(context, correction, ROWS)

    def _trials(
        self, context: Context, layerwise: Layerwise | RowCorrection, strengths: Strengths = MAPS
    ) -> tuple[Calibration, Solved, Any]:
        action = ACTIONS.get(frozenset(context.deletion.counts), CUTTING)
        action = CUTTING_AND_RESETTING if layerwise.resets else action
        score = ForgettingScore(context, by_surroundings=self.aim == "retrained")
        trials: dict[float, tuple[Solved, Any]] = {}
        session = layerwise.context.session

        def linear(site: Site, problem: Problem) -> nn.Module:
            return closed_form(problem, self.ridge).requires_grad_(False)

        wholes: dict[str, Any] = {}  # copied once; every trial writes its computed rows into them

        def measure(lam: float) -> Trial:
            solved, output = trials[lam] = layerwise.run(lam, linear, whole=True)
            presented = layerwise.present(solved) if score.presented else output
            if isinstance(session, BlockSession):
                is_served = presented is output
                output = wholes["served"] = session.whole(output, wholes.get("served"))
                presented = output if is_served else session.whole(presented, wholes.get("presented"))
                wholes["presented"] = presented
            return score.trial(lam, context.model, output, presented)

        calibration = choose_lam(self.aim, measure, score, self.budget, action, strengths)
        # another solver or operator runs once, with the lam of the closed form
        if calibration.lam in trials and self.solver == "closed-form" and self.watch is None:
            return calibration, *trials[calibration.lam]
        if isinstance(layerwise, RowCorrection):
            return calibration, *layerwise.run(calibration.lam)
        return calibration, *self._solve(calibration.lam, layerwise)

    def _solve(self, lam: float, layerwise: Layerwise) -> tuple[Solved, Any]:
        """The operators of one lam, by the solver that was chosen, and on a block the output."""
        seeds = count(layerwise.context.seed)

        def solve(site: Site, problem: Problem) -> nn.Module:
            solved: nn.Module
            if self.solver == "closed-form":
                solved = closed_form(problem, self.ridge)
            elif callable(self.operator):
                with seeded(next(seeds), problem.h.device):
                    solved = self.operator(site.width)
                solved = gradient(problem, solved, self.epochs, self.lr).to(problem.h.dtype)
            else:
                solved = gradient(problem, LinearMap(site.width), self.epochs, self.lr)
            if self.watch is not None:
                self.watch(site, problem, solved)
            return solved.requires_grad_(False)

        on_block = isinstance(layerwise.context.session, BlockSession)
        return layerwise.run(lam, solve, whole=on_block, free=callable(self.operator))

    def _notes(self, context: Context, probe: Probe) -> list[Note]:
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
        return [*notes, Note("never-learned", text)] if text else notes


def _rehearsed_elements(learned: int) -> int:
    """How many training elements a rehearsal deletes."""
    return min(max(int(REHEARSED_SHARE * learned), REHEARSED_LEAST), REHEARSED_MOST, learned // 4)


LAM_ON_DISK = "give a number, GNNDelete(lam=0.5); on a smaller graph of the kind lam='auto' finds one"
DIRECTED = "hops='directed' reproduces the paper's tables; rows outside the neighbourhood can change all the same."
ENCLOSING = (
    "inputs='enclosing' reproduces the paper's tables: operators were solved on the edges around the deletion alone, and what "
    "they do on the whole graph was not measured. After few deleted edges scores can even rise."
)
UNBOUNDED = (
    "Some layers let every node see every other. Operators act near the deletion, but distance does not bound its "
    "influence."
)
