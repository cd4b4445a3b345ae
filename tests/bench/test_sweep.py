"""The order of a run: rows come as soon as the models that they need are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.runner import Choice, run
from gnndelete.cli import run as command
from gnndelete.errors import RunError
from gnndelete.methods import Unlink

from .conftest import Write, lines


def _order(capsys: Any) -> list[str]:
    """What was done, in the order of the lines: 'seed 1: unlink', …"""
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    return [line[line.index("seed") :].split("  ")[0] for line in said]


def test_cells_follow_their_model_before_the_next_one_is_trained(small: Experiment, store: Path, capsys: Any) -> None:
    run([small], store=store)
    order = _order(capsys)
    assert [name.partition(":")[0] for name in order] == ["seed 1"] * 4 + ["seed 2"] * 4
    assert order[0] == "seed 1: model"
    assert order[4] == "seed 2: model"


def test_a_shadow_model_comes_between_its_base_and_its_cells(write: Write, store: Path, capsys: Any) -> None:
    experiment = read(str(write(measures=["scores", "mi"], methods=["unlink"])))
    run([experiment], store=store)
    order = _order(capsys)
    for seed in ("seed 1", "seed 2"):
        places = [order.index(f"{seed}: {what}") for what in ("model", "shadow", "unlink")]
        assert places == sorted(places)


def test_cells_of_a_model_that_fails_are_lost_and_the_others_done(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnndelete.bench import kept

    train = kept.base_model

    def second_fails(key: Any, *rest: Any) -> Any:
        if key["seed"] == 2:
            raise ValueError("no luck")
        return train(key, *rest)

    monkeypatch.setattr(kept, "base_model", second_fails)
    summary = run([read(str(write()))], store=store)
    assert (summary.done, summary.failed, summary.left, summary.models) == (3, 3, 0, 1)
    assert {failure["error"] for failure in summary.failures} == {
        "its base model could not be trained: ValueError: no luck"
    }


def test_an_error_that_nobody_raised_on_purpose_has_its_kind_and_its_place(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def forgets(self: Any, context: Any) -> Any:
        return {}["beta"] if context.seed == 1 else torch.nn.Linear(3, 2)(torch.ones(1, 4))

    monkeypatch.setattr(Unlink, "unlearn", forgets)
    file = str(write(methods=["unlink"]))
    assert command(["bench", "run", file, "--store", str(store)]) == 1
    said = capsys.readouterr()
    assert "FAILED: KeyError: 'beta'" in said.err
    assert "unlink: KeyError: 'beta'" in said.out
    rows = {line["key"]["seed"]: line["row"] for line in lines(store)}
    assert rows[1]["kind"] == "KeyError"
    assert "test_sweep.py:" in rows[1]["where"][-1]
    assert rows[1]["where"][-1].endswith(" forgets")
    assert rows[2]["where"][0].endswith(" forgets")  # one's own line, although torch has the innermost three
    assert [place.split("/")[0] for place in rows[2]["where"][1:]] == ["torch"] * 3
    for place in (*rows[1]["where"], *rows[2]["where"]):
        assert f"  at {place}" in said.out
        assert not place.startswith("/")
    assert command(["bench", "run", file, "--store", str(store), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["failures"]
    assert told[0]["where"] == rows[1]["where"]


def test_an_error_with_a_way_out_has_no_place(small: Experiment, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: Any, context: Any) -> Any:
        raise RunError("it broke; mend it")

    monkeypatch.setattr(Unlink, "unlearn", refuses)
    summary = run([small], store=store, choice=Choice(labels=["unlink"]))
    assert {failure["error"] for failure in summary.failures} == {"it broke; mend it"}
    assert not any("where" in line["row"] for line in lines(store))
