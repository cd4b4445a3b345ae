"""HeteroData from end to end: every model of the table, one operator per node type, and the words of the user."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

import gnndelete as gd
from gnndelete.errors import DeletionError, GraphError, ModelError, RequestError, SettingError
from gnndelete.graph.batch import collate
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.methods import CONTROLS
from gnndelete.nn.forward import call, evaluating
from tests.hetero import AUTHORS, CITES, HIDDEN, IN, MODELS, OUT, PAPERS, WRITES, make_hetero, make_model

BACK = ("paper", "rev_writes", "author")


@pytest.fixture
def data() -> HeteroData:
    return make_hetero()


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, data: HeteroData) -> nn.Module:
    return make_model(request.param, data)


def some_writes(data: HeteroData, start: int = 20, count: int = 3) -> Tensor:
    return data[WRITES].edge_index[:, start : start + count]


def link_task(seed: int = 0) -> gd.LinkPrediction:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.stack(
        [torch.randint(AUTHORS, (80,), generator=generator), torch.randint(PAPERS, (80,), generator=generator)]
    )
    return gd.LinkPrediction(edge_type=WRITES, validation=pairs[:, :40], test=pairs[:, 40:])


def outputs(model: nn.Module, data: HeteroData) -> dict[str, Tensor]:
    with evaluating(model):
        return call(model, data)


def everything(data: HeteroData) -> dict[str, Any]:
    return {f"{store._key} {name}": value.clone() for store in data.stores for name, value in store.items()}


def test_node_types_stand_side_by_side_and_reverses_belong_to_their_relation(data: HeteroData) -> None:
    graph = collate(data)
    assert graph.num_nodes == sum(data[kind].num_nodes for kind in data.node_types)
    assert graph.edge_index.size(1) == data.num_edges
    assert dict(zip(graph.types.edges, graph.types.mirror, strict=True))[BACK] == graph.types.number(WRITES)
    assert graph.types.mirror[graph.types.number(CITES)] == graph.types.number(CITES)  # both ways in one type
    assert graph.types.forward() == [WRITES, CITES, IN]
    assert graph.hetero is not data
    assert graph.hetero.to_dict().keys() == data.to_dict().keys()


def test_a_name_alone_makes_no_reverse(data: HeteroData) -> None:
    data[BACK].edge_index = data[BACK].edge_index[:, 1:]
    data[BACK].edge_attr = data[BACK].edge_attr[1:]
    left = gd.Deletion(edges={WRITES: some_writes(data)}).remaining(data)
    assert left[WRITES].edge_index.size(1) == data[WRITES].edge_index.size(1) - 3
    assert left[BACK].edge_index.size(1) == data[BACK].edge_index.size(1)


def test_the_remaining_graph_is_a_hetero_data_again(data: HeteroData) -> None:
    before = everything(data)
    gone = some_writes(data)
    deletion = gd.Deletion(
        edges={WRITES: gone, CITES: [(1, 0)]},
        nodes={"paper": [50], "author": [0]},
        features={"author": {3: [0, 2]}, "venue": [1]},
        labels={"paper": [9]},
        fill=0.5,
    )
    left = deletion.remaining(data)
    assert type(left) is HeteroData
    pairs = {tuple(pair) for pair in left[WRITES].edge_index.t().tolist()}
    assert not pairs & {tuple(pair) for pair in gone.t().tolist()}
    assert torch.equal(left[BACK].edge_index.flip(0).unique(dim=1), left[WRITES].edge_index.unique(dim=1))
    assert left[WRITES].edge_attr.size(0) == left[WRITES].edge_index.size(1)
    assert not bool(((left[CITES].edge_index[0] == 0) & (left[CITES].edge_index[1] == 1)).any())
    assert not bool((left[WRITES].edge_index[0] == 0).any())
    assert not bool((left[IN].edge_index[0] == 50).any())
    assert left["author"].x[3, [0, 2]].tolist() == [0.5, 0.5]
    assert torch.equal(left["author"].x[3, 1], data["author"].x[3, 1])
    assert not bool(left["author"].x[0].any())
    assert not bool(left["paper"].x[50].any())
    assert left["venue"].x[1].tolist() == [0.5] * 3
    assert left["paper"].y[[9, 50]].tolist() == [-1, -1]
    assert not bool(left["paper"].train_mask[[9, 50]].any())
    after = everything(data)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_relation_and_its_reverse_name_the_same_edges(data: HeteroData) -> None:
    one = gd.Deletion(edges={WRITES: some_writes(data)})
    other = gd.Deletion(edges={BACK: some_writes(data).flip(0)})
    assert one.check(data) == other.check(data)
    whole = gd.Deletion(relations=[IN])
    assert whole.check(data).counts == {"edges": 6, "relations": 1}
    assert whole.remaining(data)["venue", "rev_in", "paper"].edge_index.size(1) == 0
    for short in ("in", ["in"], IN, [list(IN)], ["rev_in"]):  # the relation is enough where one edge type has it
        assert gd.Deletion(relations=short).check(data) == whole.check(data)
    assert gd.Deletion.from_lists(gd.Deletion(relations="in").to_lists()).check(data) == whole.check(data)
    data["author", "in", "author"].edge_index = torch.tensor([[0], [1]])
    with pytest.raises(DeletionError, match="2 edge types have the relation 'in'"):
        gd.Deletion(relations=["in"]).check(data)


def test_requests_by_type_can_be_joined_and_written_down(data: HeteroData) -> None:
    a, b = gd.Deletion(edges={WRITES: some_writes(data)}), gd.Deletion(nodes={"paper": [3]}, labels={"paper": [4]})
    together = gd.Deletion(edges={WRITES: some_writes(data)}, nodes={"paper": [3]}, labels={"paper": [4]})
    assert a | b == b | a == together
    assert together.counts == {"edges": 3, "nodes": 1, "labels": 1}
    assert gd.Deletion.from_lists(together.to_lists()) == together
    checked = together.check(data)
    assert checked.check(data) == checked
    assert gd.Deletion.from_lists(checked.to_lists()).check(data) == checked
    with pytest.raises(DeletionError, match="check both"):
        a | checked


def test_a_held_out_edge_is_named_by_its_types(data: HeteroData) -> None:
    task = gd.LinkPrediction(edge_type=WRITES, test=torch.tensor([[0], [59]]))
    unlearner = gd.Unlearner(make_model("HeteroConv", data), data, task=task, method="unlink")
    with pytest.raises(
        DeletionError, match=r"held out from training: \('author 0', 'writes', 'paper 59'\) \(for testing\)"
    ):
        unlearner.delete(gd.Deletion(edges={WRITES: [(0, 59)]}))


def test_a_deletion_that_leaves_nothing_of_the_task_is_refused(data: HeteroData) -> None:
    data["author", "knows", "author"].edge_index = torch.tensor([[0, 1], [1, 2]])  # all other types touch papers
    model, papers = make_model("HeteroConv", data), gd.Deletion(nodes={"paper": range(PAPERS)})
    authors = gd.Deletion(nodes={"author": range(AUTHORS)})
    links, nodes = gd.LinkPrediction(edge_type=WRITES), gd.NodeClassification()
    for task, request in (
        (links, papers),
        (links, authors),
        (links, gd.Deletion(relations=["writes"])),
        (nodes, papers),
    ):
        unlearner = gd.Unlearner(model, data, task=task, method="unlink")
        with pytest.raises(DeletionError, match=r"which the task is about; .* retire it"):
            unlearner.delete(request)
        assert unlearner.history == ()
    assert gd.Unlearner(model, data, task=nodes, method="unlink").delete(authors).evaluate()


WRONG = {
    "no such node type": ({"nodes": {"papr": [1]}}, "'papr'.*'author', 'paper', 'venue'"),
    "no such edge type": ({"edges": {("author", "reads", "paper"): [(0, 0)]}}, "'reads'.*'writes'"),
    "no edge type": ({"edges": {"writes": [(0, 0)]}}, r"\(source type, relation, target type\)"),
    "no node type": ({"nodes": {3: [1]}}, "node type 3"),
    "out of range": ({"nodes": {"paper": [PAPERS]}}, f"'paper' nodes.*{PAPERS}.*0 to {PAPERS - 1}"),
    "end out of range": ({"edges": {WRITES: [(0, PAPERS)]}}, f"'paper' nodes.*{PAPERS}"),
    "no such edge": ({"edges": {WRITES: [(0, 59)]}}, "author 0.*writes.*paper 59"),
    "triples": ({"edges": {WRITES: [(0, 0, 1)]}}, "give pairs"),
    "empty": ({"edges": {WRITES: []}}, "names nothing"),
    "plain ids": ({"nodes": [1]}, r"nodes=\{type: …\}.*'author'"),
    "plain edges": ({"edges": [(0, 1)]}, "plain ids.*writes"),
    "half by type": ({"nodes": {"paper": [1]}, "edges": [(0, 1)]}, "edges= is not"),
    "no labels": ({"labels": {"author": [1]}}, "'author' has none .no 'y'"),
    "no such column": ({"features": {"author": [(0, 9)]}}, "columns.*0 to 4"),
    "graphs": ({"graphs": [1]}, "a HeteroData is one graph"),
    "graphs beside types": ({"graphs": [1], "nodes": {"paper": [1]}}, "a HeteroData is one graph"),
    "relation": ({"relations": [("a", "b", "c")]}, "no edge type"),
    "relation by name": ({"relations": ["reads"]}, "no edge type 'reads'.*'writes'"),
    "half an edge type": ({"relations": [("author", "writes")]}, r"\(source type, relation, target type\)"),
    "fill of another type": ({"features": {"venue": [1]}, "fill": {"papr": 1.0}}, "of 'papr'.*those of 'venue'"),
    "fill of no features": ({"nodes": {"paper": [1]}, "fill": {"paper": 1.0}}, "features= names none"),
    "one fill of no features": ({"nodes": {"paper": [1]}, "fill": 1.0}, "features= names none"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_in_one_sentence(name: str, data: HeteroData) -> None:
    request, needle = WRONG[name]
    with pytest.raises(DeletionError) as caught:
        gd.Deletion(**request).check(data)
    assert re.search(needle, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_types_are_refused_on_a_plain_graph() -> None:
    plain = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(DeletionError, match=r"'paper'.*no HeteroData"):
        gd.Deletion(nodes={"paper": [1]}).check(plain)
    with pytest.raises(SettingError, match="node_type"):
        gd.NodeClassification(node_type="paper").on(plain)
    with pytest.raises(SettingError, match="edge_type"):
        gd.LinkPrediction(edge_type=WRITES).on(plain)


def test_faulty_graphs(data: HeteroData) -> None:
    def spoiled(change: Any) -> HeteroData:
        other = copy.copy(data)
        change(other)
        return other

    def nan(other: HeteroData) -> None:
        other["author"].x = torch.full((AUTHORS, 5), float("nan"))

    def far(other: HeteroData) -> None:
        other[IN].edge_index = torch.tensor([[0], [99]])

    def uncounted(other: HeteroData) -> None:
        other["venue", "of", "city"].edge_index = torch.tensor([[0], [0]])

    model = make_model("HeteroConv", data)
    for graph, needle in (
        (spoiled(nan), "'x' of 'author' holds NaN"),
        (spoiled(far), "'venue' node 99"),
        (spoiled(uncounted), "'city' nodes is unknown"),
        (HeteroData(), "0 node types"),
    ):
        with pytest.raises(GraphError, match=needle):
            gd.Unlearner(model, graph)


def test_inspect_finds_one_site_per_node_type_with_its_reach(model: nn.Module, data: HeteroData) -> None:
    found = gd.inspect(model, data, task=link_task())
    assert {(site.key, site.width, site.hops) for site in found.sites} == {
        (kind, width, hops) for kind in data.node_types for width, hops in ((HIDDEN, 1), (OUT, 2))
    }
    assert found.hops == 2
    assert found.bounded
    assert all(site.probed for site in found.sites)
    assert found.parameters == 3 * (HIDDEN**2 + OUT**2)
    assert [name for name, reasons in found.methods.items() if not reasons] == [
        "gnndelete",
        "regrow",
        "retrain",
        "unlink",
    ]
    assert "3 node types" in str(found.methods["gif"][0])
    assert found.to_dict()["sites"][0]["rows"] in (AUTHORS, PAPERS, 6)
    assert "edges (of 5 types, counted both ways)" in str(found)
    oneway = copy.copy(data)
    del oneway["venue", "rev_in", "paper"]
    assert collate(oneway).types.ways() == "of 4 types; counted both ways: 'writes', 'cites'; one way: 'in'"
    assert collate(oneway.edge_type_subgraph([IN])).types.ways() == "of 1 type, directed"


def within(data: HeteroData, deletion: gd.Deletion, hops: int) -> dict[str, Tensor]:
    """Nodes of each type within some hops, counted edge by edge on the original graph."""
    checked, graph = deletion.check(data), collate(data)
    near = torch.zeros(graph.num_nodes, dtype=torch.bool)
    near[checked.named_nodes] = True
    for _ in range(hops):
        source, target = graph.edge_index
        near = near.index_fill(0, target[near[source]], True).index_fill(0, source[near[target]], True)
    return {kind: near[rows.start : rows.stop] for kind, rows in graph.types.nodes.items()}


DELETIONS = {
    "edges": lambda data: gd.Deletion(edges={WRITES: some_writes(data)}),
    "nodes": lambda data: gd.Deletion(nodes={"paper": [30], "author": [5]}),
    "features": lambda data: gd.Deletion(features={"author": {10: [0, 1]}}),
    "mixed": lambda data: gd.Deletion(edges={CITES: [(20, 21)]}, nodes={"venue": [2]}, features={"paper": [40]}),
}


@pytest.mark.parametrize("kind", DELETIONS)
def test_rows_outside_the_rings_are_bit_identical(kind: str, model: nn.Module, data: HeteroData) -> None:
    deletion = DELETIONS[kind](data)
    weights, before = copy.deepcopy(model.state_dict()), everything(data)
    unlearned = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.5)).delete(deletion)
    after, base = outputs(unlearned.model, unlearned.data), outputs(model, unlearned.data)
    near = within(data, deletion, 2)
    assert not all(bool(part.all()) for part in near.values())
    for name, rows in near.items():
        assert torch.equal(after[name][~rows], base[name][~rows])
        assert torch.allclose(after[name][~rows], outputs(model, data)[name][~rows], atol=1e-6)
    assert unlearned.parameters
    assert all(operator.rows.numel() for _, operator in unlearned.adapter.operators)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights.items())
    assert all(torch.equal(value, everything(data)[name]) for name, value in before.items())


def test_one_operator_per_node_type_with_the_parameters_it_should_have(model: nn.Module, data: HeteroData) -> None:
    deletion = gd.Deletion(edges={WRITES: some_writes(data), IN: data[IN].edge_index[:, 2:3]})
    unlearned = gd.Unlearner(model, data, method=gd.GNNDelete.paper()).delete(deletion)
    operators = unlearned.adapter.operators
    assert {(place.layer, place.key) for place, _ in operators} == {
        (site.layer, site.key) for site in gd.inspect(model, data).sites
    }
    assert unlearned.parameters == 3 * (HIDDEN**2 + OUT**2)
    for place, operator in operators:
        assert operator.num_rows == data[place.key].num_nodes
        rows = within(data, deletion, 1 if operator.width == HIDDEN else 2)[place.key].nonzero().flatten()
        assert operator.rows.tolist() == rows.tolist()


def test_lam_zero_is_unlink(model: nn.Module, data: HeteroData) -> None:
    deletion = DELETIONS["mixed"](data)
    zero = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.0)).delete(deletion)
    unlink = gd.Unlearner(model, data, method="unlink").delete(deletion)
    one, other = outputs(zero.model, zero.data), outputs(unlink.model, unlink.data)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert zero.parameters == 0


def test_the_base_checkpoint_loads_strictly_after_detaching(model: nn.Module, data: HeteroData) -> None:
    unlearned = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.5)).delete(DELETIONS["edges"](data))
    with unlearned.adapter.disabled():
        assert torch.equal(outputs(unlearned.model, data)["paper"], outputs(model, data)["paper"])
    bare = copy.deepcopy(unlearned.adapter).detach()
    assert bare.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(outputs(bare, data)["paper"], outputs(model, data)["paper"])


def test_save_and_load(model: nn.Module, data: HeteroData, tmp_path: Path) -> None:
    task, asked = link_task(), {WRITES: torch.stack([torch.arange(10), torch.arange(10)])}
    unlearned = gd.Unlearner(model, data, task, gd.GNNDelete(lam=0.5)).delete(DELETIONS["edges"](data))
    unlearned.save(tmp_path)
    loaded = gd.load(tmp_path, model, unlearned.data, task=task)
    assert torch.equal(loaded.predict(asked), unlearned.predict(asked))
    assert isinstance(loaded.data, HeteroData)
    with pytest.raises(RequestError, match="before the deletion"):
        gd.load(tmp_path, model, data)
    other = copy.copy(unlearned.data)
    other["venue"].x = other["venue"].x + 1
    with pytest.raises(RequestError, match="another graph"):
        gd.load(tmp_path, model, other)


def test_a_sequence_is_its_union_in_any_order(model: nn.Module, data: HeteroData, tmp_path: Path) -> None:
    parts = [DELETIONS[kind](data) for kind in ("edges", "nodes", "features")]
    method = gd.GNNDelete(lam=0.5)
    at_once = gd.Unlearner(model, data, method=method).delete(parts[0] | parts[1] | parts[2])
    expected = outputs(at_once.model, at_once.data)
    for order in ((0, 1, 2), (2, 0, 1)):
        unlearner = gd.Unlearner(model, data, method=method)
        for index in order:
            unlearned = unlearner.delete(parts[index])
        found = outputs(unlearned.model, unlearned.data)
        assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in expected)
        assert fingerprint(unlearned.graph) == fingerprint(at_once.graph)
    with pytest.raises(DeletionError, match=r"already deleted.*author.*writes"):
        unlearner.delete(parts[0])
    unlearner.save_state(tmp_path / "state.json")
    again = gd.Unlearner(model, data, method=method).load_state(tmp_path / "state.json").compact()
    assert torch.allclose(outputs(again.model, again.data)["paper"], expected["paper"], atol=1e-5)


def test_links_are_trained_predicted_and_calibrated(data: HeteroData) -> None:
    model, task = make_model("to_hetero(SAGE)", data), link_task()
    gd.train(model, data, task, epochs=30, lr=0.01)
    gone = some_writes(data, 0, 25)
    unlearned = gd.Unlearner(model, data, task).delete(gd.Deletion(edges={WRITES: gone}))
    assert unlearned.calibration["lam"] == unlearned.lam
    assert unlearned.calibration["trials"]
    z = outputs(unlearned.model, unlearned.data)
    by_hand = (z["author"][gone[0]] * z["paper"][gone[1]]).sum(dim=1)
    assert torch.allclose(unlearned.predict({WRITES: gone}), by_hand)
    assert torch.equal(unlearned.predict(gone), unlearned.predict({WRITES: gone}))
    assert {"test_auroc", "deleted_auroc"} <= unlearned.evaluate().keys()
    score = gd.evaluate(unlearned.model, unlearned.data, task)["auroc"]  # the same negatives as the Unlearner drew
    assert score == unlearned.evaluate()["test_auroc"]
    with pytest.raises(SettingError, match="scores edges of"):
        unlearned.predict({IN: gone})
    with pytest.raises(GraphError, match="'author' nodes"):
        unlearned.predict({WRITES: [(AUTHORS, 0)]})
    other = gd.Unlearner(model, data, task).delete(gd.Deletion(edges={IN: data[IN].edge_index[:, :2]}))
    assert "none of that type is deleted" in other.calibration["sentence"]


def test_negatives_are_pairs_of_the_two_types_that_are_no_edges(data: HeteroData) -> None:
    graph, task = collate(data), link_task()
    placed = task.on(graph)
    placed.check(graph)
    assert task.on(graph) is placed
    negatives = placed.test.negatives[[0, 2]] - graph.types.starts(WRITES)
    known = {
        tuple(p)
        for p in torch.cat([data[WRITES].edge_index, task.validation.positives, task.test.positives], dim=1)
        .t()
        .tolist()
    }
    assert not known & {tuple(pair) for pair in negatives.t().tolist()}
    assert all(
        0 <= int(row.min()) <= int(row.max()) < count for row, count in zip(negatives, (AUTHORS, PAPERS), strict=True)
    )
    drawn = placed._supervised(graph).negatives(torch.Generator().manual_seed(0))[[0, 2]] - graph.types.starts(WRITES)
    assert drawn.size(1) == data[WRITES].edge_index.size(1)
    assert not {tuple(p) for p in data[WRITES].edge_index.t().tolist()} & {tuple(p) for p in drawn.t().tolist()}


def test_splits_of_pyg_are_understood(data: HeteroData) -> None:
    del data[WRITES].edge_attr, data[BACK].edge_attr
    split = T.RandomLinkSplit(0.1, 0.1, edge_types=WRITES, rev_edge_types=BACK, add_negative_train_samples=False)
    train, validation, test = split(data)
    task = gd.LinkPrediction(validation=validation, test=test)
    model = make_model("HeteroConv", train)
    unlearned = gd.Unlearner(model, train, task).delete(gd.Deletion(edges={WRITES: train[WRITES].edge_index[:, :5]}))
    assert unlearned.predict({WRITES: some_writes(data)}).shape == (3,)  # the only type with 'edge_label_index'
    gone = {tuple(pair) for pair in train[WRITES].edge_index[:, :5].t().tolist()}
    assert not gone & {tuple(pair) for pair in unlearned.data[WRITES].edge_label_index.t().tolist()}
    assert unlearned.data[WRITES].edge_label.size(0) == unlearned.data[WRITES].edge_label_index.size(1)


def test_the_type_must_be_named_where_several_could_be_meant(data: HeteroData) -> None:
    model = make_model("HeteroConv", data)
    with pytest.raises(SettingError, match=r"3 edge types.*edge_type="):
        gd.Unlearner(model, data, gd.LinkPrediction())
    with pytest.raises(GraphError, match=r"no edge type.*'writes'"):
        gd.Unlearner(model, data, gd.LinkPrediction(edge_type=("a", "b", "c")))
    data["author"].y, data["author"].train_mask = torch.zeros(AUTHORS).long(), torch.ones(AUTHORS).bool()
    with pytest.raises(SettingError, match=r"2 node types.*node_type="):
        gd.Unlearner(model, data, "node")
    with pytest.raises(GraphError, match=r"no node type 'papr'"):
        gd.Unlearner(model, data, gd.NodeClassification("papr"))


@pytest.mark.parametrize("name", ["HeteroConv", "HGT"])
def test_nodes_of_one_type_are_classified(name: str, data: HeteroData) -> None:
    model = make_model(name, data)
    gd.train(model, data, "node", epochs=20, lr=0.01)
    unlearned = gd.Unlearner(model, data, "node").delete(gd.Deletion(nodes={"paper": [0, 1, 4]}, labels={"paper": [5]}))
    assert unlearned.task.node_type == "paper"
    chance = unlearned.predict({"paper": [7, 3]})
    assert torch.allclose(chance, outputs(unlearned.model, unlearned.data)["paper"][[7, 3]].softmax(dim=-1))
    assert unlearned.calibration["trials"]
    test = data["paper"].test_mask
    right = outputs(unlearned.model, unlearned.data)["paper"][test].argmax(dim=1) == data["paper"].y[test]
    assert unlearned.evaluate()["test_accuracy"] == pytest.approx(float(right.double().mean()))
    with pytest.raises(SettingError, match="'paper' nodes"):
        unlearned.predict({"author": [1]})


def test_retrain_controls_and_fit_see_a_hetero_data(data: HeteroData) -> None:
    model, task = make_model("HeteroConv", data), link_task()
    seen = []

    def fit(model: nn.Module, graph: HeteroData, seed: int) -> None:
        seen.append(graph)

    def forward(model: nn.Module, graph: HeteroData) -> dict[str, Tensor]:
        seen.append(graph)
        return model(graph.x_dict, graph.edge_index_dict)

    deletion = DELETIONS["edges"](data)
    for method in (gd.Retrain(epochs=3), gd.Unlink(), *(control() for control in CONTROLS)):
        unlearned = gd.Unlearner(model, data, task, method, forward=forward).delete(deletion)
        assert isinstance(unlearned.data, HeteroData)
        assert unlearned.predict({WRITES: some_writes(data)}).shape == (3,)
    gd.Unlearner(model, data, task, "retrain", fit=fit).delete(deletion)
    assert all(isinstance(graph, HeteroData) for graph in seen)
    zeroed = gd.Unlearner(model, data, task, CONTROLS[0]()).delete(deletion)
    assert not bool(outputs(zeroed.model, zeroed.data)["author"][some_writes(data)[0]].any())
    with pytest.raises(ModelError, match=r"'gif' does not fit.*3 node types.*gnndelete"):
        gd.Unlearner(model, data, task, "gif")


def test_compare_and_audit(data: HeteroData) -> None:
    del data[WRITES].edge_attr, data[BACK].edge_attr
    model, task = make_model("HeteroConv", data), link_task()
    gd.train(model, data, task, epochs=20, lr=0.01)
    deletion = gd.Deletion(edges={WRITES: some_writes(data, 0, 25)}, nodes={"venue": [1]})
    table = gd.compare(
        model, data, deletion, task, ["gnndelete", "unlink"], seeds=1, fit=lambda model, data, seed: model
    )
    assert table.methods == ["original", "retrain", "gnndelete", "unlink", "zeroed", "untrained"]
    reference = gd.Unlearner(model, data, task, gd.Retrain(epochs=20, lr=0.01)).delete(deletion)
    unlearned = gd.Unlearner(model, data, task, gd.GNNDelete(lam=0.3)).delete(deletion)
    values = gd.audit(unlearned, reference).to_dict()
    assert values["utility"]["metrics"]["auroc"]["after"] == unlearned.evaluate()["test_auroc"]
    asked = values["forgetting"]["unseen"]
    assert asked["served"]["available"]
    assert asked["served"]["after"]["deleted"] == 25
    assert asked["old_id"]["available"]
    assert not asked["new_id"]["available"]
    for section in ("theorem", "trend", "outliers"):
        assert not values[section]["available"]
        assert values[section]["reason"]
    assert values["distance"]["available"]


def test_rows_of_a_sampled_batch_are_named_by_type(data: HeteroData) -> None:
    model = make_model("HeteroConv", data)
    unlearned = gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.5)).delete(DELETIONS["edges"](data))
    whole, left = outputs(unlearned.model, unlearned.data), unlearned.data
    order = {
        kind: torch.randperm(left[kind].num_nodes, generator=torch.Generator().manual_seed(1))
        for kind in left.node_types
    }
    place = {kind: ids.argsort() for kind, ids in order.items()}
    x = {kind: left[kind].x[ids] for kind, ids in order.items()}
    edges = {
        kind: torch.stack([place[kind[0]][left[kind].edge_index[0]], place[kind[2]][left[kind].edge_index[1]]])
        for kind in left.edge_types
    }
    with evaluating(unlearned.model), gd.rows(unlearned.model, order):
        shuffled = unlearned.model(x, edges)
    for kind, ids in order.items():
        assert torch.allclose(shuffled[kind], whole[kind][ids], atol=1e-5)
    some = {"paper": order["paper"]}
    with (
        evaluating(unlearned.model),
        gd.rows(unlearned.model, some),
        pytest.raises(ModelError, match="every node type"),
    ):
        unlearned.model(x, edges)
