"""Digests of graphs: what changes them and what does not."""

from __future__ import annotations

import pytest
import torch

from gnndelete.graph.fingerprint import attributes, changed, fingerprint, tensor_digest


def test_the_order_of_edges_does_not_matter(graph):
    order = torch.randperm(graph.edge_index.size(1), generator=torch.Generator().manual_seed(0))
    other = graph.clone()
    other.edge_index, other.edge_weight = graph.edge_index[:, order], graph.edge_weight[order]
    other.edge_attr = graph.edge_attr[order]
    assert fingerprint(other) == fingerprint(graph)
    assert attributes(other, labels=True) == attributes(graph, labels=True)


@pytest.mark.parametrize("name", ["x", "edge_index"])
def test_nodes_features_and_edges_matter(graph, name):
    other = graph.clone()
    other[name] = other[name].clone()
    other[name][0, 0] = 7
    assert fingerprint(other) != fingerprint(graph)


def test_a_sparse_table_has_the_digest_of_its_entries(graph):
    sparse, compressed = graph.clone(), graph.clone()
    sparse.x, compressed.x = graph.x.to_sparse_coo(), graph.x.to_sparse_csr()
    assert fingerprint(sparse) == fingerprint(compressed)


def test_changed_attributes_are_named(graph):
    other = graph.clone()
    other.edge_weight, other.y = graph.edge_weight.flip(0), graph.y.flip(0)
    assert changed(attributes(graph), attributes(other)) == "'edge_weight'"
    assert "y" not in attributes(graph)
    assert "'y'" in changed(attributes(graph, labels=True), attributes(other, labels=True))
    assert changed({}, attributes(other)) == ""


def test_types_and_shapes_are_part_of_a_digest():
    value = torch.zeros(4)
    digests = {tensor_digest({"a": v}) for v in (value, value.double(), value.view(2, 2))} | {
        tensor_digest({"b": value})
    }
    assert len(digests) == 4
