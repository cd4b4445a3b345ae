"""Assurance levels and aims: what a deletion promises and what it does not, in words printed with every result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: From the strongest to the weakest.
MEANING: dict[str, str] = {
    "retrained": "The model was trained again without the deleted elements; it has never seen them.",
    "exact": "The weights equal those of a model fitted without the deleted elements, up to rounding.",
    "certified": "A stated bound limits what can be told apart from a model fitted without the deleted elements.",
    "approximate": "The result behaves as if it had forgotten, without a bound on what it may still give away.",
    "inference-only": "The elements left the graph; no weight was changed, and weights still hold what they learned from them.",
}

#: Levels whose results stand for training without the data: an audit may take them for its reference.
TRAINED_WITHOUT = ("retrained", "exact")

_ADAPTER = "The base weights still hold the data, and disabling the adapter brings it back."


#: Labels and features alone leave nodes and edges where they were.
_TAKEN = {"features": "the features were taken from the graph", "labels": "the labels were taken from training"}


def taken(counts: Mapping[str, int], otherwise: str) -> str:
    """What became of labels and features, in words, where nothing else was deleted; else ``otherwise``.

    >>> taken({"labels": 60}, "the graph was cut"), taken({"nodes": 1, "labels": 60}, "the graph was cut")
    ('the labels were taken from training', 'the graph was cut')
    """
    return " and ".join(_TAKEN[kind] for kind in counts) if counts and set(counts) <= set(_TAKEN) else otherwise


def explain(level: str, adapter: bool = False, counts: Mapping[str, int] | None = None) -> str:
    """What a level promises and what it does not; of an ``adapter`` it is also said where the data still is.

    ``counts`` says how many elements of each kind were deleted: labels, for one, leave no graph.

    >>> explain("approximate", adapter=True).endswith("brings it back.")
    True
    >>> explain("inference-only", counts={"labels": 60})[:54]
    'The labels were taken from training; no weight was cha'
    """
    said = MEANING[level]
    if level == "inference-only":
        left, rest = said.split(";", 1)
        done = taken(counts or {}, left)
        said = f"{done[0].upper()}{done[1:]};{rest}"
    return f"{said} {_ADAPTER}" if adapter else said


#: What a deletion is to look like afterwards.
AIMS: dict[str, str] = {
    "retrained": "deleted elements should score like unseen ones, as after training again",
    "nonexistent": "deleted elements are pushed to score like ones that never existed, and can be recognised by that",
}


def explain_aim(aim: str, lam: Any = None, calibration: Mapping[str, Any] | None = None) -> str:
    """What an aim means, and how far it was served: by calibration, or only by a lam that was given.

    >>> explain_aim("retrained", lam=0.3)
    'deleted elements should score like unseen ones, as after training again; lam 0.3 was given, not calibrated to this'
    """
    if calibration is None:
        return f"{AIMS[aim]}; lam {lam:g} was given, not calibrated to this"
    return f"{AIMS[aim]}. {calibration['sentence'].rstrip('.')}"
