"""The numbers the paper published, by the names this library uses, so that they can stand beside ours.

``published.csv`` has one line per number. ``method`` is the label of an experiment file; the linear methods and JODIE,
which have no graph layers, stand in the column of GCN; an empty ``where`` means that the paper does not say.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

#: The paper's main tables, which hold for every experiment that repeats one of their cells.
MAIN = "link_prediction"


@dataclass(frozen=True)
class Published:
    """One number of the paper; ``std`` is its standard deviation over five seeds, where it is given."""

    value: float
    std: float | None = None


def published(
    part: str | None, dataset: str, model: str, where: str | None, amount: float | None, method: str, metric: str
) -> Published | None:
    """What the paper says about a cell, or None; a part of the paper that is silent is helped by its main tables.

    >>> published("link_prediction", "dblp", "gcn", "in", 0.025, "paper()", "deleted_auroc")
    Published(value=0.748, std=0.006)
    >>> published("jodie", "dblp", "gcn", "in", 0.025, "retrain", "test_auroc").value
    0.964
    >>> published(None, "dblp", "gcn", "in", 0.025, "retrain", "test_auroc") is None
    True
    """
    if part is None:
        return None
    for name in dict.fromkeys((part, MAIN)):
        found = _numbers().get((name, dataset, model, method, metric), {})
        for near in (where or "", ""):
            for size in (_amount(amount), ""):
                if (near, size) in found:
                    return found[near, size]
    return None


def parts() -> list[str]:
    """The parts of the paper that report numbers.

    >>> "link_prediction" in parts()
    True
    """
    return list(dict.fromkeys(key[0] for key in _numbers()))


def metrics(part: str | None) -> list[str]:
    """The scores that a part of the paper reports.

    >>> metrics("node_deletion")
    ['test_accuracy', 'test_f1', 'mi_ratio', 'test_auroc']
    """
    return list(dict.fromkeys(key[4] for key in _numbers() if key[0] == part))


def cells(part: str) -> list[tuple[str, str, str, float]]:
    """The places of a part at which the paper reports GNNDelete: dataset, model, where, amount.

    >>> len(cells("link_prediction"))
    78
    """
    places: dict[tuple[str, str, str, float], None] = {}
    for (name, dataset, model, method, _), found in _numbers().items():
        if name == part and method == "paper()":
            places |= {(dataset, model, where, float(amount or 0)): None for where, amount in found}
    return list(places)


def _amount(amount: float | None) -> str:
    return "" if amount is None else f"{amount:g}"


@lru_cache(maxsize=1)
def _numbers() -> Mapping[tuple[str, str, str, str, str], dict[tuple[str, str], Published]]:
    numbers: dict[tuple[str, str, str, str, str], dict[tuple[str, str], Published]] = {}
    text = files(__package__).joinpath("published.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        key = (line["experiment"], line["dataset"], line["model"], line["method"], line["metric"])
        std = float(line["std"]) if line["std"] else None
        numbers.setdefault(key, {})[line["where"], line["amount"]] = Published(float(line["value"]), std)
    return numbers
