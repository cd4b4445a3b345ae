"""Marks: can the nodes of a deletion be told from others by what a model says of them, even without asking about the deletion?

A deletion that shrinks, smooths or overwrites rows near it can bring each deleted element to the right score and still leave
a mark on these nodes. `edge_features`, `node_features` and `class_features` describe elements as a model sees their nodes;
`tell_apart` lets a classifier that need not be monotone look for the mark. Calibration asks this on validation data, the audit
on test data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnndelete.graph.edge_table import ends_of
from gnndelete.metrics.ranking import Floats
from gnndelete.metrics.unseen_test import UnseenTest

#: Scores of pairs ``[2, k]`` or triples ``[3, k]``, in double precision on the CPU.
Scores = Callable[[Tensor], Tensor]

#: Other nodes that every node is scored with, and edges at the nodes in question that are asked about at most.
PARTNERS, EDGE_LIMIT = 48, 60_000
#: Parts of the cross-validation, and how often it is repeated with fewer elements than the second number: it is noisy there.
FOLDS, ROUNDS, FEW = 5, 2, 400


@dataclass(frozen=True)
class Answers:
    """What a model says on one graph.

    Args:
        scores: Gives the scores of pairs.
        rows: The representation of every node ``[n, d]``; None where the model shows none.
        learned: Edges of the graph, each once, ``[2, k]`` or triples ``[3, k]``.
        nodes: The number of nodes.
        seed: Draws the other nodes that each node is scored with.
    """

    scores: Scores
    rows: Tensor | None
    learned: Tensor
    nodes: int
    seed: int = 0

    def sample(self, elements: Tensor, count: int, offset: int) -> Tensor:
        """At most ``count`` elements in random order."""
        order = torch.randperm(elements.size(-1), generator=torch.Generator().manual_seed(self.seed + offset))
        return elements[..., order[:count]]


def edge_features(answers: Answers, edges: Tensor) -> dict[str, Floats]:
    """What is seen of edges: ``"ends"`` by their nodes alone, and ``"pairs"`` with the score of the edge itself.

    Args:
        answers: The model.
        edges: Pairs ``[2, k]`` or triples ``[3, k]``.

    Returns:
        A row per edge, the same for both directions.
    """
    source, *relation, target = edges
    sides = [
        node_features(answers, torch.stack([source, *relation]), first=True),
        node_features(answers, torch.stack([target, *relation]), first=False),
    ]
    ends = np.concatenate([np.minimum(*sides), np.maximum(*sides)], axis=1)  # so that direction plays no part
    score = answers.scores(edges).numpy()
    beyond = [(score - side[:, 0]) / (side[:, 1] + 1e-9) for side in sides]  # in units of what each end scores
    return {"ends": ends, "pairs": np.column_stack([ends, score, np.minimum(*beyond), np.maximum(*beyond)])}


def node_features(answers: Answers, named: Tensor, first: bool = True) -> Floats:
    """Level and spread of a node's scores with others and with its neighbours, its row and its degree.

    Args:
        answers: The model.
        named: The nodes ``[1, k]``; on a typed graph, with a relation for each ``[2, k]``.
        first: Whether they are the first end of an edge.

    Returns:
        A row per node.
    """
    learned = answers.learned
    asked, place = torch.unique(named, dim=1, return_inverse=True)
    ids = asked[0]
    others = answers.sample(learned[-1 if first else 0].unique(), PARTNERS, 33)
    repeated, partners = asked.repeat_interleave(others.numel(), dim=1), others.repeat(ids.numel())
    ends = [repeated[0], partners] if first else [partners, repeated[0]]
    scores = answers.scores(torch.stack([ends[0], *repeated[1:], ends[1]])).view(ids.numel(), others.numel())
    near = answers.sample(learned[:, torch.isin(ends_of(learned), ids).any(dim=0)], EDGE_LIMIT, 34)
    own = answers.scores(near)
    mean, degree = _mean_at_ends(own, near, answers.nodes)
    spread = (_mean_at_ends(own.square(), near, answers.nodes)[0] - mean.square()).clamp(min=0).sqrt()
    columns = [scores.mean(1), scores.std(1), scores.min(1).values, scores.max(1).values, scores.median(1).values]
    columns += [mean[ids], spread[ids], mean[ids] - scores.mean(1), degree[ids]]
    if answers.rows is not None:
        columns += row_features(answers.rows, ids, near)
    return np.asarray(torch.stack(columns, dim=1).numpy()[place.numpy()])


def class_features(chances: Tensor, rows: Tensor | None, nodes: Tensor, edges: Tensor, degree: Tensor) -> Floats:
    """The class probabilities of nodes, how sure they are, and how far they agree with their neighbours'.

    Args:
        chances: The class probabilities of every node.
        rows: The representation of every node; None where the model shows none.
        nodes: The nodes ``[k]``.
        edges: The edges at these nodes.
        degree: The degree of every node.

    Returns:
        A row per node.
    """
    logs = chances[nodes].clamp(min=1e-12).log()
    columns = [*logs.sort(dim=1, descending=True).values.t()[:5], -(chances[nodes] * logs).sum(dim=1), degree[nodes]]
    columns += row_features(chances, nodes, edges)[3:]
    if rows is not None:
        columns += row_features(rows, nodes, edges)
    return np.asarray(torch.stack(columns, dim=1).numpy())


def row_features(z: Tensor, ids: Tensor, edges: Tensor) -> list[Tensor]:
    """The length of each row, its mean and largest entry, and how like its neighbours' rows it is."""
    unit = z / z.norm(dim=1, keepdim=True).clamp(min=1e-12)
    u, v = ends_of(edges)
    alike, _ = _mean_at_ends((unit[u] * unit[v]).sum(dim=1), edges, z.size(0))
    return [z[ids].norm(dim=1), z[ids].mean(dim=1), z[ids].abs().max(dim=1).values, alike[ids]]


def _mean_at_ends(values: Tensor, edges: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """The mean over the edges of each node, and their number."""
    total, degree = torch.zeros(nodes, dtype=torch.double), torch.zeros(nodes, dtype=torch.double)
    for end in ends_of(edges):
        total.index_add_(0, end, values)
        degree.index_add_(0, end, torch.ones_like(values))
    return total / degree.clamp(min=1), degree


def tell_apart(features: Floats, count: int, seed: int = 0) -> UnseenTest:
    """How well a classifier tells the first ``count`` elements from the others: cross-validated answers, as one test.

    Args:
        features: A row per element.
        count: The number of elements of the first kind.
        seed: Divides the elements into parts.

    Returns:
        The test; its ``auc`` is 0.5 where nothing tells them, and ``against`` compares two models.

    >>> marked = np.random.default_rng(0).normal(size=(200, 2)) * np.repeat([[0.1], [1.0]], 100, axis=0)
    >>> tell_apart(marked, 100).auc > 0.9
    True
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # takes a second to import
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    kinds = (np.arange(len(features)) < count).astype(int)
    answers = np.zeros(len(features))
    for turn in range(ROUNDS if min(count, len(features) - count) < FEW else 1):
        trees = HistGradientBoostingClassifier(
            max_iter=50, max_depth=4, min_samples_leaf=10, early_stopping=False, random_state=seed + turn
        )
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed + turn)
        answers += cross_val_predict(trees, features, kinds, cv=folds, method="predict_proba")[:, 1]
    whole = [(np.arange(count), np.arange(len(answers) - count))]
    return UnseenTest(whole, torch.from_numpy(answers[:count]), torch.from_numpy(answers[count:]))


def tell_by_quadratics(features: Floats, count: int) -> UnseenTest:
    """`tell_apart` in milliseconds, for calibration: logistic regression on features and their products, cross-validated.

    Args:
        features: A row per element.
        count: The number of elements of the first kind.

    Returns:
        The test.

    >>> marked = np.random.default_rng(0).normal(size=(200, 2)) * np.repeat([[0.1], [1.0]], 100, axis=0)
    >>> tell_by_quadratics(marked, 100).auc > 0.8
    True
    """
    from sklearn.linear_model import LogisticRegression  # takes a second to import
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    kinds = (np.arange(len(features)) < count).astype(int)
    model = make_pipeline(StandardScaler(), PolynomialFeatures(2), StandardScaler(), LogisticRegression(C=0.1))
    parts = StratifiedKFold(min(FOLDS, count, len(features) - count), shuffle=True, random_state=0)
    answers = cross_val_predict(model, features, kinds, cv=parts, method="decision_function")
    whole = [(np.arange(count), np.arange(len(answers) - count))]
    return UnseenTest(whole, torch.from_numpy(answers[:count]), torch.from_numpy(answers[count:]))
