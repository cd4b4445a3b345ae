"""The public contract of a method, as a check that third-party methods can run in their own tests: `check_method`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.assurance import MEANING
from gnndelete.datasets.generated import community_graph
from gnndelete.datasets.splits import split_links, split_nodes
from gnndelete.deletion import Deletion
from gnndelete.forward import call
from gnndelete.methods.base import Context, Method, Reason
from gnndelete.models import GCN
from gnndelete.prepared import Prepared
from gnndelete.tasks import LinkPrediction, NodeClassification, Task
from gnndelete.training import train
from gnndelete.unlearned import Unlearned
from gnndelete.unlearner import Unlearner


def check_method(make: Callable[[], Method], seed: int = 0) -> list[str]:
    """Try a method on small link and node tasks, with every kind of deletion, and raise where it breaks the contract.

    Returns the combinations that were served, such as ``"link/edges"``; what the method declares unfit must come with
    a reason and a remedy, and something must be served.

    >>> from gnndelete.methods import Unlink
    >>> check_method(Unlink)
    ['link/edges', 'link/nodes', 'link/features', 'link/labels', 'node/edges', 'node/nodes', 'node/features', 'node/labels']
    """
    _check_class(make)
    served = []
    for name in ("link", "node"):
        model, data, task = problem(name, seed)
        first, second = data.edge_index[:, [0]], data.edge_index[:, [7]]
        requests = {
            "edges": (Deletion(edges=first), Deletion(edges=second)),
            "nodes": (Deletion(nodes=[3]), Deletion(nodes=[11])),
            "features": (Deletion(features=[3]), Deletion(features={11: [0, 2]}, fill=0.5)),
            "labels": (Deletion(labels=[3]), Deletion(labels=[11])),
        }
        for kind, pair in requests.items():
            reasons = _reasons(make(), model, data, task, pair[0])
            if reasons:
                continue
            _check_deletions(make, model, data, task, pair, f"{name}/{kind}", seed)
            served.append(f"{name}/{kind}")
    assert served, f"method '{make().name}' serves none of the combinations; say in unfit() what it is for"
    return served


def problem(name: str, seed: int = 0) -> tuple[nn.Module, Data, Task]:
    """A small trained model with its graph and task: ``"link"`` or ``"node"``."""
    graph = community_graph(120, 800, 8, classes=3, community=40, seed=seed)
    data: Data
    task: Task
    if name == "link":
        split = split_links(graph, seed=seed, val=0.1, test=0.1)
        data, task = split.data, LinkPrediction(heldout=split.heldout, test=split.test, seed=seed)
        task.check(data)
    else:
        data, task = split_nodes(graph, seed=seed, train=0.6, val=0.2), NodeClassification()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GCN(8, hidden=8, out=4 if name == "link" else 3)
    train(model, data, task, epochs=20, lr=0.01, seed=seed)
    return model, data, task


def _check_class(make: Callable[[], Method]) -> None:
    method = make()
    assert isinstance(method, Method), f"{method!r} is no gnndelete.Method"
    assert isinstance(method.name, str), "'name' must be a string"
    assert method.assurance in MEANING, f"'assurance' must be one of {', '.join(MEANING)} (got {method.assurance!r})"
    assert method.needs in ("nothing", "a loss", "a training function"), f"'needs' is {method.needs!r}"
    assert method.summary, "'summary' must say in a few words what the method does"
    json.dumps(method.settings())
    assert repr(method).startswith(type(method).__name__)


def _reasons(method: Method, model: nn.Module, data: Data, task: Task, deletion: Deletion) -> list[Reason]:
    context = Context(Prepared(model, data, call), task=task, deletion=deletion, request=deletion)
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
    if isinstance(task, NodeClassification):
        assert torch.allclose(scores.sum(dim=-1).double(), torch.ones(count).double()), (
            f"{where}: class probabilities do not sum to 1"
        )
    assert result.assurance in MEANING, f"{where}: assurance {result.assurance!r}"
    assert result.seconds > 0, f"{where}: no time was measured"
    assert result.parameters >= 0, f"{where}: {result.parameters} parameters"
    assert (result.model is None) or (type(result.model) is type(model)), f"{where}: another class of model came back"
    _check_untouched(before, model, data, where)
    assert result.data is not None
    left = {tuple(edge) for edge in result.data.edge_index.t().tolist()}
    gone = {tuple(edge) for request in pair for edge in request.edges.t().tolist()}
    assert not left & gone, f"{where}: deleted edges are still in the remaining graph"
    together = (pair[0] | pair[1]).check(data)
    same = torch.equal(result.data.x, together.remaining(data).x)
    assert same, f"{where}: the remaining graph has other features than the deletion leaves"
    assert bool((result.data.y[together.labels] == -1).all()), (
        f"{where}: deleted labels are still in the remaining graph"
    )
    _, again = serve()
    torch.testing.assert_close(again, scores, msg=lambda text: f"{where}: the same seed gave other scores. {text}")


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


def _elements(task: Task, data: Data) -> Tensor:
    return data.edge_index[:, 20:40] if isinstance(task, LinkPrediction) else torch.arange(20, 40)


def _fit(task: Task) -> Callable[[nn.Module, Data, int], nn.Module]:
    def fit(model: nn.Module, data: Data, seed: int) -> nn.Module:
        train(model, data, task, epochs=10, lr=0.01, seed=seed)
        return model

    return fit


__all__ = ["check_method", "problem"]
