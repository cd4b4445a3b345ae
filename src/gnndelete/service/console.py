"""The console: pages over the same facade as the HTTP interface."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, select_autoescape

from gnndelete import __version__
from gnndelete.service.lifecycle import Service

_pages = Environment(loader=PackageLoader("gnndelete.service"), autoescape=select_autoescape(default=True))


def add_pages(app: FastAPI, service: Service) -> None:
    """Add the pages to the HTTP interface."""

    @app.get("/", include_in_schema=False)
    def index() -> HTMLResponse:
        return HTMLResponse(_pages.get_template("index.html").render(version=__version__))


def report_page(report: dict[str, Any]) -> str:
    """The evidence about one request as a page."""
    return _pages.get_template("report.html").render(report=report)
