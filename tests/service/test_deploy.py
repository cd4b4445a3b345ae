"""What deploy/ holds fits the program: commands that exist, figures that are measured, alerts that the runbook knows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gnndelete.cli import app
from gnndelete.service.metrics import STANDING, Metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def units() -> dict[str, list[str]]:
    """The commands of gnndelete in the units, without the shell around them."""
    found = {}
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        for number, words in enumerate(
            re.findall(r"^ExecStart=.*bin/gnndelete ([^'\n]*)", path.read_text(), re.MULTILINE)
        ):
            found[f"{path.name} {number}"] = shlex.split(words)
    return found


def services() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def commands() -> dict[str, list[str]]:
    """Every command line of gnndelete in deploy/, by where it stands."""
    docker = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    composed = {name: each["command"] for name, each in services().items() if "command" in each}
    return {**units(), **composed, "Dockerfile": json.loads(docker[-1])}


@pytest.mark.parametrize("where", sorted(commands()))
def test_commands_exist_with_their_options(where):
    assert len(commands()) >= 5
    words, command = list(commands()[where]), get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    assert command.make_context(command.name, words)


def test_the_interface_is_not_open_to_everyone():
    for port in services()["serve"]["ports"]:
        assert port.startswith("127.0.0.1:")
    assert not any("ports" in each for name, each in services().items() if name != "serve")
    for name, words in units().items():
        assert "0.0.0.0" not in words, name


def expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "gnndelete.json").read_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return panels + [rule["expr"] for group in groups for rule in group["rules"]]


def test_dashboard_and_alerts_ask_for_figures_that_exist():
    metrics = Metrics()
    for family in (metrics.steps, metrics.failures, metrics.verdicts, metrics.http, metrics.webhooks):
        family.labels(*["x"] * len(family._labelnames))
    text = metrics.text({name: {("x",) * len(labels): 1} if labels else 1 for name, _, labels in STANDING}).decode()
    known = set(re.findall(r"^(\w+)(?:\{| )", text, re.MULTILINE))
    asked = {name for each in expressions() for name in re.findall(r"\b(?:gnndelete|process)_[a-z_]+", each)}
    assert len(asked) > 15
    assert asked <= known, asked - known
    labels = set(re.findall(r"(\w+)=\"", text))
    for each in expressions():
        for names in re.findall(r"by \(([\w, ]+)\)", each):
            assert set(names.split(", ")) <= labels, each


def test_panels_do_not_overlap():
    panels = json.loads((DEPLOY / "grafana" / "gnndelete.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_alert_has_a_section_in_the_runbook():
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    sections = re.findall(r"^## (\w+)", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    names = [rule["alert"] for group in groups for rule in group["rules"]]
    assert len(names) > 8
    assert set(names) <= set(sections)
