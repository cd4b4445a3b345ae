"""What stands twice in an experiment: YAML would take the last of two names, and one cell would stand for two entries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gnndelete.errors import SettingError
from gnndelete.io.yaml import Loader


def check_names(path: Path) -> None:
    """Refuse a file in which a setting is given twice."""
    waiting = [yaml.compose(path.read_text(encoding="utf-8"), Loader=Loader)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for name, value in node.value:
                line = name.start_mark.line + 1
                if name.value in seen:
                    raise SettingError(
                        f"the experiment '{path}': '{name.value}' is given twice, in lines {seen[name.value]} and {line}; "
                        "leave one of them out"
                    )
                seen[name.value] = line
                waiting.append(value)
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def check_apart(what: str, entries: Sequence[tuple[str, Any]]) -> None:
    """Refuse two entries of a list, each with how it is written, that mean the same once defaults are filled in.

    >>> check_apart("models", [("gcn", {"hidden": 128}), ("{name: gcn, hidden: 128}", {"hidden": 128})])
    Traceback (most recent call last):
    gnndelete.errors.SettingError: 'models': gcn and {name: gcn, hidden: 128} are the same; leave one of them out
    """
    for i, (name, meant) in enumerate(entries):
        for other, known in entries[:i]:
            if known == meant:
                said = f"'{what}' names {name} twice" if name == other else f"'{what}': {other} and {name} are the same"
                raise SettingError(f"{said}; leave one of them out")


def written(values: Mapping[str, Any]) -> str:
    """Settings as a line of YAML.

    >>> written({"name": "gcn", "hidden": 128}), written({"name": "gcn"})
    ('{name: gcn, hidden: 128}', 'gcn')
    """
    if list(values) == ["name"]:
        return str(values["name"])
    return json.dumps(values, ensure_ascii=False, default=str).replace('"', "")
