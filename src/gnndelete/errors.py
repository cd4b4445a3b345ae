"""Every error a user can meet: what is wrong, the value that was given, and the way out.

`RequestError` and its children mean that the request cannot be served as asked (exit code 2 on the command line);
`RunError` means that a valid request failed while it ran (exit code 1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: Longer parts of a message are cut in their middle, as are longer values that a message lists.
MESSAGE_CHARACTERS, VALUE_CHARACTERS = 3000, 120


class GNNDeleteError(Exception):
    """Base of all errors that gnndelete raises on purpose.

    Args:
        why: What is wrong, with the name and the value of the thing.
        remedy: What the user can do about it. The message is ``why; remedy``.
    """

    exit_code = 1

    def __init__(self, why: str = "", remedy: str = "") -> None:
        why, remedy = bounded(why, MESSAGE_CHARACTERS), bounded(remedy, MESSAGE_CHARACTERS)
        super().__init__(f"{why}; {remedy}" if remedy else why)
        self.why, self.remedy = why, remedy


class RequestError(GNNDeleteError, ValueError):
    """The request, as it stands, cannot be served; nothing was changed."""

    exit_code = 2


class DeletionError(RequestError):
    """What should be deleted is malformed or does not fit the graph."""


class GraphError(RequestError):
    """The graph is malformed or lacks something that is needed."""


class AbsentError(GraphError):
    """The raw files of a dataset are not here and cannot be downloaded."""


class ModelError(RequestError):
    """The model does not fit what is asked of it."""


class UnfitError(ModelError):
    """The method cannot serve this model, graph, task or kind of deletion."""


class AdapterError(RequestError):
    """An adapter on disk is damaged, or belongs to another model or graph."""


class SettingError(RequestError):
    """An option has a value that is not allowed."""


class NotYetError(RequestError):
    """A combination that is well defined but not supported by this version."""


class RunError(GNNDeleteError, RuntimeError):
    """A valid request failed while it ran."""


class StorageError(RunError):
    """A file could not be written: the disk is full, or the place is closed. Whatever else is written there fails as well."""


class AppliedError(RunError):
    """The request was applied and is in force; something after that failed."""


def bounded(text: str, limit: int) -> str:
    """A text without its middle where it is too long.

    >>> bounded("0123456789", 4)
    '01…89'
    """
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-(limit // 2) :]}"


def why(error: BaseException) -> str:
    """What went wrong with a file, without the path and the number that the system adds.

    >>> why(FileNotFoundError(2, "No such file or directory", "a.csv")), why(ValueError("no number"))
    ('it does not exist', 'no number')
    """
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    said = getattr(error, "strerror", None)
    return f"{said[:1].lower()}{said[1:]}" if said else str(error)


def some(values: Iterable[object], limit: int = 5) -> str:
    """The first few values as text, for error messages.

    >>> some([3, 1, 4, 1, 5, 9, 2])
    '3, 1, 4, 1, 5 and 2 more'
    """
    items: Sequence[object] = list(values)
    shown = ", ".join(bounded(str(item), VALUE_CHARACTERS) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def unknown(lead: str, name: str, known: Iterable[str], prefix: str = "") -> str:
    """The sentence for a name that does not exist, with the closest one that does.

    >>> unknown("there is no setting", "epoch", ["epochs", "lr"], prefix="train.")
    "there is no setting 'train.epoch'; did you mean 'train.epochs'?"
    >>> unknown("there is no model", "gnc", ["gin", "gcn"])
    "there is no model 'gnc'; did you mean 'gcn'?"
    """
    known = list(known)
    name = bounded(name, VALUE_CHARACTERS)
    close = difflib.get_close_matches(name, known, cutoff=0.5)
    if close:
        meant = next((each for each in close if sorted(each) == sorted(name)), close[0])  # letters change places easily
        return f"{lead} '{prefix}{name}'; did you mean '{prefix}{meant}'?"
    return f"{lead} '{prefix}{name}'; choose from {', '.join(f'{prefix}{k}' for k in known) or 'nothing: it has none'}"
