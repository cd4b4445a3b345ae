"""What GNNDelete solves for: which rows, which weights, which targets, at which layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete.errors import ModelError, SettingError
from gnndelete.methods.gnndelete.objective import objective
from gnndelete.methods.gnndelete.solvers import gradient
from gnndelete.nn.operator import LinearMap

STAR = gd.Deletion(edges=[(2, 5), (5, 6), (5, 7), (20, 22)])  # node 5 is in three deleted edges


def solved(model, data, deletion, **settings):
    """The problems that a deletion solves, in order, and its result."""
    problems = []
    method = gd.GNNDelete(**settings, watch=lambda site, problem, apply: problems.append((site.layer, problem, apply)))
    return problems, gd.Unlearner(model, data, method=method).delete(deletion)


def layer_outputs(model, data):
    """What each graph layer of a two-layer stack returns."""
    seen = []
    handles = [conv.register_forward_hook(lambda m, a, out: seen.append(out)) for conv in model.convs]
    with torch.no_grad():
        model.eval()(data.x, data.edge_index)
    for handle in handles:
        handle.remove()
    return seen


def within(deletion, hops, data):
    seeds = torch.cat([deletion.edges.flatten(), deletion.nodes])
    return k_hop_subgraph(seeds, hops, data.edge_index, num_nodes=data.num_nodes)[0].sort().values


def test_lam_zero_with_original_targets_pulls_the_old_graph_back_in(graph, gcn, run):
    problems, unlearned = solved(gcn, graph, STAR, lam=0.0, targets="original")
    assert problems
    base = gd.Unlearner(gcn, graph, method="unlink").delete(STAR)
    full = layer_outputs(gcn, graph)[1]
    near = within(STAR, 2, graph)
    error = [float((run(u.model, u.data) - full)[near].square().sum()) for u in (unlearned, base)]
    assert error[0] < error[1]


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        ("all", ["convs.0", "convs.1"]),
        ("last", ["convs.1"]),
        (["convs.1"], ["convs.1"]),
        (["convs.0"], ["convs.0"]),
        (["convs.1", "convs.0"], ["convs.0", "convs.1"]),
    ],
)
def test_layers(graph, gcn, layers, names):
    problems, unlearned = solved(gcn, graph, STAR, layers=layers)
    assert list(dict.fromkeys(layer for layer, *_ in problems)) == names
    assert [place.layer for place, _ in unlearned.adapter.operators] == names
    assert unlearned.settings["layers"] == layers
    hops = {"convs.0": 1, "convs.1": 2}
    if names == [
        "convs.1"
    ]:  # a single site rests on its own targets: only the ends are moved, but its reach is the true one
        wide, _ = solved(gcn, graph, STAR, layers=layers, operator="shared")
        assert wide[0][1].rows.tolist() == within(STAR, hops["convs.1"], graph).tolist()


def test_directed_hops_are_the_authors_and_are_noted(graph, gcn):
    problems, unlearned = solved(gcn, graph, STAR, operator="shared", hops="directed")
    once = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    for hops, (_, problem, _) in enumerate(problems, start=1):
        expected = k_hop_subgraph(STAR.edges.flatten(), hops, once, num_nodes=48, flow="source_to_target")[0]
        assert problem.rows.tolist() == expected.sort().values.tolist()
    assert any("hops='directed'" in note.text for note in unlearned.notes)


@pytest.mark.parametrize("settings", [{}, {"operator": "shared"}, {"targets": "original"}])
def test_exact_is_never_above_the_gradient_solver_on_the_same_inputs(graph, gcn, settings):
    problems, _ = solved(gcn, graph, STAR, **settings)
    for _, problem, apply in problems:
        trained = gradient(problem, LinearMap(problem.width), epochs=200, lr=0.01)
        assert objective(problem, apply) <= objective(problem, trained) + 1e-7
        assert objective(problem, apply) < objective(problem, LinearMap(problem.width))


def mlp(width):
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, width))


def test_an_mlp_is_trained_layer_by_layer(graph, gcn):
    starts = []

    def factory(width):
        torch.manual_seed(0)
        starts.append(mlp(width))
        return mlp(width)

    problems, unlearned = solved(gcn, graph, STAR, solver="gradient", operator=factory, epochs=150, lr=0.02)
    for (_, problem, apply), start in zip(problems, starts, strict=True):
        assert objective(problem, apply) < 0.5 * objective(problem, start.to(problem.h))
        assert not problem.h.requires_grad
    assert unlearned.parameters == sum(p.numel() for start in starts for p in start.parameters())
    assert unlearned.settings["operator"].endswith("factory")


def test_gradients_do_not_reach_the_base_model(graph, gcn):
    """Training inside a user's enabled gradients leaks nothing: no parameter of any model carries a gradient."""
    with torch.enable_grad():
        problems, unlearned = solved(gcn, graph, STAR, solver="gradient", epochs=2)
    assert all(p.grad is None for p in [*gcn.parameters(), *unlearned.model.parameters()])
    assert all(p.requires_grad for p in gcn.parameters())
    assert not any(p.h.requires_grad or p.mu.requires_grad for _, p, _ in problems)


def test_inference_mode_works_too(graph, gcn):
    expected = gd.Unlearner(gcn, graph).delete(STAR).output()
    with torch.inference_mode():
        assert torch.equal(gd.Unlearner(gcn, graph).delete(STAR).output(), expected)


def test_the_papers_setting():
    paper = gd.GNNDelete.paper(hops="directed").settings()
    assert {k: paper[k] for k in ("lam", "operator", "layers", "targets", "hops", "solver")} == {
        "lam": 0.5,
        "operator": "shared",
        "layers": "all",
        "targets": "original",
        "hops": "directed",
        "solver": "closed-form",
    }
    assert gd.GNNDelete.paper(lam=0.1).lam == 0.1
    default = gd.GNNDelete().settings()
    expected = ("auto", "retrained", "auto", "undirected")
    assert (default["lam"], default["aim"], default["operator"], default["hops"]) == expected
    assert paper["aim"] == "nonexistent"


@pytest.mark.parametrize(
    ("settings", "needle"),
    [
        ({"lam": 1.5}, "'lam' .*1.5"),
        ({"lam": -0.2}, "'lam' .*-0.2"),
        ({"lam": float("nan")}, "'lam' .*nan"),
        ({"lam": "high"}, "'lam' .*'high'"),
        ({"lam": None}, "'lam' .*None"),
        ({"lam": True}, "'lam' .*True"),
        ({"aim": "gone"}, "'aim' .*'gone'"),
        ({"solver": "magic"}, "'solver' .*'magic'"),
        ({"operator": "diagonal"}, "'operator' .*'diagonal'"),
        ({"operator": mlp}, "solver='gradient'"),
        ({"targets": "none"}, "'targets' .*'none'"),
        ({"hops": 2}, "'hops' .*2"),
        ({"ridge": -1e-3}, "'ridge' .*-0.001"),
        ({"budget": -0.1}, "'budget' .*-0.1"),
        ({"budget": "much"}, "'budget' .*'much'"),
        ({"epochs": 0}, "'epochs' .*0"),
        ({"lr": 0.0}, "'lr' .*0.0"),
    ],
)
def test_bad_settings(settings, needle):
    with pytest.raises(SettingError, match=needle):
        gd.GNNDelete(**settings).check()


def test_settings_make_the_same_method_with_functions_too():
    def watch(site, problem, solved):
        return None

    for method in (
        gd.GNNDelete(watch=watch),
        gd.GNNDelete(operator=nn.Identity, solver="gradient"),
        gd.GNNDelete.paper(),
    ):
        same = type(method)(**method.settings())
        assert vars(same) == vars(method)


def test_a_constructor_only_stores_and_bad_settings_are_refused_before_any_work(graph, gcn):
    method = gd.GNNDelete(lam=7)
    with pytest.raises(SettingError, match="'lam'"):
        gd.Unlearner(gcn, graph, method=method)


def test_rows_that_are_all_zero_are_left_and_nan_is_refused(graph, silent):
    unlearned = gd.Unlearner(silent, graph, method=gd.GNNDelete(lam=0.5)).delete(STAR)  # its first system has no size
    assert torch.isfinite(unlearned.output()).all()
    nn.init.constant_(silent.second.lin.weight, float("nan"))
    with pytest.raises(ModelError, match="NaN"):
        gd.Unlearner(silent, graph, method=gd.GNNDelete(lam=0.5)).delete(STAR)


def test_a_layer_that_adds_a_row_is_named(graph):
    class Virtual(nn.Module):
        """A node that all others send to, beside them in the second layer."""

        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(6, 4), GCNConv(4, 3)

        def forward(self, x, edge_index):
            h = self.first(x, edge_index)
            hub = torch.stack([torch.arange(len(x)), torch.full((len(x),), len(x))])
            return self.second(torch.cat([h, h.mean(dim=0, keepdim=True)]), torch.cat([edge_index, hub], dim=1))[:-1]

    unlearned = gd.Unlearner(Virtual(), graph, method=gd.GNNDelete(lam=0.5)).delete(STAR)
    assert any("No operator follows second" in note.text for note in unlearned.notes)
    assert [place.layer for place, _ in unlearned.adapter.operators] == ["first"]


def test_an_operator_of_ones_own_begins_from_the_seed(graph, gcn):
    def of(seed):
        method = gd.GNNDelete(
            lam=0.5,
            solver="gradient",
            operator=lambda width: nn.Sequential(nn.Linear(width, 3), nn.Linear(3, width)),
            epochs=3,
        )
        return gd.Unlearner(gcn, graph, method=method, seed=seed).delete(STAR).output()

    before = torch.get_rng_state()
    assert torch.equal(of(0), of(0))
    assert not torch.equal(of(0), of(1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_learned_in_32_bits(graph, gcn, dtype):
    graph.x = graph.x.to(dtype)
    del graph.edge_weight, graph.edge_attr
    model = gcn.to(dtype)
    exact, learned = (
        gd.Unlearner(model, graph, method=gd.GNNDelete(lam=0.5, solver=solver, lr=0.01)).delete(STAR).output()
        for solver in ("closed-form", "gradient")
    )
    assert learned.dtype == dtype
    torch.testing.assert_close(learned, exact, atol=0.05, rtol=0.05)
