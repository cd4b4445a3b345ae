"""From names and options to objects: models (built in, or made by the user's own factory) and methods."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.cli.settings import SCHEDULE, ModelSettings, Settings
from gnndelete.errors import ModelError, SettingError, unknown
from gnndelete.methods import Method
from gnndelete.methods import resolver as methods
from gnndelete.models import resolver as models
from gnndelete.models.from_graph import fill_options, model_factory
from gnndelete.parameters import check_parameters


def model_options(settings: ModelSettings, data: Data, task: str) -> dict[str, Any]:
    """All options of the model of a run, as `fill_options` has them."""
    factory, builtin = _factory(settings.name, task), ":" not in settings.name
    return fill_options(factory, settings.options, data, task, settings.name, builtin)


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
    return found if ":" in name else model_factory(found, task)


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
