"""Cells: which settings make another cell, and what a dataset and a device have room for is checked before the first one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from gnndelete.bench.cells import VERSIONS, Cell, cells
from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.material import load_material, requests
from gnndelete.errors import SettingError

from .conftest import Write


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"forget": {"amount": 0.025, "steps": 10**6}},
            "'forget.steps': 2.5% of edges (27) cannot be deleted in 1000000",
        ),
        (
            {"forget": {"amount": 0.025, "steps": 28}},
            "2.5% of edges (27) cannot be deleted in 28 steps; ask for fewer steps",
        ),
        (
            {"forget": {"amount": 1e-12}},
            "'forget.amount': 1e-10% of edges (0) is less than one: there are at most 1,080 edges to learn from i",
        ),
        (
            {"datasets": ["wordnet18"], "models": ["rgcn"], "forget": {"kind": "relations", "amount": 0.02}},
            "'forget.amount': 2% of relations (0) is less than one: there are at most 18 relations to learn from ",
        ),
        (
            {"forget": {"amount": 0.9999}},
            "'forget.amount': 99.99% of edges (1,080) cannot be deleted: there are at most 1,080 edges to learn f",
        ),
    ],
)
def test_more_than_there_is_room_for(write: Write, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError) as error:
        cells(read(str(write(**changes))))
    assert words in str(error.value)


def test_as_many_steps_as_a_share_has_elements(write: Write) -> None:
    (cell, _) = cells(read(str(write(forget={"amount": 0.025, "steps": 27}, methods=["unlink"]))))
    drawn = requests(cell.key, load_material(cell.key, torch.device("cpu")))
    assert [deletion.counts for deletion in drawn] == [{"edges": 1}] * 27


def test_more_neighbours_are_more_edges(write: Write) -> None:
    """The size of ``digits`` is that of eight neighbours each."""
    forget = {"amount": 10_000}
    with pytest.raises(SettingError, match="at most 8,937 edges to learn from in 'digits'"):
        cells(read(str(write(datasets=["digits"], forget=forget))))
    (cell, *_) = cells(read(str(write(datasets=["digits?neighbors=20"], forget=forget, methods=["unlink"]))))
    assert requests(cell.key, load_material(cell.key, torch.device("cpu")))[0].counts == {"edges": 10_000}


@pytest.mark.parametrize(
    ("task", "kind", "dataset", "most"),
    [
        ("link", "edges", "digits", 8937),  # 9,929 less 496 for validation and 496 for testing
        ("link", "edges", "generated:collab?nodes=300&edges=2400&features=8", 1080),
        ("link", "nodes", "generated:collab?nodes=300&edges=2400&features=8", 300),
        ("node", "edges", "digits", 9929),
        ("node", "labels", "digits", 1617),
        ("link", "edges", "generated:biokg?entities=300&triples=2401&relations=5", 2161),
    ],
)
def test_one_more_than_there_are_is_refused_before_the_first_cell(
    write: Write, task: str, kind: str, dataset: str, most: int
) -> None:
    def asked(amount: int) -> list[Cell]:
        model = "rgcn" if "biokg" in dataset else "gcn"
        forget = {"kind": kind, "amount": amount}
        return cells(read(str(write(task=task, datasets=[dataset], models=[model], forget=forget, methods=["unlink"]))))

    whole = kind in ("edges", "nodes")  # of which a deletion has to leave some
    key = asked(most - whole)[0].key
    drawn = requests(key, load_material(key, torch.device("cpu")))[0]
    assert drawn.counts == {kind: most - whole}
    if whole:
        with pytest.raises(
            SettingError, match=rf"at most {most:,} .*, and a deletion has to leave some; ask for fewer"
        ):
            asked(most)
    with pytest.raises(SettingError, match=rf"at most {most:,} "):
        asked(most + 1)


@pytest.mark.parametrize(
    ("name", "layer", "task", "dataset"),
    [
        *((name, "convs.1", "link", "digits") for name in ("gcn", "gat", "gin")),
        ("gps", "convs.1", "link", "digits"),
        ("graphormer", "layers.1", "link", "digits"),
        *((name, "convs.1", "link", "wordnet18") for name in ("rgcn", "rgat")),
        *((name, "encoder.convs.1", "graph", "mutag") for name in ("gcn", "gin")),
    ],
)
def test_layers_by_their_names(write: Write, name: str, layer: str, task: str, dataset: str) -> None:
    methods = ["unlink", {"name": "gnndelete", "layers": [layer]}]
    assert cells(read(str(write(task=task, datasets=[dataset], models=[name], methods=methods))))


def test_what_no_method_is_asked_for_is_not_refused(write: Write) -> None:
    """All but one of what could be there is not refused, nor layers of a model that their method is not for."""
    named = {"name": "gnndelete", "layers": ["embed"], "only": {"models": ["gps"]}}
    forget = {"amount": [1079, 3], "steps": 3}
    assert cells(read(str(write(models=["gcn", "gps"], methods=["unlink", named], forget=forget))))


def _keys(write: Write, **changes: Any) -> set[str]:
    return {cell.digest for cell in cells(read(str(write(**changes))))}


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"epochs": 11, "lr": 0.05}},
        {"train": {"epochs": 10, "lr": 0.05, "weight_decay": 0.1}},
        {"models": [{"name": "gcn", "hidden": 8, "out": 5}]},
        {"forget": {"amount": 0.06}},
        {"forget": {"amount": 0.05, "where": "hubs"}},
        {"forget": {"amount": 0.05, "steps": 2}},
        {"split": {"val": 0.1}},
        {"measures": ["scores"]},
        {"seeds": [3, 4]},
    ],
)
def test_a_changed_setting_is_another_cell(write: Write, changes: dict[str, Any]) -> None:
    assert not _keys(write) & _keys(write, **changes)


def test_what_changes_nothing_is_the_same_cell(write: Write) -> None:
    assert _keys(write) == _keys(write, title="Another", forget=[{"amount": [0.05], "hops": "directed"}])
    assert _keys(write) == _keys(write, measures=["unseen", "scores"])


def test_a_changed_rule_of_calibration_is_another_cell_where_lam_is_calibrated(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(lam: float | str) -> set[str]:
        return _keys(write, methods=[{"name": "gnndelete", "lam": lam}])

    before, fixed = of("auto"), of(0.5)
    monkeypatch.setitem(VERSIONS, ("link", "retrained"), VERSIONS["link", "retrained"] + 1)
    assert not before & of("auto")
    assert fixed == of(0.5)


def test_another_device_is_another_cell(small: Experiment) -> None:
    on = {device: {cell.digest for cell in cells(small, device)} for device in ("cpu", "cuda")}
    assert not on["cpu"] & on["cuda"]


def test_seeds_and_restricted_methods(write: Write) -> None:
    experiment = read(
        str(
            write(
                forget={"amount": [0.05, 0.1], "where": ["in", "out"]},
                methods=["unlink", {"name": "gradascent", "only": {"amount": [0.1], "where": ["in"]}}],
            )
        )
    )
    assert len(cells(experiment, seeds=1)) == 4 + 1
    assert {cell.key["seed"] for cell in cells(experiment, seeds=1)} == {1}
    assert len(cells(experiment)) == 2 * 5


def test_a_retrained_model_has_the_schedule_of_the_base(small: Experiment) -> None:
    keys = [cell.key for cell in cells(small) if cell.label == "retrain"]
    assert all(key["method"]["epochs"] == key["train"]["epochs"] == 10 for key in keys)


def test_cells_know_what_they_share(write: Write) -> None:
    experiment = read(str(write(measures=["scores", "mi"], forget={"amount": [0.05, 0.1]})))
    found: list[Cell] = cells(experiment, seeds=1)
    assert len({json.dumps(cell.base) for cell in found}) == 1
    assert len({json.dumps(cell.shadow) for cell in found}) == 2


def test_experiments_share_cells() -> None:
    """lam 0.5 of the ablation is the paper's setting in the table."""
    whole = {cell.digest: cell.label for cell in cells(read("paper/link-dblp"), seeds=1)}
    shared = {cell.label: whole.get(cell.digest) for cell in cells(read("paper/lambda"), seeds=1)}
    assert shared["lam 0.5"] == "paper()"
    assert shared["lam 0.2"] is None
