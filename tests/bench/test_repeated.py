"""What stands twice in an experiment, as it is written or once defaults are filled in, is refused with both names."""

from __future__ import annotations

from typing import Any

import pytest

from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import read
from gnndelete.errors import SettingError

from .conftest import Write

COLLAB = "generated:collab?nodes=300&edges=2400"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": [1, 2, 1]}, "'seeds' names 1 twice; leave one of them out"),
        ({"measures": ["scores", "scores"]}, "'measures' names 'scores' twice"),
        ({"forget": {"where": ["random", "random"], "amount": 3}}, "'forget.where' names 'random' twice"),
        ({"forget": {"amount": [0.05, 0.1, 0.05]}}, "'forget.amount' names 0.05 twice"),
        ({"forget": [{"amount": 3}, {"amount": [4, 3], "hops": "directed"}]}, "'forget' names 3 edges (random) twice"),
        (
            {"methods": [{"name": "unlink", "only": {"models": ["gcn", "gcn"]}}]},
            "'methods.only.models' names 'gcn' twice",
        ),
        ({"datasets": ["digits", "digits"]}, "'datasets' names 'digits' twice"),
        ({"datasets": ["digits", "Digits"]}, "'datasets': 'digits' and 'Digits' are the same"),
        (
            {"datasets": [COLLAB, "generated:collab?edges=2400&nodes=300&seed=0"]},
            f"'{COLLAB}' and 'generated:collab?edges=2400&nodes=300&seed=0' are the same",
        ),
        ({"models": ["gcn", {"name": "gcn"}]}, "'models' names gcn twice"),
        (
            {"models": ["gcn", {"name": "gcn", "hidden": 128}]},
            "'models': gcn and {name: gcn, hidden: 128} are the same",
        ),
        ({"models": ["gcn", {"name": "gcn", "dropout": 0}]}, "'models': gcn and {name: gcn, dropout: 0} are the same"),
        (
            {"methods": ["unlink", {"name": "unlink", "label": "u2"}]},
            "methods 'unlink' and 'u2' have the same settings, defaults filled in; leave one of them out, or give each cells",
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
