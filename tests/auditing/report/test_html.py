"""The page, the card and the text: every number is there, nothing is fetched, nothing a user wrote becomes markup."""

from __future__ import annotations

import re
import runpy
import time
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gnndelete.auditing.report import html as module
from gnndelete.auditing.report.figures import figure_files
from gnndelete.auditing.report.text import report_sections
from gnndelete.auditing.report.text import text as text_of

sample = runpy.run_path(str(Path(__file__).with_name("sample.py")))
VARIANTS = sample["VARIANTS"]


def html(report: dict[str, Any]) -> str:
    return module.page(sample["made"](report))


def card_html(report: dict[str, Any]) -> str:
    return module.card(sample["made"](report))


def text(report: dict[str, Any]) -> str:
    return text_of(sample["made"](report))


class Reader(HTMLParser):
    """The words of a page, and its elements in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "script"}:
            self.words.append(data)

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page() -> str:
    return str(html(sample["link"]()))


def test_the_verdict_comes_first_and_not_by_colour_alone(page: str) -> None:
    said = Reader(page).said
    order = ["Indistinguishable from data the model never saw", "Verdict: indistinguishable", "What was asked", "What was done",
             "Assurance level: approximate", "Key numbers", "Figures", "All measurements", "What this does not give",
             "How to reach a higher level", "Provenance"]  # fmt: skip
    places = [said.find(part, 60) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "✓" in said


def test_every_number_that_matters_is_there(page: str) -> None:
    said = Reader(page).said
    for number in (
        "1,189 edges", "17,716", "95,162 → 92,784", "0.0213",  # request and strength
        "0.965", "0.964", "0.967", "0.966", "31.4%", "48.7%", "-0.0042", "-0.0017", "-0.0011", "-0.297",
        "5,000", "320", "0.935",  # utility
        "0.503", "0.617", "0.609", "0.604", "0.599",  # ranking
        "0.512 [0.493, 0.531]", "0.507 [0.488, 0.526]", "0.671 [0.652, 0.690]", "0.548 [0.529, 0.567]", "+0.005", "+0.046",
        "0.010", "0.508", "2,643", "98.1%",  # the unseen test
        "0.621", "0.538", "0.533", "0.567", "0.687", "1.211", "1.249", "0.642", "3.37 s", "0.564", "0.559",
        "0.617", "0.551",  # attacks
        "0.012", "0.203", "0.006", "98.1%", "96.4%", "0.021",  # distance
        "99.8%", "-0.214", "91.2%", "-12.400", "1.042", "3.2e-07", "1,180 of 1,189", "87.4%",  # theorem
        "6.1%", "7.2%", "6.9%", "90.3%", "91.1%",  # outliers
        "49.8 ms", "6.12 s", "20,480", "228,736", "123×",  # cost
        "2026-11-15 12:00:00+00:00", "0.1.0", "2.13.0", "3.11.2", "4.21 s", "1.0e-06",  # provenance and settings
    ):  # fmt: skip
        assert number in said, number
    for sentence in (
        "base weights are unchanged",
        "Use a certified method",
        "the weights speak",
        "4,120 rows",
        "0.504 ± 0.010",
    ):
        assert sentence in said


def test_each_figure_of_the_method_stands_beside_the_reference(page: str) -> None:
    head = re.search(r'class="key.*?</thead>', page, re.DOTALL)
    assert head
    assert re.findall(r'scope="col">([^<]+)<', head[0]) == ["measure", "before", "after", "Retrain"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_whole_page(variant: str) -> None:
    report = VARIANTS[variant]()
    made = html(report)
    assert len(made.encode()) < 600_000
    assert made.startswith("<!doctype html>")
    assert made.rstrip().endswith("</html>")
    said = Reader(made).said
    assert not re.search(r"\b(None|NaN|nan|inf|Undefined)\b", said)
    assert report["verdict"]["title"] in said
    assert made.count("<h1>") == 1


def test_nothing_is_fetched_and_no_script_runs(page: str) -> None:
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    reader = Reader(page)
    assert not {"script", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in reader.tags}
    sources = [str(attrs["src"]) for _, attrs in reader.tags if "src" in attrs]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    drawings = [b64decode(source.partition(",")[2]).decode() for source in sources]
    assert not [svg for svg in drawings if "<script" in svg or re.search(r'href="(?!#|data:)', svg)]
    assert all((attrs.get("href") or "#").startswith(("#", "data:,")) for _, attrs in reader.tags)
    policy = [attrs["content"] for tag, attrs in reader.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy
    assert "default-src 'none'" in str(policy[0])


def test_ids_are_unique(page: str) -> None:
    ids = [attrs["id"] for _, attrs in Reader(page).tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_strings_of_the_user_are_never_markup() -> None:
    for made in (html(sample["hostile"]()), card_html(sample["hostile"]())):
        assert "<script" not in made
        assert "&lt;script&gt;" in made
        reader = Reader(made)
        assert "script" not in {tag for tag, _ in reader.tags}
        assert "x" not in [attrs["src"] for tag, attrs in reader.tags if tag == "img"]
        assert not [attrs for _, attrs in reader.tags if any(name.startswith("on") for name in attrs)]


def test_without_a_reference_there_is_no_column_for_it_and_the_page_says_so() -> None:
    made = html(sample["without_reference"]())
    assert "No reference model was given." in made
    assert ">Retrain<" not in made
    assert "There is no reference; pass reference=" in made


def test_a_section_that_was_not_measured_gives_its_reason_in_one_line() -> None:
    report = sample["unavailable"]()
    made = html(report)
    for key in ("utility", "forgetting", "membership", "trend", "distance", "theorem", "outliers"):
        part = re.search(rf'id="section-{key}">.*?</section>', made, re.DOTALL)
        assert part
        assert f'<p class="muted">There is no unseen data for {key}.</p>' in part[0]
        assert "<table" not in part[0]


def test_tables_and_figures_speak_to_a_screen_reader(page: str) -> None:
    tags = Reader(page).tags
    assert all(attrs.get("scope") in {"row", "col"} for tag, attrs in tags if tag == "th")
    panels = [attrs for tag, attrs in tags if tag == "img"]
    assert len(panels) == 14
    assert all(panel.get("alt") for panel in panels)
    assert ("html", {"lang": "en"}) in tags


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_card_is_small_and_stands_alone(variant: str) -> None:
    report: dict[str, Any] = VARIANTS[variant]()
    card = card_html(report)
    assert len(card.encode()) < 20_000
    assert card.startswith("<div")
    assert card.count("<div") == card.count("</div>")
    assert report["verdict"]["title"] in card
    assert "approximate" in card
    assert "var(--" not in card
    assert not re.search(r"\bNone\b|\bnan\b|http", card)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_text_begins_with_the_verdict_and_fits_a_terminal(variant: str) -> None:
    report = VARIANTS[variant]()
    lines = text(report).splitlines()
    assert report["verdict"]["title"] in lines[0]
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 124
    assert not re.search(r"\bNone\b|\bnan\b", "\n".join(lines))
    assert any(line.startswith("Assurance  approximate") for line in lines)


def test_lam_is_written_without_idle_zeros() -> None:
    assert "gnndelete on GCN, lam 0\n" in text(sample["already"]())
    page = html(sample["already"]())
    assert page.count(sample["already"]()["calibration"]["sentence"]) == 1
    assert "lam 0 was enough, so no other lam was tried." in page
    assert "chosen:" not in page, "a figure of one trial shows nothing"
    assert "How strongly to forget:" in page


def test_the_text_says_what_was_not_measured_and_why() -> None:
    said = text(sample["unavailable"]())
    listed = said[said.index("Not measured") :]
    for section in report_sections(sample["made"](sample["unavailable"]())):
        assert (f"  - {section.title}: {section.reason[:20]}" in listed) == bool(section.reason)


def test_page_and_files_take_seconds() -> None:
    report = sample["link"]()
    begun = time.process_time()
    html(report)
    figure_files(sample["made"](report))
    assert time.process_time() - begun < 15  # 3 to 7 s of one busy core


def test_the_page_repeats_the_advice_to_train_again(page: str) -> None:
    assert "Training again is recommended" in html(sample["fallback"]())
    assert "Training again is recommended" not in page
