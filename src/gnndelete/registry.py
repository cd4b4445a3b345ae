"""Look up tasks, methods and models by name, and check their options against a signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from gnndelete.errors import SettingError, unknown


def by_name(name: str, value: Any, resolver: Any) -> Any:
    """A task or method from its name, its class or itself."""
    if isinstance(value, resolver.base):
        return value
    try:
        if not isinstance(value, (str, type)):
            raise TypeError(value)
        return resolver.make(value)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(
            f"'{name}' must be one of {', '.join(sorted(kind.name for kind in resolver.lookup_dict.values()))} "
            f"or an instance (got {value!r})"
        ) from error


def check_parameters(make: Callable[..., Any], given: Mapping[str, Any], owner: str, prefix: str) -> dict[str, Any]:
    """``given``, after checking names and types against the signature of ``make``."""
    signature = inspect.signature(make).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values()):
        return dict(given)
    for name in given:
        if name not in signature:
            raise SettingError(unknown(f"{owner} has no setting", name, signature, prefix))
    missing = [
        n for n, p in signature.items() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and n not in given
    ]
    if missing:
        raise SettingError(
            f"{owner} needs a value for '{prefix}{missing[0]}'; give it with --set {prefix}{missing[0]}=…"
        )
    try:
        hints = get_type_hints(make.__init__ if inspect.isclass(make) else make)
    except Exception:  # the user's annotations may name what is not there at run time; then types are not checked
        hints = {}
    return {name: _typed(prefix + name, value, hints.get(name, Any)) for name, value in given.items()}


def _typed(name: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value, strict=True)
    except ValidationError as error:
        said = " or ".join(dict.fromkeys(plain(p["msg"]) for p in error.errors()))
        raise SettingError(f"'{name}' should be {said} (got {value!r})") from None
    except PydanticUserError:
        return value  # a type that brings its own configuration, or none that can be checked


def plain(said: str) -> str:
    """What a value should be, in plain words.

    >>> plain("Input should be a valid integer")
    'a whole number'
    """
    words = {"a valid integer": "a whole number", "a valid boolean": "true or false", "a valid string": "a text"}
    said = said.removeprefix("Input should be ")
    return words.get(said, said.replace("a valid ", "a "))
