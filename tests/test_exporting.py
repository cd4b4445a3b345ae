"""Exports hold what the result answers with: as rows with ids and what changed in them, and as programs."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import gnndelete as gd
from gnndelete.errors import GraphError, ModelError, SettingError
from gnndelete.io.code import load_module
from tests.shop import ITEMS, USERS, write_shop

SIZES = {"user": USERS, "item": ITEMS}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "shop"
    write_shop(folder)
    return folder


def opened(shop: Path, layout: str):  # type: ignore[no-untyped-def]
    """A graph of the shop, a model, and an Unlearner of both."""
    graph, code = gd.datasets.load_graph(shop, layout=layout), load_module(str(shop / "recnet.py"))
    torch.manual_seed(0)
    hetero = layout == "hetero"
    model = code.TypedNet(SIZES, graph.data.metadata()) if hetero else code.RecNet(USERS, ITEMS)
    task = gd.RankingPrediction(edge_type=("user", "interactions", "item") if hetero else None)
    return graph, model, task, gd.Unlearner(model, graph.data, task=task, method=gd.GNNDelete(lam=0.2))


def deletion(graph, *users: str):  # type: ignore[no-untyped-def]
    nodes = {"user": list(users)} if isinstance(graph.data, HeteroData) else list(users)
    return gd.Deletion(nodes=nodes, ids=graph.ids)


def read(folder: Path, kind: str) -> dict[str, np.ndarray]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / f"{kind}.parquet")
    return dict(zip(table["id"].to_pylist(), np.array(table["embedding"].to_pylist()), strict=True))


@pytest.mark.parametrize("layout", ["single", "hetero"])
def test_rows_have_ids_and_changes_bring_an_index_up_to_date(shop: Path, tmp_path: Path, layout: str) -> None:
    graph, model, task, unlearner = opened(shop, layout)
    out = tmp_path / "index"
    assert "changes" not in gd.export(model, graph.data, out, task=task, ids=graph.ids)
    index = {kind: read(out, kind) for kind in SIZES}
    assert {kind: len(rows) for kind, rows in index.items()} == SIZES
    unlearned = unlearner.delete(deletion(graph, "u-103"))
    found = unlearned.export(out, ids=graph.ids)
    output = unlearned.output()
    rows = torch.cat([output["user"], output["item"]]) if layout == "hetero" else output
    want = {name: row.numpy() for name, row in zip(graph.ids.names, rows, strict=True) if name != "u-103"}
    with (out / "changes.csv").open() as file:
        changes = list(csv.DictReader(file))
    assert {each["id"] for each in changes if each["change"] == "removed"} == {"u-103"}
    assert found["changes"]["updated"] == len(changes) - 1 > 0
    new = {kind: read(out, kind) for kind in SIZES}
    for each in changes:  # what a vector index does
        if each["change"] == "removed":
            del index[each["type"]][each["id"]]
        else:
            index[each["type"]][each["id"]] = new[each["type"]][each["id"]]
    merged = index["user"] | index["item"]
    assert merged.keys() == want.keys()
    assert all(np.array_equal(merged[name], row) for name, row in want.items())
    again = unlearned.export(out, ids=graph.ids)
    assert again["changes"] == {"added": 0, "updated": 0, "removed": 0}
    assert (out / "changes.csv").stat().st_mode & 0o077 == 0


def test_numpy_files_and_an_earlier_export_elsewhere(shop: Path, tmp_path: Path) -> None:
    graph, model, _, unlearner = opened(shop, "single")
    gd.export(model, graph.data, tmp_path / "before", "npy", ids=graph.ids)
    unlearned = unlearner.delete(deletion(graph, "u-103", "u-104"))
    found = unlearned.export(tmp_path / "after", "npy", ids=graph.ids, since=tmp_path / "before")
    assert found["changes"]["removed"] == 2
    assert np.load(tmp_path / "after" / "user.npy").shape == (USERS - 2, 8)
    assert "u-103" not in (tmp_path / "after" / "user.ids.txt").read_text().split()
    assert found["assurance"] == "approximate"


@pytest.mark.parametrize("layout", ["single", "hetero"])
@pytest.mark.parametrize("format", ["onnx", "torch.export"])
def test_programs_answer_like_the_result(shop: Path, tmp_path: Path, layout: str, format: str) -> None:
    graph, _, _, unlearner = opened(shop, layout)
    unlearned = unlearner.delete(deletion(graph, "u-103"))
    made = unlearned.export(tmp_path / "program", format)  # type: ignore[arg-type]
    inputs = dict(np.load(tmp_path / "program" / "inputs.npz"))
    assert list(inputs) == made["inputs"]
    pairs = torch.tensor([[0, 1, 5], [2, 3, 4]])
    asked = pairs if layout == "hetero" else pairs + torch.tensor([[0], [USERS]])
    if format == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        run = {name: onnxruntime.InferenceSession(tmp_path / "program" / f"{name}.onnx") for name in ("model", "score")}
        rows = run["model"].run(None, inputs)
        names = made["score"]["inputs"]
        scores = run["score"].run(None, dict(zip(names, [*rows, asked.numpy()], strict=True)))[0]
        fewer = {name: value[:, 1:] for name, value in inputs.items()}
        assert run["model"].run(None, fewer)[0].shape == rows[0].shape  # the number of edges may change
    else:
        run = {name: torch.export.load(tmp_path / "program" / f"{name}.pt2").module() for name in ("model", "score")}
        output = run["model"](*map(torch.from_numpy, inputs.values()))
        rows = list(output.values()) if isinstance(output, dict) else [output]
        scores = run["score"](*rows, asked).detach().numpy()
    typed = {("user", "interactions", "item"): pairs} if layout == "hetero" else asked
    assert np.allclose(scores, unlearned.predict(typed).numpy(), atol=1e-5)


def test_labels_and_masks_are_no_inputs_of_a_program(tmp_path: Path) -> None:
    data = gd.datasets.split_nodes(gd.datasets.load("digits"))
    made = gd.export(gd.models.GCN(64, out=10), data, tmp_path / "p", "torch.export", task=gd.NodeClassification())
    assert made["inputs"] == ["x", "edge_index"]
    assert "score" not in made


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return x if float(x.sum()) > 0 else -x


def test_what_cannot_be_exported_is_refused_with_a_way_out(tmp_path: Path) -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(ModelError, match=r"cannot be traced.*export its rows"):
        gd.export(Branching(), data, tmp_path / "a", "onnx")
    with pytest.raises(SettingError, match="did you mean 'onnx'"):
        gd.export(Branching(), data, tmp_path / "a", "onxx")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="holds no earlier export"):
        gd.export(Branching(), data, tmp_path / "a", since=tmp_path)
    with pytest.raises(GraphError, match="3 nodes and 1 ids"):
        gd.export(Branching(), data, tmp_path / "a", ids=gd.datasets.IdMap(["x"]))
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(SettingError, match="holds other files"):
        gd.export(Branching(), data, tmp_path / "mine")
    gd.export(Branching(), data, tmp_path / "rows", "npy")
    with pytest.raises(SettingError, match="holds an export as npy"):
        gd.export(Branching(), data, tmp_path / "rows", "torch.export")


def test_an_adapter_does_not_know_which_rows_to_leave_out(shop: Path, tmp_path: Path) -> None:
    graph, model, task, unlearner = opened(shop, "single")
    unlearned = unlearner.delete(deletion(graph, "u-103"))
    unlearned.save(tmp_path / "adapter")
    loaded = gd.load(tmp_path / "adapter", model, unlearned.data, task=task)
    with pytest.raises(ModelError, match=r"does not name the 1 deleted nodes.*gnndelete export RUN"):
        loaded.export(tmp_path / "out")
