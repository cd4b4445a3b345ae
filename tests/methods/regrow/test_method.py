"""Regrow: what is tried in which order, what goes into new weights, and what users hand in."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.errors import UnfitError
from gnndelete.methods.regrow.acceptance import Judge
from gnndelete.methods.regrow.method import NEW_SEED
from gnndelete.training.loop import LoopFit, train


@pytest.fixture(scope="module")
def links():
    """A trained link model, its graph and task, and a request of a twentieth of the edges."""
    split = gd.datasets.split_links(community_graph(300, 1500, 16, classes=4, community=60, seed=0), seed=0)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = gd.models.GCN(16, hidden=16, out=8)
    train(model, split.data, task, epochs=100, lr=0.01)
    return model, split.data, task, gd.Deletion(edges=task.learned_once(split.data)[:, :60])


def regrow(links, method, **options):
    model, data, task, deletion = links
    return gd.Unlearner(model, data, task=task, method=method, **options).delete(deletion)


def storages(model):
    return {value.untyped_storage().data_ptr() for value in model.state_dict().values()}


@pytest.mark.parametrize("distilled", [False, True], ids=["fast", "distilled"])
def test_no_old_weight_or_buffer_is_in_the_result(links, distilled, monkeypatch):
    if distilled:  # fast retraining is never enough, and what follows always is
        monkeypatch.setattr(Judge, "checks", lambda self, model, clean: [] if clean else [failed()])
    else:
        monkeypatch.setattr(Judge, "checks", lambda self, model, clean: [])
    unlearned = regrow(links, gd.Regrow(epochs=100, lr=0.01))
    assert unlearned.details["regrow"]["taken"] == ("distilled" if distilled else "fast")
    assert unlearned.assurance == ("approximate" if distilled else "retrained")
    assert unlearned.weights == "new"
    assert not storages(unlearned.model) & storages(links[0])
    for name, value in unlearned.model.state_dict().items():
        old = links[0].state_dict()[name]
        assert not torch.allclose(value, old)
        if value.dim() == 2:
            assert abs(torch.corrcoef(torch.stack([value.flatten(), old.flatten()]))[0, 1]) < 0.3


def failed():
    from gnndelete.methods.regrow.acceptance import Check

    return Check("utility", 0.5, 0.9, 0.01, passed=False)


def test_every_attempt_and_check_is_in_the_result(links):
    found = regrow(links, gd.Regrow(epochs=100, lr=0.01)).details["regrow"]
    assert found["usual_epochs"] == 100
    assert found["epochs"] == sum(attempt["epochs"] for attempt in found["attempts"])
    assert found["taken"] == found["attempts"][-1]["step"]
    assert [check["code"] for check in found["attempts"][0]["checks"]] == ["utility"]
    for check in (check for attempt in found["attempts"] for check in attempt["checks"]):
        gap = check["value"] - check["target"]
        gap = -gap if check["code"] == "utility" else gap
        assert check["passed"] == (gap <= check["margin"] and not check["why"])


def test_what_fails_every_check_is_retrained_and_says_so(links, monkeypatch):
    monkeypatch.setattr(Judge, "checks", lambda self, model, clean: [failed()])
    unlearned = regrow(links, gd.Regrow(epochs=50, lr=0.01))
    steps = [attempt["step"] for attempt in unlearned.details["regrow"]["attempts"]]
    assert steps == ["fast", "distilled", "retrain"]
    assert unlearned.assurance == "retrained"
    assert unlearned.details["regrow"]["reason"] == "checks-failed"
    assert "regrow-checks-failed" in [note.code for note in unlearned.notes]
    assert unlearned.details["regrow"]["share"] > 1
    by_hand = regrow(links, gd.Retrain(epochs=50, lr=0.01, seed=NEW_SEED))
    for mine, theirs in zip(unlearned.model.parameters(), by_hand.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_large_request_is_retrained_at_once(links):
    model, data, task, _ = links
    edges = task.learned_once(data)
    large = gd.Deletion(edges=edges[:, : int(0.3 * edges.size(1))])
    unlearned = gd.Unlearner(model, data, task=task, method=gd.Regrow(epochs=20, lr=0.01)).delete(large)
    assert unlearned.details["regrow"]["reason"] == "large-request"
    assert [attempt["step"] for attempt in unlearned.details["regrow"]["attempts"]] == ["retrain"]


def test_a_fit_of_ones_own_takes_three_more_lines(links):
    model, data, task, deletion = links
    seen = []

    def fit(model, data, seed, epochs=60, schedule=lambda epoch: 1.0, extra_loss=None):
        torch.manual_seed(seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scheduler = LambdaLR(optimizer, schedule)
        seen.append((epochs, extra_loss is not None))
        for _ in range(epochs):
            model.train()
            optimizer.zero_grad()
            z = model(data.x, data.edge_index)
            false = torch.randint(data.num_nodes, data.edge_index.shape)
            scores = torch.cat([(z[a] * z[b]).sum(dim=1) for a, b in (data.edge_index, false)])
            loss = F.binary_cross_entropy_with_logits(scores, (torch.arange(scores.numel()) < false.size(1)).float())
            if extra_loss is not None:
                loss = loss + extra_loss(model, z, data)
            loss.backward()
            optimizer.step()
            scheduler.step()

    state = torch.random.get_rng_state()
    unlearned = gd.Unlearner(model, data, task=task, method="regrow", fit=fit).delete(deletion)
    torch.random.set_rng_state(state)
    details = unlearned.details["regrow"]
    assert details["usual_epochs"] == 60
    assert seen[0] == (1, False), "one epoch shows how far a step moves a weight"
    assert seen[1] == (16, bool(details["attempts"][0]["guide"])), "what the graph says is followed where it is better"
    assert details["epochs"] == 1 + sum(attempt["epochs"] for attempt in details["attempts"])
    assert details["attempts"][0]["peak"] == pytest.approx(0.18 / (16 * 0.01), rel=0.05)


def test_why_it_does_not_fit(links):
    model, data, task, _ = links
    with pytest.raises(UnfitError, match=r"cannot be asked for fewer epochs.*epochs=…"):
        gd.Unlearner(model, data, task=task, method="regrow", fit=lambda model, data, seed: model)
    with pytest.raises(UnfitError, match=r"no validation data to judge new weights on.*retrain"):
        gd.Unlearner(model, data, task=gd.LinkPrediction(), method="regrow")
    with pytest.raises(UnfitError, match=r"no task says"):
        gd.Unlearner(model, data, method="regrow", fit=LoopFit(task))


def test_batches_of_one_graph(links):
    unlearned = regrow(links, gd.Regrow(epochs=10, lr=0.01, batch_size=256, num_neighbors=5))
    assert unlearned.details["regrow"]["attempts"][0]["epochs"] == 6, "sixteen steps, three a time"


def test_the_model_and_the_graph_of_the_user_stay(links, snapshot):
    model, data, _, _ = links
    before = snapshot(model, data)
    regrow(links, gd.Regrow(epochs=50, lr=0.01))
    assert snapshot(model, data) == before


def test_vectors_of_nodes_are_new(links):
    _, data, task, deletion = links
    bare = copy.copy(data)
    del bare["x"]
    model = gd.models.build("embeddinggcn", num_nodes=data.num_nodes, embedding=16, hidden=16, out=8)
    train(model, bare, task, epochs=100, lr=0.01)
    unlearned = gd.Unlearner(model, bare, task=task, method=gd.Regrow(epochs=100, lr=0.01)).delete(deletion)
    mine, old = unlearned.model.embedding.weight.detach(), model.embedding.weight.detach()
    alike = nn.functional.cosine_similarity(mine, old)
    assert alike.abs().mean() < 0.35, "16 random numbers have a cosine of 0.2 with each other"
