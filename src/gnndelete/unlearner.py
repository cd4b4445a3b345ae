"""`Unlearner`: takes deletion requests for one trained model and returns models that have forgotten."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import or_
from os import PathLike
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.blocks import LARGEST_SHARE
from gnndelete.engine.local import Answers, Solved
from gnndelete.engine.session import Session
from gnndelete.errors import AdapterError, ModelError, RunError, SettingError, why
from gnndelete.graph.batch import GraphBatch, as_user_graph, collate
from gnndelete.graph.deletion import NOTHING, Deletion
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.fingerprint import changed
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import further_edge_sets
from gnndelete.graph.validation import check_deletion, further_edges_cut, nearly_undirected
from gnndelete.io.files import write
from gnndelete.io.locks import ProcessLocks
from gnndelete.methods import GNNDelete, Method, require_fit
from gnndelete.methods import resolver as methods
from gnndelete.methods.base import Context, Fit, Outcome
from gnndelete.nn.checks import POOLS_DELETED, note_precomputed, pools_deleted
from gnndelete.nn.forward import Forward, resolve_forward
from gnndelete.notes import Note
from gnndelete.registry import by_name
from gnndelete.result import Unlearned
from gnndelete.tasks import Task
from gnndelete.tasks import resolver as tasks
from gnndelete.training.loop import as_fitting

STATE_FORMAT = 1


class Unlearner:
    """Serve deletion requests against a trained model. The user's model and data are never changed.

    Every request is solved together with all earlier ones from the base model. A sequence of requests therefore equals
    one big request, in any order.

    Args:
        model: The trained model, as it is.
        data: The graph that it was trained on: a ``Data``, a ``HeteroData``, or many graphs (a list, a PyG dataset).
        task: What the model was trained for, as a task or its name (``"link"``, ``"node"``, ``"graph"``). Methods that
            calibrate or train need it.
        method: How to forget, as a method or its name. The default is `GNNDelete`.
        forward: ``forward(model, data)`` runs the model, where argument names differ from the attributes of ``data``.
        fit: ``fit(model, data, seed)`` trains a model as yours was trained, for methods that train.
        build: ``build()`` returns an untrained model, where a fresh copy cannot be made from ``model``.
        engine: Where requests are solved. ``"local"``: on the neighbourhood of the deletion, so that a request costs the
            same however large the graph is; `prepare` checks that the model allows it. ``"full"``: on the whole graph.
            ``"auto"``: locally after `prepare`, where model, method and request allow it and the neighbourhood is small.
        sequence: How a request is joined with earlier ones. ``"joint"``: all are solved again together, so that a sequence
            equals one big request. ``"segments"``: a request is solved on top of the earlier ones, at the price of its own
            neighbourhood; `compact` solves all of them together from time to time.
        seed: The seed of everything random in the method.
        progress: Show progress bars on long work.

    Raises:
        RequestError: If the method does not fit the model, the graph or the task.

    >>> import gnndelete as gd
    >>> data = gd.datasets.load("digits")
    >>> unlearner = gd.Unlearner(gd.models.GCN(64), data, task="node", method="unlink")
    >>> unlearner.delete(gd.Deletion(nodes=[3])).assurance
    'inference-only'
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        task: Task | str | None = None,
        method: Method | str | None = None,
        forward: Forward | None = None,
        fit: Fit | None = None,
        build: Callable[[], nn.Module] | None = None,
        engine: Literal["auto", "full", "local"] = "auto",
        sequence: Literal["joint", "segments"] = "joint",
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        method = GNNDelete() if method is None else method
        self.method = method if isinstance(method, Method) else by_name("method", method, methods)
        if engine not in ("auto", "full", "local"):
            raise SettingError(f"'engine' must be 'auto', 'full' or 'local' (got {engine!r})")
        if sequence not in ("joint", "segments") or (sequence == "segments" and engine == "full"):
            raise SettingError(f"'sequence' must be 'joint' or, with a local engine, 'segments' (got {sequence!r})")
        if isinstance(data, DiskGraph):
            if engine == "full":
                raise SettingError(
                    "engine='full' runs on the whole graph, and a DiskGraph is not read whole", "use 'local'"
                )
            engine = "local"
        self.engine, self.sequence = engine, sequence
        self._on_top = sequence == "segments"  # whether a request is solved on top of the earlier ones where it can be
        data = collate(data)
        if task is not None:
            task = (task if isinstance(task, Task) else by_name("task", task, tasks)).on(data)
        self.task = task
        # A shallow copy: attributes that the user assigns to data later do not reach the base of the sequence.
        base = data.__copy__() if isinstance(data, Data) else data
        check_output = None if self.task is None else self.task.check_output
        session = Session(model, base, resolve_forward(forward), check_output)
        self._context = Context(
            session, task=self.task, fit=fit and as_fitting(fit), build=build, seed=seed, progress=progress
        )
        if self.task is not None:
            self.task.check(data)  # Negatives must be drawn before any edge is gone.
        self._requests: tuple[Deletion, ...] = ()
        self._earlier = NOTHING  # the union of all requests
        self._segment: Solved = []
        self._locks = ProcessLocks(RLock)  # a forked child starts with a free one
        require_fit(self.method, self._context)
        if isinstance(data, DiskGraph) and not self.method.runs_on_block(self._context):
            raise SettingError(
                f"'{self.method.name}' with these settings looks at the whole graph, and a DiskGraph is not read whole",
                "use GNNDelete(lam=0.5) or Unlink()",
            )

    @property
    def model(self) -> nn.Module:
        """The user's model, as it was given."""
        return self._context.model

    @property
    def data(self) -> Data | HeteroData:
        """The graph that the base model was trained on."""
        return as_user_graph(self._context.data)

    @property
    def history(self) -> tuple[Deletion, ...]:
        """All requests served so far, checked against the graph."""
        return self._requests

    def delete(self, deletion: Deletion) -> Unlearned:
        """Forget ``deletion`` and everything that was asked for before.

        On any error nothing has changed. Threads wait for each other, since every request includes the ones before it.

        Args:
            deletion: What must be forgotten.

        Returns:
            The model that has forgotten, the remaining graph, and what is known about the result.

        Raises:
            DeletionError: If the graph does not have what the deletion names.
            ModelError: If the method cannot serve this kind of deletion.
        """
        # some methods train, wherever they are called from
        with self._locks[os.getpid()], torch.inference_mode(False):
            start = time.perf_counter()
            unseen: Any = dict if self.task is None else self.task.unseen_edges  # asked only where the check fails
            request = check_deletion(deletion, self._context.data, self._context.session.table, unseen)
            union = self._union(request) if self._requests else request
            context = self._cut(union, request)
            require_fit(self.method, context)
            outcome = self._solve_segment(context) if self.sequence == "segments" else self.method.unlearn(context)
            notes = (*outcome.notes, *self._notes(context))
            if (device := context.data.edge_index.device).type == "cuda":
                torch.cuda.synchronize(device)  # the seconds are those of finished work
            history, seconds = (*self._requests, request), time.perf_counter() - start
            unlearned = Unlearned.from_outcome(outcome, context, self.method, history, notes, seconds)
            self._requests, self._earlier = history, self._earlier | request if self._requests else request
            return unlearned

    def _union(self, request: Deletion) -> Deletion:
        """The request together with all earlier ones."""
        union = request.require_new(self._earlier) | self._earlier
        return union.check(self._context.data, self._context.session.table)

    def _cut(self, union: Deletion, request: Deletion) -> Context:
        """What remains: of the block around the deletion where the request is served locally, else of the graph."""
        if self.engine == "local" or self.sequence == "segments":
            self.prepare()
        context = replace(self._context, deletion=union, request=request)
        blocks = context.session.blocks
        if self.engine != "full" and blocks is not None:
            alone = replace(context, deletion=request, earlier=self._earlier)
            if self._on_top and self.method.runs_on_block(alone):
                return replace(alone, block=blocks.near(request, share=1.0, earlier=self._earlier))
            if self.method.runs_on_block(context):
                share = 1.0 if self.engine == "local" else LARGEST_SHARE
                context = replace(context, block=blocks.near(union, share))
        if context.block is None and isinstance(context.data, DiskGraph):
            raise ModelError(
                f"'{self.method.name}' looks at the whole graph for this request, and a DiskGraph is not read whole",
                "give a graph that fits into memory",
            )
        if context.block is None:
            context.remaining  # noqa: B018  (cut here, so that no later step does it as a side effect)
        return context

    def _solve_segment(self, context: Context) -> Outcome:
        """What the method makes of the request, which becomes what later ones start from."""
        blocks = context.session.blocks
        if blocks is None:
            return self.method.unlearn(context)
        before, is_alone = blocks.segments, context.deletion is context.request and context.block is not None
        if not is_alone or before is None:  # solved from the base model
            blocks.segments = None
        try:
            outcome = self.method.unlearn(context)
            operators = outcome.operators or (outcome.adapter.operators if outcome.adapter is not None else [])
            block = context.block or blocks.near(context.deletion, share=1.0)
            assert block is not None
            near = replace(context, block=block).near
            output = blocks.commit(block, near.remaining, context.deletion, operators)
            assert blocks.segments is not None
            self._segment = operators
        except BaseException:
            blocks.segments = before
            raise
        return replace(outcome, answers=Answers(blocks, output), operators=blocks.operators(), model=None, adapter=None)

    @property
    def session(self) -> Session:
        """The model, its graph, and what was computed once for both."""
        return self._context.session

    @property
    def segment(self) -> Solved:
        """The operators that were solved for the newest request alone, to be kept for `restore`."""
        return list(self._segment)

    def restore(self, deletion: Deletion, operators: Solved) -> Unlearner:
        """Take up a request that was solved before, by its operators: nothing is solved again.

        Restored in their order, the segments of a stream are what they were before a restart.

        Args:
            deletion: What the request named.
            operators: The operators that were solved for it, on the whole graph.

        Returns:
            This unlearner.

        Raises:
            DeletionError: If the graph does not have what the deletion names.
        """
        with self._locks[os.getpid()], torch.inference_mode(False):
            request = check_deletion(deletion, self._context.data, self._context.session.table)
            context = self._cut(self._union(request) if self._requests else request, request)
            blocks = context.session.blocks
            if self.sequence == "segments" and blocks is not None and context.block is not None:
                output = context.near.remaining
                blocks.commit(context.block, output, context.deletion, operators)
            self._requests, self._earlier = (*self._requests, request), self._earlier | request
            return self

    def prepare(self, folder: str | PathLike[str] | None = None, memory: int | str = "2GB") -> Unlearner:
        """Compute once what local requests start from: the rows of every layer on the original graph, and a rehearsed lam.

        It is checked whether the model's answers near a deletion can be computed on a part of the graph. Where they can,
        later requests are served there (`Unlearned.engine` says so); `gnndelete.inspect` tells why they cannot.

        Args:
            folder: Where the rows are kept, to be read from there the next time. The files are **sensitive**: they hold
                what the model says of the graph before any deletion. The default is to keep them in memory, or in the
                folder of a ``DiskGraph``. There a preparation that was killed goes on where it stopped.
            memory: How much memory the preparation of a ``DiskGraph`` may use; it runs layer by layer, in blocks of nodes.

        Returns:
            This unlearner.

        Raises:
            ModelError: If ``engine="local"`` was asked for and the model's rows cannot be computed on a part of the graph.
        """
        session = self._context.session
        if session.blocks is None and self.engine != "full":
            session.prepare(None if folder is None else Path(folder), memory, self._context.progress)
            if session.blocks is None and self.engine == "local":
                raise ModelError(f"the model cannot be run locally: {session.not_local}", "use engine='auto'")
            with self._locks[os.getpid()], torch.inference_mode(False):
                self.method.prepare(self._context)
        return self

    def _notes(self, context: Context) -> list[Note]:
        """What a user must know about the model and its graph, whatever the method."""
        deletion, data, session = context.deletion, context.data, context.session
        cuts_edges = bool(deletion.edges.size(1) or deletion.nodes.numel())
        notes: list[Note] = []
        many = isinstance(data, GraphBatch) and self.method.keeps_model
        if many and pools_deleted(session.model, context.remaining, deletion.nodes, session.forward):
            notes.append(POOLS_DELETED)
        if cuts_edges or deletion.features.size(1):
            part = session.sample if isinstance(data, DiskGraph) else data
            notes += note_precomputed(session.model, part, session.forward)
        if cuts_edges and not isinstance(data, HeteroGraph) and (further := further_edge_sets(data)):
            notes.append(further_edges_cut(further))
        if deletion.edges.size(1) and not session.table.undirected:
            notes += nearly_undirected(session.table, deletion.edges, deletion.nodes)
        return notes

    def save_state(self, path: str | PathLike[str]) -> None:
        """Write down what was deleted, to continue the sequence after a restart.

        The file is **sensitive**: it names everything that was deleted.

        Args:
            path: The JSON file to write.
        """
        session = self._context.session
        state = {
            "warning": "SENSITIVE: this file lists what was deleted; keep it as safe as the data, while requests follow",
            "format": STATE_FORMAT,
            "base_fingerprint": session.base_fingerprint(),
            "graph_fingerprint": session.graph_fingerprint(),
            "graph_attributes": session.graph_attributes,
            "requests": [request.to_lists() for request in self._requests],
        }
        write(Path(path), (json.dumps(state) + "\n").encode(), private=True)

    def load_state(self, path: str | PathLike[str]) -> Unlearner:
        """Continue a sequence that `save_state` wrote.

        Args:
            path: The JSON file to read.

        Returns:
            This unlearner.

        Raises:
            AdapterError: If the file cannot be read, or belongs to another model, graph or sequence.
        """
        try:
            state = json.loads(Path(path).read_text())
            listed = [Deletion.from_lists(request) for request in state["requests"]]
            saved = {"model": state["base_fingerprint"], "graph": state["graph_fingerprint"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AdapterError(
                f"no readable state at '{path}' ({why(error)})", "give the file that save_state wrote"
            ) from error
        session = self._context.session
        for what, current in (("model", session.base_fingerprint()), ("graph", session.graph_fingerprint())):
            if saved[what] != current:
                raise AdapterError(
                    f"the state at '{path}' belongs to another {what} ({saved[what][:12]}, this one is {current[:12]})"
                )
        different = changed(state.get("graph_attributes") or {}, session.graph_attributes)
        if different:
            raise AdapterError(
                f"the state at '{path}' belongs to a graph with other values of {different}", "give that one"
            )
        requests = tuple(request.check(self._context.data, session.table) for request in listed)
        if self._requests != requests[: len(self._requests)]:
            raise AdapterError(
                f"this Unlearner has served requests that are not in the state at '{path}', and would lose them",
                "load the state in a new Unlearner",
            )
        if requests != self._requests:
            self._context.memory.clear()  # What a method remembers belongs to the sequence that it served.
        self._remember(requests)
        return self

    def compact(self) -> Unlearned:
        """Solve all requests so far again as one: after many segments, or after `load_state`.

        Returns:
            The result of the whole sequence.

        Raises:
            RunError: If nothing was deleted yet.
        """
        if not self._requests:
            raise RunError("nothing was deleted yet", "call delete(Deletion(…)) first")
        with self._locks[os.getpid()]:
            earlier = copy.copy(self)  # other threads and forked children see the whole history all the time
            earlier._remember(self._requests[:-1])
            earlier._on_top = False
            return earlier.delete(self._requests[-1])

    def _remember(self, requests: tuple[Deletion, ...]) -> None:
        """Set the history, and the union of all its requests."""
        self._requests = requests
        self._earlier = reduce(or_, requests, NOTHING)
