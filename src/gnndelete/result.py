"""`Unlearned`: the result of a deletion. The model, the remaining graph, what it cost, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from operator import or_
from os import PathLike
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.datasets.ids import IdMap
from gnndelete.engine.local import Answers, Solved
from gnndelete.errors import AdapterError, GraphError, ModelError, RunError
from gnndelete.exporting import Format, export
from gnndelete.graph.batch import as_user_graph, collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.fingerprint import attributes, changed, fingerprint
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import in_words
from gnndelete.graph.validation import check_graph
from gnndelete.methods.base import Context, Fit, Method, Outcome, plain
from gnndelete.nn.adapter import Adapter, read_config, restore
from gnndelete.nn.forward import Forward, call, evaluating, resolve_forward
from gnndelete.nn.layers import evaluation_view, working_copy
from gnndelete.nn.operator import attach
from gnndelete.notes import Note, explain, explain_aim
from gnndelete.registry import by_name
from gnndelete.tasks import Task
from gnndelete.tasks import resolver as tasks
from gnndelete.tasks.base import Predict

_NO_GRAPH = "this adapter was loaded without a graph"
_PASS_GRAPH = "pass data= the remaining graph to gnndelete.load"


class Later:
    """A value that is made when it is first asked for."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    @cached_property
    def value(self) -> Any:
        """The value; made once."""
        return self._make()


class MadeWhenAsked:
    """A field of a dataclass that takes a value, or a value for `Later`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = vars(instance)[self.name]
        return value.value if isinstance(value, Later) else value

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self.name] = value


@dataclass(frozen=True, repr=False)
class Unlearned:
    """A model that has forgotten, and what is known about it.

    ``model`` has the class and the ``forward`` that it always had. Serve it on ``data``.

    Args:
        model: The model to serve; None where the method answers through `predict` with a model of its own.
        data: The remaining graph; None where an adapter was loaded without one.
        adapter: The operators of the model; None for methods without them.
        method: The name of the method.
        settings: The settings of the method.
        assurance: The assurance level that was reached.
        weights: ``"base"`` where the weights still come from the trained model, ``"new"`` where they never held the data.
        seconds: How long the deletion took.
        parameters: How many parameters were trained or solved for.
        history: All requests so far, checked against the graph.
        notes: What a user must know about this result.
        details: What the method found on the way, such as the calibration of lam.
        task: What the model was trained for.
        original: The graph before the deletion.
        forward: How the model is run.
        seed: The seed that was used.
        predictor: Answers for methods without a torch model.
        base: The user's model, before the deletion.
        fit: How the user's model is trained.
        build: How an untrained model is made.
        engine: ``"local"`` where the request was solved on the neighbourhood of the deletion, else ``"full"``.
        served: The rows that answer, where the request was solved locally: the model and the graph are made when asked for.
    """

    model: nn.Module | None
    data: Data | HeteroData | None
    adapter: Adapter | None
    method: str
    settings: dict[str, Any]
    assurance: str
    weights: str
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
    base: nn.Module | None = field(default=None, repr=False)
    fit: Fit | None = field(default=None, repr=False)
    build: Callable[[], nn.Module] | None = field(default=None, repr=False)
    engine: str = "full"
    served: Answers | None = field(default=None, repr=False)

    @classmethod
    def from_outcome(
        cls,
        outcome: Outcome,
        context: Context,
        method: Method,
        history: tuple[Deletion, ...],
        notes: tuple[Note, ...],
        seconds: float,
    ) -> Unlearned:
        """Make the result of a method's outcome.

        Args:
            outcome: What the method handed back.
            context: What it was given.
            method: The method.
            history: All requests so far.
            notes: What a user must know, from the method and about the model.
            seconds: How long it took.
        """
        if outcome.model is None and outcome.predict is None and outcome.answers is None:
            raise RunError(f"method '{method.name}' returned neither a model nor a way to predict")
        local = outcome.answers is not None
        model: Any = Later(lambda: with_operators(context.model, outcome.operators)) if local else outcome.model
        adapter: Any = Later(lambda: Adapter(model.value)) if local else outcome.adapter
        return cls(
            model=model,
            data=Later(lambda: as_user_graph(context.remaining)) if local else as_user_graph(context.remaining),
            adapter=adapter,
            method=method.name,
            settings=plain(method.settings()),
            assurance=outcome.assurance or method.assurance,
            weights=method.weights,
            seconds=seconds,
            parameters=outcome.parameters,
            history=history,
            notes=notes,
            details=outcome.details,
            task=context.task,
            original=as_user_graph(context.data),
            forward=context.session.forward,
            seed=context.seed,
            predictor=outcome.predict,
            base=context.model,
            fit=context.fit,
            build=context.build,
            engine="local" if local else "full",
            served=outcome.answers,
        )

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any], **objects: Any) -> Unlearned:
        """Make a result of what `summary` gave.

        Args:
            summary: The plain values.
            **objects: The model, the graph and whatever else no file holds.
        """
        plain = ("method", "settings", "assurance", "weights", "seconds", "parameters", "seed")
        return cls(
            **{name: summary[name] for name in plain},
            notes=tuple(Note(**note) for note in summary["notes"]),
            **objects,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is made when it is asked for is made now; a copy answers from its model."""
        made = {name: getattr(self, name) for name in ("model", "data", "adapter")}
        return {**vars(self), **made, "served": None}

    @cached_property
    def graph(self) -> Data | None:
        """The remaining graph as the library holds it: the node types of a ``HeteroData`` in one table."""
        return collate(self.data)

    @cached_property
    def original_graph(self) -> Data | None:
        """The graph before the deletion, as the library holds it."""
        return collate(self.original)

    @cached_property
    def deletion(self) -> Deletion:
        """Everything that was deleted: the union of all requests."""
        return reduce(or_, self.history) if self.history else Deletion()

    @property
    def counts(self) -> dict[str, int]:
        """How many elements of each kind were deleted. An adapter from disk knows no more than this."""
        if not self.history and self.adapter is not None:
            return dict(self.adapter.facts.get("counts", {}))
        return self.deletion.counts

    @property
    def calibration(self) -> dict[str, Any] | None:
        """How lam was chosen, with every trial; None where it was given, or where the method has none."""
        return self.details.get("calibration")

    @property
    def lam(self) -> float | None:
        """The weight of forgetting that was used, given or calibrated."""
        return self.settings.get("lam") if self.calibration is None else self.calibration["lam"]

    @property
    def aim(self) -> str | None:
        """What deleted elements should look like, for methods that have such an aim."""
        return self.settings.get("aim")

    @property
    def aim_meaning(self) -> str | None:
        """What the aim means, and how lam was chosen for it."""
        return None if self.aim is None else explain_aim(self.aim, self.lam, self.calibration)

    @property
    def assurance_meaning(self) -> str:
        """What the level promises, and where the data still is."""
        has_operators = self.adapter is not None and bool(self.adapter.operators)
        return explain(self.assurance, adapter=has_operators, counts=self.counts)

    def summary(self) -> dict[str, Any]:
        """Return the result in plain values, without any id, so that it can be shown and stored."""
        facts = {} if self.adapter is None else self.adapter.facts
        return {
            "method": self.method,
            "settings": self.settings,
            "aim": self.aim,
            "lam": self.lam,
            "assurance": self.assurance,
            "weights": self.weights,
            "seconds": self.seconds,
            "parameters": self.parameters,
            "requests": len(self.history) or int(facts.get("requests", 0)),
            "counts": self.counts,
            "notes": [note.to_dict() for note in self.notes],
            "seed": self.seed,
        }

    def output(self) -> Any:
        """Run the model on the remaining graph, in evaluation mode.

        Returns:
            What the model's ``forward`` returns.

        Raises:
            ModelError: If there is no graph, or the method has no torch model.
        """
        if self.data is None:
            raise ModelError(_NO_GRAPH, _PASS_GRAPH)
        model = evaluation_view(self._require_model())
        with evaluating(model):
            output = self.forward(model, self.data)
        if self.task is not None:
            self.task.check_output(output, self.graph)
        return output

    def predict(self, elements: Any) -> Tensor:
        """Ask the model about elements, on the remaining graph.

        Args:
            elements: Edges ``[2, k]`` of a link model, ids of nodes or graphs otherwise. On a ``HeteroData`` they are
                named by type: ``{("author", "writes", "paper"): pairs}``, ``{"paper": ids}``.

        Returns:
            For links one logit per edge: ``predict(pairs).sigmoid()`` gives probabilities. For nodes and graphs one row of
            class probabilities each.

        Raises:
            ModelError: If no task or no graph is known.
        """
        if self._reads_rows and self.served is not None:
            return self.served.predict(self._require_task(), elements)
        if isinstance(self.graph, HeteroGraph):
            elements = self._require_task().place(elements, self.graph)
        return self.answers()(elements)

    @property
    def _reads_rows(self) -> bool:
        """Whether elements are answered by rows, without the model."""
        is_local = self.served is not None and isinstance(vars(self)["model"], Later)
        return is_local and not isinstance(self.original, HeteroData)

    def answers(self) -> Predict:
        """Run the model once and return a function that answers any number of questions about elements."""
        if self.predictor is not None:
            return self.predictor
        if self._reads_rows and self.served is not None:
            return partial(self.served.predict, self._require_task())
        task, model, output = self._require_task(), evaluation_view(self._require_model()), self.output()

        def predict(elements: Any) -> Tensor:
            with evaluating(model):
                return task.predict(model, output, elements)

        return predict

    def evaluate(self) -> dict[str, float]:
        """Score the model on the task's test data and, for links, rank deleted edges below remaining ones.

        A ruined model can also reach a high ``deleted_auroc``. Always read it together with the test score.

        Returns:
            Scores by name: ``test_*`` and ``deleted_*``.

        Raises:
            ModelError: If no task or no graph is known.
        """
        task = self._require_task()
        if self.data is None:
            raise ModelError(_NO_GRAPH, _PASS_GRAPH)
        return evidence_by(self.answers(), task, self.deletion, self.graph, seed=self.seed)

    def _require_model(self) -> nn.Module:
        if self.model is None:
            raise ModelError(f"method '{self.method}' has no torch model", "ask it through predict(elements)")
        return self.model

    def _require_task(self) -> Task:
        if self.task is None:
            raise ModelError(
                "no task is known, so there is nothing to predict", "pass task= to the Unlearner or to load"
            )
        return self.task

    def save(self, path: str | PathLike[str]) -> None:
        """Write the adapter: a config, its tensors and a card. The base model and the deleted elements are not in it.

        Args:
            path: The folder to write.

        Raises:
            AdapterError: If the method makes no adapter, or the graph is not known.
        """
        if self.adapter is None and self.model is None:
            raise AdapterError(
                f"method '{self.method}' makes no adapter and answers by models of its own, which are not written",
                "keep the requests with unlearner.save_state(…) and delete again from there",
            )
        if self.adapter is None:
            raise AdapterError(
                f"method '{self.method}' makes no adapter",
                "keep the whole model with torch.save(unlearned.model.state_dict(), …)",
            )
        graph = self.graph
        if graph is None:
            raise AdapterError(_NO_GRAPH, "load it with data= before saving it again")
        facts = {
            **self.adapter.facts,
            **self.summary(),
            "details": self.details,
            "num_nodes": graph.num_nodes,
            "remaining_fingerprint": fingerprint(graph),
            "remaining_attributes": attributes(graph),
        }
        if self.original is not None:
            facts["original_fingerprint"] = fingerprint(self.original_graph)
        Adapter(self.adapter.model, facts).save(path)

    def export(
        self,
        path: str | PathLike[str],
        format: Format = "embeddings",
        *,
        ids: IdMap | None = None,
        since: str | PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """Write what a serving system loads: the rows of all nodes that remain, or the model as a program.

        ``gnndelete.export`` has the formats. Export the model before the first deletion, too: ``changes.csv`` then lists the
        rows that the deletion changed or removed.

        Args:
            path: The folder. An earlier export in it is replaced.
            format: ``"embeddings"`` (Parquet), ``"npy"``, ``"onnx"`` or ``"torch.export"``.
            ids: The names of the nodes; numbers by default.
            since: The folder of an earlier export to list changes against; by default the one that is replaced.

        Returns:
            What was written.

        Raises:
            ModelError: If there is no graph or no torch model, or it is not known which nodes were deleted.
        """
        if self.data is None:
            raise ModelError(_NO_GRAPH, _PASS_GRAPH)
        if not self.history and self.counts.get("nodes"):
            raise ModelError(
                f"an adapter does not name the {self.counts['nodes']} deleted nodes, whose rows must not be exported",
                "export where the deletion was made, by unlearned.export or gnndelete export RUN",
            )
        facts = {name: getattr(self, name) for name in ("method", "assurance", "weights", "counts")}
        return export(
            self._require_model(),
            self.data,
            path,
            format,
            task=self.task,
            forward=self.forward,
            ids=ids,
            since=since,
            gone=self.deletion.nodes,
            facts={**facts, "requests": len(self.history)},
        )

    def __repr__(self) -> str:
        model = None if self.model is None else type(self.model).__name__
        made = f"method={self.method!r}, assurance={self.assurance!r}, parameters={self.parameters}"
        data = "on disk" if isinstance(self.original, DiskGraph) else self.data
        return f"Unlearned(model={model}, data={data}, counts={self.counts}, {made})"

    def __str__(self) -> str:
        counts = ", ".join(in_words(self.counts))
        lines = [
            f"{self.method}: {counts or 'nothing'} forgotten in {self.seconds:.3g} s, {self.parameters:,} parameters",
            f"assurance: {self.assurance}, {self.weights} weights. {self.assurance_meaning}",
        ]
        if self.aim is not None:
            lines.append(f"aim: {self.aim}: {self.aim_meaning}.")
        # The aim already says what calibration found.
        lines += [f"note: {note.text}" for note in self.notes if note.code != "calibration"]
        return "\n".join(lines)


for _name in ("model", "data", "adapter"):  # a result that was solved locally makes these when they are asked for
    setattr(Unlearned, _name, MadeWhenAsked(_name))


def with_operators(model: nn.Module, operators: Solved) -> nn.Module:
    """A copy of a model with operators behind its layers."""
    copied = working_copy(model)
    for site, operator in operators:
        attach(copied, site, operator)
    return copied


def load(
    path: str | PathLike[str],
    model: nn.Module,
    data: Data | HeteroData | None = None,
    *,
    task: Task | str | None = None,
    forward: Forward | None = None,
    operator: Any = None,
) -> Unlearned:
    """Put an adapter that `Unlearned.save` wrote onto a copy of its base model.

    Args:
        path: The folder of the adapter.
        model: The base model that it was made for.
        data: The remaining graph. With it the result can predict at once.
        task: What the model was trained for, as a task or its name.
        forward: ``forward(model, data)`` runs the model, where the default call does not fit.
        operator: The factory of operators of your own, ``width -> nn.Module``.

    Returns:
        The result, as the deletion gave it.

    Raises:
        AdapterError: If the files are damaged, or belong to another model or graph.
    """
    config = read_config(path)
    graph = collate(data)
    if graph is not None:
        _check_remaining(path, config, graph)
    adapter = restore(path, config, working_copy(model), operator)
    return Unlearned.from_summary(
        config,
        model=adapter.model,
        data=as_user_graph(graph),
        adapter=adapter,
        details=config.get("details", {}),
        task=None if task is None else by_name("task", task, tasks).on(graph),
        forward=resolve_forward(forward),
        base=model,
    )


def _check_remaining(path: str | PathLike[str], config: Mapping[str, Any], graph: Data) -> None:
    """Refuse a graph other than the one that remained when the adapter was made."""
    check_graph(graph)
    remaining, current = config.get("remaining_fingerprint"), fingerprint(graph)
    remedy = "pass the remaining graph that it was made on, or delete again on this one"
    if current == config.get("original_fingerprint") != remaining:
        raise AdapterError(
            f"data is the graph before the deletion, and the adapter at '{path}' belongs to what remained",
            "pass unlearned.data",
        )
    if current != remaining:
        raise AdapterError(
            f"the adapter at '{path}' was made on another graph ({str(remaining)[:12]}, got {current[:12]})", remedy
        )
    different = changed(config.get("remaining_attributes") or {}, attributes(graph))
    if different:
        raise AdapterError(f"the adapter at '{path}' was made on a graph with other values of {different}", remedy)


def evidence(
    model: nn.Module,
    data: Data,
    task: Task,
    deletion: Deletion,
    remaining: Data,
    *,
    seed: int = 0,
    forward: Forward | None = None,
) -> dict[str, float]:
    """`evidence_by` of a model that runs on ``data``: the original graph before a deletion, the remaining one after."""
    with evaluating(model):
        output = resolve_forward(forward)(model, data)
        return evidence_by(lambda elements: task.predict(model, output, elements), task, deletion, remaining, seed=seed)


def evidence_by(
    predict: Predict, task: Task, deletion: Deletion, remaining: Data, *, seed: int = 0
) -> dict[str, float]:
    """Test scores of a model, and how deleted elements rank below remaining ones (the paper's E_t and E_d).

    Scores are taken on the test elements that remain, so that they can be compared before and after. What cannot be
    measured is left out.

    Args:
        predict: Any function from elements to predictions.
        task: What the model was trained for.
        deletion: What was deleted.
        remaining: The graph without it.
        seed: The seed of the sample of remaining elements.

    Returns:
        ``test_*`` and, where the task can rank deleted elements, ``deleted_*``; of corrected labels ``corrected_accuracy``.
    """
    task = task.without(deletion.nodes)
    ranks = task.rank_deleted(predict, deletion, remaining, seed=seed)
    try:
        tests = task.evaluate_by(predict, remaining)
    except GraphError:  # There is no test data, or nothing that is left has a label.
        tests = {}
    new = deletion.new_labels
    right = {} if not new.size(1) or task.pairwise else {"corrected_accuracy": accuracy(predict(new[0]), new[1])}
    return {f"test_{k}": v for k, v in tests.items()} | {f"deleted_{k}": v for k, v in ranks.items()} | right


def accuracy(predicted: Tensor, classes: Tensor) -> float:
    """The share of predictions that name the class."""
    return float((predicted.argmax(dim=-1).cpu() == classes.cpu()).double().mean())


def evaluate(
    model: nn.Module, data: Data | HeteroData, task: Task | str, forward: Forward | None = None
) -> dict[str, float]:
    """Score a model on the task's test data, in evaluation mode.

    Args:
        model: The model.
        data: The graph to run it on.
        task: What it was trained for, as a task or its name.
        forward: ``forward(model, data)`` runs the model, where the default call does not fit.

    Returns:
        Scores by name.

    Raises:
        GraphError: If there is no test data.

    >>> import gnndelete as gd
    >>> data = gd.datasets.split_nodes(gd.datasets.load("digits"))
    >>> sorted(evaluate(gd.models.GCN(64), data, "node"))
    ['accuracy', 'f1']
    """
    data = collate(data)
    if not isinstance(data, Data):
        check_graph(data)
    known: Task = by_name("task", task, tasks).on(data)
    with evaluating(model):
        return known.evaluate(model, resolve_forward(forward)(model, data), data)
