"""Names beside points lie on nothing: neither on marks, nor on other names and the lines that lead to them."""

from __future__ import annotations

import random
from itertools import combinations
from math import hypot
from operator import sub

import pytest

from gnndelete.bench.labels import Page, leader, overlap, placed_names
from gnndelete.bench.labels import _away as away
from gnndelete.bench.labels import _before as before
from gnndelete.bench.labels import _meets as meets

FRAME = (40.0, 60.0, 480.0, 290.0)
#: The crowded corner of the paper's two scores, in points of the page: calibrated and Retrain lie on one another.
CROWD = {
    "calibrated": (172.0, 276.0),
    "Retrain": (175.0, 276.5),
    "Unlink": (149.0, 276.5),
    "GradAscent": (165.0, 267.0),
    "CertUnlearn": (190.0, 260.0),
    "GraphEraser": (130.0, 249.0),
    "GraphEditor": (243.0, 248.0),
}


def faults(page: Page, widths: list[float]) -> list[str]:
    boxes = placed_names(page, widths)
    found = [f"names {i} and {j}" for i, j in combinations(range(len(boxes)), 2) if overlap(boxes[i], boxes[j]) > 0]
    for i, box in enumerate(boxes):
        found += [f"name {i} on mark {j}" for j, mark in enumerate(page.marks) if overlap(box, mark) > 0]
        line = leader(box, page.spots[i])
        if line is not None:
            found += [f"leader {i} through name {j}" for j, other in enumerate(boxes) if j != i and meets(line, other)]
        if box[0] < page.frame[0] or box[1] < page.frame[1] or box[2] > page.frame[2] or box[3] > page.frame[3]:
            found.append(f"name {i} outside")
    return found


def test_a_crowd_of_methods() -> None:
    assert not faults(Page(list(CROWD.values()), [], FRAME), [4.7 * len(name) for name in CROWD])


#: Marks that lie on each other, in points of the page.
HEAPS = [
    {"calibrated": (97.5, 78.5), "GIF": (93.0, 78.0), "Unlink": (96.2, 81.2), "paper()": (420.0, 266.0)},
    {"Unlink": (119.5, 276.0), "calibrated": (126.0, 276.0), "Retrain again (control)": (130.0, 276.0)},
]


@pytest.mark.parametrize("heap", HEAPS)
def test_a_name_stands_at_its_own_point_where_marks_lie_on_each_other(heap: dict[str, tuple[float, float]]) -> None:
    page = Page(list(heap.values()), [], (40.6, 55.0, 471.0, 299.0))
    for i, box in enumerate(placed_names(page, [4.7 * len(name) for name in heap])):
        spot, line = page.spots[i], leader(box, page.spots[i])
        seen = line is not None and before(line, page.mark)
        nearest = min(page.spots, key=lambda other: away(box, other) if not seen else hypot(*map(sub, other, seen)))
        assert nearest == spot, list(heap)[i]


@pytest.mark.parametrize("seed", range(5))
def test_twelve_points_anywhere(seed: int) -> None:
    draw = random.Random(seed)
    spots = [(draw.uniform(60, 460), draw.uniform(80, 270)) for _ in range(12)]
    assert not faults(Page(spots, [], FRAME), [draw.uniform(20, 70) for _ in spots])


def test_a_lone_point_has_its_name_beside_it_and_a_line_keeps_it_off() -> None:
    (box,) = placed_names(Page([(100, 100)], [], FRAME), [30])
    assert (box, leader(box, (100, 100))) == ((108, 95, 138, 105), None)
    (moved,) = placed_names(Page([(100, 100)], [(100, 99, 300, 101)], FRAME), [30])
    assert overlap(moved, (100, 99, 300, 101)) == 0


def test_the_same_points_are_named_at_the_same_places() -> None:
    page = Page(list(CROWD.values()), [], FRAME)
    assert placed_names(page, [40.0] * len(CROWD)) == placed_names(page, [40.0] * len(CROWD))
