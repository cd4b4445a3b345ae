"""Every cell of models x deletion kinds x tasks: it is run and its properties hold, or the user is told why not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete import Deletion
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.edge_table import Neighborhood
from gnndelete.graph.kinds import KINDS as DELETION_KINDS
from gnndelete.graph.validation import edge_table
from gnndelete.nn.forward import call, evaluating
from gnndelete.tasks import resolver as tasks

from .conftest import HIDDEN, NODES, OUT, WIDTH, make_graph

GLOBAL = ("gps", "graphormer")
TYPED = ("rgcn", "rgat")
TABLES = ("embeddinggcn", "embeddingsage", "lightgcn")
MODELS = ("gcn", "gat", "gin", *TABLES, *TYPED, *GLOBAL)
KINDS = ("edges", "nodes", "features", "labels", "relations", "graphs", "subgraph", "mixed")
LINKS = ("link", "ranking")
TASKS = (*LINKS, "node", "graph", "typed link")

#: Cells that are not served, by model, kind and task (None: all), and what the user is told.
REASONS: dict[tuple[Any, Any, Any], str] = {
    (
        TYPED,
        None,
        (*LINKS, "node"),
    ): "'RG(CN|AT)' needs the argument 'edge_type', and the graph has no attribute of that",
    ((*TABLES, *TYPED), None, ("graph",)): "a trained vector for every node it was made for.*cannot be pooled",
    (
        None,
        ("relations",),
        (*LINKS, "node", "graph"),
    ): "relations= is given, but the graph has no 'edge_type'; name edges=",
    (
        None,
        ("graphs",),
        (*LINKS, "node", "typed link"),
    ): "graphs= names whole graphs, and the data is one graph; .*nodes=",
    (None, ("labels",), ("graph",)): "'y' holds one label per graph; .*graphs=",
}


def reasons(*cell: str) -> list[str]:
    return [text for key, text in REASONS.items() if all(k is None or c in k for k, c in zip(key, cell, strict=True))]


# What each task works on


def typed_graph() -> Data:
    """The long thin graph once, with three relations: the last one at its beginning only."""
    plain = make_graph()
    forward = plain.edge_index[:, plain.edge_index[0] < plain.edge_index[1]]
    place = torch.arange(forward.size(1))
    return Data(x=plain.x, y=plain.y, edge_index=forward, edge_type=torch.where(place < 4, 2, place % 2))


def graph_set() -> gd.datasets.GraphBatch:
    """Twelve rings with a chord, of five to seven nodes."""
    generator = torch.Generator().manual_seed(3)
    listed = []
    for index in range(12):
        size = 5 + index % 3
        around = torch.arange(size)
        ends = torch.cat([torch.stack([around, around.roll(-1)]), torch.tensor([[0], [2]])], dim=1)
        x = torch.randn(size, WIDTH, generator=generator)
        listed.append(Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=torch.tensor([index % 2])))
    return gd.datasets.collate(listed, {"train": list(range(6)), "valid": [6, 7, 8], "test": [9, 10, 11]})


GRAPHS: dict[str, Callable[[], Data]] = {"typed link": typed_graph, "graph": graph_set}


@cache
def graph_of(task: str) -> Data:
    return GRAPHS.get(task, make_graph)()


def task_of(name: str, task: str) -> gd.Task:
    if task == "typed link":  # without vectors for relations a model scores the pair alone
        return gd.LinkPrediction(decoder="distmult" if name in TYPED else "dot")
    return tasks.make(task)


def build(name: str, task: str) -> nn.Module:
    options: dict[str, Any] = {"heads": 2} if name in GLOBAL else {}
    if name in TABLES and task != "graph":
        options = {"num_nodes": NODES}
    if name in TYPED and task != "graph":
        options = {"num_nodes": NODES, "num_relations": 3, "embedding": HIDDEN}
    if task == "graph":
        options["pool"] = "mean"
    if name != "lightgcn" or task == "graph":  # it has vectors of nodes alone, as wide as its output
        options |= {"in_channels": WIDTH, "hidden": HIDDEN}
    torch.manual_seed(7)
    model = gd.models.build(name, out=OUT if task == "node" else 2, num_layers=2, **options)
    with torch.no_grad():
        for parameter in model.parameters():  # no layer may be trivial: initial biases are zero
            parameter.normal_(0, 0.5)
    return model


def requests(task: str) -> dict[str, Deletion]:
    """One request of each kind in the terms of the task's graph; also those that it cannot serve."""
    data = graph_of(task)
    if task == "graph":
        assert isinstance(data, gd.datasets.GraphBatch)
        found = {
            "edges": Deletion(edges=data.at(1, [[0], [1]])),
            "nodes": Deletion(nodes=data.at(2, [3])),
            "features": Deletion(features=data.at(3, [0, 1])),
            "graphs": Deletion(graphs=[4]),
        }
        return found | {
            "labels": Deletion(labels=[1]),
            "relations": Deletion(relations=[0]),
            "subgraph": Deletion.of_subgraph(data, data.at(1, [0, 1, 2])),
            "mixed": found["edges"] | found["nodes"] | found["features"] | found["graphs"],
        }
    pairs = [(3, 4), (5, 7)]
    if task == "typed link":
        kinds = dict(zip(zip(*data.edge_index.tolist(), strict=True), data.edge_type.tolist(), strict=True))
        named: list[Any] = [(head, kinds[head, tail], tail) for head, tail in pairs]
    found = {
        "edges": Deletion(edges=named if task == "typed link" else pairs),
        "nodes": Deletion(nodes=[9, 30]),
        "features": Deletion(features=[(node, 2) for node in (0, 14, 15)], fill=0.5),
        "labels": Deletion(labels=[36]),
    }
    if task == "typed link":
        found["relations"] = Deletion(relations=[2])
    whole = found["edges"]
    for part in found.values():
        whole = whole | part
    return {
        "relations": Deletion(relations=[0]),
        **found,
        "graphs": Deletion(graphs=[0]),
        "subgraph": Deletion.of_subgraph(data, [0, 1, 2, 3]),
        "mixed": whole,
    }


# The table


def test_the_table_is_whole() -> None:
    assert set(MODELS) == set(gd.models.resolver.lookup_dict)
    assert set(DELETION_KINDS) <= set(KINDS)
    assert {task.name for task in tasks.lookup_dict.values()} <= set(TASKS)
    for task in TASKS:
        assert set(requests(task)) == set(KINDS)
    for key, text in REASONS.items():
        cells = itertools.product(MODELS, KINDS, TASKS)
        assert any(text in reasons(*cell) for cell in cells), f"no cell has the reason {key}"


def output(model: nn.Module, data: Data) -> Tensor:
    with evaluating(model):
        return call(model, data)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_cell(name: str, kind: str, task: str) -> None:
    data, deletion = graph_of(task), requests(task)[kind]
    before = {key: value.clone() for key, value in data.to_dict().items() if isinstance(value, Tensor)}

    def serve(model: nn.Module, lam: float) -> gd.Unlearned:
        return gd.Unlearner(model, data, task=task_of(name, task), method=gd.GNNDelete(lam=lam)).delete(deletion)

    if told := reasons(name, kind, task):
        with pytest.raises(GNNDeleteError) as caught:
            serve(build(name, task), 0.4)
        assert any(re.search(text, str(caught.value)) for text in told), caught.value
        return
    model = build(name, task)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    unlearned, remaining = serve(model, 0.4), deletion.remaining(data)
    check_answers(unlearned, task)
    assert all(torch.equal(value, unlearned.data[key]) for key, value in remaining.to_dict().items() if key in before)
    assert torch.equal(serve(model, 0.0).output(), output(model, remaining)), "lam=0 is the cut graph and nothing else"
    learned = kind != "labels" or task in ("node", "graph")
    acts = not torch.equal(output(unlearned.model, data), output(model, data))
    assert acts == learned, "presented again, what was deleted gets another answer, if it had been learned"
    if learned:
        check_locality(unlearned, model, data, deletion.check(data), name in GLOBAL)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert all(torch.equal(data[key], value) for key, value in before.items())


def check_answers(unlearned: gd.Unlearned, task: str) -> None:
    asked = {task: torch.tensor([[0, 7], [12, 40]]) for task in LINKS}
    asked["typed link"] = torch.tensor([[0, 7], [1, 0], [12, 40]])
    answers = unlearned.predict(asked.get(task, torch.arange(12)))
    assert bool(torch.isfinite(answers).all())
    if task in asked:
        assert answers.shape == (2,)
    else:
        assert answers.shape == (12, OUT if task == "node" else 2)
        torch.testing.assert_close(answers.sum(dim=1), torch.ones(12))


def check_locality(unlearned: gd.Unlearned, model: nn.Module, data: Data, deletion: Deletion, unbounded: bool) -> None:
    """Rows out of reach, and graphs that nothing was taken from, are those of the original model to the last bit."""
    served, original = unlearned.output(), output(model, data)
    if isinstance(data, gd.datasets.GraphBatch):
        outside = torch.ones(data.num_graphs, dtype=torch.bool)
        outside[data.batch[deletion.named_nodes]] = False
    else:
        hops = Neighborhood(edge_table(data), data.edge_index, "undirected")
        changed = torch.cat([deletion.named_nodes, hops.within(deletion.nodes, 1)])  # a node takes its edges along
        near = hops.within(changed.unique(), 2)
        outside = torch.ones(NODES, dtype=torch.bool).index_fill(0, near, False)
    assert bool(outside.any())
    said = any("distance does not bound its influence" in note.text for note in unlearned.notes)
    assert said == unbounded
    if not unbounded:
        assert torch.equal(served[outside], original[outside])
    elif isinstance(data, gd.datasets.GraphBatch):
        torch.testing.assert_close(served[outside], original[outside])  # graphs do not see each other
