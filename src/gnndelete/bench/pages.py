"""Markdown pages of a report: one per experiment, and the index that leads to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnndelete.bench.acceptance import Acceptance
from gnndelete.bench.curves import TIMES, timings
from gnndelete.bench.formats import markdown, plain
from gnndelete.bench.gathered import Plan, Result
from gnndelete.bench.summary import headline_table
from gnndelete.bench.tables import Section, sections
from gnndelete.bench.wording import dataset_name, model_name, request_name, seconds, times


@dataclass(frozen=True)
class Commands:
    """The command lines that made the results and the report."""

    store: str
    out: str
    device: str

    def run(self, plan: Plan) -> str:
        seeds = len({wanted.key["seed"] for wanted in plan.cells})
        name = plan.name if "/" in plan.name else f"{plan.name}.yaml"
        return f"gnndelete bench run {name} --seeds {seeds} --device {self.device} --store {self.store}"

    @property
    def report(self) -> str:
        return f"gnndelete bench report --device {self.device} --store {self.store} --out {self.out}"


@dataclass(frozen=True)
class Pictured:
    """Figures by file name, each with the sentence that describes it."""

    alts: Mapping[str, str] = field(default_factory=dict)

    def links(self, folder: str) -> str:
        return "\n\n".join(f"![{alt}]({folder}figures/{name})" for name, alt in self.alts.items())


def page_path(name: str) -> str:
    """Where the page of an experiment is.

    >>> page_path("paper/link-dblp"), page_path("mine")
    ('paper/link-dblp.md', 'own/mine.md')
    """
    return f"{name if '/' in name else f'own/{name}'}.md"


def flat(name: str) -> str:
    return name.replace("/", "-")


def experiment_page(plan: Plan, results: Sequence[Result], pictures: Pictured, commands: Commands) -> str:
    """Tables, figures and the commands of one experiment."""
    parts = [f"# {plan.title}", plan.about.strip()]
    parts.append(
        f"{_counted(results)} Also as [CSV](../tables/{flat(plan.name)}.csv) and [LaTeX](../tables/{flat(plan.name)}.tex)."
    )
    parts.append(f"```bash\n{commands.run(plan)}\n```")
    parts.append(pictures.links("../"))
    parts.append(_times(results))
    shown = ""
    for section in sections(plan, results):
        own = [result for result in results if result.place.dataset == section.dataset]
        why = absent(own, plan.published is not None)
        if why and section.dataset == shown:
            continue
        shown = section.dataset
        parts += [f"## {dataset_name(section.dataset)}", why] if why else _section(section)
    return "\n\n".join(part for part in parts if part) + "\n"


def absent(results: Sequence[Result], published: bool) -> str:
    """One sentence where a whole dataset has no number and one reason, else nothing."""
    states = {(result.state, result.reason) for result in results}
    if len(states) != 1 or any(result.rows for result in results):
        return ""
    state, reason = states.pop()
    said = f"*{state[:1].upper()}{state[1:]}*{f': {plain(reason)}' if reason else ''}."
    return f"{said} The paper's values are in the CSV file." if published else said


def _section(section: Section) -> list[str]:
    parts = [f"## {section.title}"]
    if section.scores.lines and section.scores.columns:
        parts.append(markdown(section.scores).strip())
    if not section.costs.empty:
        parts += ["Gap to Retrain, seed by seed, and cost:", markdown(section.costs).strip()]
    if len(parts) == 1:
        parts.append("*Nothing measured here yet.*")
    return parts


def _times(results: Sequence[Result]) -> str:
    """What was timed: seconds, and how a deletion compares with a forward pass and with Retrain."""
    timed = timings(results)
    if not timed:
        return ""
    names = [name for name in TIMES if any(name in timing.spent for timing in timed)]
    head = [
        "dataset",
        "model",
        "deleted",
        "method",
        *(TIMES[name] for name in names),
        *(title for title, *_ in _RATIOS),
    ]
    lines = [head, ["---"] * 4 + ["---:"] * (len(head) - 4)]
    for timing in timed:
        place = timing.result.place
        where = [dataset_name(place.dataset), model_name(place.model), request_name(place), plain(timing.result.label)]
        spent = [seconds(timing.spent[name]) if name in timing.spent else "–" for name in names]
        ratios = [timing.ratio(above, below) for _, above, below in _RATIOS]
        lines.append([*where, *spent, *("–" if ratio is None else times(ratio) for ratio in ratios)])
    return "## Times\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


_RATIOS = (
    ("deletion / forward pass", "delete", "forward"),
    ("graph known / forward pass", "further", "forward"),
    ("Retrain / deletion", "retrain", "delete"),
)


def _counted(results: Sequence[Result]) -> str:
    wanted, done = sum(r.wanted for r in results), sum(len(r.rows) for r in results)
    failed = sum(len(r.errors) for r in results)
    unfit = sum(r.wanted for r in results if r.state == "does not fit")
    rest = f", {failed} failed" * bool(failed) + f", {unfit} to which a method does not apply" * bool(unfit)
    return f"{done} of {wanted} runs done{rest}."


_READING = """\
Every number is a mean over seeds with its standard error; beneath it stand the number of the paper, where it has one, and \
ours minus the paper's. E_t AUROC says how well test edges are told from random pairs, E_d AUROC how surely deleted edges rank \
below remaining ones (a ruined model can reach it: read it beside E_t). The held-out AUC asks whether deleted edges can be told \
from true edges that the model never trained on: 0.5 is best, and what counts is the gap to Retrain. Gaps are taken seed by \
seed. What is missing says why."""


def index_page(
    gathered: Sequence[tuple[Plan, Sequence[Result]]],
    found: Acceptance,
    pictures: Pictured,
    provenance: Mapping[str, Any],
    commands: Commands,
) -> str:
    """The first page: the summary, the methods side by side, and every experiment with its state."""
    rows = [f"| [{plan.title}]({page_path(plan.name)}) | {_states(results)} |" for plan, results in gathered]
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
        f"These pages are made from the rows of a store by one command:\n\n```bash\n{commands.report}\n```",
        _provenance(provenance),
        "## Summary",
        headline_table(found),
        "The [summary](summary.md) names the cells behind each number.",
        "## All methods" if pictures.alts else "",
        pictures.links(""),
        "## Experiments",
        table if rows else "No experiment was given.",
        "Runs are counted one per method, place and seed.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _states(results: Sequence[Result]) -> str:
    done, failed = sum(len(r.rows) for r in results), sum(len(r.errors) for r in results)
    gone = sum(r.wanted for r in results if r.state == "not here")
    unfit = sum(r.wanted for r in results if r.state == "does not fit")
    rest = sum(r.wanted for r in results) - done - failed - gone - unfit
    return " | ".join(map(str, (done, failed, unfit, gone, max(rest, 0))))


def _provenance(provenance: Mapping[str, Any]) -> str:
    if not provenance.get("rows"):
        return "The store holds no rows yet."
    parts = [f"{provenance['rows']:,} rows"]
    if provenance.get("jobs", 1) > 1:
        parts.append(f"up to {provenance['jobs']} processes at a time")
    parts += [f"{title} {', '.join(provenance[name])}" for name, title in _PROVENANCE.items() if provenance.get(name)]
    if provenance.get("first"):
        parts.append(f"finished from {provenance['first']} to {provenance['last']}")
    return "; ".join(parts) + "."


_PROVENANCE = {"hardware": "on", "version": "gnndelete", "torch": "torch", "git": "source"}
