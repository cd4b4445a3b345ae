"""``gnndelete delete`` with features and labels: named in place and in files, in a sequence, and what a dry run says."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import gnndelete as gd

from .conftest import Cli, latest, opened


def test_features_and_labels_in_a_sequence(cli: Cli, node_run: Path, tmp_path: Path) -> None:
    (tmp_path / "features.csv").write_text("node,column\n3,1\n8,0\n")
    (tmp_path / "labels.csv").write_text("node\n12\n")
    first = cli("delete", node_run, "--features", "features.csv", "--fill", 0.5, "--labels", "labels.csv", "--json")
    assert first.values["counts"] == {"features": 2, "labels": 1}
    second = cli("delete", node_run, "--feature", 20, "--feature", "21,4", "--label", 22, "--node", 40, "--json")
    assert second.values["request"] == {"nodes": 1, "features": 2, "labels": 1}
    assert second.values["counts"] == {"nodes": 1, "features": 4, "labels": 2}
    saved = cli("delete", node_run, "--save-graph", tmp_path / "left", "--json")
    assert saved.code == 0
    left = gd.datasets.load_graph(tmp_path / "left").data
    assert left.x[3, 1] == left.x[8, 0] == 0.5
    assert not left.x[20].any()
    assert left.x[21].nonzero().numel() == 5
    assert left.y[[12, 22, 40]].tolist() == [-1, -1, -1]
    settings = (latest(node_run) / "settings.yaml").read_text()
    assert "left out here, because it says who was deleted" in settings
    again = cli("delete", node_run, "--label", 12)
    assert again.code == 2
    assert "already deleted" in again.sentence
    assert "label of node 12" in again.sentence


def test_a_dry_run_says_what_would_be_forgotten(cli: Cli, node_run: Path) -> None:
    before = sorted(path.name for path in node_run.iterdir())
    shown = cli("delete", node_run, "--feature", 3, "--feature", "5,1", "--label", 7, "--dry-run")
    assert "features of 2 nodes, 1 label would be forgotten" in shown.out
    assert sorted(path.name for path in node_run.iterdir()) == before


def test_a_dry_run_does_not_say_that_labels_leave_a_graph(cli: Cli, node_run: Path) -> None:
    labels = cli("delete", node_run, "--label", 7, "--dry-run").out.replace("\n", " ")
    assert "taking the elements out of the data" in labels
    assert "graph" not in labels
    unlinked = cli("delete", node_run, "--label", 7, "--dry-run", "--method", "unlink").out.replace("\n", " ")
    assert "inference-only; base weights. The labels were taken from training" in unlinked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--feature", "3,age"), "no column 'age', columns of 'x' have numbers from 0"),
        (("--feature", "3,99"), "columns that 'x' does not have: (3, 99)"),
        (("--feature", "x"), "--feature x"),
        (("--label", "600"), "labels= names nodes that are not in the graph"),
        (("--node", "3", "--fill", "1"), "--fill says what replaces features"),
        (
            ("--set", "deletion.features=[[1,2,3]]"),
            "--feature 1,2,3 (it is written node or node,column, such as --feature 3,7)",
        ),
        (("--feature", ""), "it is written node or node,column"),
        (("--random", "2", "--kind", "nodes", "--where", "hubs"), "--where hubs says which edges are drawn"),
        (("--relation", "likes"), "--relation names 'likes', and the graph has no relation types"),
    ],
)
def test_what_does_not_fit(cli: Cli, node_run: Path, options: tuple[str, ...], words: str) -> None:
    result = cli("delete", node_run, *options)
    assert result.code == 2
    assert words in result.sentence


def test_settings_in_a_file(cli: Cli, node_run: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("deletion:\n  features: [[3], [5, 1]]\n  labels: [7]\n  fill: 2\n")
    plan = cli("delete", node_run, "-c", "run.yaml", "--json")
    assert plan.values["counts"] == {"features": 2, "labels": 1}
    state = json.loads((latest(node_run) / "state.json").read_text())["requests"][0]
    assert torch.tensor(state["features"]).tolist() == [[3, 5], [-1, 1]]
    assert state["fill"] == [2.0, 2.0]


def test_a_mixed_request_equals_its_parts_one_after_another(cli: Cli, node_run: Path, tmp_path: Path) -> None:
    """Three edges, two nodes, one column of five nodes, one label: in one command, or in four."""
    _, graph, _ = opened(node_run)
    ends = graph.data.edge_index
    chosen = ends[:, (ends[0] < ends[1]).nonzero().flatten()[[0, 30, 60]]]
    free = [node for node in graph.data.train_mask.nonzero().flatten().tolist() if node not in chosen]
    column = [str(node) for node in free[2:7]]
    parts: list[list[str]] = [
        [word for edge in chosen.t().tolist() for word in ("--edge", f"{edge[0]},{edge[1]}")],
        ["--node", str(free[0]), "--node", str(free[1])],
        [word for node in column for word in ("--feature", f"{node},2")],
        ["--label", str(free[7])],
    ]
    other = shutil.copytree(node_run, tmp_path / "other")
    method = ("--lam", "0.2", "--json")
    whole = cli("delete", node_run, *itertools.chain(*parts), *method)
    assert whole.values["counts"] == {"edges": 3, "nodes": 2, "features": 5, "labels": 1}
    for part in reversed(parts):
        last = cli("delete", other, *part, *method)
        assert last.code == 0, last.err
    assert last.values["counts"] == whole.values["counts"]
    assert last.values["after"] == whole.values["after"]
    weights = [load_file(latest(run) / "adapter_model.safetensors") for run in (node_run, other)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_labels_of_tables_are_counted_and_named_by_their_ids(cli: Cli, tmp_path: Path) -> None:
    """Labels as numpy writes them: 1 and 1.0 are one class, nan is no label."""
    cells = itertools.cycle(["0", "1", "1.0", "0.0"])
    rows = [f"user:{node},{'nan' if node % 10 == 0 else next(cells)},{node % 7},{node % 3}" for node in range(60)]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/nodes.csv").write_text("\n".join(["id,label,a,b", *rows]) + "\n")
    edges = [f"user:{node},user:{(node + step) % 60}" for node in range(60) for step in (1, 5)]
    (tmp_path / "shop/edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    small = ("--graph", "shop", "--undirected", "--model", "gcn", "--set", "model.hidden=8", "--epochs", 2)
    shown = cli("train", *small, "--task", "node", "--out", "run")
    assert "2 classes (and their nodes): 0 (27), 1 (27); 6 nodes without a label\n" in shown.out
    metrics = json.loads((tmp_path / "run/base/metrics.json").read_text())
    assert (metrics["classes"], metrics["unlabelled"]) == ({"0": 27, "1": 27}, 6)
    refused = cli("delete", "run", "--label", "user:11", "--label", "user:20", "--method", "unlink")
    assert refused.code == 2
    assert "labels are to be forgotten of nodes without a label: 'user:20'; leave them out" in refused.sentence
    links = cli("train", *small, "--task", "link", "--out", "links", "--set", "data.val=0.1", "--set", "data.test=0.1")
    assert links.code == 0
    assert "classes" not in links.out


def test_many_classes_are_told_in_short(cli: Cli, tmp_path: Path) -> None:
    rows = [f"u{node},[kind]{node % 20:02},{node % 7}" for node in range(200)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,a", *rows]) + "\n")
    edges = [f"u{node},u{(node + 1) % 200}" for node in range(200)]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    shown = cli("train", "--graph", ".", "--task", "node", "--set", "model.hidden=8", "--epochs", 1, "--out", "run")
    assert "20 classes (and their nodes): [kind]00 (10), [kind]01 (10), " in shown.out
    assert "[kind]07 (10) and 12 more\n" in shown.out


def test_a_label_is_corrected_on_the_command_line(cli, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    rows = [f"acc-{n},{n % 7},{'fraud' if n % 3 == 0 else 'honest'}" for n in range(60)]
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank/nodes.csv").write_text("\n".join(["id,amount,label", *rows, ""]))
    pairs = [f"acc-{n},acc-{(n + step) % 60}" for n in range(60) for step in (1, 3)]
    (tmp_path / "bank/edges.csv").write_text("\n".join(["source,target", *pairs, ""]))
    options = (
        "--graph",
        "bank",
        "--undirected",
        "--model",
        "gcn",
        "--task",
        "node",
        "--epochs",
        3,
        "--set",
        "model.hidden=8",
    )
    assert cli("train", *options, "--set", "data.val=0.1", "--set", "data.test=0.1", "--out", "run").code == 0
    (tmp_path / "right.csv").write_text("node,new\nacc-3,honest\n")
    for named in (("--label", "acc-3,honest"), ("--labels", "right.csv")):
        planned = cli("delete", "run", *named, "--dry-run", "--json")
        assert planned.code == 0, planned.err
        assert planned.values["request"] == {"labels": 1}
    refused = cli("delete", "run", "--label", "acc-3,thief")
    assert refused.code == 2
    assert "no class 'thief', there are 'fraud', 'honest'" in refused.sentence
    assert "already" in cli("delete", "run", "--label", "acc-3,fraud").sentence


def test_columns_are_called_as_in_the_table_of_the_node(cli: Cli, tmp_path: Path) -> None:
    """Users and items share one ``x``, whose columns are called user.age, user.plan=free, ..., item.age."""
    (tmp_path / "shop").mkdir()
    users = [f"u-{n},{20 + n},{('free', 'pro')[n % 2]}" for n in range(40)]
    tables = {
        "users": ["user_id,age,plan", *users],
        "items": ["item_id,age", *(f"i-{n},{n}" for n in range(20))],
        "orders": ["user_id,item_id", *(f"u-{n},i-{(n + step) % 20}" for n in range(40) for step in (1, 3, 8))],
    }
    for table, lines in tables.items():
        (tmp_path / f"shop/{table}.csv").write_text("\n".join([*lines, ""]))
    assert cli("train", "--graph", "shop", "--epochs", 2, "--set", "model.hidden=8", "--out", "run").code == 0
    request = ("--feature", "u-5,age", "--feature", "u-6,plan", "--feature", "u-7,user.plan", "--feature", "i-3,age")
    assert cli("delete", "run", *request, "--save-graph", "left").code == 0
    left = gd.datasets.load_graph("left")
    assert left.features == ("user.age", "user.plan=free", "user.plan=pro", "item.age")
    assert left.data.x[[5, 6, 7, 43]].tolist() == [[0, 0, 1, 0], [26, 0, 0, 0], [27, 0, 0, 0], [0, 0, 0, 0]]
    refused = cli("delete", "run", "--feature", "i-4,plan")
    assert refused.code == 2
    assert "(no column 'plan', there are 'age', or numbers from 0)" in refused.sentence
