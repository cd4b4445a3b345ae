"""What a task is: the loss a model is trained on, its score on unseen data, and its predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndelete.errors import GraphError, ModelError, NotYetError, SettingError, some
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.parsing import ids_in_order
from gnndelete.metrics.edge_matching import Matching
from gnndelete.metrics.lists import Lists
from gnndelete.metrics.ranking import auc_variance
from gnndelete.metrics.unseen_test import CLASS_QUANTILES, strata
from gnndelete.notes import Note

Predict = Callable[[Any], Tensor]
Near = Callable[[Tensor], Any]
Part = Literal["validation", "test"]
Reduction = Literal["none", "mean", "sum"]


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a training loss: elements, what each should be, and whether it leaves with the deletion."""

    elements: Tensor
    classes: Tensor
    deleted: Tensor


class Task(ABC):
    """What a model is trained for: its loss, its predictions, its scores, and what it learned from.

    A task speaks about *elements*: edges ``[2, k]`` (triples ``[3, k]`` on a typed graph) for link prediction, ids ``[k]``
    for nodes and graphs. The rest of the library asks the task and never which class it is. In every method ``output`` is
    what the model's forward pass on ``data`` returned, and ``predict`` is any function from elements to predictions.

    A task of your own implements the abstract methods. With the defaults of the others it can be trained, served and
    evaluated; override those about elements (`learned`, `elements`, `unseen`, `scores`, `losses`) so that forgetting
    can be calibrated and audited, too.

    Attributes:
        name: Short name by which the task can be chosen: ``"link"``, ``"node"`` or ``"graph"``.
        description: The kind of task in words, such as ``"link prediction"``.
        noun: What one element is called in sentences: ``"edge"``, ``"node"`` or ``"graph"``.
        pairwise: Whether an element is a pair of nodes that both stay in the graph when the element is deleted.
        on_nodes: Whether an element is a node of one graph, or a pair of its nodes.
        learns_labels: Whether the model is trained on ``data.y``.
        score_title: What `scores` gives, as the title of an axis.
        near_title: Where the elements are that `near` marks, such as "within a hop of the deletion".
    """

    name: ClassVar[str]
    description: ClassVar[str] = "a task of your own"
    noun: ClassVar[str] = "element"
    pairwise: ClassVar[bool] = False
    on_nodes: ClassVar[bool] = False
    learns_labels: ClassVar[bool] = True
    score_title: ClassVar[str] = "score"
    near_title: ClassVar[str] = "near the deletion"

    @abstractmethod
    def check(self, data: Any) -> None:
        """Check that a graph has what the task needs, before anything runs.

        Args:
            data: The graph.

        Raises:
            GraphError: If something is missing or malformed.
        """

    def on(self, data: Any) -> Task:
        """Return the task for one graph; on a graph with several types, about one of them.

        Args:
            data: The graph.
        """
        return self

    def place(self, elements: Any, data: HeteroGraph) -> Tensor:
        """Convert elements that a user names by type to ids across all types.

        Args:
            elements: What the user asks about.
            data: The typed graph.
        """
        raise GraphError(f"a '{self.name}' task has no predictions on a HeteroData")

    def refuse_nothing_left(self, remaining: HeteroGraph, nodes: Tensor) -> None:
        """Refuse a deletion that leaves nothing of the type that the task is about.

        Args:
            remaining: The graph without the deletion.
            nodes: The deleted nodes.
        """
        return None

    def without(self, nodes: Tensor) -> Task:
        """Return the task without validation and test elements that name deleted nodes.

        Args:
            nodes: The deleted nodes.
        """
        return self

    def outside_weights(self, model: nn.Module) -> nn.Module | None:
        """Return a module with weights that predictions depend on and that is no part of the model, such as a decoder.

        Args:
            model: The model. Training it does not change these weights.
        """
        return None

    def check_output(self, output: Any, data: Any) -> None:
        """Refuse an output that is clearly not about what the task needs.

        Args:
            output: What the model's forward pass on ``data`` returned.
            data: The graph.

        Raises:
            ModelError: If the output is of another kind, such as scores of edges where nodes need rows.
        """
        return None

    def remarks(self, model: nn.Module, output: Any) -> tuple[Note, ...]:
        """What a user should know about how the model and this task work together.

        Args:
            model: The model.
            output: What its forward pass returned.
        """
        return ()

    @abstractmethod
    def loss(self, model: nn.Module, output: Any, data: Any, generator: torch.Generator | None = None) -> Tensor:
        """Compute the training loss.

        Args:
            model: The model that made ``output``.
            output: What its forward pass on ``data`` returned.
            data: The training graph, or one batch of it.
            generator: Draws non-edges.
        """

    def batches(
        self, data: Any, batch_size: int | None, generator: torch.Generator, near: Near | None = None
    ) -> Iterable[Any]:
        """Return what one epoch trains on, step by step: the whole graph, unless the task can divide it.

        Args:
            data: The training graph.
            batch_size: Elements per step; None for all at once.
            generator: Shuffles them.
            near: Returns the sampled neighbourhood of some nodes as a graph; their rows come first.

        Raises:
            SettingError: If the task cannot be divided.
        """
        if batch_size is not None:
            raise SettingError(
                f"a '{self.name}' task cannot be divided into batches of {batch_size}; leave 'batch_size' out"
            )
        return (data,)

    def local(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes that elements name, each once, and the elements by the positions of these nodes.

        Args:
            elements: Elements of a graph.
        """
        raise SettingError(f"a '{self.name}' task cannot be asked in batches; leave 'batch_size' out")

    def validation_view(self, data: Any) -> Any:
        """Return the part of a graph that the model must run on for `validate`.

        Args:
            data: The graph.
        """
        return data

    @abstractmethod
    def validates(self, data: Any) -> bool:
        """Whether there is validation data.

        Args:
            data: The graph that the model would be validated on.
        """

    def validate(self, model: nn.Module, output: Any, data: Any) -> float:
        """Compute one score on the validation data, higher is better.

        Args:
            model: The model that made ``output``.
            output: What its forward pass on ``data`` returned.
            data: The graph.

        Raises:
            GraphError: If there is no validation data.
        """
        self.check_output(output, data)
        return self.validate_by(partial(self.predict, model, output), data)

    def validate_by(self, predict: Predict, data: Any) -> float:
        """`validate` for any function that predicts.

        Args:
            predict: Any function from elements to predictions.
            data: The graph.
        """
        raise SettingError(f"a '{self.name}' task has no validation score")

    def ranks(self, data: Any) -> bool:
        """Whether `validate` gives an AUROC; else an accuracy.

        Args:
            data: The graph.
        """
        return self.pairwise

    def chance(self, data: Any) -> float | None:
        """The validation score up to which a model is no better than chance; None where that is not known.

        It is what one answer for all reaches (accuracy), or 0.5 (AUROC), and 1.96 standard errors more.

        Args:
            data: The graph.

        Raises:
            GraphError: If there is no validation data.
        """
        true = self.examples(data, "validation")[1]
        if not true.numel():
            return None
        if self.ranks(data):
            positive = int((true == 1).sum())
            return 0.5 + 1.96 * auc_variance(0.5, max(positive, 1), max(true.numel() - positive, 1)) ** 0.5
        share = float(true.bincount().max()) / true.numel()
        return share + 1.96 * (share * (1 - share) / true.numel()) ** 0.5

    def lists(self, data: Any, shown: bool = True, test: bool = True) -> Lists | None:
        """The lists in which edges are ranked; None for a task that ranks none.

        Args:
            data: The graph before the deletion, so that every model is ranked against the same candidates.
            shown: Only where lists are what users see: on typed and on bipartite graphs.
            test: Leave out test edges like all other true edges; False where they are what lists should hold.
        """
        return None

    def evaluate(self, model: nn.Module, output: Any, data: Any) -> dict[str, float]:
        """Compute all scores on the test data, by name.

        Args:
            model: The model that made ``output``.
            output: What its forward pass on ``data`` returned.
            data: The graph.

        Raises:
            GraphError: If there is no test data.
        """
        self.check_output(output, data)
        return self.evaluate_by(partial(self.predict, model, output), data)

    @abstractmethod
    def evaluate_by(self, predict: Predict, data: Any) -> dict[str, float]:
        """`evaluate` for any function that predicts.

        Args:
            predict: Any function from elements to predictions.
            data: The graph.
        """

    @abstractmethod
    def predict(self, model: nn.Module, output: Any, elements: Any) -> Tensor:
        """Predict for some elements: logits of edges, class probabilities ``[k, classes]`` of nodes and graphs.

        Args:
            model: The model that made ``output``.
            output: What its forward pass returned.
            elements: Edges ``[2, k]`` or a list of pairs (triples on a typed graph), or ids of nodes or graphs.
        """

    def learned(self, data: Any) -> Tensor:
        """The elements that a model is trained on: edges in every direction in which the graph lists them, or ids.

        Args:
            data: The training graph.
        """
        return torch.empty(0, dtype=torch.long)

    def learned_once(self, data: Any) -> Tensor:
        """`learned`, each element once: of an undirected edge one direction, and no self-loop.

        Args:
            data: The training graph.
        """
        return self.learned(data)

    def deletion_of(self, elements: Tensor) -> Deletion | None:
        """The deletion of some elements; None for a task that has no rehearsals.

        Args:
            elements: Elements that the model was trained on.
        """
        return None

    def elements(self, deletion: Deletion, data: Any, *, incident: bool = False) -> Tensor:
        """The deleted elements that the model was trained on and has a score for; `unscored` says why there are none.

        Args:
            deletion: What is deleted.
            data: The graph before the deletion.
            incident: Where no edge is named, take the edges of deleted nodes, each once. Other tasks ignore it.
        """
        return torch.empty(0, dtype=torch.long)

    def unscored(self, deletion: Deletion, data: Any) -> str:
        """Why `elements` with ``incident=True`` finds nothing; empty where it finds something.

        Args:
            deletion: What is deleted.
            data: The graph before the deletion.
        """
        return f"the task '{self.name}' has no score for what was deleted"

    def unseen(self, data: Any, part: Part, deletion: Deletion | None = None) -> Tensor:
        """The true elements of a part that the model was not trained on; `no_unseen` says what to do without any.

        Args:
            data: The graph that holds them; after a deletion, the remaining one.
            part: ``"validation"`` or ``"test"``.
            deletion: Leave out the elements that this deletion names.
        """
        return torch.empty(0, dtype=torch.long)

    def unseen_edges(self) -> dict[str, Tensor]:
        """Return the edges that the task validates and tests with, by purpose. A request must not name them."""
        return {}

    def no_unseen(self, part: Part) -> str:
        """What to say where `unseen` finds nothing.

        Args:
            part: ``"validation"`` or ``"test"``.
        """
        return f"there are no {part} elements to compare with"

    def examples(self, data: Any, part: Part) -> tuple[Tensor, Tensor]:
        """Everything that a part is scored on, and one class for each: of true edges 1, then of non-edges 0.

        Args:
            data: The graph that holds the elements.
            part: ``"validation"`` or ``"test"``.
        """
        return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)

    def num_classes(self, data: Any) -> int:
        """The number of classes; edges and non-edges are two.

        Args:
            data: The graph that holds the labels.
        """
        return 2

    def classes(self, data: Any, elements: Tensor) -> Tensor:
        """The true class of each element; edges have the class 1.

        Args:
            data: The graph that holds the labels: after a deletion, still the original one.
            elements: What is asked about.
        """
        return torch.ones(elements.size(-1), dtype=torch.long)

    def scores(self, predict: Predict, data: Any, elements: Tensor) -> Tensor:
        """How strongly the predictions hold the truth: the logit of an edge, the probability of the true class.

        Args:
            predict: Any function from elements to predictions.
            data: The graph that holds the labels: after a deletion, still the original one.
            elements: What is asked about.
        """
        raise SettingError(f"a '{self.name}' task has no score for single elements")

    def row_gradients(self, model: nn.Module, edges: Tensor, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives of the scores of edges by the rows of their two ends; for inner products, the other end's row.

        Args:
            model: The model.
            edges: Pairs ``[2, k]`` or triples ``[3, k]``.
            heads: A row for the first end of each, in the place of the model's output.
            tails: A row for the second.
        """
        return tails, heads

    def probabilities(self, predicted: Tensor) -> Tensor:
        """Predictions as a distribution over classes ``[k, classes]``; those of edges are "no edge" and "edge".

        Args:
            predicted: What `predict` returned.
        """
        return predicted

    def logits(self, output: Any, data: Any) -> Tensor:
        """The model's answer about every node or graph: a column for each class.

        Args:
            output: What the model's forward pass on ``data`` returned.
            data: The graph.

        Raises:
            ModelError: If the output does not have the shape that the task needs.
        """
        raise SettingError(f"a '{self.name}' task has no classes")

    def losses(
        self,
        model: nn.Module,
        output: Any,
        data: Any,
        elements: Tensor,
        reduction: Reduction = "none",
        classes: Tensor | None = None,
    ) -> Tensor:
        """The training loss of single elements.

        Args:
            model: The model that made ``output``.
            output: What its forward pass returned.
            data: The graph that holds the labels.
            elements: Which elements.
            reduction: ``"none"`` for one number each, or their ``"mean"`` or ``"sum"``.
            classes: What the elements should be; by default their true `classes`.
        """
        raise SettingError(f"a '{self.name}' task has no loss for single elements")

    def no_loss(self, deletion: Deletion) -> str:
        """Which part of a deletion has no loss of its own under this task; empty where every part has one.

        Args:
            deletion: What is deleted.
        """
        return f"what is deleted has no loss of its own under a '{self.name}' task" if len(deletion) else ""

    def terms(self, data: Any, remaining: Any, deletion: Deletion, generator: torch.Generator) -> Terms:
        """All terms of the training loss, and which of them leave with a deletion.

        Args:
            data: The training graph.
            remaining: The graph without the deletion.
            deletion: What is deleted.
            generator: Draws the non-edges of a link loss.
        """
        raise SettingError(f"the loss of a '{self.name}' task is not a sum over nodes or pairs of nodes")

    def sample(self, data: Any, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Some of the elements to train on, and their classes; for links as many non-edges follow.

        Args:
            data: The training graph.
            count: How many at most.
            generator: Draws them.
        """
        elements = draw(self.learned(data), count, generator)
        return elements, self.classes(data, elements)

    def can_learn(self, data: Any) -> bool:
        """Whether a graph has anything to train on.

        Args:
            data: A graph, or a part of one.
        """
        try:
            self.check(data)
        except GraphError:
            return False
        return True

    def on_part(self, part: Any, nodes: Tensor, total: int, generator: torch.Generator) -> Task:
        """The task on the subgraph that some nodes induce. Masks move with the nodes, so most tasks stay as they are.

        Args:
            part: The subgraph; its ids are positions in ``nodes``.
            nodes: The ids of its nodes in the whole graph.
            total: The number of nodes of the whole graph.
            generator: Draws non-edges within the subgraph.
        """
        return self

    def blank(self, deletion: Deletion) -> bool:
        """Whether deleted elements have nothing left in the graph as served, so that they must be presented again.

        Args:
            deletion: What is deleted.
        """
        return False

    def title(self, deletion: Deletion) -> str:
        """What `affected` holds, such as "deleted edges".

        Args:
            deletion: What is deleted.
        """
        return f"deleted {self.noun}s"

    def affected(self, deletion: Deletion, data: Any) -> Tensor:
        """`elements`, trained on or not; where there are none, the elements that lost something else.

        For a classifier of nodes these are the ends of deleted edges, for one of graphs the graphs that lost an edge or a
        node. Elements without a label are left out.

        Args:
            deletion: What is deleted.
            data: The graph before the deletion.
        """
        return self.elements(deletion, data, incident=True)

    def near(self, elements: Tensor, deletion: Deletion, data: Any) -> Tensor:
        """Which elements are so close to the deletion that it may have damaged them, as a mask.

        Args:
            elements: What is asked about.
            deletion: What is deleted.
            data: The graph before the deletion.
        """
        return torch.zeros(elements.size(-1), dtype=torch.bool)

    def incomparable(self, deletion: Deletion, served: bool) -> str:
        """Why deleted elements differ from unseen ones in more than being deleted; empty where they do not.

        Args:
            deletion: What is deleted.
            served: Whether the model is asked on the graph as served, or on one with the deleted elements presented again.
        """
        return ""

    def no_served_answer(self, deletion: Deletion) -> str:
        """Why the graph as served gives no answer about deleted elements; empty where it gives one.

        Args:
            deletion: What is deleted.
        """
        return ""

    def random_elements(self, data: Any, count: int, seed: int, remaining: Tensor) -> Tensor:
        """Elements that never were any, such as random pairs of nodes without an edge; none where there is no such thing.

        Args:
            data: The graph before the deletion.
            count: How many.
            seed: Draws them.
            remaining: Elements that are left; on a typed graph they are given another head.
        """
        return torch.empty(0, dtype=torch.long)

    def random_targets(self, data: Any, count: int, generator: torch.Generator) -> Tensor:
        """Random nodes that could be the target of an edge.

        Args:
            data: The graph before the deletion.
            count: How many.
            generator: Draws them.
        """
        raise SettingError(f"a '{self.name}' task has no edges")

    def confidence(self, predict: Predict, data: Any) -> Tensor | None:
        """How sure a model is about each node; None where the task does not answer about nodes.

        Args:
            predict: Any function from elements to predictions.
            data: The graph that the model answers on.
        """
        return None

    def match(
        self, deleted: Tensor, unseen: Tensor, data: Any, remaining: Any, by_surroundings: bool = True
    ) -> Matching:
        """Which deleted elements are compared with which unseen ones; by default, all with all.

        Args:
            deleted: Deleted elements.
            unseen: Unseen elements.
            data: The graph before the deletion.
            remaining: The graph after it.
            by_surroundings: Compare edges by their surroundings as well, not by the degree of their ends alone.
        """
        ones = torch.ones(deleted.size(-1)), torch.ones(unseen.size(-1))
        return Matching(strata(*ones, bins=1), deleted.size(-1))

    def still_learned(self, deletion: Deletion, elements: Tensor) -> float:
        """The share of deleted elements that a retrained model still learns from, such as nodes that only lost features.

        Args:
            deletion: What is deleted.
            elements: The deleted elements.
        """
        return 0.0

    def validation_near(self, data: Any, nodes: Tensor) -> Task | None:
        """The task with the validation elements that touch some nodes alone; None where they are too few to tell.

        Args:
            data: The graph after the deletion.
            nodes: The nodes.
        """
        return None

    def never_learned(self, deletion: Deletion, data: Any) -> str:
        """A sentence about deleted labels or graphs that the model never learned from; empty where it learned from some.

        Args:
            deletion: What is deleted.
            data: The graph before the deletion.
        """
        return ""

    def untrained(self, deletion: Deletion, data: Any) -> bool:
        """Whether everything that is deleted is known to have played no part in training: whole graphs outside it.

        Args:
            deletion: What is deleted.
            data: The graph before the deletion.
        """
        return False

    def learned_labels(self, labels: Tensor, data: Any) -> Tensor:
        """The deleted labels, unless the model was trained on none of them.

        Args:
            labels: The ids whose labels are deleted.
            data: The graph before the deletion.
        """
        return labels

    def rank_deleted(self, predict: Predict, deletion: Deletion, remaining: Any, seed: int = 0) -> dict[str, float]:
        """How far deleted elements rank below remaining ones: the paper's E_d scores ``auroc`` and ``auprc``.

        Args:
            predict: Any function from elements to predictions.
            deletion: What is deleted.
            remaining: The graph without it.
            seed: Draws the sample of remaining elements.
        """
        return {}

    def count_overlap(self, elements: Tensor, data: Any, table: EdgeTable | None = None) -> int:
        """How many elements, said to be unseen, the model was trained on.

        Args:
            elements: Elements of a validation or test part.
            data: The training graph.
            table: Its edge table, where there is one already.
        """
        return 0

    def overlap_sentence(self, count: int, part: str = "unseen") -> str:
        """What `count_overlap` means for the user; empty where it is 0.

        Args:
            count: The number of overlapping elements.
            part: What they were said to be.
        """
        if not count:
            return ""
        where = "in the graph" if self.pairwise else f"among the {self.noun}s"
        return (
            f"{count:,} of the {part} {self.noun}s are {where} that the model was trained on: compared with these, what is "
            f"remembered does not show. Hold out {self.noun}s that are not."
        )

    def measured_on(self, data: Any) -> dict[str, Tensor]:
        """The tensors that training, validation and test scores depend on besides the graph's edges and features.

        Args:
            data: The graph before the deletion.
        """
        return {}


#: What follows where the model was never trained on deleted labels or graphs.
ONLY_DATA = "play no part in its weights and were only taken out of the data."


class Classification(Task):
    """What tasks with one class per element have in common; ``data.y`` and masks say which elements are in which part."""

    score_title: ClassVar[str] = "probability of the true class"
    _no_score: ClassVar[str]
    _wrong_rows: ClassVar[str] = ""  # what to do about a model with other rows
    _fewest_classes: ClassVar[int] = 1  # 2 where one column of logits stands for two classes
    node_type: str | None = None
    _ids: range | None = None  # the ids of that type across all types of the graph

    @abstractmethod
    def _named(self, deletion: Deletion) -> Tensor:
        """The elements that a deletion names: by themselves, their features or their label."""

    @abstractmethod
    def _extent(self, data: Any) -> Tensor:
        """What elements of one class are further matched by: the degree of nodes, the size of graphs."""

    @abstractmethod
    def _count(self, data: Any) -> int:
        """The number of elements that labels, masks and logits are about."""

    def _store(self, data: Any) -> Any:
        """What holds labels and masks."""
        return data

    def _across(self, values: Tensor, data: Any, rest: Any) -> Tensor:
        """Values of the task's elements as values of all elements of the graph."""
        if self._ids is None:
            return values
        result = torch.full((int(data.num_nodes),), rest, dtype=values.dtype, device=values.device)
        result[self._ids.start : self._ids.stop] = values
        return result

    def _within(self, values: Tensor) -> Tensor:
        """The opposite of `_across`."""
        return values if self._ids is None else values[self._ids.start : self._ids.stop]

    def labels(self, data: Any) -> Tensor:
        """The class of every element, -1 without one; also from floats with NaN and from a single column, as in OGB."""
        store, count = self._store(data), self._count(data)
        y = store.get("y")
        if not isinstance(y, Tensor):
            found = ", ".join(store.keys())
            raise GraphError(f"{self.description} needs 'y' with one class per {self.noun} (there are: {found})")
        y = y.view(-1) if y.dim() == 2 and y.size(1) == 1 else y
        if y.dim() != 1:
            why = f"'y' must hold one class per {self.noun} (got shape {list(y.shape)})"
            raise NotYetError(why, "choose one column of several labels")
        if y.size(0) != count:
            remedy = f"give one class per {self.noun}{', or set data.num_nodes' if self.on_nodes else ''}"
            raise GraphError(f"'y' has {y.size(0)} entries for {count} {self.noun}s", remedy)
        if y.is_floating_point():
            y = y.nan_to_num(nan=-1.0)
            if bool((y != y.round()).any()):
                raise NotYetError("'y' holds fractions", "regression is not supported yet, give whole-number classes")
        return self._across(y.long(), data, -1)

    def _mask(self, data: Any, part: str) -> Tensor | None:
        """The mask of ``"train"``, ``"val"`` or ``"test"`` over all elements; None where nothing is marked."""
        mask, count = self._store(data).get(f"{part}_mask"), self._count(data)
        if mask is None:
            return None
        if mask.dtype != torch.bool or list(mask.shape) != [count]:
            raise GraphError(
                f"'{part}_mask' must be a bool tensor with one entry per {self.noun}, [{count}] "
                f"(got {mask.dtype} of shape {list(mask.shape)})",
                "of several splits pick one",
            )
        return self._across(mask, data, False)

    def part(self, data: Any, part: str) -> Tensor:
        """A mask of the labelled elements of ``"train"``, ``"val"`` or ``"test"``.

        Without a mask of its own, ``"train"`` is all outside the others.
        """
        labelled, mask = self.labels(data) >= 0, self._mask(data, part)
        if mask is not None:
            return labelled & mask
        if part != "train":
            raise GraphError(f"no {self.noun} is marked for '{part}'", f"add '{part}_mask', or use split_{self.noun}s")
        for other in ("val", "test"):
            taken = self._mask(data, other)
            labelled = labelled if taken is None else labelled & ~taken
        return labelled

    def check(self, data: Any) -> None:
        for name in ("val", "test"):
            self._mask(data, name)
        if not bool(self.part(data, "train").any()):
            raise GraphError(
                f"no labelled {self.noun} is left to train on", "'train_mask' and 'y' (-1: unlabelled) exclude all"
            )

    def _columns(self, output: Any) -> Tensor:
        rows = representation(output, self.node_type)
        return rows.view(-1, 1) if rows.dim() == 1 else rows

    def logits(self, output: Any, data: Any) -> Tensor:
        logits, count = self._columns(output), self._count(data)
        if logits.dim() != 2 or logits.size(0) != count:
            raise self._no_logits(logits, data)
        largest = int(self.labels(data).max())
        if largest >= max(self._fewest_classes, logits.size(1)):
            raise ModelError(
                f"'y' holds class {largest} and the model returns {logits.size(1)} columns; build it with one output per class"
            )
        return logits

    def _no_logits(self, output: Tensor, data: Any) -> ModelError:
        return ModelError(
            f"the model must return [num_{self.noun}s, classes] for {self.description} (got {list(output.shape)} for "
            f"{self._count(data)} {self.noun}s)",
            self._wrong_rows,
        )

    def loss(self, model: nn.Module, output: Any, data: Any, generator: torch.Generator | None = None) -> Tensor:
        part = self._within(self.part(data, "train"))
        return class_loss(self.logits(output, data)[part], self._within(self.labels(data))[part])

    def predict(self, model: nn.Module, output: Any, elements: Any) -> Tensor:
        logits = self._columns(output)
        start = 0 if self._ids is None else self._ids.start
        chosen = ids_in_order(elements, self.noun, start + logits.size(0)) - start
        chosen = ids_in_order(chosen, self.noun, logits.size(0)).to(logits.device)
        if logits.size(1) == 1:
            column = logits[chosen]
            return torch.cat([-column, column], dim=1).sigmoid()  # 1 - p would lose the digits of confident answers
        return class_probabilities(logits, chosen)

    def remarks(self, model: nn.Module, output: Any) -> tuple[Note, ...]:
        return softmax_note(output, self.node_type)

    def validates(self, data: Any) -> bool:
        return self._mask(data, "val") is not None and bool(self.part(data, "val").any())

    def validate(self, model: nn.Module, output: Any, data: Any) -> float:
        self.logits(output, data)  # reports a wrong shape before rows are indexed
        return super().validate(model, output, data)

    def validate_by(self, predict: Predict, data: Any) -> float:
        elements = self._require(data, "val")
        predicted = predict(elements).argmax(dim=-1)
        return float((predicted == self.classes(data, elements).to(predicted.device)).double().mean())

    def evaluate(self, model: nn.Module, output: Any, data: Any) -> dict[str, float]:
        self.logits(output, data)
        return super().evaluate(model, output, data)

    def evaluate_by(self, predict: Predict, data: Any) -> dict[str, float]:
        return self._scores(predict, data, "test")

    def _require(self, data: Any, part: str) -> Tensor:
        """The elements of a part, which must not be empty."""
        chosen = self.part(data, part).nonzero().flatten()
        if not chosen.numel():
            raise GraphError(
                f"no labelled {self.noun} is in the part '{part}'", f"mark some, or use split_{self.noun}s"
            )
        return chosen

    def _scores(self, predict: Predict, data: Any, part: str) -> dict[str, float]:
        """Accuracy and macro-averaged F1."""
        from sklearn.metrics import f1_score  # takes longer to import than a local request

        elements = self._require(data, part)
        predicted, true = predict(elements).argmax(dim=-1).cpu(), self.classes(data, elements).cpu()
        f1 = f1_score(true.numpy(), predicted.numpy(), average="macro", zero_division=0)
        return {"accuracy": float((predicted == true).double().mean()), "f1": float(f1)}

    def learned(self, data: Any) -> Tensor:
        return self.part(data, "train").nonzero().flatten()

    def elements(self, deletion: Deletion, data: Any, *, incident: bool = False) -> Tensor:
        learned = self.part(data, "train")
        named = self._named(deletion).to(learned.device)
        return named[learned[named]]

    def unscored(self, deletion: Deletion, data: Any) -> str:
        if self.elements(deletion, data).numel():
            return ""
        if not self._named(deletion).numel():
            return self._no_score
        return f"the model was trained on the label of none of the {self.noun}s that were named"

    def unseen(self, data: Any, part: Part, deletion: Deletion | None = None) -> Tensor:
        try:
            found = self.part(data, "val" if part == "validation" else part).nonzero().flatten()
        except GraphError:  # no part of that name
            return torch.empty(0, dtype=torch.long)
        return found if deletion is None else found[~torch.isin(found, self._named(deletion).to(found.device))]

    def no_unseen(self, part: Part) -> str:
        mask = "val_mask" if part == "validation" else "test_mask"
        return f"there are no {part} {self.noun}s to compare with; mark some in '{mask}'"

    def match(
        self, deleted: Tensor, unseen: Tensor, data: Any, remaining: Any, by_surroundings: bool = True
    ) -> Matching:
        extent = self._extent(data)
        deleted, unseen = deleted.to(extent.device), unseen.to(extent.device)
        kinds = self.classes(data, deleted), self.classes(data, unseen)
        found = strata(extent[deleted], extent[unseen], *kinds, bins=CLASS_QUANTILES, adaptive=True)
        return Matching(found, deleted.numel())

    def examples(self, data: Any, part: Part) -> tuple[Tensor, Tensor]:
        elements = self.unseen(data, part)
        return elements, self.classes(data, elements)

    def num_classes(self, data: Any) -> int:
        return max(int(self.labels(data).max()) + 1, 2)

    def classes(self, data: Any, elements: Tensor) -> Tensor:
        labels = self.labels(data)
        return labels[elements.to(labels.device)]

    def scores(self, predict: Predict, data: Any, elements: Tensor) -> Tensor:
        predicted = predict(elements)
        true = self.classes(data, elements).to(predicted.device)
        return predicted.gather(1, true.view(-1, 1)).view(-1)

    def losses(
        self,
        model: nn.Module,
        output: Any,
        data: Any,
        elements: Tensor,
        reduction: Reduction = "none",
        classes: Tensor | None = None,
    ) -> Tensor:
        classes = self.classes(data, elements) if classes is None else classes
        return class_loss(self.logits(output, data)[elements], classes, reduction)

    def count_overlap(self, elements: Tensor, data: Any, table: EdgeTable | None = None) -> int:
        learned = self.part(data, "train")
        return int(learned[elements.to(learned.device)].sum())

    def measured_on(self, data: Any) -> dict[str, Tensor]:
        store, names = self._store(data), ("y", "train_mask", "val_mask", "test_mask")
        return {name: store[name] for name in names if isinstance(store.get(name), Tensor)}


def draw(elements: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Up to ``count`` of the elements in random order."""
    chosen = torch.randperm(elements.size(-1), generator=generator)[:count]
    return elements[..., chosen.to(elements.device)]


def class_loss(logits: Tensor, classes: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Cross-entropy; of a single column of two classes, as is usual for molecules, the binary one."""
    if logits.size(1) == 1:
        return F.binary_cross_entropy_with_logits(logits.view(-1), classes.to(logits.dtype), reduction=reduction)
    return F.cross_entropy(logits, classes, reduction=reduction)


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


def class_probabilities(logits: Tensor, chosen: Tensor) -> Tensor:
    """Class probabilities of the rows ``chosen``. A model that returns probabilities is recognised, and these are used.

    Behind an operator a few rows may no longer sum to 1; they are rescaled.

    >>> class_probabilities(torch.tensor([[0.0, 0.0], [9.0, 1.0]]), torch.tensor([0])).tolist()
    [[0.5, 0.5]]
    >>> class_probabilities(torch.tensor([[0.25, 0.75], [1.0, 0.0]]), torch.tensor([0])).tolist()
    [[0.25, 0.75]]
    """
    rows = logits[chosen]
    if not sums_to_one(logits):
        return rows.softmax(dim=-1)
    rescaled = rows.clamp(min=0)
    rescaled = rescaled / rescaled.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    return torch.where(_are_probabilities(rows)[..., None], rows, rescaled)


#: A model returns probabilities where at least this share of its rows sum to 1.
PROBABILITY_SHARE = 0.9


def sums_to_one(rows: Tensor) -> bool:
    """Whether most rows hold probabilities, as of a model that ends in softmax; a single column says nothing."""
    if not rows.is_floating_point() or not rows.numel() or rows.size(-1) < 2:
        return False
    return float(_are_probabilities(rows).double().mean()) >= PROBABILITY_SHARE


def _are_probabilities(rows: Tensor) -> Tensor:
    near = max(1e-4, torch.finfo(rows.dtype).eps)
    return (rows >= 0).all(dim=-1) & ((rows.sum(dim=-1, dtype=torch.float64) - 1).abs() <= near)


def softmax_note(output: Any, node_type: str | None = None) -> tuple[Note, ...]:
    """A note about a classifier whose output already went through softmax."""
    try:
        found = sums_to_one(representation(output, node_type))
    except ModelError:  # Whoever needs the rows says what is wrong with them.
        return ()
    text = (
        "The model returns probabilities (rows that sum to 1), which predictions give as they are. Training, and methods "
        "with a loss, expect logits and would apply softmax a second time."
    )
    return (Note("output-probabilities", text),) if found else ()


def shuffled(count: int, batch_size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The numbers below ``count`` in random order, in batches of even size.

    >>> [part.numel() for part in shuffled(9, 4, torch.Generator().manual_seed(0))]
    [3, 3, 3]
    """
    return torch.randperm(count, generator=generator, device=generator.device).tensor_split(ceil(count / batch_size))
