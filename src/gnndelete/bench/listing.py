"""What of an experiment is done, and what the rest would take by finished cells of the same kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from gnndelete.bench.cells import Cell, cells, digest
from gnndelete.bench.executors import UNFIT
from gnndelete.bench.experiment import Experiment
from gnndelete.bench.results_file import open_store
from gnndelete.bench.words import span
from gnndelete.io.store import Store


class Cost:
    """Expected seconds of a cell: the mean of finished ones with the same method, dataset and, if there are any, model."""

    def __init__(self, store: Store) -> None:
        self._cells: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._trainings: dict[str, float] = {}
        for key, row in store.items():
            if "error" in row or row.get("wall_seconds") is None:
                continue
            for kind in _kinds(key):
                self._cells[kind].append(row["wall_seconds"])
            if row.get("train_seconds") is not None:
                self._trainings[_training(key)] = row["train_seconds"]

    def of(self, key: Mapping[str, Any]) -> float | None:
        """Expected seconds of a cell without its base model; None if no cell like it has finished."""
        return next((mean(self._cells[kind]) for kind in _kinds(key) if kind in self._cells), None)

    def training(self, key: Mapping[str, Any]) -> float | None:
        """Seconds that training such a base model took; None if no cell of one has finished."""
        return self._trainings.get(_training(key))

    def total(self, cells: Iterable[Cell]) -> tuple[float, int]:
        """Expected seconds of all cells and their base models, and the number of cells without an expectation."""
        seconds, unknown, bases = 0.0, 0, {}
        for cell in cells:
            expected = self.of(cell.key)
            seconds, unknown = seconds + (expected or 0.0), unknown + (expected is None)
            bases[digest(cell.base)] = self.training(cell.key) or 0.0
        return seconds + sum(bases.values()), unknown


def _kinds(key: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """What a cell has in common with others that take about as long, the closest first."""
    common = (key["device"], key["train"]["epochs"], key["method"]["name"], tuple(key["measures"]), key["dataset"])
    return [(*common, key["model"]["name"]), common]


def _training(key: Mapping[str, Any]) -> str:
    return digest({name: key[name] for name in ("device", "dataset", "task", "model", "train")})


def listing(experiments: Iterable[Experiment], store: Path, device: str, seeds: int | None) -> list[dict[str, Any]]:
    """One entry per experiment: its cells, how many are done, failed, unfit and missing, and the expected seconds.

    ``not_here`` counts the missing cells whose dataset the experiment declares as one that may be absent.
    """
    rows = open_store(store)
    cost = Cost(rows)
    found = []
    for experiment in experiments:
        every = cells(experiment, torch.device(device).type, seeds)
        stored = [row for cell in every if (row := rows.get(cell.key)) is not None]
        missing = [cell for cell in every if rows.get(cell.key) is None]
        errors = [row.get("kind") for row in stored if "error" in row]
        unfit = errors.count(UNFIT)
        seconds, unknown = cost.total(missing)
        found.append(
            {
                "name": experiment.name,
                "title": experiment.title,
                "cells": len(every),
                "done": len(stored) - len(errors),
                "failed": len(errors) - unfit,
                "unfit": unfit,
                "missing": len(missing),
                "not_here": sum(cell.key["dataset"] in experiment.missing for cell in missing),
                "expected_seconds": seconds if len(missing) > unknown else None if missing else 0.0,
                "unknown": unknown,
                "cost": _cost_words(len(missing), seconds, unknown),
                "datasets": experiment.datasets,
                "absent": experiment.missing,
            }
        )
    return found


def _cost_words(missing: int, seconds: float, unknown: int) -> str:
    """The cost for people.

    >>> _cost_words(4, 90.0, 0), _cost_words(4, 90.0, 1), _cost_words(4, 0.0, 4), _cost_words(0, 0.0, 0)
    ('2 min', '> 2 min', 'unknown', '-')
    """
    if not missing:
        return "-"
    if unknown == missing:
        return "unknown"
    return f"> {span(seconds)}" if unknown else span(seconds)
