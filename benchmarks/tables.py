"""What several benchmarks share: the task of a split, the unseen test, a table over seeds, lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import torch

import gnndelete as gd
from gnndelete.metrics.unseen_test import degrees, edge_strata, unseen_test

#: Per method its figures by name.
Cell = dict[str, dict[str, Any]]


def link_task(split: Any, seed: int, **options: Any) -> gd.LinkPrediction:
    """Link prediction with the unseen edges and the negatives of a split."""
    return gd.LinkPrediction(
        validation=split.validation,
        test=split.test,
        validation_negatives=split.validation_negatives,
        test_negatives=split.test_negatives,
        seed=seed,
        **options,
    )


def matched(unlearned: gd.Unlearned, task: gd.LinkPrediction, forget: torch.Tensor) -> float:
    """The AUC of deleted against test edges or triples that are alike in relation, degree and ends without any edge."""
    assert task.test is not None
    held = task.test.positives
    scores = [unlearned.predict(part).cpu() for part in (forget, held)]
    return unseen_test(*scores, **edge_strata(degrees(unlearned.data).cpu(), forget, held)).auc


def record(path: str | None, line: dict[str, Any]) -> None:
    """Add one JSON line to a file, where there is one."""
    if path is not None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def show(title: str, cells: list[Cell], columns: Sequence[str], width: int = 18, digits: int = 4) -> None:
    """One line per method, one cell per seed."""
    print(f"\n{title}\n  {'':<26}" + "".join(f"{column:>{width}}" for column in columns))
    for label in cells[0]:
        values = [[cell[label][c] for cell in cells if c in cell[label]] for c in columns]
        text = [f"{mean(v):.{digits}f} ± {stdev(v) if len(v) > 1 else 0:.{digits}f}" if v else "-" for v in values]
        print(f"  {label:<26}" + "".join(f"{t:>{width}}" for t in text))
