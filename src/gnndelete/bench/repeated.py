"""Names that stand twice in one place of a YAML file: YAML would take the last without a word."""

from __future__ import annotations

from pathlib import Path

import yaml

from gnndelete.errors import SettingError
from gnndelete.yamlfile import Loader


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
