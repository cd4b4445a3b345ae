"""What a calibration *as if retrained* says of itself, in sentences."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnndelete.methods.gnndelete.calibration import Trial


@dataclass(frozen=True)
class Done:
    """What a deletion does at lam 0, in words: the doing of it, with what done, and how nodes look when presented again."""

    doing: str = "Cutting the graph alone"
    done: str = "the graph cut alone"
    again: str = "as they were"

    @classmethod
    def of(cls, kinds: Collection[str], given: bool = False) -> Done:
        """For elements of these kinds; ``given``: the rows of ends left alone are given, too.

        >>> Done.of(["labels"]).done, Done.of(["edges", "labels"]).done
        ('the labels taken out of training and nothing else', 'the graph cut alone')
        """
        if given:
            return cls(
                "Cutting the graph and giving the rows of ends left alone",
                "the graph cut and the rows of ends left alone given",
            )
        if set(kinds) == {"labels"}:
            return cls("Taking the labels out of training", "the labels taken out of training and nothing else")
        if set(kinds) == {"features"}:
            return cls("Putting in the new features alone", "the new features alone", "with the old ones")
        if set(kinds) == {"features", "labels"}:
            return cls("Taking out features and labels", "features and labels taken out and nothing else")
        return cls()


def already(trial: Trial, at: Done) -> str:
    figures = f"AUC {trial.auc:.3f} on validation data (standard error {trial.se:.3f}), so lam is 0"
    if trial.vague:
        return f"With {at.done}, deleted elements cannot be told from unseen ones: {figures}.{_weak(trial)}"
    return f"{at.doing} already makes deleted elements {_met(False)}: {figures}."


def _weak(trial: Trial) -> str:
    """A caveat where the sample is too small to lean on."""
    if trial.se is None or not trial.vague:
        return ""
    return f" The sample is small: an AUC within ±{1.96 * trial.se:.2f} of this one would say the same."


def too_few(trial: Trial) -> str:
    """All that can be said where any AUC would have been called the same."""
    return (
        f"The sample is so small that it shows nothing (AUC {trial.auc:.3f} of deleted against unseen elements on validation "
        f"data, standard error {trial.se:.3f}), so lam is 0."
    )


def as_much(trial: Trial, at: Done, goal: float) -> str:
    """Where some of the nodes are still learned, so that training again would keep a part of what lies above 0.5."""
    figures = (
        f"AUC {trial.auc:.3f} of these nodes, presented again {at.again}, against unseen nodes (standard error "
        f"{trial.se:.3f}), so lam is 0.{_weak(trial)}{stays(goal)}"
    )
    if trial.vague:
        return f"With {at.done}, deleted elements cannot be told from what training again would leave: {figures}"
    return f"{at.doing} leaves no more than training again would: {figures}"


def reached_by(first: Trial, best: Trial, at: Done, moved: bool) -> str:
    return (
        f"lam {best.lam:.3g} makes deleted elements {_met(moved)}: AUC {best.auc:.3f} against unseen ones, on validation data "
        f"(standard error {first.se:.3f}), {first.auc:.3f} with {at.done}.{_weak(first)}"
    )


def unreached_by(first: Trial, best: Trial, at: Done, moved: bool) -> str:
    return (
        f"No lam that was tried makes deleted elements {_met(moved)} at a bearable cost: lam {best.lam:.3g}, the "
        f"weakest of those that come nearest, leaves an AUC of {best.auc:.3f} on validation data ({first.auc:.3f} with "
        f"{at.done}). Train again to forget as much as retraining does."
    )


def _met(moved: bool) -> str:
    return "come within a standard error of the aim" if moved else "score like unseen ones"


def stays(goal: float) -> str:
    if goal <= 0.5:
        return ""
    return f" The labels of nodes that lost features are still learned, so that the aim was {goal:.3f} and not 0.5."
