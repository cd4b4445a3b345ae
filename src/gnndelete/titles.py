"""What the methods of a comparison are called, and the rows they have on disk under that name or an earlier one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from gnndelete.errors import SettingError
from gnndelete.io.store import Store
from gnndelete.methods import Method, Retrain
from gnndelete.methods.base import plain

#: So many settings are named in a title; more of them where two methods would be called the same.
_NAMED = 3


@dataclass(frozen=True)
class Titled:
    """A method with what it is called in a table."""

    label: str
    method: Method
    given: bool = False  # whether the user chose the label


def title(method: Method, named: int | None = _NAMED) -> str:
    """The name of a method with the settings in which it differs from its defaults, or from a preset that is nearer to it.

    >>> from gnndelete.methods import GNNDelete
    >>> title(GNNDelete()), title(GNNDelete(aim="nonexistent")), title(GNNDelete.paper(hops="directed", lam=0.2))
    ('gnndelete', 'gnndelete (aim nonexistent)', 'gnndelete paper(lam 0.2, hops directed)')
    """
    preset, apart = apart_from(method)
    words = [f"{name} {value}" for name, value in apart.items()]
    said = ", ".join([*words[:named], *(["…"] if named is not None and len(words) > named else [])])
    return f"{method.name} {preset}({said})" if preset or said else method.name


def apart_from(method: Method, usual: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """The preset that a method is nearest to, empty where its defaults are nearer, and in which settings it differs from that.

    ``usual`` are defaults that count in place of the method's own.
    """
    kind, settings = type(method), method.settings()
    given = {name: plain(p.default) for name, p in inspect.signature(kind).parameters.items()} | dict(usual or {})
    nearest, found = "", [name for name, value in settings.items() if name in given and given[name] != value]
    for preset in kind.presets:
        make = getattr(kind, preset)
        takes = {n: plain(p.default) for n, p in inspect.signature(make).parameters.items() if n in settings}
        base = make(**{name: settings[name] for name in takes}).settings()
        apart = [name for name, value in settings.items() if base[name] != value or takes.get(name, value) != value]
        if len(apart) < len(found):
            nearest, found = preset, apart
    return nearest, {name: settings[name] for name in found}


def titled(methods: Iterable[Method], known: Sequence[Titled] = ()) -> list[Titled]:
    """Methods with a title each, different from those before; the first Retrain is what all others are held against."""
    found = list(known)
    for method in methods:
        taken = {other.label for other in found}
        reference = method.name == Retrain.name and all(other.method.name != Retrain.name for other in found)
        label = method.name if reference else title(method)
        if label in taken:
            label = title(method, named=None)
        copies = (f"{label} #{number}" for number in range(2, len(found) + 2))
        found.append(Titled(next(copy for copy in (label, *copies) if copy not in taken), method))
    return found


def check_labels(chosen: Sequence[Titled], others: Iterable[str]) -> None:
    """Refuse labels of the user that another row of the table has."""
    labels = [*others, *(one.label for one in chosen)]
    for one in chosen:
        if one.given and labels.count(one.label) > 1:
            raise SettingError(
                f"'{one.label}' is what another row of the table is called; give 'methods' another label"
            )


class Kept:
    """The finished rows of a comparison on disk, found by keys of which ``label`` is one entry.

    A title can change from one version or list of methods to the next, and what was done does not: a method without a
    label of the user's also finds its row under another title, unless that one is asked for as well.
    """

    def __init__(self, path: str | PathLike[str] | None, asked: Iterable[dict[str, Any]]) -> None:
        self._store = Store(path)
        self._others: dict[str, list[dict[str, Any]]] = {}  # by key without its label
        exact = {_text(key) for key in asked}
        for key, row in self._store.items():
            if (
                _text(key) not in exact
                and "error" not in row
                and str(key.get("label")).startswith(str(key.get("method")))
            ):
                self._others.setdefault(_text(key, "label"), []).append(row)

    def get(self, key: dict[str, Any], one: Titled) -> dict[str, Any] | None:
        """The row under a key, or None; an earlier title is replaced by that of today."""
        row = self._store.get(key)
        others = [] if one.given else self._others.get(_text(key, "label"), [])
        if (row is None or "error" in row) and others:
            row = others.pop(0)
        return None if row is None or "error" in row else {**row, "label": one.label}

    def add(self, key: dict[str, Any], row: dict[str, Any]) -> None:
        self._store.add(key, row)


def _text(key: dict[str, Any], *without: str) -> str:
    return json.dumps({name: value for name, value in key.items() if name not in without}, sort_keys=True)
