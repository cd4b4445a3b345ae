"""Link prediction: true edges against pairs that are no edges."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from types import MethodType
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gnndelete.datasets.negatives import TripleCorrupter, bipartite_sides, pair_sampler, triples
from gnndelete.errors import DeletionError, GraphError, ModelError, NotYetError, SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.hetero import EdgeType, HeteroGraph
from gnndelete.graph.parsing import distinct, edge_list
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.metrics.edge_matching import Matching, match_edges
from gnndelete.metrics.lists import Lists
from gnndelete.metrics.ranking import auc, ranking
from gnndelete.nn.hooks import per_edge
from gnndelete.notes import Note
from gnndelete.tasks.base import (
    ONLY_DATA,
    Near,
    Part,
    Predict,
    Reduction,
    Task,
    Terms,
    draw,
    representation,
    shuffled,
)
from gnndelete.tasks.supervision import (
    LabeledEdges,
    Relation,
    Supervision,
    SupervisionCache,
    distinct_positives,
    labeled_edges,
    positives,
)

Decoder = Callable[[Any, Tensor], Tensor]

#: Why a link model has no score for what is deleted.
_OTHER_EDGE_TYPE = (
    "the task scores edges of one type, and none of that type is deleted; use a task about the deleted type"
)
_NO_FEATURE_SCORE = (
    "a link model scores pairs of nodes, and features are none, so deleted ones cannot be compared with unseen ones; the "
    "distance to a retrained reference says how far its answers are from theirs"
)
_NO_LABEL = "a link model learns from no labels, so there is nothing of them that it could have kept"

#: The two lists of `LabeledEdges`.
_KINDS = ("positives", "negatives")

#: Damage near a deletion is measured where at least this many validation edges touch it.
MIN_NEAR_EDGES = 30


#: Pairs that are scored for the lists of users at most.
LISTED_PAIRS = 2_000_000


class LinkPrediction(Task):
    """Is there an edge?

    A model is trained on the graph's edges, or on ``edge_label_index`` where the graph has one, against as many random
    non-edges; on a bipartite graph, such as users and items, these join its two parts. It is validated by AUROC and tested
    by AUROC and AUPRC, and by NDCG@10 of the lists of users where the graph is bipartite.

    On a graph with ``edge_type`` all edges are ``[3, k]`` triples (head, relation, tail). A negative is a true triple with
    another head (or tail) that occurs with the same relation, and no triple that is known to be true. On a ``HeteroData`` the
    task is about one edge type, and edges are pairs of ids within its two node types.

    Args:
        validation: True edges to validate on: ``[2, k]``, a pair ``(edge_label_index, edge_label)``, or a graph with both.
        test: True edges to test on, in the same forms.
        decoder: How two rows become a logit. ``"dot"``; ``"distmult"``, which reads the model's parameter ``relation``; the
            name of a method of the model, such as ``"decode"``; or a callable ``(z, edges) -> logits``. A callable that
            refers to your model keeps using *your* model, so prefer a name. On a ``HeteroData`` it gets the dict that the
            model returned.
        validation_negatives: Non-edges to validate on; by default as many as true edges are drawn once, never an edge of
            the first graph, of ``validation`` or of ``test``.
        test_negatives: Non-edges to test on; by default drawn in the same way.
        seed: Draws missing non-edges.
        edge_type: On a ``HeteroData``, the edge type (source type, relation, target type) that is predicted.
        loss: ``"bce"``: true edges against non-edges, by cross-entropy. ``"bpr"``: each true edge above a non-edge of the
            same node, as recommenders are trained (Rendle et al. 2009); the node is the user on a bipartite graph, the source
            on a directed one and either end elsewhere.

    >>> from gnndelete.datasets import load, split_links
    >>> split = split_links(load("digits"))
    >>> task = LinkPrediction(validation=split.validation, test=split.test)
    >>> z = split.data.x
    >>> sorted(task.evaluate(torch.nn.Identity(), z, split.data))
    ['auprc', 'auroc']
    """

    name: ClassVar[str] = "link"
    synonyms: ClassVar[set[str]] = {"link"}
    description: ClassVar[str] = "link prediction"
    noun: ClassVar[str] = "edge"
    pairwise: ClassVar[bool] = True
    on_nodes: ClassVar[bool] = True
    learns_labels: ClassVar[bool] = False
    score_title: ClassVar[str] = "score (logit)"
    near_title: ClassVar[str] = "that touch the deletion"
    #: What to do where no edges are known that the model was not trained on; a program that makes tasks may set other words.
    how_to_name_unseen: str = "pass {part}= to the task"

    def __init__(
        self,
        validation: Any = None,
        test: Any = None,
        decoder: str | Decoder = "dot",
        validation_negatives: Any = None,
        test_negatives: Any = None,
        seed: int = 0,
        edge_type: EdgeType | None = None,
        loss: Literal["bce", "bpr"] = "bce",
    ) -> None:
        if loss not in ("bce", "bpr"):
            raise SettingError(f"'loss' must be 'bce' or 'bpr' (got {loss!r})")
        if not isinstance(decoder, str) and not callable(decoder):
            raise SettingError(
                f"'decoder' must be 'dot', 'distmult', the name of a method of the model, or a callable (z, edges) -> scores "
                f"(got '{type(decoder).__name__}')"
            )
        self.edge_type = edge_type
        self.validation = labeled_edges(validation, validation_negatives, "validation", edge_type)
        self.test = labeled_edges(test, test_negatives, "test", edge_type)
        self.decoder = decoder
        self.paired = loss == "bpr"
        self.seed = seed
        self._supervision = SupervisionCache()
        self._sides: tuple[int, Tensor | None] | None = None  # nodes and parts of the first graph, if it is bipartite
        self._relation: Relation | None = None  # the edge type of one graph
        self._typed: LinkPrediction | None = None  # the task on the last typed graph

    def on(self, data: Any) -> LinkPrediction:
        if self._relation is not None or data is None:
            return self
        if not isinstance(data, HeteroGraph):
            if self.edge_type is not None:
                raise SettingError(
                    f"edge_type={self.edge_type!r} is given, and the graph is no HeteroData", "leave it out"
                )
            return self
        if self.decoder == "distmult":
            raise GraphError("decoder='distmult' is for a Data with 'edge_type'", "use 'dot', or a method of the model")
        relation = Relation.of(data, self.edge_type)
        if self._typed is None or self._typed._relation != relation:  # so that negatives are drawn once
            result = copy.copy(self)
            result._relation, result._supervision = relation, SupervisionCache()
            result.validation = relation.placed(self.validation, data, "validation")
            result.test = relation.placed(self.test, data, "test")
            self._typed = result
        return self._typed

    def place(self, elements: Any, data: HeteroGraph) -> Tensor:
        relation = self._relation or Relation.of(data, self.edge_type)
        return data.place_edges(relation.kind, relation.pairs(elements), "edges")

    def _scored(self, edges: Tensor) -> Tensor:
        """The edges that the task has a score for: on a HeteroData, those of its edge type."""
        return edges if self._relation is None or not edges.size(1) else edges[:, edges[1] == self._relation.number]

    def random_targets(self, data: Any, count: int, generator: torch.Generator) -> Tensor:
        targets = range(int(data.num_nodes)) if self._relation is None else self._relation.target
        return torch.randint(targets.start, targets.stop, (count,), generator=generator)

    def _supervised(self, data: Any) -> Supervision:
        return self._supervision.of(data, self._relation, self.paired)

    def check(self, data: Any) -> None:
        if not isinstance(data.edge_index, Tensor):
            raise GraphError(f"link prediction needs 'edge_index' (the graph has: {', '.join(data.keys())})")
        if not isinstance(data, DiskGraph):  # checked while it was built
            check_edges(data.edge_index, data.num_nodes, "edge_index")
        typed = data.get("edge_type") is not None
        if self._relation is None and isinstance(data, HeteroGraph):
            raise GraphError("the graph has several types", "ask for the task on it with on(data)")
        if typed and "edge_label_index" in data:
            raise NotYetError("typed graphs with 'edge_label_index' are not supported yet", "drop that attribute")
        if not typed and self.decoder == "distmult":
            raise GraphError("decoder='distmult' scores triples, and the graph has no 'edge_type'", "use decoder='dot'")
        for name in ("validation", "test"):
            part: LabeledEdges | None = getattr(self, name)
            for kind in _KINDS if part is not None else ():
                if (edges := getattr(part, kind)) is not None:
                    check_edges(edges, data.num_nodes, name if kind == "positives" else f"{name}_negatives", typed)
        self._draw_negatives(data)

    def refuse_nothing_left(self, remaining: HeteroGraph, nodes: Tensor) -> None:
        if self._relation is not None and not self._relation.learned(remaining).size(1):
            raise DeletionError(
                f"the deletion leaves no edge of {self._relation.kind}, which the task is about",
                "a model of nothing cannot be kept: retire it, or give another task",
            )

    def without(self, nodes: Tensor) -> LinkPrediction:
        if not nodes.numel():
            return self
        result = copy.copy(self)
        result.validation, result.test = (part and part.without(nodes) for part in (self.validation, self.test))
        return result

    def score(self, model: nn.Module, output: Any, edges: Tensor) -> Tensor:
        """Compute the logits of edges, with gradients.

        Args:
            model: The model that made ``output``.
            output: What its forward pass returned.
            edges: ``[2, k]`` edges, or ``[3, k]`` triples.

        Raises:
            ModelError: If the decoder does not return one number per edge.
        """
        if self._relation is not None:
            edges = self._relation.local(edges)
        scores = self.decoder_of(model)(output, edges)
        if not isinstance(scores, Tensor) or scores.numel() != edges.size(1):
            got = f"shape {list(scores.shape)}" if isinstance(scores, Tensor) else f"'{type(scores).__name__}'"
            raise ModelError(f"the decoder must return one score for each of the {edges.size(1)} edges (got {got})")
        return scores.view(-1)

    def decoder_of(self, model: nn.Module) -> Decoder:
        """The decoder for one model: scores of pairs by what its forward returned, on a ``HeteroData`` by ids within types.

        Args:
            model: The model.
        """
        if self.decoder == "dot":
            return dot if self._relation is None else self._relation.dot
        return bind(self.decoder, model)

    def row_gradients(self, model: nn.Module, edges: Tensor, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        if self.decoder == "dot":
            return tails, heads
        count = heads.size(0)
        numbers = torch.arange(count, device=heads.device)
        ends, output = torch.stack([numbers, numbers + count]), torch.cat([heads, tails]).detach().requires_grad_()
        given: Any = output
        if self._relation is not None:
            kind = self._relation.kind
            same = kind[0] == kind[2]
            given = {kind[0]: output} if same else {kind[0]: output[:count], kind[2]: output[count:]}
            placed = self._relation.triples(ends if same else torch.stack([numbers, numbers]))
        else:
            placed = torch.cat([ends[:1], *([edges[1:2]] if edges.size(0) == 3 else []), ends[1:]])
        try:
            with torch.enable_grad():
                (found,) = torch.autograd.grad(self.score(model, given, placed).sum(), output)
        except Exception:  # whatever a user's decoder has against rows of tables in the place of the model's output
            return tails, heads
        return found[:count], found[count:]

    def outside_weights(self, model: nn.Module) -> nn.Module | None:
        decoder = self.decoder if isinstance(self.decoder, str) else bind(self.decoder, model)
        decoder = getattr(decoder, "__self__", decoder)  # a method stands for its module
        if not isinstance(decoder, nn.Module):
            return None
        weights = set(model.parameters())
        return decoder if any(weight not in weights for weight in decoder.parameters()) else None

    def check_output(self, output: Any, data: Any) -> None:
        # many models return scores of the graph's edges, which would be read as rows of nodes
        built_in = self.decoder in ("dot", "distmult")
        if not built_in and not isinstance(output, Tensor):
            return  # a decoder of the user knows what to read
        relation = self._relation
        nodes = [int(data.num_nodes)] if relation is None else [len(relation.source), len(relation.target)]
        # rows of all types may be stacked
        found = per_edge(
            output, {*nodes, int(data.num_nodes)}, data if relation is None else data.hetero[relation.kind]
        )
        if found is None and built_in and isinstance(output, Tensor) and output.dim() < 2:
            found = output  # an inner product needs vectors
        if found is not None:
            method = "decode" if built_in else self.decoder if isinstance(self.decoder, str) else None
            named = "" if method is None else f", and name the method that scores pairs of them (decoder='{method}')"
            raise ModelError(
                f"the model returned {list(found.shape)} on {' and '.join(map(str, nodes))} nodes, and a link task needs a "
                "vector for each node; pass forward=lambda model, data: model.encode(…) that returns these, or wrap the model "
                f"in a module whose forward does{named}"
            )

    def loss(self, model: nn.Module, output: Any, data: Any, generator: torch.Generator | None = None) -> Tensor:
        self.check_output(output, data)
        supervision = self._supervised(data)
        positives = supervision.positives
        negatives = supervision.negatives(generator)
        logits = self.score(model, output, torch.cat([positives, negatives], dim=1))
        if self.paired:
            true, false = logits.split(positives.size(1))
            return F.softplus(false - true).mean()
        target = torch.zeros_like(logits)
        target[: positives.size(1)] = 1
        return F.binary_cross_entropy_with_logits(logits, target)

    def batches(
        self, data: Any, batch_size: int | None, generator: torch.Generator, near: Near | None = None
    ) -> Iterator[Any]:
        # each batch has as many non-edges as edges, and the neighbourhood of all their ends
        if batch_size is None or near is None:
            yield data
            return
        whole = self._supervised(data)
        positives, negatives = whole.positives, whole.negatives(generator)
        for chosen in shuffled(positives.size(1), batch_size, generator):
            chosen = chosen.to(positives.device)
            nodes, edges = self.local(torch.cat([positives[:, chosen], negatives[:, chosen]], dim=1))
            true, false = edges.split(chosen.numel(), dim=1)
            batch = near(nodes)
            self._supervision.give(batch, replace(whole, positives=true, drawn=false))
            yield batch

    def local(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        elements = edge_list(elements, "edges")
        nodes, ends = torch.unique(ends_of(elements), return_inverse=True)
        return nodes, torch.stack([ends[0], *elements[1:-1], ends[1]])

    def remarks(self, model: nn.Module, output: Any) -> tuple[Note, ...]:
        if self.decoder != "dot" or not callable(getattr(model, "decode", None)):
            return ()
        text = (
            "Links are scored by inner products, not by the model's 'decode' method; to use it, pass "
            "task=LinkPrediction(decoder='decode', …)."
        )
        return (Note("decode-unused", text),)

    def validates(self, data: Any) -> bool:
        return self.validation is not None

    def validate_by(self, predict: Predict, data: Any) -> float:
        true, false = self._part(data, "validation")
        scores = predict(torch.cat([true, false.to(true.device)], dim=1))
        return auc(*scores.split([true.size(1), false.size(1)]))

    def lists(self, data: Any, shown: bool = True, test: bool = True) -> Lists | None:
        nodes, typed = int(data.num_nodes), data.get("edge_type") is not None
        if not typed and (self._sides is None or self._sides[0] != nodes):
            self._sides = nodes, bipartite_sides(data.edge_index, nodes)
        sides = self._sides[1] if self._sides is not None and not typed else None
        if shown and sides is None and not typed:
            return None
        held = [part.positives.cpu() for part in (self.validation, self.test if test else None) if part]
        return Lists(torch.cat([self.learned(data).cpu(), *held], dim=1), nodes, sides, self.seed)

    def validation_near(self, data: Any, nodes: Tensor) -> LinkPrediction | None:
        if self.validation is None:
            return None
        mark = torch.zeros(int(data.num_nodes), dtype=torch.bool)
        mark[nodes.cpu()] = True
        parts = [
            part[:, mark[ends_of(part).cpu()].any(dim=0).to(part.device)] for part in self._part(data, "validation")
        ]
        if min(part.size(1) for part in parts) < MIN_NEAR_EDGES:
            return None
        result = copy.copy(self)
        result.validation, result.test = LabeledEdges(*parts), None
        return result

    def evaluate(self, model: nn.Module, output: Any, data: Any) -> dict[str, float]:
        self.check_output(output, data)
        return super().evaluate(model, output, data)

    def evaluate_by(self, predict: Predict, data: Any) -> dict[str, float]:
        true, false = self._part(data, "test")
        return ranking(predict(true), predict(false)) | self._list_quality(predict, data, true)

    def _list_quality(self, predict: Predict, data: Any, true: Tensor) -> dict[str, float]:
        """NDCG@10 of lists on a bipartite graph, over as many users as are scored soon."""
        if self._relation is None and data.get("edge_type") is not None:
            return {}  # one relation among many: filtered ranks are the measure there
        if self._relation is not None and self._relation.kind[0] == self._relation.kind[2]:
            return {}
        lists = self.lists(data, test=False)
        if lists is None:
            return {}
        heads = draw(
            lists.heads(true), max(LISTED_PAIRS // lists.pool.numel(), 1), torch.Generator().manual_seed(self.seed)
        )
        listed = lists.top(lambda pairs: predict(pairs.to(true.device)), heads)
        return {name: value for name, value in lists.quality(listed, heads, true).items() if name.startswith("ndcg")}

    def predict(self, model: nn.Module, output: Any, elements: Any) -> Tensor:
        edges = edge_list(elements, "edges")
        if isinstance(output, Tensor) and self._relation is None:
            check_edges(edges, output.size(0), "edges", of_output=True)
        parts = (
            output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
        )
        device = next((part.device for part in parts if isinstance(part, Tensor)), None)
        return self.score(model, output, edges if device is None else edges.to(device))

    def learned(self, data: Any) -> Tensor:
        return positives(data) if self._relation is None else self._supervised(data).positives

    def deletion_of(self, elements: Tensor) -> Deletion | None:
        relation = self._relation
        return Deletion(edges=elements if relation is None else {relation.kind: relation.local(elements)})

    def learned_once(self, data: Any) -> Tensor:
        if self._relation is None:
            return distinct_positives(data)
        edges = self.learned(data)
        if self._relation.both:
            low, high = edges[[0, 2]].sort(dim=0).values
            edges = torch.stack([low, edges[1], high])
        return distinct(edges)

    def near(self, elements: Tensor, deletion: Deletion, data: Any) -> Tensor:
        named = deletion.named_nodes.cpu()
        left = named[~torch.isin(named, deletion.nodes.cpu())]
        return torch.isin(ends_of(elements.cpu()), left).any(dim=0)

    def incomparable(self, deletion: Deletion, served: bool) -> str:
        if not served or deletion.edges.size(1):
            return ""
        return "deleted nodes have neither edges nor features left in this graph"

    def random_elements(self, data: Any, count: int, seed: int, remaining: Tensor) -> Tensor:
        held = [part.positives.cpu() for part in (self.validation, self.test) if part]
        generator = torch.Generator().manual_seed(seed)
        try:
            return self._non_edges(data, held, remaining.cpu(), count, generator, distinct=False)
        except GraphError:  # nearly every pair is an edge
            return remaining[:, :0].cpu()

    def confidence(self, predict: Predict, data: Any) -> Tensor | None:
        # the mean probability of a node's edges; for an isolated node the mean of all edges
        edges = self.learned_once(data)
        chance = predict(edges).detach().double().sigmoid()
        ends, nodes = ends_of(edges).flatten(), count_nodes(data)
        total = chance.new_zeros(nodes).index_add_(0, ends, chance.repeat(2))
        count = chance.new_zeros(nodes).index_add_(0, ends, torch.ones_like(ends, dtype=chance.dtype))
        return torch.where(count > 0, total / count.clamp(min=1), chance.mean())

    def elements(self, deletion: Deletion, data: Any, *, incident: bool = False) -> Tensor:
        edges = self._scored(deletion.edges)
        if edges.size(1) or not incident or not deletion.nodes.numel():
            return edges
        learned = self._supervised(data).positives
        return learned[:, torch.isin(ends_of(learned), deletion.nodes.to(learned.device)).any(dim=0)]

    def unscored(self, deletion: Deletion, data: Any) -> str:
        if deletion.edges.size(1):
            return "" if self._scored(deletion.edges).size(1) else _OTHER_EDGE_TYPE
        if deletion.nodes.numel():
            return ""
        return _NO_FEATURE_SCORE if deletion.features.size(1) else _NO_LABEL

    def unseen(self, data: Any, part: Part, deletion: Deletion | None = None) -> Tensor:
        task = self if deletion is None else self.without(deletion.nodes)
        found: LabeledEdges | None = getattr(task, part)
        return torch.empty(2, 0, dtype=torch.long) if found is None else found.positives

    def unseen_edges(self) -> dict[str, Tensor]:
        parts = {"validation": self.validation, "testing": self.test}
        return {purpose: part.positives for purpose, part in parts.items() if part is not None}

    def no_unseen(self, part: Part) -> str:
        return (
            f"no {part} edges are known that the model was not trained on; {self.how_to_name_unseen.format(part=part)}"
        )

    def examples(self, data: Any, part: Part) -> tuple[Tensor, Tensor]:
        if getattr(self, part) is None:
            return torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        true, false = self._part(data, part)
        edges = torch.cat([true, false.to(true.device)], dim=1)
        return edges, (torch.arange(edges.size(1), device=edges.device) < true.size(1)).long()

    def scores(self, predict: Predict, data: Any, elements: Tensor) -> Tensor:
        return predict(elements).view(-1)

    def probabilities(self, predicted: Tensor) -> Tensor:
        edge = predicted.view(-1).sigmoid()
        return torch.stack([1 - edge, edge], dim=1)

    def losses(
        self,
        model: nn.Module,
        output: Any,
        data: Any,
        elements: Tensor,
        reduction: Reduction = "none",
        classes: Tensor | None = None,
    ) -> Tensor:
        logits = self.score(model, output, elements)
        if self.paired:  # a true edge against one non-edge of its node, always the same
            generator = torch.Generator(device=elements.device).manual_seed(self.seed)
            false = self.score(model, output, self._supervised(data).false(elements, generator))
            each = F.softplus(false - logits)
            return each if reduction == "none" else each.sum() if reduction == "sum" else each.mean()
        target = torch.ones_like(logits) if classes is None else classes.to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, target, reduction=reduction)

    def no_loss(self, deletion: Deletion) -> str:
        return "features have no loss of their own under link prediction" if deletion.features.size(1) else ""

    def terms(self, data: Any, remaining: Any, deletion: Deletion, generator: torch.Generator) -> Terms:
        supervision = self._supervised(data)
        true, false = supervision.positives, supervision.negatives(generator)
        if self.paired:  # the non-edges belong to the terms of true edges
            false = false[:, :0]
        if remaining.get("edge_label_index") is None:
            table = edge_table(remaining)
        else:
            table = EdgeTable(positives(remaining), int(data.num_nodes))
        gone = deletion.nodes.to(true.device)
        deleted = torch.cat([~table.contains(true), torch.isin(ends_of(false), gone).any(dim=0)])
        classes = torch.cat([torch.ones_like(true[0]), torch.zeros_like(false[0])])
        return Terms(torch.cat([true, false], dim=1), classes, deleted)

    def sample(self, data: Any, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        supervision = self._supervised(data)
        true = draw(supervision.positives, count, generator)
        edges = torch.cat([true, supervision.false(true, generator)], dim=1)
        return edges, (torch.arange(edges.size(1), device=edges.device) < true.size(1)).long()

    def can_learn(self, data: Any) -> bool:
        # there must be an edge and a non-edge
        try:
            return self._supervised(data).sampler.available > 0
        except GraphError:
            return False

    def on_part(self, part: Any, nodes: Tensor, total: int, generator: torch.Generator) -> LinkPrediction:
        # it validates on the edges among these nodes, against non-edges among them
        result = copy.copy(self)
        result.validation = result.test = None
        validation, test = (_within(edges, nodes, total) for edges in (self.validation, self.test))
        if validation is None or not validation.size(1):
            return result
        held = validation if test is None else torch.cat([validation, test], dim=1)
        with suppress(GraphError):  # where nearly every pair is an edge, it trains without validation
            false = self._non_edges(part, [held.cpu()], validation.cpu(), validation.size(1), generator)
            result.validation = LabeledEdges(validation, false.to(validation.device))
        return result

    def _non_edges(
        self,
        data: Any,
        held: list[Tensor],
        true: Tensor,
        count: int,
        generator: torch.Generator,
        distinct: bool = True,
    ) -> Tensor:
        """Pairs on the CPU that are neither edges of the graph nor in ``held``; a false triple for each one of ``true``."""
        if self._relation is None and data.get("edge_type") is not None:
            graph = triples(data).cpu()
            known = torch.cat(held, dim=1) if held else graph[:, :0]
            return TripleCorrupter(graph[[0, 2]], graph[1], data.num_nodes, known=known).corrupt(true, generator)
        supervision = self._supervised(data)
        listed = [supervision.positives.cpu(), *held]
        if self._relation is not None:
            known = torch.cat(
                [data.hetero[self._relation.kind].edge_index.cpu(), *map(self._relation.local, listed)], 1
            )
            return self._relation.triples(self._relation.sampler(known).sample(count, generator, distinct=distinct))
        known = torch.cat([data.edge_index.cpu(), *listed], dim=1)
        sampler = pair_sampler(known, data.num_nodes, supervision.undirected)
        return sampler.sample(count, generator, distinct=distinct)

    def blank(self, deletion: Deletion) -> bool:
        gone = bool(deletion.nodes.numel() or deletion.features.size(1))
        return gone and not self._scored(deletion.edges).size(1)

    def title(self, deletion: Deletion) -> str:
        return "deleted edges" if self._scored(deletion.edges).size(1) else "edges of deleted nodes"

    def never_learned(self, deletion: Deletion, data: Any) -> str:
        return f"A link model learns from no labels: these labels {ONLY_DATA}" if deletion.labels.numel() else ""

    def untrained(self, deletion: Deletion, data: Any) -> bool:
        return all(kind.name == "labels" for kind in deletion.kinds)

    def learned_labels(self, labels: Tensor, data: Any) -> Tensor:
        return labels[:0]

    def match(
        self, deleted: Tensor, unseen: Tensor, data: Any, remaining: Any, by_surroundings: bool = True
    ) -> Matching:
        return match_edges(remaining, deleted, unseen, by_surroundings)

    def rank_deleted(self, predict: Predict, deletion: Deletion, remaining: Any, seed: int = 0) -> dict[str, float]:
        deleted = self._scored(deletion.edges)
        if not deleted.size(1):
            return {}
        left = draw(self.learned(remaining), deleted.size(1), torch.Generator().manual_seed(seed))
        return ranking(predict(left), predict(deleted))

    def count_overlap(self, elements: Tensor, data: Any, table: EdgeTable | None = None) -> int:
        table = edge_table(data) if table is None else table
        return int(table.contains(elements.to(table.keys.device)).sum()) if elements.size(0) == 2 + table.typed else 0

    def measured_on(self, data: Any) -> dict[str, Tensor]:
        parts = {"validation": self.validation, "test": self.test}
        named = {f"{name}.{kind}": getattr(edges, kind) for name, edges in parts.items() if edges for kind in _KINDS}
        return {name: edges for name, edges in named.items() if edges is not None}

    def _part(self, data: Any, name: str) -> tuple[Tensor, Tensor]:
        """The true edges of a part, and its negatives."""
        self._draw_negatives(data)
        part: LabeledEdges | None = getattr(self, name)
        if part is None or part.negatives is None:
            raise GraphError(f"there are no {name} edges to score on", f"pass LinkPrediction({name}=…) with true edges")
        return part.positives, part.negatives

    def _draw_negatives(self, data: Any) -> None:
        missing = [n for n in ("validation", "test") if (p := getattr(self, n)) is not None and p.negatives is None]
        if not missing:
            return
        held = [p.positives.cpu() for p in (self.validation, self.test) if p]
        counts = [getattr(self, name).positives.size(1) for name in missing]
        true = torch.cat([getattr(self, name).positives.cpu() for name in missing], dim=1)
        drawn = self._non_edges(data, held, true, sum(counts), torch.Generator().manual_seed(self.seed))
        for name, negatives in zip(missing, drawn.split(counts, dim=1), strict=True):
            setattr(self, name, LabeledEdges(getattr(self, name).positives, negatives))


def _within(edges: LabeledEdges | None, nodes: Tensor, total: int) -> Tensor | None:
    """The true edges among some nodes, by the positions of these."""
    if edges is None:
        return None
    position = torch.full((total,), -1, device=nodes.device)
    position[nodes] = torch.arange(nodes.numel(), device=nodes.device)
    moved = edges.positives.to(nodes.device, copy=True)
    moved[[0, -1]] = position[ends_of(moved)]
    return moved[:, (moved >= 0).all(dim=0)]


def check_edges(edges: Tensor, num_nodes: int, name: str, typed: bool | None = None, of_output: bool = False) -> None:
    """Refuse ids that the graph, or the model's output, has no row for, and pairs on a typed graph or triples on another."""
    if typed is not None and edges.size(0) != 2 + typed:
        if typed:
            raise GraphError(
                f"'{name}' holds pairs, and the graph has 'edge_type'", "give triples (head, relation, tail)"
            )
        raise GraphError(f"'{name}' holds triples, and the graph has no 'edge_type'", "give pairs (source, target)")
    if not edges.numel():
        return
    low, high = torch.stack(ends_of(edges).aminmax()).tolist()  # one synchronisation with the device
    if low >= 0 and high < num_nodes:
        return
    wrong = f"'{name}' names node {high if high >= num_nodes else low}, and"
    if not of_output:
        raise GraphError(f"{wrong} the graph has the nodes 0 to {num_nodes - 1}")
    raise GraphError(
        f"{wrong} the model returned {num_nodes} rows, from 0 to {num_nodes - 1}",
        "it must return one row for every node of the graph, and edges must name nodes of the graph",
    )


def dot(output: Any, edges: Tensor) -> Tensor:
    """The inner product of the two ends of each edge; the relation of a triple is ignored.

    >>> import torch
    >>> dot(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]])).tolist()
    [11.0]
    """
    z = representation(output)
    # index_select, because the gradient of z[…] adds up in random order on several CPU threads
    return (z.index_select(0, edges[0]) * z.index_select(0, edges[-1])).sum(dim=-1)


def distmult(output: Any, relation: Tensor, triples: Tensor) -> Tensor:
    """DistMult: ``sum(h * r * t)`` of head, relation and tail (Yang et al. 2015).

    >>> import torch
    >>> z, relation = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 0.5]])
    >>> distmult(z, relation, torch.tensor([[0], [0], [1]])).tolist()
    [7.0]
    """
    if triples.size(0) != 3:
        raise GraphError(
            "decoder='distmult' scores triples (head, relation, tail), and pairs were given", "name the relation"
        )
    is_exporting = torch.compiler.is_exporting()  # an exported program cannot look at values
    if not is_exporting and triples.numel() and int(triples[1].max()) >= relation.size(0):
        raise GraphError(
            f"a triple has the relation {int(triples[1].max())}, and the model has {relation.size(0)}",
            "types start at 0",
        )
    z = representation(output)
    head, tail = z.index_select(0, triples[0]), z.index_select(0, triples[2])
    return (head * relation.index_select(0, triples[1]) * tail).sum(dim=-1)


def relation_weight(model: nn.Module) -> Tensor:
    """The relations of a model for DistMult: its attribute ``relation``, a ``[R, width]`` parameter or an embedding."""
    found = getattr(model, "relation", None)
    weight = getattr(found, "weight", found)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise ModelError(
            f"decoder='distmult' needs '{type(model).__name__}' to have a parameter (or nn.Embedding) 'relation' with one row "
            "per relation, as wide as its output; take rgcn or rgat, decoder='dot', or name a method of the model that decodes"
        )
    return weight


def bind(decoder: str | Decoder, model: nn.Module) -> Decoder:
    """The decoder as a callable for one model.

    The library works on copies of the user's model. A decoder that is a module, or a method of one, is therefore replaced by
    its counterpart in ``model``, found by its class.
    """
    if decoder == "distmult":
        relation = relation_weight(model)
        return lambda output, triples: distmult(output, relation, triples)
    if isinstance(decoder, str):
        try:
            method: Decoder = attrgetter(decoder)(model)
        except AttributeError:
            raise ModelError(
                f"decoder='{decoder}' is neither built in ('dot', 'distmult') nor a method of '{type(model).__name__}'; "
                "name one of its methods, or pass a callable (z, edges) -> scores"
            ) from None
        return method
    owner = decoder if isinstance(decoder, nn.Module) else getattr(decoder, "__self__", None)
    if not isinstance(owner, nn.Module):
        return decoder
    twins = [module for module in model.modules() if type(module) is type(owner)]
    if not twins or any(twin is owner for twin in twins):
        return decoder
    if len(twins) > 1:
        raise ModelError(
            f"the decoder belongs to a '{type(owner).__name__}', and the model holds {len(twins)} of these; "
            "give its path in the model as a string instead, such as decoder='head.decode'"
        )
    return twins[0] if decoder is owner else MethodType(decoder.__func__, twins[0])  # type: ignore[attr-defined]
