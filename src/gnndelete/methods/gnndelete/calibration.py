"""Choosing lam without retraining: the search for *as if retrained*, and the one for *as if nonexistent*.

Let A(lam) be the unseen AUC of deleted elements on validation data, SE its standard error, and U(lam) the validation score.

*As if retrained* looks for A(lam) = target, which is 0.5 (deleted elements score like unseen ones), or more where retraining
would keep a part of what lies above it:

1. Measure lam 0, where the graph is only cut. If A(0) <= target + SE, lam is 0.
2. Try `FIRST_LAM`, and go up along the line through the last two trials until A is below the target.
3. Between the last trial above and the first below, go where the line between them meets the target.
4. Stop within SE/4 of the target, or after `MAX_TRIALS`. A lam that costs too much or marks the nodes of the deletion counts as
   too strong. Take the nearest.
5. Where none is near enough, retraining is advised, and only what is free is taken: lam 0, or one that costs nothing.

*As if nonexistent* looks for the largest lam with U(0) - U(lam) <= budget, and takes a weaker one where that forgets nearly
as much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from gnndelete.methods.gnndelete.forgetting_score import ForgettingScore, Trial

Aim = Literal["retrained", "nonexistent"]
Status = Literal["reached", "already", "unreached", "fallback", "rehearsed"]
Measure = Callable[[float], Trial]

#: Limit on the cost of a search. With the base pass, no search costs more than eight deletions at a fixed lam.
MAX_TRIALS = 7

#: First lam that is tried. On 24 cells (DBLP and PubMed, GCN and GIN on features) calibration ended between .01 and .05.
#: Another value only costs trials.
FIRST_LAM = 0.03

#: Largest lam that is tried. Beyond it nothing of the endpoints is left, and their other edges go with the deleted ones; where
#: that costs nothing, as for nodes and labels, the second.
LARGEST_LAM, FREE_LAM = 0.8, 1.0

#: The lam that is taken where the aim cannot be measured: `FIRST_LAM` for as if retrained, and the paper's value.
FALLBACK_LAM: dict[Aim, float] = {"retrained": FIRST_LAM, "nonexistent": 0.5}

#: Loss of the validation score past which no lam is taken and retraining is advised, and on the validation edges that touch the
#: deletion, where damage hardly shows in the score of all. A choice, not tuned; without it, a model that remembers too well is
#: destroyed to reach 0.5.
RUINOUS, RUINOUS_NEAR = 0.03, 0.1

#: A smaller loss than this counts as none.
FREE = 0.002

#: How far the spread of their scores, the length of their rows, or their likeness to neighbours may tell the ends of deleted
#: edges, beyond lam 0. Set on four generated graphs: at .06 boosted trees tell the ends by .05 more than at lam 0. Without it,
#: models with a vector per node count as forgotten when ends shrink.
MARK = 0.06

#: As if nonexistent, a unit of the validation score must buy so much AUC, and these shares of lam are tried instead. Without
#: it, small requests, whose elements soon lie below all others, spend the whole budget on nothing.
AUC_PER_UTILITY, WEAKER = 10.0, (0.75, 0.5)

#: Standard error of the AUC past which "within a standard error" says little, and twice the error is allowed.
VAGUE_SE = 0.05

#: A request with fewer scored elements takes the rehearsed lam: the standard error of its AUC would be above `VAGUE_SE`.
SMALL_REQUEST = 30

#: A rehearsal deletes this share of the training elements, at the least and at the most so many: for a standard error of .02.
REHEARSED_SHARE, REHEARSED_LEAST, REHEARSED_MOST = 0.025, 60, 400

#: What a deletion does at lam 0, by the kinds that it deletes; where anything else is deleted, too, the graph is cut.
ACTIONS: dict[frozenset[str], str] = {
    frozenset({"labels"}): "removing the labels from training",
    frozenset({"features"}): "replacing the features",
    frozenset({"features", "labels"}): "removing features and labels",
}
CUTTING = "cutting the graph"
CUTTING_AND_RESETTING = "cutting the graph and resetting isolated nodes"


@dataclass(frozen=True)
class Strengths:
    """The lam that a search tries first and last; where a strong one costs nothing, the second last."""

    first: float = FIRST_LAM
    largest: float = LARGEST_LAM
    free: float = FREE_LAM


#: Those of linear maps, and of corrections of rows, where lam 0.5 takes out once what a fit says of the deleted edges.
MAPS, ROWS = Strengths(), Strengths(0.65, 0.9, 0.95)


@dataclass(frozen=True)
class Calibration:
    """The lam that was chosen, why, and every trial on the way."""

    aim: Aim
    lam: float
    status: Status
    sentence: str
    trials: list[Trial]
    budget: float | None = None
    retrain_recommended: bool = False
    target: float | None = None
    rows: bool = False  # whether lam is that of corrected rows


def choose_lam(
    aim: Aim, measure: Measure, score: ForgettingScore, budget: float, action: str, strengths: Strengths = MAPS
) -> Calibration:
    """The lam of an aim; a fixed one where the aim cannot be measured.

    Args:
        aim: What deleted elements should look like.
        measure: Gives the trial of one lam.
        score: What a trial measures.
        budget: The loss of the validation score that is accepted as if nonexistent.
        action: What is done at lam 0, in words.
        strengths: Which lam are tried.
    """
    noun, missing = "element" if score.task is None else score.task.noun, score.missing
    if aim == "nonexistent":
        can_validate = score.task is not None and score.task.validates(score.data)
        missing = "" if can_validate else "there is no validation data to measure a loss of utility on"
    if missing:
        lam = FALLBACK_LAM[aim] if strengths is MAPS else strengths.first
        return Calibration(aim, lam, "fallback", f"lam was not calibrated, so {lam:g} was taken: {missing}.", [])
    first = measure(0.0)
    if first.utility is not None and score.chance is not None and first.utility <= score.chance:
        text = (
            "lam was not calibrated and stays 0: on validation data the model is no better than chance (score "
            f"{first.utility:.3f}), so that neither forgetting nor its cost can be judged. Validation data that training never "
            "contrasts may be the cause."
        )
        return Calibration(aim, 0.0, "fallback", text, [first])

    def measured(lam: float) -> Trial:
        return measure(lam) if lam else first

    if aim == "nonexistent":
        found = as_nonexistent(measured, budget, noun, strengths)
    else:
        found = as_retrained(measured, score.kept, noun, action, strengths)
    if score.corrected is not None:
        found = replace(found, sentence=_corrected_sentence(found, score.corrected.numel()))
    return replace(found, sentence=" ".join([found.sentence, *score.remarks()]))


def rehearsed(calibration: Calibration, count: int, noun: str) -> Calibration:
    """The lam of a rehearsal, for a request that is too small to be calibrated by itself."""
    text = (
        f"lam {calibration.lam:.3g} was rehearsed: the request is too small to calibrate by, and this is the lam that "
        f"{count:,} training {noun}s needed in a trial deletion."
    )
    return replace(calibration, status="rehearsed", sentence=text, trials=[])


def nothing_learned(aim: Aim) -> Calibration:
    """No lam where the model was trained on nothing of what was deleted."""
    text = "The model learned from nothing that was deleted, so no operator was added."
    return Calibration(aim, 0.0, "already", text, [])


def as_retrained(
    measure: Measure,
    kept: float = 0.0,
    noun: str = "element",
    action: str = CUTTING,
    strengths: Strengths = MAPS,
) -> Calibration:
    """The lam at which deleted elements score like unseen ones.

    Args:
        measure: Gives the trial of one lam.
        kept: Of what the AUC at lam 0 is above 0.5, the share that retraining would keep, too.
        noun: What an element is called.
        action: What is done at lam 0, in words.
        strengths: Which lam are tried.

    >>> search = as_retrained(lambda lam: Trial(lam, auc=0.56 - lam, se=0.01, utility=0.9))
    >>> search.status, round(search.lam, 2)
    ('reached', 0.06)
    """
    first = measure(0.0)
    assert first.auc is not None
    assert first.se is not None
    target = 0.5 + kept * max(first.auc - 0.5, 0.0)
    if first.auc <= target + (2 if first.se > VAGUE_SE else 1) * first.se:
        sentence = _retrained_sentence("already", first, first, target, noun, action)
        return Calibration("retrained", 0.0, "already", sentence, [first], target=target)
    trials = _search(measure, first, target, strengths)
    bearable = [trial for trial in trials if _is_bearable(trial, first)]
    best = min(bearable, key=lambda trial: _distance(trial, target))
    status: Status = "reached" if _distance(best, target) <= first.se else "unreached"
    if status == "unreached":  # what costs something, or the sample cannot show to be nearer, is not worth it
        free = [trial for trial in bearable if trial.loss(first) <= FREE]
        near_enough = min(_distance(trial, target) for trial in free) + first.se / 2
        best = min((trial for trial in free if _distance(trial, target) <= near_enough), key=lambda trial: trial.lam)
    return Calibration(
        "retrained",
        best.lam,
        status,
        _retrained_sentence(status, first, best, target, noun, action),
        trials,
        retrain_recommended=status == "unreached",
        target=target,
    )


def _distance(trial: Trial, target: float) -> float:
    return abs((trial.auc or 0.0) - target)


def _is_bearable(trial: Trial, first: Trial) -> bool:
    """Whether the model still does its task, overall and around the deletion, and the deletion leaves no mark."""
    return trial.loss(first) <= RUINOUS and trial.loss_near(first) <= RUINOUS_NEAR and (trial.mark or 0.0) <= MARK


def _largest(trial: Trial, first: Trial, strengths: Strengths) -> float:
    """The largest lam that is worth a trial: more than usual only where a strong one costs nothing."""
    return strengths.free if trial.lam >= strengths.largest and trial.loss(first) <= FREE else strengths.largest


def _search(measure: Measure, first: Trial, target: float, strengths: Strengths) -> list[Trial]:
    """Trials from lam 0, whose AUC is above the target, until one is close or their number is spent."""
    trials, low, high, lam = [first], first, None, strengths.first
    while len(trials) < MAX_TRIALS:
        trial = measure(lam)
        trials.append(trial)
        is_bearable = _is_bearable(trial, first)
        if is_bearable and _distance(trial, target) <= (first.se or 0.0) / 4:
            break
        if is_bearable and (trial.auc or 0.0) > target:
            low = trial
        else:
            high = trial
        if high is None and low.lam >= _largest(low, first, strengths):
            break
        lam = (
            _beyond(trials, target, _largest(low, first, strengths))
            if high is None
            else _between(low, high, first, len(trials), target)
        )
    return trials


def _beyond(trials: list[Trial], target: float, largest: float) -> float:
    """Where the line through the last two trials meets the target, and a tenth past it, to have it between two trials."""
    before, last = trials[-2:]
    assert before.auc is not None
    assert last.auc is not None
    slope = (before.auc - last.auc) / max(last.lam - before.lam, 1e-9)
    lam = last.lam + 1.1 * (last.auc - target) / slope if slope > 0 else 1.0
    return min(max(lam, 1.5 * last.lam), largest)


def _between(low: Trial, high: Trial, first: Trial, trials: int, target: float) -> float:
    """Where the line between two trials meets the target; after four trials, half way between that and the middle."""
    assert low.auc is not None
    assert high.auc is not None
    if not _is_bearable(high, first):  # too costly rather than too strong: the line says nothing about that
        return (low.lam + high.lam) / 2
    share = (low.auc - target) / (low.auc - high.auc)
    if trials > 4:  # a curved relation would stall the search
        share = (share + 0.5) / 2
    return low.lam + min(max(share, 0.05), 0.95) * (high.lam - low.lam)


def _retrained_sentence(status: Status, first: Trial, best: Trial, target: float, noun: str, action: str) -> str:
    """What a search *as if retrained* found."""
    se = first.se or 0.0
    measured = f"unseen AUC {best.auc:.3f} ± {se:.3f} on validation data"
    if status == "already" and 1.96 * se >= 0.5:  # every AUC lies within the error
        return f"The sample is too small to show anything ({measured}), so lam is 0."
    goal = "unseen ones" if target <= 0.5 else "after retraining"
    if status == "already":
        start, enough = action[0].upper() + action[1:], f"is enough: deleted {noun}s score like unseen ones"
        text = (
            f"{start} {enough if target <= 0.5 else 'leaves no more than retraining would'} ({measured}), so lam is 0."
        )
    elif status == "reached":
        text = f"lam {best.lam:.3g} makes deleted {noun}s score like {goal}: {measured}, {first.auc:.3f} after {action} alone."
    else:
        free = "lam stays 0" if not best.lam else f"lam {best.lam:.3g} is taken, which costs nothing"
        text = (
            f"No lam makes deleted {noun}s score like {goal} without harm to the model or a mark on its nodes, so {free}: "
            f"{measured}, {first.auc:.3f} after {action} alone. Regrow or retrain to forget them."
        )
    if status == "reached" and best.loss(first) > FREE:
        text += f" It costs {_cost(best, first)}."
    if se > VAGUE_SE:
        text += f" The sample is small: any AUC within ±{1.96 * se:.2f} of this one would say the same."
    if target > 0.5:
        text += f" The target is {target:.3f}, not 0.5: {noun}s that lost features are still trained on their labels."
    return text


def _corrected_sentence(found: Calibration, count: int) -> str:
    """What a search for corrected labels found. Its AUC is that of training nodes above corrected ones."""
    best = min(found.trials, key=lambda trial: abs(trial.lam - found.lam))
    what = f"the {count:,} corrected label{'s' * (count != 1)}" if count != 1 else "the corrected label"
    measured = f"training nodes of the same class score above them with AUC {best.auc:.3f}; 0.5 is alike"
    if found.status == "already":
        return f"The model answers by {what} already, so lam is 0: {measured}."
    if found.status == "reached":
        first = f"{found.trials[0].auc:.3f} at lam 0"
        return f"lam {found.lam:.3g} makes the model answer by {what} as by others: {measured}, {first}."
    text = f"No lam makes the model answer by {what} as by others without harm, so lam {found.lam:.3g} is taken: {measured}."
    return f"{text} Retrain to learn them."


def _cost(best: Trial, first: Trial) -> str:
    """What a trial costs, in words."""
    score = max((first.utility or 0.0) - (best.utility or 0.0), 0.0)
    ranks = f" and {max(best.lost_mrr(first), 0.0):.1%} of the mean reciprocal rank in lists"
    return f"{score:.4f} of the validation score{'' if best.mrr is None else ranks}"


def as_nonexistent(measure: Measure, budget: float, noun: str = "element", strengths: Strengths = MAPS) -> Calibration:
    """The strongest lam that costs at most ``budget`` of the validation score.

    Args:
        measure: Gives the trial of one lam.
        budget: The loss of the validation score that is accepted.
        noun: What an element is called.
        strengths: Which lam are tried.

    >>> search = as_nonexistent(lambda lam: Trial(lam, utility=0.9 - 0.02 * lam), budget=0.01)
    >>> search.status, round(search.lam, 1)
    ('reached', 0.5)
    >>> search = as_nonexistent(lambda lam: Trial(lam, auc=max(0.5 - 2 * lam, 0.01), utility=0.9 - 0.02 * lam), budget=0.01)
    >>> search.status, round(search.lam, 2)
    ('reached', 0.34)
    """
    first = measure(0.0)
    trials, low, high = [first], first, None
    lam = strengths.largest
    while len(trials) < MAX_TRIALS - (0 if first.auc is None else len(WEAKER)):
        trial = measure(lam)
        trials.append(trial)
        loss = trial.loss(first)
        if loss <= budget:
            low = trial
        else:
            high = trial
        if high is None and lam < _largest(trial, first, strengths):
            lam = strengths.free
            continue
        if high is None or (low is trial and budget - loss <= budget / 20):
            break
        # the loss is convex in lam as a rule: a step between the line and the middle
        losses = max(low.loss(first), 0.0), max(high.loss(first), 0.0)
        line = (budget - losses[0]) / max(losses[1] - losses[0], 1e-12)
        lam = low.lam + min(max((line + 0.5) / 2, 0.1), 0.9) * (high.lam - low.lam)
    best = _worth_its_cost(measure, first, low, trials)
    if best.lam == 0:
        text = f"No lam that was tried costs less than the budget of {budget:g}, so lam is 0."
        return Calibration("nonexistent", 0.0, "unreached", text, trials, budget)
    why = f"is the strongest within the budget of {budget:g}"
    if best is not low:
        why = f"forgets nearly as much as the budget of {budget:g} would buy (lam {low.lam:.3g})"
    text = f"lam {best.lam:.3g} {why}; it costs {_cost(best, first)}."
    if best.auc is not None and best.auc > 0.5 - (best.se or 0.0):
        text += (
            f" That is not enough: deleted {noun}s score as high as unseen ones or higher (unseen AUC {best.auc:.3f} ± "
            f"{best.se or 0.0:.3f} on validation data). A larger budget may reach it."
        )
        return Calibration("nonexistent", best.lam, "unreached", text, trials, budget)
    text += f" Deleted {noun}s score lower than unseen ones, and anyone who knows typical scores can recognise them."
    return Calibration("nonexistent", best.lam, "reached", text, trials, budget)


def _worth_its_cost(measure: Measure, first: Trial, strongest: Trial, trials: list[Trial]) -> Trial:
    """The strongest lam, or a weaker one that forgets nearly as much for less."""

    def worth(trial: Trial) -> float:
        return -(trial.auc or 0.0) - AUC_PER_UTILITY * max(trial.loss(first), 0.0)

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
