"""One table as Markdown or LaTeX, and all cells of an experiment as CSV with one number to a line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace

from gnndelete.bench.cells import unusual_options
from gnndelete.bench.gathered import Plan, Result, references
from gnndelete.bench.published import Published
from gnndelete.bench.reasons import UNRUN
from gnndelete.bench.tables import Entry, Table, asked_metrics, entry, lam_of, score_metrics, settings_apart, so_far
from gnndelete.bench.wording import many, model_options, number, spread

_PLACE = ("experiment", "task", "dataset", "model", "model_options", "kind", "where", "amount", "setting", "step")
_COUNTS = ("method", "lam", "metric", "seeds", "seeds_wanted")
_OURS = ("mean", "standard_error")
_THEIRS = ("published", "published_std", "difference")
_REST = ("gap_to_retrain", "gap_standard_error", "seconds", "state", "reason")

#: Columns that fit beside each other on a page, and what makes a table of more of them fit.
_WIDE = 8
_SHRUNK = r"\resizebox{\linewidth}{!}{"

_TOGETHER = "\u00a0"  # a space at which no line breaks, so that a number stays beside its error


class Notes:
    """Reasons below a table, each numbered once.

    >>> notes = Notes()
    >>> notes.mark("memory ran out"), notes.mark("memory ran out"), notes.mark("")
    (' [1]', ' [1]', '')
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def mark(self, reason: str) -> str:
        if not reason:
            return ""
        if reason not in self.reasons:
            self.reasons.append(reason)
        return f" [{self.reasons.index(reason) + 1}]"


def markdown(table: Table) -> str:
    """A Markdown table; where there are several models, their names stand in the column titles."""
    notes = Notes()
    lines = [["method", *_titles(table), "seeds"]]
    for line in table.lines:
        cells = [_markdown(item, notes, line.seeds[1]) for item in line.entries]
        lines.append([plain(line.label), *cells, _seeds(line.seeds)])
    told = "".join(f"\n\n[{i}] {plain(sentence(reason))}" for i, reason in enumerate(notes.reasons, 1))
    return f"{_grid(lines)}{told}\n"


def published_markdown(table: Table) -> str:
    """The paper's numbers alone, where there are none of ours; empty where the paper has none either."""
    lines = [
        [plain(line.label), *(number(item.metric, item.paper.value) if item.paper else "–" for item in line.entries)]
        for line in table.lines
        if any(item.paper for item in line.entries)
    ]
    return _grid([["the paper's", *_titles(table)], *lines]) if lines else ""


def _titles(table: Table) -> list[str]:
    """Titles of columns, with the model where there are several."""
    groups = [title for title, width in table.groups for _ in range(width)]
    pairs = zip(groups, table.columns, strict=True)
    return [f"{group}<br>{column}" if table.several else column for group, column in pairs]


def _grid(lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(lines[0]) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def plain(text: str) -> str:
    r"""Words of others in a Markdown page, with nothing in them that Markdown or HTML would act on.

    >>> plain("needs <x> | *y*")
    'needs &lt;x&gt; \\| \\*y\\*'
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{sign}" if sign in "|*_`[]" else sign for sign in text)


def _markdown(item: Entry, notes: Notes, seeds: int) -> str:
    """One cell; ``seeds`` is how many its line speaks of, and one that rests on fewer says so."""
    if item.stat is None:
        empty = item.state in ("", "done", "not measured")
        shown = ("–" if empty else f"*{item.state}*") + notes.mark(item.reason)
    else:
        signed = number(item.metric, item.stat.mean, signed=True)
        shown = signed if item.signed else spread(item.metric, item.stat)
        shown += f" ({many(item.stat.count, 'seed')})" * (item.stat.count < seeds) + notes.mark(item.reason)
    beside = _beside(item)
    return (f"{shown}<br><small>{beside}</small>" if beside else shown).replace(" ", _TOGETHER)


def _beside(item: Entry) -> str:
    if item.paper is None:
        return ""
    text = f"paper {number(item.metric, item.paper.value)}"
    return text if item.difference is None else f"{text}, {number(item.metric, item.difference, signed=True)}"


def latex(table: Table) -> str:
    r"""A LaTeX ``table`` that needs no package; one of many columns is made as narrow as a line by ``graphicx``.

    >>> print(latex(Table("t", "A 5% request", (("GCN", 1),), ("E_t",), ())).splitlines()[3])
    \caption{A 5\% request.}
    """
    notes = Notes()
    lines = [r"\begin{table}", r"\centering", r"\small", rf"\caption{{{_escape(table.title)}.}}"]
    lines.append(rf"\label{{tab:{table.name}}}")
    shrunk = len(table.columns) + 2 > _WIDE
    lines += [_SHRUNK * shrunk + rf"\begin{{tabular}}{{l{'c' * (len(table.columns) + 1)}}}", r"\hline"]
    if table.several:
        heads = " & ".join(rf"\multicolumn{{{width}}}{{c}}{{{_escape(title)}}}" for title, width in table.groups)
        lines.append(rf" & {heads} & \\")
    lines.append(rf"method & {' & '.join(_escape(title) for title in table.columns)} & seeds \\ \hline")
    for line in table.lines:
        cells = [_latex(item, notes, line.seeds[1]) for item in line.entries]
        # after the end of a row, a bracket or a star would be taken for an option of it
        label = "{}" * line.label.startswith(("[", "*")) + _escape(line.label)
        lines.append(" & ".join([label, *cells, _escape(_seeds(line.seeds))]) + r" \\")
    lines += [r"\hline", r"\end{tabular}" + "}" * shrunk]
    lines += [rf"\par {{\footnotesize [{i}] {_escape(sentence(text))}}}" for i, text in enumerate(notes.reasons, 1)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def latex_needs(body: str) -> list[str]:
    """What a file with such tables asks of the document that takes it in, as comments for its top."""
    return [r"% needs \usepackage{graphicx} in the preamble: wide tables are scaled to a line"] * (_SHRUNK in body)


def latex_note(title: str, reasons: Sequence[str]) -> str:
    r"""In the place of a table without a number: its title, and why there is none.

    >>> latex_note("CS: 5% of the edges", ["not run"])
    '\\par\\noindent {\\footnotesize CS: 5\\% of the edges: not run.}\n'
    """
    said = " ".join(sentence(reason, capital=False) for reason in reasons)
    return rf"\par\noindent {{\footnotesize {_escape(title)}: {_escape(said)}}}" + "\n"


def _latex(item: Entry, notes: Notes, seeds: int) -> str:
    shown = _escape(_markdown(replace(item, paper=None), notes, seeds))
    shown = _minus(shown.replace("*", ""))
    beside = _minus(_escape(_beside(item)))
    return rf"\shortstack{{{shown} \\ {{\scriptsize {beside}}}}}" if beside else shown


def _minus(shown: str) -> str:
    """Numbers with a minus where they have a hyphen."""
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", shown)


_SIGNS = {
    **{sign: f"\\{sign}" for sign in "%&#_${}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    _TOGETHER: "~",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "−": "$-$",
    "+": "$+$",
}


def _escape(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in text)


def tidy_csv(plan: Plan, cells: Sequence[Result]) -> str:
    """Every cell and score of an experiment, full digits, one to a line, with its state and the reason.

    ``model_options`` and ``setting`` say in what a model, or a deletion, differs from others that look the same; where a
    model is the only one of its name, the options in which it is not the usual one. Of a sequence every line has what was
    deleted by then, and the seconds of that request alone.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*_PLACE, *_COUNTS, *_OURS, *_THEIRS, *_REST])
    retrained, metrics = references(cells), score_metrics(plan, cells) or asked_metrics(cells)
    options, settings = model_options(cell.place.variant for cell in cells), settings_apart(c.place for c in cells)
    for cell in cells:
        model, task = json.loads(cell.place.variant), cell.place.task
        apart = options[cell.place.variant] or unusual_options(model, task), settings[cell.place.setting]
        reference = retrained.get(cell.place.rest)
        for step in range(1, cell.place.steps + 1) if cell.place.steps > 1 else (None,):
            for metric in metrics:
                item = entry(plan, cell, metric, reference, step)
                if item.stat or item.paper or cell.state != "done":
                    writer.writerow(_record(cell, apart, item, reference, step))
    return buffer.getvalue()


def _record(
    cell: Result, apart: tuple[str, str], item: Entry, reference: Result | None, step: int | None
) -> list[object]:
    place, theirs = cell.place, item.paper or Published(float("nan"))
    gap = cell.gap(item.metric, reference, step) if cell is not reference else None
    time, stat = cell.stat("seconds", step), item.stat
    numbers = [stat.mean if stat else None, stat.error if stat else None]
    numbers += [theirs.value if item.paper else None, theirs.std, item.difference]
    numbers += [gap.mean if gap else None, gap.error if gap else None, time.mean if time else None]
    options, setting = apart
    amount: object = place.amount
    if step is not None and place.amount is not None:
        amount = f"{so_far(place.amount, step, place.steps):.6g}"
    where = [cell.experiment, place.task, place.dataset, place.model, options, place.kind, place.where, amount]
    lam = lam_of(cell, step)
    counts = [cell.label, f"{lam.mean:.6g}" if lam else "", item.metric, stat.count if stat else 0, cell.wanted]
    shown = ["" if value is None else f"{value:.6g}" for value in numbers]
    reason = item.reason or (UNRUN if item.state == "not run" else "")
    return [*where, setting, step, *counts, *shown, item.state, reason]


def _seeds(seeds: tuple[int, int]) -> str:
    return str(seeds[0]) if seeds[0] == seeds[1] else f"{seeds[0]}–{seeds[1]}"


def sentence(text: str, capital: bool = True) -> str:
    """A reason with a full stop, and with a capital letter.

    >>> sentence("memory ran out")
    'Memory ran out.'
    """
    text = " ".join(text.split())
    return (text[:1].upper() + text[1:] if capital else text) + ("" if text.endswith((".", "!", "?")) else ".")
