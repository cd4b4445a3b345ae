"""A graph on disk has the edges, neighbours and attributes of the same graph in memory, however it was built."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, FeatureStore
from torch_geometric.data.feature_store import TensorAttr

import gnndelete as gd
from gnndelete.errors import AdapterError, GraphError, SettingError
from gnndelete.graph import disk_build
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.io import arrays

NODES = 60


def random_graph(seed: int = 0, edges: int = 300, undirected: bool = False) -> Data:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(NODES, (2, edges), generator=generator)
    if undirected:
        pairs = torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1)
    x = torch.randn(NODES, 5, generator=generator)
    return Data(x=x, edge_index=pairs, edge_weight=torch.rand(pairs.size(1), generator=generator))


def triples(edge_index: torch.Tensor, weight: torch.Tensor) -> list[tuple[float, ...]]:
    return sorted(zip(*edge_index.tolist(), weight.tolist(), strict=True))


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(disk_build, "RANGE_NODES", 7)


@pytest.mark.parametrize("undirected", [False, True])
def test_the_graph_is_the_one_that_was_given(tmp_path, small_ranges, undirected):
    data = random_graph(undirected=undirected)
    graph = gd.DiskGraph.build(
        tmp_path / "g", data.edge_index, data.x, edge_attributes={"edge_weight": data.edge_weight}
    )
    table = EdgeTable(data.edge_index, NODES)
    assert triples(graph.edge_index, graph.edge_weight) == triples(data.edge_index, data.edge_weight)
    assert graph.edge_index.dtype == torch.int32
    assert torch.equal(graph.x, data.x)
    assert graph.table.undirected == table.undirected == undirected
    assert graph.table.loops == int((data.edge_index[0] == data.edge_index[1]).sum())
    nodes, edges = torch.tensor([0, 3, 41]), torch.randint(NODES, (2, 200))
    assert graph.table.neighbors(nodes).tolist() == table.neighbors(nodes).tolist()
    assert torch.equal(graph.table.degree, table.degree)
    assert torch.equal(graph.table.contains(edges), table.contains(edges))

    def chosen(data, columns):
        return sorted(map(tuple, data.edge_index[:, columns].t().tolist()))

    assert chosen(graph, graph.table.positions(edges)) == chosen(data, table.positions(edges))
    assert chosen(graph, graph.table.leaving(nodes)) == chosen(data, table.leaving(nodes))
    into = torch.isin(data.edge_index[1], nodes).nonzero().flatten()
    assert chosen(graph, graph.columns_into(nodes)) == chosen(data, into)
    assert graph.verify() == []


def test_edges_both_ways_are_kept_once_each(tmp_path, small_ranges):
    pairs = torch.tensor([[0, 1, 0, 2, 3], [1, 0, 1, 2, 0]])
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    for name, attributes in (("plain", {}), ("weighted", {"edge_weight": weight})):
        graph = gd.DiskGraph.build(tmp_path / name, pairs, undirected=True, edge_attributes=attributes)
        assert graph.edge_index.tolist() == [[1, 3, 0, 2, 0], [0, 0, 1, 2, 3]]
    assert graph.edge_weight.tolist() == [1.0, 5.0, 1.0, 4.0, 5.0]  # of repeated edges the first


def test_relations(tmp_path):
    data = random_graph()
    kind = torch.randint(3, (data.num_edges,))
    graph = gd.DiskGraph.build(tmp_path / "g", data.edge_index, data.x, edge_attributes={"edge_type": kind})
    table = EdgeTable(data.edge_index, NODES, kind)
    edges = torch.stack([data.edge_index[0], kind.flip(0), data.edge_index[1]])
    assert torch.equal(graph.table.contains(edges), table.contains(edges))
    assert (graph.table.typed, graph.table.num_relations, graph.table.undirected) == (True, 3, False)


def test_pieces_that_do_not_fit_are_sorted_in_parts(tmp_path, monkeypatch):
    data = random_graph(edges=3000)
    whole = gd.DiskGraph.build(tmp_path / "whole", data.edge_index, data.x)
    monkeypatch.setattr(disk_build, "SORTING", 1 << 20)
    parts = gd.DiskGraph.build(tmp_path / "parts", data.edge_index, data.x)
    assert torch.equal(whole.edge_index, parts.edge_index)
    assert whole.digest != ""


def test_tables(tmp_path):
    pandas, duckdb, pyarrow = (pytest.importorskip(name) for name in ("pandas", "duckdb", "pyarrow"))
    data = random_graph()
    frame = pandas.DataFrame(
        {"u": data.edge_index[0].numpy(), "v": data.edge_index[1].numpy(), "w": data.edge_weight.numpy()}
    )
    features = pandas.DataFrame(data.x.numpy(), columns=list("abcde"))
    frame.to_parquet(tmp_path / "edges.parquet"), frame.to_csv(tmp_path / "edges.csv", index=False)
    features.to_parquet(tmp_path / "x.parquet")
    connection = duckdb.connect()
    connection.register("frame", frame)
    sources = {
        "parquet": tmp_path / "edges.parquet",
        "csv": tmp_path / "edges.csv",
        "frame": frame,
        "arrow": pyarrow.Table.from_pandas(frame),
        "duckdb": connection.sql("select * from frame"),
    }
    for name, source in sources.items():
        graph = gd.DiskGraph.build(
            tmp_path / name, source, tmp_path / "x.parquet", columns=("u", "v"), edge_attributes={"edge_weight": "w"}
        )
        assert triples(graph.edge_index, graph.edge_weight) == triples(data.edge_index, data.edge_weight), name
        assert torch.equal(graph.x, data.x)


def test_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    names = [f"user:{number}" for number in range(NODES)]
    frame = pandas.DataFrame({"source": ["user:3", "user:5"], "target": ["user:5", "user:59"]})
    graph = gd.DiskGraph.build(tmp_path / "g", frame, names=names)
    assert graph.edge_index.tolist() == [[3, 5], [5, 59]]
    assert graph.num_nodes == NODES
    assert graph.name(59) == "user:59"
    frame.loc[0, "source"] = "item:1"
    with pytest.raises(GraphError, match="names= lacks: 'item:1'"):
        gd.DiskGraph.build(tmp_path / "other", frame, names=names)


class Rows(FeatureStore):
    """Features in SQLite: another backend of PyG's interface."""

    def __init__(self, path, x):
        import sqlite3

        super().__init__()
        self.__dict__["db"], self.__dict__["shape"] = sqlite3.connect(path), tuple(x.shape)
        self.db.execute("create table x (node integer primary key, row blob)")
        self.db.executemany("insert into x values (?, ?)", [(i, row.numpy().tobytes()) for i, row in enumerate(x)])

    def _get_tensor(self, attr):
        rows = range(self.shape[0])[attr.index] if isinstance(attr.index, slice) else attr.index.tolist()
        read = [self.db.execute("select row from x where node = ?", (row,)).fetchone()[0] for row in rows]
        return torch.from_numpy(np.frombuffer(b"".join(read), np.float32).reshape(-1, self.shape[1]).copy())

    def _get_tensor_size(self, attr):
        return self.shape

    def get_all_tensor_attrs(self):
        return [TensorAttr(None, "x")]

    def _put_tensor(self, tensor, attr):
        return False

    def _remove_tensor(self, attr):
        return False


def test_other_backends_of_pygs_interfaces(tmp_path):
    data = random_graph()
    graph = gd.DiskGraph.build(tmp_path / "g", data, Rows(tmp_path / "x.db", data.x))
    assert torch.equal(graph.x, data.x)
    again = gd.DiskGraph.build(tmp_path / "again", graph, graph)  # its own files as a backend
    assert torch.equal(again.edge_index, graph.edge_index)
    assert torch.equal(again.x, graph.x)


def test_pygs_stores_and_loaders(tmp_path):
    data = random_graph()
    graph = gd.DiskGraph.build(tmp_path / "g", data.edge_index, data.x)
    row, pointers, _ = graph.csc()
    assert (row.dtype, pointers.tolist()) == (torch.long, graph.table.pointers.tolist())
    assert torch.equal(graph.get_tensor("x", index=torch.tensor([4, 2])), data.x[[4, 2]])
    pointers, targets, _ = graph.csr()
    expected = EdgeTable(data.edge_index, NODES).neighbors(torch.tensor([3])).tolist()
    assert sorted(targets[pointers[3] : pointers[4]].tolist()) == expected
    assert len(graph.get_all_tensor_attrs()) == 1


def test_a_part_is_read_into_memory(tmp_path):
    data = random_graph()
    graph = gd.DiskGraph.build(tmp_path / "g", data.edge_index, data.x, dtype="float16")
    columns = graph.columns_into(torch.tensor([3, 9]))
    nodes = torch.cat([torch.tensor([3, 9]), graph.edge_index[0, columns].long()]).unique()
    part = graph.part(nodes, columns)
    assert torch.equal(part.n_id[part.edge_index], graph.edge_index[:, columns].long())
    assert part.x.dtype == torch.float32
    assert torch.equal(part.x, data.x[nodes].half().float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": torch.tensor([[0, 70], [1, 2]])}, "edges name node 70, but the graph has nodes 0 to 59"),
        ({"edges": torch.zeros(3, 2)}, r"edges have the shape \[3, 2\]"),
        ({"edges": torch.rand(2, 4)}, "edges hold values of type float32"),
        ({"edges": "no.parquet"}, "there is no file 'no.parquet'"),
        ({"x": torch.full((NODES, 2), torch.nan)}, "'x' holds NaN"),
        ({"node_attributes": {"y": torch.zeros(7)}}, "'y' has 7 rows, and the graph has 60 nodes"),
        ({"edge_attributes": {"weight": torch.zeros(300)}}, "an attribute of edges is called edge_"),
        ({"memory": "some"}, "'memory' must be an amount"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(tmp_path, change, message):
    data = random_graph()
    with pytest.raises((GraphError, SettingError), match=message):
        gd.DiskGraph.build(tmp_path / "g", **{"edges": data.edge_index, "x": data.x, **change})


def test_every_flipped_byte_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "DIGEST_BYTES", 256)
    data = random_graph()
    folder = tmp_path / "g"
    graph = gd.DiskGraph.build(folder, data.edge_index, data.x)
    assert arrays.problems(folder) == []
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert {path.name for path in files} == {"manifest.json", *graph.arrays.files}
    generator = np.random.default_rng(0)
    for path in files:
        content = path.read_bytes()
        for place in generator.integers(len(content), size=40):
            path.write_bytes(content[:place] + bytes([content[place] ^ (1 << int(place) % 8)]) + content[place + 1 :])
            assert arrays.problems(folder), (path, place)
        path.write_bytes(content[:-3])
        assert arrays.problems(folder)
        with pytest.raises(AdapterError):
            gd.DiskGraph(folder)
        path.write_bytes(content)
    assert arrays.problems(folder) == []


class Killed(BaseException):
    """Nothing cleans up after it, as after a kill."""


def test_a_build_that_is_killed_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_build, "RANGE_NODES", 17)
    monkeypatch.setattr(disk_build, "COMMIT_BYTES", 1 << 10)
    data, left = random_graph(), [10**6]
    generator = np.random.default_rng(0)

    def build(folder):
        return gd.DiskGraph.build(
            folder, data.edge_index.split(50, dim=1), data.x.split(13), names=map(str, range(NODES)), memory="1KB"
        )

    whole = build(tmp_path / "whole")

    def counted(function):
        def wrapped(draft, *args, **kwargs):
            left[0] -= 1
            if left[0] == 0 and function is append:
                function(draft, args[0], args[1][: len(args[1]) // 2])
            if left[0] == 0:
                raise Killed
            return function(draft, *args, **kwargs)

        return wrapped

    append = arrays.Draft.append
    for name in ("append", "commit", "close"):
        monkeypatch.setattr(arrays.Draft, name, counted(getattr(arrays.Draft, name)))
    kills, built = 0, None
    while built is None:
        left[0] = int(generator.integers(5, 60))
        try:
            built = build(tmp_path / "killed")
        except Killed:
            kills += 1
            with pytest.raises(AdapterError, match=r"was not finished|is no disk graph"):
                gd.DiskGraph(tmp_path / "killed")
    assert kills >= 3
    assert built.digest == whole.digest
    assert built.verify() == []
    assert not (tmp_path / "killed" / "parts").exists()


FACTS = [("nodes", -1), ("nodes", NODES + 1), ("nodes", "60"), ("edges", 10**9), ("undirected", "no"), ("loops", None)]


@pytest.mark.parametrize(("name", "value"), [*FACTS, ("reverse_offset", 10**12), ("num_relations", 10**12)])
def test_a_manifest_that_fits_no_graph_is_refused(tmp_path, name, value):
    data = random_graph()
    folder = gd.DiskGraph.build(tmp_path / "g", data.edge_index, data.x).folder
    manifest = json.loads((folder / arrays.MANIFEST).read_text())
    del manifest["sha256"]
    manifest["facts"][name] = value
    (folder / arrays.MANIFEST).write_text(arrays._text({**manifest, "sha256": arrays._digest(manifest)}))
    with pytest.raises(AdapterError, match=r"no graph"):
        gd.DiskGraph(folder)
