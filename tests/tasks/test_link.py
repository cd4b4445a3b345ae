"""Link prediction: what is scored against what, by which decoder, and that nothing leaks between graphs or models."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

import gnndelete as gd
from gnndelete import Deletion
from gnndelete.datasets import LinkSplit, load, split_links
from gnndelete.errors import GraphError, ModelError, RunError, SettingError
from gnndelete.graph.batch import collate
from gnndelete.models import GCN
from gnndelete.tasks import LinkPrediction, resolver

MODEL = nn.Identity()


@pytest.fixture(scope="module")
def split() -> LinkSplit:
    return split_links(load("digits"), seed=3)


def pairs(edges: Tensor) -> set[tuple[int, int]]:
    return set(zip(*edges.tolist(), strict=True))


def oracle(split: LinkSplit) -> Any:
    """A decoder that knows the truth: 1 for edges of the whole graph, 0 otherwise."""
    true = pairs(split.data.edge_index) | pairs(split.validation) | pairs(split.test)
    return lambda z, edges: torch.tensor([float((int(u), int(v)) in true) for u, v in edges.t()])


def test_drawn_negatives_are_no_edges(split: LinkSplit) -> None:
    task = LinkPrediction(validation=split.validation, test=split.test, decoder=oracle(split), seed=1)
    assert task.evaluate(MODEL, split.data.x, split.data) == {"auroc": 1.0, "auprc": 1.0}
    assert task.validate(MODEL, split.data.x, split.data) == 1.0
    assert task.test.negatives.shape == split.test.shape
    assert not pairs(task.test.negatives) & pairs(task.validation.negatives)


def test_negatives_are_drawn_once_from_the_seed(split: LinkSplit) -> None:
    def drawn(seed: int) -> Tensor:
        task = LinkPrediction(test=split.test, seed=seed)
        task.check(split.data)
        first = task.test.negatives
        smaller = copy.copy(split.data)
        smaller.edge_index = split.data.edge_index[:, :100]
        task.evaluate(MODEL, split.data.x, smaller)
        assert task.test.negatives is first  # before and after a deletion the same pairs are scored
        return first

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_three_ways_to_give_test_edges(split: LinkSplit) -> None:
    index = torch.cat([split.test, split.test_negatives], dim=1)
    label = torch.cat([torch.ones(split.test.size(1)), torch.zeros(split.test.size(1))])
    ways = [
        LinkPrediction(test=split.test, test_negatives=split.test_negatives),
        LinkPrediction(test=(index, label)),
        LinkPrediction(test=Data(edge_label_index=index, edge_label=label)),
        LinkPrediction(test=split.test.t().tolist(), test_negatives=split.test_negatives.t().tolist()),
    ]
    scores = [way.evaluate(MODEL, split.data.x, split.data) for way in ways]
    assert all(score == scores[0] for score in scores)


def test_scores_come_from_logits() -> None:
    """Logits of 40 and 50 are one and the same sigmoid in 32 bits."""
    task = LinkPrediction(
        test=torch.tensor([[0], [1]]), test_negatives=torch.tensor([[0], [2]]), decoder=lambda z, e: 60.0 - 10.0 * e[1]
    )
    data = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[1, 2], [2, 1]]))
    assert task.evaluate(MODEL, data.x, data)["auroc"] == 1.0


def test_loss_is_bce_on_edges_and_as_many_negatives(split: LinkSplit) -> None:
    seen: list[Tensor] = []

    def decoder(z: Tensor, edges: Tensor) -> Tensor:
        seen.append(edges)
        return (z[edges[0]] * z[edges[1]]).sum(dim=1)

    task = LinkPrediction(decoder=decoder)
    z = split.data.x.clone().requires_grad_()
    loss = task.loss(MODEL, z, split.data, torch.Generator().manual_seed(0))
    loss.backward()
    assert z.grad is not None
    half = seen[0].size(1) // 2
    positives, negatives = seen[0].split(half, dim=1)
    assert pairs(positives) == {(u, v) for u, v in pairs(split.data.edge_index) if u < v}
    assert not pairs(negatives) & pairs(split.data.edge_index)
    logits = decoder(z, seen[0])
    expected = F.softplus(-logits[:half]).mean() / 2 + F.softplus(logits[half:]).mean() / 2
    assert torch.allclose(loss, expected, rtol=1e-4)

    task.loss(MODEL, z, split.data, torch.Generator().manual_seed(0))
    task.loss(MODEL, z, split.data, torch.Generator().manual_seed(1))
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[3])  # redrawn


@pytest.mark.parametrize("kind", ["plain", "bipartite", "directed", "typed", "hetero"])
def test_bpr_compares_each_edge_with_a_non_edge_of_its_node(kind: str) -> None:
    seen: list[Tensor] = []

    def decoder(z: Any, edges: Tensor) -> Tensor:
        seen.append(edges)
        rows = z if isinstance(z, Tensor) else torch.cat([z["user"], z["item"]])
        return rows[edges[0], 0] * edges[-1].cos()

    data = load("generated:ratings?users=30&items=40&edges=600&genres=3")
    users, items = data.edge_index[:, :300]
    if kind == "plain":
        data.edge_index = torch.cat([data.edge_index, torch.tensor([[0, 1, 0, 2, 1, 2], [1, 0, 2, 0, 2, 1]])], dim=1)
    elif kind == "directed":
        data.edge_index = torch.cat([data.edge_index[:, :300], torch.tensor([[0, 1, 2], [1, 2, 0]])], dim=1)
    elif kind == "typed":
        data.edge_index, data.edge_type = data.edge_index[:, :300], torch.arange(300) % 2
    graph, z = data, torch.rand(70, 1)
    if kind == "hetero":
        made = HeteroData({"user": {"num_nodes": 30}, "item": {"num_nodes": 40}})
        made["user", "likes", "item"].edge_index = torch.stack([users, items - 30])
        graph, z = collate(made), {"user": z[:30], "item": z[30:]}
    task = LinkPrediction(decoder=decoder, loss="bpr").on(graph)
    loss = task.loss(MODEL, z, graph, torch.Generator().manual_seed(0))
    true, false = seen[0].split(seen[0].size(1) // 2, dim=1)
    same_first, same_last = true[0] == false[0], true[-1] == false[-1]
    assert bool((same_first | same_last | (true[-1] == false[0])).all())
    if kind in ("bipartite", "directed", "hetero"):
        assert bool(same_first.all())
    if kind == "bipartite":
        assert bool((false[1] >= 30).all())
    assert not pairs(false[[0, -1]]) & pairs(true[[0, -1]]) or kind == "typed"
    scores = decoder(z, seen[0])
    assert torch.allclose(loss, -F.logsigmoid(scores[: true.size(1)] - scores[true.size(1) :]).mean())
    each = task.losses(MODEL, z, graph, task.learned(graph)[:, :5])
    assert each.shape == (5,)
    assert torch.allclose(each.sum(), task.losses(MODEL, z, graph, task.learned(graph)[:, :5], "sum"))


@pytest.mark.parametrize("hetero", [False, True])
def test_bipartite_graphs_are_tested_by_ndcg(hetero: bool) -> None:
    data = load("generated:ratings?users=30&items=40&edges=600&genres=3")
    kept = split_links(data, val=0.1, test=0.1)
    graph, test, validation = kept.data, kept.test, kept.validation
    if hetero:
        users, items = (kept.data.edge_index[:, kept.data.edge_index[0] < 30] - torch.tensor([[0], [30]])).unbind()
        made = HeteroData({"user": {"num_nodes": 30}, "item": {"num_nodes": 40}})
        made["user", "likes", "item"].edge_index = torch.stack([users, items])
        graph, (test, validation) = collate(made), (part - torch.tensor([[0], [30]]) for part in (test, validation))
    true = pairs(kept.test)

    def knows(z: Any, edges: Tensor) -> Tensor:
        shift = 30 if hetero else 0
        return torch.tensor([float((int(u), int(v) + shift) in true) for u, v in edges.t()])

    task = LinkPrediction(validation=validation, test=test, decoder=knows).on(graph)
    assert task.evaluate(MODEL, torch.zeros(70, 1), graph)["ndcg@10"] == pytest.approx(1.0)
    blind = LinkPrediction(validation=validation, test=test, decoder=lambda z, edges: -edges[0].float()).on(graph)
    assert blind.evaluate(MODEL, torch.zeros(70, 1), graph)["ndcg@10"] < 0.5


def test_bpr_in_batches_learns(split: LinkSplit) -> None:
    task = LinkPrediction(validation=split.validation, test=split.test, loss="bpr")
    model = GCN(split.data.num_features, hidden=16, out=16)
    before = task.evaluate(model, model(split.data.x, split.data.edge_index), split.data)["auroc"]
    gd.train(model, split.data, task, epochs=2, lr=0.02, batch_size=2048)
    assert task.evaluate(model, model(split.data.x, split.data.edge_index), split.data)["auroc"] > before + 0.05


def test_labelled_positives_win_over_edge_index(split: LinkSplit) -> None:
    seen: list[Tensor] = []
    task = LinkPrediction(decoder=lambda z, edges: seen.append(edges) or z[edges[0], 0])
    data = copy.copy(split.data)
    data.edge_label_index = torch.cat([split.validation[:, :5], split.test[:, :5]], dim=1)
    data.edge_label = torch.tensor([1.0] * 5 + [0.0] * 5)
    task.loss(MODEL, data.x, data)
    assert torch.equal(seen[0][:, :5], split.validation[:, :5])
    assert seen[0].size(1) == 10
    data.edge_label = torch.ones(10)
    task.loss(MODEL, data.x, data)
    assert seen[1].size(1) == 20  # the exchanged labels were noticed


def test_sampler_is_built_once_per_graph_and_dies_with_it(split: LinkSplit, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnndelete.tasks import supervision

    built: list[int] = []
    real = supervision.pair_sampler
    monkeypatch.setattr(supervision, "pair_sampler", lambda *a, **k: built.append(1) or real(*a, **k))
    task = LinkPrediction()
    edges = split.data.edge_index.clone()
    data = Data(x=split.data.x, edge_index=edges)
    for _ in range(3):
        task.loss(MODEL, data.x, data)
    assert len(built) == 1
    edges[:, 0] = torch.tensor([0, 5])
    task.loss(MODEL, data.x, data)
    assert len(built) == 2  # changed in place
    alive = weakref.ref(edges)
    del data, edges
    gc.collect()
    assert alive() is None


def test_copies_and_pickles(split: LinkSplit) -> None:
    task = LinkPrediction(validation=split.validation, test=split.test)
    task.loss(MODEL, split.data.x, split.data)
    expected = task.evaluate(MODEL, split.data.x, split.data)
    for other in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert other.evaluate(MODEL, split.data.x, split.data) == expected
        assert torch.isfinite(other.loss(MODEL, split.data.x, split.data))


class Link(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Bilinear(4, 4, 1)

    def decode(self, z: Tensor, edges: Tensor) -> Tensor:
        return self.head(z[edges[0]], z[edges[1]])

    forward = decode


class Pair(Link):
    def __init__(self) -> None:
        super().__init__()
        self.link = Link()


@pytest.mark.parametrize("how", ["name", "method", "submodule", "path"])
def test_decoder_of_the_model_follows_the_copy(how: str) -> None:
    model, z, edges = Pair(), torch.randn(5, 4), torch.tensor([[0, 1, 2], [3, 4, 0]])
    decoders = {"name": "decode", "method": model.decode, "submodule": model.link, "path": "link.decode"}
    task = LinkPrediction(decoder=decoders[how])
    original = task.score(model, z, edges)
    assert original.shape == (3,)
    copied = copy.deepcopy(model)
    assert torch.equal(task.score(copied, z, edges), original)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert task.score(copied, z, edges).abs().max() == 0
    assert torch.equal(task.score(model, z, edges), original)


def test_ambiguous_decoder_is_refused() -> None:
    model = nn.Sequential(Pair(), Pair())
    task = LinkPrediction(decoder=model[0].decode)
    with pytest.raises(ModelError, match="holds 2 of these"):
        task.score(copy.deepcopy(model), torch.randn(5, 4), torch.tensor([[0], [1]]))


def test_predict_takes_pairs_and_tensors() -> None:
    z = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]])
    task = LinkPrediction()
    assert task.predict(MODEL, z, [(0, 1), (1, 2)]).tolist() == [11.0, 4.0]
    assert task.predict(MODEL, (z, "attention"), torch.tensor([[0, 1], [1, 2]])).tolist() == [11.0, 4.0]
    assert task.predict(MODEL, z, []).tolist() == []
    with pytest.raises(GraphError, match=r"'edges' names node 5, and the model returned 3 rows"):
        task.predict(MODEL, z, [(0, 5)])


def test_deleted_edges_rank_below_as_many_remaining_ones(split: LinkSplit) -> None:
    seen: list[int] = []

    def predict(edges: Tensor) -> Tensor:
        seen.append(edges.size(1))
        return torch.full_like(edges[0], len(seen) == 1).float()

    deletion = Deletion(edges=split.data.edge_index[:, :5])
    assert LinkPrediction().rank_deleted(predict, deletion, split.data) == {"auroc": 1.0, "auprc": 1.0}
    assert seen == [deletion.edges.size(1)] * 2
    typed = Data(edge_index=torch.tensor([[1, 1], [2, 3]]), edge_type=torch.tensor([1, 0]), num_nodes=4)
    found = LinkPrediction().rank_deleted(lambda triples: triples[0], Deletion(edges=[(0, 0, 0)]), typed)
    assert found == {"auroc": 1.0, "auprc": 1.0}


def test_the_sample_of_remaining_edges_follows_the_seed(split: LinkSplit) -> None:
    task, z = LinkPrediction(), split.data.x
    first, again, other = (
        task.rank_deleted(partial(task.predict, MODEL, z), Deletion(edges=split.test), split.data, seed=s)
        for s in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"decoder": 3}, SettingError, "'decoder'.*'int'"),
        ({"validation": torch.zeros(5, 2, dtype=torch.long)}, SettingError, r"\[5, 2\].*\.t\(\)"),
        ({"test": torch.zeros(2, 5)}, SettingError, "floats"),
        ({"test": Data(edge_label_index=torch.zeros(2, 1, dtype=torch.long))}, SettingError, "edge_label"),
        ({"test": (torch.zeros(2, 3, dtype=torch.long), torch.ones(2))}, SettingError, "3 edges and 2 labels"),
        ({"test_negatives": [(0, 1)]}, SettingError, "without 'test'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        LinkPrediction(**arguments)


def test_bad_graphs_and_models(split: LinkSplit) -> None:
    x, edges = torch.zeros(3, 1), torch.tensor([[0], [1]])
    with pytest.raises(GraphError, match="edge_index"):
        LinkPrediction().check(Data(x=x))
    with pytest.raises(GraphError, match=r"distmult.*no 'edge_type'"):
        LinkPrediction(decoder="distmult").check(Data(x=x, edge_index=edges))
    with pytest.raises(GraphError, match=r"'validation' holds triples.*no 'edge_type'"):
        LinkPrediction(validation=[(0, 0, 1)]).check(Data(x=x, edge_index=edges))
    with pytest.raises(GraphError, match=r"'validation' names node 7.*0 to 2"):
        LinkPrediction(validation=[(0, 7)]).check(Data(x=x, edge_index=edges))
    with pytest.raises(GraphError, match="no test edges"):
        LinkPrediction().evaluate(MODEL, x, split.data)
    with pytest.raises(GraphError, match="no validation edges"):
        LinkPrediction(validation=torch.empty(2, 0, dtype=torch.long)).validate(MODEL, x, split.data)
    with pytest.raises(GraphError, match="no edges to learn"):
        LinkPrediction().loss(MODEL, x, Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long)))
    with pytest.raises(ModelError, match="'decode'"):
        LinkPrediction(decoder="decode").score(MODEL, x, edges)
    with pytest.raises(ModelError, match="one score for each of the 1 edges"):
        LinkPrediction(decoder=lambda z, e: z).score(MODEL, x, edges)
    with pytest.raises(ModelError, match="'str'"):
        LinkPrediction().score(MODEL, "text", edges)
    with pytest.raises(RunError, match="not finite"):
        LinkPrediction(test=split.test).evaluate(MODEL, split.data.x * torch.nan, split.data)


def test_by_name() -> None:
    assert isinstance(resolver.make("link"), LinkPrediction)
    assert isinstance(resolver.make("LinkPrediction"), LinkPrediction)


class Typed(nn.Module):
    """Nothing but relations."""

    def __init__(self, relations: int = 3, width: int = 4) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.randn(relations, width, generator=torch.Generator().manual_seed(0)))


def test_distmult_is_the_sum_of_products() -> None:
    model, z = Typed(), torch.randn(5, 4)
    task = LinkPrediction(decoder="distmult")
    asked = [(0, 2, 1), (3, 0, 4)]
    expected = [(z[h] * model.relation[r] * z[t]).sum().item() for h, r, t in asked]
    assert task.predict(model, z, asked).tolist() == pytest.approx(expected)
    assert task.predict(model, z, torch.tensor(asked).t()).tolist() == pytest.approx(expected)
    embedded = nn.Module()
    embedded.relation = nn.Embedding.from_pretrained(model.relation.detach())
    assert task.predict(embedded, z, asked).tolist() == pytest.approx(expected)


def test_dot_does_not_ask_for_the_relation() -> None:
    z = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert LinkPrediction().predict(nn.Identity(), z, [(0, 1, 1), (0, 0, 1)]).tolist() == [11.0, 11.0]
