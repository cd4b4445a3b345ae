"""What cells that are not done yet would take, by those of the same kind that are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import mean
from typing import Any

from gnndelete.bench.cells import Cell, digest
from gnndelete.io.store import Store


class Cost:
    """Expected seconds of a cell: the mean of finished ones with the same method, dataset and model, or less in common."""

    def __init__(self, store: Store) -> None:
        self._seen: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._trained: dict[str, float] = {}
        for key, row in store.items():
            self.learn(key, row)

    def learn(self, key: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        if "error" in row or row.get("wall_seconds") is None:
            return
        for kind in _kinds(key):
            self._seen[kind].append(row["wall_seconds"])
        if row.get("train_seconds") is not None:
            self._trained[_training(key)] = row["train_seconds"]

    def of(self, key: Mapping[str, Any]) -> float | None:
        """Seconds that a cell is expected to take, its base model apart; None where nothing like it has run."""
        return next((mean(self._seen[kind]) for kind in _kinds(key) if kind in self._seen), None)

    def training(self, key: Mapping[str, Any]) -> float | None:
        """Seconds that training such a base model took; None where no cell of one has run."""
        return self._trained.get(_training(key))

    def total(self, cells: Iterable[Cell]) -> tuple[float, int]:
        """Seconds of all cells with an expectation, base models of the same kind included, and how many have none."""
        seconds, unknown, bases = 0.0, 0, {}
        for cell in cells:
            expected = self.of(cell.key)
            seconds, unknown = seconds + (expected or 0.0), unknown + (expected is None)
            bases[digest(cell.base)] = self.training(cell.key) or 0.0
        return seconds + sum(bases.values()), unknown


def _kinds(key: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    method, measures = key["method"]["name"], tuple(key["measures"])
    common = (key["device"], key["train"]["epochs"])
    return [
        (*common, method, measures, key["dataset"], key["model"]["name"]),
        (*common, method, measures, key["dataset"]),
    ]


def _training(key: Mapping[str, Any]) -> str:
    return digest({name: key[name] for name in ("device", "dataset", "task", "model", "train")})
