"""Results on disk, one JSON line each, so that an interrupted run can resume and nothing is done twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from gnndelete.errors import RunError, SettingError, why


class Store:
    """An append-only file of rows under keys; a key holds everything that its row depends on.

    Args:
        path: The JSON-lines file; None keeps rows in memory only.
        read: Called with the key, the row and the number of every line of the file; it returns the row to keep.

    >>> Store(None).get({"seed": 1}) is None
    True
    """

    def __init__(
        self,
        path: str | PathLike[str] | None,
        read: Callable[[Any, dict[str, Any], int], dict[str, Any]] = lambda key, row, line: row,
    ) -> None:
        self._path = None if path is None else Path(path)
        self._rows: dict[str, dict[str, Any]] = {}
        self._whole: int | None = None  # bytes before a last line that an interruption cut off
        self._ended = True  # False where only the line break of the last line is missing
        if self._path is None or not self._path.exists():
            return
        try:
            content = self._path.read_bytes()
            ended = content.rfind(b"\n") + 1
            text = content[:ended].decode("utf-8-sig") + content[ended:].decode(errors="replace")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"the store '{self._path}' cannot be read ({why(error)}); give another file") from error
        torn = ended < len(content)
        lines = text.split("\n") if torn else text.split("\n")[:-1]
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                key, row = record["key"], record["row"]
                if not isinstance(row, dict):
                    raise TypeError
            except (ValueError, KeyError, TypeError):
                if number == len(lines) and torn:
                    self._whole, self._ended = ended, True
                    break
                raise SettingError(
                    f"line {number} of the store '{self._path}' is no result; remove or repair line {number}, or "
                    "give another file"
                ) from None
            self._rows[_text(key)] = read(key, row, number)
            self._ended = not torn

    def get(self, key: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row of a key, or None."""
        return self._rows.get(_text(key))

    def items(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Go through all keys and their latest rows, in the order in which the keys were first added."""
        for text, row in self._rows.items():
            yield json.loads(text), row

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: dict[str, Any], row: dict[str, Any]) -> None:
        """Add a row; it is on disk when this returns."""
        self._rows[_text(key)] = row
        if self._path is None:
            return
        line = json.dumps({"key": key, "row": row})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._whole is not None:
                os.truncate(self._path, self._whole)
                self._whole = None
            with self._path.open("a") as file:
                file.write(("" if self._ended else "\n") + line + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._ended = True
        except OSError as error:
            raise RunError(
                f"could not write to '{self._path}' ({error.strerror}); the rows it held are unchanged"
            ) from error


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
