"""Choosing lam without training again: *as if retrained*, or *as if nonexistent* within a budget of utility.

Both searches ask one function, ``measure(lam)``, a few times; what it measures is taken on validation data only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gnndelete.methods.gnndelete import sentences
from gnndelete.methods.gnndelete.sentences import Done

Aim = Literal["retrained", "nonexistent"]
Status = Literal["reached", "already", "unreached", "fallback"]

#: With the pass of the base model and those of peers before them, no search costs more than ten deletions at a fixed lam.
TRIALS = 7

#: Where a search begins: what link models that know nodes by their features need lies around it.
START = 0.03

#: Beyond this nothing of the endpoints is left, and their other edges go with the deleted ones.
STRONGEST = 0.8

#: Weight of forgetting where nothing can be measured: inside the range that calibration finds on link models.
FALLBACK = 0.03

#: Loss on validation data past which a calibrated result advises to train again, and past which no lam is taken.
COSTLY, RUINOUS = 0.03, 0.05

#: Loss on the validation edges that touch the deletion past which no lam is taken: in the score of all it hardly shows.
RUINOUS_NEAR = 0.1

#: How much less of the AUC one unit of the validation score has to buy, and which weaker lam are tried for that.
RATE, WEAKER = 10.0, (0.75, 0.5)

#: Standard error of the AUC past which being within it says little.
VAGUE = 0.05


@dataclass(frozen=True)
class Trial:
    """What one lam gave on validation data; None where it cannot be measured."""

    lam: float
    auc: float | None = None  # deleted against matched unseen elements
    se: float | None = None
    utility: float | None = None
    near: float | None = None  # the same score on validation edges that touch the deletion

    @property
    def vague(self) -> bool:
        """Whether the sample is too small to lean on."""
        return self.se is not None and self.se > VAGUE

    @property
    def blind(self) -> bool:
        """Whether the sample is so small that every AUC lies within its error of 0.5."""
        return self.se is not None and 1.96 * self.se >= 0.5


@dataclass(frozen=True)
class Calibration:
    """The lam that was chosen, why, and every trial on the way."""

    aim: Aim
    lam: float
    status: Status
    sentence: str
    trials: tuple[Trial, ...] = ()
    budget: float | None = None
    retrain_recommended: bool = False
    target: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"trials": [asdict(trial) for trial in self.trials]}


Measure = Callable[[float], Trial]


def as_retrained(measure: Measure, kept: float = 0.0, at: Done | None = None) -> Calibration:
    """The lam at which deleted elements score like unseen ones: an AUC of 0.5, within its standard error.

    ``kept`` is the share of what lies above 0.5 with the graph cut alone that training again would keep too. ``at`` says
    in words what is done at lam 0; by default the graph is cut.

    >>> search = as_retrained(lambda lam: Trial(lam, auc=0.56 - lam, se=0.01, utility=0.9))
    >>> search.status, round(search.lam, 2)
    ('reached', 0.06)
    """
    first, at = measure(0.0), at or Done()
    assert first.auc is not None
    assert first.se is not None
    goal = 0.5 + kept * max(first.auc - 0.5, 0.0)
    enough = 2 * first.se if first.vague else first.se  # and has to show more
    if first.auc <= goal + enough:
        said = sentences.as_much(first, at, goal) if kept else sentences.already(first, at)
        sentence = sentences.too_few(first) if first.blind else said
        return Calibration("retrained", 0.0, "already", sentence, (first,), target=goal)
    trials = _searched(measure, first, goal)

    def distance(trial: Trial) -> float:
        return abs((trial.auc or 0.0) - goal)

    bearable = [trial for trial in trials if _bearable(first, trial)]
    best = min(bearable, key=distance)
    reached = distance(best) <= first.se
    if not reached:  # what the sample cannot show to be nearer is not worth its cost
        near = distance(best) + first.se / 2
        best = min((trial for trial in bearable if distance(trial) <= near), key=lambda trial: trial.lam)
    lost = _lost(first, best)
    elsewhere = kept > 0 and goal > 0.5  # then it is not like unseen ones that they are to score
    sentence = (sentences.reached_by if reached else sentences.unreached_by)(first, best, at, elsewhere)
    if lost > COSTLY:
        sentence += f" It costs {lost:.3f} of the validation score{': training again is advised' * reached}."
    sentence += sentences.stays(goal) if kept else ""
    status: Status = "reached" if reached else "unreached"
    return Calibration("retrained", best.lam, status, sentence, tuple(trials), None, not reached or lost > COSTLY, goal)


def _searched(measure: Measure, first: Trial, goal: float) -> list[Trial]:
    """Trials at ever better lam from ``first``, whose AUC lies above the goal, until one is close or their number is spent."""
    assert first.se is not None
    trials, close = [first], first.se / 4
    low, high, lam = first, None, START
    while len(trials) < TRIALS:
        trial = measure(lam)
        assert trial.auc is not None
        trials.append(trial)
        payable = _bearable(first, trial)
        if payable and abs(trial.auc - goal) <= close:
            break
        if payable and trial.auc > goal:
            low = trial
        else:
            high = trial
        if high is None:
            if low.lam >= STRONGEST:
                break
            lam = min(max(_beyond(trials, goal), 1.5 * low.lam), STRONGEST)
        else:
            lam = _between(first, low, high, trials, goal)
    return trials


def _bearable(first: Trial, trial: Trial) -> bool:
    """Whether the model still does its task, on the whole and around the deletion."""
    near = 0.0 if first.near is None or trial.near is None else first.near - trial.near
    return _lost(first, trial) <= RUINOUS and near <= RUINOUS_NEAR


def _lost(first: Trial, trial: Trial) -> float:
    return 0.0 if first.utility is None or trial.utility is None else first.utility - trial.utility


def as_nonexistent(measure: Measure, budget: float) -> Calibration:
    """The strongest lam that costs at most ``budget`` of the validation score at lam 0, where no operator is added.

    A weaker one is taken where the rest of the budget would buy next to nothing: deleted elements lie below nearly all
    unseen ones already.

    >>> search = as_nonexistent(lambda lam: Trial(lam, utility=0.9 - 0.02 * lam), budget=0.01)
    >>> search.status, round(search.lam, 1)
    ('reached', 0.5)
    >>> search = as_nonexistent(lambda lam: Trial(lam, auc=max(0.5 - 2 * lam, 0.01), utility=0.9 - 0.02 * lam), budget=0.01)
    >>> search.status, round(search.lam, 2)
    ('reached', 0.34)
    """
    first = measure(0.0)
    assert first.utility is not None
    trials, low, high = [first], first, None
    lam = STRONGEST
    while len(trials) < TRIALS - (0 if first.auc is None else len(WEAKER)):
        trial = measure(lam)
        assert trial.utility is not None
        trials.append(trial)
        lost = first.utility - trial.utility
        if lost <= budget:
            low = trial
        else:
            high = trial
        if high is None or (low is trial and budget - lost <= budget / 20):
            break
        lam = _within(first, low, high, budget)
    strongest, low = low, _worth_it(measure, first, low, trials)
    lost = first.utility - (low.utility or 0.0)
    if low.lam == 0:
        sentence = f"No lam that was tried stays within the budget of {budget:g}, so that lam is 0."
        return Calibration("nonexistent", 0.0, "unreached", sentence, tuple(trials), budget)
    why = f"is the strongest that stays within the budget of {budget:g}"
    if low is not strongest:
        why = f"does nearly what the budget of {budget:g} would buy (lam {strongest.lam:.3g})"
    sentence = (
        f"lam {low.lam:.3g} {why}: it costs {max(lost, 0.0):.4f} of the validation score. Deleted elements are pushed down and "
        "can be recognised by that."
    )
    return Calibration("nonexistent", low.lam, "reached", sentence, tuple(trials), budget)


def _worth_it(measure: Measure, first: Trial, strongest: Trial, trials: list[Trial]) -> Trial:
    """The strongest lam, or a weaker one that forgets nearly as much and costs less: RATE says which is worth more."""

    def worth(trial: Trial) -> float:
        return -(trial.auc or 0.0) - RATE * max(_lost(first, trial), 0.0)

    best = strongest
    if best.auc is None or not best.lam:
        return best
    for share in WEAKER:
        trial = measure(share * strongest.lam)
        trials.append(trial)
        if worth(trial) <= worth(best):
            break
        best = trial
    return best


def fallback(aim: Aim, reason: str, lam: float = FALLBACK) -> Calibration:
    """A stated lam where the aim cannot be measured."""
    sentence = f"lam was not calibrated, since {reason}; {lam:g} was taken instead."
    return Calibration(aim, lam, "fallback", sentence)


def nothing_learned(aim: Aim) -> Calibration:
    """No lam where the model was trained on nothing of what was deleted."""
    sentence = "The model has learned from nothing of what was deleted, so that no operator was added."
    return Calibration(aim, 0.0, "already", sentence)


def _between(first: Trial, low: Trial, high: Trial, trials: list[Trial], goal: float) -> float:
    """Where a straight line through the bracket meets the goal; the middle where such lines keep missing on one side."""
    assert low.auc is not None
    assert high.auc is not None
    if not _bearable(first, high):  # too dear rather than too strong: the line says nothing about that
        return (low.lam + high.lam) / 2
    share = (low.auc - goal) / (low.auc - high.auc)
    if len(trials) > 4:
        share = (share + 0.5) / 2
    return low.lam + min(max(share, 0.05), 0.95) * (high.lam - low.lam)


def _beyond(trials: list[Trial], goal: float) -> float:
    """Where the line through the last two trials meets the goal, and a little past it, to have it between two trials."""
    before, last = trials[-2], trials[-1]
    assert before.auc is not None
    assert last.auc is not None
    slope = (before.auc - last.auc) / max(last.lam - before.lam, 1e-9)
    return last.lam + 1.1 * (last.auc - goal) / slope if slope > 0 else 1.0


def _within(first: Trial, low: Trial, high: Trial, budget: float) -> float:
    """Where the loss, a convex function of lam as a rule, meets the budget: a step between the line and the middle."""
    assert first.utility is not None
    losses = [max(first.utility - (trial.utility or 0.0), 0.0) for trial in (low, high)]
    line = (budget - losses[0]) / max(losses[1] - losses[0], 1e-12)
    return low.lam + min(max((line + 0.5) / 2, 0.1), 0.9) * (high.lam - low.lam)
