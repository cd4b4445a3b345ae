"""`Unlearner`: takes deletion requests for one trained model, one after the other, and gives back what has forgotten them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import is_not, or_
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.engine.session import Session
from gnndelete.errors import AdapterError, DeletionError, GNNDeleteError, ModelError, RunError, why
from gnndelete.graph.batch import collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_sets import cut_too
from gnndelete.graph.hetero import HeteroGraph, seen
from gnndelete.graph.remaining import kept_edges
from gnndelete.graph.validation import changed, nearly_undirected
from gnndelete.io.files import write
from gnndelete.io.memory import PeakMemory
from gnndelete.methods import Method, nearest_fit
from gnndelete.methods import resolver as methods
from gnndelete.methods.base import Context, Fit, reasons, synchronize
from gnndelete.nn.checks import POOLS, made_before, pools_deleted
from gnndelete.nn.forward import Forward, as_seen, call, evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.registry import by_name
from gnndelete.result import Unlearned
from gnndelete.tasks import Task
from gnndelete.tasks import resolver as tasks
from gnndelete.tasks.trained import check_request
from gnndelete.training.loop import as_fitting

_STATE = 1


class Unlearner:
    """Serve deletion requests against a trained model; model and data of the user are never changed.

    Every request is solved together with all earlier ones from the base model, so that a sequence of requests equals one
    big request, in any order. ``forward(model, data)`` replaces the default call by argument names; ``fit(model, data,
    seed)`` and ``build()`` are for methods that train. ``data`` may also be many graphs (a list, a PyG dataset): they are
    put side by side (`GraphBatch`); of a ``HeteroData`` the node types are, and every layer has an operator per node type.

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
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        self.task: Task | None = by_name("task", task, tasks) if task is not None else None
        self.method: Method = by_name("method", method if method is not None else "gnndelete", methods)
        data = collate(data)
        self.task = None if self.task is None else self.task.on(data)
        # a shallow copy: what the user later assigns to data does not reach the base of the sequence
        own = data.__copy__() if isinstance(data, Data) else data
        check = None if self.task is None else self.task.check_output
        session = Session(model, own, as_seen(forward) or call, check)
        self._context = Context(session, task=self.task, fit=as_fitting(fit), build=build, seed=seed, progress=progress)
        if self.task is not None:
            self.task.check(data)  # before any edge is gone: negatives must be drawn where all edges are known
        self._requests: list[Deletion] = []
        self._joined: tuple[list[Deletion], Deletion] | None = None  # first requests, and all that they name
        self._turn = Lock()
        refuse_unfit(self.method, self._context)

    @property
    def model(self) -> nn.Module:
        """The user's own model, as it was given."""
        return self._context.model

    @property
    def data(self) -> Data | HeteroData:
        """The graph the base model was trained on."""
        return seen(self._context.data)

    @property
    def history(self) -> tuple[Deletion, ...]:
        """All requests served so far, in the graph's own terms."""
        return tuple(self._requests)

    def delete(self, deletion: Deletion) -> Unlearned:
        """Forget ``deletion`` and everything asked for before; on any error nothing has changed.

        Threads wait for each other, since each request is solved together with all before it.
        """
        with self._turn, torch.inference_mode(False):  # some methods train, wherever they are called
            return self._delete(deletion)

    def _delete(self, deletion: Deletion) -> Unlearned:
        start = time.perf_counter()
        if not isinstance(deletion, Deletion):
            raise DeletionError(
                f"delete takes a Deletion (got '{type(deletion).__name__}'); write gnndelete.Deletion(edges=…)"
            )
        table = self._context.session.table
        data = self._context.data
        request = check_request(deletion, data, table, self.task)
        union = request
        if self._requests:
            earlier = self._earlier()
            union = (request.without(earlier) | earlier).check(data, table)
        context = self._context.for_deletion(union, request)
        if self.task is not None and isinstance(data, HeteroGraph):
            self.task.refuse_nothing_left(context.remaining, union.nodes)
        refuse_unfit(self.method, context)  # some methods fit only some kinds of deletion
        if self.method.keeps_model and (union.edges.size(1) or union.nodes.numel()):
            self._context.session.look()
        with PeakMemory(data.edge_index.device) as memory:
            try:
                outcome = self.method.unlearn(context)
            except (GNNDeleteError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # the user's own model: whatever it raises
                refuse_bound_to_its_edges(context, error)
                raise
            synchronize(data.edge_index.device)
        outcome = replace(outcome, notes=(*outcome.notes, *self._notes(union, context.remaining)))
        seconds = time.perf_counter() - start
        history = (*self._requests, request)
        unlearned = Unlearned.from_outcome(outcome, context, self.method, history, seconds, memory.peak_mb)
        self._requests.append(request)
        return unlearned

    def _notes(self, union: Deletion, remaining: Data) -> tuple[str, ...]:
        """What is to be said of the model and its graph, whatever the method."""
        model, data, forward = self._context.model, self._context.data, self._context.session.forward
        notes: tuple[str, ...] = ()
        if self.method.keeps_model and pools_deleted(model, remaining, union.nodes, forward):
            notes += (POOLS,)
        if union.edges.size(1) or union.nodes.numel() or union.features.size(1):
            notes += made_before(model, data, forward)
        if union.edges.size(1) or union.nodes.numel():
            notes += cut_too(data) if not isinstance(data, HeteroGraph) else ()
        if union.edges.size(1):
            notes += nearly_undirected(self._context.session.table, union.edges, union.nodes)
        return notes

    def _earlier(self) -> Deletion:
        """All that was asked for so far: what the requests joined last time have in common with these is not joined again."""
        known, joined = self._joined or (self._requests[:1], self._requests[0])
        if len(known) > len(self._requests) or any(map(is_not, known, self._requests)):
            known, joined = self._requests[:1], self._requests[0]
        joined = reduce(or_, self._requests[len(known) :], joined)
        self._joined = list(self._requests), joined
        return joined

    def save_state(self, path: str | PathLike[str]) -> None:
        """Write down what was deleted, to go on with the sequence after a restart. The file is **sensitive**: it names it."""
        state = {
            "warning": "SENSITIVE: this file lists what was deleted; keep it as safe as the data itself, or remove it",
            "format": _STATE,
            "base_fingerprint": self._context.session.base_fingerprint(),
            "graph_fingerprint": self._context.session.graph_fingerprint(),
            "graph_attributes": self._context.session.graph_attributes,
            "requests": [request.to_lists() for request in self._requests],
        }
        write(Path(path), (json.dumps(state) + "\n").encode(), private=True)

    def load_state(self, path: str | PathLike[str]) -> Unlearner:
        """Take up a sequence that `save_state` wrote; refused for another model or graph."""
        try:
            state = json.loads(Path(path).read_text())
            requests = [Deletion.from_lists(request) for request in state["requests"]]
            fingerprints = state["base_fingerprint"], state["graph_fingerprint"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AdapterError(
                f"no readable state at '{path}' ({why(error)}); give the file that save_state wrote"
            ) from error
        session = self._context.session
        for what, saved, own in zip(
            ("model", "graph"), fingerprints, (session.base_fingerprint(), session.graph_fingerprint()), strict=True
        ):
            if saved != own:
                raise AdapterError(
                    f"the state at '{path}' belongs to another {what} ({saved[:12]}, this one is {own[:12]})"
                )
        other = changed(state.get("graph_attributes"), session.graph_attributes)
        if other:
            raise AdapterError(f"the state at '{path}' belongs to a graph with other values of {other}; give that one")
        requests = [request.check(self._context.data, session.table) for request in requests]
        if self._requests != requests[: len(self._requests)]:
            raise AdapterError(
                f"this Unlearner has served requests that the state at '{path}' does not hold, and would forget that they were "
                "made; take it up in a new Unlearner"
            )
        if requests != self._requests:  # what a method keeps belongs to the sequence that it served
            self._context.memory.clear()
        self._requests = requests
        return self

    def current(self) -> Unlearned:
        """Solve all requests so far again, for example after `load_state`."""
        if not self._requests:
            raise RunError("nothing was deleted yet; call delete(Deletion(…)) first")
        with self._turn, torch.inference_mode(False):
            *earlier, last = self._requests
            self._requests = earlier
            try:
                return self._delete(last)
            except BaseException:
                self._requests = [*earlier, last]
                raise

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._turn = Lock()


def refuse_bound_to_its_edges(context: Context, error: Exception) -> None:
    """Say it where a model runs on the graph it was trained on and not on the remaining one: a parameter per edge, say."""
    model = working_copy(context.model)
    try:
        with evaluating(model):
            context.session.forward(model, context.data)
    except Exception:  # then it is not the deletion that is in its way
        return
    try:
        with evaluating(model):
            context.session.forward(model, context.remaining)
    except Exception as found:
        refuse_misnamed(context, model, error)
        raise ModelError(
            f"'{type(model).__name__}' runs on its graph and not on what remains of it ({type(found).__name__}: "
            f"{str(found).splitlines()[0] if str(found) else 'no message'}); where it keeps one entry per edge, let its forward "
            "take these from the graph instead, as an edge attribute"
        ) from error


def refuse_misnamed(context: Context, model: nn.Module, error: Exception) -> None:
    """Say it where an attribute of edges was taken for one of nodes, of which there are as many: the model runs with it cut."""
    data, table = context.data, context.session.table
    if isinstance(data, HeteroGraph) or table.num_nodes != data.edge_index.size(1):
        return
    kept = kept_edges(context.deletion, data, table)
    for name, value in data.items():
        if (
            not isinstance(value, Tensor)
            or not value.dim()
            or value.size(0) != table.num_nodes
            or data.is_edge_attr(name)
        ):
            continue
        other = context.remaining.__copy__()
        other[name] = value[kept]
        try:
            with evaluating(model):
                context.session.forward(model, other)
        except Exception:  # then it is another one
            continue
        raise ModelError(
            f"the graph has as many edges as nodes ({table.num_nodes}), and '{name}' was taken for an attribute of nodes; where "
            f"it is one of edges, rename it 'edge_{name}', in the model's forward too"
        ) from error


def refuse_unfit(method: Method, context: Context) -> None:
    """Say why a method does not fit, what to do about it, and which one would, before any work is done."""
    found = reasons(method, context)
    if found:
        other = nearest_fit(context)
        said = other is None or other == method.name or f"method='{other}'" in str(found[0])
        hint = "" if said else f" (or use method='{other}', which fits)"
        raise ModelError(f"method '{method.name}' does not fit: {found[0]}{hint}")
