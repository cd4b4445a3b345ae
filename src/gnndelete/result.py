"""`Unlearned`: the result of a deletion, with the model, the remaining graph, what it cost and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from os import PathLike
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.assurance import explain, explain_aim
from gnndelete.errors import AdapterError, ModelError, RunError
from gnndelete.evidence import evidence_by
from gnndelete.graph.batch import collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph, seen
from gnndelete.graph.validation import attributes, changed, check_graph, fingerprint
from gnndelete.methods.base import Context, Fit, Method, Outcome
from gnndelete.nn.adapter import Adapter, read_config, restore, worded
from gnndelete.nn.forward import Forward, as_seen, call, evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note
from gnndelete.registry import by_name
from gnndelete.tasks import Task
from gnndelete.tasks import resolver as tasks
from gnndelete.tasks.base import Predict

_NO_GRAPH = "this adapter was loaded without a graph; pass data= the remaining graph to gnndelete.load"


@dataclass(frozen=True, repr=False)
class Unlearned:
    """A model that has forgotten. ``model`` has the class and the ``forward`` it always had; serve it on ``data``."""

    model: nn.Module | None  # None where the method answers through `predict` with a model of its own
    data: Data | HeteroData | None  # the remaining graph; None where an adapter was loaded without one
    adapter: Adapter | None
    method: str
    settings: dict[str, Any]
    assurance: str
    seconds: float
    parameters: int
    history: tuple[Deletion, ...] = ()
    notes: tuple[Note, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    task: Task | None = None
    original: Data | HeteroData | None = field(default=None, repr=False)
    forward: Forward = field(default=call, repr=False)
    seed: int = 0
    predictor: Predict | None = field(default=None, repr=False)
    base: nn.Module | None = field(default=None, repr=False)  # the user's own model, before the deletion
    fit: Fit | None = field(default=None, repr=False)
    build: Callable[[], nn.Module] | None = field(default=None, repr=False)
    peak_mb: float | None = None  # the most memory the deletion held at once; None where it cannot be measured

    @classmethod
    def from_outcome(
        cls,
        outcome: Outcome,
        context: Context,
        method: Method,
        history: tuple[Deletion, ...],
        seconds: float,
        peak_mb: float | None = None,
    ) -> Unlearned:
        if outcome.model is None and outcome.predict is None:
            raise RunError(f"method '{method.name}' returned neither a model nor a way to predict")
        settings = method.settings()
        result = cls(
            model=outcome.model,
            data=seen(context.remaining),
            adapter=outcome.adapter,
            method=method.name,
            settings=settings,
            assurance=outcome.assurance or method.assurance,
            seconds=seconds,
            parameters=outcome.parameters,
            history=history,
            notes=tuple(note if isinstance(note, Note) else Note("remark", note) for note in outcome.notes),
            details=outcome.details,
            task=context.task,
            original=seen(context.data),
            forward=context.session.forward,
            seed=context.seed,
            predictor=outcome.predict,
            base=context.model,
            fit=context.fit,
            build=context.build,
            peak_mb=peak_mb,
        )
        if outcome.adapter is None or outcome.model is None:
            return result
        facts = {**result.summary(), "details": result.details, "num_nodes": context.session.table.num_nodes}
        return replace(result, adapter=Adapter(outcome.model, facts))

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any], **rest: Any) -> Unlearned:
        """A result as it was written down by `summary`, with the objects that no file holds (``rest``)."""
        plain = ("method", "settings", "assurance", "seconds", "parameters", "seed")
        return cls(
            **{name: summary[name] for name in plain},
            notes=tuple(Note(**note) for note in summary["notes"]),
            peak_mb=summary.get("peak_mb"),
            **rest,
        )

    @cached_property
    def graph(self) -> Data | None:
        """The remaining graph as the library holds it: of a ``HeteroData`` the node types side by side."""
        return collate(self.data)

    @cached_property
    def original_graph(self) -> Data | None:
        """The graph before the deletion, as the library holds it."""
        return collate(self.original)

    @cached_property
    def deletion(self) -> Deletion:
        """Everything that was deleted, all requests together."""
        return reduce(or_, self.history) if self.history else Deletion()

    @property
    def counts(self) -> dict[str, int]:
        """How many elements of each kind were deleted; an adapter from disk knows this of them and no more."""
        if not self.history and self.adapter is not None:
            return dict(self.adapter.facts.get("counts", {}))
        return self.deletion.counts

    @property
    def calibration(self) -> dict[str, Any] | None:
        """A dict that says how lam was chosen, with every trial; None where it was given, or the method has none."""
        return self.details.get("calibration")

    @property
    def lam(self) -> float | None:
        """The weight of forgetting that was used, given or calibrated."""
        return self.settings.get("lam") if self.calibration is None else self.calibration["lam"]

    @property
    def aim(self) -> str | None:
        """What deleted elements are to look like, for methods that have such an aim."""
        return self.settings.get("aim")

    @property
    def aim_meaning(self) -> str | None:
        return None if self.aim is None else explain_aim(self.aim, self.lam, self.calibration)

    @property
    def assurance_meaning(self) -> str:
        """What the level promises, and where the data still is."""
        operators = self.adapter is not None and bool(self.adapter.operators)
        return explain(self.assurance, adapter=operators, counts=self.counts)

    def summary(self) -> dict[str, Any]:
        """The result in plain values: no ids, so that it can be shown and kept."""
        return {
            "method": self.method,
            "settings": self.settings,
            "aim": self.aim,
            "lam": self.lam,
            "assurance": self.assurance,
            "seconds": self.seconds,
            "parameters": self.parameters,
            "peak_mb": self.peak_mb,
            "requests": self._requests,
            "counts": self.counts,
            "notes": [note.to_dict() for note in self.notes],
            "seed": self.seed,
        }

    @property
    def _requests(self) -> int:
        facts = {} if self.adapter is None else self.adapter.facts
        return len(self.history) or int(facts.get("requests", 0))

    def output(self) -> Any:
        """The model's output on the remaining graph, in evaluation mode."""
        if self.data is None:
            raise ModelError(_NO_GRAPH)
        model = self._model()
        with evaluating(model):
            output = self.forward(model, self.data)
        if self.task is not None:
            self.task.check_output(output, self.graph)
        return output

    def _model(self) -> nn.Module:
        if self.model is None:
            raise ModelError(f"method '{self.method}' keeps no torch model; ask it through predict(elements)")
        return self.model

    def _predictor(self) -> Predict:
        """One forward pass (or none), then an answer to any number of questions."""
        if self.predictor is not None:
            return self.predictor
        task, model, output = self._task(), self._model(), self.output()

        def predict(elements: Any) -> Tensor:
            with evaluating(model):
                return task.predict(model, output, elements)

        return predict

    def predict(self, elements: Any) -> Tensor:
        """What the model answers about some elements on the remaining graph.

        Of links these are scores (logits, one each): ``predict(pairs).sigmoid()`` makes them probabilities. Of nodes and graphs
        they are class probabilities already, a row each. On a ``HeteroData`` elements are named by type:
        ``{("author", "writes", "paper"): pairs}``, ``{"paper": ids}``.
        """
        if isinstance(self.graph, HeteroGraph):
            elements = self._task().place(elements, self.graph)
        return self._predictor()(elements)

    def evaluate(self) -> dict[str, float]:
        """First evidence: the task's scores on its test data and, for link tasks, how deleted edges rank below remaining ones.

        ``deleted_auroc`` alone proves nothing: a ruined model can reach it. Read it beside the test score.
        """
        task = self._task()
        if self.data is None:
            raise ModelError(_NO_GRAPH)
        return evidence_by(self._predictor(), task, self.deletion, self.graph, seed=self.seed)

    def _task(self) -> Task:
        if self.task is None:
            raise ModelError("no task is known, so there is nothing to predict; pass task= to the Unlearner or to load")
        return self.task

    def save(self, path: str | PathLike[str]) -> None:
        """Write the adapter: its config, its tensors and a card. The base model and the deleted elements are not in it."""
        if self.adapter is None and self.model is None:
            raise AdapterError(
                f"method '{self.method}' makes no adapter and answers by models of its own, which are not written down; keep the "
                "requests with unlearner.save_state(…) and delete again from there"
            )
        if self.adapter is None:
            raise AdapterError(
                f"method '{self.method}' makes no adapter; keep the whole model with torch.save(unlearned.model.state_dict(), …)"
            )
        if self.data is None:
            raise AdapterError("this adapter was loaded without its graph; load it with data= before saving it again")
        facts = {**self.adapter.facts, "remaining_fingerprint": fingerprint(self.graph)}
        facts["remaining_attributes"] = attributes(self.graph)
        if self.original is not None:
            facts["original_fingerprint"] = fingerprint(self.original_graph)
        Adapter(self.adapter.model, facts).save(path)

    def __repr__(self) -> str:
        model = None if self.model is None else type(self.model).__name__
        made = f"method={self.method!r}, assurance={self.assurance!r}, parameters={self.parameters}"
        return f"Unlearned(model={model}, data={self.data}, counts={self.counts}, {made})"

    def __str__(self) -> str:
        counts = ", ".join(worded(kind, count) for kind, count in self.counts.items())
        lines = [
            f"{self.method}: {counts or 'nothing'} forgotten in {self.seconds:.3g} s, {self.parameters:,} parameters",
            f"assurance: {self.assurance}. {self.assurance_meaning}",
            *([f"aim: {self.aim}: {self.aim_meaning}."] if self.aim is not None else []),
            *(f"note: {note.text}" for note in self.notes if note.code != "calibration"),
        ]
        return "\n".join(lines)


def load(
    path: str | PathLike[str],
    model: nn.Module,
    data: Data | HeteroData | None = None,
    *,
    task: Task | str | None = None,
    forward: Forward | None = None,
    operator: Any = None,
) -> Unlearned:
    """Put an adapter that `Unlearned.save` wrote onto (a copy of) its base model; another model or graph is refused.

    ``data`` is the remaining graph; with it the result can predict at once. ``operator`` is the factory of custom maps.
    """
    config = read_config(path)
    graph = collate(data)
    if graph is not None:
        check_graph(graph)
        own = fingerprint(graph)
        if own == config.get("original_fingerprint") != config.get("remaining_fingerprint"):
            raise AdapterError(
                f"data is the graph before the deletion; the adapter at '{path}' belongs to what remained: pass unlearned.data"
            )
        if own != config.get("remaining_fingerprint"):
            raise AdapterError(
                f"the adapter at '{path}' was made on another graph ({config['remaining_fingerprint'][:12]}, got {own[:12]}); "
                "pass the remaining graph it was made on, or delete again on this one"
            )
        other = changed(config.get("remaining_attributes"), attributes(graph))
        if other:
            raise AdapterError(
                f"the adapter at '{path}' was made on a graph with other values of {other}; pass the remaining graph it was made "
                "on, or delete again on this one"
            )
    adapter = restore(path, config, working_copy(model), operator)
    return Unlearned.from_summary(
        config,
        model=adapter.model,
        data=seen(graph),
        adapter=adapter,
        details=config.get("details", {}),
        task=None if task is None else by_name("task", task, tasks).on(graph),
        forward=as_seen(forward) or call,
        base=model,
    )
