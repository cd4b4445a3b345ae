"""Experiment files: the shipped ones are sound, and a mistake in a file is one sentence that says what to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnndelete.bench.cells import ADDED_SETTINGS, cells, make_method
from gnndelete.bench.experiment import Experiment, find, names, read
from gnndelete.bench.search_rules import search_version
from gnndelete.datasets.registry import ENTRIES
from gnndelete.errors import SettingError

from .conftest import Write

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
        rule = search_version(method, experiment.task, embeddings=cell.key["model"]["name"] in ("rgcn", "rgat"))
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
            "'forget.amount': write a share above 0 and up to 1.0, such as 0.05, or a whole number",
        ),
        ({"forget": {"amount": [2.5]}}, "at least 1 (got 2.5)"),
        ({"forget": {"amount": True}}, "(got True)"),
        ({"forget": {"kind": "nodes", "where": "in", "amount": 3}}, "nodes are drawn at random"),
        ({"split": {"train": 0.5}}, "'split.train' is what the other parts leave"),
        ({"methods": ["unlink", "unlink"]}, "two methods are called 'unlink'"),
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
            "no 'gin' with pool 'maxx' can be made: 'pool' must be 'mean' or 'add'",
        ),
        ({"title": " "}, "'title': write what the experiment is"),
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
            "'measures': there is no 'beauty'; choose from scores, unseen, mi, outliers, time",
        ),
        ({"measures": ["score"]}, "'measures': there is no 'score'; did you mean 'scores'?"),
        ({"task": "links"}, "'task': there is no 'links'; did you mean 'link'?"),
        ({"task": 3}, "'task': write one of link, node, graph (got 3)"),
        ({"forget": {"where": "inn", "amount": 3}}, "'forget.where': there is no 'inn'; did you mean 'in'?"),
        ({"forget": {"kind": "node", "amount": 3}}, "'forget.kind': there is no 'node'; did you mean 'nodes'?"),
        ({"forget": {"hops": "direct", "amount": 3}}, "'forget.hops': there is no 'direct'; did you mean 'directed'?"),
        (
            {"methods": [{"name": "unlink", "only": {"where": ["hub"]}}]},
            "'methods.only.where': there is no 'hub'; did you mean",
        ),
        ({"datasets": []}, "'datasets' is an empty list; name at least one"),
        ({"seeds": []}, "'seeds' is an empty list; name at least one"),
        ({"forget": {"amount": []}}, "'forget.amount' is an empty list; name at least one"),
        (
            {"seeds": [1, 2**32], "measures": ["mi"]},
            "'seeds': 4294967296 is too large for the measure 'mi', whose seeds go",
        ),
        ({"seeds": [2**40], "measures": ["scores", "outliers"]}, "is too large for the measure 'outliers'"),
        ({"datasets": ["digit"]}, "no dataset is called 'digit'; did you mean 'digits'?"),
        ({"datasets": ["generated:collab?nods=100"]}, "has no parameter 'nods'; did you mean 'nodes'?"),
        ({"published": "link_predictions"}, "'link_predictions'; did you mean 'link_prediction'?"),
        ({"task": "graph", "datasets": ["digits"]}, "'digits' is one graph, and the task is 'graph'"),
        ({"datasets": ["mutag"]}, "'mutag' is many graphs, and the task is 'link'"),
        ({"task": "node", "datasets": ["wordnet18"]}, "'wordnet18' has no classes of nodes"),
        (
            {"task": "node", "forget": {"where": "in", "amount": 3}},
            "in is relative to test edges, and task 'node' has none",
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
        ({"forget": {"amount": [5, 1200]}}, "'forget.amount': 1,200 edges are more than there are to learn from"),
        ({"forget": {"amount": 1.0}}, "'forget.amount': 1.0 is all there is to learn from"),
        ({"seeds": [2**64]}, "'seeds"),
        ({"forget": {"kind": "nodes", "amount": 301}}, "301 nodes are more than there are to learn from"),
        (
            {"task": "node", "forget": {"kind": "labels", "amount": 290}},
            "'generated:collab?nodes=300&edges=2400&features=8' (at most 270); ask for fewer, or for a share",
        ),
        ({"task": "graph", "datasets": ["mutag"], "forget": {"kind": "graphs", "amount": 188}}, "188 graphs are more"),
        (
            {"datasets": ["wordnet18"], "models": ["rgcn"], "forget": {"kind": "relations", "amount": 19}},
            "19 relations are more than there are to learn from in 'wordnet18' (at most 18)",
        ),
        ({"forget": {"amount": 3, "steps": 4}}, "'forget.steps': 3 edges cannot be deleted in 4 steps"),
        (
            {"forget": {"amount": 8, "steps": 4}, "measures": ["scores", "time"]},
            "'measures': time is that of one request, and 'forget.steps' is 4",
        ),
        (
            {"methods": [{"name": "unlink", "label": "original"}]},
            "a method is called 'original', which is the name of the model before the deletion",
        ),
        ({"methods": [{"name": "unlink", "label": "_mine"}]}, "a method is called '_mine', and figures leave such"),
        (
            {"methods": [{"name": "gnndelete", "preset": "settings"}]},
            "method 'gnndelete' has no preset 'settings'; choose from paper",
        ),
        (
            {"methods": [{"name": "unlink", "preset": "paper"}]},
            "method 'unlink' has no presets; leave 'preset' out (got 'paper')",
        ),
    ],
)
def test_a_mistake_is_one_sentence(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        cells(read(str(write(**changes))))
    assert words in str(error.value)
    assert "the experiment '" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_largest_seed_of_numpy_is_that_of_the_measures(write: Write) -> None:
    np.random.RandomState(2**32 - 1)
    with pytest.raises(ValueError, match="Seed must be between"):
        np.random.RandomState(2**32)
    assert cells(read(str(write(seeds=[2**32 - 1], measures=["mi", "outliers"]))))
    assert cells(read(str(write(seeds=[2**32], measures=["scores", "unseen"]))))


def test_one_wrong_amount_is_one_complaint(write: Write) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(forget={"amount": [2.5]})))
    assert str(error.value).count("a share") == 1
    assert ";" not in str(error.value)


def test_everything_that_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("")
    with pytest.raises(
        SettingError, match=r"it lacks 'title', 'task', 'datasets', 'models', 'forget', 'methods'; write"
    ):
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
        ({"models": [3]}, "'models': write, for example, [gcn, {name: gin, hidden: 64}] (got 3)"),
        ({"models": None}, "'models': write, for example, [gcn, {name: gin, hidden: 64}] (got None)"),
        (
            {"methods": [["unlink"]]},
            "'methods': write, for example, [retrain, {name: gnndelete, label: mine}] (got ['unlink'])",
        ),
        ({"methods": [{"name": 3}]}, "'methods.name': write a name (got 3)"),
        ({"train": 3}, "'train': write, for example, {epochs: 1000, lr: 0.001} (got 3)"),
        ({"forget": [0.05]}, "'forget': write, for example, {amount: 0.05} (got 0.05)"),
        ({"missing": 3}, "'missing': write, for example, {cora: it has to be downloaded} (got 3)"),
        ({"datasets": "digits"}, "'datasets': write, for example, [digits] (got 'digits')"),
        ({"seeds": 5}, "'seeds': write, for example, [42, 21] (got 5)"),
        (
            {"methods": [{"name": "unlink", "only": {"models": "gcn"}}]},
            "'methods.only.models': write, for example, [gcn] (got 'gcn')",
        ),
        (
            {"methods": [{"name": "unlink", "only": {"datasets": "digits"}}]},
            "'methods.only.datasets': write, for example, [digits] (got 'digits')",
        ),
        ({"forget": {"amount": 3, "hops": -1}}, "'forget.hops': write one of undirected, directed (got -1)"),
        ({"train": {5: 3}}, "'train': write, for example, {epochs: 1000, lr: 0.001} (got 5)"),
        (
            {"models": [{"hidden": 3}]},
            "it lacks 'models.name'; write, for example, models: [gcn, {name: gin, hidden: 64}]",
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
    with pytest.raises(SettingError, match=r"it lacks 'forget'; write, for example, forget: \{amount: 0.05\}$"):
        read(str(file))
    file.write_text("{title: T, task: link, datasets: [digits], modles: [gcn], forget: {amount: 3}, methods: [unlink]}")
    with pytest.raises(SettingError, match=r": there is no setting 'modles'; did you mean 'models'\?$"):
        read(str(file))


def test_what_is_shown_can_be_read(tmp_path: Path) -> None:
    """The examples of an empty file, each in a line of its own, are an experiment."""
    file = tmp_path / "mine.yaml"
    file.write_text("")
    with pytest.raises(SettingError) as error:
        read(str(file))
    examples = str(error.value).partition("write, for example, ")[2]
    for name in ("task", "datasets", "models", "forget", "methods"):
        examples = examples.replace(f", {name}: ", f"\n{name}: ")
    file.write_text(examples)
    assert read(str(file)).datasets == ["digits"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train": {"epochs": "twenty"}}, "'train.epochs': write a whole number from 1 to 10,000,000 (got 'twenty')"),
        ({"train": {"epochs": 10**20}}, "from 1 to 10,000,000 (got 100000000000000000000)"),
        ({"train": {"lr": float("inf")}}, "'train.lr': write a number above 0, such as 0.001 (got inf)"),
        ({"train": {"lr": 10**400}}, "'train.lr': write a number above 0, such as 0.001 (got 1000"),
        ({"train": {"lr": True}}, "'train.lr': write a number above 0, such as 0.001 (got True)"),
        ({"train": {"weight_decay": float("inf")}}, "'train.weight_decay': write a number from 0 on, such as 0.0005"),
        ({"train": {"batch_size": 10**20}}, "'train.batch_size': write a whole number from 1 to 1,000,000,000"),
        ({"seeds": [1.5]}, "'seeds': write a whole number from 0 to 9,223,372,036,854,775,807 (got 1.5)"),
        ({"split": {"val": "a"}}, "'split.val': write a share above 0 and below 1, such as 0.05 (got 'a')"),
        ({"summary": "maybe"}, "'summary': write true or false (got 'maybe')"),
        ({"title": 7}, "'title': write text, in quotes where YAML reads something else (got 7)"),
        ({"methods": [{"name": "unlink", "label": 5}]}, "'methods.label': write text, in quotes"),
        ({"methods": [{"name": "retrain", "epochs": 0}]}, "'epochs' of method 'retrain': write a whole number from 1"),
        (
            {"methods": [{"name": "retrain", "label": "hot", "lr": float("inf")}]},
            "'lr' of method 'hot': write a number above 0, such as 0.001 (got inf)",
        ),
    ],
)
def test_what_to_write_instead(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(**changes)))
    assert words in str(error.value)
    assert "input should" not in str(error.value)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("", "write what tables are to call the method (got '')"),
        (" , ", "write what tables are to call the method (got ' , ')"),
        ("a,b", "write 'a, b', with single spaces, so that --only can name it (got 'a,b')"),
        ("a ,  b", "write 'a, b'"),
        ("a,", "write 'a'"),
        (" a", "write 'a'"),
        ("a\nb", "write 'a b'"),
    ],
)
def test_a_label_that_could_not_be_named(write: Write, label: str, words: str) -> None:
    with pytest.raises(SettingError) as error:
        read(str(write(methods=[{"name": "unlink", "label": label}])))
    assert f"'methods.label': {words}" in str(error.value)


def test_what_is_allowed_stays_as_it_is(write: Write) -> None:
    schedule = {"epochs": 10**7, "lr": 1, "weight_decay": 0, "patience": None, "batch_size": 512}
    experiment = read(str(write(train=schedule, methods=[{"name": "unlink", "label": "lam 0.5, all"}])))
    (cell, _) = cells(experiment)
    assert cell.label == "lam 0.5, all"
    assert cell.key["train"] == {**schedule, "validate_every": 10}
    assert type(cell.key["train"]["lr"]) is float


COLLAB = "generated:collab?nodes=300&edges=2400"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": [1, 2, 1]}, "'seeds': 1 is there twice; leave one of them out"),
        ({"measures": ["scores", "scores"]}, "'measures': 'scores' is there twice"),
        ({"forget": {"where": ["random", "random"], "amount": 3}}, "'forget.where': 'random' is there twice"),
        ({"forget": {"amount": [0.05, 0.1, 0.05]}}, "'forget.amount': 0.05 is there twice"),
        (
            {"forget": [{"amount": 3}, {"amount": [4, 3], "hops": "directed"}]},
            "'forget': 3 edges (random) is there twice",
        ),
        (
            {"methods": [{"name": "unlink", "only": {"models": ["gcn", "gcn"]}}]},
            "'methods.only.models': 'gcn' is there twice",
        ),
        ({"datasets": ["digits", "digits"]}, "'datasets': 'digits' is there twice"),
        ({"datasets": ["digits", "Digits"]}, "'datasets': 'digits' and 'Digits' are the same"),
        (
            {"datasets": [COLLAB, "generated:collab?edges=2400&nodes=300&seed=0"]},
            f"'{COLLAB}' and 'generated:collab?edges=2400&nodes=300&seed=0' are the same",
        ),
        ({"models": ["gcn", {"name": "gcn"}]}, "'models': gcn is there twice"),
        (
            {"models": ["gcn", {"name": "gcn", "hidden": 128}]},
            "'models': gcn and {name: gcn, hidden: 128} are the same",
        ),
        ({"models": ["gcn", {"name": "gcn", "dropout": 0}]}, "'models': gcn and {name: gcn, dropout: 0} are the same"),
        (
            {"methods": ["unlink", {"name": "unlink", "label": "u2"}]},
            "methods 'unlink' and 'u2' have the same settings, defaults filled in; leave one of them out, or give each different",
        ),
        (
            {"methods": ["retrain", {"name": "retrain", "label": "longer", "epochs": 10}]},
            "methods 'retrain' and 'longer' have the same settings",
        ),
        (
            {
                "forget": {"amount": [3, 4]},
                "methods": ["unlink", {"name": "unlink", "label": "few", "only": {"amount": [3]}}],
            },
            "methods 'unlink' and 'few' have the same settings",
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
            "'split.val' cannot be set for a split that is given; leave one of them out",
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
