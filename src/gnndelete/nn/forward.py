"""Calling the user's model on a graph: arguments are the attributes of ``data`` with the same names."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from gnndelete.errors import GNNDeleteError, ModelError, some
from gnndelete.graph.hetero import seen

Forward = Callable[[nn.Module, Any], Any]

_WHOLE = ("data", "batch", "graph", "g")
_NUMBERS = ("x", "edge_attr", "edge_weight")  # what models compute with


def call(model: nn.Module, data: Any) -> Any:
    """Run ``model`` on ``data``: each argument of ``forward`` is the attribute of ``data`` with its name.

    A model whose ``forward`` takes the whole graph (``forward(self, data)``) gets it. Behind ``torch.compile`` and
    ``DataParallel`` the names are those of the model within; one that hides its arguments behind ``*args`` gets ``x`` and
    ``edge_index``, unless the graph has weights or attributes of edges that the part behind them could take. On a
    ``HeteroData`` the arguments ``x_dict`` and ``edge_index_dict``
    (or ``x`` and ``edge_index``) are dicts by type.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCNConv
    >>> data = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> call(GCNConv(4, 2), data).shape
    torch.Size([3, 2])
    """
    return _explained(_call, model, seen(data))


def _call(model: nn.Module, data: Any) -> Any:
    named = _named(_within(model).forward)
    if not named:
        _refuse_hidden(model, data)
        return model(*(_lookup(data, name)[1] for name in ("x", "edge_index")))
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for index, parameter in enumerate(named):
        found, value = _lookup(data, parameter.name)
        if parameter.name == "batch" and index == 0:  # the whole batch of graphs, not the vector of that name
            found = False
        if not found and parameter.name in _WHOLE and index == 0 and parameter.default is parameter.empty:
            found, value = True, copy.copy(data)  # what a forward assigns to its graph is gone after the call
        if not found:
            if parameter.default is parameter.empty:
                raise ModelError(
                    f"forward of '{type(model).__name__}' needs the argument '{parameter.name}', and the graph has no "
                    f"attribute of that name (it has: {', '.join(data.keys())}); pass forward=lambda model, data: …, or, as "
                    "from the command line, wrap the model in one whose forward has the graph's names"
                )
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            keywords[parameter.name] = value
    return model(*positional, **keywords)


def read_by_name(model: nn.Module, data: Any, forward: Forward) -> dict[str, Any]:
    """What the default call hands a model of its graph, by name; nothing where that is not known.

    >>> from torch_geometric.nn import GCNConv
    >>> list(read_by_name(GCNConv(4, 2), Data(x=torch.ones(3, 4), pos=torch.ones(3, 2)), call))
    ['x']
    """
    if forward is not call:
        return {}
    found = {parameter.name: _lookup(seen(data), parameter.name) for parameter in _named(_within(model).forward)}
    return {name: value for name, (there, value) in found.items() if there}


def _within(model: nn.Module) -> nn.Module:
    """The model itself, where it is wrapped by torch for speed or for several devices."""
    while not _named(model.forward) and (inner := within(model)) is not None:
        model = inner
    return model


def _refuse_hidden(model: nn.Module, data: Any) -> None:
    """Refuse to guess where all arguments are hidden, the graph has values of edges, and the part behind takes them."""
    if not isinstance(data, Data):
        return
    inside = {parameter.name for module in _behind(_within(model)) for parameter in _named(module.forward)}
    lost = [name for name in _OF_EDGES if isinstance(data.get(name), Tensor) and name in inside]
    if lost:
        given = ", ".join(f"data.{name}" for name in ("x", "edge_index", *lost))
        raise ModelError(
            f"forward of '{type(model).__name__}' hides its arguments, and the graph has '{lost[0]}', which it may take or "
            f"not; name them in forward, or say how it is called: forward=lambda model, data: model({given})"
        )


def _behind(model: nn.Module) -> Iterator[nn.Module]:
    """The parts that hidden arguments may go to: those of the model, and of such a part that hides them in turn."""
    for child in model.children():
        yield child
        if _hides(child.forward):
            yield from _behind(child)


_OF_EDGES = ("edge_weight", "edge_attr", "edge_type")


def _named(forward: Callable[..., Any]) -> list[inspect.Parameter]:
    """The arguments that a model's ``forward`` names; found once per function, since every pass asks for them."""
    if not inspect.ismethod(forward):
        return _parameters(forward)
    return _parameters(forward.__func__)[1:]


def _hides(forward: Callable[..., Any]) -> bool:
    return _star(forward.__func__ if inspect.ismethod(forward) else forward)


@lru_cache(maxsize=64)
def _star(function: Callable[..., Any]) -> bool:
    """Whether a function takes arguments that it does not name."""
    return any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in inspect.signature(function).parameters.values())


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


@dataclass(frozen=True)
class AsSeen:
    """A function of the user's ``(model, data)``, called with the graph as the user knows it."""

    function: Callable[..., Any]

    def __call__(self, model: nn.Module, data: Any) -> Any:
        return _explained(self.function, model, seen(data))


def as_seen(function: Any) -> Any:
    """The user's ``forward`` for graphs as the library holds them; None stays None."""
    return function if function is None or function is call or isinstance(function, AsSeen) else AsSeen(function)


def _explained(function: Callable[..., Any], model: nn.Module, data: Any) -> Any:
    """One pass; where the graph's numbers are of another type than the model's weights, and that alone stops it, say so."""
    try:
        return function(model, data)
    except (GNNDeleteError, torch.OutOfMemoryError):
        raise
    except RuntimeError as error:
        dtype = next((p.dtype for p in model.parameters() if p.dtype.is_floating_point), None)
        if dtype is not None and isinstance(data, Data | HeteroData):
            _refuse_other_type(function, model, data, dtype, error)
        raise


def _refuse_other_type(
    function: Callable[..., Any], model: nn.Module, data: Data | HeteroData, dtype: torch.dtype, error: Exception
) -> None:
    """Try the pass again with ``x`` and the like as numbers of the model's type: whole ones may be categories, and as meant."""
    other = [
        (place, name)
        for place, store in enumerate(data.stores)
        for name in _NUMBERS
        if isinstance(store.get(name), Tensor) and store[name].dtype != dtype and not store[name].is_complex()
    ]
    names = list(dict.fromkeys(name for _, name in other))
    for tried in [*([name] for name in names), names]:
        chosen, same = [(place, name) for place, name in other if name in tried], copy.copy(data)
        for place, name in chosen:
            same.stores[place][name] = same.stores[place][name].to(dtype)
        try:
            with evaluating(model):
                function(model, same)
        except Exception:  # then something else is wrong, which the first error tells
            continue
        made = {torch.float32: ".float()", torch.float64: ".double()"}.get(dtype, f".to({dtype})")
        own = {}
        for place, name in chosen:
            key = vars(data.stores[place]).get("_key")  # None but for the types of a HeteroData
            own[f"data{'' if key is None else [key]}.{name}"] = data.stores[place][name].dtype
        raise ModelError(
            f"{some(f'{name} is {kind}' for name, kind in own.items())}, and '{type(model).__name__}' computes with {dtype}; "
            f"write {some(f'{name} = {name}{made}' for name in own)}"
        ) from error


def _lookup(data: Any, name: str) -> tuple[bool, Any]:
    if isinstance(data, HeteroData):
        return _lookup_by_type(data, name)
    if name in data and data[name] is not None:
        return True, data[name]
    if name == "num_nodes" or (name == "num_graphs" and hasattr(data, "num_graphs")):
        return True, getattr(data, name)
    return False, None


def _lookup_by_type(data: HeteroData, name: str) -> tuple[bool, Any]:
    """What the whole graph has under that name, else a dict by type: ``x_dict``, and ``x`` as `to_hetero` calls it."""
    if name in data._global_store:
        return True, data._global_store[name]
    found = data.collect(name.removesuffix("_dict"), allow_empty=True)
    return bool(found), found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module gets its own training flag back afterwards.

    Layers that keep a normalised graph (``cached=True``) work without it meanwhile: it is the graph of some earlier call.
    """
    flags = {module: module.training for module in model.modules()}
    kept = {module: {"cached": True, **graph} for module in flags if (graph := kept_graph(module)) is not None}
    model.eval()
    for module in kept:
        forget_graph(module)
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in flags.items():
            module.training = training
        for module, values in kept.items():
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


def kept_graph(module: nn.Module) -> dict[str, Any] | None:
    """What a layer with ``cached=True`` keeps of the graph of its first call; None for any other module."""
    if getattr(module, "cached", None) is not True:
        return None
    return {name: value for name, value in vars(module).items() if name.startswith("_cached")}


def forget_graph(module: nn.Module) -> None:
    """Have a layer with ``cached=True`` forget its graph, and keep no other."""
    for name in kept_graph(module) or ():
        setattr(module, name, None)
    module.cached = False  # type: ignore[assignment]


#: What ``DataParallel`` and ``torch.compile`` put before the names of the model within.
WRAPPERS = ("module.", "_orig_mod.")
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def within(model: nn.Module) -> nn.Module | None:
    """The model that is wrapped by torch; None where it is no wrapper.

    >>> within(nn.DataParallel(nn.Linear(1, 1))), within(nn.Linear(1, 1))
    (Linear(in_features=1, out_features=1, bias=True), None)
    """
    inner = model._modules.get("_orig_mod") or (model.module if isinstance(model, _PARALLEL) else None)
    return inner if isinstance(inner, nn.Module) else None


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, whatever torch has put around it."""
    while (inner := within(model)) is not None:
        model = inner
    return model


@contextmanager
def eagerly(model: nn.Module) -> Iterator[None]:
    """Run what is compiled of a model as it was written, for passes that watch its layers: these compile badly, if at all."""
    with ExitStack() as stack:
        if any("_orig_mod" in module._modules for module in model.modules()):
            stack.enter_context(torch.compiler.set_stance("force_eager"))  # loads the compiler, which costs seconds
        yield


def bare(model: nn.Module, name: str) -> str:
    """The name of a module or weight of ``model`` as it is without wrappers.

    >>> bare(nn.Sequential(nn.DataParallel(nn.Linear(1, 1))), "0.module.weight")
    '0.weight'
    """
    kept: list[str] = []
    module: nn.Module | None = model
    for part in name.split("."):
        inner = None if module is None else module._modules.get(part)
        if inner is None or module is None or within(module) is not inner:
            kept.append(part)
        module = inner
    return ".".join(kept)
