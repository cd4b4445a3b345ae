"""The user's names of nodes and the integers that tensors use, in both directions."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnndelete.errors import DeletionError, GraphError, some
from gnndelete.io.files import write

_FORMAT = "gnndelete-ids-1"
#: With up to this many names, an unknown one is compared with each; with more that takes too long.
_FEW_NAMES = 50_000


class IdMap:
    """The names of the nodes in their order: name i belongs to node i.

    Several node types lie one after the other. Two types may have the same name; ``user:7`` is then the user of that name.

    Args:
        names: Distinct texts that are not empty and have no line breaks and no surrounding blanks, so that they survive a
            CSV file.
        types: The number of nodes of each type, in the order of the names.
        joined: Whether the types share one ``Data``, so that ids count across all of them. In a ``HeteroData`` every type
            counts its own.

    Attributes:
        types: The ids of each type, across all types.

    Raises:
        GraphError: If a name cannot be used, or comes twice.

    >>> ids = IdMap(["user:4711", "user:12", "item:7"])
    >>> ids.to_int(["item:7", "user:4711"]).tolist()
    [2, 0]
    >>> ids.to_name([1, 1])
    ['user:12', 'user:12']
    >>> ids.closest("user:4171")
    'user:4711'
    >>> shop = IdMap(["ann", "7", "7", "8"], types={"user": 2, "item": 2})
    >>> shop.find("8"), shop.find("item:7"), shop.find("7"), shop.of("item").find("7")
    (3, 2, None, 2)
    """

    def __init__(self, names: Iterable[str], types: Mapping[str, int] | None = None, joined: bool = True) -> None:
        self.names = tuple(names)
        self.types: dict[str, range] = {}
        start = 0
        for name, count in (types or {}).items():
            self.types[name] = range(start, start := start + count)
        self.joined = joined
        self._first = 0
        self._of: dict[str, IdMap] = {}
        bad = [name for name in self.names if not _usable(name)]
        if bad:
            raise GraphError(
                f"{len(bad)} ids cannot be used: {some(map(repr, bad))}; an id is text without line breaks, "
                "not empty, with no blanks around it"
            )
        if len(self._index) != len(self.names):
            again = [name for node, name in enumerate(self.names) if self._index[name] != node]
            if not self.types or any(len({*self._within(kind)}) < len(self.types[kind]) for kind in self.types):
                raise GraphError(
                    f"{len(again)} ids stand for several nodes: {some(map(repr, again))}; make ids distinct"
                )
            self._shared = frozenset(again)

    _shared: frozenset[str] = frozenset()  # names that several types have

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: node for node, name in enumerate(self.names)}

    def _within(self, kind: str) -> tuple[str, ...]:
        return self.names[self.types[kind].start : self.types[kind].stop]

    def of(self, kind: str) -> IdMap:
        """Return the names of one type. They stand for ids within it, or across all types where these are joined.

        Args:
            kind: The node type.

        Raises:
            DeletionError: If there is no such type.
        """
        if kind not in self.types:
            known = f"there are {some(map(repr, self.types), 12)}" if self.types else "there is only one type here"
            raise DeletionError(f"there is no node type {kind!r}; {known}")
        if kind not in self._of:
            part = IdMap(self._within(kind))
            part._first = self.types[kind].start if self.joined else 0
            self._of[kind] = part
        return self._of[kind]

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and (self.names, self.types) == (other.names, other.types)

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"IdMap({some(map(repr, self.names), 3)})"

    def find(self, name: str) -> int | None:
        """Find the node of a name.

        Args:
            name: The name.

        Returns:
            The node, or None where no node has this name, or nodes of several types have it.
        """
        node = None if name in self._shared else self._index.get(name)
        if node is None and self.types:
            kind, _, rest = name.partition(":")
            inner = self.of(kind)._index.get(rest) if kind in self.types else None
            return None if inner is None else inner + self.types[kind].start
        return None if node is None else node + self._first

    def to_int(self, names: Iterable[str]) -> Tensor:
        """Find the nodes of several names.

        Args:
            names: The names.

        Returns:
            Their nodes, in the same order.

        Raises:
            DeletionError: If names are unknown. All are counted, and the first ones shown with the closest known name.
        """
        if isinstance(names, (str, bytes)):
            raise DeletionError(f"ids are given as the text {names!r}; give a list of ids")
        found = list(names)
        nodes = [self.find(name) for name in found]
        if None in nodes:
            unknown = list(dict.fromkeys(name for name, node in zip(found, nodes, strict=True) if node is None))
            shown = [*map(self.unknown, unknown[:20]), *unknown[20:]]
            raise DeletionError(
                f"{len(unknown)} id{'s are' if len(unknown) > 1 else ' is'} not in the graph: {some(shown, 20)}; check "
                f"{'them' if len(unknown) > 1 else 'it'}"
            )
        return torch.tensor(nodes, dtype=torch.long)

    def to_name(self, ids: Tensor | Iterable[int]) -> list[str]:
        """Find the names of several nodes.

        Args:
            ids: The nodes.

        Returns:
            Their names, in the same order.

        Raises:
            DeletionError: If a node is not in the graph.
        """
        nodes = ids.flatten().tolist() if isinstance(ids, Tensor) else [int(node) for node in ids]
        nodes = [node - self._first for node in nodes]
        outside = [node for node in nodes if not 0 <= node < len(self.names)]
        if outside:
            raise DeletionError(
                f"nodes that are not in the graph: {some(outside)}; they go from 0 to {len(self.names) - 1}"
            )
        return [self.names[node] for node in nodes]

    def unknown(self, name: str) -> str:
        """Show an unknown name as errors do, with the closest known one.

        Args:
            name: The unknown name.
        """
        if name in self._shared:
            kinds = [kind for kind in self.types if name in self.of(kind)]
            return f"{name!r}, which several types have: write {some(repr(f'{kind}:{name}') for kind in kinds)}"
        near = self.closest(name)
        return f"{name!r}, did you mean {near!r}?" if near is not None else repr(name)

    def closest(self, name: str) -> str | None:
        """Find the name that was probably meant.

        Args:
            name: An unknown name.

        Returns:
            The most similar name of a graph that is not large; None where there is none.
        """
        if len(self.names) > _FEW_NAMES:
            return None
        return next(iter(difflib.get_close_matches(name, self.names, n=1, cutoff=0.7)), None)

    @property
    def fingerprint(self) -> str:
        """A digest of the names and their order."""
        types = [f"{kind}:{len(rows)}" for kind, rows in self.types.items()]
        return hashlib.sha256("\n".join([*self.names, *types]).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the names as the content of a JSON file."""
        content: dict[str, Any] = {"format": _FORMAT, "sha256": self.fingerprint, "names": self.names}
        if self.types:
            content |= {"types": {kind: len(rows) for kind, rows in self.types.items()}, "joined": self.joined}
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the names to a JSON file.

        Args:
            path: The file.
        """
        write(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> IdMap:
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            The names.

        Raises:
            GraphError: If the file cannot be read, is damaged or was edited.
        """
        try:
            content: Any = json.loads(Path(path).read_bytes())
            if content["format"] != _FORMAT or not isinstance(content["names"], list):
                raise ValueError("another format")
            types = {str(kind): int(count) for kind, count in content.get("types", {}).items()}
            ids = cls(content["names"], types, bool(content.get("joined", True)))
            if types and sum(types.values()) != len(ids):
                raise ValueError("its types do not cover its names")
            if ids.fingerprint != content["sha256"]:
                raise ValueError("its names were changed")
        except OSError as error:
            raise GraphError(f"the ids '{path}' cannot be read ({error.strerror or error})") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise GraphError(f"the ids '{path}' are damaged ({error}); save the graph again") from None
        return ids


def without_names(ids: IdMap, nodes: Tensor) -> IdMap:
    """The ids without the names of deleted nodes; every node keeps its position.

    >>> import torch
    >>> without_names(IdMap(["ann", "bob", "cy"]), torch.tensor([1])).names
    ('ann', 'deleted:1', 'cy')
    """
    if not nodes.numel():
        return ids
    start = "deleted:"
    while any(name.startswith(start) for name in ids.names):
        start = f"_{start}"
    deleted = set(nodes.tolist())
    names = (f"{start}{node}" if node in deleted else name for node, name in enumerate(ids.names))
    return IdMap(names, {kind: len(rows) for kind, rows in ids.types.items()}, ids.joined)


def _usable(name: object) -> bool:
    if not isinstance(name, str) or not name or name != name.strip() or "\n" in name or "\r" in name:
        return False
    return is_utf8(name)


def is_utf8(text: str) -> bool:
    """Whether a text that was read with ``errors="surrogateescape"`` was UTF-8 throughout."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
