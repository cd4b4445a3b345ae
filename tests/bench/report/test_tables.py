"""Tables: the paper's value and the difference in every cell that has one, the reason in every cell that is empty."""

from __future__ import annotations

import csv
import io
import re

import pytest

from gnndelete.bench.published import published
from gnndelete.bench.report.results import Plan, Stat, gather
from gnndelete.bench.report.tables import (
    Entry,
    Line,
    Section,
    Table,
    latex,
    latex_page,
    markdown,
    sections,
    tidy_csv,
)
from gnndelete.io.store import Store

from .sample import METHODS, SEEDS, Job, key, link_plan, row, rows, store_of


def shown(table: Table) -> str:
    """Markdown with plain spaces."""
    return markdown(table).replace("\u00a0", " ")


def made(plan: Plan, store: Store) -> list[Section]:
    return sections(plan, gather(plan, store))


def test_one_section_per_request_with_models_across_and_methods_down() -> None:
    plan = link_plan()
    found = made(plan, store_of(plan))
    assert [section.title for section in found] == [
        "DBLP: 2.5% of edges, IN",
        "DBLP: 5% of edges, IN",
        "DBLP: 2.5% of edges, OUT",
        "DBLP: 5% of edges, OUT",
    ]
    assert found[0].scores.groups == (("GCN", 3), ("GAT", 3))
    assert [line.label for line in found[0].scores.lines][:3] == ["Retrain", "Unlink", "zeroed (control)"]


def test_every_published_number_stands_beside_ours_with_the_difference() -> None:
    plan = link_plan()
    table = made(plan, store_of(plan))[0].scores
    line = next(line for line in table.lines if line.label == "paper()")
    entry = line.entries[table.columns.index("deleted AUROC")]
    theirs = published("link_prediction", "dblp", "gcn", "in", 0.025, "paper()", "deleted_auroc")
    assert entry.paper == theirs
    assert entry.stat is not None
    assert theirs is not None
    assert entry.difference == pytest.approx(entry.stat.mean - theirs.value)
    assert (
        f"{entry.stat.mean:.3f} ± {entry.stat.error:.3f}<br><small>paper 0.748, {entry.difference:+.3f}</small>"
        in shown(table)
    )


def test_reasons_are_listed_once_and_harmless_in_latex() -> None:
    plan = link_plan()
    store = store_of(plan)
    for job in plan.cells:
        if job.label == "unlink":
            store.add(job.key, {"label": "unlink", "error": "no <b>room</b> | at 5%", "kind": "RunError"})
    section = made(plan, store)[0]
    assert "| Unlink | *failed* |" in shown(section.scores)
    assert section.remarks == ("Unlink (GCN) and Unlink (GAT): failed: no <b>room</b> | at 5%.",)
    assert r"no \textless{}b\textgreater{}room" in latex_page(plan, made(plan, store))


def test_notes_with_known_codes_are_listed_with_their_methods() -> None:
    plan = link_plan(models=("gcn",))
    store = Store(None)
    for cell, result in rows(plan):
        still = {"code": "loss-not-risen", "text": "The loss did not rise."}
        other = {"code": "remark", "text": "The step was halved."}
        store.add(cell, result | {"notes": [other, *([still] if cell["method"]["name"] == "gradascent" else [])]})
    assert made(plan, store)[0].remarks == ("GradAscent (GCN): The loss did not rise.",)


def test_a_fallback_lam_is_named() -> None:
    plan = link_plan(models=("gcn",))
    store = store_of(plan)
    for cell, result in list(store.items()):
        if cell["method"].get("lam") == "auto":
            store.add(cell, result | {"calibration": {"status": "fallback"}})
    (text,) = made(plan, store)[0].remarks
    assert text == "calibrated (GCN) and nonexistent (GCN): lam could not be calibrated, and the fallback was used."


def test_one_reason_for_all_is_given_once() -> None:
    plan = link_plan(missing={"dblp": "needs a download"})
    assert {section.remarks for section in made(plan, Store(None))} == {("All: not here: needs a download.",)}


def test_a_mean_over_fewer_seeds_says_so() -> None:
    jobs = [Job("unlink", key("dblp", "gcn", METHODS["unlink"], seed)) for seed in SEEDS]
    plan, store = Plan("own", "Mine", jobs), Store(None)
    for job, ratio in zip(jobs, (0.5, None, None), strict=True):
        store.add(job.key, row("unlink", 1.0) | {"scores": {"test_auroc": 0.9, "mi_ratio": ratio}})
    (section,) = made(plan, store)
    assert "| Unlink | 0.900 ± 0.000 | 0.500 (1 seed) | 3 |" in shown(section.scores)
    assert "0.500~(1~seed)" in latex(section.scores)
    lines = {line["metric"]: line for line in csv.DictReader(io.StringIO(tidy_csv(plan, gather(plan, store))))}
    assert (lines["mi_ratio"]["seeds"], lines["test_auroc"]["seeds"]) == ("1", "3")


def test_a_gap_counts_the_pairs_it_is_a_mean_of() -> None:
    jobs = [Job(x, key("dblp", "gcn", METHODS[x], seed)) for x in ("retrain", "unlink") for seed in SEEDS]
    plan, store = Plan("own", "Mine", jobs), Store(None)
    for job in jobs:
        failed = job.label == "retrain" and job.key["seed"] == SEEDS[0]
        store.add(job.key, {"error": "no", "kind": "RunError"} if failed else row(job.label, 1.0, test_auroc=0.9))
    (section,) = made(plan, store)
    assert "| Unlink | 0.000 (2 seeds) | 1 s | 1.00× (2 seeds) | 3 |" in shown(section.costs)


def test_what_was_not_run_keeps_the_published_number() -> None:
    plan = link_plan()
    text = shown(made(plan, Store(None))[0].scores)
    assert "| paper() | *not run*<br><small>paper 0.934</small> |" in text


def test_markdown_and_latex_have_equally_long_lines() -> None:
    plan = link_plan()
    for section in made(plan, store_of(plan)):
        for table in (section.scores, section.costs):
            written = [line for line in markdown(table).splitlines() if line.startswith("|")]
            assert {len(re.findall(r"(?<!\\)\|", line)) for line in written} == {len(table.columns) + 3}
            body = latex(table)
            lines = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
            assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(table.columns) + 1}
            assert body.count("{") == body.count("}")
            assert not re.search(r"(?<!\\)[%_#]", body.replace(rf"\label{{tab:{table.name}}}", ""))


def test_csv_has_one_number_to_a_line_in_full_digits() -> None:
    plan = link_plan()
    results = gather(plan, store_of(plan))
    lines = list(csv.DictReader(io.StringIO(tidy_csv(plan, results))))
    assert len(lines) == 3 * len(results)
    line = next(x for x in lines if x["method"] == "paper()" and x["metric"] == "test_auroc" and x["model"] == "gat")
    own = next(r for r in results if r.label == "paper()" and r.scenario.model == "gat").stat("test_auroc")
    assert own is not None
    assert float(line["mean"]) == pytest.approx(own.mean, abs=1e-6)
    assert float(line["difference"]) == pytest.approx(own.mean - float(line["published"]), abs=1e-6)
    assert line["gap_to_retrain"]
    assert line["seeds"] == line["seeds_wanted"] == str(len(SEEDS))


def test_csv_says_why_a_number_is_missing() -> None:
    plan = link_plan("cora", missing={"cora": "needs a download"})
    lines = list(csv.DictReader(io.StringIO(tidy_csv(plan, gather(plan, Store(None))))))
    assert lines
    assert {(line["state"], line["reason"], line["mean"]) for line in lines} == {("not here", "needs a download", "")}


def test_a_sequence_has_a_line_per_request_beside_the_papers() -> None:
    forget = {"steps": 5}
    jobs = [Job("paper()", key("dblp", "gcn", METHODS["paper()"], seed, forget=forget)) for seed in SEEDS]
    plan, store = Plan("paper/sequential", "A sequence", jobs, "sequential"), Store(None)
    for job in jobs:
        steps = [{"amount": 0.005 * n, "test_auroc": 0.95 - 0.001 * n, "deleted_auroc": 0.8} for n in range(1, 6)]
        store.add(job.key, row("paper()", 1.0, test_auroc=0.945, deleted_auroc=0.8) | {"steps": steps})
    table = made(plan, store)[0].scores
    assert [line.label for line in table.lines] == [f"paper(), {share}%" for share in ("0.5", "1", "1.5", "2", "2.5")]
    assert [line.entries[0].paper.value for line in table.lines if line.entries[0].paper] == [
        0.951,
        0.949,
        0.943,
        0.938,
        0.934,
    ]
    assert [round(line.entries[0].stat.mean, 3) for line in table.lines if line.entries[0].stat] == [
        0.949, 0.948, 0.947, 0.946, 0.945
    ]  # fmt: skip


def test_csv_has_of_every_request_its_own_amount_time_and_lam() -> None:
    job = Job("calibrated", key("dblp", "gcn", METHODS["calibrated"], 42, amount=20, forget={"steps": 3}))
    plan, store = Plan("own", "A sequence", [job]), Store(None)
    steps = [{"test_auroc": 0.9, "seconds": n, "lam": n / 10} for n in (2.0, 1.0)]
    store.add(job.key, row("calibrated", 3.5, test_auroc=0.9) | {"lam": 0.4, "steps": [*steps, {"test_auroc": 0.8}]})
    lines = list(csv.DictReader(io.StringIO(tidy_csv(plan, gather(plan, store)))))
    found = [tuple(line[name] for name in ("step", "amount", "seconds", "lam")) for line in lines]
    assert found == [("1", "7", "2", "0.2"), ("2", "14", "1", "0.1"), ("3", "20", "", "0.4")]
    assert {line["setting"] for line in lines} == {""}
    share = Job("calibrated", key("dblp", "gcn", METHODS["calibrated"], 42, amount=0.05, forget={"steps": 3}))
    lines = list(
        csv.DictReader(io.StringIO(tidy_csv(Plan("own", "Not run", [share]), gather(Plan("", "", [share]), store))))
    )
    assert list(dict.fromkeys(line["amount"] for line in lines)) == ["0.0166667", "0.0333333", "0.05"]


def test_models_of_one_name_are_distinct_by_their_options() -> None:
    base = key("dblp", "gcn", METHODS["unlink"], 42)
    jobs = [Job("unlink", base | {"model": {"name": "gcn", "hidden": 128, "embedding": size}}) for size in (0, 64)]
    plan, store = Plan("own", "Two models", jobs), Store(None)
    for job in jobs:
        store.add(job.key, row("unlink", 1.0, test_auroc=0.9))
    (section,) = made(plan, store)
    assert [title for title, _ in section.scores.groups] == ["GCN (embedding 0)", "GCN (embedding 64)"]


def test_csv_tells_every_cell_apart() -> None:
    base = key("dblp", "gin", METHODS["paper()"], 42)
    small = base | {"model": {"name": "gin", "hidden": 32}}
    steps = [base | {"forget": base["forget"] | {"steps": count}} for count in (3, 5)]
    jobs = [Job("paper()", each) for each in (base, small, *steps)]
    plan, store = Plan("own", "Alike", jobs), Store(None)
    for job in jobs:
        parts = [{"test_auroc": 0.9}] * job.key["forget"]["steps"]
        store.add(job.key, row("paper()", 1.0, test_auroc=0.9) | {"lam": 0.5, "steps": parts})
    lines = list(csv.DictReader(io.StringIO(tidy_csv(plan, gather(plan, store)))))
    names = ("model", "model_options", "kind", "where", "amount", "setting", "step", "method", "metric")
    assert len({tuple(line[name] for name in names) for line in lines}) == len(lines) == 2 + 3 + 5
    assert [line["model_options"] for line in lines[:2]] == ["hidden 128", "hidden 32"]
    assert {line["setting"] for line in lines} == {f"forget steps {count}" for count in (1, 3, 5)}
    assert {line["lam"] for line in lines} == {"0.5"}


def test_lam_is_shown_whether_given_or_calibrated() -> None:
    ridge = {"name": "grapheditor", "lam": 0.1}  # which is no weight of forgetting
    methods = {name: METHODS[name] for name in ("retrain", "paper()", "calibrated")} | {"grapheditor": ridge}
    jobs = [Job(label, key("dblp", "gcn", method, 42)) for label, method in methods.items()]
    lams = {"paper()": 0.5, "calibrated": 0.31, "grapheditor": 0.1, "retrain": None}
    plan, store = Plan("own", "Lam", jobs), Store(None)
    for job in jobs:
        store.add(job.key, row(job.label, 1.0, test_auroc=0.9) | {"lam": lams[job.label]})
    table = made(plan, store)[0].costs
    place = table.columns.index("lam")
    found = {line.label: stat.mean for line in table.lines if (stat := line.entries[place].stat)}
    assert found == {"paper()": 0.5, "calibrated": 0.31}
    lines = csv.DictReader(io.StringIO(tidy_csv(plan, gather(plan, store))))
    assert [line["lam"] for line in lines] == ["", "0.5", "0.31", ""]


def test_latex_has_a_minus_and_two_captions() -> None:
    plan = link_plan()
    section = made(plan, store_of(plan))[0]
    scores, costs = latex(section.scores), latex(section.costs)
    assert r"\caption{DBLP: 2.5\% of edges, IN.}" in scores
    assert r"\caption{DBLP: 2.5\% of edges, IN; gap to Retrain and cost.}" in costs
    for body in (scores, costs):
        cells = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert re.search(r"\$-\$0\.\d{3}", "".join(cells))
        assert not re.search(r"(?<![\w$])-\d", "".join(cells))


def test_wide_tables_are_scaled_to_a_line_in_latex() -> None:
    entries = tuple(Entry("test_auroc", Stat(0.9, 0.01, 3)) for _ in range(7))
    for columns, shrunk in ((6, False), (7, True)):  # and those of the names and of the seeds
        lines = (Line("a_b {x} 5%", (3, 3), entries[:columns]),)
        body = latex(Table("t", "T", (("GCN", columns),), ("E_t",) * columns, lines))
        assert (r"\resizebox{\linewidth}{!}{\begin{tabular}" in body) is shrunk
        plain = body.replace(r"\{", "").replace(r"\}", "")
        assert plain.count("{") == plain.count("}")
        begun, ended = re.findall(r"\\begin{(\w+)}", body), re.findall(r"\\end{(\w+)}", body)
        assert begun == ended[::-1] == ["table", "tabular"]
        assert r"\end{tabular}}" in body if shrunk else r"\end{tabular}}" not in body
        row = next(line for line in body.splitlines() if line.startswith("a"))
        assert row.startswith(r"a\_b \{x\} 5\% & ")
        assert len(re.findall(r"(?<!\\)&", row)) == columns + 1


def test_requests_in_steps_are_named_in_short() -> None:
    labels = {}
    for amount in (0.05, 20):
        job = Job("unlink", key("dblp", "gcn", METHODS["unlink"], 42, "random", amount, forget={"steps": 3}))
        store = Store(None)
        store.add(job.key, row("unlink", 1.0, test_auroc=0.9) | {"steps": [{"test_auroc": 0.9}] * 3})
        labels[amount] = [line.label for line in made(Plan("own", "Steps", [job]), store)[0].scores.lines]
    assert labels[0.05] == ["Unlink, 1.67%", "Unlink, 3.33%", "Unlink, 5%"]
    assert labels[20] == ["Unlink, 7", "Unlink, 14", "Unlink, 20"]


def test_settings_that_differ_beside_the_request_are_named() -> None:
    base, hops = key("dblp", "gcn", METHODS["unlink"], 42), ("directed", "undirected")
    jobs = [Job("unlink", base | {"forget": base["forget"] | {"hops": each}}) for each in hops]
    titles = [section.title for section in made(Plan("own", "Hops", jobs), Store(None))]
    assert titles == [f"DBLP: 2.5% of edges, IN (forget hops {each})" for each in hops]


def test_scores_of_another_task_are_no_columns() -> None:
    forget = {"kind": "nodes", "where": "random", "amount": 100, "steps": 1}
    base = key("dblp", "gcn", METHODS["retrain"], 42) | {"forget": forget}
    parts = {"node_deletion": ("accuracy", "F1", "MI ratio"), "node_deletion_links": ("test AUROC",)}
    for part, columns in parts.items():
        plan = Plan("paper/nodes", "Nodes", [Job("retrain", base)], part)
        assert made(plan, Store(None))[0].scores.columns == columns


def test_a_model_that_was_not_run_keeps_its_columns() -> None:
    plan = link_plan()
    store = Store(None)
    for cell, result in rows(plan):
        if cell["model"]["name"] == "gcn":
            store.add(cell, result)
    table = made(plan, store)[0].scores
    assert table.groups == (("GCN", 3), ("GAT", 3))
    assert "*not run*<br><small>paper 0.914</small>" in shown(table)
