"""Small models that remember: random features and sparse random graphs, trained until they know their training data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.auditing.case import Case, Subject
from gnndelete.datasets import split_links, split_nodes
from gnndelete.models import GCN
from gnndelete.nn.forward import call
from gnndelete.training.loop import train

EPOCHS = 150


def random_graph(nodes: int, edges: int, width: int, seed: int) -> Data:
    """Nothing in it can be learnt but its elements themselves."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes, (2, 2 * edges), generator=generator)
    pairs = torch.unique(pairs[:, pairs[0] < pairs[1]], dim=1)
    once = pairs[:, torch.randperm(pairs.size(1), generator=generator)[:edges]]
    return Data(
        x=torch.randn(nodes, width, generator=generator),
        edge_index=torch.cat([once, once.flip(0)], dim=1),
        y=torch.randint(3, (nodes,), generator=generator),
    )


def fit(task: gd.tasks.Task) -> Callable[[nn.Module, Data, int], nn.Module]:
    def run(model: nn.Module, data: Data, seed: int) -> nn.Module:
        # on validation data a model that memorises gets no better: keep the last weights, not the "best" ones
        train(model, data, task, epochs=EPOCHS, lr=0.01, seed=seed, validate_every=EPOCHS)
        return model

    return run


def make_case(
    unlearner: gd.Unlearner, deletion: gd.Deletion, reference: gd.Unlearner | None = None, **changes: Any
) -> Case:
    """The case of one request, as `audit` makes it."""
    unlearned = unlearner.delete(deletion)
    retrained = reference.delete(deletion) if reference is not None else None
    task = unlearned.task.without(deletion.nodes)
    served = {"after": unlearned, "reference": retrained}
    subjects = {"before": Subject.of_model("before", unlearner.model, unlearner.data, task, call)}
    for name, result in served.items():
        if result is not None and result.model is not None:
            subjects[name] = Subject.of_model(name, result.model, result.data, task, call)
        elif result is not None:
            subjects[name] = Subject(name, result.predict, result.data)
    values = {
        "unlearned": unlearned,
        "reference": retrained,
        "deletion": unlearned.deletion,
        "original": unlearner.data,
        "remaining": unlearned.data,
        "task": task,
        "base": unlearner.model,
        "subjects": subjects,
        "forward": call,
        "fit": unlearned.fit,
    }
    return Case(**{**values, **changes})


class World:
    """A model, its graph and task, and cases of deletions from it."""

    def __init__(self, task: str) -> None:
        graph = random_graph(240, 600, 48, seed=3)
        if task == "link":
            split = split_links(graph, seed=0, val=0.05, test=0.15)
            self.data = split.data
            self.task: gd.tasks.Task = gd.LinkPrediction(validation=split.validation, test=split.test)
            self.task.check(self.data)
        else:
            self.data, self.task = split_nodes(graph, seed=0, train=0.6, val=0.1), gd.NodeClassification()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model: nn.Module = GCN(48, hidden=64, out=32 if task == "link" else 3)
        self.fit = fit(self.task)
        self.fit(self.model, self.data, 0)

    def unlearner(self, method: Any, **options: Any) -> gd.Unlearner:
        return gd.Unlearner(self.model, self.data, task=self.task, method=method, fit=self.fit, **options)

    def case(self, method: Any, deletion: gd.Deletion, reference: bool = False, **changes: Any) -> Case:
        other = self.unlearner("retrain") if reference else None
        return make_case(self.unlearner(method), deletion, other, **changes)


@pytest.fixture(scope="package")
def links() -> World:
    """Link prediction on a random graph."""
    return World("link")


@pytest.fixture(scope="package")
def nodes() -> World:
    """Node classification with random labels."""
    return World("node")


@pytest.fixture(scope="package")
def edge_case(links: World) -> Case:
    """60 edges cut out of a link model that remembers them, and the retrained reference."""
    edges = gd.datasets.forget_edges(links.data, 60, seed=5)
    return links.case("unlink", gd.Deletion(edges=edges), reference=True)


@pytest.fixture(scope="package")
def node_case(nodes: World) -> Case:
    """30 training nodes cut out of a classifier that remembers them, and the retrained reference."""
    gone = gd.datasets.forget_nodes(nodes.data, 30, seed=5)
    return nodes.case("unlink", gd.Deletion(nodes=gone), reference=True)
