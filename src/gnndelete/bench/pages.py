"""Markdown pages of a report: one per experiment, and the index that leads to them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from gnndelete.bench.acceptance import Acceptance
from gnndelete.bench.caveats import other_bases, outdated
from gnndelete.bench.cells import unusual_options
from gnndelete.bench.formats import markdown, plain, published_markdown
from gnndelete.bench.gathered import Plan, Result
from gnndelete.bench.reasons import GIVEN, UNRUN, grouped, kept_to, noted
from gnndelete.bench.settings import settings_table
from gnndelete.bench.summary import headline_table
from gnndelete.bench.tables import Section, sections, silent
from gnndelete.bench.timecurves import TIMES, timings
from gnndelete.bench.wording import (
    EXPLAINED,
    dataset_name,
    listed,
    many,
    method_name,
    model_name,
    model_titles,
    request_name,
    seconds,
    times,
)


@dataclass(frozen=True)
class Commands:
    """The command lines that made the results and the report; ``given`` is what else the report was asked for."""

    store: str
    out: str
    device: str
    names: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    def run(self, plan: Plan, results: Sequence[Result]) -> str:
        """What does the runs of a page: the seeds and methods that stand there, or all where nothing does."""
        seeds = list(dict.fromkeys(wanted.key["seed"] for wanted in plan.cells))
        done = {seed for result in results for seed in (*result.rows, *result.errors)}
        first = max((seeds.index(seed) + 1 for seed in done), default=len(seeds))
        unsaid, labels = set(silent(plan, results)), dict.fromkeys(result.label for result in results)
        tried = [label for label in labels if label not in unsaid]
        only = ["--only", ",".join(tried)] if done and unsaid else []
        return self._run(plan, first, *only)

    def rest(self, plan: Plan, results: Sequence[Result]) -> str:
        """What does the runs that a page counts and does not have, where `run` does not; else nothing."""
        here = [result for result in results if not result.unfit and result.state != "not here"]
        if all(len(result.rows) == result.wanted for result in here):
            return ""
        again = ["--retry-failed"] if any(result.errors for result in here) else []
        whole = self._run(plan, len({wanted.key["seed"] for wanted in plan.cells}), *again)
        return whole if whole != self.run(plan, results) else ""

    def _run(self, plan: Plan, seeds: int, *options: str) -> str:
        name = plan.source or (plan.name if plan.shipped else f"{plan.name}.yaml")
        asked = [name, "--seeds", str(seeds), *options, "--device", self.device, "--store", self.store]
        return shlex.join(["gnndelete", "bench", "run", *asked])

    @property
    def report(self) -> str:
        asked = [*self.names, "--device", self.device, "--store", self.store, "--out", self.out, *self.given]
        return shlex.join(["gnndelete", "bench", "report", *asked])


@dataclass(frozen=True)
class Pictured:
    """Figures by file name, each with the sentence that describes it."""

    alts: Mapping[str, str] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)  # what a figure leaves out, where it does

    def links(self, folder: str) -> str:
        shown = []
        for name, alt in self.alts.items():
            shown += [f"![{alt}]({folder}figures/{quote(name)})", self.captions.get(name, "")]
        return "\n\n".join(part for part in shown if part)


def page_path(name: str) -> str:
    """Where the page of an experiment is.

    >>> page_path("paper/link-dblp"), page_path("mine")
    ('paper/link-dblp.md', 'own/mine.md')
    """
    return f"{name if '/' in name else f'own/{name}'}.md"


def heading(text: str) -> str:
    r"""A title in one line, with nothing in it that Markdown or HTML would act on.

    >>> heading("a <b>|\nc")
    'a &lt;b&gt;\\| c'
    """
    return plain(" ".join(text.split()))


def flat(name: str) -> str:
    return name.replace("/", "-")


def experiment_page(plan: Plan, results: Sequence[Result], pictures: Pictured, commands: Commands) -> str:
    """Tables, figures and the commands of one experiment."""
    parts = [f"# {heading(plan.title)}", plan.about.strip()]
    parts.append(
        f"{_counted(results)} Also as [CSV](../tables/{quote(flat(plan.name))}.csv) and "
        f"[LaTeX](../tables/{quote(flat(plan.name))}.tex)."
    )
    parts += [_models(plan), _explained(results), _unsaid(plan, results)]
    parts += [plain(kept_to(results)), plain(other_bases(results)), outdated(results)]
    parts += _unmeasured(results)
    parts.append(f"```bash\n{commands.run(plan, results)}\n```")
    rest = commands.rest(plan, results)
    parts.append(f"What is missing is done by\n\n```bash\n{rest}\n```" if rest else "")
    parts.append(pictures.links("../"))
    parts.append(_times(results))
    shown = ""
    for section in sections(plan, results):
        why = absent([result for result in results if result.place.dataset == section.dataset])
        if not why:
            parts += _section(section)
            continue
        values = published_markdown(section.scores)
        if section.dataset != shown:
            parts += [f"## {dataset_name(section.dataset)}", why + _THEIRS * bool(values)]
        shown = section.dataset
        parts += [f"### {heading(section.title)}", values] if values else []
    parts.append(settings_table([result for result in results if result.rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def absent(results: Sequence[Result]) -> str:
    """One sentence where a whole dataset has no number and one reason, else nothing."""
    states = {(result.state, result.reason) for result in results}
    if len(states) != 1 or any(result.rows for result in results):
        return ""
    state, reason = states.pop()
    reason = reason or UNRUN * (state == "not run")
    return f"*{state[:1].upper()}{state[1:]}*{f': {plain(reason)}' if reason else ''}."


_THEIRS = " The paper's numbers:"


def _section(section: Section) -> list[str]:
    parts = [f"## {heading(section.title)}"]
    if all(cell.state == "not run" for cell in section.cells):
        values = published_markdown(section.scores)
        return [*parts, f"*Not run*: {UNRUN}.{_THEIRS * bool(values)}", values]
    scored = bool(section.scores.lines and section.scores.columns)
    if scored:
        parts.append(markdown(section.scores).strip())
    if not section.costs.empty:
        what = "Gap to Retrain, seed by seed, and cost" if section.costs.gaps else "Cost"
        faster = "; *times faster* is the median of the pairs of one seed" * section.costs.ratios
        parts += [f"{what}{faster}:", markdown(section.costs).strip()]
    return parts if scored else [*parts, _reasons(section.cells)]


def _reasons(results: Sequence[Result]) -> str:
    """Why there is no number, by reason, where no table of scores says it."""
    return "\n".join(f"- {plain(said)}" for said in grouped(results))


def _explained(results: Sequence[Result]) -> str:
    """What scores are whose titles do not tell it, where a page has them."""
    names = {name for result in results for row in result.rows.values() for name in row.get("scores") or {}}
    return " ".join(said for name, said in EXPLAINED.items() if name in names)


def _unsaid(plan: Plan, results: Sequence[Result]) -> str:
    """The methods that the experiment asks for and the store knows nothing of."""
    labels = silent(plan, results)
    if not labels or not any(result.rows or result.errors for result in results):
        return ""
    return f"Not run here: {listed(plain(method_name(label)) for label in labels)}."


def _models(plan: Plan) -> str:
    """The models that are not the usual ones of their names, with what is not."""
    asked = [(wanted.key["model"], str(wanted.key.get("task"))) for wanted in plan.cells]
    given = {
        model_name(model["name"]) + f" ({plain(said)})": None
        for model, task in asked
        if (said := unusual_options(model, task))
    }
    return f"Options of models that are not the usual ones: {listed(given)}." if given else ""


def _unmeasured(results: Sequence[Result]) -> list[str]:
    """A sentence for every measure that was asked for and gave no number, with the reason that the rows name."""
    said = []
    for measure, ((score, *_), note) in GIVEN.items():
        asked = [row for result in results if measure in result.measures for row in result.rows.values()]
        empty = [row for row in asked if score not in (row.get("scores") or {})]
        if empty:
            reason = plain(noted(empty, note)) or "No reason was recorded."
            if len(empty) < len(asked):
                reason = "The reasons stand below the tables."
            said.append(f"`{measure}` gave no number in {len(empty)} of {many(len(asked), 'run')}. {reason}")
    return said


def _times(results: Sequence[Result]) -> str:
    """What was timed: seconds, and how a deletion compares with a forward pass and with Retrain."""
    timed = timings(results)
    if not timed:
        return ""
    names = [name for name in TIMES if any(name in timing.spent for timing in timed)]
    shown = [each for each in _RATIOS if any(timing.ratio(*each[1:]) is not None for timing in timed)]
    head = [
        "dataset",
        "model",
        "deleted",
        "method",
        *(TIMES[name] for name in names),
        *(title for title, *_ in shown),
    ]
    lines = [head, ["---"] * 4 + ["---:"] * (len(head) - 4)]
    models = model_titles(result.place.variant for result in results)
    for timing in timed:
        place = timing.result.place
        where = [dataset_name(place.dataset), models[place.variant], request_name(place), plain(timing.result.label)]
        spent = [seconds(timing.spent[name]) if name in timing.spent else "–" for name in names]
        ratios = [timing.ratio(above, below) for _, above, below in shown]
        lines.append([*where, *spent, *("–" if ratio is None else times(ratio) for ratio in ratios)])
    return "## Times\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


_RATIOS = (
    ("deletion / forward pass", "delete", "forward"),
    ("graph known / forward pass", "further", "forward"),
    ("Retrain / deletion, fixed lam", "retrain", "delete"),
    ("Retrain / deletion, calibrated", "retrain", "calibrated"),
)


def _counted(results: Sequence[Result]) -> str:
    wanted, done = sum(r.wanted for r in results), sum(len(r.rows) for r in results)
    failed, unfit = sum(len(r.errors) for r in results), sum(r.misfits for r in results)
    rest = f", {failed} failed" * bool(failed) + f", {unfit} to which a method does not apply" * bool(unfit)
    return f"{done} of {wanted} runs done{rest}."


_READING = """\
Every number is a mean over as many seeds as the last column of its table says, or as it says itself in brackets where \
they are fewer, with its standard error where they are two or more; beneath it stand the number of the paper, where it has \
one, and ours minus the paper's. E_t AUROC says how well test edges are told from random pairs, E_d AUROC how surely \
deleted edges rank below remaining ones (a ruined model can reach it: read it beside E_t). The unseen AUC asks whether \
deleted edges can be told from true edges that the model never trained on: 0.5 is best, and what counts is the gap to \
Retrain. Gaps are taken seed by seed. What failed says why; what an experiment asks for and nobody has run is named as \
such. Each page ends with the settings of its methods."""


def index_page(
    gathered: Sequence[tuple[Plan, Sequence[Result]]],
    found: Acceptance,
    pictures: Pictured,
    provenance: Mapping[str, Any],
    commands: Commands,
) -> str:
    """The first page: the summary, the methods side by side, and every experiment with its state."""
    begun = [(plan, results) for plan, results in gathered if any(r.rows or r.errors or r.unfit for r in results)]
    rows = [
        f"| [{heading(plan.title)}]({quote(page_path(plan.name))}) | {_states(results)} |" for plan, results in begun
    ]
    table = "\n".join(
        [
            "| experiment | done | failed | does not fit | not here | not run |",
            "|---|---:|---:|---:|---:|---:|",
            *rows,
        ]
    )
    parts = [
        "# Results",
        _READING,
        _explained([result for _, results in gathered for result in results]),
        f"These pages are made from the rows of a store by one command:\n\n```bash\n{commands.report}\n```",
        _provenance(provenance),
        "## Summary",
        headline_table(found),
        "The [summary](summary.md) names the cells behind each number.",
        "## Methods beside each other" if pictures.alts else "",
        pictures.links(""),
        "## Experiments",
        table if rows else "None has been run.",
        "Runs are counted one per method, place and seed." if rows else "",
        *_not_run([pair for pair in gathered if pair not in begun]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _not_run(gathered: Sequence[tuple[Plan, Sequence[Result]]]) -> list[str]:
    if not gathered:
        return []
    lines = []
    for plan, results in gathered:
        why = listed(dict.fromkeys(r.missing for r in results if r.missing)) if any(r.missing for r in results) else ""
        count = many(sum(r.wanted for r in results), "run")
        lines.append(f"- [{heading(plan.title)}]({page_path(plan.name)}): {count}{f'; {plain(why)}' if why else ''}")
    return ["## Not run here", "Described, and in this store without a single run:", "\n".join(lines)]


def _states(results: Sequence[Result]) -> str:
    done, failed = sum(len(r.rows) for r in results), sum(len(r.errors) for r in results)
    unfit = sum(r.misfits for r in results)
    gone, rest = (sum(r.unrun for r in results if bool(r.missing) is absent) for absent in (True, False))
    return " | ".join(map(str, (done, failed, unfit, gone, rest)))


def unnamed(rows: int) -> str:
    """What is said of a store whose rows come from other experiments."""
    return (
        f"The store holds {many(rows, 'row')}, but none of these experiments on this device; name the YAML file that they come "
        "from, or the --device that they were run on."
    )


def _provenance(provenance: Mapping[str, Any]) -> str:
    if not provenance.get("rows"):
        return unnamed(provenance["held"]) if provenance.get("held") else "The store holds no rows yet."
    parts = [many(provenance["rows"], "row")]
    if provenance.get("jobs", 1) > 1:
        parts.append(f"up to {provenance['jobs']} processes at a time")
    parts += [f"{title} {', '.join(provenance[name])}" for name, title in _PROVENANCE.items() if provenance.get(name)]
    if provenance.get("first"):
        first, last = provenance["first"], provenance["last"]
        parts.append(f"finished on {first}" if first == last else f"finished from {first} to {last}")
    return "; ".join(parts) + "."


_PROVENANCE = {"hardware": "on", "version": "gnndelete", "torch": "torch", "git": "source"}
