"""Reports that no longer describe what is served, or that a shorter one would replace: they are moved aside, not lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnndelete.cli.runs import SETTINGS
from gnndelete.cli.settings import Settings
from gnndelete.errors import SettingError
from gnndelete.io.yaml import read_yaml

#: Where a report goes that another one follows, within its own folder.
EARLIER = "earlier"
_VALUES, _PAGE, _FIGURES = "audit.json", "report.html", "figures"


def move_aside(out: Path, name: str) -> tuple[dict[Path, bytes], list[Path]]:
    """The files of the report in ``out`` as they are to be written below ``earlier/name``, and the ones to be removed."""
    if not (out / _VALUES).is_file():
        return {}, []
    files = [out / _VALUES, out / _PAGE, out / SETTINGS, *sorted((out / _FIGURES).glob("*.*"))]
    files = [path for path in files if path.is_file()]
    return {out / EARLIER / name / path.relative_to(out): path.read_bytes() for path in files}, files


def requests_of(out: Path) -> str:
    """A name for the state of the run that the report in ``out`` describes."""
    try:
        count: Any = json.loads((out / _VALUES).read_text())["request"]["requests"]
    except (OSError, ValueError, KeyError, TypeError):
        return "before"
    return f"after-{count}-request{'s' * (count != 1)}"


def lost(out: Path, settings: Settings) -> list[str]:
    """What the report in ``out`` has and one by these settings will not."""
    try:
        had = read_yaml(out / SETTINGS).get("audit") if (out / _VALUES).is_file() else None
    except SettingError:
        return []
    given = had if isinstance(had, dict) else {}
    words = {"reference": "a reference", "attacks": "attacks"}
    return [said for name, said in words.items() if given.get(name) is True and not getattr(settings.audit, name)]
