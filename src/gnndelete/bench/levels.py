"""Retrain's level at a place: that of the experiment itself or, where it has none, of any other run in the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnndelete.bench.gathered import Place, Result, Stat, text
from gnndelete.io.store import Store

#: Runs of Retrain by the place where they were done.
Retrained = Mapping[str, Sequence[Result]]


@dataclass(frozen=True)
class Level:
    """Retrain's mean in one score, and whether it was run for another experiment."""

    stat: Stat
    borrowed: bool = False


def retrained(store: Store) -> Retrained:
    """The runs of Retrain in a store that trained as the base model did, whichever experiment asked for them.

    >>> retrained(Store(None))
    {}
    """
    groups: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for key, row in store.items():
        if _is_reference(key) and "error" not in row:
            groups.setdefault(text({name: value for name, value in key.items() if name != "seed"}), []).append(
                (key, row)
            )
    found: dict[str, list[Result]] = {}
    for whole in sorted(groups):  # whatever the order of the rows
        rows = {int(key["seed"]): row for key, row in groups[whole]}
        first = groups[whole][0][0]
        result = Result("", Place.of(first), "retrain", first["method"], len(rows), rows, {})
        found.setdefault(result.place.rest, []).append(result)
    return found


def _is_reference(key: Mapping[str, Any]) -> bool:
    method, schedule = key["method"], key.get("train") or {}
    return method["name"] == "retrain" and all(method.get(name, value) == value for name, value in schedule.items())


def level(metric: str, own: Result | None, others: Sequence[Result], seeds: Collection[int]) -> Level | None:
    """Retrain's level in a score by an experiment's own runs, else by those of others that have most of its seeds."""
    stat = own.stat(metric) if own else None
    if stat is not None:
        return Level(stat)
    known = [[value for seed, value in other.values(metric).items() if seed in seeds] for other in others]
    most: list[float] = max(known, key=len, default=[])
    stat = Stat.of(most)
    return Level(stat, borrowed=True) if stat else None
