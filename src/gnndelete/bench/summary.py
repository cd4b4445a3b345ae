"""The summary page: what was aimed at, what the rows of the store say, and the cells behind every number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from gnndelete.bench.acceptance import AIMS, CALIBRATED, PAPER, WITHIN, Acceptance, Beside, Speed, kind_of
from gnndelete.bench.formats import plain
from gnndelete.bench.gaps import Gap
from gnndelete.bench.gathered import Result
from gnndelete.bench.settings import call_of
from gnndelete.bench.wording import dataset_name, listed, many, method_name, metric_name, request_name, span, times

#: The aim that no speed is held against.
OTHER = "nonexistent"

_REACHED = {True: "reached", False: "**not reached**", None: "not run"}


def headline(found: Acceptance) -> list[dict[str, Any]]:
    """Each question with its aim, the answer, whether it was reached (None where nothing was run) and what failed."""
    above = found.settings.get(found.best, ())
    lines = [
        _share(
            f"`{PAPER}` within {WITHIN} of the paper on both scores", "repeated", [b.within for b in found.repeated]
        ),
        _share(f"`{found.best}` above the paper's GNNDelete on both scores", "above", [b.above for b in above]),
    ]
    for metric, aim in (("test_auroc", "use_gap"), ("unseen_auc", "unseen_gap")):
        gap = next((g for g in found.gaps if (g.label, g.task, g.metric) == (CALIBRATED, "link", metric)), None)
        lines += [_by_cell(metric, aim, gap), _by_seed(metric, aim, gap)]
    by_kind = {kind: [speed for speed in found.speeds if speed.kind == kind] for kind in ("fixed", "calibrated", OTHER)}
    every = {speed.dataset for speed in found.speeds}
    for kind, title, beside in (
        ("fixed", "a deletion at fixed lam", ()),
        ("calibrated", "a deletion calibrated for the aim `retrained`", by_kind[OTHER]),
    ):
        untimed = sorted(every - {speed.dataset for speed in by_kind[kind]})
        lines.append(_speed(kind, title, by_kind[kind], beside, untimed))
    for line in lines:
        line["left_out"] = len(found.left_out(line.pop("of")))
        if not found.graded:
            line["aim"], line["reached"] = None, None
    return lines if found.graded else [line for line in lines if line["value"] is not None]


def _share(question: str, aim: str, answers: Sequence[bool]) -> dict[str, Any]:
    share = sum(answers) / len(answers) if answers else None
    return {
        "of": aim,
        "question": question,
        "aim": f"at least {AIMS[aim]:.0%} of the cells",
        "answer": f"{sum(answers)} of {len(answers)} ({100 * share:.0f}%)" if share is not None else "–",
        "value": share,
        "reached": None if share is None else share >= AIMS[aim],
    }


def _by_cell(metric: str, aim: str, gap: Gap | None) -> dict[str, Any]:
    """The distance of what the tables show: means over seeds."""
    if gap is None:
        return _distance(metric, aim, "by cell", None)
    return _distance(metric, aim, "by cell", gap.cell_gap, f", {many(gap.cells, 'cell')} of {span(gap.seeds, 'seed')}")


def _by_seed(metric: str, aim: str, gap: Gap | None) -> dict[str, Any]:
    """The distance of single runs, in which the chance of two trainings counts too: a second Retrain says how much."""
    if gap is None:
        return _distance(metric, aim, "seed by seed", None)
    more = ""
    if gap.printed_gap is not None and gap.printed < gap.cells:
        more += f", {gap.printed_gap:.4f} over the {gap.printed} cells that the paper prints"
    if gap.floor is not None:
        more += (
            f". Where Retrain was run twice, in {many(gap.again, 'cell')}: {gap.again_gap:.4f}, and the second Retrain "
        )
        more += f"has {gap.floor:.4f}"
    return _distance(metric, aim, "seed by seed", gap.seed_gap, more)


def _distance(metric: str, aim: str, how: str, value: float | None, more: str = "") -> dict[str, Any]:
    return {
        "of": aim,
        "question": f"`{CALIBRATED}`: mean distance to Retrain in {metric_name(metric)}, {how}",
        "aim": f"at most {AIMS[aim]}",
        "answer": "–" if value is None else f"{value:.4f}{more}",
        "value": value,
        "reached": None if value is None else value <= AIMS[aim],
    }


def _speed(
    kind: str, title: str, speeds: Sequence[Speed], beside: Sequence[Speed], untimed: Sequence[str]
) -> dict[str, Any]:
    """The slowest dataset; that of the other aim is named beside it and held against nothing."""
    slowest = min(speeds, key=lambda speed: speed.ratio, default=None)
    answer = _slowest(speeds) if speeds else "–"
    if speeds and untimed:
        answer += f"; not timed on {', '.join(map(dataset_name, untimed))}"
    if speeds and beside:
        answer += f". Beside it, for the aim {OTHER}: {_slowest(beside)}"
    return {
        "of": kind,
        "question": f"{title} against Retrain",
        "aim": f"at least {AIMS[kind]:.0f} times faster on every dataset",
        "answer": answer,
        "value": slowest.ratio if slowest else None,
        "reached": None if slowest is None else slowest.ratio >= AIMS[kind],
    }


def _slowest(speeds: Sequence[Speed]) -> str:
    slowest = min(speeds, key=lambda speed: speed.ratio)
    where = f"on {dataset_name(slowest.dataset)}" + f", the slowest of {len(speeds)} datasets" * (len(speeds) > 1)
    shared = [dataset_name(speed.dataset) for speed in speeds if not speed.alone] if slowest.alone else []
    others = f" ({', '.join(shared)} in a sweep)" if shared else ""
    return f"{times(slowest.ratio)} {where}; timed {_timed(slowest)}{others}"


def _timed(speed: Speed) -> str:
    if speed.alone:
        return "alone"
    where = "GPU" if speed.cell.device == "cuda" else "machine"
    return f"in a sweep of up to {speed.jobs} processes on one {where}" if speed.jobs > 1 else "in a sweep"


def headline_table(found: Acceptance) -> str:
    """The questions as a Markdown table."""
    rows = []
    for line in headline(found):
        lost = f", with {many(line['left_out'], 'failed cell')} left out" if line["left_out"] else ""
        verdict = [line["aim"], _REACHED[line["reached"]] + lost] if found.graded else []
        rows.append([line["question"], *verdict[:1], line["answer"] + lost * (not found.graded), *verdict[1:]])
    if found.graded:
        return _table(["", "aim", "result", ""], rows)
    return (_table(["", "result"], rows) + "\n\n") * bool(rows) + _UNGRADED


_UNGRADED = "Aims are set for the experiments that come with the package, not for others."


def summary_page(found: Acceptance) -> str:
    """The whole page."""
    parts = [
        "# Summary",
        f"Computed from the rows of the store alone.{' The aims were set before the runs.' * found.graded} A cell is one "
        "dataset, model, share "
        "of deleted edges and side (IN, OUT); a cell that two experiments share counts once; failed ones never count, and are "
        "listed below." + _too_short(found),
        headline_table(found),
        *_failures(found),
        *(["## Does paper() repeat the paper?", _repeated(found)] if found.graded or found.repeated else []),
        *(["## Above the paper on both scores", _above(found)] if found.graded or found.settings else []),
        "## Distance to Retrain",
        _gaps(found),
        "## Times faster than Retrain",
        _speeds(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _too_short(found: Acceptance) -> str:
    names = ", ".join(f"`{name}`" for name in found.short)
    return f" Models are trained too shortly to count in {names}." if names else ""


def _failures(found: Acceptance) -> list[str]:
    """Every cell that no number above or below counts, with the reason its row names; seeds where others have numbers."""
    if not found.failed:
        return []
    rows = [
        [*_where(found, cell), plain(method_name(cell.label)), ", ".join(map(str, sorted(cell.errors))), plain(reason)]
        for cell in found.failed
        for reason in [next(iter(cell.errors.values()))]
    ]
    counts = found.graded and any(cell.method.get("name") in ("retrain", "gnndelete") for cell in found.failed)
    note = (
        "A verdict that leaves cells out holds for the other cells alone: these could have changed it."
        if counts
        else "No verdict asks for these cells." * found.graded
    )
    return ["## Failed, and left out", note, _table([*_PLACE, "method", "seed", "why"], rows)]


def _repeated(found: Acceptance) -> str:
    others = [b for b in found.repeated if not b.within]
    parts = []
    if found.repeated:
        good = len(found.repeated) - len(others)
        parts.append(f"{good} of {len(found.repeated)} cells are within {WITHIN} of the published E_t and E_d AUROC.")
        calls = Counter(call_of(each.cell) for each in found.repeated)
        said = listed(f"`{made}` in {many(count, 'cell')}" for made, count in calls.most_common())
        parts.append(f"*{PAPER}* is {said}.")
    if others:
        parts += [
            "The others, ours minus the paper's:",
            _table([*_PLACE, "E_t", "E_d"], [_beside(found, b) for b in others]),
        ]
    if found.absent:
        parts.append(_absent(found.absent))
    return "\n\n".join(parts) or "Not run yet."


_PLACE = ["dataset", "model", "deleted"]


def _beside(found: Acceptance, each: Beside) -> list[str]:
    pairs = zip(each.ours, each.differences, strict=True)
    return _where(found, each.cell) + [f"{ours:.3f} ({difference:+.3f})" for ours, difference in pairs]


def _absent(cells: Sequence[Result]) -> str:
    """Cells of the paper without a number of ours, counted by dataset and reason."""
    groups: dict[tuple[str, str, str], int] = {}
    for cell in cells:
        key = (
            cell.place.dataset,
            cell.state,
            cell.reason or f"no run of it is in the store; {cell.experiment} asks for it",
        )
        groups[key] = groups.get(key, 0) + 1
    rows = [[dataset_name(d), str(n), state, plain(reason)] for (d, state, reason), n in groups.items()]
    return "Cells of the paper without a number of ours:\n\n" + _table(["dataset", "cells", "", "why"], rows)


def _above(found: Acceptance) -> str:
    if not found.settings:
        return "Not run yet."
    rows = [
        [f"**{plain(label)}**" if label == found.best else plain(label), *_counts(besides)]
        for label, besides in found.settings.items()
    ]
    head = [
        "setting",
        "cells",
        "above on both",
        "above in E_t",
        "above in E_d",
        "mean difference E_t",
        "mean difference E_d",
    ]
    parts = [f"One setting is taken for all cells: `{found.best}`. The others are shown beside it.", _table(head, rows)]
    below = [b for b in found.settings.get(found.best, ()) if not b.above]
    if below:
        parts += [
            f"Where `{found.best}` is not above:",
            _table([*_PLACE, "E_t", "E_d"], [_beside(found, b) for b in below]),
        ]
    return "\n\n".join(parts)


def _counts(besides: Sequence[Beside]) -> list[str]:
    size = len(besides)
    means = [sum(b.differences[i] for b in besides) / size for i in (0, 1)]
    counts = [sum(b.above for b in besides), *(sum(b.differences[i] > 0 for b in besides) for i in (0, 1))]
    return [str(size), *map(str, counts), *(f"{value:+.3f}" for value in means)]


def _gaps(found: Acceptance) -> str:
    if not found.gaps:
        return "Not run yet."
    note = (
        "A gap is a method's score minus Retrain's with the same seed. *Seed by seed* is the mean of its size, *by cell* the "
        "mean of the size of a cell's mean gap, *signed* the mean itself. By cell is what the tables show; seed by seed the "
        "chance of two trainings counts too. For links both are taken over the cells that have both scores. Settings that were "
        "tried in fewer than a quarter of the cells are left out, but for a second Retrain, which shows how near two models "
        "trained with other seeds are. Where methods were not tried in the same cells, *shared* is the distance seed by seed "
        "over the cells that they have in common, and rows are sorted by it; – has too few of them to compare. Runs whose lam "
        "was to be calibrated and could not be go by a name of their own (*lam stated*)."
    )
    parts = [note, found.bases]
    for task in dict.fromkeys(gap.task for gap in found.gaps):
        for metric in ("test_auroc", "test_accuracy", "unseen_auc"):
            own = [gap for gap in found.gaps if (gap.task, gap.metric) == (task, metric)]
            if own:
                title = "unseen AUC" if metric == "unseen_auc" else _USE[task, metric]
                parts.append(_distances(found, f"{title}, {task}", own))
    return "\n\n".join(parts)


def _distances(found: Acceptance, title: str, own: Sequence[Gap]) -> str:
    """One score of all methods, nearest first: over the cells that they share, where they do not all have the same."""
    shared = max(gap.shared for gap in own)
    apart = any(gap.cells != shared for gap in own)
    rows = [
        [
            plain(method_name(g.label)),
            str(g.cells),
            *_sizes(g),
            *[_shared(g)] * apart,
            ", ".join(_where(found, g.worst)),
        ]
        for g in sorted(own, key=lambda g: (inf if g.shared_gap is None else g.shared_gap, g.seed_gap))
    ]
    column = [f"shared, {many(shared, 'cell')}"] * apart
    return _table([title, "cells", "seed by seed", "by cell", "signed", *column, "farthest cell"], rows)


def _shared(gap: Gap) -> str:
    return "–" if gap.shared_gap is None else f"{gap.shared_gap:.4f}"


_USE = {
    ("link", "test_auroc"): "E_t AUROC",
    ("node", "test_accuracy"): "accuracy",
    ("graph", "test_auroc"): "AUROC",
    ("graph", "test_accuracy"): "accuracy",
    ("node", "test_auroc"): "AUROC",
    ("link", "test_accuracy"): "accuracy",
}


def _sizes(gap: Gap) -> list[str]:
    return [f"{gap.seed_gap:.4f}", f"{gap.cell_gap:.4f}", f"{gap.signed:+.4f}"]


def _speeds(found: Acceptance) -> str:
    if not found.speeds:
        return "Not run yet."
    note = (
        "Per dataset the slowest cell: the median over seeds of Retrain's time by the deletion's, on the same hardware. "
        "*Alone* means that nothing else ran while times were taken; where there are such cells, the others do not count."
    )
    rows = []
    for speed in found.speeds:
        kind = {"fixed": "fixed lam", "nonexistent": "calibrated, aim nonexistent"}.get(speed.kind, speed.kind)
        # a cell that takes times has also those of the other kinds of deletion, which its own name does not tell
        label = speed.cell.label if kind_of(speed.cell) == speed.kind else kind
        worst = ", ".join([*_where(found, speed.cell)[1:], plain(label)])
        how = _timed(speed)
        rows.append([dataset_name(speed.dataset), kind, times(speed.ratio), how, worst, str(speed.cells)])
    return f"{note}\n\n" + _table(["dataset", "", "times faster", "timed", "slowest cell", "of cells"], rows)


def _where(found: Acceptance, cell: Result) -> list[str]:
    place = cell.place
    return [dataset_name(place.dataset), found.model(place), request_name(place)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
