"""Nodes that are deleted or lose their last edge: trained vectors of a link model know nothing of them any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, LGConv, SAGEConv

import gnndelete as gd
from gnndelete import Deletion, GNNDelete, LinkPrediction, NodeClassification, Unlearned, Unlearner, Unlink
from gnndelete.methods.gnndelete import method
from gnndelete.methods.gnndelete.calibration import nothing_learned
from gnndelete.nn.forward import call
from gnndelete.nn.operator import GivenRows

NODES = 60


class Remembers(nn.Module):
    """A GCN on features and a trained vector per node."""

    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(NODES, 4)
        self.first, self.second = GCNConv(features + 4, 8), GCNConv(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.cat([x, self.table.weight], dim=1)
        return self.second(self.first(h, edge_index).relu(), edge_index)


def graph() -> tuple[Data, Deletion]:
    """A ring with chords and a request that takes all edges of nodes 5 and 20."""
    torch.manual_seed(0)
    around = torch.arange(NODES)
    pairs = torch.cat([torch.stack([around, (around + step) % NODES]) for step in (1, 7)], dim=1)
    data = Data(x=torch.randn(NODES, 4), edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    return data, Deletion(edges=pairs[:, torch.isin(pairs, torch.tensor([5, 20])).any(dim=0)])


def task() -> LinkPrediction:
    held = torch.stack([torch.arange(0, 30), torch.arange(10, 40)])
    return LinkPrediction(validation=held, test=held.flip(0) + 11)


def blank(model: nn.Module, data: Data, nodes: list[int]) -> Tensor:
    """What the model says of these nodes with blank vectors."""
    weight = dict(model.named_parameters())["table.weight"]
    with torch.no_grad():
        kept = weight.clone()
        weight[nodes] = 0
        said = model(data.x, data.edge_index)[nodes]
        weight.copy_(kept)
    return said


def served(model: nn.Module, data: Data, request: Deletion, method: gd.Method | None = None) -> Unlearned:
    method = GNNDelete(lam=0.3, operator="ring") if method is None else method
    return Unlearner(model.eval(), data, task=task(), method=method).delete(request)


def noted(unlearned: Unlearned) -> bool:
    return "isolated-nodes" in {note.code for note in unlearned.notes}


def stays(unlearned: Unlearned) -> bool:
    return "isolated-nodes-kept" in {note.code for note in unlearned.notes}


@pytest.mark.parametrize("method", [GNNDelete(lam=0.3), GNNDelete(), GNNDelete(lam=0.3, solver="gradient", epochs=5)])
def test_rows_of_nodes_left_alone_are_those_of_blank_vectors(method: GNNDelete) -> None:
    data, request = graph()
    model = Remembers()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    unlearned = served(model, data, request, method)
    wanted = blank(model, unlearned.data, [5, 20])
    torch.testing.assert_close(unlearned.output()[[5, 20]], wanted, rtol=1e-4, atol=1e-5)
    assert noted(unlearned)
    assert unlearned.assurance == "approximate"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Pure(Remembers):
    """Knows nodes by their vectors alone."""

    def __init__(self) -> None:
        super().__init__(features=0)

    def forward(self, edge_index: Tensor) -> Tensor:
        return super().forward(torch.empty(NODES, 0), edge_index)


def many() -> tuple[Data, Deletion]:
    """A request that leaves more than thirty nodes alone."""
    data, _ = graph()
    pairs = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    return data, Deletion(edges=pairs[:, (pairs < 40).any(dim=0)])


def alone_in(data: Data) -> list[int]:
    alone = torch.ones(NODES, dtype=torch.bool)
    alone[data.edge_index.flatten()] = False
    return alone.nonzero().flatten().tolist()


def given_rows(unlearned: Unlearned) -> list[int]:
    """How many rows each of the maps of nodes left alone holds."""
    assert unlearned.model is not None
    return [module.values.size(0) for module in unlearned.model.modules() if isinstance(module, GivenRows)]


def test_pure_vectors_need_one_row_for_all() -> None:
    """Without features blank vectors all say the same."""
    data, request = many()
    model = Pure()
    unlearned = served(model, data, request)
    nodes = alone_in(unlearned.data)
    assert len(nodes) > 30
    assert float(unlearned.output()[nodes].std(dim=0).max()) < 1e-5
    assert float(model(data.edge_index).detach()[nodes].std(dim=0).max()) > 1e-2
    assert given_rows(unlearned) == [1]


def test_more_nodes_than_a_linear_map_could_serve() -> None:
    """Nodes with features keep what these say, each its own, however many they are; one site is enough."""
    data, request = many()
    model = Remembers()
    unlearned = served(model, data, request)
    nodes = alone_in(unlearned.data)
    torch.testing.assert_close(unlearned.output()[nodes], blank(model, unlearned.data, nodes), rtol=1e-4, atol=1e-5)
    assert given_rows(unlearned) == [len(nodes)]


def test_nodes_that_never_had_an_edge_show_what_untrained_vectors_are() -> None:
    data, request = graph()
    never = torch.tensor([30, 31])
    data.edge_index = data.edge_index[:, ~torch.isin(data.edge_index, never).any(dim=0)]
    request = Deletion(edges=request.edges[:, ~torch.isin(request.edges, never).any(dim=0)])
    model = Pure()
    unlearned = served(model, data, request)
    said = unlearned.output()
    for node in (5, 20):
        assert any(torch.allclose(said[node], said[other], atol=1e-5) for other in never)
    again = served(model, data, request).output()
    assert torch.equal(said, again)


def test_a_sampled_batch_gets_its_own_rows() -> None:
    data, request = graph()
    unlearned = served(Remembers(), data, request)
    (_, operator), *_ = unlearned.adapter.operators
    h = torch.zeros(4, operator.width)
    said = operator(h, torch.tensor([50, 20, 30, 5]))
    whole = operator(torch.zeros(NODES, operator.width))
    torch.testing.assert_close(said[[1, 3]], whole[[20, 5]])
    assert not torch.equal(said[1], said[3])


def test_where_lam_comes_to_0_all_other_rows_are_those_of_unlink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of nodes without edges reach nobody."""
    monkeypatch.setattr(method, "choose_lam", lambda *_: nothing_learned("retrained"))
    data, request = graph()
    model = Remembers()
    unlearned, cut = served(model, data, request, GNNDelete()), served(model, data, request, Unlink())
    alone = torch.isin(torch.arange(NODES), torch.tensor([5, 20]))
    assert torch.equal(unlearned.output()[~alone], cut.output()[~alone])
    assert not torch.allclose(unlearned.output()[alone], cut.output()[alone])


def test_lam_0_stays_unlink() -> None:
    data, request = graph()
    model = Remembers()
    unlearned, cut = served(model, data, request, GNNDelete(lam=0)), served(model, data, request, Unlink())
    assert torch.equal(unlearned.output(), cut.output())
    assert not noted(unlearned)


@pytest.mark.parametrize("method", [GNNDelete(aim="nonexistent", lam=0.3), GNNDelete.paper()])
def test_other_aims_stay_what_they_were(method: GNNDelete) -> None:
    data, request = graph()
    assert not noted(served(Remembers(), data, request, method))


def test_an_end_that_keeps_an_edge_is_not_alone() -> None:
    data, request = graph()
    assert not noted(served(Remembers(), data, Deletion(edges=request.edges[:, :1])))


def test_a_neighbour_of_deleted_nodes_may_be_left_alone() -> None:
    data, _ = graph()
    model = Remembers()
    near = data.edge_index[1, data.edge_index[0] == 5].unique().tolist()
    unlearned = served(model, data, Deletion(nodes=near))
    assert any(note.text.startswith("5 nodes lost all their edges") for note in unlearned.notes)
    torch.testing.assert_close(unlearned.output()[[5]], blank(model, unlearned.data, [5]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", ["Remembers", "Skips", "Light"])
@pytest.mark.parametrize("edges", [False, True], ids=["nodes", "nodes and edges"])
def test_a_deleted_node_is_forgotten_as_well_as_all_its_edges_are(make: str, edges: bool) -> None:
    """Whether a request names a node, its edges or both: vectors know the same of it afterwards."""
    data, request = graph()
    data.x[[5, 20]] = 0  # a deleted node loses its features, too
    model = globals()[make]()
    named = Deletion(nodes=[5, 20]) | (request if edges else Deletion())
    by_nodes, by_edges = served(model, data, named), served(model, data, request)
    torch.testing.assert_close(first(by_nodes.output())[[5, 20]], first(by_edges.output())[[5, 20]])
    assert noted(by_nodes)


class Wide(nn.Module):
    """A layer with as many outputs as the graph has nodes: no vectors of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.first, self.second = nn.Linear(4, NODES), GCNConv(NODES, 8), GCNConv(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(self.wide(x), edge_index).relu(), edge_index)


class Sums(Remembers):
    """Every node hears of all vectors, so that to blank one would change all rows."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.cat([x, self.table.weight + self.table.weight.mean(dim=0)], dim=1)
        return self.second(self.first(h, edge_index).relu(), edge_index)


class Stands(Remembers):
    """Refuses NaN."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if bool(torch.isnan(self.table.weight).any()):
            raise ValueError("NaN among the vectors")
        return super().forward(x, edge_index)


def test_what_are_no_vectors_of_nodes_is_left() -> None:
    data, request = graph()
    assert not noted(served(Wide(), data, request))


@pytest.mark.parametrize("make", [Sums, Stands])
def test_vectors_that_cannot_be_singled_out_are_told(make: type[nn.Module]) -> None:
    data, request = graph()
    unlearned, cut = (
        served(make(), data, request, GNNDelete(lam=0.01, operator="ring")),
        served(make(), data, request, Unlink()),
    )
    assert stays(unlearned)
    assert not noted(unlearned)
    assert not stays(cut)
    assert unlearned.output().isfinite().all()


class Skips(Remembers):
    """Hands its vectors past the layers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.cat([super().forward(x, edge_index), self.table.weight], dim=1)


class Light(Remembers):
    """Layers without a way from a node to itself, and the vectors added to what they say."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = LGConv()

    def forward(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        h = self.table.weight
        once = self.first(h, edge_index)
        return h + once + self.first(once, edge_index), once


def first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("make", [Skips, Light])
@pytest.mark.parametrize("method", [GNNDelete(lam=0.3), GNNDelete()])
def test_vectors_that_go_past_the_layers_are_given_in_the_output(
    make: type[Remembers], method: GNNDelete, tmp_path: Path
) -> None:
    data, request = many()
    model = make()
    unlearned = served(model, data, request, method)
    nodes = alone_in(unlearned.data)
    with torch.no_grad():
        kept = model.table.weight.clone()
        model.table.weight[nodes] = 0
        wanted = call(model, unlearned.data)
        model.table.weight.copy_(kept)
    said = unlearned.output()
    torch.testing.assert_close(first(said)[nodes], first(wanted)[nodes], rtol=1e-4, atol=1e-5)
    assert noted(unlearned)
    unlearned.save(tmp_path / "saved")
    again = gd.load(tmp_path / "saved", model, unlearned.data)
    assert torch.equal(first(again.output()), first(said))
    with unlearned.adapter.disabled():
        cut = first(served(model, data, request, Unlink()).output())
        torch.testing.assert_close(first(call(unlearned.model, unlearned.data)), cut)


class Decodes(Remembers):
    """Scores by the vectors themselves."""

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return (z[edge_label_index[0]] * self.table.weight[edge_label_index[1]]).sum(dim=1)


@pytest.mark.parametrize("request_of", [lambda edges: edges, lambda edges: Deletion(nodes=[5])], ids=["edges", "nodes"])
def test_a_decoder_that_reads_the_vectors_is_told(request_of: Callable[[Deletion], Deletion]) -> None:
    data, request = graph()
    held = torch.stack([torch.arange(0, 30), torch.arange(10, 40)])
    about = LinkPrediction(validation=held, test=held.flip(0) + 11, decoder="decode")
    unlearner = Unlearner(Decodes().eval(), data, task=about, method=GNNDelete(lam=0.3, operator="ring"))
    unlearned = unlearner.delete(request_of(request))
    assert stays(unlearned)
    assert not noted(unlearned)


class Unit(Remembers):
    """A blank vector has no direction."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.table.weight
        return self.second(self.first(torch.cat([x, h / h.norm(dim=1, keepdim=True)], dim=1), edge_index), edge_index)


class Cosine(Remembers):
    """Nor has the row of one behind layers without a bias."""

    def __init__(self) -> None:
        super().__init__(features=0)
        self.first, self.second = GCNConv(4, 8, bias=False), GCNConv(8, 4, bias=False)

    def forward(self, edge_index: Tensor) -> Tensor:
        z = super().forward(torch.empty(NODES, 0), edge_index)
        return z / z.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("make", [Unit, Cosine])
@pytest.mark.parametrize("method", [GNNDelete(lam=0.1), GNNDelete()])
def test_no_blank_vector_is_served_as_nan(make: type[Remembers], method: GNNDelete) -> None:
    """Then it is the mean of all vectors."""
    data, request = graph()
    unlearned = served(make(), data, request, method)
    assert unlearned.output().isfinite().all()
    assert noted(unlearned)


@pytest.mark.parametrize("further", [Deletion(edges=[(40, 41)]), Deletion(features=[(5, 0)])])
def test_a_further_request_forgets_no_less(further: Deletion) -> None:
    """Also where it is about features of a node that is left alone."""
    data, request = graph()
    model = Remembers()
    unlearner = Unlearner(model.eval(), data, task=task(), method=GNNDelete(lam=0.3, operator="ring"))
    unlearner.delete(request)
    later = unlearner.delete(further)
    torch.testing.assert_close(later.output()[[5, 20]], blank(model, later.data, [5, 20]), rtol=1e-4, atol=1e-5)


def test_edges_to_learn_from_count_and_loops_do_not() -> None:
    data, request = graph()
    loops = torch.arange(NODES).expand(2, -1)
    data.edge_index = torch.cat([data.edge_index, loops], dim=1)
    assert noted(served(Remembers(), data, request))
    data.edge_label_index = torch.tensor([[5, 20, 1], [9, 30, 2]])
    assert not noted(served(Remembers(), data, request))


def test_few_nodes_without_edges_lend_their_size_and_not_themselves() -> None:
    """Two ends with the same vector would look like an edge."""
    data, request = many()
    lonely = Data(x=torch.cat([data.x, torch.randn(1, 4)]), edge_index=data.edge_index, num_nodes=NODES + 1)
    model = Remembers()
    model.table = nn.Embedding(NODES + 1, 4)
    said = served(model, lonely, request).output()
    alone = [node for node in alone_in(served(model, lonely, request, Unlink()).data) if node < NODES]
    assert torch.pdist(said[alone]).min() > 1e-3


def test_a_table_that_was_given_is_like_a_feature() -> None:
    data, request = graph()
    model = Remembers()
    model.table.weight.requires_grad_(False)
    assert not noted(served(model, data, request))
    assert noted(served(model.requires_grad_(False), data, request))  # frozen as a whole, to be served


def test_a_label_still_teaches_the_vector_of_a_node_without_edges() -> None:
    data, request = graph()
    data.y = torch.arange(NODES) % 4
    data.train_mask = data.val_mask = data.test_mask = torch.ones(NODES, dtype=torch.bool)
    unlearned = Unlearner(Remembers().eval(), data, task=NodeClassification(), method=GNNDelete(lam=0.3)).delete(
        request
    )
    assert not noted(unlearned)


class Layer(GCNConv):
    """A model that is a graph layer itself."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.table = nn.Embedding(NODES, 4)

    def forward(self, edge_index: Tensor) -> Tensor:
        return super().forward(self.table.weight, edge_index)


@pytest.mark.parametrize("method", [GNNDelete(lam=0.3), GNNDelete()])
def test_a_model_that_is_a_layer(method: GNNDelete) -> None:
    data, request = graph()
    unlearned = served(Layer(), data, request, method)
    assert noted(unlearned)
    torch.testing.assert_close(unlearned.output()[5], unlearned.output()[20])


@pytest.mark.parametrize("make", [Remembers, Skips])
def test_an_audit_takes_it(make: type[Remembers]) -> None:
    """The theorem is about edges whose ends an operator maps: ends that are left alone have no part in it."""
    data, request = graph()
    both = request | Deletion(edges=[(40, 41), (42, 49)])
    report = gd.audit(served(make(), data, both, GNNDelete(lam=0.3, operator="ring"))).to_dict()
    assert report["theorem"]["edges"] == 2
    only = gd.audit(served(make(), data, request, GNNDelete(lam=0.3, operator="ring"))).to_dict()
    assert "both ends" in only["theorem"]["reason"]


def test_the_adapter_keeps_the_rows(tmp_path: Path) -> None:
    data, request = graph()
    model = Remembers()
    unlearned = served(model, data, request)
    unlearned.save(tmp_path / "saved")
    again = gd.load(tmp_path / "saved", model, unlearned.data)
    torch.testing.assert_close(again.output(), unlearned.output(), rtol=0, atol=0)


class ByType(nn.Module):
    """Users known by a vector, items by features."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(12, 6)
        pairs = (("user", "buys", "item"), ("item", "bought", "user"))
        self.first = HeteroConv({pair: SAGEConv((6, 6), 6) for pair in pairs})

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict) -> dict[str, Tensor]:
        return self.first({"user": self.users.weight, "item": x_dict["item"]}, edge_index_dict)


def test_vectors_of_one_node_type() -> None:
    torch.manual_seed(0)
    data = HeteroData()
    data["user"].num_nodes, data["item"].x = 12, torch.randn(9, 6)
    pairs = torch.stack([torch.arange(36) % 12, torch.arange(36) * 5 % 9]).unique(dim=1)
    data["user", "buys", "item"].edge_index = pairs
    data["item", "bought", "user"].edge_index = pairs.flip(0)
    model = ByType().eval()
    gone = pairs[:, pairs[0] == 4]
    request = Deletion(edges={("user", "buys", "item"): gone, ("item", "bought", "user"): gone.flip(0)})
    about = LinkPrediction(validation=pairs[:, :3], test=pairs[:, 3:6], edge_type=("user", "buys", "item"))
    unlearned = Unlearner(model, data, task=about, method=GNNDelete(lam=0.2)).delete(request)
    wanted = model.first.convs["item", "bought", "user"].lin_l.bias  # nothing is heard, and nothing known
    torch.testing.assert_close(unlearned.output()["user"][4], wanted.detach(), rtol=1e-4, atol=1e-5)
    assert noted(unlearned)
    whole = Unlearner(model, data, task=about, method=GNNDelete(lam=0.2)).delete(Deletion(nodes={"user": [4]}))
    torch.testing.assert_close(whole.output()["user"][4], wanted.detach(), rtol=1e-4, atol=1e-5)
    assert noted(whole)
