"""The saved page in a real browser: it fetches nothing, every figure is drawn, a phone needs no sideways scrolling."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnndelete.auditing.report.html import page

sync_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH (apt-get install chromium)")

sample = runpy.run_path(str(Path(__file__).with_name("sample.py")))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    paths = {}
    for name in ("link", "one_edge", "without_reference", "unavailable"):
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(page(sample["made"](sample["VARIANTS"][name]())), encoding="utf-8")
    return paths


class Visit:
    """One page that was opened: what it asked for, and what the browser complained about."""

    def __init__(self, browser: Any, path: Path, width: int, height: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type in {"error", "warning"} else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri(), wait_until="networkidle")

    def panels(self) -> list[dict[str, Any]]:
        """Size and place of every panel, as the browser laid it out; one that it could not read has no natural width."""
        return list(
            self.page.evaluate(
                """() => [...document.querySelectorAll("figure img.panel")].map(image => {
                    const box = image.getBoundingClientRect();
                    return {
                        name: image.closest("figure").id, width: box.width, height: box.height, left: box.left,
                        right: box.right, shown: image.checkVisibility() && image.complete && image.naturalWidth > 0,
                    };
                })"""
            )
        )

    def width(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    opened: list[Visit] = []

    def go(path: Path, width: int = 390, height: int = 844, scheme: str = "light") -> Visit:
        opened.append(Visit(browser, path, width, height, scheme))
        return opened[-1]

    yield go
    for each in opened:
        each.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(360, 740), (390, 844), (1280, 900)])
def test_figures_are_drawn_and_nothing_is_fetched(
    visit: Any, saved: dict[str, Path], width: int, height: int, scheme: str
) -> None:
    seen = visit(saved["link"], width, height, scheme)
    assert seen.requests == [saved["link"].as_uri()]
    assert seen.complaints == []
    assert seen.width() <= width
    panels = seen.panels()
    assert {panel["name"] for panel in panels} == {"unseen", "scores", "lam", "attacks", "embedding", "cost"}
    for panel in panels:
        assert panel["shown"]
        assert panel["width"] > 200
        assert panel["height"] > 60
        assert panel["left"] >= 0
        assert panel["right"] <= width


@pytest.mark.parametrize("name", ["one_edge", "without_reference", "unavailable"])
def test_every_kind_of_report_fits_a_phone(visit: Any, saved: dict[str, Path], name: str) -> None:
    seen = visit(saved[name], 360, 740, "dark")
    assert seen.requests == [saved[name].as_uri()]
    assert seen.complaints == []
    assert seen.width() <= 360
    assert seen.page.locator("h1").is_visible()


CONTRAST = """() => {
    const parse = text => text.match(/[\\d.]+/g).map(Number);
    const light = rgb => rgb.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const behind = part => {
        for (; part; part = part.parentElement) {
            const color = parse(getComputedStyle(part).backgroundColor);
            if (color.length < 4 || color[3] > 0) return color;
        }
        return [255, 255, 255];
    };
    return [...document.querySelectorAll("h1, h2, h3, h4, p, th, td, dt, dd, li, caption, figcaption")].map(part => {
        const style = getComputedStyle(part);
        const pair = [light(parse(style.color)), light(behind(part))];
        return [(Math.max(...pair) + .05) / (Math.min(...pair) + .05), part.textContent.slice(0, 40)];
    }).sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit: Any, saved: dict[str, Path], scheme: str) -> None:
    ratio, words = visit(saved["link"], scheme=scheme).page.evaluate(CONTRAST)
    assert ratio >= 4.5, f"'{words}' has a contrast of {ratio:.2f}"


def test_dark_and_light_differ_in_ground_and_figures(visit: Any, saved: dict[str, Path]) -> None:
    looks = {
        scheme: visit(saved["link"], scheme=scheme).page.evaluate(
            """() => [getComputedStyle(document.body).backgroundColor,
                      getComputedStyle(document.querySelector("img.panel")).filter]"""
        )
        for scheme in ("light", "dark")
    }
    assert looks["light"][0] != looks["dark"][0]
    assert looks["light"][1] == "none" != looks["dark"][1]


def test_print_is_white_and_cuts_no_figure(visit: Any, saved: dict[str, Path]) -> None:
    seen = visit(saved["link"], 794, 1123, "dark")  # A4 at 96 dpi
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert seen.page.evaluate("getComputedStyle(document.querySelector('img.panel')).filter") == "none"
    assert seen.width() <= 794
    for panel in seen.panels():
        assert panel["width"] > 150
        assert panel["shown"]
    kept = seen.page.evaluate("[...document.querySelectorAll('figure')].map(f => getComputedStyle(f).breakInside)")
    assert set(kept) == {"avoid"}
    assert seen.page.pdf(format="A4").startswith(b"%PDF")
