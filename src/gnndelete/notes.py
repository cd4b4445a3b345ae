"""Words about results: `Note`, with a code for programs, and what assurance levels and aims promise and do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Note:
    """One remark about a result.

    Args:
        code: A short name in kebab-case that never changes, such as ``"calibration"``.
        text: One or two sentences for people. They may be reworded at any time.

    >>> note = Note("isolated-nodes", "3 nodes lost their last edge.")
    >>> note.code, str(note)
    ('isolated-nodes', '3 nodes lost their last edge.')
    """

    code: str
    text: str

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, str]:
        """Return the note as plain values, for JSON."""
        return {"code": self.code, "text": self.text}


#: What each level means, from the strongest to the weakest.
MEANING: dict[str, str] = {
    "retrained": "The model was trained again without the deleted elements; it has never seen them.",
    "exact": "The weights equal those of a model fitted without the deleted elements, up to rounding.",
    "certified": "A stated bound limits what can be told apart from a model fitted without the deleted elements.",
    "approximate": "The result behaves as if it had forgotten, without a bound on what it may still give away.",
    "inference-only": "The elements left the graph; no weight was changed, and the weights still hold what they learned.",
}

#: Whose weights a result has, beside the level: the level says how sure, this says what is in the file.
WEIGHTS: dict[str, str] = {
    "base": "The weights are those of the trained model, or come from them; whoever has the file has what they learned.",
    "new": "The weights were drawn afresh and never held the deleted elements. The old ones must still be destroyed.",
}

#: Levels whose results stand for training without the data. An audit takes only these as its reference.
TRAINED_WITHOUT = ("retrained", "exact")

#: What a deletion is to look like afterwards.
AIMS: dict[str, str] = {
    "retrained": "deleted elements should score like unseen ones, as after training again",
    "nonexistent": "deleted elements are pushed to score like ones that never existed, and can be recognised by that",
}

#: Kinds that leave all nodes and edges in the graph, and what is done with them.
_TAKEN_FROM_DATA = {
    "features": "the features were taken from the graph",
    "labels": "the labels were taken from training",
}


def what_left(counts: Mapping[str, int], otherwise: str) -> str:
    """What was taken out of the data, in words.

    Args:
        counts: How many elements of each kind were deleted.
        otherwise: The words to use where nodes or edges left the graph.

    >>> what_left({"labels": 60}, "the graph was cut"), what_left({"nodes": 1, "labels": 60}, "the graph was cut")
    ('the labels were taken from training', 'the graph was cut')
    """
    if not counts or not set(counts) <= set(_TAKEN_FROM_DATA):
        return otherwise
    return " and ".join(_TAKEN_FROM_DATA[kind] for kind in counts)


def explain(level: str, adapter: bool = False, counts: Mapping[str, int] | None = None) -> str:
    """What a level promises and what it does not.

    Args:
        level: One of `MEANING`.
        adapter: Whether operators hide what the base weights still hold.
        counts: How many elements of each kind were deleted.

    >>> explain("approximate", adapter=True).endswith("brings it back.")
    True
    >>> explain("inference-only", counts={"labels": 60})[:54]
    'The labels were taken from training; no weight was cha'
    """
    text = MEANING[level]
    if level == "inference-only" and (taken := what_left(counts or {}, "")):
        text = f"{taken[0].upper()}{taken[1:]}; no weight was changed, and the weights still hold what they learned."
    return (
        f"{text} The base weights still hold the data, and disabling the adapter brings it back." if adapter else text
    )


def explain_aim(aim: str, lam: Any = None, calibration: Mapping[str, Any] | None = None) -> str:
    """What an aim means, and how lam was chosen for it.

    Args:
        aim: One of `AIMS`.
        lam: The weight of forgetting that was used.
        calibration: What calibration found; None where lam was given.

    >>> explain_aim("retrained", lam=0.3)
    'deleted elements should score like unseen ones, as after training again; lam 0.3 was given, not calibrated to this'
    """
    if calibration is None:
        return f"{AIMS[aim]}; lam {lam:g} was given, not calibrated to this"
    return f"{AIMS[aim]}. {calibration['sentence'].rstrip('.')}"
