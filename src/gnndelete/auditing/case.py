"""What an audit is about: one deletion, the models that are asked about it, and the graphs they answer on.

`open_case` checks that everything belongs together and runs every model once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import AdapterError, DeletionError, GraphError, ModelError, SettingError
from gnndelete.graph.batch import as_user_graph, collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import cut
from gnndelete.graph.validation import edge_table
from gnndelete.methods.base import Fit
from gnndelete.nn.adapter import model_fingerprint
from gnndelete.nn.forward import Forward, evaluating
from gnndelete.nn.layers import evaluation_view
from gnndelete.notes import TRAINED_WITHOUT
from gnndelete.result import Unlearned
from gnndelete.tasks import Task
from gnndelete.tasks.base import Predict

#: The same deletion by retraining, or a model that was trained without the elements.
Reference = Unlearned | nn.Module


@dataclass(frozen=True)
class Subject:
    """One model that answers on one graph. ``output`` is what its forward pass gave; None where it keeps no model."""

    name: str  # "before", "after" or "reference"
    predict: Predict  # link scores (logits) of [2, k] edges, class probabilities of nodes
    graph: Data
    model: nn.Module | None = None
    output: Any = None

    @classmethod
    def of_model(cls, name: str, model: nn.Module, graph: Data, task: Task, forward: Forward) -> Subject:
        """Run the model once; every question after that only asks the task's decoder."""
        view = evaluation_view(model)
        with evaluating(view):
            output = forward(view, graph)

        def predict(elements: Any) -> Tensor:
            with evaluating(view):
                return task.predict(view, output, elements)

        return cls(name, predict, graph, model, output)


@dataclass(frozen=True)
class Shadow:
    """A model that the auditor trained to learn how such a model answers about what it has and has not trained on.

    ``present`` are elements it was trained on, ``absent`` elements it was not. Where none could be trained ``subject`` is
    None and ``reason`` says why.
    """

    subject: Subject | None  # answers on the graph the shadow was trained on
    present: Tensor
    absent: Tensor
    what: str = ""
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Case:
    """One deletion under audit. Every model answers on the graph that it is served on.

    Args:
        unlearned: The result under audit.
        reference: The same deletion by retraining, if there is one.
        deletion: What was deleted.
        original: The graph before the deletion.
        remaining: The graph after it.
        task: The task, without test data that names deleted nodes.
        base: The model before the deletion.
        subjects: ``"before"``, ``"after"`` and, where there is a reference, ``"reference"``.
        forward: How a model is called on a graph.
        fit: The user's training function.
        build: Makes an untrained model.
        seed: Of every random choice.
        progress: Whether to show progress.
        shadow: The shadow model of the attacks; None where the attacks are left out.
        more_references: Further references, ``"reference 2"`` and so on, which show the spread of trainings.
    """

    unlearned: Unlearned
    reference: Unlearned | None
    deletion: Deletion
    original: Data
    remaining: Data
    task: Task
    base: nn.Module
    subjects: dict[str, Subject]
    forward: Forward
    fit: Fit | None = None
    build: Callable[[], nn.Module] | None = None
    seed: int = 0
    progress: bool = False
    shadow: Shadow | None = None
    more_references: tuple[Subject, ...] = ()

    @property
    def references(self) -> dict[str, Subject]:
        """All references by name, ``"reference"`` first; empty where there is none."""
        first = {"reference": self.subjects["reference"]} if "reference" in self.subjects else {}
        return first | {subject.name: subject for subject in self.more_references}

    @property
    def after(self) -> Subject:
        """The model under audit."""
        return self.subjects["after"]

    @property
    def deleted_edges(self) -> Tensor:
        """The deleted edges that the task scores; none for a task about nodes or graphs."""
        return self.task.elements(self.deletion, self.original) if self.task.pairwise else self.deletion.edges[:, :0]

    def generator(self, offset: int = 0) -> torch.Generator:
        """A generator from the audit's seed. Each use has its own offset, so that no result depends on the order of measures."""
        return torch.Generator().manual_seed(self.seed + offset)

    def sample(self, elements: Tensor, count: int, offset: int) -> Tensor:
        """At most ``count`` elements in random order, so that positions in the report identify nobody."""
        pick = torch.randperm(elements.size(-1), generator=self.generator(offset))[:count]
        return elements[..., pick.to(elements.device)]


def open_case(
    unlearned: Unlearned,
    reference: Reference | Sequence[Reference] | None = None,
    deletion: Deletion | None = None,
    original: Data | None = None,
    seed: int | None = None,
    progress: bool = False,
) -> Case:
    """Check what is to be audited, and run every model once on the graph it is served on."""
    if not isinstance(unlearned, Unlearned):
        raise SettingError(
            f"audit takes what delete() or gnndelete.load() returned (got '{type(unlearned).__name__}')",
            "pass that result",
        )
    data, base = unlearned.graph, unlearned.base
    if unlearned.task is None:
        raise ModelError("no task is known, so nothing can be measured", "pass task= to the Unlearner or to load")
    if data is None or base is None:
        raise ModelError("the adapter was loaded without a graph", "pass data= the remaining graph to gnndelete.load")
    original = unlearned.original_graph if original is None else collate(original)
    gone = deletion if deletion is not None else unlearned.deletion
    if original is None or not len(gone):
        raise DeletionError(
            "the result does not say what was deleted, as an adapter from disk does not",
            "pass deletion=… and original=…, the graph before it",
        )
    _check_adapter(unlearned, data)
    table = edge_table(original)
    gone = gone.check(original, table)
    remaining = cut(gone, original, table)
    if fingerprint(data) not in (fingerprint(remaining), fingerprint(original)):
        raise GraphError(
            f"the graph of the result ({fingerprint(data)[:12]}) is neither what this deletion leaves of the original graph "
            f"({fingerprint(remaining)[:12]}) nor that graph itself",
            "give the deletion and the graph it was made for",
        )
    task = unlearned.task.without(gone.nodes)
    given: list[Reference] = []
    if isinstance(reference, Sequence):
        given = list(reference)
    elif reference is not None:
        given = [reference]
    others = [_reference(one, unlearned, gone, original, remaining) for one in given]
    _refuse_repeats(others)
    case = Case(
        unlearned=unlearned,
        reference=others[0] if others else None,
        deletion=gone,
        original=original,
        remaining=remaining,
        task=task,
        base=base,
        subjects={},
        forward=unlearned.forward,
        fit=unlearned.fit,
        build=unlearned.build,
        seed=unlearned.seed if seed is None else seed,
        progress=progress,
    )
    subjects = {"before": Subject.of_model("before", base, original, task, case.forward)}
    for name, result in (("after", unlearned), *(("reference", other) for other in others[:1])):
        subjects[name] = _subject(case, name, result)
    more = tuple(_subject(case, f"reference {place}", other) for place, other in enumerate(others[1:], start=2))
    return replace(case, subjects=subjects, more_references=more)


def _check_adapter(unlearned: Unlearned, data: Data) -> None:
    if unlearned.adapter is None:
        return
    for site, operator in unlearned.adapter.operators:
        where = f"the operator behind '{site.layer or 'the model'}'"
        if site.table:  # of some nodes, or of all
            count = min(operator.num_rows, int(data.num_nodes or 0))
        else:
            count = len(data.types.nodes.get(str(site.key), ())) if isinstance(data, HeteroGraph) else data.num_nodes
        if operator.num_rows != count:
            raise AdapterError(
                f"{where} was made for {operator.num_rows} nodes and the graph has {count}: the adapter belongs to another graph",
                "audit it on the graph it was made for",
            )
        if not all(bool(torch.isfinite(value).all()) for value in operator.parameters()):
            raise AdapterError(
                f"{where} holds NaN or infinite values: the adapter is damaged", "restore it, or delete again"
            )
    saved = unlearned.adapter.facts.get("remaining_fingerprint")
    if saved is not None and saved != fingerprint(data):
        raise AdapterError(
            f"the adapter was made on another graph ({saved[:12]}, got {fingerprint(data)[:12]})",
            "audit it on the graph it was made for",
        )


def _refuse_repeats(references: list[Unlearned]) -> None:
    """The same training twice would make the spread of trainings look small."""
    found = [model_fingerprint(reference.model) for reference in references if reference.model is not None]
    if len(set(found)) < len(found):
        raise SettingError(
            "two of the references have the same weights, so they are one training",
            "train each with a seed of its own, or pass one",
        )


def _reference(
    reference: Reference, unlearned: Unlearned, gone: Deletion, original: Data, remaining: Data
) -> Unlearned:
    model = reference.model if isinstance(reference, Unlearned) else reference
    if reference is unlearned or (model is not None and model is unlearned.model):
        raise SettingError(
            "'reference' is the very result under audit",
            "pass the same deletion by Retrain, or leave the reference out",
        )
    if isinstance(reference, nn.Module):
        _refuse_base(reference, unlearned.base)
        return replace(
            unlearned,
            model=reference,
            data=as_user_graph(remaining),
            adapter=None,
            method="given model",
            settings={},
            assurance="retrained",
            weights="new",
            seconds=0.0,
            parameters=0,
            notes=(),
            details={},
            predictor=None,
        )
    if not isinstance(reference, Unlearned):
        raise SettingError(
            f"'reference' must be the same deletion by Retrain, or a model trained without the elements "
            f"(got '{type(reference).__name__}')",
            "pass one of these, a list of them, or leave it out",
        )
    if reference.history and reference.deletion.check(original) != gone:
        raise DeletionError(
            f"the reference has forgotten something else ({reference.deletion.counts}, here {gone.counts})",
            "delete the same there",
        )
    if reference.graph is None or fingerprint(reference.graph) != fingerprint(remaining):
        raise GraphError(
            "the reference answers on another graph than what this deletion leaves", "delete the same there"
        )
    if reference.assurance not in TRAINED_WITHOUT:
        raise SettingError(
            f"'reference' must stand for training without the deleted elements, level {' or '.join(map(repr, TRAINED_WITHOUT))} "
            f"(got '{reference.assurance}', by method '{reference.method}')",
            "pass the same deletion by Retrain",
        )
    return reference


def _refuse_base(reference: nn.Module, base: nn.Module | None) -> None:
    """A plain model says nothing of how it was trained; but the weights before the deletion have seen what was deleted."""
    if base is None or next(base.parameters(), None) is None:
        return
    if reference is base or model_fingerprint(reference) == model_fingerprint(base):
        raise SettingError(
            f"'reference' (a '{type(reference).__name__}') has the weights of the model before the deletion, which was trained "
            "with the deleted elements",
            "pass the same deletion by Retrain, or a model trained without them",
        )


def _subject(case: Case, name: str, result: Unlearned) -> Subject:
    assert result.graph is not None
    if result.model is None or result.predictor is not None:
        output = result.output() if result.model is not None else None
        return Subject(name, result.predict, result.graph, result.model, output)
    return Subject.of_model(name, result.model, result.graph, case.task, case.forward)
