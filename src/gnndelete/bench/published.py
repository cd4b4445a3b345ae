"""The numbers that the paper published, under the names of this library.

``published.csv`` has one line per number. ``method`` is the label in an experiment file. Methods without graph layers (the
linear ones and JODIE) are listed under GCN. An empty ``where`` means that the paper does not say.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

#: The part with the paper's main tables, which hold for every experiment that repeats one of their cells.
MAIN = "link_prediction"

#: The label of GNNDelete with the paper's settings.
PAPER_LABEL = "paper()"


@dataclass(frozen=True)
class Published:
    """One number of the paper, and its standard deviation over five seeds where the paper gives it."""

    value: float
    std: float | None = None


def published(
    part: str | None, dataset: str, model: str, where: str | None, amount: float | None, method: str, metric: str
) -> Published | None:
    """Return the paper's number for a cell, or None; the main tables are used where a part has no number.

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
    """Return the parts of the paper that report numbers.

    >>> "link_prediction" in parts()
    True
    """
    return list(dict.fromkeys(key[0] for key in _numbers()))


def metrics(part: str | None) -> list[str]:
    """Return the scores that a part of the paper reports.

    >>> metrics("node_deletion")
    ['test_accuracy', 'test_f1', 'mi_ratio']
    """
    return list(dict.fromkeys(key[4] for key in _numbers() if key[0] == part))


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
