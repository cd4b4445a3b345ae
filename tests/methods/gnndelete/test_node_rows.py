"""Rows of tables forget what the deleted edges taught them."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv

import gnndelete as gd
from gnndelete.errors import SettingError, UnfitError
from gnndelete.methods.gnndelete.calibration import MARK
from gnndelete.methods.gnndelete.forgetting_score import ForgettingScore
from gnndelete.methods.gnndelete.node_rows import Facts, losses, table_facts

LIKES = ("user", "likes", "item")


@cache
def ratings() -> tuple[nn.Module, Data, gd.LinkPrediction]:
    data = gd.datasets.load("generated:ratings?users=150&items=250&edges=6000&genres=6")
    split = gd.datasets.split_links(data)
    task = gd.LinkPrediction(validation=split.validation, test=split.test, loss="bpr")
    torch.manual_seed(0)
    model = gd.models.LightGCN(400, 16, 2)
    gd.train(model, split.data, task, epochs=40, lr=0.02, seed=0)
    return model.eval(), split.data, task


@cache
def triples() -> tuple[nn.Module, Data, gd.LinkPrediction]:
    data = gd.datasets.load("generated:biokg?entities=150&triples=1500&relations=4")
    split = gd.datasets.split_links(data)
    task = gd.LinkPrediction(validation=split.validation, test=split.test, decoder="distmult")
    torch.manual_seed(0)
    model = gd.models.RGCN(150, 4, embedding=8, hidden=8, out=8)
    gd.train(model, split.data, task, epochs=20, lr=0.02, seed=0)
    return model.eval(), split.data, task


def some(data: Data, count: int = 150) -> gd.Deletion:
    pairs = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    return gd.Deletion(
        edges=pairs[:, torch.randperm(pairs.size(1), generator=torch.Generator().manual_seed(1))[:count]]
    )


def deleted(
    subject: tuple[nn.Module, Data, Any], deletion: gd.Deletion, lam: Any = 0.6, **options: Any
) -> gd.Unlearned:
    model, data, task = subject
    return gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=lam), **options).delete(deletion)


def table(model: nn.Module) -> Tensor:
    return next(value.detach() for value in model.parameters() if value.size(0) in (400, 150))


def close(one: Tensor, other: Tensor) -> bool:
    return bool(torch.allclose(one.detach(), other.detach(), rtol=1e-4, atol=1e-4))


def test_the_fit_is_a_ridge_regression_on_partners() -> None:
    """Compared with one row after the other, by the definition."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(5, (60,), generator=generator)
    g, gone = torch.randn(60, 4, generator=generator), torch.rand(60, generator=generator) < 0.3
    half = torch.randn(4, 4, generator=generator)
    found = Facts(half @ half.t(), ridge=0.7, scale=2.0)

    def fit(chosen: Tensor) -> Tensor:
        matrix = g[chosen].t() @ g[chosen] + chosen.sum() * found.moment + 0.7 * torch.eye(4)
        return torch.linalg.solve(matrix, g[chosen].sum(dim=0))

    wanted = [2.0 * (fit(rows == row) - fit((rows == row) & ~gone)) for row in range(5)]
    torch.testing.assert_close(losses(found, rows, g, gone, 6)[:5], torch.stack(wanted), rtol=1e-4, atol=1e-5)
    assert not losses(found, rows, g, gone, 6)[5].any(), "nobody pulls the last one"


def test_only_rows_of_endpoints_change_and_their_edges_go_down() -> None:
    model, data, task = ratings()
    deletion = some(data)
    unlearned, cut = (
        deleted(ratings(), deletion),
        gd.Unlearner(model, data, task=task, method="unlink").delete(deletion),
    )
    ends = deletion.edges.unique()
    moved = (table(unlearned.model) != table(model)).any(dim=1)
    assert moved.nonzero().flatten().tolist() == ends.tolist()
    assert [(site.title, site.table) for site, _ in unlearned.adapter.operators] == [("embedding.weight", True)]
    assert unlearned.parameters == ends.numel() * 16
    gap = (unlearned.predict(deletion.edges) - cut.predict(deletion.edges)).mean()
    others = task.learned_once(unlearned.data)
    others = others[:, torch.isin(others, ends).any(dim=0)]
    assert gap < -0.1
    assert abs((unlearned.predict(others) - cut.predict(others)).mean()) < abs(gap) / 5
    lengths = table(unlearned.model)[ends].norm(dim=1).mean() / table(model)[ends].norm(dim=1).mean()
    assert 0.97 < lengths < 1.03


def test_what_a_row_loses_does_not_depend_on_the_rest_of_the_request() -> None:
    model, data, _ = ratings()
    one = some(data, 1).edges
    far = some(data, 80).edges
    far = far[:, ~torch.isin(far, one).any(dim=0)]
    alone, joint = (
        deleted(ratings(), gd.Deletion(edges=one)),
        deleted(ratings(), gd.Deletion(edges=torch.cat([one, far], 1))),
    )
    assert close(table(alone.model)[one[:, 0]], table(joint.model)[one[:, 0]])
    assert not close(table(alone.model)[one[:, 0]], table(model)[one[:, 0]])


def test_a_closed_account_and_its_partners() -> None:
    model, data, _ = ratings()
    unlearned = deleted(ratings(), gd.Deletion(nodes=[3]))
    partners = data.edge_index[1, data.edge_index[0] == 3]
    left = torch.bincount(unlearned.data.edge_index[0], minlength=400)[partners] > 0
    assert not table(unlearned.model)[3].any(), "no node was never trained, so the row is zero"
    pairs = torch.stack([torch.full_like(partners, 3), partners])
    rows = table(unlearned.model)
    towards = (rows[partners[left]] * table(model)[3]).sum(dim=1)
    assert (towards < (table(model)[partners[left]] * table(model)[3]).sum(dim=1)).float().mean() > 0.9
    assert float(unlearned.predict(pairs).std()) < 1e-6, "nothing is known of the account"
    assert "isolated-nodes" in {note.code for note in unlearned.notes}


@pytest.mark.parametrize("kind", ["edges", "one", "account"])
@pytest.mark.parametrize("subject", [ratings, triples])
def test_blocks_and_segments_equal_the_whole_graph(subject: Any, kind: str) -> None:
    _, data, task = subject()
    learned = task.learned_once(data)
    deletion = {
        "edges": gd.Deletion(edges=learned[:, 5:45]),
        "one": gd.Deletion(edges=learned[:, [7]]),
        "account": gd.Deletion(nodes=[4, 9]),
    }[kind]
    asked = task.test.positives
    full = deleted(subject(), deletion, engine="full")
    local = deleted(subject(), deletion, engine="local")
    segments = deleted(subject(), deletion, sequence="segments")
    whole = kind == "account" and subject is triples  # of a directed graph a block has half of the edges
    assert (full.engine, local.engine) == ("full", "full" if whole else "local")
    for result in (local, segments):
        assert close(result.predict(asked), full.predict(asked))
        assert close(table(result.model), table(full.model))
        assert close(result.task.predict(result.model, result.output(), asked), full.predict(asked))


def test_segments_on_top_of_each_other() -> None:
    model, data, task = ratings()
    edges = some(data, 6).edges
    unlearner = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.6), sequence="segments")
    first = unlearner.delete(gd.Deletion(edges=edges[:, :3]))
    answered = first.predict(task.test.positives)
    second = unlearner.delete(gd.Deletion(edges=edges[:, 3:]))
    joint = deleted(ratings(), gd.Deletion(edges=edges), engine="full")
    assert close(first.predict(task.test.positives), answered), "an earlier result stays what it was"
    gap = (second.predict(edges) - joint.predict(edges)).abs().max()
    cut = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(edges=edges))
    assert gap < (cut.predict(edges) - joint.predict(edges)).abs().mean() / 3
    assert close(unlearner.compact().predict(edges), joint.predict(edges))


def test_an_adapter_with_rows(tmp_path: Path) -> None:
    model, data, task = ratings()
    base = {name: value.clone() for name, value in model.state_dict().items()}
    unlearned = deleted(ratings(), some(data))
    unlearned.save(tmp_path)
    back = gd.load(tmp_path, model, data=unlearned.data, task=task)
    asked = task.test.positives
    assert torch.equal(back.predict(asked), unlearned.predict(asked))
    seen = {}
    with unlearned.adapter.disabled():
        assert torch.equal(unlearned.model(unlearned.data.edge_index), model(unlearned.data.edge_index))
        thread = threading.Thread(target=lambda: seen.update(z=unlearned.model(unlearned.data.edge_index).detach()))
        thread.start()
        thread.join()
    after = unlearned.model(unlearned.data.edge_index).detach()
    assert torch.equal(seen["z"], after), "other threads still forget"
    assert not torch.equal(after, model(unlearned.data.edge_index).detach())
    unlearned.adapter.detach().load_state_dict(base, strict=True)
    assert all(torch.equal(value, base[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, base[name]) for name, value in back.adapter.detach().state_dict().items())


def test_a_sampled_batch_reads_the_rows() -> None:
    _, data, _ = ratings()
    unlearned = deleted(ratings(), some(data))
    whole = unlearned.model(unlearned.data.edge_index)
    with gd.rows(unlearned.model, torch.arange(400)):
        assert torch.equal(unlearned.model(unlearned.data.edge_index, n_id=torch.arange(400)), whole)


def test_lam_of_small_requests_is_rehearsed_once() -> None:
    model, data, task = ratings()
    unlearner = gd.Unlearner(model, data, task=task)
    one, account = some(data, 1), gd.Deletion(nodes=[3])
    first, second = unlearner.delete(one), unlearner.delete(account)
    assert first.calibration["status"] == second.calibration["status"] == "rehearsed"
    assert first.lam == second.lam > 0
    large = gd.Unlearner(model, data, task=task).delete(some(data, 600))
    assert large.calibration["trials"]


def test_the_aim_is_reached_at_little_cost() -> None:
    model, data, task = ratings()
    deletion = some(data, 200)
    cut = gd.Unlearner(model, data, task=task, method="unlink").delete(deletion)
    unlearned = gd.Unlearner(model, data, task=task).delete(deletion)
    found = unlearned.calibration
    assert found["status"] == "reached"
    assert found["trials"][0]["auc"] - 0.5 > 3 * abs(found["target"] - 0.5)
    assert cut.evaluate()["test_auroc"] - unlearned.evaluate()["test_auroc"] < 0.015


def test_a_hetero_recommender() -> None:
    generator = torch.Generator().manual_seed(0)
    data = HeteroData({"user": {"num_nodes": 40}, "item": {"num_nodes": 60}})
    pairs = torch.stack(
        [torch.randint(40, (700,), generator=generator), torch.randint(60, (700,), generator=generator)]
    )
    pairs = pairs.unique(dim=1)
    held, pairs = pairs[:, ::6], pairs[:, torch.arange(pairs.size(1)) % 6 != 0]
    data[LIKES].edge_index, data["item", "liked", "user"].edge_index = pairs, pairs.flip(0)

    class Rater(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = nn.Embedding(40, 8), nn.Embedding(60, 8)
            self.to_item, self.to_user = SAGEConv(8, 8), SAGEConv(8, 8)

        def forward(self, edge_index_dict: dict) -> dict[str, Tensor]:
            user, item = self.user.weight, self.item.weight
            return {
                "user": user + self.to_user((item, user), edge_index_dict["item", "liked", "user"]),
                "item": item + self.to_item((user, item), edge_index_dict[LIKES]),
            }

    torch.manual_seed(0)
    model, task = Rater(), gd.LinkPrediction(validation=held, edge_type=LIKES)
    gd.train(model, data, task, epochs=30, lr=0.03, seed=0)
    unlearner = gd.Unlearner(model.eval(), data, task=task, method=gd.GNNDelete(lam=0.6))
    edges = pairs[:, ::40]
    cut = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(edges={LIKES: edges}))
    unlearned = unlearner.delete(gd.Deletion(edges={LIKES: edges}))
    assert {site.title for site, _ in unlearned.adapter.operators} == {"user.weight", "item.weight"}
    assert (unlearned.predict({LIKES: edges}) - cut.predict({LIKES: edges})).mean() < 0
    moved = (unlearned.model.user.weight != model.user.weight).any(dim=1).nonzero().flatten()
    assert moved.tolist() == edges[0].unique().tolist()


def test_directions_are_the_derivative_of_the_decoder() -> None:
    model, _, task = triples()
    edges = torch.tensor([[0, 1, 2], [3, 0, 2], [4, 5, 6]])
    heads, tails = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    weight = model.relation.detach()[edges[1]]
    by_head, by_tail = task.row_gradients(model, edges, heads, tails)
    assert close(by_head, weight * tails)
    assert close(by_tail, weight * heads)

    class Apart(nn.Module):
        def decode(self, z: Tensor, edges: Tensor) -> Tensor:
            return (z[edges[0]] @ torch.ones(5, 1)).view(-1)

    other = gd.LinkPrediction(decoder="decode")
    assert torch.equal(other.row_gradients(Apart(), edges[[0, 2]], heads, tails)[0], tails), "the table is not as wide"


def test_facts_are_those_of_all_training_edges() -> None:
    model, data, task = ratings()
    session = gd.Unlearner(model, data, task=task).session
    found = table_facts(session, task)["embedding.weight"]
    learned = task.learned_once(data)
    g = table(model)[learned.flatten()].double()
    torch.testing.assert_close(found.moment, g.t() @ g / g.size(0))
    assert found.scale == pytest.approx(float(g.square().sum(dim=1).mean()), rel=1e-5)


def test_where_rows_do_not_fit() -> None:
    data = gd.datasets.load("digits")
    with pytest.raises(UnfitError, match="no trained vector per node"):
        gd.Unlearner(gd.models.GCN(64), data, task="link", method=gd.GNNDelete(operator="rows"))
    with pytest.raises(UnfitError, match="pairs of nodes"):
        gd.Unlearner(gd.models.GCN(64), data, task="node", method=gd.GNNDelete(operator="rows"))
    with pytest.raises(SettingError, match="operator='rows'"):
        gd.GNNDelete(operator="rows", solver="gradient").check()
    unlearned = gd.Unlearner(gd.models.GCN(64), data, task="link", method=gd.GNNDelete(lam=0.1)).delete(some(data, 5))
    assert [site.table for site, _ in unlearned.adapter.operators] == [False, False], "'auto' takes maps"


def test_rows_that_shrink_are_a_mark() -> None:
    """Each deleted edge could be brought down by making its ends short; calibration does not take that."""
    model, data, task = ratings()
    deletion = some(data, 200)
    context = gd.Unlearner(model, data, task=task)._context.for_deletion(deletion)
    score = ForgettingScore(context)
    with torch.no_grad():
        z = model(context.remaining.edge_index)
        first = score.trial(0.0, model, z, z)
        short = z.clone()
        short[deletion.edges.unique()] *= 0.5
        shrunk = score.trial(0.5, model, short, short)
        swapped = score.trial(0.5, model, z * 0.5, z * 0.5)
    assert first.mark == 0
    assert shrunk.mark > 2 * MARK
    assert swapped.mark < MARK, "all rows are as short"


def test_where_rows_do_not_reach_the_aim_maps_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, task = ratings()
    monkeypatch.setattr("gnndelete.methods.gnndelete.node_rows.strength", lambda lam: 0.0)  # no strength does anything
    auto = gd.Unlearner(model, data, task=task).delete(some(data, 200))
    ring = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(operator="ring")).delete(some(data, 200))
    assert (auto.lam, auto.calibration["trials"]) == (ring.lam, ring.calibration["trials"])
    rows = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(operator="rows")).delete(some(data, 200))
    assert rows.calibration["retrain_recommended"]
