"""The order of a run: rows come as soon as the models that they need are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.runner import run

from .conftest import Write


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
    assert {failure["error"] for failure in summary.failures} == {"its base model could not be trained: no luck"}
