"""Deletion requests in CSV files: numbers or names, with a header or without; every bad line is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.datasets import IdMap
from gnndelete.errors import DeletionError
from gnndelete.graph.deletion import Deletion

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
    "only commas": ("source,target\n0,1\n,\n\n , \n2,3\n", ("2 lines", "line 3 (,)", "line 5 (,)")),
    "float": ("0,1\n1.5,2\n", ("line 2 (1.5,2)",)),
    "underscore": ("0,1\n1_0,2\n", ("line 2 (1_0,2)",)),
    "empty": ("", ("is empty",)),
    "blank": ("\n \n", ("is empty",)),
    "header alone": ("source,target\n", ("no rows",)),
    "unknown header": ("from,to\n0,1\n", ("from,to", "source,target")),
    "negative": ("0,-1\n", ("-1",)),
    "four columns": ("0,1,2,3\n", ("(0, 1, 2, 3)",)),
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


BAD_REQUESTS = {
    "unknown": (
        "source,target\nuser:12,item:7\nuser:13,item:7\nuser:12,zz\n",
        ("2 lines", "line 3 (no id 'user:13', did you mean 'user:12'?)", "line 4 (no id 'zz')"),
    ),
    "unknown header": ("from,to\nuser:12,item:7\n", ("line 1 (no id 'from'",)),
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
