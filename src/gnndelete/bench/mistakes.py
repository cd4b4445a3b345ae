"""What is wrong with a file of an experiment, in sentences: every one names the setting and says what to write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gnndelete.errors import unknown

#: How a setting is written.
_EXAMPLES = {
    "title": "My first deletion",
    "task": "link",
    "datasets": "[digits]",
    "models": "[gcn, {name: gin, hidden: 64}]",
    "split": "{val: 0.05, test: 0.05}",
    "train": "{epochs: 1000, lr: 0.001}",
    "forget": "{amount: 0.05}",
    "methods": "[retrain, {name: gnndelete, label: mine}]",
    "measures": "[scores, unseen]",
    "seeds": "[42, 21]",
    "missing": "{cora: it has to be downloaded}",
    "only": "{models: [gcn]}",
    "only.models": "[gcn]",
    "only.where": "[random]",
    "only.amount": "[0.05]",
}

#: Lists of things that have a name, and may have more.
_NAMED = {"models": "a name, or {name: …, hidden: …}", "methods": "a name, or {name: …, label: …}"}

#: Lists that are filled in where they are left out.
_OPEN = ("seeds", "measures", "where")


def sentences(problems: Sequence[Any], known: Mapping[str, Iterable[str]]) -> str:
    """What is missing, all of it, then the first few mistakes; ``known`` has the settings of every part, by its name.

    >>> sentences([{"type": "missing", "loc": ("forget",)}], {})
    "it lacks 'forget'; write, for example, forget: {amount: 0.05}"
    """
    others = [_sentence(problem, known) for problem in problems if problem["type"] != "missing"][:3]
    missing = [".".join(_names(problem)) for problem in problems if problem["type"] == "missing"]
    # of a name that was written otherwise, one sentence is enough
    missing = [name for name in missing if not any(other.endswith(f"did you mean '{name}'?") for other in others)]
    if not missing:
        return "; ".join(others)
    tops = dict.fromkeys(name.partition(".")[0] for name in missing)
    examples = ", ".join(f"{top}: {_EXAMPLES[top]}" for top in tops)
    return "; ".join([f"it lacks {', '.join(map(repr, missing))}; write, for example, {examples}", *others])


def _names(problem: Any) -> list[str]:
    """Where a mistake is, without positions in lists."""
    return [part for part in problem["loc"] if isinstance(part, str)]


def _sentence(problem: Any, known: Mapping[str, Iterable[str]]) -> str:
    kind, names, value = problem["type"], _names(problem), problem.get("input")
    place = f"'{'.'.join(names)}'"
    if kind == "extra_forbidden":
        *above, name = names
        prefix = "".join(f"{part}." for part in above)
        return unknown("there is no setting", name, known[above[-1] if above else ""], prefix=prefix)
    if kind == "literal_error" and isinstance(value, str):
        return unknown(f"{place}: there is no", value, _choices(problem))
    if kind == "too_short":
        return f"{place} is an empty list; name at least one{', or leave it out' if names[-1] in _OPEN else ''}"
    if kind == "twice":
        return f"{place} {problem['msg']}"
    if kind == "invalid_key":
        return f"{f'{place}: ' if names else ''}the name of a setting is a word (got {value!r}); write it in quotes"
    if kind == "value_error":
        said: str = problem["msg"].removeprefix("Value error, ")
        return f"{place}: {said}" if names and not said.startswith("'") else said  # some say themselves where they are
    return f"{place}: write {_written(problem, names)} (got {value!r})"


def _written(problem: Any, names: Sequence[str]) -> str:
    """What to write where something of another kind stands."""
    name, kind = names[-1], problem["type"]
    if kind == "literal_error":
        return " or ".join(", ".join(_choices(problem)).rsplit(", ", 1))
    if kind == "model_type" and name in _NAMED:
        return _NAMED[name]
    if kind in ("model_type", "dict_type"):
        return f"settings such as {_EXAMPLES[name]}"
    if kind == "list_type":
        return f"a list, such as {_EXAMPLES.get('.'.join(names[-2:])) or _EXAMPLES[name]}"
    said: str = problem["msg"]
    return "a name" if kind == "string_type" else said.removeprefix("Input should be ")


def _choices(problem: Any) -> list[str]:
    return re.findall("'([^']+)'", problem["ctx"]["expected"])
