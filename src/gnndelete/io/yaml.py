"""Settings from YAML and TOML files, read safely; every failure is one clear error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from gnndelete.errors import SettingError

#: Settings are small: longer and deeper files are mistakes or attacks.
MAX_BYTES, MAX_DEPTH = 1 << 20, 20


class Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number, which YAML 1.1 does not, and refuses a setting that is given twice.

    Aliases, which make a short file mean a long one, and deep nesting are refused.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise SettingError("it uses an alias (*name); write the value out")
        if self.depth == MAX_DEPTH:
            raise SettingError(f"it is nested more than {MAX_DEPTH} levels deep; settings need three")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

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
    text = _text(path)
    try:
        values = yaml.load(text, Loader=Loader)  # a SafeLoader
    except SettingError as error:
        raise SettingError(f"the settings file '{path}': {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where, what = f" at line {mark.line + 1}" if mark else "", getattr(error, "problem", None) or str(error)
        raise SettingError(f"'{path}' is not YAML{where}: {' '.join(what.split())}") from None
    if not isinstance(values or {}, dict):
        raise SettingError(f"'{path}' holds a '{type(values).__name__}'; it must hold {expected}")
    return values or {}


def read_toml(path: Path) -> dict[str, Any]:
    """Read the settings in a TOML file."""
    text = _text(path)
    try:
        if _DOTTED.search(text):
            raise ValueError(f"a key has more than {MAX_DEPTH} dots")
        return tomllib.loads(text)
    except RecursionError:
        raise SettingError(f"the settings file '{path}' is nested too deeply; settings need three levels") from None
    except ValueError as error:  # TOMLDecodeError is one, and so is what a number of thousands of digits raises
        raise SettingError(f"'{path}' is not TOML ({error}); correct it") from None


#: Keys such as a.b.c, for which a parser takes time that grows with the square of their length.
_DOTTED = re.compile(rf"^\s*\[*([^=#\n.]*\.){{{MAX_DEPTH}}}[^=#\n]*[=\]]", re.MULTILINE)


def _text(path: Path) -> str:
    """The content of a file of bounded size."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SettingError(f"the settings file '{path}' is longer than {MAX_BYTES:,} bytes")
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"the settings file '{path}' cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from None
