"""Tables of an experiment, with the paper's number next to ours, as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gnndelete.bench import published as paper
from gnndelete.bench.cells import unusual_options
from gnndelete.bench.names import (
    METRICS,
    amount_title,
    counted,
    dataset_title,
    is_share,
    listed,
    method_title,
    metric_title,
    model_options,
    model_titles,
    number,
)
from gnndelete.bench.published import Published
from gnndelete.bench.report.results import Plan, Result, Scenario, Stat, is_fallback, originals, references

#: Scores of utility; a table of gaps shows those that were measured.
UTILITY = ("test_auroc", "test_accuracy")

#: Columns of the second table: scores whose gap to Retrain is shown, and costs.
GAPS = (*UTILITY, "unseen_auc", "mi_ratio")
COSTS = ("lam", "seconds", "speedup")

#: Codes of notes that readers of a table need: why a number is missing or says little.
TABLE_NOTES = ("loss-not-risen", "no-training-term-near", "not-measured", "all-edges-in")

#: LaTeX tables with more columns than this are scaled to the width of a line.
WIDEST_LATEX = 8

_NO_BREAK = "\u00a0"  # keeps a number and its error on one line


@dataclass(frozen=True)
class Entry:
    """One cell of a table: our mean, the paper's number, and the state of the runs."""

    metric: str
    stat: Stat | None = None
    paper: Published | None = None
    state: str = ""  # empty where the experiment does not ask for this cell
    signed: bool = False

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return self.stat.mean - self.paper.value if self.stat and self.paper else None


@dataclass(frozen=True)
class Line:
    """One method in a table."""

    label: str
    seeds: tuple[int, int]  # fewest and most seeds among its entries
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """A title, groups of columns (one per model) and lines."""

    name: str
    title: str
    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    several: bool = False  # whether columns have to name their model

    @property
    def empty(self) -> bool:
        """Whether it has no number of ours."""
        return not any(entry.stat for line in self.lines for entry in line.entries)


@dataclass(frozen=True)
class Section:
    """One dataset and one deletion: the scores, the gaps and costs, and remarks on missing numbers."""

    title: str
    scores: Table
    costs: Table
    remarks: tuple[str, ...] = ()


def sections(plan: Plan, results: Sequence[Result]) -> list[Section]:
    """The tables of an experiment, one section per dataset and deletion, in the order of its file."""
    made = []
    for index, setting in enumerate(dict.fromkeys(result.scenario.setting for result in results), 1):
        here = [result for result in results if result.scenario.setting == setting]
        first = here[0].scenario
        alike = [o for o in results if (o.scenario.dataset, o.scenario.request) == (first.dataset, first.request)]
        differs = _setting(here[0], alike)
        title = f"{dataset_title(first.dataset)}: {first.request}" + (f" ({differs})" if differs else "")
        name = f"{plan.file_name}-{index}"
        costs = _costs(here, f"{name}-cost", f"{title}; gap to Retrain and cost")
        made.append(Section(title, _scores(plan, here, name, title), costs, tuple(remarks(here))))
    return made


def remarks(results: Sequence[Result]) -> list[str]:
    """One sentence per reason for a missing or unusual number, with the methods that it holds for."""
    models = model_titles(result.scenario.variant for result in results)
    found: dict[str, dict[str, None]] = {}
    for result in results:
        name = f"{method_title(result.label)} ({models[result.scenario.variant]})"
        for text in _texts(result):
            found.setdefault(text.rstrip("."), {})[name] = None
    everyone = len(results) if len(results) > 1 else 0
    return [f"{'All' if len(who) == everyone else listed(who)}: {text}." for text, who in found.items()]


def _texts(result: Result) -> Iterator[str]:
    if result.state in ("failed", "not here", "not run"):
        yield f"{result.state}: {result.reason}" if result.reason else result.state
    elif result.reason:
        yield result.reason
    if any(is_fallback(row) for row in result.rows.values()):
        yield "lam could not be calibrated, and the fallback was used"
    notes = [note for row in result.rows.values() for note in row.get("notes") or () if note["code"] in TABLE_NOTES]
    yield from dict.fromkeys(note["text"] for note in notes)


def score_metrics(plan: Plan, results: Sequence[Result]) -> list[str]:
    """The scores an experiment has or the paper reports for it, in the order of `METRICS`; others last."""
    found = {name for result in results for row in result.rows.values() for name in row["scores"]}
    found |= set(paper.metrics(plan.published))
    return [name for name in METRICS if name in found] + sorted(found - set(METRICS))


def entry(plan: Plan, result: Result, metric: str, reference: Result | None, step: int | None) -> Entry:
    """One number of a result with the paper's; ``step`` takes a sequence after that many requests."""
    scenario, amount = result.scenario, result.scenario.amount
    if step is not None:
        amount = amount * step / scenario.steps
    cell = (scenario.dataset, scenario.model, scenario.where, amount)
    theirs = paper.published(plan.published, *cell, result.label, metric)
    if metric == "speedup":
        stat = result.speedup(reference) if result is not reference else None
    else:
        stat = result.stat(metric, step)
    return Entry(metric, stat, theirs, "not measured" if stat is None and result.state == "done" else result.state)


def lam_of(result: Result, step: int | None = None) -> Stat | None:
    """The lam of GNNDelete, fixed or calibrated; other methods use the name for something else."""
    return result.stat("lam", step) or result.stat("lam") if result.is_gnndelete else None


def _scores(plan: Plan, results: Sequence[Result], name: str, title: str) -> Table:
    """The scores of every method that was started or that the paper has; of a sequence after each request."""
    results = [*originals(results), *results]
    metrics = [metric for metric in score_metrics(plan, results) if metric in METRICS]
    rows: list[tuple[str, int | None]] = []
    for result in results:
        steps = range(1, result.scenario.steps + 1) if result.scenario.steps > 1 and result.method else [None]
        rows += [(result.label, step) for step in steps]

    def shown(item: Entry) -> bool:
        return bool(item.stat or item.paper) or item.state not in ("", "not run", "not here")

    return _table(name, title, results, rows, metrics, lambda *cell: entry(plan, *cell), shown)


def _costs(results: Sequence[Result], name: str, title: str) -> Table:
    """The gaps to Retrain, lam, the time and how many times faster than Retrain every method is."""

    def make(result: Result, kind: str, reference: Result | None, step: int | None) -> Entry:
        if kind == "lam":
            return Entry(kind, lam_of(result, step))
        if kind == "seconds":
            return Entry(kind, result.stat(kind, step))
        if result is reference:
            return Entry(kind)
        if kind == "speedup":
            return Entry(kind, result.speedup(reference))
        return Entry(kind, result.gap(kind, reference), signed=True)

    rows = [(result.label, None) for result in results]
    return _table(name, title, results, rows, (*GAPS, *COSTS), make, lambda item: item.stat is not None)


def _table(
    name: str,
    title: str,
    results: Sequence[Result],
    rows: Iterable[tuple[str, int | None]],
    metrics: Sequence[str],
    make: Callable[[Result, str, Result | None, int | None], Entry],
    shown: Callable[[Entry], bool],
) -> Table:
    """A table with a line for each label and step, and a column for each model and metric; ``shown`` decides on lines."""
    lookup = {(result.label, result.scenario.variant): result for result in results}
    retrained, variants = references(results), list(dict.fromkeys(result.scenario.variant for result in results))
    columns, lines = list(product(variants, metrics)), []
    for label, step in dict.fromkeys(rows):
        entries = []
        for variant, metric in columns:
            result = lookup.get((label, variant))
            reference = retrained.get(result.scenario.identity) if result else None
            entries.append(make(result, metric, reference, step) if result else Entry(metric))
        counts = [len(each.rows) for each in results if each.label == label and each.rows] or [0]
        line_title = _line_title(label, results[0].scenario, step)
        lines.append(Line(line_title, (min(counts), max(counts)), tuple(entries)))
    chosen = _filled_columns(columns, lines)
    widths = {variant: sum(columns[i][0] == variant for i in chosen) for variant in variants}
    groups = tuple((model, widths[variant]) for variant, model in model_titles(variants).items() if widths[variant])
    signed = {i for i in chosen if any(line.entries[i].signed for line in lines)}
    titles = tuple(metric_title(columns[i][1]) + " gap" * (i in signed) for i in chosen)
    lines = [Line(line.label, line.seeds, tuple(line.entries[i] for i in chosen)) for line in lines]
    lines = [line for line in lines if any(map(shown, line.entries))]
    return Table(name, title, groups, titles, tuple(lines), len(variants) > 1)


def _filled_columns(columns: Sequence[tuple[str, str]], lines: Sequence[Line]) -> list[int]:
    """The columns with numbers; where nothing was run, those with the paper's numbers.

    A model without numbers keeps a column that another model has numbers in, as long as its runs have a state to show.
    """
    measured = {metric for i, (_, metric) in enumerate(columns) if any(line.entries[i].stat for line in lines)}

    def shown(i: int) -> bool:
        entries = [line.entries[i] for line in lines]
        if not measured:
            return any(item.paper for item in entries)
        waiting = columns[i][1] in measured and any(item.state not in ("", "done", "not measured") for item in entries)
        return waiting or any(item.stat for item in entries)

    return [i for i in range(len(columns)) if shown(i)]


def _line_title(label: str, scenario: Scenario, step: int | None) -> str:
    if step is None:
        return method_title(label)
    return f"{method_title(label)}, {amount_title(so_far(scenario.amount, step, scenario.steps))}"


def so_far(amount: float, step: int, steps: int) -> float:
    """What the first requests of a sequence delete together; the first ones take the remainder.

    >>> so_far(0.5, 1, 4), so_far(20, 2, 3), so_far(3, 1, 3)
    (0.125, 14, 1)
    """
    if is_share(amount):
        return amount * step / steps
    each, remainder = divmod(int(amount), steps)
    return step * each + min(step, remainder)


def _setting(result: Result, others: Iterable[Result]) -> str:
    """The hops and steps of a deletion, where those of others that look the same differ."""
    mine = json.loads(result.scenario.setting)["forget"]
    theirs = [json.loads(each.scenario.setting)["forget"] for each in others]
    names = [name for name in ("hops", "steps") if any(other.get(name) != mine.get(name) for other in theirs)]
    return ", ".join(f"forget {name} {mine[name]}" for name in names)


# What an entry says.


def _ours(item: Entry, seeds: int) -> str:
    """Our number with its error, and its seeds where they are fewer than those of its line; else the state."""
    if item.stat is None:
        return "–" if item.state in ("", "done", "not measured") else item.state
    shown = number(item.metric, item.stat.mean, item.signed)
    has_error = bool(item.stat.error) if item.metric == "parameters" else item.stat.error is not None
    if has_error and not item.signed and item.metric not in COSTS:
        shown += f" ± {number(item.metric, item.stat.error or 0)}"
    return shown + (f" ({counted(item.stat.count, 'seed')})" if item.stat.count < seeds else "")


def _theirs(item: Entry) -> str:
    if item.paper is None:
        return ""
    text = f"paper {number(item.metric, item.paper.value)}"
    return text if item.difference is None else f"{text}, {number(item.metric, item.difference, signed=True)}"


def _span(seeds: tuple[int, int]) -> str:
    return str(seeds[0]) if seeds[0] == seeds[1] else f"{seeds[0]}–{seeds[1]}"


# Markdown.


def escape_markdown(text: str) -> str:
    r"""Text that neither Markdown nor HTML acts on.

    >>> escape_markdown("needs <x> | *y*")
    'needs &lt;x&gt; \\| \\*y\\*'
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "|*_`[]" else sign for sign in text)


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; the first ``left`` columns are aligned left, the others right.

    >>> print(grid(["a", "b"], [["c", "1"]]))
    | a | b |
    | --- | ---: |
    | c | 1 |
    """
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def markdown(table: Table) -> str:
    """A table as Markdown; with several models, column titles name the model."""

    def cell(item: Entry, seeds: int) -> str:
        ours = _ours(item, seeds)
        ours = f"*{ours}*" if item.stat is None and ours != "–" else ours
        return (f"{ours}<br><small>{_theirs(item)}</small>" if item.paper else ours).replace(" ", _NO_BREAK)

    groups = [title for title, width in table.groups for _ in range(width)]
    pairs = zip(groups, table.columns, strict=True)
    titles = [f"{group}<br>{column}" if table.several else column for group, column in pairs]
    rows = [
        [escape_markdown(line.label), *(cell(item, line.seeds[1]) for item in line.entries), _span(line.seeds)]
        for line in table.lines
    ]
    return grid(["method", *titles, "seeds"], rows)


# LaTeX.

_LATEX_SIGNS = {
    **{sign: f"\\{sign}" for sign in "%&#_${}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    _NO_BREAK: "~",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "−": "$-$",
    "+": "$+$",
}


def _escape_latex(text: str) -> str:
    return "".join(_LATEX_SIGNS.get(sign, sign) for sign in text)


def _latex_number(text: str) -> str:
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", _escape_latex(text.replace(" ", _NO_BREAK)))


def latex(table: Table) -> str:
    r"""A LaTeX ``table``; a wide one is scaled to a line by the package ``graphicx``.

    >>> print(latex(Table("t", "A 5% request", (("GCN", 1),), ("E_t",), ())).splitlines()[3])
    \caption{A 5\% request.}
    """

    def cell(item: Entry, seeds: int) -> str:
        ours = _latex_number(_ours(item, seeds))
        theirs = _latex_number(_theirs(item))
        return rf"\shortstack{{{ours} \\ {{\scriptsize {theirs}}}}}" if theirs else ours

    wide = len(table.columns) + 2 > WIDEST_LATEX
    lines = [r"\begin{table}", r"\centering", r"\small", rf"\caption{{{_escape_latex(table.title)}.}}"]
    lines.append(rf"\label{{tab:{table.name}}}")
    lines.append(r"\resizebox{\linewidth}{!}{" * wide + rf"\begin{{tabular}}{{l{'c' * (len(table.columns) + 1)}}}")
    lines.append(r"\hline")
    if table.several:
        heads = " & ".join(rf"\multicolumn{{{width}}}{{c}}{{{_escape_latex(title)}}}" for title, width in table.groups)
        lines.append(rf" & {heads} & \\")
    lines.append(rf"method & {' & '.join(map(_escape_latex, table.columns))} & seeds \\ \hline")
    for line in table.lines:
        # After the end of a row, a bracket or a star would be read as its option.
        label = "{}" * line.label.startswith(("[", "*")) + _escape_latex(line.label)
        cells = [cell(item, line.seeds[1]) for item in line.entries]
        lines.append(" & ".join([label, *cells, _escape_latex(_span(line.seeds))]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}" + "}" * wide, r"\end{table}"]) + "\n"


def latex_page(plan: Plan, found: Sequence[Section]) -> str:
    """All tables of an experiment for LaTeX, with remarks on missing numbers below them."""
    parts = [
        f"% {' '.join(plan.title.split())}: made by gnndelete bench report",
        r"% needs \usepackage{graphicx} in the preamble: wide tables are scaled to a line",
    ]
    for section in found:
        parts += [latex(table) for table in (section.scores, section.costs) if table.columns and table.lines]
        sentences = [f"{section.title}. {text}" for text in section.remarks]
        parts += [rf"\par\noindent {{\footnotesize {_escape_latex(text)}}}" + "\n" for text in sentences]
    return "\n".join(parts) + "\n"


# CSV.

_CSV_COLUMNS = (
    *("experiment", "task", "dataset", "model", "model_options", "kind", "where", "amount", "setting", "step"),
    *("method", "lam", "metric", "seeds", "seeds_wanted", "mean", "standard_error"),
    *("published", "published_std", "difference", "gap_to_retrain", "gap_standard_error", "seconds", "state", "reason"),
)


def tidy_csv(plan: Plan, results: Sequence[Result]) -> str:
    """All numbers of an experiment as CSV, one to a line, with state and reason.

    ``model_options`` and ``setting`` name what distinguishes a model or a deletion from others that look the same. For a
    sequence, each line has what was deleted so far and the seconds of that request.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    retrained, metrics = references(results), score_metrics(plan, results) or [""]
    options = model_options(result.scenario.variant for result in results)
    alike: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        alike.setdefault(_request(result.scenario), []).append(result)
    for result in results:
        scenario, reference = result.scenario, retrained.get(result.scenario.identity)
        where = {
            "model_options": options[scenario.variant] or unusual_options(json.loads(scenario.variant), scenario.task),
            "setting": _setting(result, alike[_request(scenario)]),
        }
        for step in range(1, scenario.steps + 1) if scenario.steps > 1 else (None,):
            for metric in metrics:
                item = entry(plan, result, metric, reference, step)
                if item.stat or item.paper or result.state != "done":
                    writer.writerow(where | _record(result, item, reference, step))
    return buffer.getvalue()


def _request(scenario: Scenario) -> tuple[object, ...]:
    return scenario.dataset, scenario.kind, scenario.where, scenario.amount


def _record(result: Result, item: Entry, reference: Result | None, step: int | None) -> dict[str, object]:
    scenario, stat, theirs = result.scenario, item.stat, item.paper
    gap = result.gap(item.metric, reference, step) if result is not reference else None
    time, lam = result.stat("seconds", step), lam_of(result, step)
    numbers = {
        "lam": lam and lam.mean,
        "mean": stat and stat.mean,
        "standard_error": stat and stat.error,
        "published": theirs and theirs.value,
        "published_std": theirs and theirs.std,
        "difference": item.difference,
        "gap_to_retrain": gap and gap.mean,
        "gap_standard_error": gap and gap.error,
        "seconds": time and time.mean,
    }
    return {
        "experiment": result.experiment,
        "task": scenario.task,
        "dataset": scenario.dataset,
        "model": scenario.model,
        "kind": scenario.kind,
        "where": scenario.where,
        "amount": scenario.amount if step is None else f"{so_far(scenario.amount, step, scenario.steps):.6g}",
        "step": step,
        "method": result.label,
        "metric": item.metric,
        "seeds": stat.count if stat else 0,
        "seeds_wanted": result.wanted,
        **{name: "" if value is None else f"{value:.6g}" for name, value in numbers.items()},
        "state": item.state,
        "reason": result.reason,
    }
