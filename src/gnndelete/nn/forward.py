"""Calling the user's model on a graph, also where torch has wrapped it (``torch.compile``, ``DataParallel``)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.errors import ModelError, some
from gnndelete.graph.batch import as_user_graph

Forward = Callable[[nn.Module, Any], Any]

#: What ``DataParallel`` and ``torch.compile`` put before the names of the model inside.
WRAPPERS = ("module.", "_orig_mod.")

#: Names of a first argument that takes the whole graph.
_GRAPH_NAMES = ("data", "batch", "graph", "g")

#: Attributes that models compute with, so that their type has to be that of the weights.
_COMPUTED_WITH = ("x", "edge_attr", "edge_weight")

#: Arguments without names.
_HIDDEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

#: Attributes of edges that a model may take besides ``edge_index``.
_OF_EDGES = ("edge_weight", "edge_attr", "edge_type")


def call(model: nn.Module, data: Any) -> Any:
    """Run ``model`` on ``data``: each argument of ``forward`` is the attribute of ``data`` with its name.

    A model whose ``forward`` takes the whole graph (``forward(self, data)``) gets it. A wrapped model is called with the
    names of the model inside. A model that hides its arguments behind ``*args`` gets ``x`` and ``edge_index``; it is refused
    where the graph has weights or attributes of edges that a part of the model could take. On a ``HeteroData`` the arguments
    ``x_dict`` and ``edge_index_dict`` (or ``x`` and ``edge_index``) are dicts by type.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCNConv
    >>> data = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> call(GCNConv(4, 2), data).shape
    torch.Size([3, 2])
    """
    graph, named = as_user_graph(data), arguments(model, data)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    if not named:
        _refuse_hidden_arguments(model, graph)
        positional = [_attribute(graph, name) for name in ("x", "edge_index")]
    for index, (argument, value) in enumerate(named):
        needed = argument.default is argument.empty
        if index == 0 and needed and (argument.name == "batch" or (value is None and argument.name in _GRAPH_NAMES)):
            value = copy.copy(graph)  # what a forward assigns to its graph is gone after the call
        if value is None and needed:
            raise ModelError(
                f"forward of '{type(model).__name__}' needs the argument '{argument.name}', and the graph has no attribute "
                f"of that name (it has: {', '.join(graph.keys())})",
                "pass forward=lambda model, data: …, or, as from the command line, wrap the model in one whose forward has "
                "the graph's names",
            )
        if value is not None and argument.kind is argument.POSITIONAL_ONLY:
            positional.append(value)
        elif value is not None:
            keywords[argument.name] = value
    with _running(model, graph):
        return model(*positional, **keywords)


def resolve_forward(forward: Forward | None) -> Forward:
    """The user's ``forward``, called with graphs in the user's form; `call` where it is None."""
    return call if forward is None or forward is call else UserForward(forward)


@dataclass(frozen=True)
class UserForward:
    """A user's function of model and graph, for graphs as the library holds them."""

    function: Forward

    def __call__(self, model: nn.Module, data: Any) -> Any:
        graph = as_user_graph(data)
        with _running(model, graph):
            return self.function(model, graph)


@contextmanager
def _running(model: nn.Module, graph: Any) -> Iterator[None]:
    """A call of the model: errors about types are explained, and a model that writes into the graph is refused."""
    before = {name: (value, value._version) for name, value in _tensors(graph)}
    try:
        yield
    except RuntimeError as error:
        _explain_types(model, graph, error)
        raise
    written = [name for name, (value, version) in before.items() if value._version != version]
    if written:
        raise ModelError(
            f"forward of '{type(model).__name__}' writes into data.{written[0]}, which changes your graph with every call",
            f"write into a copy: {written[0]} = {written[0]}.clone()",
        )


def _tensors(graph: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a graph that count how often they are written to."""
    for store in graph.stores if isinstance(graph, Data | HeteroData) else ():
        for name, value in store.items():
            if isinstance(value, Tensor) and not value.is_inference():
                yield name, value


def require_rows(model: nn.Module, output: Any) -> None:
    """Refuse an output without rows of real numbers: a tensor, or one in a tuple, list or dict.

    >>> require_rows(nn.Linear(1, 1), (torch.ones(3, 2), None))
    >>> require_rows(nn.Linear(1, 1), None)
    Traceback (most recent call last):
        ...
    gnndelete.errors.ModelError: forward of 'Linear' returned a 'NoneType', which holds no rows of floating-point numbers; ...
    """
    parts = [output]
    if isinstance(output, Mapping):
        parts = list(output.values())
    elif isinstance(output, (tuple, list)):
        parts = list(output)
    rows = [part for part in parts if isinstance(part, Tensor) and part.layout == torch.strided and part.dim()]
    rows = [part for part in rows if part.is_floating_point() and part.numel()]
    if not rows:
        kind = f"a '{type(output).__name__}'"
        if isinstance(output, Tensor):
            kind = f"a tensor of {output.dtype} of shape {list(output.shape)}"
        raise ModelError(
            f"forward of '{type(model).__name__}' returned {kind}, which holds no rows of floating-point numbers",
            "let it return a tensor with a row per node (or per graph), or several in a tuple or dict; forward=lambda "
            "model, data: … can pick them",
        )
    if not any(bool(torch.isfinite(part).any()) for part in rows):
        raise ModelError(
            f"forward of '{type(model).__name__}' returned nothing but NaN and infinite values",
            "look for them in its weights and in the features",
        )


def arguments(model: nn.Module, data: Any) -> list[tuple[inspect.Parameter, Any]]:
    """Every argument that a model's ``forward`` names, with the attribute of the graph that has its name, or None.

    >>> from torch_geometric.nn import GCNConv
    >>> data = Data(x=torch.ones(3, 2), pos=torch.ones(3, 2))
    >>> [argument.name for argument, value in arguments(GCNConv(2, 2), data) if value is not None]
    ['x']
    """
    graph, every = as_user_graph(data), inspect.signature(unwrapped(model).forward).parameters.values()
    named = [argument for argument in every if argument.kind not in _HIDDEN]
    return [(argument, _attribute(graph, argument.name)) for argument in named]


def _attribute(data: Any, name: str) -> Any:
    """The attribute of that name, or None; on a ``HeteroData`` a dict by type unless the whole graph has it."""
    if isinstance(data, HeteroData):
        if name in data._global_store:
            return data._global_store[name]
        return data.collect(name.removesuffix("_dict"), allow_empty=True) or None
    if name in data:
        return data[name]
    return getattr(data, name, None) if name in ("num_nodes", "num_graphs") else None


def _refuse_hidden_arguments(model: nn.Module, data: Any) -> None:
    """Refuse to guess where a part of a model that hides its arguments takes attributes of edges that the graph has."""
    taken, left = set[str](), [unwrapped(model)]
    while left:  # arguments pass through parts that hide theirs as well
        for part in left.pop().children():
            found = inspect.signature(part.forward).parameters
            taken |= set(found)
            left += [part] if any(argument.kind in _HIDDEN for argument in found.values()) else []
    lost = [name for name in _OF_EDGES if isinstance(data.get(name), Tensor) and name in taken]
    if lost:
        named = ", ".join(f"data.{name}" for name in ("x", "edge_index", *lost))
        raise ModelError(
            f"forward of '{type(model).__name__}' hides its arguments, and the graph has '{lost[0]}', which it may take or not",
            f"name them in forward, or say how it is called: forward=lambda model, data: model({named})",
        )


def _explain_types(model: nn.Module, data: Any, error: RuntimeError) -> None:
    """Where a pass failed and numbers of the graph have another type than the weights, raise an error that says so."""
    dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), None)
    if isinstance(error, torch.OutOfMemoryError) or dtype is None or not isinstance(data, Data | HeteroData):
        return
    found = _other_types(data, dtype)
    if found:
        cast = {torch.float32: ".float()", torch.float64: ".double()"}.get(dtype, f".to({dtype})")
        raise ModelError(
            f"{some(f'{name} is {kind}' for name, kind in found.items())}, '{type(model).__name__}' computes with {dtype}, and "
            f"it does not run ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
            f"if the types are the cause, write {some(f'{name} = {name}{cast}' for name in found)}",
        ) from error


def _other_types(data: Data | HeteroData, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Attributes that models compute with and that have another type, as they are written in code."""
    found = {}
    for store in data.stores:
        key = vars(store).get("_key")  # None but for the types of a HeteroData
        for name in _COMPUTED_WITH:
            value = store.get(name)
            if isinstance(value, Tensor) and value.dtype != dtype and not value.is_complex():
                found[f"data{'' if key is None else [key]}.{name}"] = value.dtype
    return found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its training flag back afterwards.

    Layers that keep a normalised graph (``cached=True``) do without it meanwhile: it belongs to an earlier call. A model that
    other threads use is not for this, unless it is in evaluation mode already (see `nn.layers.evaluation_view`).
    """
    flags = [module for module in model.modules() if module.training]
    caches = {module: {"cached": True, **(kept_graph(module) or {})} for module in caching_layers(model)}
    for module in flags:
        module.training = False
    for module in caches:
        forget_graph(module)
    try:
        with torch.no_grad():
            yield
    finally:
        for module in flags:
            module.training = True
        for module, values in caches.items():
            for name, value in values.items():
                setattr(module, name, value)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Undo what passes write into the modules of a working copy, such as edges that a model remembers from its first run.

    Attributes and the entries of their lists, dicts and sets get their old values, and so do the values of buffers.
    """
    attributes = [(vars(module), dict(vars(module))) for module in model.modules()]
    containers = [
        (value, copy.copy(value)) for _, old in attributes for value in old.values() if type(value) in (dict, list, set)
    ]
    buffers = [(buffer, buffer.clone(), buffer._version) for buffer in model.buffers() if not buffer.is_inference()]
    try:
        yield
    finally:
        for now, old in attributes:
            now.clear()
            now.update(old)
        for value, entries in containers:
            value.clear()
            value.extend(entries) if isinstance(value, list) else value.update(entries)
        with torch.no_grad():
            for buffer, values, version in buffers:
                if buffer._version != version:
                    buffer.copy_(values)


def caching_layers(model: nn.Module) -> list[nn.Module]:
    """The layers with ``cached=True``: they keep the normalised graph of their first call."""
    return [module for module in model.modules() if getattr(module, "cached", None) is True]


def kept_graph(module: nn.Module) -> dict[str, Any] | None:
    """What a layer with ``cached=True`` keeps of the graph of its first call; None for any other module."""
    if getattr(module, "cached", None) is not True:
        return None
    return {name: value for name, value in vars(module).items() if name.startswith("_cached")}


def forget_graph(module: nn.Module) -> None:
    """Make a layer with ``cached=True`` forget its graph and keep no other."""
    if (kept := kept_graph(module)) is not None:
        for name in (*kept, "cached"):
            setattr(module, name, None if name in kept else False)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, without what torch has put around it.

    >>> unwrapped(nn.DataParallel(nn.Linear(1, 1)))
    Linear(in_features=1, out_features=1, bias=True)
    """
    while True:
        inner = model._modules.get("_orig_mod")
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


def bare(model: nn.Module, name: str) -> str:
    """The name of a module or weight of ``model`` without the parts that wrappers add.

    >>> bare(nn.Sequential(nn.DataParallel(nn.Linear(1, 1))), "0.module.weight")
    '0.weight'
    """
    parts: list[str] = []
    module: nn.Module | None = model
    for part in name.split("."):
        inner = None if module is None else module._modules.get(part)
        if module is None or inner is None or unwrapped(module) is not unwrapped(inner):
            parts.append(part)
        module = inner
    return ".".join(parts)
