"""Graphs and requests from tables: what is read, and every row that cannot be used is named by its line."""

from __future__ import annotations

import csv
import gzip
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.datasets import IdMap, NamedGraph, from_tables
from gnndelete.errors import DeletionError, GraphError, NotYetError, SettingError
from gnndelete.graph.deletion import Deletion

NODES = "id,name,age,label,height\nuser:4711,Ann,31,b,1.5\nuser:12,Bob,40,a,2\nitem:7,,0,,-1e3\n"
EDGES = "source,target,weight\nuser:4711,item:7,0.5\nuser:12,item:7,2\n"


@pytest.fixture
def read(tmp_path: Path):
    def read(edges: str | bytes = EDGES, nodes: str | bytes | None = None, **options: Any) -> NamedGraph:
        for name, content in (("edges.csv", edges), ("nodes.csv", nodes)):
            if content is not None:
                (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return from_tables(tmp_path / "edges.csv", None if nodes is None else tmp_path / "nodes.csv", **options)

    return read


def test_nodes_edges_features_labels_weights(read) -> None:
    graph = read(EDGES, NODES)
    assert graph.ids.names == ("user:4711", "user:12", "item:7")
    assert graph.data.edge_index.tolist() == [[0, 1], [2, 2]]
    assert graph.data.edge_weight.tolist() == [0.5, 2.0]
    assert graph.features == ("age", "height")
    assert graph.data.x.tolist() == [[31, 1.5], [40, 2], [0, -1000]]
    assert graph.data.x.dtype == torch.float32
    assert graph.classes == ("a", "b")
    assert graph.data.y.tolist() == [1, 0, -1]
    assert graph.ignored == ("name",)
    assert graph.data.get("edge_attr") is None


@pytest.mark.parametrize("missing", ["nan", "NaN", "-nan", ""])
def test_a_label_that_is_no_number_among_numbers_is_missing(read, missing: str) -> None:
    nodes = f"id,label\na,1\nb,1.0\nc,{missing}\nd,0.0\n"
    graph = read("source,target\na,b\nc,d\n", nodes)
    assert graph.classes == ("0", "1")
    assert graph.data.y.tolist() == [1, 1, -1, 0]


def test_nan_among_words_is_a_word(read) -> None:
    graph = read("source,target\na,b\nc,a\n", "id,label\na,tea\nb,nan\nc,naan\n")
    assert graph.classes == ("naan", "nan", "tea")
    assert graph.data.y.tolist() == [2, 1, 0]


def test_underscores_make_no_number(read) -> None:
    with pytest.raises(GraphError) as caught:
        read("source,target\na,b\n", "id,age\na,10\nb,7\nc,1_0\n")
    assert "line 4 ('age' is '1_0', no number)" in str(caught.value)
    with pytest.raises(GraphError, match=r"line 3 \('weight' is '2_0', no number\)"):
        read("source,target,weight\na,b,1\nb,a,2_0\n")
    dated = read("source,target\na,b\n", "id,day\na,2024_01\nb,2024_02\n")
    assert (dated.features, dated.ignored) == ((), ("day",))  # most cells are no numbers, so it is no feature


def test_columns_by_other_names(read) -> None:
    nodes = "key;kind;a;b\nx;1.0;1;2\ny;0;3;4\nz;;5;6\n"
    edges = "from;to;how;w;t\nx;y;likes;3;10\ny;z;hates;4;11\n"
    options = dict(source="from", target="to", relation="how", weight="w", node_id="key", label="kind", delimiter=";")
    graph = read(edges, nodes, features=["b"], **options)
    assert graph.data.x.tolist() == [[2], [4], [6]]
    assert graph.classes == ("0", "1")
    assert graph.data.y.tolist() == [1, 0, -1]
    assert graph.relations == ("hates", "likes")
    assert graph.data.edge_type.tolist() == [1, 0]
    assert graph.data.edge_weight.tolist() == [3, 4]
    assert graph.edge_features == ("t",)
    assert graph.data.edge_attr.tolist() == [[10], [11]]
    assert read(edges, nodes, features=[], edge_features=[], **options).data.get("x") is None


def test_a_label_column_is_never_a_feature_by_accident(read) -> None:
    nodes = "id,label,f\nx,0,1\ny,1,2\n"
    assert read("source,target\nx,y\n", nodes).features == ("f",)
    assert read("source,target\nx,y\n", nodes, features=["label"]).features == ("label",)


def test_edges_alone(read) -> None:
    graph = read("source,target\nb,a\nc,b\n")
    assert graph.ids.names == ("b", "a", "c")
    assert graph.data.num_nodes == 3
    assert graph.data.x is None


def test_undirected_and_repeated_edges(read) -> None:
    text = "source,target\na,b\nb,c\na,b\nb,a\nc,c\n"
    assert read(text).data.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 2]]
    graph = read(text, undirected=True)
    assert graph.data.is_undirected()
    assert graph.data.edge_index.size(1) == 5
    weighted = "source,target,weight,t\na,b,1,5\na,b,1,5\na,b,1,6\nb,c,1,5\n"
    parallel = read(weighted).data
    assert parallel.edge_index.tolist() == [[0, 0, 1], [1, 1, 2]]
    assert parallel.edge_attr.flatten().tolist() == [5, 6, 5]
    both = read(weighted, undirected=True).data
    assert both.edge_index.size(1) == both.edge_weight.numel() == 6
    typed = read("source,relation,target\na,r,b\na,s,b\na,r,b\n")
    assert typed.data.edge_type.tolist() == [0, 1]
    with pytest.raises(NotYetError, match="typed edges"):
        read("source,relation,target\na,r,b\n", undirected=True)


def test_ids_that_only_edges_name(read) -> None:
    edges = "source,target\nuser:12,item:7\nuser:13,item:7\nuser:13,zz\n"
    with pytest.raises(GraphError) as caught:
        read(edges, NODES)
    for needle in (
        "2 ids of",
        "'user:13', did you mean 'user:12'? (line 3)",
        "'zz' (line 4)",
        "--set data.missing=zeros",
    ):
        assert needle in str(caught.value)
    graph = read(edges, NODES, missing="zeros")
    assert graph.ids.names[3:] == ("user:13", "zz")
    assert graph.data.x[3:].tolist() == [[0, 0], [0, 0]]
    assert graph.data.y.tolist() == [1, 0, -1, -1, -1]
    with pytest.raises(SettingError, match="'missing'"):
        read(edges, NODES, missing="ignore")


BROKEN_LINES = {
    3: b"user:3",
    7: b"user:7,user:8,9,10",
    12: b",user:1,1",
    20: b"user:1,  ,1",
    21: b"user:1,user:2,much",
    33: b"user:1,user:2,",
    41: b'"user:1"x,user:2,1',
    50: b"us\xffer,user:2,1",
    77: b"user:1,user:2,nan",
    90: b'"user:1,user:2,1',
}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_ten_broken_lines_are_named(read, end: bytes) -> None:
    lines = [b"source,target,weight", *(f"user:{i},user:{i + 1},{i}".encode() for i in range(2, 100))]
    for number, content in BROKEN_LINES.items():
        lines[number - 1] = content
    with pytest.raises(GraphError) as caught:
        read(end.join(lines) + end)
    text = str(caught.value)
    assert text.startswith("10 lines of")
    named = [int(number) for group in re.findall(r"lines? ([\d, ]+) \(", text) for number in group.split(",")]
    assert sorted(named) == list(BROKEN_LINES)
    assert "\n" not in text


def test_lines_with_the_same_problem_are_named_together(read) -> None:
    with pytest.raises(GraphError) as caught:
        read("source,target,weight\na,b,old\n" + "a,b,\n" * 70_000)
    text = str(caught.value)
    assert "70,001 lines" in text
    assert "line 2 ('weight' is 'old', no number), lines 3, 4, 5, 6, 7 and 69995 more ('weight' is empty); " in text
    with pytest.raises(GraphError, match=r"line 21 \(.*'x19'\) and 80 more; "):
        read("source,target\n" + "".join(f"x{i}\n" for i in range(100)))


def test_broken_node_rows(read) -> None:
    nodes = "id,age,name\na,1,x\n,2,x\nb,,x\nc,old,x\na,5,x\nd,inf,x\ne,1e99,x\nf,3\n"
    with pytest.raises(GraphError) as caught:
        read("source,target\na,b\n", nodes, empty="error")
    for needle in (
        "7 lines",
        "line 3 ('id' is empty)",
        "line 4 ('age' is empty)",
        "line 5 ('age' is 'old', no number)",
        "line 6 (the id 'a' is in an earlier row too)",
        "line 7 ('age' is 'inf', no number)",
        "line 8 ('age' is '1e99', no number)",
        "line 9 (2 cells instead of 3: 'f,3')",
    ):
        assert needle in str(caught.value)


def test_a_text_with_line_breaks_is_one_cell_and_an_open_quote_is_named(read) -> None:
    nodes = 'id,about,age\na,"two\nlines, and ""more""",1\nb,x,2\n'
    assert read("source,target\na,b\n", nodes).data.x.tolist() == [[1], [2]]
    with pytest.raises(GraphError, match=r"1 line of .*line 5 \('age' is 'q', no number\)"):
        read("source,target\na,b\n", nodes + "c,y,q\n")
    with pytest.raises(GraphError) as caught:
        read('source,target\n"a,b\nb,c\nc\n"d","e"\n')
    assert "line 2 (a quote is not closed" in str(caught.value)


HOPELESS = {
    "empty": (b"", "is empty"),
    "header alone": (b"source,target\n", "no rows"),
    "other header": (
        b"from,to\na,b\n",
        r"no column 'source' \(its columns: 'from', 'to'\); name it by source \(--set data.source=",
    ),
    "semicolons": (b"source;target\na;b\n", "say that ';' separates them by delimiter"),
    "twice": (b"source,target,target\na,b,c\n", "several columns named 'target'"),
    "utf-16": ("source,target\na,b\n".encode("utf-16"), "zero bytes"),
    "latin header": (b"source,target,\xe4\na,b,c\n", r"header of .* cannot be read \(it is not in UTF-8\)"),
    "quote in header": (b'"source"x,target\n', "header"),
    "a pickle": (b"\x80\x04\x95\x1a\x00\x00\x00", "zero bytes"),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_files(read, name: str) -> None:
    content, message = HOPELESS[name]
    with pytest.raises(GraphError, match=message):
        read(content)


def test_other_hopeless_cases(read, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="no rows"):
        read(EDGES, "id\n")
    with pytest.raises(GraphError, match=r"2\.5 look like measurements"):
        read("source,target\na,b\n", "id,label\na,2.5\nb,1\n")
    with pytest.raises(GraphError, match="give a list of columns"):
        read(EDGES, NODES, features="age")
    with pytest.raises(GraphError, match=r"no column 'speed'.*features="):
        read(EDGES, NODES, features=["speed"])
    with pytest.raises(GraphError, match="cannot be read"):
        from_tables(tmp_path / "none.csv")
    with pytest.raises(GraphError, match="no table that can be read"):
        from_tables(tmp_path / "edges.pkl")


def test_other_spellings(read, tmp_path: Path) -> None:
    expected = read(EDGES)
    assert read("\ufeff" + EDGES).ids == expected.ids
    assert read(EDGES.replace("\n", "\r\n") + "\r\n").ids == expected.ids
    assert read('source, "target",weight\n"user:4711", "item:7", 0.5\n user:12 ,item:7,2').ids == expected.ids
    assert read(",source,target\n0,a,b\n1,b,c\n").data.get("edge_attr") is None  # a data frame's row numbers
    (tmp_path / "e.tsv").write_text(EDGES.replace(",", "\t"))
    assert from_tables(tmp_path / "e.tsv").ids == expected.ids
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    assert from_tables(tmp_path / "e.csv.gz").ids == expected.ids


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress((EDGES * 50).encode())
    for name, content in (
        ("cut", whole[:-12]),
        ("other", b"plain text"),
        ("flip", whole[:20] + b"\xff\xff" + whole[22:]),
    ):
        (tmp_path / f"{name}.csv.gz").write_bytes(content)
        with pytest.raises(GraphError, match="cannot"):
            from_tables(tmp_path / f"{name}.csv.gz")


CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).map(str.strip).filter(bool)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=20))
def test_any_ids_come_back(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("tables") / "edges.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("source", "target"), *pairs])
    graph = from_tables(path)
    found = zip(*(graph.ids.to_name(end) for end in graph.data.edge_index), strict=True)
    assert list(found) == list(dict.fromkeys(pairs))


def test_blocks_do_not_show(read, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "source,target,weight\n" + "".join(f"n{i * 3 % 8},n{10 - i * i % 11},{i}\n" for i in range(50))
    expected = read(text)
    monkeypatch.setattr("gnndelete.datasets.table_files.BLOCK", 8)
    found = read(text)
    assert found.ids == expected.ids
    assert torch.equal(found.data.edge_index, expected.data.edge_index)
    assert torch.equal(found.data.edge_weight, expected.data.edge_weight)
    nodes = "id\n" + "".join(f"n{i}\n" for i in range(11)) + "n3\n"
    with pytest.raises(GraphError, match=r"line 13 \(the id 'n3' is in an earlier row too\)"):
        read(text, nodes)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GraphError, match=r"pip install 'gnndelete\[tables\]'"):
        from_tables(tmp_path / "edges.parquet")


def test_parquet(tmp_path: Path, read) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    nodes = {"id": ["user:4711", "user:12", "item:7"], "name": ["Ann", "Bob", None], "age": [31, 40, 0]}
    nodes |= {"label": pyarrow.array(["b", "a", None]).dictionary_encode(), "height": [1.5, 2.0, -1e3]}
    edges = {"source": ["user:4711", "user:12"], "target": ["item:7", "item:7"], "weight": [0.5, 2.0]}
    for name, table in (("nodes", nodes), ("edges", edges)):
        parquet.write_table(pyarrow.table(table), tmp_path / f"{name}.parquet")
    graph, expected = from_tables(tmp_path / "edges.parquet", tmp_path / "nodes.parquet"), read(EDGES, NODES)
    assert graph.ids == expected.ids
    assert graph.classes == expected.classes
    assert (graph.features, graph.ignored) == (expected.features, expected.ignored)
    for name in ("x", "y", "edge_index", "edge_weight"):
        assert torch.equal(graph.data[name], expected.data[name])
    parquet.write_table(pyarrow.table({"source": [1, 2, None], "target": [2, 3, 3]}), tmp_path / "edges.parquet")
    with pytest.raises(GraphError, match=r"1 row of .*row 3 \('source' is empty\)"):
        from_tables(tmp_path / "edges.parquet")
    content = (tmp_path / "nodes.parquet").read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"PAR1" + b"\0" * 50 + b"PAR1"):
        (tmp_path / "edges.parquet").write_bytes(damaged)
        with pytest.raises(GraphError, match="cannot be read"):
            from_tables(tmp_path / "edges.parquet")


USERS = IdMap(["user:4711", "user:12", "item:7", "user:9"])


def one_sentence(error: BaseException, *needles: str) -> None:
    text = str(error)
    assert isinstance(error, DeletionError)
    assert "\n" not in text
    assert len(text) < 320
    for needle in needles:
        assert needle in text, text


GOOD_FILES = {
    "header": ("source,target\n3,4\n0,1\n", Deletion(edges=[(0, 1), (3, 4)])),
    "other names": ("Dst;x,SRC,dst\n9, 3,4\n".replace(";", "_"), Deletion(edges=[(3, 4)])),
    "no header": ("3,4\n\n0,1\n3,4\n", Deletion(edges=[(0, 1), (3, 4)])),
    "byte order mark": ("\ufeffu,v\n3,4\n", Deletion(edges=[(3, 4)])),
    "windows": ("source,target\r\n3,4\r\n", Deletion(edges=[(3, 4)])),
    "nodes": ("node\n7\n2\n", Deletion(nodes=[2, 7])),
    "nodes without header": ("7\n2\n", Deletion(nodes=[2, 7])),
    "triples": ("head,relation,tail\n1,0,2\n", Deletion(edges=[(1, 0, 2)])),
}


@pytest.mark.parametrize("name", GOOD_FILES)
def test_request_files(tmp_path, name):
    text, expected = GOOD_FILES[name]
    file = tmp_path / "request.csv"
    file.write_bytes(text.encode())
    assert Deletion.from_csv(file) == expected
    assert Deletion.from_csv(str(file)) == expected


BAD_FILES = {
    "broken lines": (
        "source,target\n0,1\n2;3\n4,5\n6,\nx,7\n",
        ("line 3 (1 cell instead of 2: '2;3')", "line 5 (6,)", "line 6 (x,7)"),
    ),
    "broken without header": ("0,1\n\n2,b\n", ("line 3 (2,b)",)),
    "too many cells": ("0,1\n2,3,4\n", ("line 2 (3 cells instead of 2: '2,3,4')",)),
    "only commas": ("source,target\n0,1\n,\n\n , \n2,3\n", ("2 lines", "lines 3, 5 (,)")),
    "float": ("0,1\n1.5,2\n", ("line 2 (1.5,2)",)),
    "underscore": ("0,1\n1_0,2\n", ("line 2 (1_0,2)",)),
    "empty": ("", ("is empty",)),
    "blank": ("\n \n", ("is empty",)),
    "header alone": ("source,target\n", ("no rows",)),
    "unknown header": ("start,end\n0,1\n", ("start,end", "source,target")),
    "negative": ("0,-1\n", ("-1",)),
    "four columns": ("0,1,2,3\n", ("4 columns and no header", "0,1,2,3")),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_broken_request_files(tmp_path, name):
    text, needles = BAD_FILES[name]
    file = tmp_path / "request.csv"
    file.write_text(text)
    with pytest.raises(DeletionError) as caught:
        Deletion.from_csv(file)
    one_sentence(caught.value, *needles)


def test_request_files_that_cannot_be_read(tmp_path):
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    for path in (tmp_path / "missing.csv", tmp_path, binary):
        with pytest.raises(DeletionError) as caught:
            Deletion.from_csv(path)
        one_sentence(caught.value, str(path), "cannot be read")


def test_request_files_of_features_and_labels(tmp_path):
    def read(text, **options):
        path = tmp_path / "request.csv"
        path.write_text(text)
        return Deletion.from_csv(path, **options)

    assert read("node,column\n3,1\n8,0\n") == Deletion(features=[(3, 1), (8, 0)])
    assert read("3,1\n8,0\n", kind="features", fill=0.5) == Deletion(features=[(3, 1), (8, 0)], fill=0.5)
    assert read("node\n3\n", kind="features") == read("3\n", kind="features") == Deletion(features=[3])
    assert read("node\n3\n", kind="labels") == Deletion(labels=[3])
    ids = gd.datasets.IdMap(["ann", "bob"])
    assert read("node,column\nbob,4\n", ids=ids) == Deletion(features=[(1, 4)])
    with pytest.raises(DeletionError, match="no column 'age'"):
        read("node,column\nbob,age\n", ids=ids)
    with pytest.raises(DeletionError, match="names edges, and labels were asked for"):
        read("source,target\n0,1\n", kind="labels")


REQUESTS = {
    "header": ("source,target\nuser:12,item:7\nuser:9,item:7\n", Deletion(edges=[(1, 2), (3, 2)])),
    "no header": ("user:12,item:7\n", Deletion(edges=[(1, 2)])),
    "blanks": (" user:12 , item:7\n\n", Deletion(edges=[(1, 2)])),
    "nodes": ("id\nuser:12\n", Deletion(nodes=[1])),
    "nodes, no header": ("user:12\nuser:4711\n", Deletion(nodes=[0, 1])),
    "triples": ("head,relation,tail\nuser:12,bought,item:7\n", Deletion(edges=[(1, 1, 2)])),
    "triples, no header": ("user:12,saw,item:7\n", Deletion(edges=[(1, 0, 2)])),
    "more columns": ("ticket,source,target\n1,user:12,item:7\n", Deletion(edges=[(1, 2)])),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_in_own_ids(tmp_path: Path, name: str) -> None:
    text, expected = REQUESTS[name]
    (tmp_path / "request.csv").write_text(text)
    assert Deletion.from_csv(tmp_path / "request.csv", ids=USERS, relations=("saw", "bought")) == expected


def test_requests_with_the_column_names_of_the_tables(read, tmp_path: Path) -> None:
    graph = read("user_id,item_id,ts\nu1,i1,5\nu2,i1,6\n", source="user_id", target="item_id")
    for text, expected in (
        ("user_id,item_id\nu2,i1\n", Deletion(edges=[(2, 1)])),
        ("ts,Item_ID,user_id,why\n5,i1,u1,asked\n", Deletion(edges=[(0, 1)])),
        ("source,target\nu2,i1\n", Deletion(edges=[(2, 1)])),
        ("user_id\nu2\n", Deletion(nodes=[2])),
        ("id\nu2\n", Deletion(nodes=[2])),
    ):
        (tmp_path / "request.csv").write_text(text)
        assert Deletion.from_csv(tmp_path / "request.csv", graph=graph) == expected
    (tmp_path / "request.csv").write_text("user_id,item_id\nu2,i1\n")
    with pytest.raises(
        DeletionError, match="neither a header that is known nor a row of ids; name the columns source,target or node"
    ):
        Deletion.from_csv(tmp_path / "request.csv", graph.ids)


BAD_REQUESTS = {
    "unknown": (
        "source,target\nuser:12,item:7\nuser:13,item:7\nuser:12,zz\n",
        ("2 lines", "line 3 (no id 'user:13', did you mean 'user:12'?)", "line 4 (no id 'zz')"),
    ),
    "unknown header": (
        "start,end\nuser:12,item:7\n",
        ("(start,end) is neither a header", "name the columns source,target or node"),
    ),
    "cells": ("source,target\nuser:12\n", ("line 2 (1 cell instead of 2: 'user:12')",)),
    "relation": ("head,relation,tail\nuser:12,sold,item:7\n", ("line 2 (no relation 'sold'", "'saw', 'bought'")),
    "four columns": ("a,b,c,d\n", ("4 columns and no header",)),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests_in_own_ids(tmp_path: Path, name: str) -> None:
    text, needles = BAD_REQUESTS[name]
    (tmp_path / "request.csv").write_text(text)
    with pytest.raises(DeletionError) as caught:
        Deletion.from_csv(tmp_path / "request.csv", ids=USERS, relations=("saw", "bought"))
    for needle in needles:
        assert needle in str(caught.value)


def test_relations_by_number_and_an_ambiguous_first_line(tmp_path: Path) -> None:
    file = tmp_path / "request.csv"
    file.write_text("user:12,1,item:7\n")
    assert Deletion.from_csv(file, ids=USERS) == Deletion(edges=[(1, 1, 2)])
    file.write_text("user:12,saw,item:7\n")
    with pytest.raises(DeletionError, match="they have numbers here"):
        Deletion.from_csv(file, ids=USERS)
    file.write_text("node\na\n")
    with pytest.raises(DeletionError, match="both a header and a row"):
        Deletion.from_csv(file, ids=IdMap(["node", "a"]))
    file.write_text("node_id\nnode\n")
    assert Deletion.from_csv(file, ids=IdMap(["node", "a"])) == Deletion(nodes=[0])


def test_later_errors_name_the_ids_too(tmp_path: Path) -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 3], [2, 2, 2]]), num_nodes=4)
    file = tmp_path / "request.csv"
    file.write_text("source,target\nuser:12,item:7\nuser:12,user:9\n")
    request = Deletion.from_csv(file, ids=USERS)
    with pytest.raises(DeletionError, match=r"\('user:12', 'user:9'\)"):
        request.check(data)
    with pytest.raises(DeletionError, match=r"\('user:12', 'user:9'\)"):
        (Deletion(nodes=[0]) | request).check(data)
    file.write_text("source,target\nuser:12,item:7\n")
    again = Deletion.from_csv(file, ids=USERS).check(data)
    with pytest.raises(DeletionError, match=r"already deleted.*\('user:12', 'item:7'\)"):
        again.require_new(Deletion(edges=[(1, 2)]))
    file.write_text("node\nuser:9\n")
    with pytest.raises(DeletionError, match="node 'user:9'"):
        Deletion.from_csv(file, ids=USERS).require_new(Deletion(nodes=[3]))
