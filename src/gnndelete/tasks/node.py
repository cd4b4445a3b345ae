"""Node classification: cross-entropy on the training nodes, accuracy on the others."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnndelete.errors import DeletionError, SettingError, some
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import Neighborhood, ends_of
from gnndelete.graph.hetero import HeteroGraph, one_type
from gnndelete.graph.parsing import ids_in_order
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.metrics.unseen_test import degrees
from gnndelete.nn.hooks import per_edge
from gnndelete.tasks.base import (
    ONLY_DATA,
    Classification,
    Near,
    Predict,
    Terms,
    shuffled,
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
        result._ids = data.types.rows(str(result.node_type))
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

    def _store(self, data: Any) -> Any:
        return data.hetero[self.node_type] if isinstance(data, HeteroGraph) else data

    def _count(self, data: Any) -> int:
        return int(self._store(data).num_nodes)

    def check_output(self, output: Any, data: Any) -> None:
        if isinstance(data, HeteroGraph):
            return  # a single tensor is about the type of the task
        found = per_edge(output, [int(data.num_nodes)], data)
        if found is not None:
            raise self._no_logits(found, data)

    def batches(
        self, data: Any, batch_size: int | None, generator: torch.Generator, near: Near | None = None
    ) -> Iterator[Any]:
        # each batch has the neighbourhood of its training nodes; the other nodes in it have no loss
        if batch_size is None or near is None:
            yield data
            return
        nodes = self.part(data, "train").nonzero().flatten()
        for chosen in shuffled(nodes.numel(), batch_size, generator):
            batch = near(nodes[chosen.to(nodes.device)])
            batch.train_mask = torch.arange(batch.num_nodes, device=nodes.device) < chosen.numel()
            yield batch

    def local(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        return torch.unique(elements, return_inverse=True)

    def no_loss(self, deletion: Deletion) -> str:
        return "an edge has no loss of its own under node classification" if deletion.edges.size(1) else ""

    def terms(self, data: Any, remaining: Any, deletion: Deletion, generator: torch.Generator) -> Terms:
        nodes = self.learned(data)
        gone = torch.cat([deletion.nodes, deletion.labels]).to(nodes.device)
        return Terms(nodes, self.classes(data, nodes), torch.isin(nodes, gone))

    def _named(self, deletion: Deletion) -> Tensor:
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
        named = self._named(deletion)
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

    def deletion_of(self, elements: Tensor) -> Deletion | None:
        return Deletion(nodes=elements)

    def never_learned(self, deletion: Deletion, data: Any) -> str:
        if not deletion.labels.numel() or self.learned_labels(deletion.labels, data).numel():
            return ""
        return f"The model was trained on none of these labels: they {ONLY_DATA}"

    def _extent(self, data: Any) -> Tensor:
        return degrees(data)

    def still_learned(self, deletion: Deletion, elements: Tensor) -> float:
        only_features = torch.isin(elements.cpu(), deletion.features[0])
        only_features &= ~torch.isin(elements.cpu(), torch.cat([deletion.nodes, deletion.labels]))
        return float(only_features.double().mean())

    def learned_labels(self, labels: Tensor, data: Any) -> Tensor:
        return labels if bool(self.part(data, "train").cpu()[labels].any()) else labels[:0]
