"""The user's own node ids and the integers the tensors use, in both directions."""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnndelete.errors import DeletionError, GraphError, some
from gnndelete.io.files import write

_FORMAT = "gnndelete-ids-1"
_FEW = 20_000
"""Up to this many names, all of them are compared with one that is not known."""


class IdMap:
    """External ids, in the order of the nodes: the name at place i belongs to node i.

    Names are distinct, not empty, and free of line breaks and surrounding blanks, so that they survive a CSV file.

    >>> ids = IdMap(["user:4711", "user:12", "item:7"])
    >>> ids.to_int(["item:7", "user:4711"]).tolist()
    [2, 0]
    >>> ids.to_name([1, 1])
    ['user:12', 'user:12']
    >>> ids.closest("user:4171")
    'user:4711'
    """

    relations: Sequence[str] | None = None  # what messages call relation types; None: by their numbers

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        bad = [name for name in self.names if not _usable(name)]
        if bad:
            raise GraphError(
                f"{len(bad)} ids cannot be used: {some(map(repr, bad))}; an id is text without line breaks, "
                "not empty, with no blanks around it"
            )
        if len(self._index) != len(self.names):
            again = [name for place, name in enumerate(self.names) if self._index[name] != place]
            raise GraphError(f"{len(again)} ids stand for several nodes: {some(map(repr, again))}; make ids distinct")

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def calling(self, relations: Sequence[str] | None) -> IdMap:
        """The same ids, with names of relation types for messages."""
        if not relations:
            return self
        result = copy.copy(self)
        result.relations = relations
        return result

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"IdMap({some(map(repr, self.names), 3)})"

    def find(self, name: str) -> int | None:
        """The node of that name, if there is one."""
        return self._index.get(name)

    def to_int(self, names: Iterable[str]) -> Tensor:
        """The nodes of the given names, in their order; names that are not known are all counted and the first shown."""
        if isinstance(names, (str, bytes)):
            raise DeletionError(f"ids are given as the text {names!r}; give a list of ids")
        found = list(names)
        unknown = [name for name in dict.fromkeys(found) if name not in self._index]
        if unknown:
            shown = some((self.unknown(name) for name in unknown[:20]), 20)
            rest = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
            raise DeletionError(f"{len(unknown)} ids are not in the graph: {shown}{rest}; check them")
        return torch.tensor([self._index[name] for name in found], dtype=torch.long)

    def to_name(self, ids: Tensor | Iterable[int]) -> list[str]:
        """The names of the given nodes, in their order."""
        places = ids.flatten().tolist() if isinstance(ids, Tensor) else [int(place) for place in ids]
        outside = [place for place in places if not 0 <= place < len(self.names)]
        if outside:
            raise DeletionError(
                f"nodes that are not in the graph: {some(outside)}; they go from 0 to {len(self.names) - 1}"
            )
        return [self.names[place] for place in places]

    def unknown(self, name: str) -> str:
        """How an error shows an id that is not known, with the closest one that is."""
        near = self.closest(name)
        return f"{name!r}, did you mean {near!r}?" if near is not None else repr(name)

    def closest(self, name: str) -> str | None:
        """The id that was probably meant: one letter away or, in a small graph, alike on the whole."""
        for candidate in _one_edit_away(name, {*name, *"".join(self.names[:1000])}):
            if candidate in self._index:
                return candidate
        if len(self.names) > _FEW:  # comparing with each of a million names takes many seconds
            return None
        return next(iter(difflib.get_close_matches(name, self.names, n=1, cutoff=0.7)), None)

    @property
    def fingerprint(self) -> str:
        """A stable name of this mapping: other names or another order give another one."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """The mapping as a JSON file."""
        content = {"format": _FORMAT, "sha256": self.fingerprint, "names": self.names}
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the mapping as a JSON file, which people can read too."""
        write(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> IdMap:
        """Read what `save` wrote; a damaged or edited file is refused."""
        try:
            content: Any = json.loads(Path(path).read_bytes())
            if content["format"] != _FORMAT or not isinstance(content["names"], list):
                raise ValueError("another format")
            ids = cls(content["names"])
            if ids.fingerprint != content["sha256"]:
                raise ValueError("its names were changed")
        except OSError as error:
            raise GraphError(f"the ids '{path}' cannot be read ({error.strerror or error})") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise GraphError(f"the ids '{path}' are damaged ({error}); save the graph again") from None
        return ids


def _usable(name: object) -> bool:
    if not isinstance(name, str) or not name or name != name.strip() or "\n" in name or "\r" in name:
        return False
    return name.isascii() or decoded(name)


def decoded(text: str) -> bool:
    """Whether a text read with ``errors="surrogateescape"`` was UTF-8 throughout."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _one_edit_away(name: str, alphabet: set[str]) -> Iterator[str]:
    letters = sorted(alphabet)
    for place in range(len(name), -1, -1):  # ids mostly differ at their ends
        head, tail = name[:place], name[place:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        if tail:
            yield head + tail[1:]
        for letter in letters:
            yield head + letter + tail
            if tail:
                yield head + letter + tail[1:]
