"""Judging one unseen test: is the AUC off its target by more than chance, and how large a difference could hide?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnndelete.metrics.ranking import auc_variance

#: Differences of the AUC below this are called none, and a test that misses larger ones than VAGUE decides nothing.
TOLERANCE, VAGUE = 0.03, 0.15
#: Fewer deleted elements than this decide nothing, whatever their scores; a smaller share with a match is pointed out.
FEW, MATCHED = 12, 0.8
#: How far the AUC of an attack, which matches nothing, may be off without taking a good verdict away.
ATTACK = 0.1
#: Bits by which scores of deleted elements may be further from the reference's than sampling explains, and how many times
#: further than those of other elements, before ranks that agree are doubted: two trainings lie apart anyway.
SPREAD, BESIDE = 0.1, 3.0
#: Bits by which other elements may be further from the reference's than sampling explains before the reference is doubted.
OTHER = 0.2

NEVER_SEEN, TRAINED = "data the model never saw", "a model trained without the data"


@dataclass(frozen=True)
class Difference:
    """An AUC minus its target, and the half-width of its 95% interval towards no difference and away from it."""

    off: float
    error: float
    other: float

    @classmethod
    def of(cls, test: Mapping[str, Any]) -> Difference:
        """Off the reference's AUC, with the error of that difference; or off 0.5, with the interval of the AUC.

        >>> Difference.of({"after": {"auc": 0.6, "low": 0.52, "high": 0.7}})
        Difference(off=0.1, error=0.08, other=0.1)
        """
        after = judged(test)
        if test.get("reference") is not None:
            return cls(test["gap"], test["gap_error"], test["gap_error"])
        more = (_told_apart(test) or 0.5) - 0.5  # so far a model could be that knows the surroundings alone
        off, below, above = (
            round(v, 9)
            for v in (
                after["auc"] - 0.5,
                math.hypot(after["auc"] - after["low"], more),
                math.hypot(after["high"] - after["auc"], more),
            )
        )
        return cls(off, below, above) if off > 0 else cls(off, above, below)

    @property
    def clear(self) -> bool:
        """Whether no difference at all lies outside the interval."""
        return abs(self.off) > self.error

    @property
    def largest(self) -> float:
        """The largest true difference that the test could have missed."""
        return max(abs(self.off) + self.other, self.error - abs(self.off), TOLERANCE)


def judged(test: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures that decide: without a reference, those of edges compared by their surroundings where there are any.

    A reference is asked about the same edges, so that beside it nothing has to be made alike.
    """
    finely: Mapping[str, Any] = test.get("finely") or test
    after: Mapping[str, Any] = (test if test.get("reference") is not None else finely)["after"]
    return after


def _told_apart(test: Mapping[str, Any]) -> float | None:
    """How well deleted edges are told from unseen ones by their surroundings alone, where that decides without a reference."""
    value: float | None = (test.get("finely") or {}).get("told_apart") if test.get("reference") is None else None
    return value


def judge(test: dict[str, Any]) -> tuple[str, str]:
    """The verdict on one unseen test: by the reference's AUC where there is one, else by 0.5.

    >>> judge({"after": {"auc": 0.62, "low": 0.6, "high": 0.64, "se": 0.01, "deleted": 900}, "reference": None})[0]
    'under-forgotten'
    """
    after, reference = judged(test), test.get("reference")
    figures = f"AUC {_interval(after)}, against "
    told = _matched(after)
    if reference is None:
        figures += "0.5 for what was never seen"
        told += f" {test['finely']['how']}" if test.get("finely") else ""
    else:
        figures += f"{_interval(reference)} of the retrained model: {test['gap']:+.3f} ± {test['gap_error']:.3f}"
    if reference is None and test.get("unfair"):
        return "undecided", f"Without a reference this does not tell, since {test['unfair']}: {figures}.{told}"
    found = Difference.of(test)
    count = round(after["deleted"] * after.get("matched", 1.0))
    if count < FEW:
        return "undecided", f"{_too_few(after, count)} too few to tell: {figures}.{told}"
    # 0.5 has no error of its own, but an AUC that is truly 0.5 scatters by the standard error around it
    noise = 1.96 * after["se"] if reference is None else 0.0
    if found.clear and abs(found.off) > max(TOLERANCE, noise):
        word, how, rank = (
            ("under-forgotten", "above", "higher") if found.off > 0 else ("over-forgotten", "below", "lower")
        )
        said = f"Deleted elements score {how} matched unseen ones"
        aimed = (test.get("finely") or {}).get("aimed")
        if reference is None and aimed is not None and abs(after["auc"] - aimed) <= max(TOLERANCE, noise):
            said += (
                f", and calibration, which took part of that for chance, aimed at {aimed:.3f}; a reference would tell"
            )
            return "undecided", f"{said}: {figures}.{told}"
        if reference is not None:
            said = f"Among matched unseen elements deleted ones rank {rank} than in the retrained model"
        return word, f"{said}: {figures}.{told}"
    apart = _told_apart(test)
    if apart is not None:
        said = f"Deleted edges are of another kind than unseen ones (surroundings alone tell them apart, AUC {apart:.2f}), "
        said += "so that a model trained again may be as far from 0.5; a reference would tell"
        return "undecided", f"{said}: {figures}.{told}"
    if max(found.error, noise) > VAGUE:
        return "undecided", f"{_too_few(after, count)} too few to tell: {figures}.{told}"
    if found.clear:
        said = f"What differs ({found.off:+.3f}) is less than the {TOLERANCE:g} that counts"
    else:
        beside = "like matched unseen ones" if reference is None else "as they do for the retrained model"
        said = f"Deleted elements score {beside}, as far as this test can see"
    return "indistinguishable", f"{said}: {figures}.{told}"


def _too_few(after: Mapping[str, Any], count: int) -> str:
    """The side of a test that limits it: ``count`` deleted elements were compared, with unseen ones of their kind.

    >>> _too_few({"deleted": 446, "unseen": 5000, "beside": 7.2}, 400)
    '7 unseen elements of the kind of the deleted ones are'
    """
    every = after.get("unseen", count)
    held = round(after.get("beside", every))
    if count < FEW <= after["deleted"]:
        return f"Unseen elements of the kind of the deleted ones ({held:,}, for {count:,} of {after['deleted']:,}) are"
    if held >= count:
        return "1 deleted element is" if count == 1 else f"{count:,} deleted elements are"
    kind = " of the kind of the deleted ones" * (held < every)
    return f"1 unseen element{kind} is" if held == 1 else f"{held:,} unseen elements{kind} are"


def title(test: Mapping[str, Any]) -> str:
    """What the headline may claim of a test that saw no difference: from what, and how much it could have missed."""
    found, beside = Difference.of(test), NEVER_SEEN if test.get("reference") is None else TRAINED
    if found.clear:
        return f"Next to no difference (below {TOLERANCE:g}) from {beside}"
    return f"No difference seen from {beside} (could have missed up to ±{found.largest:.2f})"


def spread_otherwise(distance: Mapping[str, Any]) -> str | None:
    """What speaks against ranks that agree: scores of deleted elements that are spread otherwise than the reference's.

    >>> parts = {"deleted": {"after": 0.33, "floor": 0.03}, "unseen": {"after": 0.04, "floor": 0.04}}
    >>> (spread_otherwise({"available": True, "js": parts}) or "")[:41]
    'their scores are spread otherwise than th'
    """
    deleted, others = _beyond_sampling(distance)
    if deleted <= max(SPREAD, BESIDE * others):
        return None
    mine = distance["js"]["deleted"]
    return (
        f"their scores are spread otherwise than the retrained model's: {mine['after']:.2f} bits apart, {mine['floor']:.2f} by "
        f"sampling alone, and at most {others:.2f} beyond that for other elements"
    )


def other_training(distance: Mapping[str, Any]) -> str | None:
    """What is said of a reference that answers otherwise about elements that nobody deleted.

    >>> parts = {"deleted": {"after": 0.7, "floor": 0.03}, "remaining": {"after": 0.7, "floor": 0.01}}
    >>> (other_training({"available": True, "js": parts}) or "")[:44]
    'The reference answers otherwise about elemen'
    """
    others = _beyond_sampling(distance)[1]
    if others <= OTHER:
        return None
    return (
        f"The reference answers otherwise about elements that were not deleted too ({others:.2f} bits beyond what sampling "
        "gives): two trainings of this model may differ so much by chance (another seed tells), they were trained "
        "differently, or the deletion changed much else; a comparison with it says less."
    )


def trend_told(trend: Mapping[str, Any]) -> str | None:
    """What is said where the trend attack finds deleted edges much better, or worse, than in the retrained model."""
    after, reference = ((trend.get(name) or {}).get("auc") for name in ("after", "reference"))
    if not trend.get("available") or after is None or reference is None or abs(after - reference) <= ATTACK:
        return None
    return (
        f"The trend attack finds deleted edges with AUC {after:.3f}, against {reference:.3f} for the retrained model."
    )


def opposite(word: str, ranking: Mapping[str, Any]) -> str | None:
    """What is said where remaining edges and unseen ones tell opposite stories of the deleted ones beside Retrain's."""
    after, reference = ((ranking.get("auroc") or {}).get(name) for name in ("after", "reference"))
    if after is None or reference is None:
        return None
    off = after - reference  # above: deleted edges lie lower among remaining ones than they do there
    if not (off < -ATTACK if word == "over-forgotten" else off > ATTACK and word == "under-forgotten"):
        return None
    return (
        f"Among remaining edges deleted ones rank {'higher' if off < 0 else 'lower'} than in the retrained model (AUROC "
        f"{after:.3f}, there {reference:.3f}): the two comparisons point opposite ways, and the unseen edges may be unlike the "
        "deleted ones."
    )


def _beyond_sampling(distance: Mapping[str, Any]) -> tuple[float, float]:
    """Bits between a model and the reference beyond what sampling gives: of deleted elements, and the most of any others."""
    parts = (distance.get("js") or {}) if distance.get("available") else {}
    over = {group: max(part["after"] - part["floor"], 0.0) for group, part in parts.items() if "after" in part}
    return over.pop("deleted", 0.0), max(over.values(), default=0.0)


def attacked(membership: Mapping[str, Any]) -> tuple[str, str] | None:
    """The word and the reason where the membership attack tells deleted from test elements better or worse than it should.

    Beside a reference it should do as well as there. Alone it should not tell at all, but it compares elements of any kind,
    so that then only the tests can be said to disagree.
    """
    if not membership.get("available") or membership["counts"]["deleted"] < FEW:
        return None
    after, reference = membership["after"]["auc"], (membership.get("reference") or {}).get("auc")
    if reference is None and membership["elements"] == "edges of deleted nodes":
        return None  # these carry messages, which test edges do not
    sizes = membership["counts"]["deleted"], membership["counts"]["test"]
    error = auc_variance(after, *sizes) + (0.0 if reference is None else auc_variance(reference, *sizes))
    off = after - (0.5 if reference is None else reference)
    if abs(off) <= max(ATTACK, 1.96 * math.sqrt(error)):
        return None
    beside = "0.5 where it cannot tell" if reference is None else f"{reference:.3f} for the retrained model"
    said = f"the membership attack tells them from test elements with AUC {after:.3f}, against {beside}"
    return "undecided" if reference is None else "under-forgotten" if off > 0 else "over-forgotten", said


def apart(test: Mapping[str, Any]) -> str | None:
    """What is said where deleted edges of one kind rank otherwise than Retrain's, which the average over all of them hides.

    >>> kind = {"kind": "an end has no edge left", "deleted": 90, "unseen": 80, "after": 0.99, "reference": 0.6}
    >>> (apart({"kinds": [kind]}) or "")[:30]
    'Where an end has no edge left '
    """
    for kind in test.get("kinds") or ():
        after, reference, sizes = kind.get("after"), kind.get("reference"), (kind["deleted"], kind["unseen"])
        if after is None or reference is None or min(sizes) < FEW:
            continue
        error = 1.96 * math.sqrt(auc_variance(after, *sizes) + auc_variance(reference, *sizes))
        if abs(after - reference) > max(ATTACK, error):
            return (
                f"Where {kind['kind']} ({sizes[0]:,} of the deleted edges) the AUC is {after:.3f}, and {reference:.3f} for the "
                "retrained model: this kind is not forgotten as it would be by training again."
            )
    return None


def _interval(test: Mapping[str, Any]) -> str:
    return f"{test['auc']:.3f} (95% interval {test['low']:.3f} to {test['high']:.3f})"


def _matched(after: Mapping[str, Any]) -> str:
    share = after.get("matched", 1.0)
    if share >= MATCHED:
        return ""
    return f" Only {100 * share:.1f}% of the deleted elements found unseen ones of their kind and were tested."
