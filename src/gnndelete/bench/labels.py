"""Where the names of points go, so that they lie on nothing: neither on marks and lines, nor on each other's names or leaders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import TypeVar

_T = TypeVar("_T")
Spot = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top

#: How far from its point a name may be moved up or down, and to a side; the height of a name. All in points of the page.
_UP = (0, 11, -11, 20, -20, 29, -29, 38, -38)
_ASIDE = (8, 24)
HIGH = 10

#: How often every name is placed again, given all the others, at most.
_ROUNDS = 8

#: How many spots, the most crowded ones, are tried as the first to choose.
_WAYS = 6


@dataclass(frozen=True)
class Page:
    """What names keep off: the marks of all points, lines, and the edge of the frame."""

    spots: Sequence[Spot]
    lines: Sequence[Box]
    frame: Box
    mark: float = 5  # half the width of a mark

    @property
    def marks(self) -> list[Box]:
        return [(x - self.mark, y - self.mark, x + self.mark, y + self.mark) for x, y in self.spots]


def placed_names(page: Page, widths: Sequence[float]) -> list[Box]:
    """A box for the name of every spot: the best of several ways, in each of which another spot chooses first.

    >>> page = Page([(50, 50), (54, 50)], [], (0, 0, 200, 100))
    >>> left, right = placed_names(page, [40, 40])
    >>> overlap(left, right)
    0.0
    """
    order = sorted(
        range(len(widths)), key=lambda i: min((_far(page.spots[i], s) for s in _rest(page.spots, i)), default=0)
    )
    tried = [_placed(page, widths, order[i:] + order[:i]) for i in range(min(len(order), _WAYS))]
    found = min(tried, key=lambda boxes: _total(page, boxes), default={})
    return [found[i] for i in range(len(widths))]


def _placed(page: Page, widths: Sequence[float], order: Sequence[int]) -> dict[int, Box]:
    """Every name at its best place given those before it, and all of them again until none moves."""
    found: dict[int, Box] = {}
    for _ in range(_ROUNDS):
        before = dict(found)
        for i in order:
            others = {j: box for j, box in found.items() if j != i}
            found[i] = min(_choices(page.spots[i], widths[i]), key=lambda box: _cost(page, i, box, others))
        if found == before:
            break
    return found


def _total(page: Page, boxes: dict[int, Box]) -> float:
    return sum(_cost(page, i, box, {j: o for j, o in boxes.items() if j != i}) for i, box in boxes.items())


def leader(box: Box, spot: Spot) -> tuple[Spot, Spot] | None:
    """The line from a name to its point; None where it stands right beside it and needs none."""
    near = min(max(spot[0], box[0]), box[2]), min(max(spot[1], box[1]), box[3])
    return None if near[1] == spot[1] and _far(near, spot) <= _ASIDE[0] else (near, spot)


def overlap(a: Box, b: Box) -> float:
    """The area that two boxes share."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _choices(spot: Spot, wide: float) -> Iterator[Box]:
    """Beside the point first, then above and below it."""
    x, y = spot
    for up in _UP:
        for left in ([x - wide / 2] if up else []) + [at for off in _ASIDE for at in (x + off, x - off - wide)]:
            yield left, y + up - HIGH / 2, left + wide, y + up + HIGH / 2


def _cost(page: Page, own: int, box: Box, names: dict[int, Box]) -> float:
    """What is wrong with a place.

    A name that is nearer to another point than to its own would be taken for that point's, and so would one whose leader
    comes to its point over a mark that lies on it.
    """
    spot, frame = page.spots[own], page.frame
    out = max(0.0, frame[0] - box[0]) + max(0.0, box[2] - frame[2])
    out += max(0.0, frame[1] - box[1]) + max(0.0, box[3] - frame[3])
    nearer = any(_away(box, other) < _away(box, spot) for other in _rest(page.spots, own))
    covered = sum(overlap(box, other) for other in (*page.marks, *page.lines, *names.values()))
    mine, crossed = leader(box, spot), 0.0
    if mine is not None:
        others = [mark for mark in _rest(page.marks, own) if not _inside(spot, mark)]
        crossed += sum(_meets(mine, other) for other in (*others, *names.values()))
        end = _before(mine, page.mark)
        crossed += any(_far(end, other) < _far(end, spot) for other in _rest(page.spots, own))
        crossed += 0.3 * sum(_meets(mine, other) for other in page.lines)
    for other, name in names.items():
        theirs = leader(name, page.spots[other])
        if theirs is not None:
            crossed += _meets(theirs, box) + (mine is not None and _cross(mine, theirs))
    return 100 * out + 60 * nearer + 2 * covered + 60 * crossed + 0.4 * _away(box, spot) + 2 * (mine is not None)


def _rest(values: Sequence[_T], own: int) -> list[_T]:
    return [value for i, value in enumerate(values) if i != own]


def _far(a: Spot, b: Spot) -> float:
    return hypot(a[0] - b[0], a[1] - b[1])


def _away(box: Box, spot: Spot) -> float:
    """How far a point is from the edge of a box."""
    return hypot(max(box[0] - spot[0], 0, spot[0] - box[2]), max(box[1] - spot[1], 0, spot[1] - box[3]))


def _inside(spot: Spot, box: Box) -> bool:
    return box[0] < spot[0] < box[2] and box[1] < spot[1] < box[3]


def _before(line: tuple[Spot, Spot], short: float) -> Spot:
    """The point of a line so far before its end.

    >>> _before(((0, 10), (0, 0)), 4)
    (0.0, 4.0)
    """
    (a, b), (c, d) = line
    share = min(1.0, short / max(_far(*line), 1e-9))
    return c + (a - c) * share, d + (b - d) * share


def _meets(line: tuple[Spot, Spot], box: Box) -> bool:
    (a, b), (c, d) = line
    steps = (i / 16 for i in range(17))
    return any(box[0] < a + (c - a) * t < box[2] and box[1] < b + (d - b) * t < box[3] for t in steps)


def _cross(first: tuple[Spot, Spot], second: tuple[Spot, Spot]) -> bool:
    def turn(a: Spot, b: Spot, c: Spot) -> bool:
        return (c[1] - a[1]) * (b[0] - a[0]) > (b[1] - a[1]) * (c[0] - a[0])

    (a, b), (c, d) = first, second
    return turn(a, c, d) != turn(b, c, d) and turn(a, b, c) != turn(a, b, d)
