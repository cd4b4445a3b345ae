"""Assurance levels: what a deletion does and does not promise, in words that are printed with every result."""

from __future__ import annotations

#: From the strongest to the weakest.
MEANING: dict[str, str] = {
    "retrained": "The model was trained again without the deleted elements; it has never seen them.",
    "exact": "The weights equal those of a model fitted without the deleted elements, up to rounding.",
    "certified": "A stated bound limits what can be told apart from a model fitted without the deleted elements.",
    "approximate": "The result behaves as if it had forgotten, without a bound on what it may still give away.",
    "inference-only": "The elements left the graph; no weight was changed, and weights still hold what they learned from them.",
}

_ADAPTER = "The base weights still hold the data, and disabling the adapter brings it back."


def explain(level: str, adapter: bool = False) -> str:
    """What a level promises and what it does not; of an ``adapter`` it is also said where the data still is.

    >>> explain("approximate", adapter=True).endswith("brings it back.")
    True
    """
    return f"{MEANING[level]} {_ADAPTER}" if adapter else MEANING[level]
