"""Graphs from NetworkX, folders and files that others wrote: ids survive, and nothing in a file is run."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from gnndelete.datasets import IdMap, NamedGraph, from_networkx, load_graph, save_graph
from gnndelete.errors import GraphError, NotYetError, SettingError


@pytest.fixture
def friends() -> networkx.Graph:
    graph = networkx.Graph()
    graph.add_node("ann", x=[1.0, 2.0], age=31, label="b", note="first")
    graph.add_node(7, x=np.array([3.0, 4.0]), age=40, label="a", note="second")
    graph.add_node(("c", 1), x=torch.tensor([5.0, 6.0]), age=0, label=None, note="third")
    graph.add_edge("ann", 7, weight=0.5, since=2001)
    graph.add_edge(7, ("c", 1), weight=2.0, since=2002)
    return graph


def same(a: NamedGraph, b: NamedGraph) -> None:
    assert a.ids == b.ids
    for name in ("relations", "classes", "features", "edge_features", "ignored"):
        assert getattr(a, name) == getattr(b, name)
    left, right = a.data.to_dict(), b.data.to_dict()
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, torch.Tensor):
            assert (value.dtype, value.layout) == (right[name].dtype, right[name].layout)
            assert torch.equal(value.to_dense(), right[name].to_dense())
        else:
            assert value == right[name]


def test_networkx(friends: networkx.Graph) -> None:
    graph = from_networkx(friends)
    assert graph.ids.names == ("ann", "7", "('c', 1)")
    assert graph.features == ("x.0", "x.1", "age")
    assert graph.data.x.tolist() == [[1, 2, 31], [3, 4, 40], [5, 6, 0]]
    assert graph.classes == ("a", "b")
    assert graph.data.y.tolist() == [1, 0, -1]
    assert graph.data.is_undirected()
    assert graph.data.edge_weight.tolist() == [0.5, 2.0, 0.5, 2.0]
    assert graph.edge_features == ("since",)
    assert graph.ignored == ("note",)
    assert from_networkx(friends, features=["x"]).features == ("x.0", "x.1")
    assert from_networkx(friends, features=["age"], edge_features=[]).data.get("edge_attr") is None


@given(st.integers(1, 12), st.integers(0, 99), st.booleans())
def test_networkx_keeps_every_edge(nodes: int, seed: int, directed: bool) -> None:
    graph = networkx.gnp_random_graph(nodes, 0.5, seed=seed, directed=directed)
    graph.add_edge(0, 0)
    found = from_networkx(graph)
    pairs = set(zip(*(found.ids.to_name(end) for end in found.data.edge_index), strict=True))
    assert pairs == {(str(u), str(v)) for u, v in graph.to_directed().edges}
    assert found.data.edge_index.size(1) == len(pairs)
    assert found.data.num_nodes == nodes


def test_networkx_of_many_kinds() -> None:
    typed = networkx.MultiDiGraph()
    typed.add_edge("a", "b", relation="likes")
    typed.add_edge("a", "b", relation="hates")
    found = from_networkx(typed)
    assert found.relations == ("hates", "likes")
    assert found.data.edge_type.tolist() == [1, 0]
    assert from_networkx(typed, relation="relation").relations == found.relations
    with pytest.raises(NotYetError, match="typed edges"):
        from_networkx(typed.to_undirected())


def test_networkx_errors(friends: networkx.Graph) -> None:
    friends.nodes[7]["age"] = None
    del friends.nodes["ann"]["x"]
    with pytest.raises(GraphError) as caught:
        from_networkx(friends)
    assert "2 nodes of 'the NetworkX graph'" in str(caught.value)
    assert "node 'ann' ('x.0' is empty), node 7 ('age' is empty)" in str(caught.value)
    friends.add_node("7")
    with pytest.raises(GraphError, match="same name as text: '7'"):
        from_networkx(friends)
    with pytest.raises(GraphError, match="no rows"):
        from_networkx(networkx.Graph())
    with pytest.raises(GraphError, match="no rows"):
        from_networkx(networkx.empty_graph(3))
    named = networkx.path_graph(2)
    named.nodes[0]["id"] = 5
    with pytest.raises(GraphError, match="called 'id'"):
        from_networkx(named)


def test_save_and_load(friends: networkx.Graph, tmp_path: Path) -> None:
    graph = from_networkx(friends)
    save_graph(graph, tmp_path / "new" / "graph")
    assert sorted(path.name for path in (tmp_path / "new" / "graph").iterdir()) == [
        "graph.json",
        "graph.pt",
        "ids.json",
    ]
    same(load_graph(tmp_path / "new" / "graph"), graph)


def test_save_and_load_without_ids_and_with_sparse_features(tmp_path: Path) -> None:
    for layout in (torch.sparse_coo, torch.sparse_csr):
        data = Data(
            x=torch.eye(3).to_sparse(layout=layout), edge_index=torch.tensor([[0], [2]]), note="mine", level=0.5
        )
        save_graph(data, tmp_path)
        same(load_graph(tmp_path), NamedGraph(data))
    with pytest.raises(GraphError, match=r"data.odd is a 'set'"):
        save_graph(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2, odd={1}), tmp_path)
    with pytest.raises(GraphError, match="2 nodes and 1 ids"):
        save_graph(NamedGraph(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2), IdMap(["a"])), tmp_path)


def test_a_damaged_folder_is_refused(friends: networkx.Graph, tmp_path: Path) -> None:
    save_graph(from_networkx(friends), tmp_path)
    for name in ("graph.json", "graph.pt", "ids.json"):
        content = (tmp_path / name).read_bytes()
        for spoilt in (
            b"",
            content[: len(content) // 2],
            content[:-30] + bytes(30),
            pickle.dumps(Evil(tmp_path / "x")),
        ):
            (tmp_path / name).write_bytes(spoilt)
            with pytest.raises(GraphError):
                load_graph(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(GraphError, match=name if name != "graph.json" else "edges.csv"):
            load_graph(tmp_path)
        (tmp_path / name).write_bytes(content)
    IdMap(["x", "y", "z"]).save(tmp_path / "ids.json")
    with pytest.raises(GraphError, match="belongs to another graph"):
        load_graph(tmp_path)
    assert not (tmp_path / "x").exists()
    config = json.loads((tmp_path / "graph.json").read_text())
    (tmp_path / "graph.json").write_text(json.dumps(config | {"format": "gnndelete-graph-9"}))
    with pytest.raises(GraphError, match="another format"):
        load_graph(tmp_path)


def test_folders_and_files_of_tables(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\nuser:1,user:2\n")
    assert load_graph(tmp_path).ids == load_graph(tmp_path / "edges.csv").ids == IdMap(["user:1", "user:2"])
    assert load_graph(str(tmp_path), undirected=True).data.is_undirected()
    (tmp_path / "nodes.tsv").write_text("id\tf\nuser:2\t5\nuser:1\t6\n")
    assert load_graph(tmp_path).data.x.tolist() == [[5], [6]]
    (tmp_path / "nodes.csv").write_text("id\n")
    with pytest.raises(GraphError, match=r"nodes\.csv and nodes\.tsv"):
        load_graph(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GraphError, match=r"neither graph\.json nor edges\.csv"):
        load_graph(tmp_path / "empty")
    with pytest.raises(GraphError, match="there is no graph"):
        load_graph(tmp_path / "nowhere")


def test_a_saved_data(tmp_path: Path) -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.arange(3))
    data.is_undirected()
    torch.save(data, tmp_path / "data.pt")
    found = load_graph(tmp_path / "data.pt")
    assert found.ids is None
    same(found, NamedGraph(data))
    with pytest.raises(SettingError, match="undirected"):
        load_graph(tmp_path / "data.pt", undirected=True)
    torch.save((data, data, data), tmp_path / "three.pt")
    with pytest.raises(GraphError, match="three parts"):
        load_graph(tmp_path / "three.pt")
    for odd in ({"x": data.x}, [data, data], [], HeteroData(), 5):
        torch.save(odd, tmp_path / "odd.pt")
        with pytest.raises(GraphError):
            load_graph(tmp_path / "odd.pt")


class Evil:
    """A pickle that runs a command when it is loaded the usual way."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.witness}'",)


def test_the_payload_would_run_if_it_were_loaded(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Evil(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("kind", ["plain", "torch", "legacy", "inside"])
def test_a_hostile_pickle_is_refused_and_nothing_runs(tmp_path: Path, kind: str, protocol: int) -> None:
    witness, path = tmp_path / "ran", tmp_path / "graph.pt"
    if kind == "plain":
        path.write_bytes(pickle.dumps(Evil(witness), protocol=protocol))
    elif kind == "inside":
        data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))
        data.extra = Evil(witness)
        torch.save(data, path, pickle_protocol=max(protocol, 2))
    else:
        zipped = kind == "torch"
        torch.save(Evil(witness), path, _use_new_zipfile_serialization=zipped, pickle_protocol=max(protocol, 2))
    with pytest.raises(GraphError, match=r"refused.*nothing in it was run") as caught:
        load_graph(path)
    assert "\n" not in str(caught.value)
    assert not witness.exists()


def test_safe_globals_of_others_are_not_trusted_and_stay_as_they_were(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    torch.save(Evil(witness), tmp_path / "graph.pt")
    with torch.serialization.safe_globals([os.system]):
        before = torch.serialization.get_safe_globals()
        with pytest.raises(GraphError, match="refused"):
            load_graph(tmp_path / "graph.pt")
        assert set(map(str, torch.serialization.get_safe_globals())) == set(map(str, before))
    assert not witness.exists()


def test_truncated_and_spoilt_files_are_refused(tmp_path: Path) -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    path = tmp_path / "data.pt"
    torch.save(data, path)
    content = path.read_bytes()
    for length in (*range(0, len(content), 97), len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(GraphError):
            load_graph(path)
    path.write_bytes(b"not a graph at all")
    with pytest.raises(GraphError, match="damaged"):
        load_graph(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data/data.pkl", struct.pack("<I", 7))
    with pytest.raises(GraphError, match="damaged"):
        load_graph(path)
