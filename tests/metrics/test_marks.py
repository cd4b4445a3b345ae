"""Marks: rows that were shrunk are told by their nodes alone; equal rows are not."""

from __future__ import annotations

import torch

from gnndelete.metrics.marks import Answers, class_features, edge_features, node_features, tell_apart


def graph(shrunk: float) -> tuple[Answers, torch.Tensor]:
    """A random graph in which some nodes have shorter rows, and 200 pairs of these before 200 pairs of others."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1200, 8, generator=generator, dtype=torch.double)
    z[:400] *= shrunk
    learned = torch.randint(1200, (2, 6000), generator=generator)
    return Answers(lambda e: (z[e[0]] * z[e[-1]]).sum(1), z, learned, 1200), torch.arange(800).view(400, 2).t()


def test_short_rows_are_told_by_the_ends_alone() -> None:
    answers, edges = graph(0.5)
    assert tell_apart(edge_features(answers, edges)["ends"], 200).auc > 0.9
    assert tell_apart(node_features(answers, edges[:1]), 200).auc > 0.9
    answers, edges = graph(1.0)
    assert abs(tell_apart(edge_features(answers, edges)["ends"], 200).auc - 0.5) < 0.15


def test_classes_of_nodes_are_described_with_and_without_rows() -> None:
    chances = torch.rand(20, 6, dtype=torch.double).softmax(dim=1)
    edges, nodes = torch.randint(20, (2, 60)), torch.arange(5)
    degree = torch.ones(20, dtype=torch.double)
    assert class_features(chances, None, nodes, edges, degree).shape == (5, 8)
    assert class_features(chances, chances, nodes, edges, degree).shape == (5, 12)
