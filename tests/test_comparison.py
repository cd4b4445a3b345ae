"""Comparisons: one table with Retrain and the controls, and nothing is done twice."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from torch import nn

import gnndelete as gd
from gnndelete.comparison import Comparison, label_methods, method_label
from gnndelete.errors import GraphError, ModelError, RunError, SettingError
from gnndelete.methods import Unlink, resolver
from gnndelete.testing import problem
from gnndelete.training.loop import train


@pytest.fixture(scope="module")
def link():
    return problem("link")


def fit_for(task, seen=None):
    def fit(model, data, seed):
        if seen is not None:
            seen.append(seed)
        train(model, data, task, epochs=5, lr=0.01, seed=seed)
        return model

    return fit


def test_every_row_stands_beside_retrain_and_the_controls(link):
    model, data, task = link
    trained = []
    deletion = gd.Deletion(edges=data.edge_index[:, :10])
    table = gd.compare(model, data, deletion, task, ["gnndelete", "unlink"], seeds=range(2), fit=fit_for(task, trained))
    assert table.methods == ["original", "retrain", "gnndelete", "unlink", "zeroed", "untrained"]
    assert len(trained) == 2  # once per seed
    lines = {line["method"]: line for line in table.summary()}
    assert lines["retrain"]["test_auroc_gap"] is None
    own = [row for row in table.rows if row["label"] == "unlink"]
    reference = [row for row in table.rows if row["label"] == "retrain"]
    gaps = [a["scores"]["test_auroc"] - b["scores"]["test_auroc"] for a, b in zip(own, reference, strict=True)]
    assert lines["unlink"]["test_auroc_gap"]["mean"] == pytest.approx(sum(gaps) / 2)
    assert lines["zeroed"]["test_auroc"]["mean"] < lines["unlink"]["test_auroc"]["mean"]
    assert "gnndelete" in str(table)
    assert repr(table) == f"Comparison(methods={table.methods}, rows=12)"
    json.dumps(table.to_dict())


def test_methods_of_one_name_are_told_apart_by_what_differs(link):
    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :10])
    strong, same = gd.GNNDelete(aim="nonexistent"), gd.GNNDelete(aim="nonexistent")
    table = gd.compare(model, data, deletion, task, ["gnndelete", strong, same], fit=fit_for(task), controls=False)
    own = [name for name in table.methods if name.startswith("gnndelete")]
    assert own == ["gnndelete", "gnndelete (aim nonexistent)", "gnndelete (aim nonexistent) #2"]
    assert table.notes == ()


def test_retraining_by_another_schedule_than_the_models_is_said(link):
    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :10])
    table = gd.compare(model, data, deletion, task, ["unlink", gd.Retrain(epochs=3)], controls=False)
    assert "Retrain trained 3 epochs" in table.notes[0].text
    assert "Retrain trained 3 epochs" in " ".join(str(table).split())
    assert table.to_dict()["notes"] == [note.to_dict() for note in table.notes]


def test_a_killed_comparison_goes_on_where_it_was(link, tmp_path):
    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :4])

    class Dying(Unlink):
        name = "dying"
        served = 0

        def unlearn(self, context):
            Dying.served += 1
            if context.seed == 1 and Dying.served == 2:
                raise KeyboardInterrupt
            return super().unlearn(context)

    def run(seen):
        return gd.compare(
            model,
            data,
            deletion,
            task,
            [Dying()],
            range(2),
            fit=fit_for(task, seen),
            store=tmp_path / "rows.jsonl",
            controls=False,
        )

    first, second = [], []
    with pytest.raises(KeyboardInterrupt):
        run(first)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"key": {"half": ')  # what a kill in the middle of a write leaves
    table = run(second)
    assert len(first) == 2 and not second  # noqa: PT018
    assert Dying.served == 3
    assert len([row for row in table.rows if row["label"] == "dying"]) == 2
    run(second)
    assert not second
    changed = gd.Deletion(edges=data.edge_index[:, 4:6])
    gd.compare(model, data, changed, task, ["unlink"], [0], fit=fit_for(task, second), store=tmp_path / "rows.jsonl")
    assert len(second) == 1  # another deletion is another row


def test_a_failure_is_shown_and_never_a_number(link):
    model, data, task = link

    class Failing(Unlink):
        name = "failing"

        def unlearn(self, context):
            raise RunError("it broke")

    table = gd.compare(
        model, data, gd.Deletion(edges=data.edge_index[:, :4]), task, [Failing()], fit=fit_for(task), controls=False
    )
    line = next(line for line in table.summary() if line["method"] == "failing")
    assert line["error"] == "it broke"
    assert line["test_auroc"] is None
    assert "failed: it broke" in str(table)


def test_what_does_not_fit_is_refused_before_any_work(link):
    _, data, task = link
    trained = []
    plain = torch.nn.Linear(8, 4)
    with pytest.raises(ModelError, match=r"gnndelete.*no graph layers.*method='unlink' fits"):
        gd.compare(
            plain,
            data,
            gd.Deletion(edges=data.edge_index[:, :4]),
            task,
            ["gnndelete"],
            forward=lambda model, data: model(data.x),
            fit=fit_for(task, trained),
        )
    assert not trained
    with pytest.raises(GraphError, match="data is a 'LinkSplit'; pass the torch_geometric Data"):
        gd.compare(plain, gd.datasets.split_links(data), gd.Deletion(edges=data.edge_index[:, :4]), "link", ["unlink"])


def test_a_damaged_store_is_refused(link, tmp_path):
    model, data, task = link
    (tmp_path / "rows").write_text("no json\n{}\n")
    with pytest.raises(SettingError, match="line 1"):
        gd.compare(model, data, gd.Deletion(nodes=[1]), task, ["unlink"], store=tmp_path / "rows", fit=fit_for(task))


def test_seeds_and_methods_as_people_write_them(link):
    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :4])
    table = gd.compare(model, data, deletion, task, "unlink", seeds=2, fit=fit_for(task), controls=False)
    assert {row["seed"] for row in table.rows if row["label"] == "original"} == {0, 1}
    for wrong in ({"methods": []}, {"seeds": ()}):
        with pytest.raises(SettingError, match="nothing to compare"):
            gd.compare(model, data, deletion, task, fit=fit_for(task), **wrong)


def test_another_schedule_or_test_set_is_never_mixed_in(link, tmp_path):
    model, data, task = link
    deletion, trained = gd.Deletion(edges=data.edge_index[:, :4]), []

    def run(task, **schedule):
        gd.compare(
            model,
            data,
            deletion,
            task,
            "unlink",
            fit=fit_for(task, trained),
            store=tmp_path / "rows",
            schedule=schedule,
            controls=False,
        )
        return len(trained)

    assert run(task, epochs=5) == 1
    assert run(task, epochs=5) == 1
    assert run(task, epochs=6) == 2
    other = gd.LinkPrediction(validation=task.validation.positives, test=task.test.positives[:, 1:])
    assert run(other, epochs=6) == 3


def test_a_narrow_terminal_has_a_narrow_table(monkeypatch):
    own = {"label": "unlink", "seed": 0, "assurance": "inference-only", "scores": {"test_auroc": 0.9}, "seconds": 0.1}
    table = Comparison(({**own, "parameters": 1234, "peak_mb": 64.0},))
    assert "1,234" in str(table)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "1,234" not in str(table)
    assert max(map(len, str(table).splitlines())) <= 60


def test_memory_that_was_counted_for_some_methods_alone_is_not_compared():
    own = {"seed": 0, "assurance": "retrained", "scores": {"test_auroc": 0.9}, "seconds": 0.1, "parameters": 1}
    rows = ({**own, "label": "retrain", "peak_mb": 12.0}, {**own, "label": "unlink", "peak_mb": 0.0})
    assert "peak MB" not in str(Comparison(rows))
    assert "peak MB" in str(Comparison(rows[:1]))


def test_rows_of_a_graph_with_other_weights_are_never_mixed_in(link, tmp_path):
    model, data, task = link
    data, trained = data.clone(), []
    deletion = gd.Deletion(edges=data.edge_index[:, :4])
    for weight in (torch.ones(data.num_edges), torch.ones(data.num_edges), torch.rand(data.num_edges)):
        data.edge_weight = weight
        store = tmp_path / "rows"
        gd.compare(model, data, deletion, task, "unlink", fit=fit_for(task, trained), store=store, controls=False)
    assert len(trained) == 2


def test_rows_are_called_by_what_is_not_the_default_and_presets_by_their_name(link):
    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :10])
    paper = [gd.GNNDelete.paper(), gd.GNNDelete.paper(hops="directed"), gd.GNNDelete.paper(lam=0.2)]
    table = gd.compare(model, data, deletion, task, paper, fit=fit_for(task), controls=False)
    expected = ["gnndelete paper()", "gnndelete paper(hops directed)", "gnndelete paper(lam 0.2)"]
    assert table.methods == ["original", "retrain", *expected]
    with_usual = gd.compare(model, data, deletion, task, [*paper, "gnndelete"], fit=fit_for(task), controls=False)
    assert with_usual.methods == ["original", "retrain", *expected, "gnndelete"]


def test_no_method_as_it_comes_has_an_unusual_setting():
    assert all(method_label(method()) == method.name for method in resolver.lookup_dict.values())
    many = {"lam": 0.3, "ridge": 0.1, "budget": 0.2, "epochs": 7}
    chosen = label_methods([gd.GNNDelete(**many), gd.GNNDelete(**many | {"epochs": 8})])
    assert chosen[0].label == "gnndelete (lam 0.3, ridge 0.1, budget 0.2, …)"
    assert chosen[1].label == "gnndelete (lam 0.3, ridge 0.1, budget 0.2, epochs 8)"


def test_labels_of_ones_own(link):
    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :10])
    mine = {"cut": "unlink", "trained again": gd.Retrain()}
    table = gd.compare(model, data, deletion, task, mine, fit=fit_for(task), controls=False)
    assert table.methods == ["original", "cut", "trained again"]
    lines = {line["method"]: line for line in table.summary()}
    assert lines["trained again"]["test_auroc_gap"] is None  # gaps are taken to it, whatever it is called
    assert lines["cut"]["test_auroc_gap"] is not None
    for label in ("original", "zeroed", "retrain"):
        with pytest.raises(SettingError, match=f"'{label}' is what another row of the table is called"):
            gd.compare(model, data, deletion, task, {label: "unlink"}, fit=fit_for(task))


def test_a_stored_row_belongs_to_its_label_and_settings(link, tmp_path):
    model, data, task = link
    deletion, store, made = gd.Deletion(edges=data.edge_index[:, :10]), tmp_path / "rows.jsonl", []

    def stored_rows(methods):
        gd.compare(model, data, deletion, task, methods, fit=fit_for(task, made), store=store, controls=False)
        return len(store.read_text().splitlines())

    paper = gd.GNNDelete.paper()
    assert stored_rows([paper]) == 2
    assert stored_rows([paper, "unlink"]) == 3
    assert stored_rows(["gnndelete", paper]) == 4
    assert stored_rows([paper, gd.GNNDelete.paper()]) == 5
    assert stored_rows({"mine": paper}) == 6
    assert len(made) == 1


def test_a_method_that_does_not_train_by_fit_is_named(link):
    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :4])
    eraser = gd.GraphEraser(shards=2, epochs=2, lr=0.01)

    def run(method, **schedule):
        return gd.compare(
            model, data, deletion, task, [method], fit=fit_for(task), schedule=schedule, controls=False
        ).notes

    said = run(eraser, epochs=5, lr=0.01)
    assert len(said) == 1
    assert "epochs 2" in said[0].text
    assert "trained its shards for 2 epochs at lr 0.01, and not by fit" in said[0].text
    assert run(eraser, epochs=2, lr=0.01) == ()  # the schedule of fit
    assert run("unlink") == ()


def test_why_there_is_no_retrain_is_told(link):
    class Outside(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, z, edges):
            return self.scale * (z[edges[0]] * z[edges[1]]).sum(dim=-1)

    model, data, task = link
    deletion = gd.Deletion(edges=data.edge_index[:, :10])
    task = gd.LinkPrediction(validation=task.validation.positives, test=task.test.positives, decoder=Outside())
    found = gd.compare(model, data, deletion, task, ["unlink"], seeds=[0], controls=False)
    assert {row["label"] for row in found.rows} == {"original", "unlink"}
    assert found.notes[0].text.startswith(
        "Retrain does not fit, so there are no gaps to it: the decoder 'Outside' is no part"
    )
