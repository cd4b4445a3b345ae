"""One training loop for every task and model."""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import ModelError, RunError, SettingError
from gnndelete.graph.batch import GraphBatch, as_user_graph, collate
from gnndelete.graph.validation import check_finite, check_graph
from gnndelete.io.progress import bar
from gnndelete.nn.forward import Forward, evaluating, kept_graph, resolve_forward
from gnndelete.nn.reset import lazy, seeded
from gnndelete.registry import by_name
from gnndelete.tasks import Task, resolver
from gnndelete.training.minibatches import Neighborhoods


@dataclass(frozen=True)
class TrainingResult:
    """What a training run did.

    Args:
        best_score: The best validation score; None without validation data.
        best_epoch: The epoch of that score, whose weights the model has now; None without validation data.
        epochs_run: Number of epochs that were run.
        seconds: How long they took.
        seed: The seed of the run.
    """

    best_score: float | None
    best_epoch: int | None
    epochs_run: int
    seconds: float
    seed: int


#: Gives the factor of the learning rate in each epoch, counted from 0, as torch's ``LambdaLR`` takes it.
Schedule = Callable[[int], float]

#: Gives a number to add to the loss, from the model, what it returned, and the graph or batch that it ran on.
ExtraLoss = Callable[[nn.Module, Any, Any], Tensor]

#: The keyword arguments that a ``fit`` may take, for methods that train it for fewer epochs than usual.
COURSE = ("epochs", "schedule", "extra_loss")


@dataclass(frozen=True)
class Fitting:
    """The user's ``fit(model, data, seed)``, called with the user's kind of graph; returns the trained model.

    A function that trains in place may return nothing, or what `train` returns. One that takes the keyword arguments `COURSE`
    can also train for another number of epochs, with factors of its learning rate and with an addition to its loss.
    """

    function: Callable[..., Any]

    def __call__(self, model: nn.Module, data: Any, seed: int, **course: Any) -> nn.Module:
        result = self.function(model, as_user_graph(data), seed, **course)
        if result is None or isinstance(result, TrainingResult):
            return model
        if not isinstance(result, nn.Module):
            raise ModelError(
                f"fit(model, data, seed) returned a '{type(result).__name__}'; return the trained model, or nothing where it "
                "was trained in place"
            )
        return result


def as_fitting(fit: Any) -> Fitting:
    """The user's ``fit``, after checking that it takes a model, a graph and a seed."""
    if isinstance(fit, Fitting):
        return fit
    try:
        inspect.signature(fit).bind(None, None, None)
    except TypeError:
        raise SettingError(
            f"'fit' is called as fit(model, data, seed), and {getattr(fit, '__name__', fit)!r} does not take these three; "
            "write fit=lambda model, data, seed: …"
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return Fitting(fit)


def takes_course(fit: Callable[..., Any]) -> frozenset[str]:
    """Which keyword arguments of `COURSE` a training function takes.

    >>> sorted(takes_course(lambda model, data, seed, epochs=200, extra_loss=None: model))
    ['epochs', 'extra_loss']
    """
    try:
        parameters = inspect.signature(_function(fit)).parameters
    except ValueError:  # a builtin without a signature
        return frozenset()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return frozenset(COURSE)
    return frozenset(COURSE) & parameters.keys()


def usual_epochs(fit: Callable[..., Any]) -> int | None:
    """The epochs that a training function trains where it is not asked for another number; None where it does not say.

    >>> usual_epochs(lambda model, data, seed, epochs=200: model)
    200
    """
    function = _function(fit)
    if isinstance(function, LoopFit):
        return int(function.options.get("epochs", DEFAULT_EPOCHS))
    parameter = inspect.signature(function).parameters.get("epochs") if takes_course(fit) else None
    given = None if parameter is None else parameter.default
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def usual_rate(fit: Callable[..., Any]) -> float | None:
    """The learning rate of a training function; None where it does not say.

    >>> usual_rate(LoopFit("node", {"lr": 0.01})), usual_rate(lambda model, data, seed: model)
    (0.01, None)
    """
    function = _function(fit)
    return float(function.options.get("lr", DEFAULT_RATE)) if isinstance(function, LoopFit) else None


def _function(fit: Callable[..., Any]) -> Callable[..., Any]:
    return fit.function if isinstance(fit, Fitting) else fit


#: Epochs and learning rate of `train` where none are given.
DEFAULT_EPOCHS, DEFAULT_RATE = 1000, 1e-3


@dataclass(frozen=True)
class LoopFit:
    """The built-in loop as a ``fit``.

    Args:
        task: What the model is trained for.
        options: Further arguments of `train`: epochs, learning rate and so on.

    >>> usual_epochs(LoopFit("node", {"epochs": 50}))
    50
    """

    task: Task | str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        model: nn.Module,
        data: Any,
        seed: int,
        epochs: int | None = None,
        schedule: Schedule | None = None,
        extra_loss: ExtraLoss | None = None,
    ) -> TrainingResult:
        """Train by the options; a given number of epochs is trained to its end, whose weights are kept."""
        short = {} if epochs is None else {"epochs": epochs, "validate_every": max(epochs, 1), "patience": None}
        options = {**self.options, **short, "schedule": schedule, "extra_loss": extra_loss, "seed": seed}
        return train(model, data, self.task, **options)


def one_cycle(epochs: int, peak: float = 1.0, warmup: int = 2) -> Schedule:
    """A rise over a few epochs to ``peak`` times the learning rate, and a straight fall to almost nothing.

    Args:
        epochs: Length of the training.
        peak: The largest factor.
        warmup: Epochs before it is reached.

    >>> [round(one_cycle(6, peak=8)(epoch), 1) for epoch in range(6)]
    [2.7, 5.3, 8.0, 6.0, 4.0, 2.0]
    """
    rise = min(warmup, epochs // 2)

    def factor(epoch: int) -> float:
        if epoch < rise:
            return peak * (epoch + 1) / (rise + 1)
        return peak * max(epochs - epoch, 0) / (epochs - rise)

    return factor


def train(
    model: nn.Module,
    data: Any,
    task: Task | str,
    *,
    epochs: int = DEFAULT_EPOCHS,
    lr: float = DEFAULT_RATE,
    weight_decay: float = 0.0,
    patience: int | None = None,
    validate_every: int = 10,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool = False,
    forward: Forward | None = None,
    batch_size: int | None = None,
    num_neighbors: int | list[int] | None = None,
    schedule: Schedule | None = None,
    extra_loss: ExtraLoss | None = None,
) -> TrainingResult:
    """Train a model in place with Adam and leave it with the weights of its best validation score.

    The graph and the global random state are not changed.

    Args:
        model: Any model; it is changed.
        data: A graph, or a list of graphs.
        task: A task, or its name: ``"link"``, ``"node"`` or ``"graph"``.
        epochs: Passes over the training data.
        lr: Learning rate.
        weight_decay: Weight decay of Adam.
        patience: Stop after this many epochs without a better validation score; None trains to the end.
        validate_every: Epochs between two validations.
        seed: Seed of dropout, batches and non-edges.
        device: Where to train. None stays where the model is, ``"auto"`` takes an accelerator if there is one.
        progress: Show a progress bar.
        forward: How to call the model, ``forward(model, data)``; by default the arguments of its ``forward`` are taken from
            the attributes of the graph with the same names.
        batch_size: Elements per step: graphs of a list of graphs, true links or training nodes of one graph. Each step of
            one graph runs on a neighbourhood sampled around them. Validation still runs the whole graph, and batches only
            where an accelerator has no room for that. None trains on everything at once.
        num_neighbors: Neighbours of a node that are sampled at every hop (10 by default, -1 for all), or a list with one
            number per hop.
        schedule: Gives a factor of ``lr`` for each epoch, counted from 0; such as `one_cycle`. The default keeps ``lr``.
        extra_loss: ``extra_loss(model, output, batch)`` gives a number to add to the loss of each step.

    Returns:
        The best validation score, its epoch, and how long training took.

    Raises:
        SettingError: If an option has a value that is not allowed.
        GraphError: If the graph lacks what the task needs.
        ModelError: If the model does not fit the task, or cannot be trained in batches.
        RunError: If the loss becomes NaN or infinite.

    >>> from gnndelete.datasets import load, split_nodes
    >>> from gnndelete.models import build
    >>> data = split_nodes(load("digits"))
    >>> train(build("gcn", data.num_features, out=10), data, "node", epochs=20).epochs_run
    20
    """
    _check_options(epochs, validate_every, patience, batch_size, lr, weight_decay)
    forward = resolve_forward(forward)
    known: Task = by_name("task", task, resolver)
    where = _device(device, model)
    graph, task = _prepare(model, data, known, where)
    started = time.perf_counter()
    parts = _neighborhoods(model, graph, forward, batch_size, num_neighbors, seed)
    best = _Best(model, task, graph, forward, parts, batch_size)
    generator = torch.Generator(device=where).manual_seed(seed)
    near = () if parts is None else (parts.around,)
    epoch = 0
    with _restored(model, best), seeded(seed, where), torch.enable_grad(), bar("training", epochs, progress) as advance:
        optimizer = torch.optim.Adam(_parameters(model, graph, forward), lr=lr, weight_decay=weight_decay)
        for epoch in range(1, epochs + 1):
            model.train()
            if schedule is not None:
                optimizer.param_groups[0]["lr"] = lr * schedule(epoch - 1)
            for batch in task.batches(graph, batch_size, generator, *near):
                optimizer.zero_grad()
                output = forward(model, batch)
                loss = task.loss(model, output, batch, generator)
                if extra_loss is not None:
                    loss = loss + extra_loss(model, output, batch)
                loss.backward()
                optimizer.step()
            if epoch % validate_every == 0 or epoch == epochs:
                if not bool(torch.isfinite(loss)):
                    check_finite(graph)  # reports data that are not finite, which no learning rate helps against
                    raise RunError(f"the loss became {loss.item()} by epoch {epoch}; lower 'lr' (now {lr})")
                best.update(epoch)
                if patience is not None and best.epoch is not None and epoch - best.epoch >= patience:
                    advance(epoch, best.title)
                    break
            advance(epoch, best.title)
    if where.type != "cpu":
        torch.accelerator.synchronize(where)
    return TrainingResult(best.score, best.epoch, epoch, time.perf_counter() - started, seed)


def _check_options(
    epochs: int, validate_every: int, patience: int | None, batch_size: int | None, lr: float, weight_decay: float
) -> None:
    counts = {"epochs": (epochs, 0), "validate_every": (validate_every, 1)}
    optional = {"patience": (patience, 1), "batch_size": (batch_size, 1)}
    counts |= {name: (value, least) for name, (value, least) in optional.items() if value is not None}
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise SettingError(f"'{name}' must be a whole number of at least {least} (got {value!r})")
    for name, rate in (("lr", lr), ("weight_decay", weight_decay)):
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate < math.inf:
            raise SettingError(f"'{name}' must be a number of at least 0 (got {rate!r})")


def _prepare(model: nn.Module, data: Any, task: Task, device: torch.device) -> tuple[Any, Task]:
    """Move model and graph to the device, check both against the task, and clear what layers cache of another graph."""
    graph = collate(data)
    if not isinstance(graph, Data):
        check_graph(graph)
    model.to(device)
    graph = copy.copy(graph).to(device)
    task = task.on(graph)
    task.check(graph)
    decoder = task.outside_weights(model)
    if decoder is not None and any(weight.requires_grad for weight in decoder.parameters()):
        raise ModelError(
            f"the decoder '{type(decoder).__name__}' has weights and is no part of '{type(model).__name__}', so that training "
            "would leave them as they are; make it a submodule of the model and name it (decoder='…'), or freeze it with "
            "requires_grad_(False)"
        )
    for module in model.modules():
        for name in kept_graph(module) or ():
            setattr(module, name, None)
    return graph, task


class _Best:
    """The best weights so far, by the score on validation data; without such data there are none."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        data: Any,
        forward: Forward,
        parts: Neighborhoods | None,
        batch_size: int | None,
    ) -> None:
        self.model, self.task, self.forward, self.parts, self.batch_size = model, task, forward, parts, batch_size
        self.data = task.validation_view(data) if task.validates(data) else None
        self.score: float | None = None
        self.epoch: int | None = None
        self.state: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        """What the progress bar shows."""
        return "training" if self.score is None else f"training (validation {self.score:.3f})"

    def update(self, epoch: int) -> None:
        """Validate, and remember the weights where they are better than all before."""
        if self.data is None:
            return
        with evaluating(self.model):
            if self.parts is not None and self.batch_size is not None:
                score = self.parts.validate(self.model, self.task, self.data, self.batch_size)
            else:
                score = self.task.validate(self.model, self.forward(self.model, self.data), self.data)
        if self.score is None or score > self.score:
            self.score, self.epoch, self.state = score, epoch, copy.deepcopy(self.model.state_dict())


@contextmanager
def _restored(model: nn.Module, best: _Best) -> Iterator[None]:
    """At the end, also after an interrupt, the model has its best weights, no gradients and its old training flags."""
    flags = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        if best.state is not None:
            model.load_state_dict(best.state)
        for parameter in model.parameters():
            parameter.grad = None
        for module, training in flags.items():
            module.training = training


def _neighborhoods(
    model: nn.Module,
    data: Any,
    forward: Forward,
    batch_size: int | None,
    num_neighbors: int | list[int] | None,
    seed: int,
) -> Neighborhoods | None:
    """The sampler of batches of one graph; None where it is trained on as a whole, or is a set of graphs."""
    if batch_size is None or isinstance(data, GraphBatch):
        if num_neighbors is not None:
            raise SettingError(
                f"'num_neighbors' belongs to batches of one graph (got {num_neighbors!r}); give 'batch_size' too, or leave it out"
            )
        return None
    return Neighborhoods(model, data, forward, num_neighbors, seed)


def _device(device: str | torch.device | None, model: nn.Module) -> torch.device:
    if device is None:
        first = next(model.parameters(), None)
        return torch.empty(0).device if first is None else first.device
    if device == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        return torch.device(device)
    except RuntimeError:
        raise SettingError(f"'device' must be 'auto' or a device of torch such as 'cpu' (got '{device}')") from None


def _parameters(model: nn.Module, data: Any, forward: Forward) -> list[nn.Parameter]:
    if any(lazy(parameter) for parameter in model.parameters()):
        with evaluating(model):
            forward(model, data)  # lazy layers get their widths from a first pass
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ModelError(f"'{type(model).__name__}' has no parameter that requires a gradient; nothing can be trained")
    return trainable


def find_device(name: str, setting: str) -> torch.device:
    """A device by its name, refused where this machine has none; ``setting`` is the option that named it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return accelerator or torch.device("cpu")
    try:
        chosen = torch.device(name)
    except RuntimeError:
        raise SettingError(f"'{setting}' must be auto, cpu or cuda (got '{name}')") from None
    if chosen.type == "cpu":
        return chosen
    same = accelerator is not None and chosen.type == accelerator.type
    if not same or (chosen.index or 0) >= torch.accelerator.device_count():
        raise SettingError(f"'{setting}' is '{name}', and torch finds no such device here; use auto or cpu")
    return chosen
