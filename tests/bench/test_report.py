"""The report as a whole: the same store gives the same bytes, every link leads somewhere, figures show what they should."""

from __future__ import annotations

import html
import json
import posixpath
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gnndelete.bench.compared import Compared, Point
from gnndelete.bench.curves import (
    gap_rows,
    is_about,
    lam_pictures,
    undrawn,
)
from gnndelete.bench.figures import distance_figure
from gnndelete.bench.gathered import Plan, gather
from gnndelete.bench.looks import looks
from gnndelete.bench.pages import Commands
from gnndelete.bench.report import build, usual_device, write
from gnndelete.io.store import Store

from .sample import METHODS, Job, key, lam_plan, link_plan, row, rows, store_of, time_plan

COMMANDS = Commands("results.jsonl", "out", "cuda")


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [link_plan(), lam_plan(), time_plan(), link_plan("cora", missing={"cora": "needs a download"})]


@pytest.fixture(scope="module")
def store(plans: list[Plan]) -> Store:
    return store_of(*plans[:3])


@pytest.fixture(scope="module")
def made(plans: list[Plan], store: Store) -> dict[str, bytes]:
    return build(plans, store, COMMANDS)[0]


def test_the_same_rows_give_the_same_bytes_in_any_order(
    plans: list[Plan], store: Store, made: dict[str, bytes]
) -> None:
    turned = Store(None)
    for cell, result in reversed(list(store.items())):
        turned.add(cell, result)
    again, _ = build(plans, turned, COMMANDS)
    assert again == made


def test_every_link_leads_to_a_file(made: dict[str, bytes]) -> None:
    pages = [path for path in made if path.endswith(".md")]
    assert {"index.md", "summary.md", "paper/link-dblp.md", "paper/link-cora.md"} <= set(pages)
    for page in pages:
        links = re.findall(r"\]\(([^)]+)\)", made[page].decode())
        targets = {posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) for link in links}
        assert targets <= set(made)
    shown = "".join(made[page].decode() for page in pages)
    assert all(Path(path).name in shown for path in made if path.startswith(("figures/", "tables/")))


def test_each_page_has_the_command_that_made_it(made: dict[str, bytes]) -> None:
    command = "gnndelete bench run paper/link-dblp --seeds 3 --device cuda --store results.jsonl"
    assert command in made["paper/link-dblp.md"].decode()
    assert "gnndelete bench report --device cuda --store results.jsonl --out out" in made["index.md"].decode()


def test_a_page_in_which_all_failed_says_why() -> None:
    jobs = [Job(label, key("digits", "gcn", METHODS[label], 1)) for label in ("unlink", "calibrated")]
    plan, store = Plan("mine", "Mine", jobs), Store(None)
    for job in jobs:
        store.add(job.key, {"label": job.label, "error": f"no room for <{job.label}>", "kind": "RunError"})
    page = build([plan], store, COMMANDS)[0]["own/mine.md"].decode()
    assert "- Unlink (GCN): failed: no room for &lt;unlink&gt;." in page
    assert "- calibrated (GCN): failed: no room for &lt;calibrated&gt;." in page


def test_what_nobody_has_run_is_named_and_stands_apart() -> None:
    plan, other = link_plan("digits"), link_plan("cs")
    store = Store(None)
    for cell, result in rows(plan):
        if cell["method"]["name"] != "gradascent" and cell["seed"] != 13:
            store.add(cell, result)
    made = build([plan, other], store, COMMANDS)[0]
    index, page = made["index.md"].decode(), made["paper/link-digits.md"].decode()
    assert index.index("link-digits.md") < index.index("## Not run here") < index.index("link-cs.md")
    assert "Not run here: GradAscent." in page
    assert "*not run*" not in page
    assert "--seeds 2 --only 'retrain,unlink,zeroed,paper(),calibrated,nonexistent' --device" in page


def test_a_request_that_nobody_has_run_shows_the_papers_numbers_alone() -> None:
    plan, store = link_plan(), Store(None)
    for cell, result in rows(plan):
        if cell["forget"]["where"] == "in":
            store.add(cell, result)
    page = build([plan], store, COMMANDS)[0]["paper/link-dblp.md"].decode().replace("\u00a0", " ")
    unrun = page.partition("## DBLP: 2.5% of the edges, OUT")[2].partition("## ")[0]
    assert "*Not run*: the store holds no run of it. The paper's numbers:" in unrun
    assert "| paper() | 0.957 |" in unrun
    assert "| Unlink |" not in unrun
    nothing = build([plan], Store(None), COMMANDS)[0]["paper/link-dblp.md"].decode()
    assert "*Not run*: the store holds no run of it. The paper's numbers:" in nothing
    assert nothing.count("| paper() | 0.957 |") == 1


def test_a_measure_without_a_number_says_why() -> None:
    job = Job("unlink", key("digits", "gcn", METHODS["unlink"], 1, measures=["scores", "mi"]))
    store = Store(None)
    store.add(job.key, row("unlink", 1.0, test_auroc=0.9) | {"notes": ["No membership attack: too few nodes."]})
    page = build([Plan("mine", "Mine", [job])], store, COMMANDS)[0]["own/mine.md"].decode()
    assert "`mi` gave no number in 1 of 1 run. No membership attack: too few nodes." in page


def test_a_title_is_harmless_in_every_page() -> None:
    plan = Plan("mine", "A | <b>bold</b>\ntitle", link_plan().cells)
    for store in (store_of(link_plan()), Store(None)):
        made = build([plan], store, COMMANDS)[0]
        shown = r"A \| &lt;b&gt;bold&lt;/b&gt; title"
        assert f"[{shown}](own/mine.md)" in made["index.md"].decode()
        assert made["own/mine.md"].decode().startswith(f"# {shown}\n")
        assert made["tables/mine.tex"].decode().startswith("% A | <b>bold</b> title: made")
        assert "<b>" not in made["own/mine.md"].decode() + made["index.md"].decode()
    assert "![" in build([plan], store_of(link_plan()), COMMANDS)[0]["own/mine.md"].decode()


def test_a_page_names_the_options_of_models_that_are_not_the_usual_ones() -> None:
    base = key("dblp", "gin", METHODS["unlink"], 42)
    jobs = [Job("unlink", base | {"model": {"name": "gin", "hidden": 32, "num_layers": 2}})]
    store = Store(None)
    store.add(jobs[0].key, row("unlink", 1.0, test_auroc=0.9))
    made, _ = build([Plan("own", "A small model", jobs)], store, COMMANDS)
    assert "Options of models that are not the usual ones: GIN (hidden 32)." in made["own/own.md"].decode()
    assert ",gin,hidden 32,edges," in made["tables/own.csv"].decode()
    usual, _ = build([Plan("own", "A usual one", [Job("unlink", base)])], store, COMMANDS)
    assert "the usual ones" not in usual["own/own.md"].decode()


def test_a_page_names_the_command_that_finishes_it() -> None:
    plan, store = link_plan("digits"), Store(None)
    finishing = "What is missing is done by\n\n```bash\ngnndelete bench run paper/link-digits"
    for cell, result in rows(plan):
        if cell["seed"] == 42:
            store.add(cell, result)
    page = build([plan], store, COMMANDS)[0]["paper/link-digits.md"].decode()
    assert "56 of 168 runs done." in page
    assert f"{finishing} --seeds 3 --device cuda --store results.jsonl\n" in page
    for cell, result in rows(plan):
        store.add(cell, result)
    assert finishing not in build([plan], store, COMMANDS)[0]["paper/link-digits.md"].decode()
    store.add(plan.cells[0].key, {"label": "retrain", "error": "memory ran out", "kind": "RunError"})
    page = build([plan], store, COMMANDS)[0]["paper/link-digits.md"].decode()
    assert f"{finishing} --seeds 3 --retry-failed --device" in page


def test_gaps_are_drawn_only_with_what_the_experiment_is_about() -> None:
    plan = link_plan()
    results = gather(plan, store_of(plan))
    rows = gap_rows(results)
    assert is_about(plan, results, rows)
    assert undrawn(results, rows) == ["zeroed (control)"]
    many = [*results, *(replace(result, label="gif") for result in results if result.label == "gradascent")]
    assert undrawn(many, gap_rows(many)) == ["zeroed (control)", "GradAscent", "GIF"]
    lam = [replace(result, method=result.method | {"lam": 0.5}) for result in results if result.label == "nonexistent"]
    few = [result for result in results if result.label in ("retrain", "unlink")]
    whole, part = ([replace(result, label="lam 0.5") for result in chosen] for chosen in (lam, lam[:1]))
    assert undrawn(few + whole, gap_rows(few + whole)) == []
    assert undrawn(few + part, gap_rows(few + part)) == ["lam 0.5"]
    alone = [result for result in results if result.label in ("retrain", "unlink")]
    assert not is_about(plan, alone, gap_rows(alone))
    named, nothing = Plan("p", "Calibration, GradAscent and Unlink", plan.cells), gather(plan, Store(None))
    without = [r for r in results if r.label != "gradascent"] + [r for r in nothing if r.label == "gradascent"]
    assert is_about(named, results, rows)
    assert not is_about(named, without, gap_rows(without))


def test_models_trained_too_shortly_to_count_have_no_figure_of_gaps() -> None:
    plan = link_plan(models=("gcn",))
    store = store_of(plan)
    for counts in (True, False):
        made, _ = build([replace(plan, summary=counts)], store, COMMANDS)
        assert ("figures/paper-link-dblp-gap.svg" in made) is counts
        assert ("paper-link-dblp-gap" in made["paper/link-dblp.md"].decode()) is counts


def test_short_logarithmic_axes_have_plain_labels() -> None:
    points = [Point(name, x, 2 * x, "other", name) for name, x in (("a", 0.06), ("b", 0.061), ("c", 0.08))]
    texts = _words(distance_figure(Compared(tuple(points)), "svg"))
    assert "0.05" in texts
    assert not [text for text in texts if "$" in text or "mathdefault" in text]


def _words(svg: bytes) -> list[str]:
    """What an SVG says in text or, where letters are drawn, in the comments beside them."""
    found = re.findall(r"<!-- (.*?) -->|<text[^>]*>([^<]*)</text>", svg.decode())
    return [html.unescape(a or b) for a, b in found]


def test_a_method_looks_the_same_in_every_figure() -> None:
    for labels in (["unlink", "calibrated"], ["mine", "calibrated", "other", "unlink"]):
        found = looks(labels)
        assert found["calibrated"] == looks(["calibrated"])["calibrated"]
        assert found["unlink"] == looks(["unlink"])["unlink"]
        assert len(set(found.values())) == len(labels)
    many = [f"method {i}" for i in range(12)]
    assert len(set(looks(many).values())) == 12


def test_a_dataset_that_is_not_here_says_why(made: dict[str, bytes]) -> None:
    page = made["paper/link-cora.md"].decode()
    assert page.count("*Not here*: needs a download.") == 1
    assert "not run" not in page
    assert "### Cora: 2.5% of the edges, IN" in page
    assert "| paper() | 0.925 | 0.716 |" in page
    tex = made["tables/paper-link-cora.tex"].decode()
    assert "[1] Needs a download." in tex
    assert "{\\scriptsize paper 0.925}" in tex


def test_what_was_not_run_is_in_every_form_with_a_reason() -> None:
    jobs = [Job("unlink", key("cs", "gcn", METHODS["unlink"], 1, where="random"))]
    files = build([Plan("mine", "Mine", jobs)], Store(None), COMMANDS)[0]
    assert "*Not run*: the store holds no run of it." in files["own/mine.md"].decode()
    assert "2.5\\% of the edges, at random: not run: the store holds no run of it." in files["tables/mine.tex"].decode()
    lines = files["tables/mine.csv"].decode().splitlines()
    assert len(lines) == 4
    assert all(line.endswith(",not run,the store holds no run of it") for line in lines[1:])


def test_a_model_alone_in_its_table_is_named_where_others_were_asked_for() -> None:
    jobs = [Job("unlink", key("cs", model, METHODS["unlink"], 1)) for model in ("gcn", "gin")]
    store = Store(None)
    store.add(jobs[0].key, row("unlink", 1.0, test_auroc=0.9))
    page = build([Plan("mine", "Mine", jobs)], store, COMMANDS)[0]["own/mine.md"].decode()
    assert "| method | GCN<br>seconds | seeds |" in page
    assert "0–1" not in page


def test_provenance_comes_from_the_rows(made: dict[str, bytes]) -> None:
    index = made["index.md"].decode()
    assert "on NVIDIA H200; gnndelete 0.1.0; torch 2.11.0; source ab12cd34ef; finished on 2026-11-15." in index


def test_one_day_is_said_once_and_several_from_when_to_when() -> None:
    jobs, store = [Job("unlink", key("cs", "gcn", METHODS["unlink"], seed)) for seed in (1, 2)], Store(None)
    for job, day, said in zip(jobs, (18, 16), ("on 2026-11-18.", "from 2026-11-16 to 2026-11-18."), strict=True):
        store.add(job.key, row("unlink", 1.0) | {"finished": f"2026-11-{day}T08:00:00Z"})
        assert f"; finished {said}" in build([Plan("mine", "Mine", jobs)], store, COMMANDS)[0]["index.md"].decode()


def test_summary_is_readable_by_programs(made: dict[str, bytes]) -> None:
    lines = json.loads(made["summary.json"])
    assert len(lines) == 8
    assert all({"question", "aim", "answer", "value", "reached", "left_out"} == set(line) for line in lines)


def test_figures_are_whole_and_carry_no_date(made: dict[str, bytes]) -> None:
    figures = {path: content for path, content in made.items() if path.startswith("figures/")}
    names = {Path(path).stem for path in figures}
    assert {
        "methods-retrain",
        "methods-scores",
        "paper-lambda-lam-1",
        "beyond-scale-time-gcn",
        "paper-link-dblp-gap",
    } <= names
    for content in figures.values():
        assert ElementTree.fromstring(content).tag.endswith("svg")
        assert b"dc:date" not in content
        assert len(content) < 100_000


def test_figures_as_png(plans: list[Plan], store: Store) -> None:
    found = {
        path: content
        for path, content in build(plans[:1], store, COMMANDS, form="png")[0].items()
        if "figures/" in path
    }
    assert found
    assert all(path.endswith(".png") and content.startswith(b"\x89PNG") for path, content in found.items())


def test_an_empty_store_gives_pages_without_figures(plans: list[Plan]) -> None:
    made, _ = build(plans, Store(None), COMMANDS)
    assert not [path for path in made if path.startswith("figures/")]
    assert "The store holds no rows yet." in made["index.md"].decode()


def test_files_are_written_into_their_folders(made: dict[str, bytes], tmp_path: Path) -> None:
    write(tmp_path, made)
    write(tmp_path, made)
    found = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == made


def test_lam_curves_have_the_papers_points_and_retrain(plans: list[Plan], store: Store) -> None:
    (picture,) = lam_pictures(plans[1], gather(plans[1], store))
    assert [curve.label for curve in picture.curves["deleted_auroc"]] == [
        "operator shared, targets original",
        "operator ring, targets remaining",
    ]
    assert [lam for lam, _ in picture.curves["test_auroc"][0].points] == [0, 0.2, 0.4, 0.5, 0.6, 0.8, 1]
    assert dict(picture.paper["deleted_auroc"])[0.5] == 0.748
    assert picture.retrain["test_auroc"] == pytest.approx(0.964, abs=0.01)


def test_gap_rows_leave_out_a_sweep_over_lam(plans: list[Plan], store: Store) -> None:
    assert not gap_rows(gather(plans[1], store))
    rows = gap_rows(gather(plans[0], store))
    assert len(rows) == 8
    assert set(rows[0].gaps) == {"unlink", "paper()", "calibrated", "nonexistent", "gradascent"}


def test_the_device_of_most_rows_is_taken() -> None:
    store = Store(None)
    for seed in range(3):
        store.add(key("dblp", "gcn", {"name": "unlink"}, seed, device="cpu"), row("unlink", 1.0))
    store.add(key("dblp", "gcn", {"name": "unlink"}, 0), row("unlink", 1.0))
    assert usual_device(store) == "cpu"
