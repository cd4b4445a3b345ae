"""Tables with the user's own ids, from training to the remaining graph; every error speaks of these ids."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

import gnndelete as gd
from gnndelete.cli import run
from gnndelete.datasets.forget import training_edges
from gnndelete.graph.fingerprint import fingerprint

from .conftest import NODES, SMALL, Cli, contents, latest, make_graph, opened

SPLIT = ("--set", "data.val=0.1", "--set", "data.test=0.1")


def name(node: int) -> str:
    """Ids of two kinds, some with a comma in them."""
    return f"user:{4000 + node}" if node % 2 else f"item {node}, new"


def write_tables(folder: Path) -> Path:
    folder.mkdir(parents=True)
    data = make_graph()
    rows = [
        f'"{name(i)}",c{int(y)},town,{",".join(map(str, x))}'
        for i, (x, y) in enumerate(zip(data.x.tolist(), data.y, strict=True))
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,label,city,a,b,c,d,e,f", *rows]) + "\n")
    pairs = [f'"{name(u)}","{name(v)}"' for u, v in data.edge_index[:, : data.edge_index.size(1) // 2].t().tolist()]
    (folder / "edges.csv").write_text("\n".join(["source,target", *pairs]) + "\n")
    return folder


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("own") / "shop")


@pytest.fixture(scope="session")
def named_trained(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("named") / "run"
    assert run(["train", "--graph", str(tables), "--undirected", "--out", str(out), *SMALL, *SPLIT]) == 0
    return out


@pytest.fixture
def named_run(named_trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(named_trained, tmp_path / "run"))


def pairs_of(folder: Path) -> list[tuple[str, str]]:
    """The training edges of a run, by name."""
    _, graph, _ = opened(folder)
    assert graph.ids is not None
    return [tuple(graph.ids.to_name(pair)) for pair in training_edges(graph.data).t()]


def request(path: Path, header: str, *rows: object) -> Path:
    lines = [",".join(f'"{cell}"' for cell in ([row] if isinstance(row, str) else row)) for row in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_a_run_remembers_the_ids(named_trained: Path, tables: Path) -> None:
    metrics = json.loads((named_trained / "base/metrics.json").read_text())
    graph = gd.datasets.load_graph(tables, undirected=True)
    assert graph.ids is not None
    manifest = json.loads((named_trained / "base/manifest.json").read_text())
    assert manifest["facts"]["ids"] == graph.ids.fingerprint
    assert (metrics["nodes"], metrics["undirected"], metrics["unused_columns"]) == (NODES, True, ["city"])
    data = yaml.safe_load((named_trained / "base/settings.yaml").read_text())["data"]
    assert (data["graph"], data["undirected"]) == (os.path.relpath(tables, named_trained / "base"), True)
    assert "label" not in data  # options of tables that were not given are not listed


def test_from_tables_to_a_served_deletion(cli: Cli, named_run: Path, tmp_path: Path) -> None:
    assert cli("inspect", named_run, "--json").values["nodes"] == NODES
    pairs = pairs_of(named_run)
    edges = request(tmp_path / "requests.csv", "source,target", *(pair[::-1] for pair in pairs[:3]))
    first = cli("delete", named_run, "--edges", edges, "--json")
    assert (first.code, first.values["request"]) == (0, {"edges": 3})
    assert first.values["remaining_graph"] is None
    nodes = request(tmp_path / "nodes.csv", "node", name(7), name(40))
    second = cli("delete", named_run, "--nodes", nodes, "--node", name(20), "--save-graph", "left")
    assert second.code == 0, second.err
    assert "serve it on the remaining graph: left" in second.out
    state = json.loads((latest(named_run) / "state.json").read_text())
    assert state["requests"][1] == {"nodes": [7, 20, 40]}
    left = gd.datasets.load_graph(tmp_path / "left")
    assert left.ids is not None
    assert left.ids.to_name([7, 8, 20, 40]) == ["deleted:7", name(8), "deleted:20", "deleted:40"]
    assert left.classes == ("c0", "c1", "c2")
    assert not left.data.x[[7, 20, 40]].any()
    model = gd.models.GCN(6, hidden=8, out=4)
    model.load_state_dict(load_file(named_run / "base/model.safetensors"))
    served = gd.load(latest(named_run), model, data=left.data, task="link")
    assert served.predict([(1, 2)]).isfinite().all()


def test_ids_of_deleted_elements_are_in_the_state_only(cli: Cli, named_run: Path, tmp_path: Path) -> None:
    u, v = next(pair for pair in pairs_of(named_run) if all("item" in end for end in pair))
    gone = name(33)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"deletion": {"edges": [[u, v]], "nodes": [gone]}}))
    done = cli("delete", named_run, "-c", "run.yaml", "--save-graph", "left")
    assert done.code == 0, done.err
    for place, content in contents(latest(named_run)).items():
        assert not any(text.encode() in content for text in (u, v, gone)), place
    for place, content in contents(tmp_path / "left").items():
        assert gone.encode() not in content, place
    assert "says who was deleted" in (latest(named_run) / "settings.yaml").read_text()
    assert gone not in done.out + done.err


def test_one_edge_with_a_comma_in_an_id(cli: Cli, named_run: Path) -> None:
    u, v = next(pair for pair in pairs_of(named_run) if "item" in pair[0])
    done = cli("delete", named_run, "--edge", f'"{u}", "{v}"', "--json")
    assert (done.code, done.values["request"]) == (0, {"edges": 1})
    again = cli("delete", named_run, "--edge", f'"{v}","{u}"')
    assert again.code == 2
    assert "already deleted" in again.sentence
    assert repr(u) in again.sentence


def test_columns_of_features_go_by_their_names(cli: Cli, named_run: Path, tables: Path, tmp_path: Path) -> None:
    request(tmp_path / "features.csv", "node,column", ("user:4003", "c"), ("user:4005", "1"))
    done = cli(
        "delete", named_run, "--feature", "user:4001,b", "--features", "features.csv", "--save-graph", "left", "--json"
    )
    assert done.code == 0, done.err
    before, left = (gd.datasets.load_graph(folder).data.x for folder in (tables, tmp_path / "left"))
    changed = (left != before).nonzero().tolist()
    assert changed == [[1, 1], [3, 2], [5, 1]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--feature", "user:4001,age"),
            ("no column 'age', there are 'a', 'b', 'c', 'd', 'e' and 1 more, or numbers from 0",),
        ),
        (("--edges", "typo.csv"), ("line 3 (no id 'user:4071', did you mean 'user:40",)),
        (
            ("--edges", "broken.csv"),
            ("2 lines of", "line 2 (1 cell instead of 2: 'user:4001')", "line 4 (3 cells instead of 2: "),
        ),
        (("--edges", "strangers.csv"), ("of the edges to delete does not exist", "('user:4001', 'user:4031')")),
        (("--nodes", "both.csv"), ("line 2 (no id 'user:9', did you mean",)),
        (("--node", "user:4071"), ("--node user:4071 (no id 'user:4071', did you mean 'user:40",)),
        (("--node", "3"), ("no id '3'",)),
        (("--feature", "user:4001,99"), ("('user:4001', 99)",)),
        (("--edge", "user:4001,usr:4003"), ("no id 'usr:4003', did you mean 'user:4003'?",)),
        (("--edge", "item 0, new,item 2, new"), ("an id with a comma in quotes",)),
        (("--feature", 'item 0, "new",a'), ("--feature item 0,new,a (it is written", "an id with a comma in quotes")),
        (("--edge", "user:4001"), ("is written source,target",)),
        (("--edge", '"user:4001'), ("is written source,target",)),
        (("--set", "deletion.nodes=[007]"), ("7 is a number: write it in quotes",)),
        (("--node", "user:4001", "--set", "data.undirected=false"), ("was trained with True",)),
        (("--node", "user:4001", "--save-graph", "occupied"), ("holds other files",)),
        (("--node", "user:4001", "--save-graph", "typo.csv"), ("is a file",)),
        (("--node", "user:4001", "--save-graph", "run"), ("another folder",)),
        (("--node", "user:4001", "--save-graph", "run/base"), ("holds a run",)),
        (("--save-graph", "left"), ("nothing was deleted from the run",)),
    ],
)
def test_a_bad_request_names_the_ids_and_changes_nothing(
    cli: Cli, named_run: Path, tmp_path: Path, arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    u, v = pairs_of(named_run)[0]
    request(tmp_path / "typo.csv", "source,target", (u, v), ("user:4071", "user:4018"))
    (tmp_path / "broken.csv").write_text(
        f'source,target\nuser:4001\n"{u}","{v}"\nuser:4003,user:4005,user:4007\n"{u}","{v}"\n'
    )
    request(tmp_path / "strangers.csv", "source,target", ("user:4031", "user:4001"))
    request(tmp_path / "both.csv", "node", "user:9")
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied/thesis.tex").write_text("mine")
    before = contents(tmp_path)
    refused = cli("delete", named_run, *arguments)
    assert refused.code == 2, refused.err
    assert len(refused.sentence.splitlines()) == 1
    for words in said:
        assert words in refused.sentence
    assert contents(tmp_path) == before


def test_a_held_out_edge_is_named_by_its_ids(cli: Cli, named_run: Path) -> None:
    _, graph, task = opened(named_run)
    assert isinstance(task, gd.LinkPrediction)
    assert task.test is not None
    assert graph.ids is not None
    u, v = graph.ids.to_name(task.test.positives[:, 0])
    said = cli("delete", named_run, "--edge", f'"{u}","{v}"').sentence
    assert f"held out from training: ({u!r}, {v!r}) (for testing)" in said


def test_tables_that_changed_are_refused(cli: Cli, named_run: Path, tables: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(tables, tmp_path / "moved"))
    arguments = ("delete", named_run, "--set", f"data.graph={moved}", "--node", name(1), "--dry-run")
    assert cli(*arguments).code == 0
    for table in ("nodes.csv", "edges.csv"):
        (moved / table).write_text((moved / table).read_text().replace(name(3), "user:new"))
    assert "were renamed" in cli(*arguments).sentence
    shutil.copy(tables / "nodes.csv", moved)
    edges = (tables / "edges.csv").read_text().splitlines()
    (moved / "edges.csv").write_text("\n".join(edges[:-1]) + "\n")
    assert "not the one it was trained on" in cli(*arguments).sentence


def test_the_remaining_graph_of_earlier_requests(cli: Cli, named_run: Path, tmp_path: Path) -> None:
    done = cli("delete", named_run, "--node", name(9))
    assert f"'gnndelete delete {named_run} --save-graph DIR' writes" in " ".join(done.out.split())
    before = contents(named_run)
    saved = cli("delete", named_run, "--save-graph", "left", "--json")
    assert (saved.code, saved.values["requests"], saved.values["counts"]) == (0, 1, {"nodes": 1})
    assert "without 1 node" in cli("delete", named_run, "--save-graph", "left").out  # an earlier one is replaced
    assert contents(named_run) == before
    result = json.loads(before["versions/0001/result.json"])
    assert fingerprint(gd.datasets.load_graph(tmp_path / "left").data) == result["remaining_fingerprint"]


def test_the_remaining_graph_of_a_file(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    graph = link_run / "base" / yaml.safe_load((link_run / "base/settings.yaml").read_text())["data"]["graph"]
    refused = cli("delete", link_run, "--node", 9, "--save-graph", graph.parent)
    assert "a run, its result or its graph" in refused.sentence
    done = cli("delete", link_run, "--node", 9, "--save-graph", "left", "--json")
    assert done.code == 0, done.err
    assert contents(tmp_path / "left").keys() == {"graph.json", "graph.pt", "remaining.json"}
    left = gd.datasets.load_graph(tmp_path / "left").data
    assert fingerprint(left) == done.values["remaining_fingerprint"]
    assert not left.x[9].any()
    assert not (left.edge_index == 9).any()


def test_an_error_while_copying_says_that_the_request_was_applied(
    cli: Cli, named_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if target.name == "ids.json" and target.parent.name == "left":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as fault:  # undo() would leave the test's folder, too
        fault.setattr(Path, "replace", failing)
        failed = cli("delete", named_run, "--node", name(9), "--save-graph", "left", "--json")
    assert (failed.code, failed.values["error"]["applied"]) == (1, True), failed.err
    assert "was applied as version 1, and its copy failed" in failed.err
    saved = cli("delete", named_run, "--save-graph", tmp_path / "left", "--json")
    assert saved.values["counts"] == {"nodes": 1}


def test_classes_and_triples_by_name(cli: Cli, tables: Path, tmp_path: Path) -> None:
    shop = Path(shutil.copytree(tables, tmp_path / "shop"))
    header, *rows = (shop / "edges.csv").read_text().splitlines()
    typed = [f"{row},{('likes', 'buys')[place % 2]}" for place, row in enumerate(rows)]
    (shop / "edges.csv").write_text("\n".join([f"{header},relation", *typed]) + "\n")
    assert "take rgcn or rgat" in cli("train", "--graph", "shop", "--out", "links").sentence
    small = ("--task", "node", "--epochs", 3, "--set", "model.hidden=8")
    assert cli("train", "--graph", "shop", "--out", "typed", *small, "--json").values["test"].keys() >= {"accuracy"}
    edge = f'"{name(0)}",likes,"{name(1)}"'
    assert (
        "no relation 'hates', there are 'buys', 'likes'"
        in cli("delete", "typed", "--edge", edge.replace("likes", "hates")).sentence
    )
    assert "source,relation,target" in cli("delete", "typed", "--edge", f'"{name(0)}","{name(1)}"').sentence
    done = cli("delete", "typed", "--edge", edge, "--method", "unlink", "--json")
    assert (done.code, done.values["request"]) == (0, {"edges": 1})
    again = ("delete", "typed", "--relation", "likes", "--method", "unlink")
    assert cli(*again).code == 0
    assert "already deleted by an earlier request: relation 'likes';" in cli(*again).sentence


def test_a_graph_without_features(cli: Cli, tables: Path, tmp_path: Path) -> None:
    refused = cli("train", "--graph", tables / "edges.csv", "--out", "run")
    assert refused.code == 2
    assert "no node features, and the model 'gcn' computes from them; add columns of numbers" in refused.sentence
    (tmp_path / "own.py").write_text(
        "import torch\nfrom torch_geometric.nn import GCNConv\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, num_nodes, width=4):\n"
        "        super().__init__()\n"
        "        self.start, self.conv = torch.nn.Embedding(num_nodes, width), GCNConv(width, width)\n"
        "    def forward(self, edge_index):\n"
        "        return self.conv(self.start.weight, edge_index)\n"
    )
    own = ("--model", "own.py:Net", "--epochs", 2, "--out", "run")
    assert cli("train", "--graph", tables / "edges.csv", "--undirected", *own).code == 0
    assert "num_nodes" not in (tmp_path / "run/base/settings.yaml").read_text()
    done = cli("delete", "run", "--random", 2, "--json")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("graph", "arguments", "said"),
    [
        ("graph.pt", ("--undirected",), "is no table"),
        ("nowhere", (), "there is no graph at"),
        ("empty", (), "neither graph.json nor edges.csv"),
        (
            "other.csv",
            (),
            "has no column 'source' (its columns: 'from', 'to'); name it by source (--set data.source=",
        ),
        ("other.csv", ("--set", "data.source=from", "--set", "data.target=to"), "no node features"),
        ("other.csv", ("--set", "data.sorce=from"), "did you mean 'data.source'?"),
        ("broken", (), "2 lines of"),
        ("broken", ("--set", "data.undirected=yes please"), "'data.undirected'"),
    ],
)
def test_graphs_that_cannot_be_read(
    cli: Cli, tmp_path: Path, graph_file: Path, graph: str, arguments: tuple[str, ...], said: str
) -> None:
    shutil.copy(graph_file, tmp_path / "graph.pt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.csv").write_text("from,to\na,b\nb,c\n")
    broken = write_tables(tmp_path / "broken")
    with (broken / "edges.csv").open("a") as file:
        file.write("user:4001\n\nuser:4001,user:4003,user:4005\n")
    before = contents(tmp_path)
    refused = cli("train", "--graph", graph, *arguments, "--out", "run")
    assert refused.code == 2, refused.err
    assert said in refused.sentence
    assert contents(tmp_path) == before


def test_table_options_need_tables(cli: Cli) -> None:
    said = cli("train", "--dataset", "digits", "--undirected", "--out", "run").sentence
    assert "'data.undirected' says how tables are read, and --graph names none" in said


def test_a_run_that_moved_finds_its_graph(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tables(tmp_path / "project/shop")
    train = ("train", "--graph", "project/shop", "--undirected", "--out", "project/runs/a", *SMALL, *SPLIT)
    assert cli(*train).code == 0
    assert cli("delete", "project/runs/a", "--node", name(3), "--lam", 0.2).code == 0
    assert cli("audit", "project/runs/a", "--no-reference", "--no-attacks").code == 0
    assert not [
        path for path, content in contents(tmp_path / "project/runs").items() if str(tmp_path).encode() in content
    ]
    moves = ("project", "moved"), ("moved/runs/a", "moved/older/runs/of/a"), ("moved/older", "older")
    for number, (before, after) in enumerate(moves):
        (tmp_path / after).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / before).rename(tmp_path / after)
        monkeypatch.chdir(tmp_path / "moved")
        (folder,) = (path.parent.parent for path in tmp_path.rglob("base/model.safetensors"))
        assert cli("delete", folder, "--node", name(5 + number), "--lam", 0.2).code == 0
        assert cli("verify", folder).code == 0
    monkeypatch.chdir("/")
    refused = cli("delete", folder, "--node", name(9))
    assert (refused.code, "say where it is: --set data.graph=PATH" in refused.sentence) == (2, True)
    assert cli("delete", folder, "--node", name(9), "--set", f"data.graph={tmp_path / 'moved/shop'}").code == 0
    settings = folder / "versions/0004/settings.yaml"
    assert cli("train", "-c", settings, "--out", tmp_path / "again", *SMALL).code == 0
