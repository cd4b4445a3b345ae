"""Splits: every edge in exactly one part, negatives never true, the same for the same seed and only for it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from gnndelete.datasets import LinkSplit, load, load_split, save_split, split_graphs, split_links, split_nodes
from gnndelete.errors import GraphError, NotYetError, SettingError

PINNED = {
    "validation": [[53, 913, 460], [1619, 978, 1333]],
    "test_negatives": [[701, 473, 785], [1007, 1399, 1698]],
}
PARTS = ("validation", "test", "validation_negatives", "test_negatives")


def pairs(edges: Tensor) -> list[tuple[int, int]]:
    return list(zip(*edges.tolist(), strict=True))


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    """Sparse random graphs, directed or not, with loops, parallel copies and an attribute per edge."""
    nodes = draw(st.integers(12, 20))
    node = st.integers(0, nodes - 1)
    edges = torch.tensor(draw(st.lists(st.tuples(node, node), max_size=50)), dtype=torch.long).view(-1, 2).t()
    if draw(st.booleans()):
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    mark = edges[0] * 100 + edges[1]
    return Data(x=torch.zeros(nodes, 2), edge_index=edges, edge_attr=mark.view(-1, 1).float(), edge_weight=mark)


@given(graphs(), st.integers(0, 100), st.floats(0, 0.5), st.floats(0, 0.5))
def test_links_are_partitioned(data: Data, seed: int, val: float, test: float) -> None:
    split = split_links(data, seed=seed, val=val, test=test)
    undirected = set(pairs(data.edge_index)) == set(pairs(data.edge_index.flip(0)))
    validation, tested = pairs(split.validation), pairs(split.test)
    gone = set(validation + tested)
    assert len(gone) == len(validation) + len(tested)
    true = {(u, v) for u, v in pairs(data.edge_index) if (u < v if undirected else u != v)}
    assert gone <= true
    assert (len(validation), len(tested)) == (int(val * len(true)), int(test * len(true)))

    away = gone | {(v, u) for u, v in gone} if undirected else gone
    assert pairs(split.data.edge_index) == [edge for edge in pairs(data.edge_index) if edge not in away]
    mark = split.data.edge_index[0] * 100 + split.data.edge_index[1]
    assert torch.equal(split.data.edge_weight, mark)
    assert torch.equal(split.data.edge_attr.view(-1).long(), mark)

    negatives = pairs(split.validation_negatives) + pairs(split.test_negatives)
    assert split.validation_negatives.shape == split.validation.shape
    assert split.test_negatives.shape == split.test.shape
    assert len(set(negatives)) == len(negatives)
    assert not set(negatives) & set(pairs(data.edge_index))
    assert all(u < v if undirected else u != v for u, v in negatives)


def test_seed_decides_alone() -> None:
    data = load("digits")
    torch.manual_seed(1)
    first = split_links(data, seed=5)
    torch.manual_seed(2)
    again, other = split_links(data, seed=5), split_links(data, seed=6)
    assert first.seed == 5
    for part in PARTS:
        assert torch.equal(getattr(first, part), getattr(again, part))
        assert not torch.equal(getattr(first, part), getattr(other, part))
    assert torch.equal(first.data.edge_index, again.data.edge_index)


def test_split_is_the_same_on_every_machine() -> None:
    """A fixed answer for a fixed seed: a change here changes every published number."""
    split = split_links(load("digits"), seed=42)
    assert split.validation[:, :3].tolist() == PINNED["validation"]
    assert split.test_negatives[:, :3].tolist() == PINNED["test_negatives"]


def test_user_graph_is_untouched_and_shared() -> None:
    data = load("digits")
    data.edge_label_index, data.edge_label = data.edge_index[:, :4], torch.ones(4)
    before = data.clone()
    split = split_links(data)
    assert sorted(data.keys()) == sorted(before.keys())
    assert torch.equal(data.edge_index, before.edge_index)
    assert split.data.x is data.x
    assert "edge_label_index" not in split.data  # would bring unseen edges back
    assert split.data.is_undirected()


def test_size_is_kept_without_features() -> None:
    data = Data(edge_index=torch.tensor([[0, 9], [9, 0]]), num_nodes=10)
    bare = Data(edge_index=data.edge_index)
    for graph in (data, bare):
        assert split_links(graph, val=0, test=1).data.num_nodes == 10


def test_split_is_frozen() -> None:
    split = split_links(load("digits"))
    assert isinstance(split, LinkSplit)
    with pytest.raises(AttributeError):
        split.seed = 3  # type: ignore[misc]


def test_a_split_is_shown_by_its_sizes() -> None:
    split = split_links(load("digits"), seed=2)
    pairs = "validation=[2, 496], test=[2, 496], validation_negatives=[2, 496], test_negatives=[2, 496]"
    assert str(split) == f"LinkSplit(data={split.data}, {pairs}, seed=2)"


@pytest.mark.parametrize(
    ("val", "test", "said"), [(-0.1, 0.1, "'val'"), (0.1, 1.5, "'test'"), (0.6, 0.6, "more than 1")]
)
def test_fractions_are_checked(val: float, test: float, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        split_links(load("digits"), val=val, test=test)


def test_graphs_that_cannot_be_split() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(GraphError, match="edge_index"):
        split_links(Data(x=torch.zeros(2, 2)))
    with pytest.raises(GraphError, match="val_mask"):
        split_links(Data(edge_index=edges, edge_type=torch.zeros(2, dtype=torch.long), num_nodes=2), given=True)
    with pytest.raises(NotYetError, match="HeteroData"):
        split_links(HeteroData())


@given(st.integers(0, 60), st.integers(0, 100), st.floats(0, 0.5), st.floats(0, 0.5))
def test_nodes_are_partitioned(nodes: int, seed: int, train: float, val: float) -> None:
    y = torch.arange(nodes) % 4 - 1
    data = Data(x=torch.zeros(nodes, 2), y=y, edge_index=torch.empty(2, 0, dtype=torch.long))
    split = split_nodes(data, seed=seed, train=train, val=val)
    masks = torch.stack([split.train_mask, split.val_mask, split.test_mask])
    assert masks.dtype == torch.bool
    assert torch.equal(masks.sum(dim=0), (y != -1).long())
    labelled = int((y != -1).sum())
    assert masks.sum(dim=1)[:2].tolist() == [int(train * labelled), int(val * labelled)]
    assert "train_mask" not in data


def test_node_split_follows_the_seed() -> None:
    data = load("digits")
    assert torch.equal(split_nodes(data, seed=1).train_mask, split_nodes(data, seed=1).train_mask)
    assert not torch.equal(split_nodes(data, seed=1).train_mask, split_nodes(data, seed=2).train_mask)


def test_whatever_belongs_to_edges_is_split_with_them():
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    data = Data(edge_index=edges, num_nodes=5, x=torch.randn(5, 2))
    data.edge_names = [f"{u}-{v}" for u, v in edges.t().tolist()]
    data.edge_pos_index = edges * 10
    left = split_links(data, val=0.25, test=0.25).data
    assert left.edge_names == [f"{u}-{v}" for u, v in left.edge_index.t().tolist()]
    assert torch.equal(left.edge_pos_index, left.edge_index * 10)


def test_links_round_trip(tmp_path):
    data = load("digits")
    split = split_links(data, seed=4)
    save_split(split, data, tmp_path / "links", seed=4, val=0.05)
    again = load_split(tmp_path / "links", data, seed=4, val=0.05)
    for name in ("validation", "test", "validation_negatives", "test_negatives"):
        assert torch.equal(getattr(again, name), getattr(split, name))
    assert torch.equal(again.data.edge_index, split.data.edge_index)


def test_typed_links_nodes_and_graphs_round_trip(tmp_path):
    generator = torch.Generator().manual_seed(0)
    typed = Data(edge_index=torch.randint(30, (2, 90), generator=generator), num_nodes=30)
    typed.edge_type = torch.arange(90) % 3
    split = split_links(typed, seed=1)
    save_split(split, typed, tmp_path / "typed")
    again = load_split(tmp_path / "typed", typed)
    assert torch.equal(again.data.edge_index, split.data.edge_index)
    assert torch.equal(again.test, split.test)
    data = load("digits")
    masked = split_nodes(data, seed=2)
    save_split(masked, data, tmp_path / "nodes", seed=2)
    assert torch.equal(load_split(tmp_path / "nodes", data, seed=2).test_mask, masked.test_mask)
    graphs = [data, typed]
    save_split(split_graphs(graphs, seed=0, train=0.5, val=0.0), graphs, tmp_path / "graphs")
    assert load_split(tmp_path / "graphs", graphs).train.numel() == 1


def test_another_graph_other_parameters_and_damage_are_refused(tmp_path):
    data = load("digits")
    save_split(split_links(data, seed=4), data, tmp_path / "links", seed=4)
    changed = data.clone()
    changed.edge_index = changed.edge_index[:, 2:]
    with pytest.raises(GraphError, match="another graph"):
        load_split(tmp_path / "links", changed, seed=4)
    with pytest.raises(GraphError, match="seed=4, not 5"):
        load_split(tmp_path / "links", data, seed=5)
    content = (tmp_path / "links").read_bytes()
    (tmp_path / "links").write_bytes(content[: len(content) // 2])
    with pytest.raises(GraphError, match="no readable split"):
        load_split(tmp_path / "links", data, seed=4)
    with pytest.raises(GraphError, match="no split"):
        save_split(data, data, tmp_path / "none")
