"""One training loop for every task and model."""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.errors import ModelError, RunError, SettingError
from gnndelete.graph.batch import GraphBatch, collate
from gnndelete.graph.hetero import seen
from gnndelete.graph.validation import check_finite, check_graph
from gnndelete.io.progress import bar
from gnndelete.nn.forward import Forward, as_seen, call, evaluating, kept_graph
from gnndelete.nn.reset import lazy, seeded
from gnndelete.registry import by_name
from gnndelete.tasks import Task, resolver
from gnndelete.training.minibatches import Neighborhoods


@dataclass(frozen=True)
class TrainingResult:
    """What a training run did. Without validation data nothing is selected: ``best_*`` are ``None``."""

    best_score: float | None
    best_epoch: int | None
    epochs_run: int
    seconds: float
    seed: int


@dataclass(frozen=True)
class Fitting:
    """The user's ``fit(model, data, seed)``, called with the graph as the user knows it; gives the trained model back.

    A function that trains in place may return nothing, or what `train` returns.
    """

    function: Callable[[nn.Module, Any, int], Any]

    def __call__(self, model: nn.Module, data: Any, seed: int) -> nn.Module:
        result = self.function(model, seen(data), seed)
        if result is None or isinstance(result, TrainingResult):
            return model
        if not isinstance(result, nn.Module):
            raise ModelError(
                f"fit(model, data, seed) returned a '{type(result).__name__}'; return the trained model, or nothing where it "
                "was trained in place"
            )
        return result


def as_fitting(fit: Any) -> Fitting | None:
    """The user's ``fit``, after making sure that it takes a model, a graph and a seed; None stays None."""
    if fit is None or isinstance(fit, Fitting):
        return fit
    try:
        inspect.signature(fit).bind(None, None, None)
    except TypeError:
        raise SettingError(
            f"'fit' is called as fit(model, data, seed), and {getattr(fit, '__name__', fit)!r} does not take these three; "
            "write fit=lambda model, data, seed: …"
        ) from None
    except ValueError:  # a function that does not tell its arguments
        pass
    return Fitting(fit)


def train(
    model: nn.Module,
    data: Any,
    task: Task | str,
    *,
    epochs: int = 1000,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    patience: int | None = None,
    validate_every: int = 10,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: bool = False,
    forward: Forward | None = None,
    batch_size: int | None = None,
    num_neighbors: int | list[int] | None = None,
) -> TrainingResult:
    """Train ``model`` in place with Adam and leave it with the weights of its best validation score.

    ``patience`` stops after that many epochs without a better score. ``device`` is where to train: ``None`` stays where
    the model is, ``"auto"`` takes an accelerator if there is one. The global random state is left as it was, and so is
    ``data``. ``batch_size`` is the number of graphs per step where ``data`` is a set of graphs. On one graph it is the
    number of true links (or training nodes) per step: each step sees them in a neighbourhood sampled around them, with up
    to ``num_neighbors`` (10; -1: all) of each node at every hop, or a list with one number per hop. Validation then still
    runs the whole graph, without gradients, and by such batches where an accelerator has no room for that.

    >>> from gnndelete.datasets import load, split_nodes
    >>> from gnndelete.models import build
    >>> data = split_nodes(load("digits"))
    >>> train(build("gcn", data.num_features, out=10), data, "node", epochs=20).epochs_run
    20
    """
    whole = {"epochs": (epochs, 0), "validate_every": (validate_every, 1), "patience": (patience, 1)}
    for name, (value, least) in (whole | {"batch_size": (batch_size, 1)}).items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < least):
            raise SettingError(f"'{name}' must be a whole number of at least {least} (got {value!r})")
    for name, rate in (("lr", lr), ("weight_decay", weight_decay)):
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate < math.inf:
            raise SettingError(f"'{name}' must be a number of at least 0 (got {rate!r})")
    known: Task = by_name("task", task, resolver)
    graph = collate(data)
    if not isinstance(graph, Data):
        check_graph(graph)
    forward = as_seen(forward) or call
    where = _device(device, model)
    model.to(where)
    data = copy.copy(graph).to(where)
    task = known.on(data)
    task.check(data)
    _refuse_apart(task.outside_weights(model), model)
    selects = task.validates(data)
    scored = task.validation_view(data) if selects else data
    for module in model.modules():  # what a layer keeps (cached=True) may be another graph's
        for name in kept_graph(module) or ():
            setattr(module, name, None)
    started = time.perf_counter()
    parts = _parts(model, data, forward, batch_size, num_neighbors, seed, task)
    best_score: float | None = None
    best_epoch: int | None = None
    best_state: dict[str, Any] | None = None
    epoch = 0
    flags = {module: module.training for module in model.modules()}
    generator = torch.Generator(device=where).manual_seed(seed)
    try:
        with seeded(seed, where), torch.enable_grad(), bar("training", epochs, progress) as advance:
            optimizer = torch.optim.Adam(_parameters(model, data, forward), lr=lr, weight_decay=weight_decay)
            for epoch in range(1, epochs + 1):
                model.train()
                for batch in task.batches(data, batch_size, generator, *([] if parts is None else [parts.around])):
                    optimizer.zero_grad()
                    loss = task.loss(model, forward(model, batch), batch, generator)
                    loss.backward()
                    optimizer.step()
                if epoch % validate_every and epoch != epochs:
                    advance(epoch, _said(best_score))
                    continue
                if not bool(torch.isfinite(loss)):
                    check_finite(data)  # no rate of learning helps against data that are no numbers
                    raise RunError(f"the loss became {loss.item()} by epoch {epoch}; lower 'lr' (now {lr})")
                if selects:
                    with evaluating(model):
                        if parts is not None and batch_size is not None:
                            score = parts.validate(model, task, scored, batch_size)
                        else:
                            score = task.validate(model, forward(model, scored), scored)
                    if best_score is None or score > best_score:
                        best_score, best_epoch, best_state = score, epoch, copy.deepcopy(model.state_dict())
                advance(epoch, _said(best_score))
                if patience is not None and best_epoch is not None and epoch - best_epoch >= patience:
                    break
    finally:
        # Also after an interrupt: the caller's model holds the best weights so far.
        if best_state is not None:
            model.load_state_dict(best_state)
        for parameter in model.parameters():
            parameter.grad = None
        for module, training in flags.items():
            module.training = training
    if where.type != "cpu":
        torch.accelerator.synchronize(where)
    return TrainingResult(best_score, best_epoch, epoch, time.perf_counter() - started, seed)


def _refuse_apart(other: nn.Module | None, model: nn.Module) -> None:
    """Refuse weights that are to be learned and that the optimizer of the model would never see."""
    if other is not None and any(weight.requires_grad for weight in other.parameters()):
        raise ModelError(
            f"the decoder '{type(other).__name__}' has weights and is no part of '{type(model).__name__}', so that training "
            "would leave them as they are; make it a submodule of the model and name it (decoder='…'), or freeze it with "
            "requires_grad_(False)"
        )


def _parts(
    model: nn.Module,
    data: Any,
    forward: Forward,
    batch_size: int | None,
    num_neighbors: int | list[int] | None,
    seed: int,
    task: Task,
) -> Neighborhoods | None:
    """What batches of one graph are drawn from; None where it is trained on as a whole, or is a set of graphs."""
    if batch_size is None or isinstance(data, GraphBatch):
        if num_neighbors is not None:
            raise SettingError(
                f"'num_neighbors' belongs to batches of one graph (got {num_neighbors!r}); give 'batch_size' too, or leave it out"
            )
        return None
    return Neighborhoods(model, data, forward, num_neighbors, seed, task)


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
            forward(model, data)  # lazy layers learn their widths from a first pass
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ModelError(f"'{type(model).__name__}' has no parameter that requires a gradient; nothing can be trained")
    return trainable


def _said(score: float | None) -> str:
    return "training" if score is None else f"training (validation {score:.3f})"
