"""What experiments there are, what of them is done, and what the rest would cost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from gnndelete.bench.cells import cells
from gnndelete.bench.cost import Cost
from gnndelete.bench.experiment import Experiment
from gnndelete.bench.jobs import UNFIT
from gnndelete.bench.rows import open_store
from gnndelete.bench.words import span


def listing(experiments: Iterable[Experiment], store: Path, device: str, seeds: int | None) -> list[dict[str, Any]]:
    """One entry per experiment: its cells, how many are done, failed, unfit and missing, and expected seconds for the missing.

    ``not_here`` counts those of the missing whose dataset the experiment calls one that may not be here.
    """
    rows = open_store(store)
    cost = Cost(rows)
    found = []
    for experiment in experiments:
        every = cells(experiment, torch.device(device).type, seeds)
        known = [(cell, rows.get(cell.key)) for cell in every]
        missing = [cell for cell, row in known if row is None]
        wrong = [row.get("kind") for _, row in known if row is not None and "error" in row]
        unfit = wrong.count(UNFIT)
        seconds, unknown = cost.total(missing)
        found.append(
            {
                "name": experiment.name,
                "title": experiment.title,
                "cells": len(every),
                "done": len(every) - len(missing) - len(wrong),
                "failed": len(wrong) - unfit,
                "unfit": unfit,
                "missing": len(missing),
                "not_here": sum(cell.key["dataset"] in experiment.missing for cell in missing),
                "expected_seconds": seconds if len(missing) > unknown else None if missing else 0.0,
                "unknown": unknown,
                "cost": _words(len(missing), seconds, unknown),
                "datasets": experiment.datasets,
                "absent": experiment.missing,
            }
        )
    return found


def _words(missing: int, seconds: float, unknown: int) -> str:
    """The cost for people.

    >>> _words(4, 90.0, 0), _words(4, 90.0, 1), _words(4, 0.0, 4), _words(0, 0.0, 0)
    ('2 min', '> 2 min', 'unknown', '-')
    """
    if not missing:
        return "-"
    if unknown == missing:
        return "unknown"
    return f"> {span(seconds)}" if unknown else span(seconds)
