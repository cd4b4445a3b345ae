"""Node classification: cross-entropy on the training nodes, accuracy on the others."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndelete.errors import DeletionError, GraphError, ModelError, NotYetError, SettingError, some
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import Neighborhood, ends_of
from gnndelete.graph.hetero import HeteroGraph, one_type
from gnndelete.graph.parsing import ids_in_order
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.metrics.unseen_test import degrees
from gnndelete.notes import Note
from gnndelete.tasks.base import (
    ONLY_DATA,
    Classification,
    Near,
    Predict,
    Terms,
    class_probabilities,
    per_edge,
    representation,
    shuffled,
    softmax_note,
)


class NodeClassification(Classification):
    """Which class is a node?

    ``data.y`` holds the classes (-1: unlabelled); ``train_mask``, ``val_mask`` and ``test_mask`` mark the parts. Without a
    ``train_mask`` all labelled nodes outside the other two are trained on. A model returns ``[num_nodes, classes]`` logits.
    It is validated by accuracy and tested by accuracy and macro-averaged F1.

    Args:
        node_type: On a ``HeteroData``, the node type that is classified; by default the only one with ``y``.

    >>> from gnndelete.datasets import load, split_nodes
    >>> data = split_nodes(load("digits"))
    >>> perfect = torch.nn.functional.one_hot(data.y).float()
    >>> NodeClassification().evaluate(torch.nn.Identity(), perfect, data)
    {'accuracy': 1.0, 'f1': 1.0}
    """

    name: ClassVar[str] = "node"
    synonyms: ClassVar[set[str]] = {"node"}
    description: ClassVar[str] = "node classification"
    noun: ClassVar[str] = "node"
    near_title: ClassVar[str] = "within a hop of the deletion"
    on_nodes: ClassVar[bool] = True
    _no_score: ClassVar[str] = (
        "a node classifier has no score for an edge, so deleted edges cannot be compared with unseen ones; the trend attack "
        "looks for what they leave behind"
    )
    node_type: str | None = None  # a subclass of the user may not call __init__
    _rows: range | None = None  # the ids of that type across all types of the graph

    def __init__(self, node_type: str | None = None) -> None:
        self.node_type = node_type

    def on(self, data: Any) -> NodeClassification:
        if not isinstance(data, HeteroGraph):
            if data is not None and self.node_type is not None:
                raise SettingError(
                    f"node_type={self.node_type!r} is given, and the graph has no node types; leave it out"
                )
            return self
        labelled = [name for name in data.types.nodes if "y" in data.hetero[name]]
        trained = [name for name in labelled if "train_mask" in data.hetero[name]]
        found = [self.node_type] if self.node_type is not None else trained if len(trained) == 1 else labelled
        result = copy.copy(self)
        result.node_type = one_type(found, "node types", "node_type=", data.types.nodes)
        result._rows = data.types.rows(str(result.node_type))
        return result

    def place(self, elements: Any, data: HeteroGraph) -> Tensor:
        if isinstance(elements, Mapping):
            if list(elements) != [self.node_type]:
                raise SettingError(f"the task is about {self.node_type!r} nodes (got {some(map(repr, elements))})")
            elements = elements[self.node_type]
        rows = data.types.rows(str(self.node_type))
        return ids_in_order(elements, "node", len(rows)) + rows.start

    def refuse_nothing_left(self, remaining: HeteroGraph, nodes: Tensor) -> None:
        rows = remaining.types.rows(str(self.node_type))
        if int(((nodes >= rows.start) & (nodes < rows.stop)).sum()) == len(rows):
            raise DeletionError(
                f"the deletion names all {len(rows)} nodes of {self.node_type!r}, which the task is about; a model of nothing "
                "cannot be kept: retire it, or give another task"
            )

    def _labelled(self, data: Any) -> Any:
        """What holds labels and masks: the graph itself, or its nodes of one type."""
        return data.hetero[self.node_type] if isinstance(data, HeteroGraph) else data

    def labels(self, data: Any) -> Tensor:
        return self._across(_labels(self._labelled(data)), data, -1)

    def _mask(self, data: Any, part: str) -> Tensor | None:
        mask = _mask(self._labelled(data), f"{part}_mask")
        return None if mask is None else self._across(mask, data, False)

    def _within(self, values: Tensor, data: Any) -> Tensor:
        """The entries of the nodes of the task's type."""
        if not isinstance(data, HeteroGraph):
            return values
        rows = data.types.rows(str(self.node_type))
        return values[rows.start : rows.stop]

    def _across(self, values: Tensor, data: Any, rest: Any) -> Tensor:
        if not isinstance(data, HeteroGraph):
            return values
        rows = data.types.rows(str(self.node_type))
        result = torch.full((data.num_nodes,), rest, dtype=values.dtype, device=values.device)
        result[rows.start : rows.stop] = values
        return result

    def check(self, data: Any) -> None:
        self._check_parts(data)

    def check_output(self, output: Any, data: Any) -> None:
        if isinstance(data, HeteroGraph):
            return  # a single tensor is about the type of the task
        found = per_edge(output, [int(data.num_nodes)], data)
        if found is not None:
            raise _no_logits(found, data)

    def loss(self, model: nn.Module, output: Any, data: Any, generator: torch.Generator | None = None) -> Tensor:
        part = self._within(self.part(data, "train"), data)
        return F.cross_entropy(self.logits(output, data)[part], self._within(self.labels(data), data)[part])

    def batches(
        self, data: Any, batch_size: int | None, generator: torch.Generator, near: Near | None = None
    ) -> Iterable[Any]:
        # each batch has the neighbourhood of its training nodes; the other nodes in it have no loss
        return (data,) if batch_size is None or near is None else self._batches(data, batch_size, generator, near)

    def _batches(self, data: Any, batch_size: int, generator: torch.Generator, near: Near) -> Iterator[Any]:
        nodes = self.part(data, "train").nonzero().flatten()
        for chosen in shuffled(nodes.numel(), batch_size, generator):
            batch = near(nodes[chosen.to(nodes.device)])
            batch.train_mask = torch.arange(batch.num_nodes, device=nodes.device) < chosen.numel()
            yield batch

    def local(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        return torch.unique(elements, return_inverse=True)

    def validate(self, model: nn.Module, output: Any, data: Any) -> float:
        chosen = self._within(self._require(data, "val"), data)
        predicted = self.logits(output, data)[chosen].argmax(dim=-1)
        return float((predicted == self._within(self.labels(data), data)[chosen]).double().mean())

    def validate_by(self, predict: Predict, data: Any) -> float:
        return self._scores(predict, data, "val")["accuracy"]

    def logits(self, output: Any, data: Any) -> Tensor:
        return _logits(output, self._labelled(data), self.node_type)

    def predict(self, model: nn.Module, output: Any, elements: Any) -> Tensor:
        logits = representation(output, self.node_type)
        start = 0 if self._rows is None else self._rows.start
        nodes = ids_in_order(elements, "node", start + logits.size(0)) - start
        nodes = ids_in_order(nodes, "node", logits.size(0)).to(logits.device)
        return class_probabilities(logits, nodes)

    def remarks(self, model: nn.Module, output: Any) -> tuple[Note, ...]:
        return softmax_note(output, self.node_type)

    def no_loss(self, deletion: Deletion) -> str:
        return "an edge has no loss of its own under node classification" if deletion.edges.size(1) else ""

    def terms(self, data: Any, remaining: Any, deletion: Deletion, generator: torch.Generator) -> Terms:
        nodes = self.learned(data)
        gone = torch.cat([deletion.nodes, deletion.labels]).to(nodes.device)
        return Terms(nodes, self.classes(data, nodes), torch.isin(nodes, gone))

    def named(self, deletion: Deletion) -> Tensor:
        return torch.cat([deletion.nodes, deletion.features[0], deletion.labels]).unique()

    def blank(self, deletion: Deletion) -> bool:
        return bool(deletion.nodes.numel() or deletion.features.size(1))

    def title(self, deletion: Deletion) -> str:
        parts = {
            "deleted nodes": deletion.nodes.numel(),
            "nodes that lost features": deletion.features.size(1),
            "nodes that lost their label": deletion.labels.numel(),
        }
        return " and ".join(words for words, count in parts.items() if count) or "nodes at deleted edges"

    def affected(self, deletion: Deletion, data: Any) -> Tensor:
        labelled = self.labels(data).cpu() >= 0
        named = self.named(deletion)
        named = named if named.numel() else ends_of(deletion.edges).flatten()
        return (torch.zeros_like(labelled).index_fill(0, named, True) & labelled).nonzero().flatten()

    def near(self, elements: Tensor, deletion: Deletion, data: Any) -> Tensor:
        rings = Neighborhood(edge_table(data), data.edge_index).rings(deletion.named_nodes, 1)
        mask = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill(0, torch.cat(rings).cpu(), True)
        return mask.index_fill(0, deletion.nodes.cpu(), False)[elements.cpu()]

    def incomparable(self, deletion: Deletion, served: bool) -> str:
        if served and deletion.nodes.numel():
            return "deleted nodes have neither edges nor features left in this graph"
        if served and deletion.features.size(1):
            return "nodes without their features do not compare with unseen ones here"
        if deletion.features.size(1):
            return "the labels of nodes that lost features are still learned, by a retrained model as well"
        return ""

    def confidence(self, predict: Predict, data: Any) -> Tensor | None:
        every = torch.arange(count_nodes(data), device=data.edge_index.device)
        return predict(every).detach().double().max(dim=1).values

    def never_learned(self, deletion: Deletion, data: Any) -> str:
        if not deletion.labels.numel() or self.learned_labels(deletion.labels, data).numel():
            return ""
        return f"The model was trained on none of these labels: they {ONLY_DATA}"

    def extent(self, data: Any) -> Tensor:
        return degrees(data)

    def still_learned(self, deletion: Deletion, elements: Tensor) -> float:
        only_features = torch.isin(elements.cpu(), deletion.features[0])
        only_features &= ~torch.isin(elements.cpu(), torch.cat([deletion.nodes, deletion.labels]))
        return float(only_features.double().mean())

    def learned_labels(self, labels: Tensor, data: Any) -> Tensor:
        return labels if bool(self.part(data, "train").cpu()[labels].any()) else labels[:0]

    def measured_on(self, data: Any) -> dict[str, Tensor]:
        return super().measured_on(self._labelled(data))


def _labels(data: Any) -> Tensor:
    y = data.get("y")
    if not isinstance(y, Tensor):
        raise GraphError(
            f"node classification needs 'y' with one class per node (the graph has: {', '.join(data.keys())})"
        )
    if y.dim() == 2 and y.size(1) == 1:
        y = y.view(-1)
    if y.dim() != 1 or y.is_floating_point():
        raise NotYetError(
            f"'y' must hold one whole-number class per node (got {y.dtype} of shape {list(y.shape)})",
            "several labels per node and regression are not supported yet",
        )
    if y.size(0) != data.num_nodes:
        raise GraphError(
            f"'y' has {y.size(0)} entries and the graph {data.num_nodes} nodes",
            "give one class per node, or set data.num_nodes",
        )
    return y.long()


def _mask(data: Any, name: str) -> Tensor | None:
    mask = data.get(name)
    if mask is None:
        return None
    if mask.dtype != torch.bool or list(mask.shape) != [data.num_nodes]:
        raise GraphError(
            f"'{name}' must be a bool tensor of shape [{data.num_nodes}] "
            f"(got {mask.dtype} of shape {list(mask.shape)})",
            "of several splits pick one",
        )
    return mask


def _logits(output: Any, data: Any, node_type: str | None = None) -> Tensor:
    logits = representation(output, node_type)
    if logits.dim() != 2 or logits.size(0) != data.num_nodes:
        raise _no_logits(logits, data)
    if int(_labels(data).max()) >= logits.size(1):
        raise ModelError(
            f"'y' holds class {int(_labels(data).max())} and the model returns {logits.size(1)} columns; "
            "build it with one output per class"
        )
    return logits


def _no_logits(output: Tensor, data: Any) -> ModelError:
    return ModelError(
        f"the model must return [num_nodes, classes] for node classification (got {list(output.shape)} on "
        f"{data.num_nodes} nodes)"
    )
