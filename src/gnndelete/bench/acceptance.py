"""Four questions that the results as a whole must answer, computed from the rows of the store alone.

Does ``GNNDelete.paper()`` repeat the paper? Is one setting above the paper everywhere? How far is calibration from
Retrain? How much faster than Retrain is a deletion?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gnndelete.bench import published as paper
from gnndelete.bench.caveats import calibrated_apart, other_bases, stated
from gnndelete.bench.gaps import Gap, gaps
from gnndelete.bench.gathered import Place, Plan, Result, alike, references, told_apart
from gnndelete.bench.published import MAIN
from gnndelete.bench.wording import model_name, model_titles

SCORES = ("test_auroc", "deleted_auroc")

#: Labels that the questions are about.
PAPER, CALIBRATED, BEST = "paper()", "calibrated", "nonexistent"

#: What was aimed at, fixed before the runs.
WITHIN = 0.03
AIMS = {"repeated": 0.80, "above": 0.90, "use_gap": 0.003, "unseen_gap": 0.015, "fixed": 200.0, "calibrated": 50.0}


@dataclass(frozen=True)
class Beside:
    """One cell of the paper's main tables: our means minus the paper's, in E_t and in E_d."""

    cell: Result
    ours: tuple[float, float]
    theirs: tuple[float, float]

    @property
    def differences(self) -> tuple[float, float]:
        return self.ours[0] - self.theirs[0], self.ours[1] - self.theirs[1]

    @property
    def within(self) -> bool:
        return all(abs(difference) <= WITHIN for difference in self.differences)

    @property
    def above(self) -> bool:
        return all(difference > 0 for difference in self.differences)


@dataclass(frozen=True)
class Speed:
    """How many times faster than Retrain the slowest cell of a dataset was."""

    dataset: str
    kind: str  # fixed, calibrated, or nonexistent: calibrated for the other aim
    ratio: float
    cell: Result
    cells: int
    alone: bool  # whether the times were measured with nothing else running
    jobs: int  # else how many processes there were at a time, at most


@dataclass(frozen=True)
class Acceptance:
    """The answers, and every cell of the paper's main tables that has none."""

    repeated: tuple[Beside, ...]
    settings: Mapping[str, tuple[Beside, ...]]
    best: str
    gaps: tuple[Gap, ...]
    speeds: tuple[Speed, ...]
    absent: tuple[Result, ...]
    failed: tuple[Result, ...] = ()  # every cell of which a run failed, also where other seeds have numbers
    graded: bool = True  # aims are for the experiments that come with the package
    short: tuple[str, ...] = ()  # experiments that do not count, since their models are trained too shortly
    models: Mapping[tuple[str, str, str], str] = field(default_factory=dict)  # names by dataset, task and all options
    bases: str = ""  # how many calibrated runs started from another training of the base model than Retrain's

    def model(self, place: Place) -> str:
        """The name of a model, with its options where another of that name was tried on the same dataset and task."""
        return self.models.get((place.dataset, place.task, place.variant)) or model_name(place.model)

    def left_out(self, aim: str) -> list[Result]:
        """The cells that the answer to a question goes without because they failed; ``aim`` is a name of `AIMS`."""
        lost = [cell for cell in self.failed if not cell.rows and cell.place.steps == 1]
        if aim in ("repeated", "above"):
            label = PAPER if aim == "repeated" else self.best
            return [cell for cell in lost if cell.label == label and "scores" in cell.measures and _theirs(cell)]
        if aim in ("use_gap", "unseen_gap"):
            own = [cell for cell in lost if cell.label == CALIBRATED and cell.place.task == "link"]
            return [cell for cell in own if "unseen" in cell.measures]
        return [cell for cell in lost if _is_solved(cell) and aim in (kind_of(cell), *_both(cell))]


def acceptance(gathered: Iterable[tuple[Plan, Sequence[Result]]], best: str = BEST) -> Acceptance:
    """Answer the four questions; a cell that several experiments share counts once.

    They are asked of the experiments that come with the package; where there is none among those given, numbers are
    computed from the user's own, and nothing is held against an aim.
    """
    given = list(gathered)
    asked = [(plan, calibrated_apart(cells)) for plan, cells in given if plan.summary]
    plans = [(plan, cells) for plan, cells in asked if plan.shipped]
    graded = bool(plans)
    plans = plans or asked
    main = once(cell for plan, cells in plans if plan.published == MAIN for cell in cells)
    beside = [found for cell in main if (found := _beside(cell)) is not None]
    labels = dict.fromkeys(each.cell.label for each in beside if each.cell.method.get("name") == "gnndelete")
    settings = {label: tuple(each for each in beside if each.cell.label == label) for label in labels}
    absent = [cell for cell in main if cell.label == PAPER and not cell.rows and _theirs(cell)]
    everything = once(cell for _, cells in plans for cell in cells)
    return Acceptance(
        settings.get(PAPER, ()),
        settings,
        best,
        tuple(gaps(told_apart(everything), lambda cell: _theirs(cell) is not None)),
        _speeds([cells for _, cells in plans]),
        tuple(absent),
        tuple(_failed(everything, [cell for _, cells in plans for cell in cells])),
        graded,
        tuple(plan.name for plan, cells in given if not plan.summary and any(cell.rows for cell in cells)),
        _models(cell.place for _, cells in plans for cell in cells),
        other_bases(everything, CALIBRATED),
    )


def _models(places: Iterable[Place]) -> dict[tuple[str, str, str], str]:
    together: dict[tuple[str, str], list[str]] = {}
    for place in places:
        together.setdefault((place.dataset, place.task), []).append(place.variant)
    return {(*key, v): title for key, variants in together.items() for v, title in model_titles(variants).items()}


def _failed(counted: Sequence[Result], cells: Iterable[Result]) -> list[Result]:
    """Failed cells, each once and under the name that a question asks for; one that has its number elsewhere is none."""
    whole = {(cell.identity, cell.measures) for cell in counted if cell.rows and not cell.errors}
    found: dict[str, Result] = {}
    for cell in cells:
        earlier = found.get(cell.identity)
        better = earlier is None or (cell.label in _ASKED and earlier.label not in _ASKED)
        if cell.errors and better and (cell.identity, cell.measures) not in whole:
            found[cell.identity] = cell
    return list(found.values())


def once(cells: Iterable[Result]) -> list[Result]:
    """Shared cells once: where most was measured, and under the name that a question asks for."""
    kept: dict[str, Result] = {}
    for cell in cells:
        earlier = kept.get(cell.identity)
        if earlier is None or _weight(cell) > _weight(earlier):
            kept[cell.identity] = cell
    return list(kept.values())


def _weight(cell: Result) -> tuple[int, int, bool]:
    scores = {name for row in cell.rows.values() for name in row.get("scores") or {}}
    return len(cell.rows), len(scores), cell.label in _ASKED


_ASKED = (PAPER, CALIBRATED, BEST)


def _theirs(cell: Result) -> tuple[float, float] | None:
    place = cell.place
    found = [
        paper.published(MAIN, place.dataset, place.model, place.where, place.amount, PAPER, score) for score in SCORES
    ]
    return (found[0].value, found[1].value) if found[0] and found[1] and place.steps == 1 else None


def _beside(cell: Result) -> Beside | None:
    theirs, ours = _theirs(cell), [cell.stat(score) for score in SCORES]
    if theirs is None or ours[0] is None or ours[1] is None:
        return None
    return Beside(cell, (ours[0].mean, ours[1].mean), theirs)


def _speeds(parts: Sequence[Sequence[Result]]) -> tuple[Speed, ...]:
    """The slowest cell of each dataset; where times were measured alone in a process, these are taken and no others."""
    alone: dict[tuple[str, str], dict[str, tuple[float, Result]]] = {}
    shared: dict[tuple[str, str], dict[str, tuple[float, Result]]] = {}
    for cells in parts:
        retrained = references(cells)
        for cell in cells:
            reference = retrained.get(cell.place.rest)
            if not _is_solved(cell) or reference is None:
                continue
            timed = _timed(cell, reference)
            for kind, ratio in timed.items():
                alone.setdefault((cell.place.dataset, kind), {})[cell.identity] = (ratio, cell)
            faster = cell.faster(reference)
            if not timed and faster is not None:
                shared.setdefault((cell.place.dataset, kind_of(cell)), {})[cell.identity] = (faster.mean, cell)
    found = []
    for key in sorted(alone.keys() | shared.keys()):
        known = list(alone.get(key, shared.get(key, {})).values())
        jobs = max(cell.jobs for _, cell in known)
        found.append(Speed(*key, *min(known, key=lambda pair: pair[0]), len(known), key in alone, jobs))
    return tuple(found)


def _is_solved(cell: Result) -> bool:
    """Whether speed is asked of it: not of a search that did not take place, nor of the paper's training by gradients."""
    if any(map(stated, cell.rows.values())):
        return False
    return cell.method.get("name") == "gnndelete" and cell.method.get("solver") != "gradient"


def kind_of(cell: Result) -> str:
    """Whether a cell's lam is fixed or calibrated, and for which aim: a name of `Speed.kind`."""
    return _calibrated(cell) if cell.method.get("lam") == "auto" else "fixed"


def _both(cell: Result) -> tuple[str, ...]:
    """A cell that takes times would have answered for both kinds."""
    return ("fixed", _calibrated(cell)) if "time" in cell.measures else ()


def _calibrated(cell: Result) -> str:
    return "calibrated" if cell.method.get("aim", "retrained") == "retrained" else "nonexistent"


def _timed(cell: Result, reference: Result) -> dict[str, float]:
    """Retrain's time by the deletion's, of rows that measured times one after the other and nothing beside them."""
    ratios: dict[str, list[float]] = {}
    for seed, row in sorted(cell.rows.items()):
        other = reference.rows.get(seed) or {}
        spent, whole = row.get("seconds_of") or {}, (other.get("seconds_of") or {}).get("retrain")
        for name, kind in (("delete", "fixed"), ("calibrated", _calibrated(cell))):
            if whole and spent.get(name) and alike(row, other):
                ratios.setdefault(kind, []).append(whole / spent[name])
    return {kind: median(values) for kind, values in ratios.items()}
