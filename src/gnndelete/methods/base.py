"""The contract of a method: parameters in the constructor, reasons why it does not fit, and the unlearning itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.engine.session import Session
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.remaining import cut
from gnndelete.nn.adapter import Adapter
from gnndelete.notes import Note
from gnndelete.tasks import Task

Assurance = Literal["retrained", "exact", "certified", "approximate", "inference-only"]
Fit = Callable[[nn.Module, Data, int], Any]  # the trained model, or nothing where it was trained in place


@dataclass(frozen=True)
class Reason:
    """Why a method does not fit, and what the user can do about it."""

    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.why}; {self.remedy}"


@dataclass(frozen=True)
class Context:
    """Everything a method may need; without a ``deletion`` it only serves to ask whether the method fits."""

    session: Session
    task: Task | None = None
    deletion: Deletion = field(default_factory=Deletion)  # all requests so far, checked on the graph
    request: Deletion = field(default_factory=Deletion)  # the newest of them alone
    memory: dict[str, Any] = field(default_factory=dict)  # what a method keeps from one request to the next
    fit: Fit | None = None
    build: Callable[[], nn.Module] | None = None
    seed: int = 0
    progress: bool = False
    remaining: Data = None  # type: ignore[assignment]  # the graph without the deletion; `for_deletion` sets it

    @property
    def model(self) -> nn.Module:
        """The user's model: read it, copy it, never change it."""
        return self.session.model

    @property
    def data(self) -> Data:
        """The graph the model was trained on: read-only."""
        return self.session.data

    @cached_property
    def gone(self) -> Tensor:
        """The deleted nodes, on the device of the graph: many ask for them, and mostly there are none."""
        return self.deletion.nodes.to(self.data.edge_index.device)

    @property
    def remaining_task(self) -> Task | None:
        """The task without unseen data that names deleted nodes."""
        return None if self.task is None else self.task.without(self.deletion.nodes)

    def for_deletion(
        self, deletion: Deletion, request: Deletion | None = None, remaining: Data | None = None
    ) -> Context:
        """Return the context of one request.

        Args:
            deletion: Everything that is deleted so far, checked against the graph.
            request: The newest request alone. The default is ``deletion``.
            remaining: The graph without the deletion. The default is to cut it here.
        """
        if remaining is None:
            remaining = cut(deletion, self.data, self.session.table)
        return replace(self, deletion=deletion, request=request or deletion, remaining=remaining)


@dataclass(frozen=True)
class Outcome:
    """What a method hands back: the user's model, changed, or a way to predict with a model of the method's own."""

    model: nn.Module | None
    parameters: int  # trained or solved for by this deletion
    adapter: Adapter | None = None
    predict: Callable[[Any], Tensor] | None = (
        None  # scores of edges, class probabilities of nodes; needed without a model
    )
    assurance: Assurance | None = None  # where this deletion reached another level than the method's usual one
    notes: tuple[Note, ...] = ()  # a method may still hand over plain strings
    details: dict[str, Any] = field(default_factory=dict)


class Method(ABC):
    """A way of unlearning. Subclasses store their parameters and are cheap to make."""

    name: ClassVar[str]
    assurance: ClassVar[Assurance]
    needs: ClassVar[Literal["nothing", "a loss", "a training function"]] = "nothing"
    summary: ClassVar[str] = ""
    node_types: ClassVar[bool] = False  # whether it serves a graph with several node types (HeteroData)
    presets: ClassVar[tuple[str, ...]] = ()  # class methods that make it with other settings, such as GNNDelete.paper
    keeps_model: ClassVar[bool] = True  # False where it answers through `predict` with a model of its own

    def check(self) -> None:
        """Check the parameters. Constructors only store them; `Unlearner` calls this before any work.

        Raises:
            SettingError: If a parameter has a value that is not allowed.
        """
        return None

    def unfit(self, context: Context) -> list[Reason]:
        """Why this method cannot serve this model, graph and task; an empty list where it can."""
        return []

    @abstractmethod
    def unlearn(self, context: Context) -> Outcome:
        """Forget ``context.deletion``; model and data of the user stay untouched."""

    def settings(self) -> dict[str, Any]:
        """The parameters by name, as plain values that can be written down."""
        return {name: plain(value) for name, value in vars(self).items() if not name.startswith("_")}

    def rule(self, task: str, vectors: bool = False) -> int:
        """Which version of what it decides by itself; goes up when the same settings give other numbers for this task.

        ``vectors``: whether the model has trained vectors of nodes.
        """
        return 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"


def reasons(method: Method, context: Context) -> list[Reason]:
    """Why a method cannot serve this model, graph and task; its own parameters are checked first."""
    method.check()
    if isinstance(context.data, HeteroGraph) and not method.node_types:
        why = (
            f"'{method.name}' works on one table of nodes, and the graph has {len(context.data.types.nodes)} node types"
        )
        return [Reason(why, "use gnndelete, retrain or unlink")]
    return method.unfit(context)


def plain(value: Any) -> Any:
    """A setting as a value that can be written down; a function by its name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return getattr(value, "__qualname__", type(value).__name__)


def synchronize(device: torch.device) -> None:
    """Wait for an accelerator, so that a clock read next measures finished work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
