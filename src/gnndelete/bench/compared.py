"""All methods beside one another: means over the same cells, which cells these are, and who is left out and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from gnndelete.bench.gathered import Place, Result, references
from gnndelete.bench.wording import dataset_name, listed, many, method_name, model_titles, request_name, span

#: Methods that are there to be compared with, and not to be used.
CONTROLS = ("zeroed", "untrained", "retrain-again")

#: A method that leaves fewer cells than this in common with the others is left out, where there are so many.
FEWEST = 4


@dataclass(frozen=True)
class Point:
    """A method as its mean over the same places as all other points of the figure."""

    label: str
    x: float
    y: float
    group: str  # gnndelete, retrain, control or other
    method: str = ""


@dataclass(frozen=True)
class Compared:
    """Points of methods, the cells they are means over, and what is not among them."""

    points: tuple[Point, ...] = ()
    places: tuple[Place, ...] = ()
    seeds: tuple[int, int] = (0, 0)
    few: tuple[str, ...] = ()  # names of methods with too few cells in common with the others
    swept: int = 0  # settings of a sweep over lam

    @property
    def cells(self) -> str:
        """Which cells, in words."""
        return cells_in_words(self.places)

    @property
    def caption(self) -> str:
        """The cells, and who is left out and why."""
        said = f"Means over {many(len(self.places), 'cell')} of {span(self.seeds, 'seed')}: {self.cells}."
        left = [f"{listed(self.few)} (too few cells in common with the others)"] if self.few else []
        left += [f"{many(self.swept, 'setting')} of GNNDelete at a fixed lam (a sweep has figures of its own)"] * bool(
            self.swept
        )
        return f"{said} Left out: {'; '.join(left)}." if left else said


def distances(cells: Sequence[Result]) -> Compared:
    """Per method the mean |gap| to Retrain in E_t and in the unseen AUC."""
    retrained = references(cells)

    def gap(cell: Result, metric: str) -> float | None:
        gaps = cell.gaps(metric, retrained.get(cell.place.rest)).values()
        return mean(abs(value) for value in gaps) if gaps else None

    rest = [cell for cell in cells if cell.method.get("name") != "retrain"]
    return _compared(rest, lambda cell: (gap(cell, "test_auroc"), gap(cell, "unseen_auc")))


def both_scores(cells: Sequence[Result]) -> Compared:
    """Per method the means of E_d and E_t, the paper's two scores."""

    def value(cell: Result, metric: str) -> float | None:
        stat = cell.stat(metric)
        return stat.mean if stat else None

    return _compared(cells, lambda cell: (value(cell, "deleted_auroc"), value(cell, "test_auroc")))


_Values = dict[str, tuple[float, float]]


def _compared(cells: Sequence[Result], of: Callable[[Result], tuple[float | None, float | None]]) -> Compared:
    """Methods come in by how many cells they have, as long as at least `FEWEST` cells are common to all."""
    values: dict[str, _Values] = {}
    known: dict[str, dict[str, Result]] = {}
    for cell in cells:
        x, y = of(cell) if cell.place.task == "link" and cell.place.steps == 1 else (None, None)
        if x is not None and y is not None:
            values.setdefault(cell.label, {})[cell.place.rest] = (x, y)
            known.setdefault(cell.label, {})[cell.place.rest] = cell
    most = max(map(len, values.values()), default=0)
    given = {label for label, own in known.items() if fixed(next(iter(own.values())))}
    swept = {label for label in given if 4 * len(known[label]) < most}
    common: list[str] = []
    taken: list[str] = []
    few: list[str] = []
    for label in sorted(values.keys() - swept, key=lambda label: (label in given, -len(values[label]))):
        left = [rest for rest in common if rest in values[label]] if taken else list(values[label])
        if label in given and taken and len(left) < len(common):  # one of many settings takes no cell from the others
            swept.add(label)
        elif len(left) >= min(FEWEST, most):
            common, taken = left, [*taken, label]
        else:
            few.append(label)
    shown = [label for label in values if label in taken]  # in the order of the experiments
    points = [_point(known[label][common[0]], [values[label][rest] for rest in common]) for label in shown]
    counts = [len(known[label][rest].rows) for label in shown for rest in common]
    places = tuple(known[shown[0]][rest].place for rest in common) if shown else ()
    names = tuple(method_name(label) for label in values if label in few)
    return Compared(tuple(points), places, (min(counts, default=0), max(counts, default=0)), names, len(swept))


def _point(cell: Result, values: Sequence[tuple[float, float]]) -> Point:
    x, y = (mean(value[axis] for value in values) for axis in (0, 1))
    return Point(method_name(cell.label), x, y, _group(cell), cell.label)


def fixed(cell: Result) -> bool:
    """Whether it is GNNDelete at a given lam; the paper's setting stands for itself."""
    return cell.method.get("name") == "gnndelete" and cell.method.get("lam") != "auto" and cell.label != "paper()"


def _group(cell: Result) -> str:
    name = cell.method.get("name")
    if name == "gnndelete":
        return "gnndelete"
    return {"retrain": "retrain", **dict.fromkeys(CONTROLS, "control")}.get(str(name), "other")


def cells_in_words(places: Sequence[Place]) -> str:
    """Which cells: as models, datasets and deletions where it is all combinations of them, else one by one.

    >>> places = [Place(d, "gcn", "edges", w, 0.05, 1, "link", '{"name": "gcn"}') for d in ("dblp", "cs") for w in ("in", "out")]
    >>> cells_in_words(places), cells_in_words(places[:3])[:36]
    ('GCN on DBLP and CS, 5% of the edges, IN and OUT', 'GCN on DBLP, 5% of the edges, IN; GC')
    """
    if not places:
        return "none"
    titles = model_titles(place.variant for place in places)
    models = list(dict.fromkeys(titles[place.variant] for place in places))
    datasets = list(dict.fromkeys(dataset_name(place.dataset) for place in places))
    requests = list(dict.fromkeys(request_name(place) for place in places))
    if len(places) == len(models) * len(datasets) * len(requests):
        return f"{listed(models)} on {listed(datasets)}, {_requests(requests)}"
    each = [f"{titles[place.variant]} on {dataset_name(place.dataset)}, {request_name(place)}" for place in places]
    rest = len(each) - 8
    return "; ".join(each[:8]) + (f"; and {rest} more" if rest > 0 else "")


def _requests(requests: Sequence[str]) -> str:
    """Deletions of the same size said once.

    >>> _requests(["5% of the edges, IN", "5% of the edges, OUT"]), _requests(["1 node", "2 nodes"])
    ('5% of the edges, IN and OUT', '1 node and 2 nodes')
    """
    sizes = {size: [r.rpartition(", ")[2] for r in requests if r.startswith(f"{size}, ")] for size in _sizes(requests)}
    if all(sizes) and all(sizes.values()):
        return "; ".join(f"{size}, {listed(where)}" for size, where in sizes.items())
    return listed(requests)


def _sizes(requests: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(request.rpartition(", ")[0] for request in requests))


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats in both, smaller being better.

    >>> [p.label for p in front([Point("a", 1, 3, ""), Point("b", 2, 2, ""), Point("c", 3, 3, "")])]
    ['a', 'b']
    """
    better = [p for p in points if not any(q.x <= p.x and q.y <= p.y and (q.x, q.y) != (p.x, p.y) for q in points)]
    return sorted(better, key=lambda point: (point.x, point.y))
