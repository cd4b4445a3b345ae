"""What is served: the rows of the live version of a model, read from its folder, and predictions that never mix two versions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnndelete.engine.segments import Rows
from gnndelete.engine.session import Session
from gnndelete.engine.trial import close
from gnndelete.errors import GNNDeleteError
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key
from gnndelete.nn.layers import evaluation_view
from gnndelete.service.elements import Asked, Elements
from gnndelete.service.errors import ServiceError
from gnndelete.service.folders import Made, ModelFolder
from gnndelete.service.solver import live_elements
from gnndelete.unlearner import Unlearner

#: One call asks about so many elements at most.
MOST_ELEMENTS = 10_000


class Generation:
    """A generation in memory, shared by all versions on top of it.

    Args:
        made: What was read from its folder.
        cache: Where it keeps the rows of its layers.
    """

    def __init__(self, made: Made, cache: Path) -> None:
        self.made = made
        self.elements: Elements = live_elements(made)
        self.model = evaluation_view(made.model)
        self.rows_suffice: bool | None = None  # whether the task scores elements by the rows of their nodes alone
        self._cache, self._trials = cache, threading.Lock()
        self._session: Session | None = None

    @contextmanager
    def trying(self) -> Iterator[Session]:
        """A session in which one thread at a time can try what a request would do; made when first asked for."""
        with self._trials:
            if self._session is None:
                made = self.made
                unlearner = Unlearner(made.model, made.graph.data, task=made.task, method="unlink")
                if made.facts["local"]:
                    unlearner.prepare(self._cache)
                self._session = unlearner.session
            yield self._session


@dataclass(frozen=True)
class Snapshot:
    """One version: whatever is asked of it comes from this version alone.

    Attributes:
        number: Its number.
        generation: The generation below it.
        rows: The rows of the output; versions of one chain share them.
        segment: The position in the chain; -1 for the generation itself.
        gone: The deleted nodes, sorted.
        manifest: Its manifest.
    """

    number: int
    generation: Generation
    rows: dict[Key, Rows]
    segment: int
    gone: Tensor
    manifest: dict[str, Any]

    def whole(self) -> Any:
        """The whole output."""
        entries = {key: rows.whole(self.segment) if self.segment >= 0 else rows.base for key, rows in self.rows.items()}
        return entries.get(None, entries) if None in entries else entries

    def read(self, ids: Tensor) -> Tensor:
        """Some rows of the output."""
        rows = self.rows[None]
        return rows.read(ids, self.segment) if self.segment >= 0 else rows.base.index_select(0, ids)


class Live:
    """The live version of a model; a switch is seen with the next question.

    Args:
        folder: The folder of the model.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._snapshot: Snapshot | None = None
        self._chain: list[int] = []

    def snapshot(self) -> Snapshot:
        """The version that is live now."""
        with self._lock:
            stamp = self.folder.stamp()
            if self._snapshot is None or stamp != self._stamp:
                self._snapshot = self._load(int(self.folder.aliases["live"] or 0))
                self._stamp = stamp
            return self._snapshot

    def _load(self, number: int) -> Snapshot:
        """Read a version; of one that continues the last only what is new."""
        before, manifest = self._snapshot, self.folder.manifest("versions", number)
        chain: list[int] = manifest["chain"]
        continues = before is not None and before.manifest["generation"] == manifest["generation"]
        generation = before.generation if before is not None and continues else None
        if generation is None:
            number_below = manifest["generation"]
            generation = Generation(self.folder.open_generation(number_below), self.folder.cache_folder(number_below))
        if before is not None and continues and self._chain == chain[: len(self._chain)]:
            rows, new, gone = before.rows, chain[len(self._chain) :], before.gone
        else:
            rows = {key: Rows(values) for key, values in generation.made.output.items()}
            new, gone = chain, torch.empty(0, dtype=torch.long)
        start = len(chain) - len(new)
        for position, segment in enumerate(new, start):
            changes = self.folder.read_changes(segment)
            for key, (ids, values) in changes.rows.items():
                rows[key].append(ids, values, position)
            gone = torch.cat([gone, changes.gone]).unique()
        self._chain = chain
        return Snapshot(number, generation, rows, len(chain) - 1, gone, manifest)

    def predict(self, asked: Asked) -> dict[str, Any]:
        """Scores of the live version, and which one it was."""
        if asked.count > MOST_ELEMENTS:
            raise ServiceError("too-many", f"one call asks about {MOST_ELEMENTS} elements at most", "ask in parts", 422)
        snapshot = self.snapshot()
        with self._lock:  # rows of later versions may be appended meanwhile, and models may keep state while they run
            scores = _answer(snapshot, asked)
        return {"version": snapshot.number, "scores": scores}


def _answer(snapshot: Snapshot, asked: Asked) -> Any:
    made, elements = snapshot.generation.made, snapshot.generation.elements
    kind = "edges" if made.task.pairwise else "graphs" if not made.task.on_nodes else "nodes"
    if list(asked.elements) != [kind]:
        raise ServiceError("wrong-kind", f"this model answers about {kind}", f'give {{"{kind}": […]}}', 422)
    try:
        wanted = _rows_of(elements, kind, asked.elements[kind])
        nodes = wanted.flatten() if kind == "nodes" else wanted[[0, -1]].flatten() if kind == "edges" else wanted[:0]
        limit = elements.table.num_nodes
        if wanted.numel() and (
            int(nodes.min() if nodes.numel() else 0) < 0 or int(nodes.max() if nodes.numel() else 0) >= limit
        ):
            raise _unknown()
        if torch.isin(nodes, snapshot.gone).any():
            raise _unknown()
        found = _predict(snapshot, wanted)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, RuntimeError) as error:
        raise error if isinstance(error, ServiceError) else _unknown() from None
    return [[round(value, 6) for value in row] if isinstance(row, list) else round(row, 6) for row in found.tolist()]


def _unknown() -> ServiceError:
    return ServiceError(
        "unknown-elements",
        "the model does not know all elements that were asked about",
        "ask about elements of its graph",
        422,
    )


def _rows_of(elements: Elements, kind: str, value: Any) -> Tensor:
    """Elements by name as row numbers."""
    ids = elements.graph.ids

    def row(name: Any) -> int:
        if ids is None:
            if isinstance(name, bool) or not isinstance(name, int):
                raise _unknown()
            return name
        found = ids.find(name) if isinstance(name, str) else None
        if found is None:
            raise _unknown()
        return found

    if not value:
        raise ServiceError("empty-request", f"no {kind} are named", f"name some {kind}", 422)
    if kind != "edges":
        return torch.tensor([row(each) for each in value], dtype=torch.long)
    relations = {name: number for number, name in enumerate(elements.graph.relations)}
    pairs = [[row(each[0]), *(relations.get(r, r) for r in each[1:-1]), row(each[-1])] for each in value]
    return torch.tensor(pairs, dtype=torch.long).t()


def _predict(snapshot: Snapshot, wanted: Tensor) -> Tensor:
    generation = snapshot.generation
    task, model = generation.made.task, generation.model
    with evaluating(model), torch.no_grad():
        if isinstance(generation.elements.data, HeteroGraph):
            return task.predict(model, snapshot.whole(), wanted)
        if generation.rows_suffice is not False and list(snapshot.rows) == [None]:
            try:
                ids, local = task.local(wanted)
                found = task.predict(model, snapshot.read(ids), local)
            except (GNNDeleteError, NotImplementedError):
                generation.rows_suffice = False
            else:
                if generation.rows_suffice is None:  # a decoder may know nodes by their ids
                    whole = task.predict(model, snapshot.whole(), wanted)
                    generation.rows_suffice = close(found, whole)
                    return whole
                return found
        return task.predict(model, snapshot.whole(), wanted)
