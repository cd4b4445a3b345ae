"""What must hold on typed graphs: deletions of triples and relations, their reverses, every method, calibration, audit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete.datasets import training_edges, triples, with_reverse
from gnndelete.engine.session import Session
from gnndelete.errors import DeletionError, GraphError
from gnndelete.graph.edge_table import EdgeTable, Neighborhood
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.validation import edge_table
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.forgetting_score import ForgettingScore
from gnndelete.metrics.unseen_test import degrees

_spec = importlib.util.spec_from_file_location("typed_problem", Path(__file__).parents[1] / "typed.py")
typed = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(typed)
problem, columns = typed.problem, typed.columns

NAMES = ("rgcn", "rgat")
GRAPH = Data(
    edge_index=torch.tensor([[0, 1, 2, 0, 3], [1, 2, 3, 1, 0]]), edge_type=torch.tensor([0, 1, 0, 1, 2]), num_nodes=5
)


def output(unlearned):
    return unlearned.output().detach()


# deletions and the graph that remains


def test_a_relation_is_all_its_triples() -> None:
    whole, named = gd.Deletion(relations=[1]), gd.Deletion(edges=[(1, 1, 2), (0, 1, 1)])
    rest = [deletion.remaining(GRAPH) for deletion in (whole, named)]
    assert columns(triples(rest[0])) == columns(triples(rest[1])) == {(0, 0, 1), (2, 0, 3), (3, 2, 0)}
    assert fingerprint(rest[0]) == fingerprint(rest[1])
    assert whole.check(GRAPH).counts == {"edges": 2, "relations": 1}
    assert torch.equal(whole.check(GRAPH).edges, named.check(GRAPH).edges)
    mixed = gd.Deletion(relations=[1], edges=[(0, 1, 1), (2, 0, 3)]).check(GRAPH)
    assert columns(mixed.edges) == {(1, 1, 2), (0, 1, 1), (2, 0, 3)}
    assert mixed.check(GRAPH) == mixed


def test_relations_that_are_not_there_are_named() -> None:
    with pytest.raises(DeletionError, match=r"no edge: 7; types go from 0 to 2"):
        gd.Deletion(relations=[1, 7]).check(GRAPH)
    with pytest.raises(DeletionError, match="no 'edge_type'"):
        gd.Deletion(relations=[1]).check(Data(edge_index=GRAPH.edge_index, num_nodes=5))
    with pytest.raises(DeletionError, match="leaves none"):
        gd.Deletion(relations=[0, 1, 2]).check(GRAPH)


def test_reverse_relations_go_with_their_forward_ones() -> None:
    both = with_reverse(GRAPH)
    assert both.num_edges == 10
    for named in ((0, 1, 1), (1, 4, 0)):  # by its own name, or by that of its reverse
        rest = gd.Deletion(edges=[named]).remaining(both)
        assert (rest.edge_index.size(1), rest.edge_type.numel()) == (8, 8)
        assert columns(triples(rest)) == columns(triples(GRAPH)) - {(0, 1, 1)}
        table = edge_table(rest)
        assert not bool(table.contains(torch.tensor([[0, 1], [1, 4], [1, 0]])).any())
        assert bool(table.contains(torch.tensor([[0, 1], [0, 3], [1, 0]])).all())
    assert gd.Deletion(edges=[(0, 1, 1), (1, 4, 0)]).check(both).counts == {"edges": 1}
    assert torch.equal(gd.Deletion(relations=[4]).check(both).edges, gd.Deletion(relations=[1]).check(both).edges)
    assert columns(training_edges(both)) == columns(training_edges(GRAPH))
    assert fingerprint(both) != fingerprint(GRAPH)
    unmarked = both.clone()
    del unmarked.reverse_offset
    assert fingerprint(both) != fingerprint(unmarked)


def test_reverses_are_refused_where_they_would_mislead() -> None:
    with pytest.raises(GraphError, match="already holds"):
        with_reverse(with_reverse(GRAPH))
    with pytest.raises(GraphError, match="no 'edge_type'"):
        with_reverse(Data(edge_index=GRAPH.edge_index, num_nodes=5))
    with pytest.raises(GraphError, match="split it before"):
        gd.datasets.split_links(with_reverse(GRAPH))


def test_directed_hops_follow_the_triples_alone() -> None:
    both = with_reverse(GRAPH)
    rings = [
        Neighborhood(edge_table(data), data.edge_index, "directed").rings(torch.tensor([2]), 2)
        for data in (GRAPH, both)
    ]
    assert [ring.tolist() for ring in rings[0]] == [ring.tolist() for ring in rings[1]] == [[2], [1], [0]]


def test_a_relation_without_an_edge_left_is_no_other_edge() -> None:
    table = EdgeTable(torch.tensor([[0, 0], [1, 2]]), 3, torch.tensor([0, 0]))
    asked = torch.tensor([[0], [1], [1]])  # (0 * 3 + 1) * 1 + 1 is also the number of (0, 0, 2)
    assert not bool(table.contains(asked).any())
    assert not table.positions(asked).numel()
    rest = gd.Deletion(relations=[2]).remaining(gd.datasets.split_links(GRAPH, val=0.0, test=0.0).data)
    assert edge_table(rest).num_relations == 3


def test_bad_types_are_named() -> None:
    wrong = GRAPH.clone()
    wrong.edge_type = torch.tensor([0, 1])
    with pytest.raises(GraphError, match=r"'edge_type'.*per edge \(5\).*\[2\]"):
        gd.Deletion(nodes=[0]).check(wrong)
    wrong.edge_type = torch.tensor([0, 1, 0, -1, 2])
    with pytest.raises(GraphError, match="-1"):
        gd.Deletion(nodes=[0]).check(wrong)


# unlearning


@pytest.mark.parametrize("name", NAMES)
def test_layers_and_their_reach_are_found(name: str) -> None:
    model, data, task = problem(name)
    found = gd.inspect(model, data, task)
    assert [(site.layer, site.hops, site.probed) for site in found.sites] == [
        ("convs.0", 1, True),
        ("convs.1", 2, True),
    ]
    one_way = gd.models.build(name, num_nodes=typed.NODES, num_relations=typed.RELATIONS, reverse=False)
    assert [site.hops for site in gd.inspect(one_way, data, task).sites] == [1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_lam_zero_is_unlink(name: str) -> None:
    model, data, task = problem(name)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(data, 20, seed=1))
    kept = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0)).delete(deletion)
    cut = gd.Unlearner(model, data, task=task, method="unlink").delete(deletion)
    assert torch.equal(output(kept), output(cut))


@pytest.mark.parametrize("name", NAMES)
def test_rows_outside_are_bit_identical_and_the_user_untouched(name: str) -> None:
    model, _, _ = problem(name)
    # a long thin graph beside the real one: most of it is out of reach
    line = torch.arange(60)
    data = Data(edge_index=torch.stack([line[:-1], line[1:]]), edge_type=line[:-1] % typed.RELATIONS, num_nodes=160)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    edges = data.edge_index.clone()
    deletion = gd.Deletion(edges=[(4, 0, 5)], nodes=[30])
    after = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.5)).delete(deletion)
    cut = gd.Unlearner(model, data, method="unlink").delete(deletion)
    inside = torch.zeros(160, dtype=torch.bool)
    two_way = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    inside[k_hop_subgraph([4, 5, 30], 2, two_way, num_nodes=160)[0]] = True
    moved = (output(after) != output(cut)).any(dim=1)
    assert bool(moved[[4, 5]].all())
    assert not bool((moved & ~inside).any())
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    assert torch.equal(data.edge_index, edges)


@pytest.mark.parametrize("name", NAMES)
def test_requests_may_come_in_any_order_and_a_relation_equals_its_triples(name: str) -> None:
    model, data, task = problem(name)
    first = gd.Deletion(edges=gd.datasets.forget_edges(data, 10, relation=0, seed=1))
    second = gd.Deletion(relations=[2])
    spelled = gd.Deletion(edges=triples(data)[:, data.edge_type == 2])
    results = []
    for requests in ([first, second], [second, first], [first | second], [first, spelled]):
        unlearner = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.2))
        results.append([unlearner.delete(request) for request in requests][-1])
    for other in results[1:]:
        assert fingerprint(other.data) == fingerprint(results[0].data)
        assert torch.equal(output(other), output(results[0]))
    assert not bool((results[0].data.edge_type == 2).any())


def test_a_relation_takes_what_is_left_of_it(tmp_path: Path) -> None:
    model, data, task = problem()
    unlearner = gd.Unlearner(model, data, task=task, method="unlink")
    some = gd.datasets.forget_edges(data, 3, relation=1, seed=1)
    unlearner.delete(gd.Deletion(edges=some))
    rest = unlearner.delete(gd.Deletion(relations=[1]))
    assert not bool((rest.data.edge_type == 1).any())
    with pytest.raises(DeletionError, match="already deleted"):
        unlearner.delete(gd.Deletion(edges=some))
    unlearner.save_state(tmp_path / "state.json")
    again = gd.Unlearner(model, data, task=task, method="unlink").load_state(tmp_path / "state.json")
    assert fingerprint(again.compact().data) == fingerprint(rest.data)


def test_a_relation_of_which_nothing_is_left_is_refused() -> None:
    both = with_reverse(GRAPH)
    whole = gd.Deletion(relations=[1]).check(both)
    assert whole == gd.Deletion(relations=[4]).check(both)  # by the name of its reverse
    for earlier in (whole, gd.Deletion(edges=[(1, 1, 2)], nodes=[0]).check(both)):
        with pytest.raises(DeletionError, match=r"already deleted by an earlier request: relation 1;"):
            gd.Deletion(relations=[4]).check(both).require_new(earlier)
        assert gd.Deletion(relations=[0]).check(both).require_new(earlier).relations.tolist() == [0]
    model, data, task = problem()
    unlearner = gd.Unlearner(model, data, task=task, method="unlink")
    own = triples(data)[:, data.edge_type == 1]
    for part in (own[:, :2], own[:, 2:]):  # no single request has deleted all of it
        unlearner.delete(gd.Deletion(edges=part))
    with pytest.raises(DeletionError, match=r"already deleted by an earlier request: relation 1;"):
        unlearner.delete(gd.Deletion(relations=[1]))
    assert len(unlearner.history) == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "method",
    ["gnndelete", "retrain", "unlink", "gradascent", "gif", "d2d", "paper", "untrained", "zeroed", "grapheraser"],
)
def test_every_method_that_fits_serves_triples(name: str, method: str) -> None:
    model, data, task = problem(name)
    from gnndelete.methods.controls import UntrainedOperator, ZeroedEndpoints

    made = {
        "retrain": gd.Retrain(epochs=3),
        "paper": gd.GNNDelete.paper(),
        "untrained": UntrainedOperator(),
        "zeroed": ZeroedEndpoints(),
        "grapheraser": gd.methods.GraphEraser(shards=4, epochs=3),
    }.get(method, method)
    forget = gd.datasets.forget_edges(data, 20, seed=1)
    unlearned = gd.Unlearner(model, data, task=task, method=made).delete(gd.Deletion(edges=forget, nodes=[7]))
    assert unlearned.evaluate().keys() == {"test_auroc", "test_auprc", "deleted_auroc", "deleted_auprc"}
    scores = unlearned.predict(forget)
    assert scores.shape == (20,)
    assert bool(torch.isfinite(scores).all())
    head, kind, tail = forget[:, 0].tolist()
    assert unlearned.predict([(head, kind, tail)]).item() == pytest.approx(scores[0].item(), abs=1e-4)


def test_those_that_do_not_fit_say_why() -> None:
    model, data, task = problem()
    reasons = gd.inspect(model, data, task).methods
    assert "edge_type" in str(reasons["jodie"][0])


def test_shards_learn_the_triples_of_their_own_nodes_with_their_own_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnndelete.methods.grapheraser import method as grapheraser

    trained, train = [], grapheraser.run_all

    def watched(jobs, *how):
        before = [job.model.entity.detach().clone() for job in jobs]
        models = train(jobs, *how)
        trained.extend(zip(jobs, before, [model.entity.detach() for model in models], strict=True))
        return models

    monkeypatch.setattr(grapheraser, "run_all", watched)
    model, data, task = problem()
    gone, held = triples(data)[:, :25], columns(task.validation.positives)
    left = {triple for triple in columns(triples(data)) - columns(gone) if triple[1] != 2}
    eraser = gd.methods.GraphEraser(shards=3, epochs=40, lr=0.02)
    gd.Unlearner(model, data, task=task, method=eraser).delete(gd.Deletion(edges=gone, relations=[2]))
    assert len(trained) == 3
    for job, before, after in trained:
        ids, inside = job.data.n_id, job.task.validation
        seen, true, false = (
            columns(torch.stack([ids[head], kind, ids[tail]]))
            for head, kind, tail in (triples(job.data), inside.positives, inside.negatives)
        )
        assert seen <= left
        assert true <= held
        assert not false & (left | held)
        moved = (before != after).any(dim=1)
        assert set(moved.nonzero().flatten().tolist()) <= set(ids.tolist())
        assert bool(moved[ids].any())


def test_a_model_of_ones_own_on_a_graph_with_reverses() -> None:
    _, data, task = problem()
    both = with_reverse(data)
    torch.manual_seed(0)
    model = gd.models.RGCN(typed.NODES, 2 * typed.RELATIONS, embedding=8, hidden=8, out=4, reverse=False)
    result = gd.train(model, both, task, epochs=3)
    assert result.best_score is not None
    forget = gd.datasets.forget_edges(both, 10, seed=1)
    assert bool((forget[1] < typed.RELATIONS).all())
    unlearned = gd.Unlearner(model, both, task=task, method=gd.GNNDelete(lam=0.1)).delete(gd.Deletion(edges=forget))
    assert unlearned.data.edge_index.size(1) == both.edge_index.size(1) - 20
    assert unlearned.evaluate().keys() >= {"test_auroc", "deleted_auroc"}


def test_sampled_batches_give_what_the_whole_graph_gives() -> None:
    _, data, task = problem()
    both = with_reverse(data)
    model = gd.models.RGCN(typed.NODES, 2 * typed.RELATIONS, embedding=8, hidden=8, out=4, reverse=False).eval()
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(both, 20, seed=1))
    unlearned = gd.Unlearner(model, both, task=task, method=gd.GNNDelete(lam=0.3)).delete(deletion)
    whole = output(unlearned)
    batch = next(iter(gd.datasets.node_loader(unlearned.data, [-1, -1], batch_size=10)))
    assert batch.num_nodes < typed.NODES
    with gd.rows(unlearned.model, batch.n_id), torch.no_grad():
        part = unlearned.model(batch.edge_index, batch.edge_type, n_id=batch.n_id)
    torch.testing.assert_close(part[:10], whole[batch.n_id[:10]])


def test_an_adapter_comes_back_from_disk(tmp_path: Path) -> None:
    model, data, task = problem()
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(data, 20, seed=1))
    unlearned = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.2)).delete(deletion)
    unlearned.save(tmp_path / "adapter")
    again = gd.load(tmp_path / "adapter", model, data=unlearned.data, task=task)
    assert torch.equal(output(again), output(unlearned))


def test_compare_runs_on_triples() -> None:
    model, data, task = problem()
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(data, 20, seed=1))
    table = gd.compare(model, data, deletion, task, [gd.Retrain(epochs=2), "unlink", "gnndelete"])
    assert {"original", "retrain", "unlink", "gnndelete", "zeroed"} <= set(table.methods)
    assert not any("error" in row for row in table.rows)


# calibration and audit


def test_calibration_compares_within_a_relation() -> None:
    model, data, task = problem()
    # a model that scores by the relation alone: without strata deleted triples of one relation would stand out
    relation = torch.zeros(typed.RELATIONS, 1)
    relation[1] = 5.0

    class ByRelation(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relation = torch.nn.Parameter(relation)

        def forward(self, edge_index: torch.Tensor, edge_type: torch.Tensor, num_nodes: int) -> torch.Tensor:
            return torch.ones(num_nodes, 1)

    for count in (40, 2):  # also where the request fills no stratum
        deletion = gd.Deletion(edges=gd.datasets.forget_edges(data, count, relation=1, seed=1)).check(data)
        session = Session(model, data, lambda m, d: m(d.edge_index, d.edge_type))
        context = Context(session, task).for_deletion(deletion)
        output = torch.ones(typed.NODES, 1)
        auc = ForgettingScore(context).trial(0.0, ByRelation(), output, output).auc
        assert auc == 0.5
    assert int(degrees(data).sum()) == 2 * data.num_edges
    assert torch.equal(degrees(with_reverse(data)), degrees(data))


@pytest.mark.parametrize("name", NAMES)
def test_calibration_states_what_it_found(name: str) -> None:
    model, data, task = problem(name)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(data, 80, seed=1))
    for aim in ("retrained", "nonexistent"):
        unlearned = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(aim=aim)).delete(deletion)
        assert unlearned.calibration["status"] in ("reached", "already", "unreached")
        assert unlearned.calibration["trials"]


@pytest.mark.parametrize("name", NAMES)
def test_audit_of_triples(name: str) -> None:
    model, data, task = problem(name)
    deletion = gd.Deletion(edges=gd.datasets.forget_edges(data, 60, seed=1))
    unlearned = gd.Unlearner(model, data, task=task, method=gd.GNNDelete(operator="ring", lam=0.3)).delete(deletion)
    reference = gd.Unlearner(model, data, task=task, method=gd.Retrain(epochs=20, lr=0.02)).delete(deletion)
    values = gd.audit(unlearned, reference=reference).to_dict()
    for section in ("utility", "forgetting", "distance", "theorem", "outliers", "membership", "trend"):
        assert values[section]["available"], (section, values[section])
    asked = values["forgetting"]["unseen"]
    assert asked["served"]["available"]
    assert asked["old_id"]["available"]
    assert asked["old_id"]["unfair"] == ""
    assert "entities" in asked["new_id"]["reason"]  # an entity that the model has no parameters for
    assert values["scores"]["scores"]["after"].keys() == {"deleted", "unseen", "remaining", "random"}


def test_audit_of_deleted_entities() -> None:
    model, data, task = problem()
    unlearned = gd.Unlearner(model, data, task=task).delete(gd.Deletion(nodes=[3, 4, 5]))
    values = gd.audit(unlearned, attacks=False).to_dict()
    assert values["utility"]["available"]
    assert values["forgetting"]["available"]
