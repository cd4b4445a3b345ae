"""GIF: close to the exact leave-out solution where there is one, and loud where the iteration would diverge."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import LGConv, SGConv

import gnndelete as gd
from gnndelete.errors import ModelError, SettingError
from gnndelete.graph.edge_table import Neighborhood
from gnndelete.graph.validation import edge_table
from gnndelete.methods.gif import GIF, spectral_norm
from gnndelete.nn.forward import call
from gnndelete.testing import problem

RIDGE = 0.02


class Linear(nn.Module):
    """Logistic regression on twice propagated features: its loss is convex."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SGConv(8, 3, K=2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Pairs(nn.Module):
    """Logistic regression on products of propagated features: a convex link loss."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.lin = LGConv(), nn.Linear(8, 1)

    def forward(self, x, edge_index):
        return self.near(self.near(x, edge_index), edge_index)

    def decode(self, z, edges):
        return self.lin(z[edges[0]] * z[edges[1]]).squeeze(-1)


@pytest.fixture(scope="module")
def nodes():
    return problem("node")


def edges_of(data, count):
    return data.edge_index[:, data.edge_index[0] < data.edge_index[1]][:, :count]


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def solve(model, loss):
    """The minimum of loss plus ridge, to double precision."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = loss(model) + RIDGE / 2 * sum(p.square().sum() for p in model.parameters())
        value.backward()
        return value

    optimizer.step(closure)
    model.zero_grad()
    return model


@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_it_comes_close_to_the_exact_solution_without_the_deleted(nodes, kind):
    _, data, task = nodes
    data = data.__copy__()
    data.x = data.x.double()
    train = data.train_mask.nonzero().flatten()
    deletion = gd.Deletion(nodes=train[:1]) if kind == "nodes" else gd.Deletion(edges=edges_of(data, 3))
    rest = deletion.remaining(data)

    def loss(graph):
        def total(model):
            mask = graph.train_mask
            return F.cross_entropy(call(model, graph)[mask], graph.y[mask], reduction="sum") / train.numel()

        return total

    start = solve(Linear().double(), loss(data))
    exact = weights(solve(start, loss(rest)))
    result = gd.Unlearner(start, data, task, GIF(iterations=1500, damp=RIDGE / 4, scale=4.0)).delete(deletion)
    error, gap = (weights(result.model) - exact).norm(), (weights(start) - exact).norm()
    assert error < 0.2 * gap, error / gap
    assert result.details["residual"] < 0.01
    assert result.details["deleted"] == (1 if kind == "nodes" else 0)


@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_and_so_for_links(kind):
    _, data, _ = problem("link")
    data = data.__copy__()
    data.x = data.x.double()
    task = gd.LinkPrediction(decoder="decode")
    deletion = gd.Deletion(nodes=[3]) if kind == "nodes" else gd.Deletion(edges=edges_of(data, 10))
    rest = deletion.remaining(data)
    positives = edges_of(data, None)
    sampler = gd.datasets.negatives.NegativeSampler(data.edge_index, data.num_nodes)
    negatives = sampler.sample(positives.size(1), torch.Generator().manual_seed(4))

    def loss(graph):
        left = edges_of(graph, None)
        false = negatives[:, ~torch.isin(negatives, deletion.nodes).any(dim=0)] if graph is rest else negatives
        target = torch.cat([torch.ones(left.size(1)), torch.zeros(false.size(1))]).double()

        def total(model):
            logits = model.decode(call(model, graph), torch.cat([left, false], dim=1))
            return F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / (2 * positives.size(1))

        return total

    start = solve(Pairs().double(), loss(data))
    exact = weights(solve(start, loss(rest)))
    method = GIF(iterations=1500, damp=RIDGE / 4, scale=4.0)
    result = gd.Unlearner(start, data, task, method, seed=4).delete(deletion)
    assert (weights(result.model) - exact).norm() < 0.15 * (weights(start) - exact).norm()
    if kind == "edges":
        assert result.details["deleted"] == 10


def hessian(model, data, task):
    shapes = {name: p.detach() for name, p in model.named_parameters()}

    def loss(*values):
        output = torch.func.functional_call(model, dict(zip(shapes, values, strict=True)), (data.x, data.edge_index))
        return task.loss(model, output, data)

    blocks = torch.autograd.functional.hessian(loss, tuple(shapes.values()))
    sizes = [p.numel() for p in shapes.values()]
    rows = zip(blocks, sizes, strict=True)
    return torch.cat([torch.cat([b.reshape(k, n) for b, n in zip(row, sizes, strict=True)], dim=1) for row, k in rows])


def test_a_scale_below_the_spectral_norm_is_refused(nodes):
    model, data, task = nodes
    norm = float(torch.linalg.matrix_norm(hessian(model, data, task), 2))
    deletion = gd.Deletion(edges=edges_of(data, 2))
    auto = gd.Unlearner(model, data, task, GIF(iterations=3)).delete(deletion)
    assert auto.details["spectral_norm"] == pytest.approx(norm, rel=0.02)
    assert auto.details["scale"] > norm
    before = weights(model)
    with pytest.raises(SettingError, match=rf"scale.*got {norm / 2:.2g}\d*, and the norm is {norm:.2g}") as error:
        gd.Unlearner(model, data, task, GIF(scale=norm / 2)).delete(deletion)
    assert "scale='auto'" in str(error.value)
    assert torch.equal(weights(model), before)
    assert gd.Unlearner(model, data, task, GIF(iterations=3, scale=norm * 1.1)).delete(deletion)


def test_the_iteration_is_the_sheets(nodes):
    model, data, task = nodes
    deletion = gd.Deletion(nodes=data.train_mask.nonzero().flatten()[:2])
    rest = deletion.remaining(data)
    count = int(data.train_mask.sum())

    def slope(graph):  # every node is near on this small graph when hops is large
        total = F.cross_entropy(call(model, graph)[graph.train_mask], graph.y[graph.train_mask], reduction="sum")
        return torch.cat([g.flatten() for g in torch.autograd.grad(total / count, list(model.parameters()))])

    v, H = slope(data) - slope(rest), hessian(model, data, task)
    h, damp, scale = v.clone(), 0.1, 30.0
    for _ in range(7):
        h = v + (1 - damp) * h - H @ h / scale
    result = gd.Unlearner(model, data, task, GIF(iterations=7, damp=damp, scale=scale, hops=9)).delete(deletion)
    torch.testing.assert_close(weights(result.model) - weights(model), h / scale, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "gin", "sage-mean", "gat", "batchnorm-residual"])
def test_layers_have_second_derivatives(name, make_subject, snapshot):
    subject = make_subject(name)
    before = snapshot(subject.model, subject.data)
    results = [subject.unlearner(GIF(iterations=5), task="node").delete(subject.deletion) for _ in range(2)]
    assert torch.equal(weights(results[0].model), weights(results[1].model))
    assert torch.isfinite(weights(results[0].model)).all()
    assert not torch.equal(weights(results[0].model), weights(subject.model))
    assert snapshot(subject.model, subject.data) == before
    assert results[0].parameters == weights(subject.model).numel()
    pairs = zip(results[0].model.named_buffers(), subject.model.named_buffers(), strict=True)
    assert all(torch.equal(ours, theirs) for (_, ours), (_, theirs) in pairs)


def test_influenced_is_two_hops_and_one_more_around_nodes(graph, gcn):
    train = graph.train_mask
    edge = gd.Unlearner(gcn, graph, "node", GIF(iterations=1)).delete(gd.Deletion(edges=[(3, 4)]))
    near = Neighborhood(edge_table(graph), graph.edge_index)
    want = near.within(torch.tensor([3, 4]), 2)
    assert edge.details["influenced"] == int(train[want].sum())
    node = gd.Unlearner(gcn, graph, "node", GIF(iterations=1)).delete(gd.Deletion(nodes=[40]))
    want = near.within(torch.tensor([40]), 3)
    assert node.details["influenced"] + node.details["deleted"] == int(train[want].sum())
    assert node.details["deleted"] == int(train[40]) == 1


def test_nothing_near_changes_nothing(graph, gcn):
    graph.train_mask[43:46] = False
    result = gd.Unlearner(gcn, graph, "node", GIF()).delete(gd.Deletion(edges=[(43, 44)]))
    assert torch.equal(weights(result.model), weights(gcn))
    assert result.parameters == 0
    assert any("none was changed" in note.text for note in result.notes)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * 2


def test_a_model_without_second_derivatives_is_told_so(graph):
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SGConv(6, 5)

        def forward(self, x, edge_index):
            return Once.apply(self.conv(x, edge_index))

    class Half(nn.Module):
        """Curvature of the upper layer is whole, that of the lower one is not: nothing raises by itself."""

        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = SGConv(6, 8), SGConv(8, 5)

        def forward(self, x, edge_index):
            return self.high(Once.apply(self.low(x, edge_index)).relu(), edge_index)

    for model in (Custom(), Half()):
        with pytest.raises(ModelError, match=r"no second derivatives.*'gnndelete'"):
            gd.Unlearner(model, graph, "node", GIF()).delete(gd.Deletion(edges=[(3, 4)]))


def test_a_validation_score_that_falls_is_told(nodes):
    model, data, task = nodes
    deletion = gd.Deletion(nodes=data.train_mask.nonzero().flatten()[::14])
    result = gd.Unlearner(model, data, task, GIF()).delete(deletion)
    before, after = result.details["validation_before"], result.details["validation"]
    left = deletion.remaining(data)
    with torch.no_grad():
        hits = (call(result.model, left).argmax(dim=-1) == data.y)[left.val_mask]
    assert after == pytest.approx(float(hits.float().mean()))
    assert before - after > 0.5
    assert f"score fell by {before - after:.3f}, from {before:.3f} to {after:.3f}: " in result.notes[-1].text
    mild = gd.Unlearner(model, data, task, GIF(iterations=1)).delete(deletion)
    assert not any("validation score" in note.text for note in mild.notes)


def test_scores_of_links_that_overflow_are_told():
    model, data, task = problem("link")
    result = gd.Unlearner(model, data, task, GIF(iterations=3000)).delete(gd.Deletion(edges=edges_of(data, 6)))
    assert "validation" not in result.details
    assert "The validation score is gone (" in result.notes[-1].text


def test_power_iteration_sees_negative_eigenvalues():
    matrix = torch.randn(30, 30, generator=torch.Generator().manual_seed(1))
    matrix = -(matrix @ matrix.t())
    want = float(torch.linalg.matrix_norm(matrix, 2))
    got = spectral_norm(lambda v: matrix @ v, torch.zeros(30), seed=0)
    assert got == pytest.approx(want, rel=0.05)
    assert got <= want * 1.0001


def test_what_does_not_fit(graph, gcn):
    with pytest.raises(ModelError, match="needs a loss"):
        gd.Unlearner(gcn, graph, method=GIF())
    for wrong in ({"iterations": 0}, {"damp": 1.0}, {"scale": 0.0}, {"scale": "large"}, {"hops": -1}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            GIF(**wrong).check()
