"""A cell that rests on fewer seeds than its line, and one that has no number, say so and why."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gnndelete.auditing.case import Case
from gnndelete.auditing.measures.membership import membership
from gnndelete.auditing.measures.shadow import Shadow
from gnndelete.bench.cells import cells
from gnndelete.bench.experiment import read
from gnndelete.bench.formats import latex, markdown, tidy_csv
from gnndelete.bench.gathered import Plan, gather
from gnndelete.bench.pages import Commands
from gnndelete.bench.reasons import kept_to, unmeasured
from gnndelete.bench.report import build
from gnndelete.bench.runner import run
from gnndelete.bench.tables import sections
from gnndelete.io.store import Store

from .conftest import Write, lines
from .sample import HARDWARE, METHODS, SEEDS, Job, key, link_plan, row, store_of

ATTACKED = {"measures": ["scores", "mi"]}


def plan_of(labels: tuple[str, ...], **rest: Any) -> Plan:
    return Plan("own", "Mine", [Job(x, key("dblp", "gcn", METHODS[x], seed, **rest)) for x in labels for seed in SEEDS])


def shown(plan: Plan, store: Store) -> tuple[str, str]:
    """The scores and the costs as Markdown with plain spaces."""
    (section,) = sections(plan, gather(plan, store))
    scores, costs = (markdown(table).replace("\u00a0", " ") for table in (section.scores, section.costs))
    return scores, costs


def test_a_mean_over_fewer_seeds_says_so_and_why() -> None:
    plan, store = plan_of(("unlink",), **ATTACKED), Store(None)
    for job, ratio in zip(plan.cells, (0.5, None, None), strict=True):
        store.add(job.key, row("unlink", 1.0, test_auroc=0.9) | {"scores": {"test_auroc": 0.9, "mi_ratio": ratio}})
    scores, _ = shown(plan, store)
    assert "| Unlink | 0.900 ± 0.000 | 0.500 (1 seed) [1] | 3 |" in scores
    assert "[1] 2 of 3 seeds have no number: the attack takes no deleted element for a member" in scores
    (section,) = sections(plan, gather(plan, store))
    assert "0.500~(1~seed)~[1]" in latex(section.scores)
    lines = {line["metric"]: line for line in csv.DictReader(io.StringIO(tidy_csv(plan, gather(plan, store))))}
    assert (lines["mi_ratio"]["seeds"], lines["test_auroc"]["reason"]) == ("1", "")
    assert lines["mi_ratio"]["reason"].startswith("2 of 3 seeds have no number")


def test_a_method_that_did_nothing_has_its_note_below_the_table() -> None:
    plan, store = plan_of(("unlink", "gradascent")), Store(None)
    for number, job in enumerate(plan.cells):
        idle = ["The loss of 5 went from 0 to 0.", "The loss did not rise: its gradient is zero."] if number > 3 else []
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9, deleted_auroc=0.5) | {"notes": idle})
    scores, _ = shown(plan, store)
    assert "| Unlink | 0.900 ± 0.000 | 0.500 ± 0.000 | 3 |" in scores
    assert "| GradAscent | 0.900 ± 0.000 [1] | 0.500 ± 0.000 | 3 |" in scores
    assert scores.endswith("[1] In 2 of 3 seeds: The loss did not rise: its gradient is zero.\n")


def test_edges_in_that_are_all_there_are_have_a_note_and_a_title(write: Write, store: Path) -> None:
    """Within two hops, undirected, the graph has no edge that is OUT."""
    file = str(write(forget={"amount": 0.05, "where": ["random", "in"]}, methods=["unlink"], seeds=[1]))
    run([read(file)], store=store)
    rows = {line["key"]["forget"]["where"]: line["row"] for line in lines(store)}
    assert rows["in"]["scores"] == rows["random"]["scores"]
    assert rows["in"]["notes"][-1].startswith("All training edges are IN here")
    assert not any("IN here" in note for note in rows["random"]["notes"])
    plan = Plan("own", "Mine", cells(read(file), "cpu"))
    titles = [section.title for section in sections(plan, gather(plan, Store(store)))]
    assert [title.endswith("IN (all are IN: as drawn at random)") for title in titles] == [False, True]


def test_a_measure_that_gave_nothing_has_the_reason_of_its_note() -> None:
    plan, store = plan_of(("retrain", "unlink"), **ATTACKED), Store(None)
    for job in plan.cells:
        found = row(job.label, 1.0, test_auroc=0.9)
        if job.label == "retrain":
            found["scores"] |= {"mi_ratio": 1.1}
        store.add(job.key, found | {"notes": ["Another.", "No membership attack: there are no test edges."]})
    scores, _ = shown(plan, store)
    assert "| Unlink | 0.900 ± 0.000 | – [1] | 3 |" in scores
    assert "[1] No membership attack: there are no test edges." in scores


def test_an_attack_that_gives_every_element_the_same_answer_has_no_auc(
    write: Write, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(case: Case, shadow: Shadow) -> dict[str, Any]:
        """The attack on a model that is sure of everything once it has forgotten, as D2D's is."""
        sure = replace(case.after, predict=lambda edges: torch.full((edges.size(1),), 1e4))
        return membership(replace(case, subjects={**case.subjects, "after": sure}), shadow)

    monkeypatch.setattr("gnndelete.bench.measure.membership", blind)
    run([read(str(write(methods=["unlink"], measures=["scores", "mi"], seeds=[1])))], store=store)
    (found,) = (line["row"] for line in lines(store))
    assert "mi_auc" not in found["scores"]
    assert "mi_ratio" in found["scores"]
    assert "mi_auc" in found["before"]
    (note,) = [note for note in found["notes"] if note.startswith("No MI AUC: ")]
    assert "the same answer (" in note


def test_one_score_of_a_measure_can_be_missing_alone() -> None:
    plan, store = plan_of(("retrain", "unlink"), **ATTACKED), Store(None)
    for job in plan.cells:
        found = row(job.label, 1.0, mi_ratio=1.1)
        alone = {"notes": ["No MI AUC: the attack gives every element the same answer."]}
        store.add(
            job.key, found | alone if job.label == "unlink" else found | {"scores": {"mi_ratio": 1, "mi_auc": 0.6}}
        )
    missing = {result.label: unmeasured(result, "mi_auc") for result in gather(plan, store)}
    assert missing == {"retrain": "", "unlink": "No MI AUC: the attack gives every element the same answer."}
    assert not any(unmeasured(result, "mi_ratio") for result in gather(plan, store))


def test_scores_that_titles_do_not_tell_are_explained_where_they_appear() -> None:
    plan, store = plan_of(("unlink",), **ATTACKED), Store(None)
    for job in plan.cells:
        store.add(job.key, row("unlink", 1.0, test_auroc=0.9, mi_ratio=1.1, mi_auc=0.5))
    files = build([plan], store, Commands("rows.jsonl", "out", "cuda"))[0]
    for page in ("own/own.md", "index.md"):
        text = files[page].decode()
        assert "*MI ratio* is the paper's" in text
        assert "*MI AUC* says" in text
        assert "*Regular share*" not in text


def test_a_gap_counts_the_pairs_it_rests_on() -> None:
    plan, store = plan_of(("retrain", "unlink")), Store(None)
    for job in plan.cells:
        failed = job.label == "retrain" and job.key["seed"] == SEEDS[0]
        store.add(job.key, {"error": "no", "kind": "RunError"} if failed else row(job.label, 1.0, test_auroc=0.9))
    _, costs = shown(plan, store)
    assert "| Unlink | 0.000 (2 seeds) | 1 s | 1.00× (2 seeds) | 3 |" in costs


def test_times_of_another_pace_make_no_ratio_and_say_why() -> None:
    plan, store = plan_of(("retrain", "unlink")), Store(None)
    for job in plan.cells:
        jobs = 1 if job.label == "retrain" else 12
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9) | {"hardware": HARDWARE | {"jobs": jobs}})
    plan = Plan(plan.name, plan.title, [*plan.cells, *plan_of(("zeroed",)).cells])
    for job in plan.cells[-len(SEEDS) :]:
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9) | {"hardware": HARDWARE | {"jobs": 1}})
    _, costs = shown(plan, store)
    assert "| Unlink | 0.000 | 1 s | – [1] | 3 |" in costs
    assert "[1] No ratio: timed in 12 processes at a time on NVIDIA H200, and Retrain in 1 process at a time" in costs


def test_methods_that_are_kept_to_some_models_are_named() -> None:
    plan = link_plan()
    cells = [job for job in plan.cells if job.label != "unlink" or job.key["model"]["name"] == "gcn"]
    results = gather(Plan(plan.name, plan.title, cells, plan.published), store_of(plan))
    assert kept_to(results) == "Unlink is asked for with GCN alone."
    assert kept_to(gather(plan, store_of(plan))) == ""
