"""Experiment files: the shipped ones are sound, and a mistake in a file is one sentence that says what to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gnndelete.bench.cells import ADDED_SETTINGS, cells, make_method, search_version
from gnndelete.bench.experiment import Experiment, find, load_dataset, names, read, with_digest
from gnndelete.cli import run as command
from gnndelete.datasets import load_graph, save_graph
from gnndelete.datasets.registry import ENTRIES
from gnndelete.errors import GraphError, SettingError

from .conftest import Write, lines

SHIPPED = find([])


@pytest.mark.parametrize("experiment", SHIPPED, ids=lambda experiment: experiment.name)
def test_a_shipped_experiment_is_sound(experiment: Experiment) -> None:
    found = cells(experiment, seeds=1)
    assert found
    assert len({cell.digest for cell in found}) == len(found)
    assert all(dataset.partition("?")[0] in ENTRIES for dataset in experiment.datasets)
    for cell in found:
        assert json.loads(json.dumps(cell.key)) == cell.key
        method = make_method(cell.key["method"])
        first = ADDED_SETTINGS.get(method.name, {})  # what settings that came later were before stands in no key
        settings = {name: value for name, value in method.settings().items() if first.get(name, ...) != value}
        written = {"name": method.name, **settings}
        with_vectors = ("rgcn", "rgat", "embeddinggcn", "lightgcn")
        rule = search_version(method, experiment.task, embeddings=cell.key["model"]["name"] in with_vectors)
        assert cell.key["method"] == ({**written, "rule": rule} if rule > 1 else written)


def test_the_paper_and_more_are_there() -> None:
    tables = {experiment.published for experiment in SHIPPED} - {None}
    assert tables == {
        "link_prediction", "mi", "lambda", "placement", "downstream", "node_deletion", "node_deletion_links",
        "feature_deletion", "feature_deletion_links", "sequential", "jodie", "outliers", "parameters", "time",
    }  # fmt: skip
    assert {f"beyond/{name}" for name in ("calibrated", "rings", "gap", "attacks", "scale")} <= set(names())


def test_groups_and_single_names() -> None:
    assert [found.name for found in find(["beyond"])] == [name for name in names() if name.startswith("beyond/")]
    assert len(find(["paper/time", "paper"])) == len(find(["paper"]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metods": []}, "'metods'; did you mean 'methods'"),
        ({"train": {"epoch": 3}}, "'train.epoch'; did you mean 'train.epochs'"),
        ({"train": {"epochs": 0}}, "'train.epochs'"),
        ({"train": {"lr": "fast"}}, "got 'fast'"),
        ({"forget": {"amont": 3}}, "'forget.amont'; did you mean 'forget.amount'"),
        (
            {"forget": {"amount": 1.5}},
            "'forget.amount': write a share above 0 and up to 1.0, or a whole number of at least 1 (got 1.5)",
        ),
        ({"forget": {"amount": [2.5]}}, "at least 1 (got 2.5)"),
        ({"forget": {"amount": True}}, "(got True)"),
        ({"forget": {"kind": "nodes", "where": "in", "amount": 3}}, "nodes are drawn at random"),
        ({"split": {"train": 0.5}}, "'split.train' is what the other parts leave"),
        ({"methods": ["unlink", "unlink"]}, "'methods': the name 'unlink' is taken; give the method another label"),
        ({"methods": ["unlnk"]}, "'unlnk'; did you mean 'unlink'"),
        ({"methods": [{"name": "gnndelete", "lamb": 0.1}]}, "'methods.lamb'; did you mean 'methods.lam'"),
        ({"methods": [{"name": "gnndelete", "lam": "much"}]}, "'methods.lam'"),
        (
            {"methods": [{"name": "gnndelete", "layers": "lst"}]},
            "'layers' must be 'all', 'last' or a list of names of modules, such as ['convs.1'] (got 'lst')",
        ),
        (
            {"methods": [{"label": "mine", "name": "gnndelete", "layers": ["convs.1", "conv9"]}]},
            "'layers' of method 'mine': the model 'gcn' has no module 'conv9'; take all, last or names among convs.0, convs.1",
        ),
        ({"methods": [{"name": "gnndelete", "preset": "papr"}]}, "no preset 'papr'"),
        ({"models": ["rgcnn"]}, "'rgcnn'; did you mean 'rgcn'"),
        ({"models": [{"name": "gcn", "hiden": 4}]}, "did you mean 'models.hidden'"),
        ({"models": [{"name": "gcn", "hidden": "abc"}]}, "'models.hidden' should be a whole number (got 'abc')"),
        ({"models": ["gcn", {"name": "gat", "dropout": "x"}]}, "'models.dropout' should be a number (got 'x')"),
        (
            {"models": [{"name": "gcn", "hidden": -3}]},
            "'models': no 'gcn' with hidden -3 can be made: 'hidden' must be a whole number of at least 1 (got -3)",
        ),
        ({"models": [{"name": "gcn", "dropout": 2}]}, "'dropout' must be a number from 0 to below 1 (got 2)"),
        (
            {"models": [{"name": "gps", "heads": 3}]},
            "'models': no 'gps' with heads 3 can be made: 'hidden' must be a multiple of 'heads'",
        ),
        (
            {"task": "graph", "datasets": ["mutag"], "models": [{"name": "gin", "hidden": "abc"}]},
            "'models.hidden' should be a whole number (got 'abc')",
        ),
        (
            {"task": "graph", "datasets": ["mutag"], "models": [{"name": "gin", "pool": "maxx"}]},
            "'models': no 'gin' with pool maxx can be made: 'pool' must be 'mean' or 'add' (got 'maxx')",
        ),
        ({"split": {"val": 0.5, "test": 0.5}}, "val 0.5 and test 0.5 leave nothing for 'train'"),
        (
            {"methods": ["retrain", {"name": "unlink", "only": {"models": ["gat"]}}]},
            "'only.models' of method 'unlink' names 'gat', which the experiment does not have; it has gcn",
        ),
        (
            {
                "forget": [{"where": "in", "amount": 3}, {"where": "out", "amount": 4}],
                "methods": [{"name": "unlink", "only": {"where": ["in"], "amount": [4]}}],
            },
            "'only' of method 'unlink' leaves it no cell",
        ),
        ({"missing": {"dblp": "far away"}}, "'dblp', which is none of the datasets"),
        (
            {"measures": ["scores", "beauty"]},
            "'measures' should be 'scores', 'unseen', 'mi', 'outliers' or 'time' (got 'beauty')",
        ),
        ({"measures": ["score"]}, "'measures' should be 'scores', 'unseen', 'mi', 'outliers' or 'time' (got 'score')"),
        ({"task": "links"}, "'task' should be 'link', 'node' or 'graph' (got 'links')"),
        ({"task": 3}, "'task' should be 'link', 'node' or 'graph' (got 3)"),
        (
            {"forget": {"where": "inn", "amount": 3}},
            "'forget.where' should be 'random', 'in', 'out', 'hubs', 'community' or 'anywhere' (got 'inn')",
        ),
        ({"forget": {"kind": "node", "amount": 3}}, "'forget.kind': there is no 'node'; did you mean 'nodes'?"),
        (
            {"forget": {"hops": "direct", "amount": 3}},
            "'forget.hops' should be 'undirected' or 'directed' (got 'direct')",
        ),
        (
            {"methods": [{"name": "unlink", "only": {"where": ["hub"]}}]},
            "'methods.only.where' should be 'random', 'in', 'out', 'hubs', 'community' or 'anywhere' (got 'hub')",
        ),
        ({"datasets": []}, "'datasets' is an empty list; name at least one"),
        ({"seeds": []}, "'seeds' is an empty list; name at least one"),
        ({"forget": {"amount": []}}, "'forget.amount' is an empty list; name at least one"),
        (
            {"seeds": [1, 2**32], "measures": ["mi"]},
            "'seeds' should be less than 4294967296 (got 4294967296)",
        ),
        (
            {"seeds": [2**40], "measures": ["scores", "outliers"]},
            "'seeds' should be less than 4294967296 (got 1099511627776)",
        ),
        ({"datasets": ["digit"]}, "no dataset is called 'digit'; did you mean 'digits'?"),
        ({"datasets": ["generated:collab?nods=100"]}, "has no parameter 'nods'; did you mean 'nodes'?"),
        ({"published": "link_predictions"}, "'link_predictions'; did you mean 'link_prediction'?"),
        ({"task": "graph", "datasets": ["digits"]}, "'digits' is one graph, and the task is 'graph'"),
        ({"datasets": ["mutag"]}, "'mutag' is many graphs, and the task is 'link'"),
        ({"task": "node", "datasets": ["wordnet18"]}, "'wordnet18' has no classes of nodes"),
        (
            {"task": "node", "forget": {"where": "in", "amount": 3}},
            "'forget.where': in and out are relative to test edges, and task 'node' has none; take random",
        ),
        ({"forget": {"kind": "graphs", "amount": 3}}, "'forget.kind': task 'link' has no graphs to delete"),
        (
            {"task": "graph", "datasets": ["mutag"], "forget": {"kind": "labels", "amount": 3}},
            "'forget.kind': task 'graph' has no labels to delete",
        ),
        ({"forget": {"kind": "relations", "amount": 1}}, "has no relations to delete"),
        (
            {"models": ["gcn", "rgcn"]},
            "'rgcn' is for typed edges, and those of 'generated:collab?nodes=300&edges=2400&features=8' have no types; take",
        ),
        (
            {"datasets": ["wordnet18"]},
            "'gcn' computes from features of nodes, and 'wordnet18' has none; take rgcn or rgat",
        ),
        (
            {"task": "graph", "datasets": ["mutag"], "models": ["rgat"]},
            "'rgat' is for typed edges, and those of 'mutag' have no types",
        ),
        (
            {"forget": {"amount": [5, 1200]}},
            "'forget.amount': 1,200 edges cannot be deleted: there are at most 1,080 edges to learn from in 'gene",
        ),
        (
            {"forget": {"amount": 1.0}},
            "'forget.amount': 100% of edges (1,080) cannot be deleted: there are at most 1,080 edges to learn fro",
        ),
        ({"seeds": [2**64]}, "'seeds"),
        (
            {"forget": {"kind": "nodes", "amount": 301}},
            "'forget.amount': 301 nodes cannot be deleted: there are at most 300 nodes to learn from in 'generate",
        ),
        (
            {"task": "node", "forget": {"kind": "labels", "amount": 290}},
            "'forget.amount': 290 labels cannot be deleted: there are at most 270 labels to learn from in 'genera",
        ),
        (
            {"task": "graph", "datasets": ["mutag"], "forget": {"kind": "graphs", "amount": 188}},
            "'forget.amount': 188 graphs cannot be deleted: there are at most 150 graphs to learn from in 'mutag'",
        ),
        (
            {"datasets": ["wordnet18"], "models": ["rgcn"], "forget": {"kind": "relations", "amount": 19}},
            "'forget.amount': 19 relations cannot be deleted: there are at most 18 relations to learn from in 'wo",
        ),
        ({"forget": {"amount": 3, "steps": 4}}, "'forget.steps': 3 edges cannot be deleted in 4 steps"),
        (
            {"forget": {"amount": 8, "steps": 4}, "measures": ["scores", "time"]},
            "'measures': time is that of one request, and 'forget.steps' is 4",
        ),
        (
            {"methods": [{"name": "unlink", "label": "original"}]},
            "'methods': the name 'original' is taken; give the method another label",
        ),
        (
            {"methods": [{"name": "gnndelete", "preset": "settings"}]},
            "method 'gnndelete' has no preset 'settings'; choose from paper",
        ),
        (
            {"methods": [{"name": "unlink", "preset": "paper"}]},
            "method 'unlink' has no preset 'paper'; choose from nothing: it has none",
        ),
    ],
)
def test_a_mistake_is_one_sentence(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        cells(read(str(write(**changes))))
    assert words in str(error.value)
    assert "the experiment '" in str(error.value)
    assert "\n" not in str(error.value)


def test_one_wrong_amount_is_one_complaint(write: Write) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(forget={"amount": [2.5]})))
    assert str(error.value).count("a share") == 1


def test_everything_that_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("")
    with pytest.raises(SettingError, match=r"it lacks 'title', 'task', 'datasets', 'models', 'forget', 'methods'$"):
        read(str(file))
    file.write_text("forget: {kind: nodes}")
    with pytest.raises(SettingError, match=r"it lacks 'title', .*'forget\.amount'"):
        read(str(file))
    file.write_text("- title: a list\n")
    with pytest.raises(SettingError, match="holds a 'list'; it must hold settings such as title:, task:, datasets:"):
        read(str(file))


def test_an_experiment_that_is_not_there() -> None:
    with pytest.raises(SettingError, match="'papr'; did you mean 'paper'"):
        read("papr")
    with pytest.raises(SettingError, match="'paper/link-dlbp'; did you mean 'paper/link-dblp'"):
        read("paper/link-dlbp")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": [3]}, "'models' should be a dictionary or instance of Named (got 3)"),
        ({"models": None}, "'models' should be a dictionary or instance of Named (got None)"),
        (
            {"methods": [["unlink"]]},
            "'methods' should be a dictionary or instance of MethodSpec (got ['unlink'])",
        ),
        ({"methods": [{"name": 3}]}, "'methods.name' should be a text (got 3)"),
        ({"train": 3}, "'train' should be a dictionary or instance of Schedule (got 3)"),
        ({"forget": [0.05]}, "'forget' should be a dictionary or instance of Forget (got 0.05)"),
        ({"missing": 3}, "'missing' should be a dictionary (got 3)"),
        ({"datasets": "digits"}, "'datasets' should be a list (got 'digits')"),
        ({"seeds": 5}, "'seeds' should be a list (got 5)"),
        (
            {"methods": [{"name": "unlink", "only": {"models": "gcn"}}]},
            "'methods.only.models' should be a list (got 'gcn')",
        ),
        (
            {"methods": [{"name": "unlink", "only": {"datasets": "digits"}}]},
            "'methods.only.datasets' should be a list (got 'digits')",
        ),
        ({"forget": {"amount": 3, "hops": -1}}, "'forget.hops' should be 'undirected' or 'directed' (got -1)"),
        (
            {"models": [{"hidden": 3}]},
            "it lacks 'models.name'",
        ),
        (
            {"forget": {"kind": "nodes", "where": "in", "amount": 3}},
            ": 'forget.where' is for edges, and nodes are drawn",
        ),
    ],
)
def test_how_a_setting_is_written(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(**changes)))
    assert words in str(error.value)


def test_what_is_missing_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("{title: T, task: link, datasets: [digits], models: [gcn], methods: [unlink]}")
    with pytest.raises(SettingError, match=r"it lacks 'forget'$"):
        read(str(file))
    file.write_text("{title: T, task: link, datasets: [digits], modles: [gcn], forget: {amount: 3}, methods: [unlink]}")
    with pytest.raises(SettingError, match=r": there is no setting 'modles'; did you mean 'models'\?$"):
        read(str(file))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train": {"epochs": "twenty"}}, "'train.epochs' should be a whole number (got 'twenty')"),
        (
            {"train": {"epochs": 10**20}},
            "'train.epochs' should be less than or equal to 1000000000 (got 100000000000000000000)",
        ),
        ({"train": {"lr": float("inf")}}, "'train.lr' should be a finite number (got inf)"),
        (
            {"train": {"lr": 10**400}},
            "'train.lr' should be a number (got 10000000000000000000000000000000000000000000000000000000000000000",
        ),
        ({"train": {"lr": True}}, "'train.lr' should be a number (got True)"),
        ({"train": {"weight_decay": float("inf")}}, "'train.weight_decay' should be a finite number (got inf)"),
        (
            {"train": {"batch_size": 10**20}},
            "'train.batch_size' should be less than or equal to 1000000000 (got 100000000000000000000)",
        ),
        ({"seeds": [1.5]}, "'seeds' should be a whole number (got 1.5)"),
        ({"split": {"val": "a"}}, "'split.val' should be a number (got 'a')"),
        ({"summary": "maybe"}, "'summary' should be true or false (got 'maybe')"),
        ({"title": 7}, "'title' should be a text (got 7)"),
        ({"methods": [{"name": "unlink", "label": 5}]}, "'methods.label' should be a text (got 5)"),
    ],
)
def test_what_to_write_instead(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(**changes)))
    assert words in str(error.value)
    assert "input should" not in str(error.value)


@pytest.mark.parametrize("label", ["", " , ", "a,b", "a,", " a"])
def test_a_label_that_could_not_be_named(write: Write, label: str) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(methods=[{"name": "unlink", "label": label}])))
    assert f"without spaces around it, for tables and --only (got {label!r})" in str(error.value)


def test_what_is_allowed_stays_as_it_is(write: Write) -> None:
    schedule = {"epochs": 10**7, "lr": 1, "weight_decay": 0, "patience": None, "batch_size": 512}
    experiment = read(str(write(train=schedule, methods=[{"name": "unlink", "label": "lam 0.5 all"}])))
    (cell, _) = cells(experiment)
    assert cell.label == "lam 0.5 all"
    assert cell.key["train"] == {**schedule, "validate_every": 10}
    assert type(cell.key["train"]["lr"]) is float


COLLAB = "generated:collab?nodes=300&edges=2400"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"seeds": [1, 2, 1]},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {"forget": {"where": ["random", "random"], "amount": 3}},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {"forget": {"amount": [0.05, 0.1, 0.05]}},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {"forget": [{"amount": 3}, {"amount": [4, 3], "hops": "directed"}]},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {"datasets": ["digits", "digits"]},
            "two entries are the same, defaults filled in: 'digits gcn (hidden 8, out 4) 5% of edges seed 1: retr",
        ),
        (
            {"models": ["gcn", {"name": "gcn"}]},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {"models": ["gcn", {"name": "gcn", "hidden": 128}]},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {"methods": ["unlink", {"name": "unlink", "label": "u2"}]},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {"methods": ["retrain", {"name": "retrain", "label": "longer", "epochs": 10}]},
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
        (
            {
                "forget": {"amount": [3, 4]},
                "methods": ["unlink", {"name": "unlink", "label": "few", "only": {"amount": [3]}}],
            },
            "two entries are the same, defaults filled in: 'generated:collab?nodes=300&edges=2400&features=8 gcn ",
        ),
    ],
)
def test_the_same_under_two_names(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        cells(read(str(write(**changes))))
    assert words in str(error.value)
    assert "the experiment '" in str(error.value)


def test_methods_for_cells_of_their_own_may_repeat(write: Write) -> None:
    methods = [{"name": "unlink", "label": f"on {name}", "only": {"models": [name]}} for name in ("gcn", "gat")]
    found = cells(read(str(write(models=["gcn", "gat"], methods=methods))), seeds=1)
    assert [cell.label for cell in found] == ["on gcn", "on gat"]


def test_what_differs_may_be_there_twice(write: Write) -> None:
    models = ["gcn", {"name": "gcn", "hidden": 64}]
    assert len(cells(read(str(write(models=models, methods=["unlink"]))), seeds=1)) == 2
    forget = {"kind": "features", "amount": [1, 1.0]}  # one node, and all of them
    assert len(cells(read(str(write(forget=forget, methods=["unlink"]))), seeds=1)) == 2
    parts = [{"amount": 4}, {"amount": 4, "steps": 2}]
    assert len(cells(read(str(write(forget=parts, methods=["unlink"]))), seeds=1)) == 2


def test_a_setting_that_is_given_twice_is_refused(write: Write) -> None:
    file = write()
    file.write_text(f"{file.read_text()}seeds: [5]\n")
    with pytest.raises(SettingError, match=r"'seeds' is given twice, in lines \d+ and \d+"):
        read(str(file))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"forget": {"kind": "labels", "amount": 3}},
            "'forget.kind': task 'link' has no labels to delete; take another kind",
        ),
        (
            {"datasets": ["wordnet18"], "models": ["rgcn"], "forget": {"kind": "features", "amount": 3}},
            "'forget.kind': 'wordnet18' has no features of nodes to delete; take another kind",
        ),
        (
            {"datasets": ["digits"], "split": {"given": True}},
            "'split.given': 'digits' came without a split for task 'link'; leave 'given' out, or take a dataset that has one "
            "(ogbl-collab, ogbl-biokg, wordnet18, wordnet18rr)",
        ),
        (
            {"datasets": ["planetoid-cora"], "split": {"given": True}},
            "'planetoid-cora' came without a split for task 'link'",
        ),
        (
            {"task": "graph", "datasets": ["mutag"], "split": {"given": True}},
            "'mutag' came without a split for task 'graph'; leave 'given' out, or take a dataset that has one (ogbg-molhiv)",
        ),
        (
            {"datasets": ["wordnet18"], "models": ["rgcn"], "split": {"given": True, "val": 0.1}},
            "'split.val' cannot be set for a split that is given; leave one out",
        ),
        ({"datasets": ["generated:collab?nodes=0"]}, "'generated:collab?nodes=0': 'nodes' must be at least 1 (got 0)"),
    ],
)
def test_what_there_is_nothing_for(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        cells(read(str(write(**changes))))
    assert words in str(error.value)
    assert "the experiment '" in str(error.value)


@pytest.mark.parametrize(
    ("task", "dataset", "model"),
    [("node", "planetoid-cora", "gcn"), ("link", "wordnet18", "rgcn"), ("graph", "ogbg-molhiv", "gin")],
)
def test_splits_that_came_with_a_dataset(write: Write, task: str, dataset: str, model: str) -> None:
    experiment = read(str(write(task=task, datasets=[dataset], models=[model], split={"given": True})))
    assert all(cell.key["split"] == {"given": True} for cell in cells(experiment))


# Graphs of one's own: by a path, with a digest of what lies there in every key.

NODES = 40


def tables(folder: Path, feature: int = 1) -> str:
    """A ring with chords, both ways, features and two classes, as tables."""
    folder.mkdir(exist_ok=True)
    ends = [(i, (i + step) % NODES) for i in range(NODES) for step in (1, 2, 5)]
    both = [*ends, *((b, a) for a, b in ends)]
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"n{a},n{b}\n" for a, b in both))
    nodes = "".join(f"n{i},{i % 7},{i % 3 * feature},{'ab'[i % 2]}\n" for i in range(NODES))
    (folder / "nodes.csv").write_text(f"id,p,q,label\n{nodes}")
    return str(folder)


def saved(folder: Path) -> str:
    graph = load_graph(tables(folder / "tables"))
    save_graph(graph, folder / "kept")
    return str(folder / "kept")


def pickled(folder: Path) -> str:
    torch.save(Data(**load_graph(tables(folder / "tables")).data.to_dict()), folder / "graph.pt")
    return str(folder / "graph.pt")


@pytest.mark.parametrize("make", [tables, saved, pickled])
def test_a_path_stands_for_the_graph_that_lies_there(make: Any, write: Write, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    path = make(tmp_path / "mine")
    for task in ("link", "node"):
        (dataset,) = {cell.key["dataset"] for cell in cells(read(str(write(datasets=[path], task=task))))}
        assert dataset == with_digest(path)
        assert dataset.startswith(f"{path}@")
        assert load_dataset(dataset).edge_index.size(1) == 6 * NODES


def test_changed_tables_are_other_cells_and_files_beside_them_are_not(write: Write, tmp_path: Path) -> None:
    path = tables(tmp_path / "mine")
    experiment = str(write(datasets=[path]))
    before = [cell.digest for cell in cells(read(experiment))]
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert [cell.digest for cell in cells(read(experiment))] == before
    dataset = with_digest(path)
    tables(tmp_path / "mine", feature=2)
    assert not {cell.digest for cell in cells(read(experiment))} & set(before)
    with pytest.raises(GraphError, match=r"mine' has changed since the experiment was read; start again"):
        load_dataset(dataset)


def test_what_is_not_there_or_does_not_fit_is_refused_when_the_file_is_read(write: Write, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"'datasets': there is no graph at '.*/nowhere'; check the path"):
        read(str(write(datasets=[f"{tmp_path}/nowhere"])))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingError, match=r"holds neither graph\.json nor edges\.csv"):
        read(str(write(datasets=[f"{tmp_path}/empty"])))
    path = tables(tmp_path / "mine")
    for changes, words in (
        ({"models": ["rgcn"]}, "those of .* have no types"),
        ({"forget": {"kind": "relations", "amount": 1}}, "has no relations to delete"),
        ({"forget": {"amount": 121}}, "121 edges cannot be deleted"),
        ({"task": "graph"}, "is one graph, and the task is 'graph'"),
    ):
        with pytest.raises(SettingError, match=words):
            cells(read(str(write(datasets=[path], **changes))))


def test_tables_of_ones_own_are_run_chosen_and_reported(
    write: Write, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    tables(tmp_path / "pay_ments")
    monkeypatch.chdir(tmp_path)
    methods = ["unlink", {"name": "gradascent", "only": {"datasets": ["./pay_ments"]}}]
    file = str(write(datasets=["./pay_ments"], methods=methods, seeds=[1]))
    assert command(["bench", "run", file, "--store", str(store), "--dataset", "./pay_ments", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 2
    assert {line["key"]["dataset"] for line in lines(store)} == {with_digest("./pay_ments")}
    assert command(["bench", "report", file, "--store", str(store), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report/own/small.md").read_text()
    assert r"## pay\_ments: 5% of edges, at random" in page
    assert "@" not in page
