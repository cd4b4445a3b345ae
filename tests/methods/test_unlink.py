"""Unlink: the base model on the remaining graph, and nothing else."""

from __future__ import annotations

import torch

import gnndelete as gd


def test_weights_stay_and_the_graph_is_cut(graph, gcn, run):
    unlearned = gd.Unlearner(gcn, graph, method="unlink").delete(gd.Deletion(edges=[(3, 4)], nodes=[9]))
    assert torch.equal(run(unlearned.model, unlearned.data), run(gcn, unlearned.data))
    assert not torch.equal(unlearned.output(), run(gcn, graph))
    assert unlearned.model is not gcn
    assert unlearned.parameters == 0
    assert unlearned.adapter is None
    assert unlearned.assurance == "inference-only"
    assert any("No weight was changed" in note.text for note in unlearned.notes)


def test_a_kept_normalised_graph_does_not_bring_the_edges_back(make_subject, run):
    subject = make_subject("gcn-cached")
    unlearned = subject.unlearner("unlink").delete(subject.deletion)
    assert torch.equal(run(unlearned.model, unlearned.data), run(subject.base(), unlearned.data))
    assert not torch.equal(run(unlearned.model, unlearned.data), run(subject.base(), subject.data))
