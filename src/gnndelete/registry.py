"""Tasks and methods by their names."""

from __future__ import annotations

from typing import Any

from gnndelete.errors import SettingError


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
