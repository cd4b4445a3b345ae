"""How far methods are from Retrain: over all cells that each was tried in, and over those that they share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from gnndelete.bench.gathered import Result, references
from gnndelete.methods import RetrainAgain

#: The fewest cells that methods are compared over, where one of them has twice as many.
FEWEST = 4

#: The gaps of one method in one score: the cell and its gaps by seed, of every place.
_Cells = dict[str, tuple[Result, list[float]]]


@dataclass(frozen=True)
class Gap:
    """The distance of one method to Retrain in one score, over all places where both were run."""

    label: str
    task: str
    metric: str
    cells: int
    seed_gap: float  # mean over cells of the mean of |gap| over seeds
    cell_gap: float  # mean over cells of |mean gap|
    signed: float  # mean over cells of the mean gap
    worst: Result
    seeds: tuple[int, int]  # fewest and most seeds of a cell
    shared: int = 0  # cells that it has in common with the other methods
    shared_gap: float | None = None  # its seed_gap over these; None where it has too few of them
    printed: int = 0  # cells for which the paper prints a number
    printed_gap: float | None = None  # its seed_gap over these
    again: int = 0  # cells in which Retrain was run a second time, with another seed
    again_gap: float | None = None  # its seed_gap over these
    floor: float | None = None  # and that of the second Retrain


def gaps(cells: Sequence[Result], printed: Callable[[Result], bool] = lambda cell: False) -> list[Gap]:
    """Of every setting that was tried in at least a quarter of the cells; the steps of a sweep over lam are not.

    A second Retrain is always among them, as the least distance to expect. ``printed`` says for which cells the paper has a
    number: they are counted apart as well.

    For links both distances are over the same cells, those in which the unseen test was asked for: models that were
    trained for a few epochs, to take times or to count parameters, say nothing about gaps.
    """
    retrained = references(cells)
    found: list[Gap] = []
    for task in ("link", "node", "graph"):
        own = [cell for cell in cells if cell.place.task == task and cell.method.get("name") != "retrain"]
        for metric in ("test_auroc", "test_accuracy", "unseen_auc"):
            every: dict[str, _Cells] = {}
            for cell in own:
                values = cell.gaps(metric, retrained.get(cell.place.rest))
                asked = task != "link" or cell.gaps("unseen_auc", retrained.get(cell.place.rest))
                if cell.place.steps == 1 and values and asked:
                    every.setdefault(cell.label, {})[cell.identity] = (cell, list(values.values()))
            most = max(map(len, every.values()), default=0)
            kept = {label: part for label, part in every.items() if 4 * len(part) >= most or _again(part)}
            again = next((part for part in kept.values() if _again(part)), {})
            found += [
                _floored(_apart(gap, kept[gap.label], printed), kept[gap.label], again)
                for gap in _beside(kept, task, metric)
            ]
    return found


def _again(part: _Cells) -> bool:
    return all(cell.method.get("name") == RetrainAgain.name for cell, _ in part.values())


def _apart(gap: Gap, part: _Cells, printed: Callable[[Result], bool]) -> Gap:
    """The gap with that over the cells which the paper prints."""
    own = [pair for pair in part.values() if printed(pair[0])]
    over = _gap(gap.label, gap.task, gap.metric, own).seed_gap if own else None
    return replace(gap, printed=len(own), printed_gap=over)


def _floored(gap: Gap, part: _Cells, again: _Cells) -> Gap:
    """The gap with that over the cells in which Retrain was run twice, beside how far the two are apart there."""
    second = {cell.place.rest: (cell, values) for cell, values in again.values()}
    own = {cell.place.rest: (cell, values) for cell, values in part.values() if cell.place.rest in second}
    if not own:
        return gap
    ours, theirs = (
        _gap(gap.label, gap.task, gap.metric, [pairs[place] for place in own]).seed_gap for pairs in (own, second)
    )
    return replace(gap, again=len(own), again_gap=ours, floor=theirs)


def _beside(every: Mapping[str, _Cells], task: str, metric: str) -> list[Gap]:
    """The methods of one table, each over its own cells and over those they share."""
    places = {label: {cell.place.rest for cell, _ in part.values()} for label, part in every.items()}
    labels, shared = in_common(places)
    found = []
    for label, part in every.items():
        gap = _gap(label, task, metric, list(part.values()))
        if label in labels:
            common = [pair for pair in part.values() if pair[0].place.rest in shared]
            gap = replace(gap, shared=len(shared), shared_gap=_gap(label, task, metric, common).seed_gap)
        found.append(gap)
    return found


def in_common(places: Mapping[str, Collection[str]]) -> tuple[set[str], set[str]]:
    """Which methods are compared, and the places that all of these have.

    Methods come in by how many places they have, as long as a quarter of the most stays in common, and no fewer than `FEWEST`
    (half of the most, where that is less).

    >>> sorted(in_common({"a": "12345678", "b": "1234", "c": "5678"})[1])
    ['1', '2', '3', '4']
    >>> sorted(in_common({"a": "12345678", "b": "1234", "c": "5678"})[0])
    ['a', 'b']
    """
    most = max(map(len, places.values()), default=0)
    enough = max(min(FEWEST, (most + 1) // 2), most // 4)
    taken: set[str] = set()
    common: set[str] = set()
    for label in sorted(places, key=lambda label: -len(places[label])):
        left = common & set(places[label]) if taken else set(places[label])
        if len(left) >= enough:
            taken, common = taken | {label}, left
    return taken, common


def _gap(label: str, task: str, metric: str, gaps: Sequence[tuple[Result, list[float]]]) -> Gap:
    means = [mean(values) for _, values in gaps]
    strict = [mean(abs(value) for value in values) for _, values in gaps]
    worst = gaps[strict.index(max(strict))][0]
    counts = [len(values) for _, values in gaps]
    size, seeds = mean(abs(m) for m in means), (min(counts), max(counts))
    return Gap(label, task, metric, len(gaps), mean(strict), size, mean(means), worst, seeds)
