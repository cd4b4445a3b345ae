"""Columns of tables as numbers: their kinds, their encodings, empty cells."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from gnndelete.datasets import from_tables
from gnndelete.datasets.columns import kind_of
from gnndelete.errors import GraphError, SettingError

ROWS = [
    ("id", "age", "plan", "joined", "seen", "paid", "mail", "ref_id"),
    ("a", "30", "free", "2000-01-01", "2024-05-17T10:00:00", "yes", "a@x", "1"),
    ("b", "", "pro", "2002-01-01", "2024-05-17T11:00:00", "no", "b@x", "2"),
    ("c", "50", "", "", "2024-05-18T10:00:00", "", "c@x", "3"),
    ("d", "40", "free", "2001-01-01", "2024-05-19T10:00:00", "yes", "d@x", "4"),
    ("e", "40", "pro", "2001-01-01", "2024-05-19T10:00:00", "yes", "e@x", "5"),
]


def read(tmp_path: Path, rows=ROWS, **options):
    (tmp_path / "nodes.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    return from_tables(tmp_path / "edges.csv", tmp_path / "nodes.csv", **options)


def test_what_each_column_becomes(tmp_path: Path) -> None:
    graph = read(tmp_path)
    assert graph.features == ("age", "plan=free", "plan=pro", "joined", "paid")
    assert graph.ignored == ("seen", "mail", "ref_id")
    x = dict(zip(graph.features, graph.data.x.t().tolist(), strict=True))
    assert x["age"] == [30, 40, 50, 40, 40]  # the mean of the others
    assert (x["plan=free"], x["plan=pro"]) == ([1, 0, 0, 1, 0], [0, 1, 0, 0, 1])
    assert x["paid"] == [1, 0, 0.75, 1, 1]
    np.testing.assert_allclose(x["joined"], [0, 2.0014, 1.0011, 1.0021, 1.0021], atol=1e-3)
    by_name = {each.column: each for each in graph.encodings["nodes.node"]}
    assert (by_name["age"].empty, by_name["age"].fill) == (1, 40.0)
    assert by_name["plan"].values == ("free", "pro")
    assert (by_name["seen"].reason, by_name["mail"].reason, by_name["ref_id"].reason) == (
        "a time",
        "text",
        "it names rows",
    )


def test_rules_for_empty_cells(tmp_path: Path) -> None:
    assert read(tmp_path, empty="zero").data.x[:, 0].tolist() == [30, 0, 50, 40, 40]
    with pytest.raises(GraphError) as caught:
        read(tmp_path, empty="error")
    for needle in ("line 3 ('age' is empty)", "line 4 ('plan' is empty)"):
        assert needle in str(caught.value)
    with pytest.raises(SettingError, match="'empty' must be"):
        read(tmp_path, empty="median")


def test_columns_that_were_asked_for(tmp_path: Path) -> None:
    graph = read(tmp_path, features=["seen", "mail"])
    assert graph.features == ("seen", "mail=a@x", "mail=b@x", "mail=c@x", "mail=d@x", "mail=e@x")
    assert 24.37 < float(graph.data.x[0, 0]) < 24.38
    graph = read(tmp_path, features={"plan": ["pro", "free", "team"], "age": "number"})
    assert graph.features == ("plan=pro", "plan=free", "plan=team", "age")
    assert graph.data.x[:, :3].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]]
    with pytest.raises(GraphError, match=r"lines 3, 6 \('plan' is 'pro', none of free\)"):
        read(tmp_path, features={"plan": ["free"]})
    with pytest.raises(SettingError, match=r"'age' of .* has no kind 'numbr'; did you mean 'number'"):
        read(tmp_path, features={"age": "numbr"})
    with pytest.raises(GraphError, match=r"line 2 \('mail' is 'a@x', no number\)"):
        read(tmp_path, features={"mail": "number"})


def test_kinds_of_python_values() -> None:
    assert kind_of([date(2024, 1, 2), None]) == "date"
    assert kind_of([datetime(2024, 1, 2, 3), None]) == "time"
    assert kind_of([True, None]) == "boolean"
    assert kind_of([1_700_000_000, 1_700_000_001.0]) == kind_of([1_700_000_000_000]) == "time"
    assert kind_of([1_700_000_000, 5]) == kind_of(["3", "n/a", "4"]) == "number"
    assert kind_of(["a"] * 3 + ["b"]) == "category"
    assert kind_of([None, ""]) == kind_of([]) == kind_of([f"word {i}" for i in range(90)]) == "text"


def test_a_column_with_too_many_texts_is_no_feature(tmp_path: Path) -> None:
    rows = [("id", "city", "same"), *((f"n{i}", f"city {i % 400 if i > 1000 else i % 9}", "x") for i in range(2000))]
    rows += [("a", "x", "x"), ("b", "x", "x")]
    graph = read(tmp_path, rows)
    assert graph.data.x is None
    reasons = {each.column: each.reason for each in graph.encodings["nodes.node"]}
    assert reasons == {"city": "text with more than 50 different values", "same": "the same everywhere"}
    assert read(tmp_path, rows, features=["city"]).data.x.shape == torch.Size([2002, 401])
