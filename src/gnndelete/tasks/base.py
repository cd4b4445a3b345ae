"""What a task is: the loss a model is trained on, its score on unseen data, and its predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gnndelete.errors import GraphError, ModelError, SettingError, some
from gnndelete.graph.hetero import HeteroGraph

Predict = Callable[[Any], Tensor]
Near = Callable[[Tensor], Any]


class Task(ABC):
    """One kind of prediction. ``output`` is always what the model's forward pass on ``data`` returned."""

    name: ClassVar[str]
    """Short name, by which the task can also be chosen: ``link``, ``node`` or ``graph``."""

    @abstractmethod
    def check(self, data: Any) -> None:
        """Raise ``GraphError`` where the graph lacks what the task needs, before anything runs."""

    def on(self, data: Any) -> Task:
        """The task in the terms of a graph: where there are several types, with the one that it is about."""
        return self

    def place(self, elements: Any, data: HeteroGraph) -> Tensor:
        """What a user names by type, in ids across all types."""
        raise GraphError(f"a '{self.name}' task has no predictions on a HeteroData")

    def refuse_nothing_left(self, remaining: HeteroGraph, nodes: Tensor) -> None:
        """One sentence where a deletion, of these ``nodes`` and more, leaves nothing of the type that the task is about."""
        return None

    def without(self, nodes: Tensor) -> Task:
        """The same task once these nodes are deleted: unseen data that names them is left out."""
        return self

    def apart(self, model: nn.Module) -> nn.Module | None:
        """A module with weights that answers depend on and that is no part of ``model``: no training of it moves these."""
        return None

    def by_number(self, model: nn.Module, output: Any, part: Any, nodes: int) -> bool:
        """Whether answers depend on the numbers of nodes beside their rows; a ``part`` of a graph of ``nodes`` has others."""
        return False

    def check_output(self, output: Any, data: Any) -> None:
        """Raise ``ModelError`` where what a model returned on ``data`` is plainly not about what the task asks."""
        return None

    def remark(self, output: Any) -> str | None:
        """What a user should know of what the model returned, though it can be worked with."""
        return None

    @abstractmethod
    def loss(self, model: nn.Module, output: Any, data: Any, generator: torch.Generator | None = None) -> Tensor:
        """The training loss on ``data``."""

    def batches(
        self, data: Any, batch_size: int | None, generator: torch.Generator, near: Near | None = None
    ) -> Iterable[Any]:
        """What one epoch trains on, step by step: the graph as a whole, unless the task can divide it.

        ``near`` gives the sampled neighbourhood of some nodes, whose rows come first, as a graph of its own.
        """
        if batch_size is not None:
            raise SettingError(
                f"a '{self.name}' task cannot be divided into batches of {batch_size}; leave 'batch_size' out"
            )
        return (data,)

    def local(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes that elements name, each once, and the same elements by the places of these nodes."""
        raise SettingError(f"a '{self.name}' task cannot be asked in batches; leave 'batch_size' out")

    def validation_view(self, data: Any) -> Any:
        """The part of ``data`` that `validate` must see the model's output on."""
        return data

    @abstractmethod
    def validates(self, data: Any) -> bool:
        """Whether there is validation data."""

    @abstractmethod
    def validate(self, model: nn.Module, output: Any, data: Any) -> float:
        """One score on the validation data, higher is better."""

    def validate_by(self, predict: Predict, data: Any) -> float:
        """`validate` of anything that predicts."""
        raise SettingError(f"a '{self.name}' task cannot be validated in batches; leave 'batch_size' out")

    def evaluate(self, model: nn.Module, output: Any, data: Any) -> dict[str, float]:
        """Scores on the test data by name."""
        return self.evaluate_by(lambda elements: self.predict(model, output, elements), data)

    @abstractmethod
    def evaluate_by(self, predict: Predict, data: Any) -> dict[str, float]:
        """Scores on the test data of anything that predicts, with a model or without one."""

    @abstractmethod
    def predict(self, model: nn.Module, output: Any, elements: Any) -> Tensor:
        """What the model says about the given edges, nodes or graphs."""


def representation(output: Any, node_type: str | None = None) -> Tensor:
    """The node tensor in what a model returned: the tensor itself, the first one of a tuple, or that of a node type.

    >>> representation((torch.ones(2, 3), "attention")).shape
    torch.Size([2, 3])
    """
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    if isinstance(output, dict) and node_type is not None:
        if node_type not in output:
            raise ModelError(f"the model returned nothing for {node_type!r} (it returned {some(map(repr, output))})")
        output = output[node_type]
    if not isinstance(output, Tensor):
        raise ModelError(
            f"the model returned a '{type(output).__name__}', and a tensor of node representations is needed; "
            "pass forward=lambda model, data: … that returns one"
        )
    return output


def as_tensor_of_ids(elements: Any, what: str, dtype: torch.dtype | None = None) -> Tensor:
    """What a user hands over as ids, as a tensor; one sentence where no tensor can be made of it.

    >>> as_tensor_of_ids([2, 0], "nodes").tolist()
    [2, 0]
    """
    try:
        return torch.as_tensor(elements, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        raise SettingError(f"{what} must be given as whole-number ids (got {repr(elements)[:60]})") from None


def per_edge(output: Any, nodes: Iterable[int], edges: Any) -> Tensor | None:
    """The tensor that a model returned, where it has a row for every edge (or two, one of them false) and none for a node.

    Other numbers of rows may be nodes and more (a blank one, a virtual one), which is the model's own affair.

    >>> graph = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]])}
    >>> per_edge(torch.ones(3, 1), [3], graph) is None, per_edge((torch.ones(6, 1), "more"), [3], graph).shape
    (True, torch.Size([6, 1]))
    """
    found = output[0] if isinstance(output, (tuple, list)) and output else output
    if not isinstance(found, Tensor) or not found.dim() or found.size(0) in nodes:
        return None
    counts = [pairs.size(1) for name in ("edge_index", "edge_label_index") if (pairs := edges.get(name)) is not None]
    return found if any(found.size(0) in (count, 2 * count) for count in counts) else None


def chances(logits: Tensor, chosen: Tensor) -> Tensor:
    """Class probabilities of the rows ``chosen``; where rows of ``logits`` are such already, they are given as they are.

    Most rows tell: behind an operator a few may not sum to 1 any more, and are brought back to it.

    >>> chances(torch.tensor([[0.0, 0.0], [9.0, 1.0]]), torch.tensor([0])).tolist()
    [[0.5, 0.5]]
    >>> chances(torch.tensor([[0.25, 0.75], [1.0, 0.0]]), torch.tensor([0])).tolist()
    [[0.25, 0.75]]
    """
    rows = logits[chosen]
    if not sums_to_one(logits):
        return rows.softmax(dim=-1)
    kept = rows.clamp(min=0)
    kept = kept / kept.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    return torch.where(_are_chances(rows)[..., None], rows, kept)


#: The share of rows that have to be probabilities before all are taken for such.
_MOST = 0.9


def sums_to_one(rows: Tensor) -> bool:
    """Whether most rows hold probabilities, as a model that ends in softmax returns them; a column alone tells nothing."""
    if not rows.is_floating_point() or not rows.numel() or rows.size(-1) < 2:
        return False
    return float(_are_chances(rows).double().mean()) >= _MOST


def _are_chances(rows: Tensor) -> Tensor:
    near = max(1e-4, torch.finfo(rows.dtype).eps)
    return (rows >= 0).all(dim=-1) & ((rows.sum(dim=-1, dtype=torch.float64) - 1).abs() <= near)


def softmax_remark(output: Any, node_type: str | None = None) -> str | None:
    """What to say of a model of classes that ends in softmax."""
    try:
        found = sums_to_one(representation(output, node_type))
    except ModelError:  # whoever needs its rows says what is wrong with them
        return None
    said = (
        "the model returns probabilities (rows that sum to 1), which predictions give as they are; training and methods with a "
        "loss expect logits, without softmax at the end, and would apply it a second time"
    )
    return said if found else None


def shuffled(count: int, batch_size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The places 0 to ``count`` in random order, in batches of even size: none of a single one.

    >>> [part.numel() for part in shuffled(9, 4, torch.Generator().manual_seed(0))]
    [3, 3, 3]
    """
    return torch.randperm(count, generator=generator, device=generator.device).tensor_split(ceil(count / batch_size))
