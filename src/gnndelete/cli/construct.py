"""From names and options to objects: models (built in, or made by the user's own factory) and methods."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import torch
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from torch import nn
from torch_geometric.data import Data

from gnndelete.cli.settings import SCHEDULE, ModelSettings, Settings, unknown
from gnndelete.errors import GraphError, ModelError, SettingError
from gnndelete.graph import count_relations
from gnndelete.methods import Method
from gnndelete.methods import resolver as methods
from gnndelete.models import Categories, pooled
from gnndelete.models import resolver as models

FROM_GRAPH = ("in_channels", "num_classes", "num_nodes", "num_relations", "categories")


def model_options(settings: ModelSettings, data: Data, task: str) -> dict[str, Any]:
    """All options of the model: those given, those that follow from the graph, and the defaults of its factory.

    Arguments called ``in_channels``, ``num_classes``, ``num_nodes`` and ``num_relations``, and ``out`` of a built-in model
    for node classification, are filled in from the graph where the settings leave them open.
    """
    factory = _factory(settings.name, task)
    filled = {"in_channels": data.num_features, "num_classes": _classes(data), "num_nodes": data.num_nodes}
    filled["num_relations"] = count_relations(data)
    if isinstance(data.x, torch.Tensor):
        filled["categories"] = Categories.sizes(data.x)
    if ":" not in settings.name and task in ("node", "graph"):
        filled["out"] = _classes(data)
    takes = inspect.signature(factory).parameters
    needs = "in_channels" in takes and takes["in_channels"].default is inspect.Parameter.empty
    if needs and "in_channels" not in settings.options and not data.num_features:
        other = (
            "take --model rgcn or rgat" if "edge_type" in data else "bring one that needs none: --model file.py:factory"
        )
        raise GraphError(
            f"the graph has no node features, and the model '{settings.name}' computes from them; add columns of numbers "
            f"to the table of nodes (data.x), or {other}"
        )
    if ":" not in settings.name and "num_relations" in takes and not filled["num_relations"]:
        raise GraphError(
            f"the model '{settings.name}' is for typed edges, and the graph has no 'edge_type'; take --model gcn"
        )
    plain = {name: p.default for name, p in takes.items() if isinstance(p.default, (bool, int, float, str, type(None)))}
    options = plain | {name: value for name, value in filled.items() if name in takes} | settings.options
    return check_parameters(factory, options, f"model '{settings.name}'", "model.")


def build_model(settings: ModelSettings, data: Data, task: str, seed: int) -> nn.Module:
    """An untrained model with weights drawn from ``seed``."""
    options = model_options(settings, data, task)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = _factory(settings.name, task)(**options)
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"'{settings.name}' returned a '{type(model).__name__}'; a factory must return a torch.nn.Module"
        )
    return model


def _factory(name: str, task: str) -> Any:
    """A built-in model answers for whole graphs with a pool behind it."""
    found: Any = find_factory(name)
    return partial(pooled, found) if task == "graph" and ":" not in name else found


@cache
def find_factory(name: str) -> Callable[..., Any]:
    """The class of a built-in model, or what ``file.py:factory`` or ``package.module:factory`` names."""
    place, colon, attribute = name.rpartition(":")
    if not colon:
        try:
            return models.lookup(name)
        except (KeyError, TypeError):
            sentence = unknown("there is no model", name, sorted(models.lookup_dict))
            raise SettingError(
                f"{sentence} (a model of your own is named file.py:factory or package.module:factory)"
            ) from None
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module_of_package(place)
    factory = getattr(module, attribute, None)
    if isinstance(factory, nn.Module) or not callable(factory):
        what = "is not in it" if factory is None else f"is a '{type(factory).__name__}'"
        raise SettingError(f"'{attribute}' of model '{name}' {what}; name a class or function that makes a model")
    return factory


def _module_of_file(path: Path) -> Any:
    if not path.is_file():
        raise SettingError(f"there is no model file '{path}'; check the path before the colon")
    # A name of its own, so that a file called like an installed package hides nothing.
    name = f"gnndelete_model_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingError(f"'{path}' is no Python file; a model is named file.py:factory")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look their module up there
    _search(path.parent)  # for what the file imports from beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ModelError(
            f"the model file '{path}' does not run ({type(error).__name__}: {error}); correct it"
        ) from error
    return module


def _module_of_package(name: str) -> Any:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise SettingError(
            f"the module '{name}' of the model cannot be imported ({type(error).__name__}: {error})"
        ) from error


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def build_method(settings: Settings) -> Method:
    """The method of a run. One that trains takes the run's schedule where its own parameters leave it open."""
    try:
        kind = methods.lookup(settings.method.name)
    except (KeyError, TypeError):
        raise SettingError(unknown("there is no method", settings.method.name, sorted(methods.lookup_dict))) from None
    parameters = settings.method.parameters
    if kind.needs == "a training function":
        schedule = settings.train.model_dump(include=set(SCHEDULE))
        takes = inspect.signature(kind).parameters
        parameters = {name: value for name, value in schedule.items() if name in takes} | parameters
    return kind(**check_parameters(kind, parameters, f"method '{kind.name}'", "method."))


def check_parameters(make: Callable[..., Any], given: Mapping[str, Any], owner: str, prefix: str) -> dict[str, Any]:
    """``given``, after checking names and types against the signature of ``make``."""
    signature = inspect.signature(make).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values()):
        return dict(given)
    for name in given:
        if name not in signature:
            raise SettingError(unknown(f"{owner} has no setting", name, signature, prefix))
    missing = [
        n for n, p in signature.items() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and n not in given
    ]
    if missing:
        raise SettingError(
            f"{owner} needs a value for '{prefix}{missing[0]}'; give it with --set {prefix}{missing[0]}=…"
        )
    hints = _hints(make)
    return {name: _typed(prefix + name, value, hints.get(name, Any)) for name, value in given.items()}


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(make.__init__ if inspect.isclass(make) else make)
    except Exception:  # the user's annotations may name what is not there at run time; then types are not checked
        return {}


def _typed(name: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value, strict=True)
    except ValidationError as error:
        said = " or ".join(dict.fromkeys(p["msg"].removeprefix("Input should be ") for p in error.errors()))
        raise SettingError(f"'{name}' should be {said} (got {value!r})") from None
    except PydanticUserError:
        return value  # a type that brings its own configuration, or none that can be checked


def _classes(data: Data) -> int | None:
    y = data.get("y")
    return int(y.max()) + 1 if isinstance(y, torch.Tensor) and y.numel() and not y.is_floating_point() else None
