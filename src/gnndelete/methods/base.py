"""The contract of a method: parameters in the constructor, a check of them, reasons why it does not fit, and unlearning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.engine.blocks import Block
from gnndelete.engine.local import Answers, BlockSession, Solved
from gnndelete.engine.session import Session
from gnndelete.errors import NotYetError, SettingError, UnfitError
from gnndelete.graph.deletion import NOTHING, Deletion
from gnndelete.graph.disk import DiskGraph
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import cut
from gnndelete.nn.adapter import Adapter
from gnndelete.notes import Note
from gnndelete.tasks import Task

Assurance = Literal["retrained", "exact", "certified", "approximate", "inference-only"]
Weights = Literal["base", "new"]
Fit = Callable[..., Any]  # (model, graph, seed): the trained model, or nothing where it was trained in place


@dataclass(frozen=True)
class Reason:
    """Why a method does not fit.

    Args:
        why: What does not fit.
        remedy: What the user can do about it.

    >>> str(Reason("the model has no graph layers", "use retrain"))
    'the model has no graph layers; use retrain'
    """

    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.why}; {self.remedy}"


@dataclass(frozen=True)
class Context:
    """Everything a method may need. Without a deletion it only serves to ask whether the method fits.

    Args:
        session: The model, the graph, and what is computed once for both.
        task: What the model was trained for.
        deletion: All requests so far, checked against the graph.
        request: The newest request alone.
        memory: What methods remember from one request to the next.
        fit: The user's training function.
        build: The user's function that makes an untrained model.
        seed: Seed of everything random.
        progress: Whether to show progress.
        earlier: What is gone already, where the request is solved on top of earlier ones.
        block: The part of the graph that the request is served on; None for the whole graph.
    """

    session: Session
    task: Task | None = None
    deletion: Deletion = NOTHING
    request: Deletion = NOTHING
    memory: dict[str, Any] = field(default_factory=dict)
    fit: Fit | None = None
    build: Callable[[], nn.Module] | None = None
    seed: int = 0
    progress: bool = False
    earlier: Deletion = NOTHING
    block: Block | None = None

    @property
    def model(self) -> nn.Module:
        """The user's model: read it, copy it, never change it."""
        return self.session.model

    @property
    def data(self) -> Data:
        """The graph the model was trained on: read-only."""
        return self.session.data

    @cached_property
    def remaining(self) -> Data:
        """The graph without the deletion. It is cut when it is first asked for: a request on a block does without."""
        if isinstance(self.data, DiskGraph):
            raise NotYetError(
                "the remaining graph of a DiskGraph cannot be made, and this asks for all of it",
                "ask for rows with predict, or give a graph that fits into memory",
            )
        gone = self.deletion if self.earlier is NOTHING else self.deletion | self.earlier
        return cut(gone, self.data, self.session.table)

    @cached_property
    def near(self) -> Context:
        """Where the layers run: the block as a graph of its own, or the whole graph where there is none."""
        if self.block is None or self.session.blocks is None:
            return self
        session = BlockSession(self.session.blocks, self.block)
        deletion, request = self.block.deletion(self.deletion), self.block.deletion(self.request)
        return replace(self, session=session, deletion=deletion, request=request, earlier=NOTHING, block=None)

    @cached_property
    def gone(self) -> Tensor:
        """The deleted nodes, on the device of the graph."""
        return self.deletion.nodes.to(self.data.edge_index.device)

    @property
    def remaining_task(self) -> Task | None:
        """The task without validation and test elements that name deleted nodes."""
        return None if self.task is None else self.task.without(self.deletion.nodes)

    def for_deletion(self, deletion: Deletion, request: Deletion | None = None) -> Context:
        """Return the context of one request.

        Args:
            deletion: Everything that is deleted so far, checked against the graph.
            request: The newest request alone. The default is ``deletion``.
        """
        return replace(self, deletion=deletion, request=deletion if request is None else request)


@dataclass(frozen=True)
class Outcome:
    """What a method returns: the changed model, or a way to predict without it.

    Args:
        model: A changed copy of the user's model; None where the method answers with models of its own.
        parameters: Number of parameters that this deletion trained or solved for.
        adapter: The operators of the model, where they can be saved apart from it.
        predict: Logits of edges, or class probabilities of nodes; needed without a model.
        assurance: The level that this deletion reached, where it differs from the usual one of the method.
        notes: What the user must know about the result.
        details: Measured values by name.
        answers: The rows of the result, where it was solved on a block: then ``model`` is None, and made when asked for.
        operators: The operators of such a result, in the order in which they act.
    """

    model: nn.Module | None
    parameters: int
    adapter: Adapter | None = None
    predict: Callable[[Any], Tensor] | None = None
    assurance: Assurance | None = None
    notes: tuple[Note, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    answers: Answers | None = None
    operators: Solved = field(default_factory=list)


class Method(ABC):
    """A way of unlearning. The constructor of a subclass only stores its parameters, by their names.

    Attributes:
        name: The name by which the method can be chosen.
        assurance: The level that the method usually reaches.
        weights: ``"new"`` where the weights of a result never held what was deleted, ``"base"`` where they come from the
            trained model.
        needs: What it needs besides the model and the graph.
        summary: What it does, in a few words.
        node_types: Whether it serves a graph with several node types (HeteroData).
        presets: Names of class methods that make it with other settings, such as ``GNNDelete.paper``.
        keeps_model: False where it answers through `Outcome.predict` with models of its own.
    """

    name: ClassVar[str]
    assurance: ClassVar[Assurance]
    weights: ClassVar[Weights] = "base"
    needs: ClassVar[Literal["nothing", "a loss", "a training function"]] = "nothing"
    summary: ClassVar[str] = ""
    node_types: ClassVar[bool] = False
    presets: ClassVar[tuple[str, ...]] = ()
    keeps_model: ClassVar[bool] = True

    def check(self) -> None:
        """Check the parameters. Constructors only store them; `Unlearner` calls this before any work.

        Raises:
            SettingError: If a parameter has a value that is not allowed.
        """
        return None

    def unfit(self, context: Context) -> list[Reason]:
        """Return why this method cannot serve this model, graph and task; an empty list where it can.

        Args:
            context: Model, graph, task and, once there is one, the deletion.
        """
        return []

    @abstractmethod
    def unlearn(self, context: Context) -> Outcome:
        """Forget ``context.deletion``. The model and the data of the user must not change.

        Args:
            context: Model, graph, task and deletion.
        """

    def prepare(self, context: Context) -> None:
        """Compute what later requests can start from; `Unlearner.prepare` calls this once.

        Args:
            context: Model, graph and task.
        """
        return None

    def runs_on_block(self, context: Context) -> bool:
        """Return whether this request can be solved on a block of the graph, `Context.near`, instead of the whole graph.

        Args:
            context: Model, graph, task and deletion.
        """
        return False

    def same_step(self, context: Context, details: Mapping[str, Any]) -> nn.Module | None:
        """Make the step of a result once more from the model of another context, to see what the old model passed on.

        Args:
            context: The same request on another model, such as a retrained one.
            details: What the result found on the way: ``Outcome.details``.

        Returns:
            The new model; None for a method that has no such step.
        """
        return None

    def settings(self) -> dict[str, Any]:
        """The parameters by name: ``type(method)(**method.settings())`` is the same method.

        Returns:
            Plain values; functions and classes that were given are there as they are. `plain` makes them writable.
        """
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in plain(self.settings()).items())})"


def reasons(method: Method, context: Context) -> list[Reason]:
    """Return why a method cannot serve this model, graph and task; an empty list where it can.

    Args:
        method: The method. Its parameters are checked first.
        context: Model, graph, task and, once there is one, the deletion.

    Raises:
        SettingError: If a parameter of the method has a value that is not allowed.
    """
    method.check()
    if isinstance(context.data, HeteroGraph) and not method.node_types:
        why = (
            f"'{method.name}' works on one table of nodes, and the graph has {len(context.data.types.nodes)} node types"
        )
        return [Reason(why, "use gnndelete, retrain or unlink")]
    return method.unfit(context)


def require_fit(method: Method, context: Context) -> None:
    """Refuse a method that does not fit, before any work is done.

    With a deletion, also refuse one that leaves nothing for the task, and a model that does not read the edges that are cut.

    Args:
        method: The method to be used.
        context: The model, graph and task, and the deletion if there is one already.

    Raises:
        UnfitError: With the first reason, what to do about it, and a method that fits.
        DeletionError: If nothing is left that the task is about.
        ModelError: If the model does not read the edges of the graph, or gives no rows.
    """
    deletion = context.deletion
    cuts_edges = bool(deletion.edges.size(1) or deletion.nodes.numel())
    if cuts_edges and context.task is not None and isinstance(context.data, HeteroGraph) and context.block is None:
        context.task.refuse_nothing_left(context.remaining, deletion.nodes)
    found = reasons(method, context)
    if found:
        from gnndelete.methods import nearest_fit  # the list of methods imports this module

        other = nearest_fit(context)
        hint = "" if other in (None, method.name) else f" (method='{other}' fits)"
        raise UnfitError(f"method '{method.name}' does not fit: {found[0].why}", f"{found[0].remedy}{hint}")
    if cuts_edges and method.keeps_model:
        context.session.require_reading_edges()
    elif len(deletion) and method.keeps_model:
        context.session.require_rows()


def check_numbers(method: Method, positive: tuple[str, ...] = (), whole: tuple[str, ...] = ()) -> None:
    """Refuse parameters of a method that are not positive numbers, or not whole numbers of at least 1."""
    for name in positive:
        value = getattr(method, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise SettingError(f"'{name}' must be a positive number (got {value!r})")
    for name in whole:
        value = getattr(method, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SettingError(f"'{name}' must be a whole number of at least 1 (got {value!r})")


def plain(value: Any) -> Any:
    """A setting as a value that can be written down; a function by its name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return getattr(value, "__qualname__", type(value).__name__)


def synchronize(device: torch.device) -> None:
    """Wait for an accelerator, so that a clock read next measures finished work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
