"""What an audit is about: one deletion, the models that are asked about it, and the graphs they answer on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.assurance import TRAINED_WITHOUT
from gnndelete.auditing.edges import edges_once
from gnndelete.errors import AdapterError, DeletionError, GraphError, ModelError, SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.hetero import HeteroGraph, as_typed_graph, as_user_graph, node_stores
from gnndelete.graph.remaining import cut
from gnndelete.graph.validation import edge_table
from gnndelete.methods.base import Fit
from gnndelete.nn.adapter import model_fingerprint
from gnndelete.nn.forward import Forward, evaluating
from gnndelete.result import Unlearned
from gnndelete.tasks import LinkPrediction, Task
from gnndelete.tasks.base import Predict
from gnndelete.tasks.supervision import positives


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
        with evaluating(model):
            output = forward(model, graph)

        def predict(elements: Any) -> Tensor:
            with evaluating(model):
                return task.predict(model, output, elements)

        return cls(name, predict, graph, model, output)


@dataclass(frozen=True)
class Case:
    """One deletion under audit. ``task`` no longer names deleted nodes; ``subjects`` answer on the graph they are served on."""

    unlearned: Unlearned
    reference: Unlearned | None
    deletion: Deletion
    original: Data
    remaining: Data
    task: Task
    base: nn.Module
    subjects: dict[
        str, Subject
    ]  # "before" on `original`, "after" and (where given) "reference" on what they are served on
    forward: Forward
    fit: Fit | None = None
    build: Callable[[], nn.Module] | None = None
    seed: int = 0
    progress: bool = False

    @property
    def after(self) -> Subject:
        return self.subjects["after"]

    @property
    def asked_nodes(self) -> Tensor:
        """Nodes of which a classifier is to forget something: themselves, their features or their label; each once."""
        return torch.cat([self.deletion.nodes, self.deletion.features[0], self.deletion.labels]).unique()

    @property
    def asked_edges(self) -> Tensor:
        """The deleted edges that the task has a score for: of a HeteroData, those of the edge type it is about."""
        return self.task.scored(self.deletion.edges) if isinstance(self.task, LinkPrediction) else self.deletion.edges

    @property
    def blank(self) -> bool:
        """Whether deleted elements have nothing left in the graph as served, so that they are asked about presented again.

        Of a deleted node or graph neither features nor edges are left there, and a node without its features is no longer
        what was learned. A deleted edge still has its two ends.
        """
        deletion = self.deletion
        if self.task.name == "graph":
            return bool(deletion.graphs.numel())
        gone = bool(deletion.nodes.numel() or deletion.features.size(1))
        return gone and (self.task.name == "node" or not self.asked_edges.size(1))

    def learned_edges(self, data: Data) -> Tensor:
        """The edges that a link model learns from."""
        return self.task.learned(data) if isinstance(self.task, LinkPrediction) else positives(data)

    def generator(self, offset: int = 0) -> torch.Generator:
        """Every random choice of the audit comes from its seed."""
        return torch.Generator().manual_seed(self.seed + offset)

    def some_remaining(self, count: int, offset: int = 0) -> Tensor:
        """A sample of the edges that are left, each once: of an undirected edge one direction alone."""
        edges = edges_once(self.task, self.remaining)
        pick = torch.randperm(edges.size(1), generator=self.generator(offset))[:count]
        return edges[:, pick.to(edges.device)]


def open_case(
    unlearned: Unlearned,
    reference: Unlearned | nn.Module | None,
    deletion: Deletion | None,
    original: Data | None,
    seed: int | None,
    progress: bool,
) -> Case:
    """Check what is to be audited, and run every model once on the graph it is served on."""
    if not isinstance(unlearned, Unlearned):
        raise SettingError(
            f"audit takes what delete() or gnndelete.load() gave back (got '{type(unlearned).__name__}'); pass that result"
        )
    data, base = unlearned.graph, unlearned.base
    if unlearned.task is None:
        raise ModelError("no task is known, so nothing can be measured; pass task= to the Unlearner or to load")
    if data is None or base is None:
        raise ModelError("the adapter was loaded without a graph; pass data= the remaining graph to gnndelete.load")
    original = unlearned.original_graph if original is None else as_typed_graph(original)
    gone = deletion if deletion is not None else unlearned.deletion
    if original is None or not len(gone):
        raise DeletionError(
            "the result does not say what was deleted, as an adapter from disk does not; pass deletion=… and original=…, "
            "the graph before it"
        )
    _check_adapter(unlearned, data)
    table = edge_table(original)
    gone = gone.check(original, table)
    remaining = cut(gone, original, table)
    if fingerprint(data) not in (fingerprint(remaining), fingerprint(original)):
        raise GraphError(
            f"the graph of the result ({fingerprint(data)[:12]}) is neither what this deletion leaves of the original graph "
            f"({fingerprint(remaining)[:12]}) nor that graph itself; give the deletion and the graph it was made for"
        )
    task = unlearned.task.without(gone.nodes)
    other = _reference(reference, unlearned, gone, original, remaining)
    case = Case(
        unlearned=unlearned,
        reference=other,
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
    for name, result in (("after", unlearned), ("reference", other)):
        if result is not None:
            subjects[name] = _subject(case, name, result)
    return replace(case, subjects=subjects)


def still_there(case: Case) -> int:
    """How many deleted elements the graph that the model is served on still holds."""
    graph, deletion = case.after.graph, case.deletion
    if graph is case.remaining:
        return 0
    labels = _other_rows(graph, case.remaining, "y", deletion.labels)  # labels are no part of a graph's fingerprint
    if fingerprint(graph) == fingerprint(case.remaining):
        return labels
    table = edge_table(graph)
    there = int(table.contains(deletion.edges.to(table.keys.device)).sum()) if deletion.edges.size(1) else 0
    features = _other_rows(graph, case.remaining, "x", deletion.feature_nodes)
    return there + deletion.nodes.numel() + features + labels


def _other_rows(graph: Data, remaining: Data, name: str, nodes: Tensor) -> int:
    """How many of the nodes have another row here than in what remains."""
    if isinstance(graph, HeteroGraph) and isinstance(remaining, HeteroGraph):
        return sum(
            _other_rows(store, remaining.hetero[kind], name, nodes[mask] - start)
            for kind, store, mask, start in node_stores(graph, nodes)
        )
    if not nodes.numel() or graph.get(name) is None:
        return 0
    rows = [data[name].index_select(0, nodes.to(data[name].device)).cpu() for data in (graph, remaining)]
    a, b = (part.to_dense() if part.layout != torch.strided else part for part in rows)
    same = (a == b) | (a.isnan() & b.isnan() if a.is_floating_point() else torch.zeros_like(a, dtype=torch.bool))
    return int((~same.flatten(1).all(dim=1) if same.dim() > 1 else ~same).sum())


def _check_adapter(unlearned: Unlearned, data: Data) -> None:
    if unlearned.adapter is None:
        return
    for place, operator in unlearned.adapter.operators:
        where = f"the operator behind '{place.layer or 'the model'}'"
        count = len(data.types.nodes.get(str(place.key), ())) if isinstance(data, HeteroGraph) else data.num_nodes
        if operator.num_rows != count:
            raise AdapterError(
                f"{where} was made for {operator.num_rows} nodes and the graph has {count}: the adapter belongs to "
                "another graph; audit it on the graph it was made for"
            )
        if not all(bool(torch.isfinite(value).all()) for value in operator.parameters()):
            raise AdapterError(
                f"{where} holds NaN or infinite values: the adapter is damaged; restore it, or delete again"
            )
    saved = unlearned.adapter.facts.get("remaining_fingerprint")
    if saved is not None and saved != fingerprint(data):
        raise AdapterError(
            f"the adapter was made on another graph ({saved[:12]}, got {fingerprint(data)[:12]}); audit it on its own"
        )


def _reference(
    reference: Unlearned | nn.Module | None, unlearned: Unlearned, gone: Deletion, original: Data, remaining: Data
) -> Unlearned | None:
    if reference is None:
        return None
    given = reference.model if isinstance(reference, Unlearned) else reference
    if reference is unlearned or (given is not None and given is unlearned.model):
        raise SettingError(
            "'reference' is the very result under audit, which differs from itself in nothing; pass the same deletion by "
            "Retrain, or leave the reference out"
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
            seconds=0.0,
            parameters=0,
            notes=(),
            details={},
            predictor=None,
            peak_mb=None,
        )
    if not isinstance(reference, Unlearned):
        raise SettingError(
            f"'reference' must be the same deletion by Retrain, or a model trained without the elements "
            f"(got '{type(reference).__name__}')"
        )
    if reference.history and reference.deletion.check(original) != gone:
        raise DeletionError(
            f"the reference has forgotten something else ({reference.deletion.counts}, here {gone.counts}); delete the same there"
        )
    if reference.graph is None or fingerprint(reference.graph) != fingerprint(remaining):
        raise GraphError("the reference answers on another graph than what this deletion leaves; delete the same there")
    if reference.assurance not in TRAINED_WITHOUT:
        raise SettingError(
            f"'reference' must stand for training without the deleted elements, level {' or '.join(map(repr, TRAINED_WITHOUT))} "
            f"(got '{reference.assurance}', by method '{reference.method}'); pass the same deletion by Retrain"
        )
    return reference


def _refuse_base(reference: nn.Module, base: nn.Module | None) -> None:
    """A plain model says nothing of how it was trained; but the weights before the deletion have seen what was deleted."""
    if base is None or next(base.parameters(), None) is None:
        return
    if reference is base or model_fingerprint(reference) == model_fingerprint(base):
        raise SettingError(
            f"'reference' (a '{type(reference).__name__}') has the weights of the model before the deletion, which was trained "
            "with the deleted elements; pass the same deletion by Retrain, or a model trained without them"
        )


def _subject(case: Case, name: str, result: Unlearned) -> Subject:
    assert result.graph is not None
    if result.model is None or result.predictor is not None:
        output = result.output() if result.model is not None else None
        return Subject(name, result.predict, result.graph, result.model, output)
    return Subject.of_model(name, result.model, result.graph, case.task, case.forward)
