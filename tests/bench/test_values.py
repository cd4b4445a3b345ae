"""Values of settings: what none can be is refused where the file is read, with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import read
from gnndelete.errors import SettingError

from .conftest import Write


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
        ({"title": 7}, "'title': write words, in quotes where they would be read as something else (got 7)"),
        ({"methods": [{"name": "unlink", "label": 5}]}, "'methods.label': write words, in quotes"),
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
