"""Figures of a report: scores against lam, time against size, and methods against each other."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Literal

from gnndelete.auditing.report.style import INK, MUTED, PAPER, STYLE, fitted, plain, svg_bytes
from gnndelete.bench import published as paper
from gnndelete.bench.names import (
    counted,
    dataset_title,
    is_control,
    is_share,
    listed,
    method_title,
    metric_title,
    model_titles,
    seconds,
    short_count,
)
from gnndelete.bench.report.results import (
    Plan,
    Result,
    Scenario,
    Stat,
    Timing,
    as_text,
    in_common,
    references,
    timings,
    unique,
)
from gnndelete.bench.report.tables import UTILITY

Format = Literal["svg", "png"]

#: Okabe and Ito's colours, which are distinct for every kind of colour vision, and three that are distinct from these.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b4b94", "#a6761d", "#8a8a8a")
MARKERS = "osD^vPXh<>"

#: Titles of times, in the order of a legend.
TIMES = {
    "forward": "one forward pass",
    "epoch": "one training epoch",
    "delete": "deletion, fixed lam",
    "further": "deletion, graph known",
    "calibrated": "deletion, calibrated",
    "retrain": "Retrain",
}

#: Smaller distances than this are drawn here, so that a logarithmic axis can show them.
SMALLEST_DISTANCE = 5e-4

_HEADING = 9.5  # size of a heading in points
_LETTERS = 13  # letters of a heading that fit an inch
_COLUMNS = 5  # of a legend, at most
_LOG = " (logarithmic)"


@dataclass(frozen=True)
class Figure:
    """One figure: its file name without ending, what it shows, a caption, and its content."""

    name: str
    alt: str
    content: bytes
    caption: str = ""


def experiment_figures(plan: Plan, results: Sequence[Result], form: Format) -> list[Figure]:
    """The figures of one experiment: scores against lam, and times."""
    made = []
    for index, sweep in enumerate(lam_sweeps(plan, results), 1):
        alt = f"Scores against lam. {sweep.title}"
        made.append(Figure(f"{plan.file_name}-lam-{index}", alt, lam_figure(sweep, form)))
    series = time_series(results)
    for index, each in enumerate(series, 1):
        several = [other.model for other in series].count(each.model) > 1
        name = f"{plan.file_name}-time-{each.model}" + (f"-{index}" if several else "")
        alt = f"Time against the {'number of ' * (each.axis == 'edges')}{each.axis}, {each.title}: {each.datasets}"
        made.append(Figure(name, alt, time_figure(each, form)))
    return made


# Scores against lam.


@dataclass(frozen=True)
class Sweep:
    """Scores against lam in one scenario: curves by score and setting, the paper's points, Retrain's means."""

    title: str
    curves: Mapping[str, Mapping[str, Sequence[tuple[float, Stat]]]]
    paper: Mapping[str, Sequence[tuple[float, float]]]
    retrain: Mapping[str, float]


def lam_sweeps(plan: Plan, results: Sequence[Result]) -> list[Sweep]:
    """One sweep per scenario in which a setting of GNNDelete was run with at least three values of lam."""
    found, retrained = [], references(results)
    models = model_titles(result.scenario.variant for result in results)
    for identity in dict.fromkeys(result.scenario.identity for result in results):
        here = [result for result in results if result.scenario.identity == identity]
        groups, each = _by_lam(here), here[0].scenario
        cells = [result for group in groups.values() for result in group.values()]
        use = [metric for metric in UTILITY if any(result.values(metric) for result in cells)]
        curves: dict[str, dict[str, list[tuple[float, Stat]]]] = {}
        for metric in (*use[:1], "deleted_auroc", "unseen_auc"):
            for name, group in groups.items():
                points = [(lam, stat) for lam, result in group.items() if (stat := result.stat(metric)) is not None]
                if points:
                    curves.setdefault(metric, {})[name] = points
        if each.steps > 1 or not curves:
            continue
        reference = retrained.get(identity)
        retrain = {metric: stat.mean for metric in curves if reference and (stat := reference.stat(metric))}
        theirs: dict[str, list[tuple[float, float]]] = {metric: [] for metric in curves}
        cell = (each.dataset, each.model, each.where, each.amount)
        for metric in curves:
            for result in here:
                if (lam := _fixed_lam(result)) is not None:
                    known = paper.published(plan.published, *cell, result.label, metric)
                    theirs[metric] += [(lam, known.value)] if known else []
        title = f"{dataset_title(each.dataset)}, {models[each.variant]}: {each.request}"
        found.append(Sweep(title, curves, {metric: sorted(set(points)) for metric, points in theirs.items()}, retrain))
    return found


def _fixed_lam(result: Result) -> float | None:
    lam = result.method.get("lam")
    return float(lam) if result.is_gnndelete and isinstance(lam, int | float) else None


def _by_lam(results: Sequence[Result]) -> dict[str, dict[float, Result]]:
    """Results that differ only in lam, by the settings in which these groups differ."""
    groups: dict[str, dict[float, Result]] = {}
    for result in results:
        if result.rows and (lam := _fixed_lam(result)) is not None:
            rest = {name: value for name, value in result.method.items() if name not in ("lam", "name", "aim")}
            groups.setdefault(as_text(rest), {})[lam] = result
    found = [group for group in groups.values() if len(group) > 2]
    methods = [next(iter(group.values())).method for group in found]
    every = dict.fromkeys(name for method in methods for name in method if name not in ("lam", "name", "aim"))
    names = [name for name in every if len({as_text(method.get(name)) for method in methods}) > 1]
    return {
        ", ".join(f"{name} {method.get(name)}" for name in names) or "ours": dict(sorted(group.items()))
        for method, group in zip(methods, found, strict=True)
    }


def lam_figure(sweep: Sweep, form: Format) -> bytes:
    """Draw one panel per score: our curves with standard errors, the paper's points as rings, Retrain dashed."""

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(sweep.curves), squeeze=False)[0]
        for axes, (metric, curves) in zip(panels, sweep.curves.items(), strict=True):
            plain(axes, "lam", metric_title(metric))
            for (label, points), look in zip(curves.items(), _looks(), strict=False):
                stats = [stat for _, stat in points]
                errors = [stat.error or 0 for stat in stats]
                axes.errorbar([lam for lam, _ in points], [s.mean for s in stats], errors, label=label, **look)
            if sweep.paper[metric]:
                rings = {"markersize": 7, "markerfacecolor": "none", "color": INK, "label": "the paper"}
                axes.plot(*zip(*sweep.paper[metric], strict=True), "o", **rings)
            if metric in sweep.retrain:
                axes.axhline(sweep.retrain[metric], color=MUTED, linestyle="--", linewidth=1, label="Retrain")
                axes.autoscale_view()  # keeps the line off the edge of the panel
        legend(figure)

    counts = sorted(
        {stat.count for curves in sweep.curves.values() for points in curves.values() for _, stat in points}
    )
    over = counted(counts[-1], "seed") if len(counts) == 1 else f"{counts[0]} to {counted(counts[-1], 'seed')}"
    heading = f"{sweep.title}\nmeans over {over}" + ", bars ± standard error" * (counts[-1] > 1)
    return drawn(draw, (3.3 * len(sweep.curves) + 0.3, 3.3), heading, form)


# Time against size.


@dataclass(frozen=True)
class TimeSeries:
    """Times of one model against the number of edges or, where the graph is always the same, against the deletion."""

    model: str  # its name
    title: str  # the model, and the deletion where another series has another one
    axis: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    datasets: str
    connected: bool  # whether points are of one kind of graph
    shares: bool = True  # whether deletions are shares, or else numbers of elements


def time_series(results: Sequence[Result]) -> list[TimeSeries]:
    """What was timed at two sizes or more, one series per model and kind of deletion."""
    groups: dict[tuple[str, str, bool], list[Timing]] = {}
    for timing in timings(results):
        scenario = timing.result.scenario
        groups.setdefault((scenario.variant, scenario.kind, is_share(scenario.amount)), []).append(timing)
    models = model_titles(variant for variant, _, _ in groups)
    several = len({key[1:] for key in groups}) > 1
    made = [_time_series(group, models[variant], shares, several) for (variant, _, shares), group in groups.items()]
    return [each for each in made if any(len(line) > 1 for line in each.lines.values())]


def _time_series(group: Sequence[Timing], model: str, shares: bool, several: bool) -> TimeSeries:
    by_edges = len({timing.edges for timing in group}) > 1
    labels = list(dict.fromkeys(timing.result.label for timing in group if timing.result.is_gnndelete))
    lines: dict[str, dict[float, list[float]]] = {}
    for name in TIMES:
        for timing in group:
            # The deletions of several settings are drawn, but one of the other times is enough.
            if name in timing.spent and (name not in ("further", "calibrated") or timing.result.label == labels[0]):
                title = TIMES[name]
                if name == "delete" and not timing.result.is_gnndelete:
                    title = method_title(timing.result.label)
                elif name in ("delete", "further", "calibrated") and len(labels) > 1:
                    title = f"{title} ({timing.result.label})"
                x = float(timing.edges if by_edges else timing.result.scenario.amount)
                lines.setdefault(title, {}).setdefault(x, []).append(timing.spent[name])
    scenario = group[0].result.scenario
    elements = "elements with deleted features" if scenario.kind == "features" else f"deleted {scenario.kind}"
    deleted = f"{'share' if shares else 'number'} of {elements}"
    datasets = [timing.result.scenario.dataset for timing in sorted(group, key=lambda timing: timing.edges)]
    return TimeSeries(
        scenario.model,
        f"{model}, {deleted}" if several and by_edges else model,
        "edges" if by_edges else deleted,
        {title: [(x, median(values)) for x, values in sorted(line.items())] for title, line in lines.items()},
        listed(dict.fromkeys(map(dataset_title, datasets))),
        not by_edges or all(dataset.startswith("generated:") for dataset in datasets),
        shares,
    )


def time_figure(series: TimeSeries, form: Format) -> bytes:
    """Draw seconds against edges, both logarithmic, or against what is deleted."""
    from matplotlib.ticker import MaxNLocator

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, f"{series.axis}{_LOG * (series.axis == 'edges')}", f"time{_LOG}")
        axes.set_yscale("log")
        if series.axis == "edges":
            axes.set_xscale("log")
        for (title, points), look in zip(series.lines.items(), _looks(), strict=False):
            style = {} if series.connected else {"linestyle": "none"}
            axes.plot(*zip(*points, strict=True), label=title, **look | style)
        if series.axis == "edges":
            _plain_logarithmic(axes.xaxis, short_count)
        elif series.shares:
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        else:
            axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        _plain_logarithmic(axes.yaxis, seconds)
        legend(figure)

    heading = f"Time against {'the ' * (series.axis != 'edges')}{series.axis}, {series.title}\n{series.datasets}"
    return drawn(draw, (6.6, 4.4), heading, form)


# Methods against each other.


@dataclass(frozen=True)
class Comparison:
    """One point per method: means over the scenarios that all of these methods have."""

    points: Mapping[str, tuple[float, float]]
    controls: frozenset[str] = frozenset()
    scenarios: tuple[Scenario, ...] = ()

    @property
    def caption(self) -> str:
        """Which models, datasets and deletions the means are over."""
        titles = model_titles(each.variant for each in self.scenarios)
        models = listed(dict.fromkeys(titles[each.variant] for each in self.scenarios))
        datasets = listed(dict.fromkeys(dataset_title(each.dataset) for each in self.scenarios))
        requests = "; ".join(dict.fromkeys(each.request for each in self.scenarios))
        return f"Means over {counted(len(self.scenarios), 'cell')}: {models} on {datasets}; {requests}."


def compare(results: Sequence[Result], values: Callable[[Result], Iterable[float | None]]) -> Comparison:
    """The means of two values of every method, over the scenarios that the methods share."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    scenarios: dict[str, Scenario] = {}
    controls = set()
    for result in results:
        x, y = values(result) if result.scenario.steps == 1 else (None, None)
        if x is not None and y is not None:
            title = method_title(result.label)
            scenarios[result.scenario.identity] = result.scenario
            found.setdefault(title, {})[result.scenario.identity] = (x, y)
            if is_control(str(result.method.get("name"))):
                controls.add(title)
    taken, shared = in_common(found)
    points = {}
    for title, by_scenario in found.items():
        if title in taken:
            pairs = [by_scenario[name] for name in shared]
            points[title] = (mean(x for x, _ in pairs), mean(y for _, y in pairs))
    chosen = tuple(scenario for name, scenario in scenarios.items() if name in shared)
    return Comparison(points, frozenset(controls & taken), chosen)


def method_figures(results: Sequence[Result], form: Format) -> list[Figure]:
    """The figures of all methods: their distance to Retrain, and the paper's two scores."""
    results = unique(result for result in results if result.rows)
    retrained = references(results)

    def distance(result: Result) -> Iterator[float | None]:
        for metric in ("test_auroc", "unseen_auc"):
            gaps = result.gaps(metric, retrained.get(result.scenario.identity)).values()
            yield mean(map(abs, gaps)) if gaps and not result.is_retrain else None

    def scores(result: Result) -> Iterator[float | None]:
        for metric in ("deleted_auroc", "test_auroc"):
            stat = result.stat(metric)
            yield stat.mean if stat else None

    retrain_axes = ("distance to Retrain in test AUROC", "distance to Retrain in unseen AUC")
    made = []
    for name, title, values, axes, log in (
        ("methods-retrain", "Distance to Retrain: lower left is nearer", distance, retrain_axes, True),
        ("methods-scores", "The paper's two scores", scores, ("deleted AUROC", "test AUROC"), False),
    ):
        comparison = compare(results, values)
        if len(comparison.points) > 1:
            alt = f"{title}: {counted(len(comparison.points), 'method')}"
            made.append(Figure(name, alt, scatter(comparison, title, axes, log, form), comparison.caption))
    return made


def scatter(comparison: Comparison, title: str, labels: tuple[str, str], log: bool, form: Format) -> bytes:
    """Draw methods as points; a legend names them. Controls are crosses and Retrain is a ring."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        plain(axes, *(f"{label}{_LOG * log}" for label in labels))
        if log:
            axes.set_xscale("log")
            axes.set_yscale("log")
        looks = _looks()
        for name, (x, y) in comparison.points.items():
            spot = [max(x, SMALLEST_DISTANCE)] if log else [x], [max(y, SMALLEST_DISTANCE)] if log else [y]
            if name == method_title("retrain"):
                axes.plot(*spot, "o", markersize=11, markerfacecolor="none", markeredgewidth=1.5, color=INK, label=name)
                continue
            look = next(looks) | {"linestyle": "none", "markersize": 7}
            axes.plot(*spot, label=name, **look | ({"marker": "x"} if name in comparison.controls else {}))
        axes.margins(0.12)
        if log:
            _plain_logarithmic(axes.xaxis, lambda value: f"{value:g}")
            _plain_logarithmic(axes.yaxis, lambda value: f"{value:g}")
        legend(figure)

    heading = f"{title}\nmeans over {counted(len(comparison.scenarios), 'cell')}"
    return drawn(draw, (6.6, 4.8), heading, form)


# What the figures share.


def _looks() -> Iterator[dict[str, Any]]:
    """Colours and markers; no two of the first 90 are equal."""
    for index in range(len(COLORS) * len(MARKERS)):
        color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        yield {"color": color, "marker": marker, "markersize": 4.5, "linewidth": 1.5}


def _plain_logarithmic(axis: Any, show: Callable[[float], str]) -> None:
    """Label a logarithmic axis with plain numbers; make it at least a decade long."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < 10 * low:
        middle = (low * high) ** 0.5
        low, high = middle / 10**0.5, middle * 10**0.5
        (axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim)(low, high)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axis.set_minor_formatter(NullFormatter())


def drawn(draw: Callable[[Any], None], size: tuple[float, float], heading: str, form: Format) -> bytes:
    """A figure as a file; its heading is wrapped to its width."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet

    wide, high = size
    heading = fitted(heading, wide, _LETTERS)
    with mpl.rc_context(STYLE):
        figure = Sheet(figsize=(wide, high + 0.15 * max(0, heading.count("\n") - 1)), layout="constrained", dpi=110)
        FigureCanvasAgg(figure)
        figure.set_facecolor(PAPER)
        figure.suptitle(heading, x=0.01, ha="left", fontsize=_HEADING, color=INK)
        draw(figure)
        if form == "svg":
            return svg_bytes(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        return buffer.getvalue()


def legend(figure: Any) -> None:
    """Add one legend for all panels, in as many columns as fit."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    options = {"loc": "outside lower center", "frameon": False, "fontsize": 8, "labelcolor": MUTED}
    for columns in range(min(len(entries), _COLUMNS), 0, -1):
        made = figure.legend(list(entries.values()), list(entries), ncols=columns, **options)
        if columns == 1 or made.get_window_extent().width <= figure.bbox.width:
            break
        made.remove()
