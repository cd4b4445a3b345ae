"""The same tables from every kind of file, database and data frame are the same graph."""

from __future__ import annotations

import random
import sqlite3
import sys
from pathlib import Path

import pytest
import torch

from gnndelete.datasets import from_tables, load_graph
from gnndelete.datasets.table_files import LONGEST_LINE
from gnndelete.errors import GraphError

COLUMNS = {
    "users": {"user_id": ["u1", "u2", "u3"], "age": [30.0, None, 50.0], "vip": [True, False, None]},
    "items": {"item_id": [7, 8], "price": [1.5, 2.0]},
    "sales": {"user_id": ["u1", "u2", "u2"], "item_id": [7, 8, 8], "n": [1, 2, 3]},
}


def as_csv(folder: Path) -> Path:
    for name, columns in COLUMNS.items():
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(columns), *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines))
    return folder


def as_parquet(folder: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    for name, columns in COLUMNS.items():
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
    return folder


def as_arrow(folder: Path) -> Path:
    pyarrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    makers = {"users": ipc.new_file, "items": ipc.new_stream, "sales": ipc.new_file}
    for name, columns in COLUMNS.items():
        table = pyarrow.table(columns)
        with makers[name](str(folder / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(table)
    return folder


def as_sqlite(folder: Path) -> Path:
    with sqlite3.connect(folder / "shop.db") as connection:
        for name, columns in COLUMNS.items():
            connection.execute(f"create table {name} ({', '.join(columns)})")
            rows = list(zip(*columns.values(), strict=True))
            connection.executemany(f"insert into {name} values ({', '.join('?' * len(columns))})", rows)
    return folder / "shop.db"


def as_duckdb(folder: Path) -> Path:
    duckdb, pyarrow = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow")
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        for name, columns in COLUMNS.items():
            connection.register("frame", pyarrow.table(columns))
            connection.execute(f"create table {name} as select * from frame")
    return folder / "shop.duckdb"


def as_frames(package: str):
    def make(folder: Path):
        module = pytest.importorskip(package)
        table = module.table if package == "pyarrow" else module.DataFrame
        return {name: table(columns) for name, columns in COLUMNS.items()}

    return make


KINDS = {
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
    "duckdb": as_duckdb,
    "sqlite": as_sqlite,
    "pandas": as_frames("pandas"),
    "polars": as_frames("polars"),
    "pyarrow": as_frames("pyarrow"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_graph(tmp_path: Path, kind: str) -> None:
    (tmp_path / "csv").mkdir()
    expected = load_graph(as_csv(tmp_path / "csv"))
    graph = from_tables(KINDS[kind](tmp_path))
    assert graph.ids == expected.ids
    numbers = kind == "sqlite"  # which has no booleans
    assert graph.features == expected.features
    for name in ("user", "item"):
        assert torch.equal(graph.data[name].x, expected.data[name].x), (kind, numbers)
    for edge_type in expected.data.edge_types:
        for name, value in expected.data[edge_type].items():
            assert torch.equal(graph.data[edge_type][name], value)


def test_a_frame_without_pyarrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frames = {name: pandas.DataFrame(columns) for name, columns in COLUMNS.items()}
    expected = from_tables(frames)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert from_tables(frames).ids == expected.ids
    with pytest.raises(GraphError, match=r"needs pyarrow; install it with: pip install 'gnndelete\[tables\]'"):
        from_tables(tmp_path / "edges.arrow")
    assert from_tables(as_sqlite(tmp_path)).ids == expected.ids


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    (tmp_path / "a.duckdb").write_bytes(b"no database")
    with pytest.raises(GraphError, match="no database of DuckDB or SQLite"):
        from_tables(tmp_path / "a.duckdb")
    with pytest.raises(GraphError, match="it does not exist"):
        load_graph(tmp_path / "b.duckdb") if (tmp_path / "b.duckdb").exists() else from_tables(tmp_path / "b.duckdb")
    database = as_sqlite(tmp_path)
    with pytest.raises(GraphError, match="has no table 'orders'; it has items, sales, users"):
        from_tables(f"{database}::orders")
    (tmp_path / "cut.db").write_bytes(b"SQLite format 3\0" + b"\1" * 50)
    with pytest.raises(GraphError, match="cannot be read"):
        from_tables(tmp_path / "cut.db")
    (tmp_path / "long.csv").write_bytes(b"source,target\n" + b"a" * (LONGEST_LINE + 1))
    with pytest.raises(GraphError, match="a line has more than"):
        from_tables(tmp_path / "long.csv")


def test_an_endless_file_is_refused() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("there is no endless file here")
    from gnndelete import Deletion
    from gnndelete.errors import DeletionError

    with pytest.raises(DeletionError, match="cannot be read"):
        Deletion.from_csv("/dev/zero")


@pytest.mark.parametrize("view", ["read_csv('{secret}')", "'{secret}'", "glob('{folder}/*')", "sniff_csv('{secret}')"])
def test_a_view_of_duckdb_reads_no_other_file(tmp_path, view):
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "secret.csv").write_text("a,b\nhush,quiet\n")
    path = as_duckdb(tmp_path)
    with duckdb.connect(str(path)) as connection:
        source = view.format(secret=tmp_path / "secret.csv", folder=tmp_path)
        connection.execute(f"create view spy as select * from {source}")
    with pytest.raises(GraphError, match="file system operations are disabled") as error:
        load_graph(path)
    assert "hush" not in str(error.value)


def test_a_database_that_is_open_already_says_so(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = as_duckdb(tmp_path)
    with duckdb.connect(str(path)), pytest.raises(GraphError, match="close that connection first"):
        load_graph(path)


def test_sqlite_opens_the_file_that_is_named(tmp_path):
    path = as_sqlite(tmp_path).rename(tmp_path / "shop?mode=rwc&x#%41.db")
    before = sorted(tmp_path.iterdir())
    assert load_graph(path).data.node_types == ["user", "item"]
    assert sorted(tmp_path.iterdir()) == before


def test_names_of_columns_that_are_no_utf8(tmp_path):
    path = as_sqlite(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"item_id, price", b"item_id, pr\xffce"))
    with pytest.raises(GraphError, match="cannot be read"):
        load_graph(path)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_arrow_files_are_refused_or_read_and_end_nothing(tmp_path, seed):
    folder = as_arrow(tmp_path)
    content = bytearray((folder / "users.arrow").read_bytes())
    draw = random.Random(seed)
    for _ in range(draw.choice([1, 3, 10])):
        content[draw.randrange(len(content))] = draw.choice([0, 0x7F, 0x80, 0xFF])
    (folder / "users.arrow").write_bytes(content)
    said = ""
    try:
        load_graph(folder)
    except GraphError as error:
        said = str(error)
    assert "\n" not in said


def test_dates_that_python_does_not_have(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    frame = pyarrow.table(
        {"source": ["a", "b"], "target": ["b", "c"], "when": pyarrow.array([2**62, 1], "timestamp[s]")}
    )
    with pytest.raises(GraphError, match="the column 'when' cannot be read"):
        from_tables(frame)


def test_a_header_of_very_many_columns_is_read_soon(tmp_path):
    (tmp_path / "edges.csv").write_text(",".join(f"c{number}" for number in range(100_000)) + "\n1\n")
    with pytest.raises(GraphError, match=r"no column|cannot be used"):
        from_tables(tmp_path / "edges.csv")
