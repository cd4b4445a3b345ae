"""Settings from YAML files, read safely; every failure is one clear error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from gnndelete.errors import SettingError


class Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number, which YAML 1.1 does not, and refuses a setting that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for name, _ in node.value:
            line = name.start_mark.line + 1
            if str(name.value) in lines:
                raise SettingError(
                    f"'{name.value}' is given twice, in lines {lines[str(name.value)]} and {line}; remove one of them"
                )
            lines[str(name.value)] = line
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(path: Path, expected: str = "sections such as data:, model:, train:") -> dict[str, Any]:
    """Read the settings in a YAML file; ``expected`` says in an error what the file should hold."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)  # a SafeLoader
    except SettingError as error:
        raise SettingError(f"the settings file '{path}': {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"the settings file '{path}' cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise SettingError(f"'{path}' is not YAML{where}: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(values or {}, dict):
        raise SettingError(f"'{path}' holds a '{type(values).__name__}'; it must hold {expected}")
    return values or {}
