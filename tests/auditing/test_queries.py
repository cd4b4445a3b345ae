"""What is asked under a new id, where the model has parameters of single nodes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import gnndelete as gd
from gnndelete.auditing.case import open_case
from gnndelete.auditing.queries import NO_ROW, _try_on_cpu, ask, renamed
from gnndelete.testing import problem


class Biased(gd.models.GCN):
    """A link model with a trained number for each node, as recommenders have."""

    def __init__(self, nodes: int) -> None:
        super().__init__(8, hidden=8, out=4)
        self.bias = nn.Embedding(nodes, 1)

    def decode(self, z: Tensor, edges: Tensor) -> Tensor:
        return (z[edges[0]] * z[edges[1]]).sum(dim=-1) + self.bias(edges).sum(dim=0).view(-1)


def biased(deletion: gd.Deletion) -> gd.Unlearned:
    _, data, task = problem("link")
    task = gd.LinkPrediction(validation=task.validation.positives, test=task.test.positives, decoder="decode")
    torch.manual_seed(0)
    model = Biased(data.num_nodes)
    gd.train(model, data, task, epochs=5)
    return gd.Unlearner(
        model, data, task=task, method=gd.GNNDelete(lam=0.1), fit=lambda model, data, seed: model
    ).delete(deletion)


def some_edges() -> Tensor:
    """Not those of node 0, which keeps its id."""
    edges = problem("link")[1].edge_index
    return edges[:, (edges != 0).all(dim=0)][:, :40]


@pytest.mark.parametrize(
    "deletion", [gd.Deletion(edges=some_edges()), gd.Deletion(nodes=[3, 5, 8])], ids=["edges", "nodes"]
)
def test_a_decoder_with_a_bias_per_node_has_none_for_a_new_id(deletion: gd.Deletion) -> None:
    found = gd.audit(biased(deletion)).to_dict()
    tests = found["forgetting"]["unseen"]
    reason = "the model has parameters per node, such as an embedding table, and none for a new id"
    assert tests["new_id"]["reason"] == reason
    returning = [limit for limit in found["limits"] if "that comes back" in limit]
    assert len(returning) == bool(deletion.nodes.numel())
    assert all("must be trained with one for that id first" in limit for limit in returning)
    assert tests["served"]["available"]
    assert tests["old_id"]["available"]
    assert found["membership"]["available"], found["membership"]
    assert found["trend"]["available"] == bool(deletion.edges.numel())


def test_where_the_graph_is_on_cuda_the_cpu_is_asked_first() -> None:
    unlearned = biased(gd.Deletion(edges=some_edges()))
    case = open_case(unlearned)
    graph, move = renamed(case)
    with pytest.raises(IndexError):
        _try_on_cpu(case, "after", unlearned.model, graph, move)
    with torch.no_grad():
        unlearned.model.bias = nn.Embedding(graph.num_nodes, 1)
    _try_on_cpu(case, "after", unlearned.model, graph, move)


def test_a_table_without_a_row_is_told_from_other_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    case = open_case(biased(gd.Deletion(edges=some_edges())))

    def reason(text: str, query: str) -> str:
        def fail(*_: object) -> None:
            raise RuntimeError(text)

        monkeypatch.setattr("gnndelete.auditing.queries._answering", fail)
        return ask(case, query, case.subjects["after"]).reason

    missing = "index 500 is out of bounds for dimension 0 with size 500"
    assert reason(missing, "new_id") == NO_ROW
    assert "(RuntimeError: index 500 is out of bounds" in reason(missing, "old_id")
    assert "(RuntimeError: my own check)" in reason("my own check", "new_id")
