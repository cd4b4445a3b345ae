"""Assurance levels: what a deletion does and does not promise, in words that are printed with every result."""

from __future__ import annotations

#: From the strongest to the weakest.
MEANING: dict[str, str] = {
    "retrained": "The model was trained again without the deleted elements; it has never seen them.",
    "exact": "The weights equal those of a model fitted without the deleted elements, up to rounding.",
    "certified": "A stated bound limits what can be told apart from a model fitted without the deleted elements.",
    "approximate": (
        "The model behaves as if it had forgotten, without a bound: the base weights still hold the data, and "
        "disabling the adapter brings it back."
    ),
    "inference-only": "The elements left the graph; no weight was changed, and weights still hold what they learned from them.",
}
