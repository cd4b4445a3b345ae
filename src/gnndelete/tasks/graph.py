"""Graph classification: cross-entropy on the training graphs of a `GraphBatch`, AUROC or accuracy on the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.batch import GraphBatch, Selection
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.parsing import ids_in_order
from gnndelete.metrics.ranking import ranking
from gnndelete.tasks.base import (
    ONLY_DATA,
    Classification,
    Near,
    Predict,
    shuffled,
)

Metric = Literal["auto", "auroc", "accuracy"]


class GraphClassification(Classification):
    """Which class is a whole graph?

    ``y`` holds one class per graph (-1 or NaN: unlabelled). ``train_mask``, ``val_mask`` and ``test_mask`` mark the parts, one
    entry per graph. Without a training part all labelled graphs outside the other two are trained on. A model returns
    ``[num_graphs, classes]`` logits, or one column for two classes, as is usual for molecules.

    Args:
        train: Positions of the training graphs, instead of ``train_mask``.
        validation: Positions of the validation graphs, instead of ``val_mask``.
        test: Positions of the test graphs, instead of ``test_mask``.
        metric: The validation score: ``"auroc"``, ``"accuracy"``, or ``"auto"``: AUROC for two classes, accuracy for more.

    >>> from torch_geometric.data import Data
    >>> from gnndelete.graph.batch import collate
    >>> edge = torch.tensor([[0, 1], [1, 0]])
    >>> graphs = collate([Data(x=torch.ones(2, 1), edge_index=edge, y=torch.tensor([k % 2])) for k in range(6)])
    >>> task = GraphClassification(validation=[2, 3], test=[4, 5])
    >>> task.part(graphs, "train").nonzero().flatten().tolist()
    [0, 1]
    >>> task.evaluate(torch.nn.Identity(), torch.nn.functional.one_hot(graphs.y).float(), graphs)
    {'auroc': 1.0, 'accuracy': 1.0, 'f1': 1.0}
    """

    name: ClassVar[str] = "graph"
    synonyms: ClassVar[set[str]] = {"graph"}
    description: ClassVar[str] = "graph classification"
    noun: ClassVar[str] = "graph"
    near_title: ClassVar[str] = "that lost an edge or a node"
    _no_score: ClassVar[str] = (
        "a graph classifier has no score for an edge or a node within a graph, so none can be compared with unseen ones"
    )

    _wrong_rows: ClassVar[str] = "pool the nodes of each graph by data.batch"
    _fewest_classes: ClassVar[int] = 2

    def __init__(self, train: Any = None, validation: Any = None, test: Any = None, metric: Metric = "auto") -> None:
        if metric not in ("auto", "auroc", "accuracy"):
            raise SettingError(f"'metric' must be 'auto', 'auroc' or 'accuracy' (got {metric!r})")
        self.metric = metric
        given = {"train": train, "val": validation, "test": test}
        self._given = {part: torch.as_tensor(ids) for part, ids in given.items() if ids is not None}

    def check(self, data: Any) -> None:
        if not isinstance(data, GraphBatch):
            raise GraphError(
                f"graph classification needs many graphs and got a '{type(data).__name__}'",
                "give a list of Data, a PyG dataset, or datasets.collate(graphs)",
            )
        super().check(data)

    def batches(
        self, data: Any, batch_size: int | None, generator: torch.Generator, near: Near | None = None
    ) -> Iterator[Any]:
        # only training graphs: rows of deleted graphs must not reach a batch norm
        graphs = self.part(data, "train").nonzero().flatten()
        take = Selection(data)
        if batch_size is None:
            yield take(graphs)
            return
        for chosen in shuffled(graphs.numel(), batch_size, generator):
            yield take(graphs[chosen.to(graphs.device)])

    def validation_view(self, data: Any) -> Any:
        return data.select(self.part(data, "val").nonzero().flatten())

    def _count(self, data: Any) -> int:
        return int(data.num_graphs)

    def no_loss(self, deletion: Deletion) -> str:
        inner = len(deletion) and not deletion.graphs.numel()
        return "an edge or a node has no loss of its own under graph classification" if inner else ""

    def _named(self, deletion: Deletion) -> Tensor:
        return deletion.graphs

    def _extent(self, data: Any) -> Tensor:
        return data.sizes

    def blank(self, deletion: Deletion) -> bool:
        return bool(deletion.graphs.numel())

    def title(self, deletion: Deletion) -> str:
        return "deleted graphs" if deletion.graphs.numel() else "graphs that lost an edge or a node"

    def affected(self, deletion: Deletion, data: Any) -> Tensor:
        if deletion.graphs.numel():
            graphs = deletion.graphs
        else:
            nodes = torch.cat([ends_of(deletion.edges).flatten(), deletion.nodes])
            graphs = data.batch.cpu()[nodes].unique()
        return graphs[self.labels(data).cpu()[graphs] >= 0]

    def near(self, elements: Tensor, deletion: Deletion, data: Any) -> Tensor:
        nodes = torch.cat([ends_of(deletion.edges).flatten(), deletion.nodes])
        return torch.isin(elements.cpu(), data.batch.cpu()[nodes])

    def no_served_answer(self, deletion: Deletion) -> str:
        return "a deleted graph is empty as served, and every empty graph gets the same answer; it is presented again below"

    def untrained(self, deletion: Deletion, data: Any) -> bool:
        if not deletion.graphs.numel() or self.elements(deletion, data).numel():
            return False
        inside = bool(torch.isin(data.batch.cpu()[deletion.nodes], deletion.graphs).all())
        return inside and not (deletion.edges.size(1) or deletion.features.size(1) or deletion.labels.numel())

    def never_learned(self, deletion: Deletion, data: Any) -> str:
        if not self.untrained(deletion, data):
            return ""
        return f"The model was trained on none of these graphs: they {ONLY_DATA}"

    def validate_by(self, predict: Predict, data: Any) -> float:
        found = self._scores(predict, data, "val")
        return found.get("auroc", found["accuracy"]) if self.ranks(data) else found["accuracy"]

    def ranks(self, data: Any) -> bool:
        binary = int(self.labels(data).max()) < 2
        return self.metric == "auroc" or (self.metric == "auto" and binary)

    def _mask(self, data: Any, part: str) -> Tensor | None:
        return _marked(self._given[part], data) if part in self._given else super()._mask(data, part)

    def _scores(self, predict: Predict, data: Any, part: str) -> dict[str, float]:
        """AUROC where there are two classes, then accuracy and F1."""
        graphs = self._require(data, part)
        predicted, true = predict(graphs).detach().cpu(), self.classes(data, graphs).cpu()
        found = {}
        if predicted.size(1) == 2 and bool((true == 1).any()) and bool((true == 0).any()):
            odds = predicted.double().clamp(min=1e-300).log()
            odds = odds[:, 1] - odds[:, 0]
            found["auroc"] = ranking(odds[true == 1], odds[true == 0])["auroc"]
        return found | super()._scores(lambda chosen: predicted, data, part)


def _marked(ids: Tensor, data: Any) -> Tensor:
    """Positions in the whole set as a mask over the graphs of ``data``, which may be a part of it."""
    graph_id = data.get("graph_id")
    if graph_id is not None:
        return torch.isin(graph_id, ids.to(graph_id.device))
    mask = torch.zeros(data.num_graphs, dtype=torch.bool, device=data.ptr.device)
    mask[ids_in_order(ids, "graph", data.num_graphs).to(mask.device)] = True
    return mask
