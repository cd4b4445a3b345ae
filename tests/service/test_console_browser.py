"""The console in a real browser: keyboard, a phone's width, dark mode, and the live view."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from gnndelete.service.api import create_app

sync_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH (apt-get install chromium)")

QUIET = ["no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking", "disable-component-update"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[f"--{name}" for name in QUIET])
        yield browser
        browser.close()


@pytest.fixture
def site(small) -> Iterator[Any]:
    """A shop that is served."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(small.service), log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    small.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    yield small
    server.should_exit = True
    thread.join(timeout=10)


class Window:
    """A browser window: what it asked for, and what it complained about."""

    def __init__(self, browser: Any, site: Any, width: int, scheme: str, scripts: bool) -> None:
        size = {"width": width, "height": 850}
        self.site = site
        self.context = browser.new_context(viewport=size, color_scheme=scheme, java_script_enabled=scripts)
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: message.type in ("error", "warning") and self.hear(message.text))
        self.page.on("pageerror", lambda error: self.hear(str(error)))
        self.go("/")
        self.page.locator("#key").fill(site.keys["admin"])  # it has the focus
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{site.url}/")

    def hear(self, complaint: str) -> None:
        self.complaints.append(complaint)

    def go(self, path: str) -> None:
        self.page.goto(self.site.url + path)


@pytest.fixture
def window(browser, site) -> Iterator[Any]:
    opened: list[Window] = []

    def go(width: int = 1280, scheme: str = "light", scripts: bool = True) -> Window:
        opened.append(Window(browser, site, width, scheme, scripts))
        return opened[-1]

    yield go
    for each in opened:
        each.context.close()
    for each in opened:
        assert each.complaints == []
        assert all(url.startswith((site.url, "data:")) for url in each.requests)


CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const parse = text => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = rgb => rgb.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const behind = part => {
        for (; part; part = part.parentElement) {
            const color = parse(getComputedStyle(part).backgroundColor);
            if (color[3] > 250) return color;
        }
        return [255, 255, 255];
    };
    const parts = [...document.querySelectorAll("h1, h2, p, a, th, td, dt, dd, li, b, span, button, label, summary, code")];
    return parts.filter(part => part.checkVisibility() && part.textContent.trim()).map(part => {
        const pair = [light(parse(getComputedStyle(part).color)), light(behind(part))];
        return [(Math.max(...pair) + .05) / (Math.min(...pair) + .05), part.textContent.trim().slice(0, 40)];
    }).sort((a, b) => a[0] - b[0])[0];
}"""

#: Things to operate without a name that a screen reader can say, and ids that are there twice.
FAULTS = """() => [
    ...[...document.querySelectorAll("a, button, summary")].filter(e => !e.textContent.trim() && !e.ariaLabel),
    ...[...document.querySelectorAll("input:not([type=hidden]), select, textarea")].filter(e => !e.labels.length),
    ...[...document.querySelectorAll("[id]")].filter((e, i, all) => all.findIndex(o => o.id === e.id) !== i),
    ...(document.querySelectorAll("h1").length === 1 && document.documentElement.lang ? [] : [document.body]),
].map(e => e.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_phone_and_can_be_read(site, window, scheme):
    held = site.ask(site.edge(0), mode="hold")["id"]
    done = site.ask(site.edges(9)[7])["id"]
    site.work()
    seen = window(400, scheme)
    for path in (
        "/",
        "/approvals",
        "/models",
        "/models/shop",
        "/ledger",
        "/new",
        f"/requests/{held}",
        f"/requests/{done}",
    ):
        seen.go(path)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 400, path
        ratio, words = seen.page.evaluate(CONTRAST)
        assert ratio >= 4.5, f"'{words}' on {path} has a contrast of {ratio:.2f}"
        assert seen.page.evaluate(FAULTS) == [], path
    ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(245, 246, 248)" if scheme == "light" else "rgb(17, 20, 24)")


def press(page: Any, key: str, until: str) -> None:
    """Press a key until something has the focus."""
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", until):
            return
    raise AssertionError(f"{until} cannot be reached by {key}")


def test_a_request_is_made_and_approved_by_keyboard(site, window):
    seen = window()
    page = seen.page
    press(page, "Tab", "a.button[href='/new']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/new")
    press(page, "Tab", "#elements")
    page.keyboard.type(", ".join(site.edge(0)))
    press(page, "Tab", "#predict")
    page.keyboard.press("Enter")
    page.get_by_text("average row of the model").wait_for()
    assert site.service.requests(site.admin) == []
    press(page, "Tab", "#more summary")
    page.keyboard.press("Enter")
    press(page, "Tab", "input[name=hold]")
    page.keyboard.press("Space")
    press(page, "Tab", "#send")
    page.keyboard.press("Enter")
    page.wait_for_url("**/requests/*")
    assert page.locator("h1 .badge").inner_text() == "held"
    press(page, "Tab", "details.confirm summary")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("h1 .badge", has_text="validated").wait_for()


def test_pages_follow_changes_and_keep_what_is_open(site, window):
    asked = site.ask(site.edge(0))["id"]
    request, listed = window(), window()
    request.go(f"/requests/{asked}")
    request.page.locator("#evidence-1 summary").click()
    request.page.locator("#deny-" + asked + " summary").focus()
    for each in (request, listed):
        each.page.locator("#live", has_text="live").wait_for()
    site.work()
    request.page.locator("h1 .badge", has_text="suppressed").wait_for()
    listed.page.locator("tbody .badge", has_text="suppressed").wait_for()
    assert request.page.locator("#evidence-1").get_attribute("open") is not None
    assert request.page.locator("#said").inner_text() == f"Request {asked[:8]}: suppressed"
    request.page.locator(f"#undo-{asked} summary").focus()
    site.ask(site.edges(5)[4])
    listed.page.locator("tbody .badge", has_text="validated").wait_for()
    request.page.wait_for_timeout(300)
    assert request.page.evaluate("document.activeElement.parentElement.id") == f"undo-{asked}"
    with request.page.expect_download() as download:
        request.page.locator("#download").click()
    assert download.value.suggested_filename == f"receipt-{asked[:8]}.json"


def test_what_is_being_written_is_not_exchanged(site, window):
    seen = window()
    seen.go("/models/shop")
    seen.page.locator("#live", has_text="live").wait_for()
    seen.page.locator("#elements").fill("half of an edge")
    site.ask(site.edge(0))
    site.work()
    seen.page.wait_for_timeout(1500)
    assert seen.page.locator("tbody tr").count() == 1
    seen.page.locator("h1").click()  # the focus leaves the field
    seen.page.locator("tbody tr").nth(1).wait_for()
    assert seen.page.locator("#elements").input_value() == "half of an edge"


def test_pages_work_without_scripts(site, window):
    held = site.ask(site.edge(0), mode="hold")["id"]
    page = window(scripts=False).page
    page.goto(f"{site.url}/approvals")
    page.locator(f"#approve-{held} summary").click()
    page.locator(f"#yes-approve-{held}").click()
    page.get_by_text("Nothing waits for approval").wait_for()
    assert site.state(held) == "validated"
