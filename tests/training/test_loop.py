"""Training: reproducible, polite to the caller's random state and data, and always leaving the best weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GPSConv, Linear

from gnndelete.datasets import LinkSplit, load, split_graphs, split_links, split_nodes
from gnndelete.errors import GraphError, ModelError, RunError, SettingError
from gnndelete.models import build
from gnndelete.nn.forward import call, evaluating
from gnndelete.nn.reset import fresh
from gnndelete.tasks import LinkPrediction, NodeClassification
from gnndelete.training.loop import LoopFit, as_fitting, one_cycle, takes_course, train, usual_epochs

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]),
]


@pytest.fixture(scope="module")
def split() -> LinkSplit:
    return split_links(load("digits"), seed=0)


@pytest.fixture(scope="module")
def nodes() -> Data:
    return split_nodes(load("digits"), seed=0)


def small(out: int = 10, dropout: float = 0.0) -> nn.Module:
    return fresh(build("gcn", 64, hidden=16, out=out, dropout=dropout), seed=0)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("device", DEVICES)
def test_links_are_learned(split: LinkSplit, device: str) -> None:
    task = LinkPrediction(split.validation, split.test)
    model = small(out=16)
    with evaluating(model):
        before = task.evaluate(model, call(model, split.data), split.data)["auroc"]
    result = train(model, split.data, task, epochs=60, lr=0.01, device=device)
    assert next(model.parameters()).device.type == device
    model.cpu()
    with evaluating(model):
        after = task.evaluate(model, call(model, split.data), split.data)["auroc"]
        chosen = task.validate(model, call(model, split.data), split.data)
    assert after > max(before, 0.95)
    assert chosen == pytest.approx(result.best_score, abs=1e-4)  # the best weights are those in the model
    assert result.epochs_run == 60
    assert result.seconds > 0


@pytest.mark.parametrize("device", DEVICES)
def test_nodes_are_learned(nodes: Data, device: str) -> None:
    model = small()
    result = train(model, nodes, "node", epochs=30, lr=0.02, device=device)
    assert result.best_score is not None
    assert result.best_score > 0.9
    assert nodes.x.device.type == "cpu"


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Sums whose order depends on the scheduling show only with several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("task", ["node", "link"])
def test_same_seed_same_weights_and_untouched_random_state(nodes: Data, task: str) -> None:
    found = []
    for seed in (1, 1, 2):
        model = small(dropout=0.5)
        train(model, nodes, task, epochs=3, seed=seed)
        found.append(weights(model))
        torch.rand(3)
    assert same(found[0], found[1])
    assert not same(found[0], found[2])
    model, state = small(dropout=0.5), torch.get_rng_state()
    train(model, nodes, task, epochs=2, seed=1)
    assert torch.equal(torch.get_rng_state(), state)


class Scripted(NodeClassification):
    """Validation scores as told; remembers the weights it was shown."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = list(scores)
        self.seen: list[dict[str, Tensor]] = []

    def validate(self, model: nn.Module, output: Any, data: Any) -> float:
        assert not model.training
        self.seen.append(weights(model))
        score = self.scores.pop(0)
        if score < 0:
            raise KeyboardInterrupt
        return score


def test_best_weights_come_back(nodes: Data) -> None:
    task, model = Scripted([0.1, 0.7, 0.7, 0.2]), small()
    result = train(model, nodes, task, epochs=20, validate_every=5)
    assert (result.best_score, result.best_epoch, result.epochs_run) == (0.7, 10, 20)
    assert same(weights(model), task.seen[1])
    assert not same(weights(model), task.seen[3])


def test_patience_stops(nodes: Data) -> None:
    result = train(small(), nodes, Scripted([0.5, 0.4, 0.3, 0.9]), epochs=20, validate_every=5, patience=10)
    assert (result.best_epoch, result.epochs_run) == (5, 15)


def test_interrupt_keeps_the_best(nodes: Data) -> None:
    task, model = Scripted([0.5, 0.4, -1]), small()
    model.eval()
    with pytest.raises(KeyboardInterrupt):
        train(model, nodes, task, epochs=20, validate_every=5)
    assert same(weights(model), task.seen[0])
    assert not model.training


def test_a_graph_kept_from_an_earlier_call_plays_no_part(nodes: Data) -> None:
    trained = []
    for earlier in (False, True):
        layer = GCNConv(nodes.num_features, 10, cached=True)
        with torch.no_grad():
            layer.lin.weight.fill_(0.1)
        if earlier:
            layer(nodes.x, nodes.edge_index[:, :5])
        train(layer, nodes, "node", epochs=3)
        trained.append(layer.lin.weight)
    assert torch.equal(*trained)


def test_last_epoch_is_validated(nodes: Data) -> None:
    assert train(small(), nodes, Scripted([0.1, 0.9]), epochs=7, validate_every=5).best_epoch == 7


def test_without_validation_the_last_weights_stay(nodes: Data) -> None:
    data = copy.copy(nodes)
    data.val_mask = None
    model = small()
    before = weights(model)
    result = train(model, data, NodeClassification(), epochs=3)
    assert (result.best_score, result.best_epoch, result.epochs_run) == (None, None, 3)
    assert not same(before, weights(model))


def test_caller_keeps_data_flags_and_memory(nodes: Data) -> None:
    keys, x = sorted(nodes.keys()), nodes.x
    model = small()
    storage = [parameter.data_ptr() for parameter in model.parameters()]
    model.convs[0].eval()
    train(model, nodes, "node", epochs=2, validate_every=1)
    assert sorted(nodes.keys()) == keys
    assert nodes.x is x
    assert model.training
    assert not model.convs[0].training
    assert [parameter.data_ptr() for parameter in model.parameters()] == storage
    assert all(parameter.grad is None for parameter in model.parameters())


def test_own_forward_and_lazy_layers(nodes: Data) -> None:
    model = nn.Sequential(Linear(-1, 10))
    result = train(model, nodes, "node", epochs=2, forward=lambda model, data: model(data.x))
    assert model[0].weight.shape == (10, 64)
    assert result.epochs_run == 2


def test_zero_epochs_change_nothing(nodes: Data) -> None:
    model = small()
    before = weights(model)
    assert train(model, nodes, "node", epochs=0).epochs_run == 0
    assert same(before, weights(model))


def test_errors(nodes: Data) -> None:
    for options, said in (
        ({"epochs": -1}, "'epochs'.*-1"),
        ({"validate_every": 0}, "'validate_every'.*0"),
        ({"patience": 0}, "'patience'.*0"),
        ({"epochs": 1.5}, r"'epochs' must be a whole number of at least 0 \(got 1.5\)"),
        ({"epochs": True}, "'epochs' must be a whole number"),
        ({"epochs": "3"}, "'epochs' must be a whole number.*got '3'"),
        ({"batch_size": 2.0}, "'batch_size' must be a whole number"),
        ({"lr": -1}, r"'lr' must be a number of at least 0 \(got -1\)"),
        ({"lr": float("nan")}, "'lr' must be a number of at least 0"),
        ({"lr": "fast"}, "'lr' must be a number of at least 0.*'fast'"),
        ({"weight_decay": -0.5}, "'weight_decay' must be a number of at least 0.*-0.5"),
        ({"device": "gpu"}, "'device'.*'gpu'"),
    ):
        with pytest.raises(SettingError, match=said):
            train(small(), nodes, "node", **options)
    with pytest.raises(SettingError, match=r"'task' must be one of graph, link, node, ranking or an instance.*'nodes'"):
        train(small(), nodes, "nodes")
    for wrong in (split_links(nodes), split_graphs(range(10))):
        with pytest.raises(GraphError, match=f"data is a '{type(wrong).__name__}'; pass the torch_geometric Data"):
            train(small(), wrong, "link", epochs=1)
    with pytest.raises(RunError, match="loss became nan"):
        train(small(), nodes, "node", epochs=1, forward=lambda model, data: call(model, data) * torch.nan)
    spoiled = nodes.clone()
    spoiled.x[7, 3] = torch.nan
    with pytest.raises(GraphError, match=r"'x' holds NaN .*row 7"):
        train(small(), spoiled, "node", epochs=1)
    frozen = small()
    frozen.requires_grad_(False)
    with pytest.raises(ModelError, match="no parameter that requires a gradient"):
        train(frozen, nodes, "node", epochs=1)


@pytest.mark.parametrize("name", ["gcn", "gat", "gin"])
def test_fresh_is_a_new_draw(name: str) -> None:
    model = build(name, 8)
    before, state = weights(model), torch.get_rng_state()
    first, again, other = fresh(model, 1), fresh(model, 1), fresh(model, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert same(before, weights(model))
    assert same(weights(first), weights(again))
    assert not same(weights(first), weights(other))
    assert not same(weights(first), before)
    assert type(first) is type(model)


@pytest.mark.parametrize("device", DEVICES)
def test_fresh_means_the_same_on_every_device(device: str) -> None:
    model = build("gcn", 8)
    moved = fresh(copy.deepcopy(model).to(device), 1)
    assert next(moved.parameters()).device.type == device
    assert same(weights(fresh(model, 1)), weights(moved.cpu()))


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 4)
        self.memory = nn.Parameter(torch.zeros(3, 4))


class ResettableMemory(Memory):
    def reset_parameters(self) -> None:
        nn.init.ones_(self.memory)


def test_fresh_names_what_cannot_be_reset() -> None:
    with pytest.raises(ModelError, match=r"'memory' of '0' \(Memory\).*build="):
        fresh(nn.Sequential(Memory()), 1)
    with pytest.raises(ModelError, match=r"'memory' of 'model' \(Memory\)"):
        fresh(Memory(), 1)
    assert fresh(ResettableMemory(), 1).memory.sum() == 12


def test_fresh_handles_norms_attention_and_lazy_layers() -> None:
    norm = nn.BatchNorm1d(4)
    norm.running_mean.fill_(7)
    model = nn.ModuleList([norm, GPSConv(4, GCNConv(4, 4), heads=2), nn.MultiheadAttention(4, 2), Linear(-1, 3)])
    new = fresh(model, 1)
    assert new[0].running_mean.sum() == 0
    assert all(torch.isfinite(p).all() for name, p in new.named_parameters() if not name.startswith("3."))


def test_a_schedule_scales_the_rate_and_an_extra_loss_is_added(nodes: Data) -> None:
    asked: list[int] = []
    seen: list[tuple[Any, Any]] = []

    def schedule(epoch: int) -> float:
        asked.append(epoch)
        return 0.0 if epoch < 2 else 1.0

    def pull(model: nn.Module, output: Tensor, batch: Data) -> Tensor:
        seen.append((model, batch))
        return 1e6 * output.square().mean()

    still, moved, pulled = small(), small(), small()
    before = weights(still)
    train(still, nodes, "node", epochs=2, lr=0.01, schedule=schedule)
    assert same(weights(still), before)
    train(moved, nodes, "node", epochs=30, lr=0.01, schedule=schedule, validate_every=30)
    assert asked == [0, 1, *range(30)]
    train(pulled, nodes, "node", epochs=30, lr=0.01, extra_loss=pull, validate_every=30)
    assert len(seen) == 30
    assert seen[0][0] is pulled
    with torch.no_grad():
        assert call(pulled.eval(), nodes).abs().mean() < 0.1 * call(moved.eval(), nodes).abs().mean()


def test_a_course_ends_with_its_last_weights(nodes: Data) -> None:
    fit = as_fitting(LoopFit("node", {"epochs": 500, "lr": 0.01, "patience": 10}))
    assert usual_epochs(fit) == 500
    assert takes_course(fit) == {"epochs", "schedule", "extra_loss"}
    short, same_by_hand = small(), small()
    assert fit(short, nodes, 3, epochs=12, schedule=one_cycle(12, 4)) is short
    train(same_by_hand, nodes, "node", epochs=12, lr=0.01, seed=3, schedule=one_cycle(12, 4), validate_every=12)
    assert same(weights(short), weights(same_by_hand))


def test_what_a_fit_of_the_user_takes() -> None:
    assert takes_course(as_fitting(lambda model, data, seed: model)) == frozenset()
    assert takes_course(lambda model, data, seed, **course: model) == {"epochs", "schedule", "extra_loss"}
    assert usual_epochs(lambda model, data, seed, epochs, extra_loss=None: model) is None
