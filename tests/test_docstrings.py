"""Every public callable documents every parameter in an ``Args:`` section."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

#: The packages and modules whose ``__all__`` is the public interface.
PUBLIC = ("gnndelete", "gnndelete.auditing", "gnndelete.datasets", "gnndelete.methods", "gnndelete.models")
PUBLIC += ("gnndelete.tasks", "gnndelete.testing")


def public_callables() -> Iterator[tuple[str, Any, str]]:
    """Name, signature and docstring of exported functions and classes, and of the classes' public methods."""
    found: set[int] = set()
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            defined_here = str(getattr(value, "__module__", "")).startswith("gnndelete")
            if inspect.ismodule(value) or not callable(value) or not defined_here or id(value) in found:
                continue
            found.add(id(value))
            yield f"{package}.{name}", value, inspect.getdoc(value) or ""
            if inspect.isclass(value):
                yield from public_methods(f"{package}.{name}", value)


def public_methods(owner: str, kind: type) -> Iterator[tuple[str, Any, str]]:
    fields = getattr(kind, "__dataclass_fields__", {})
    for name, raw in vars(kind).items():
        method = getattr(raw, "__func__", raw)
        if not name.startswith("_") and name not in fields and inspect.isfunction(method):
            yield f"{owner}.{name}", method, inspect.getdoc(getattr(kind, name)) or ""


CALLABLES = list(public_callables())


@pytest.mark.parametrize(("value", "doc"), [pytest.param(*rest, id=name) for name, *rest in CALLABLES])
def test_every_parameter_is_documented(value: Any, doc: str) -> None:
    assert doc, "there is no docstring"
    names = [name for name in inspect.signature(value).parameters if name not in ("self", "cls")]
    section = doc.partition("Args:\n")[2]
    missing = [name for name in names if not re.search(rf"(?m)^\s+\*{{0,2}}{name}(?: \([^)]*\))?:", section)]
    assert not missing, f"Args: does not name {missing}"
