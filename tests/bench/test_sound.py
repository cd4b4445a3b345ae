"""What a task or a dataset has nothing for is refused before the first cell."""

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
        (
            {"forget": {"kind": "labels", "amount": 3}},
            "'forget.kind': task 'link' learns from no labels; take edges or",
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
            "'split.val' has no part in a split that is given; leave one of them out",
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
