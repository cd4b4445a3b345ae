"""The public contract of a method, as a check that third-party methods can run in their own tests: `check_method`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.datasets.generated import community_graph, knowledge_graph
from gnndelete.datasets.negatives import triples
from gnndelete.datasets.splits import split_links, split_nodes
from gnndelete.engine.session import Session
from gnndelete.graph.batch import GraphBatch, collate
from gnndelete.graph.deletion import Deletion
from gnndelete.methods.base import Context, Method, Reason, plain
from gnndelete.models import GCN, RGCN, build
from gnndelete.nn.forward import call
from gnndelete.notes import MEANING
from gnndelete.result import Unlearned
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, Task
from gnndelete.training.loop import LoopFit, train
from gnndelete.unlearner import Unlearner


def check_method(make: Callable[[], Method], seed: int = 0, device: str = "cpu") -> list[str]:
    """Try a method on small tasks of every kind, with every kind of deletion.

    The tasks are links and nodes of one graph, links of a typed graph, and many graphs. Whatever the method does not fit
    must come with a reason and a remedy, and the method must serve something.

    Args:
        make: Returns the method, with whatever settings you want to check.
        seed: The seed of models, graphs and deletions.
        device: Where to run.

    Returns:
        The combinations that were served, such as ``"link/edges"``.

    Raises:
        AssertionError: If the method breaks the contract, with what is wrong.

    >>> from gnndelete.methods import Unlink
    >>> served = check_method(Unlink)
    >>> [name for name in served if name.startswith(("link", "typed", "graph"))]
    ['link/edges', 'link/nodes', 'link/features', 'link/labels', 'typed/edges', 'typed/relations', 'graph/edges', 'graph/graphs']
    """
    _check_class(make)
    served = []
    for name in ("link", "node", "typed", "graph"):
        model, data, task = problem(name, seed)
        requests = _requests(data)
        model, data = model.to(device), data.to(device)
        for kind, pair in requests.items():
            reasons = _reasons(make(), model, data, task, pair[0])
            if reasons:
                continue
            _check_deletions(make, model, data, task, pair, f"{name}/{kind}", seed)
            served.append(f"{name}/{kind}")
    assert served, f"method '{make().name}' serves none of the combinations; say in unfit() what it is for"
    return served


def _requests(data: Data) -> dict[str, tuple[Deletion, Deletion]]:
    """Two requests of each kind that the graph has, to be made one after the other."""
    chosen = [data.edge_index[:, [place]] for place in (0, 7)]
    if "edge_type" in data:
        chosen = [triples(data)[:, [place]] for place in (0, 7)]
    found = {"edges": (Deletion(edges=chosen[0]), Deletion(edges=chosen[1]))}
    if "edge_type" in data:
        return found | {"relations": (Deletion(relations=[1]), Deletion(relations=[2]))}
    if isinstance(data, GraphBatch):
        return found | {"graphs": (Deletion(graphs=[3]), Deletion(graphs=[4]))}
    return found | {
        "nodes": (Deletion(nodes=[3]), Deletion(nodes=[11])),
        "features": (Deletion(features=[3]), Deletion(features={11: [0, 2]}, fill=0.5)),
        "labels": (Deletion(labels=[3]), Deletion(labels=[11])),
    }


def problem(name: str, seed: int = 0) -> tuple[nn.Module, Data, Task]:
    """Train a small model to try things on.

    Args:
        name: ``"link"``, ``"node"``, ``"typed"`` (links of a typed graph) or ``"graph"``.
        seed: The seed of the graph and of the training.

    Returns:
        The model, its graph and its task.
    """
    data, task, make = _parts(name, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make()
    train(model, data, task, epochs=20, lr=0.01, seed=seed)
    return model, data, task


def _parts(name: str, seed: int) -> tuple[Data, Task, Callable[[], nn.Module]]:
    if name == "graph":
        return _graphs(seed), GraphClassification(), lambda: build("gcn", 8, hidden=8, out=2, num_layers=2, pool="mean")
    if name == "typed":
        graph = knowledge_graph(120, 480, 3, community=40, seed=seed)
    else:
        graph = community_graph(120, 800, 8, classes=3, community=40, seed=seed)
    if name == "node":
        return split_nodes(graph, seed=seed, train=0.6, val=0.2), NodeClassification(), lambda: GCN(8, hidden=8, out=3)
    split = split_links(graph, seed=seed, val=0.1, test=0.1)
    decoder = "distmult" if name == "typed" else "dot"
    task = LinkPrediction(validation=split.validation, test=split.test, seed=seed, decoder=decoder)
    task.check(split.data)
    if name == "typed":
        return split.data, task, lambda: RGCN(120, 3, embedding=8, hidden=8, out=4)
    return split.data, task, lambda: GCN(8, hidden=8, out=4)


def _graphs(seed: int) -> GraphBatch:
    """Rings of two classes, told apart by their features."""
    generator = torch.Generator().manual_seed(seed)
    listed = []
    for index in range(24):
        around = torch.arange(5 + index % 3)
        ends = torch.stack([around, around.roll(-1)])
        x = torch.randn(around.numel(), 8, generator=generator) + index % 2
        listed.append(Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=torch.tensor([index % 2])))
    parts = torch.arange(24).split([12, 6, 6])
    return collate(listed, dict(zip(("train", "valid", "test"), parts, strict=True)))


def _check_class(make: Callable[[], Method]) -> None:
    method = make()
    assert isinstance(method, Method), f"{method!r} is no gnndelete.Method"
    assert isinstance(method.name, str), "'name' must be a string"
    assert method.assurance in MEANING, f"'assurance' must be one of {', '.join(MEANING)} (got {method.assurance!r})"
    assert method.needs in ("nothing", "a loss", "a training function"), f"'needs' is {method.needs!r}"
    assert method.summary, "'summary' must say in a few words what the method does"
    json.dumps(plain(method.settings()))
    assert repr(method).startswith(type(method).__name__)


def _reasons(method: Method, model: nn.Module, data: Data, task: Task, deletion: Deletion) -> list[Reason]:
    context = Context(Session(model, data, call), task=task).for_deletion(deletion.check(data))
    reasons = method.unfit(context)
    for reason in reasons:
        assert reason.why, "a reason must say why"
        assert reason.remedy, f"the reason '{reason.why}' must say what to do about it"
    return reasons


def _check_deletions(
    make: Callable[[], Method],
    model: nn.Module,
    data: Data,
    task: Task,
    pair: tuple[Deletion, Deletion],
    where: str,
    seed: int,
) -> None:
    before = copy.deepcopy(model.state_dict()), data.clone(), model.training, torch.random.get_rng_state()

    def serve() -> tuple[Unlearned, Tensor]:
        unlearner = Unlearner(model, data, task=task, method=make(), fit=_fit(task), seed=seed)
        unlearner.delete(pair[0])
        result = unlearner.delete(pair[1])
        assert result.history == unlearner.history, f"{where}: the history is not on the result"
        return result, result.predict(_elements(task, data))

    result, scores = serve()
    count = _elements(task, data).size(-1)
    assert scores.size(0) == count, f"{where}: predict gave {list(scores.shape)} for {count} elements"
    assert bool(torch.isfinite(scores).all()), f"{where}: predict gave NaN or infinite values"
    if not task.pairwise:
        assert torch.allclose(scores.sum(dim=-1).double().cpu(), torch.ones(count).double()), (
            f"{where}: class probabilities do not sum to 1"
        )
    assert result.assurance in MEANING, f"{where}: assurance {result.assurance!r}"
    assert result.seconds > 0, f"{where}: no time was measured"
    assert result.parameters >= 0, f"{where}: {result.parameters} parameters"
    assert (result.model is None) or (type(result.model) is type(model)), f"{where}: another class of model came back"
    _check_untouched(before, model, data, where)
    assert result.data is not None
    together = (pair[0] | pair[1]).check(data)
    remaining = together.remaining(data)
    left = {tuple(edge) for edge in _edges(result.data).t().tolist()}
    gone = {tuple(edge) for edge in together.edges.t().tolist()}
    assert not left & gone, f"{where}: deleted edges are still in the remaining graph"
    if "x" in remaining:
        same = torch.equal(result.data.x, remaining.x)
        assert same, f"{where}: the remaining graph has other features than the deletion leaves"
    if "y" in remaining:
        assert torch.equal(result.data.y, remaining.y), f"{where}: deleted labels are still in the remaining graph"
    _, again = serve()
    near = None if scores.device.type == "cpu" else 0.01  # a GPU adds in no fixed order
    torch.testing.assert_close(
        again, scores, rtol=near, atol=near, msg=lambda text: f"{where}: the same seed gave other scores. {text}"
    )


def _check_untouched(before: tuple[Any, ...], model: nn.Module, data: Data, where: str) -> None:
    state, graph, training, rng = before
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), f"{where}: the user's weight '{name}' has changed"
    assert all(p.grad is None for p in model.parameters()), f"{where}: gradients were left on the user's model"
    assert model.training == training, f"{where}: the user's model changed between training and evaluation mode"
    for name, value in data.to_dict().items():
        same = torch.equal(value, graph[name]) if isinstance(value, Tensor) else value == graph[name]
        assert same, f"{where}: the user's graph has changed in '{name}'"
    assert torch.equal(torch.random.get_rng_state(), rng), f"{where}: the global random state was used"


def _edges(data: Data) -> Tensor:
    return triples(data) if "edge_type" in data else data.edge_index


def _elements(task: Task, data: Data) -> Tensor:
    if task.pairwise:
        return _edges(data)[:, 20:40]
    return torch.arange(6, 20) if isinstance(data, GraphBatch) else torch.arange(20, 40)


def _fit(task: Task) -> LoopFit:
    return LoopFit(task, {"epochs": 10, "lr": 0.01})


__all__ = ["check_method", "problem"]
