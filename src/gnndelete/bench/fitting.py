"""Whether the cells of an experiment can be done, as far as names and sizes tell: what would fail in each is refused at once."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn

from gnndelete.bench.own import named
from gnndelete.bench.words import counted, measured
from gnndelete.datasets.registry import ENTRIES, Entry
from gnndelete.errors import SettingError, some
from gnndelete.models import resolver as models
from gnndelete.models.from_graph import defaults, model_factory
from gnndelete.nn.layers import graph_layers


class Keyed(Protocol):
    """A cell, as it is seen from here."""

    @property
    def label(self) -> str: ...

    @property
    def key(self) -> dict[str, Any]: ...


def check_fit(cells: Iterable[Keyed]) -> None:
    """Refuse models that a dataset cannot feed, more than it has to delete, and layers that a model does not have."""
    seen: set[str] = set()
    for cell in cells:
        dataset, model, task, forget, method = (cell.key[n] for n in ("dataset", "model", "task", "forget", "method"))
        split, names = cell.key["split"], method.get("layers")
        checks: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (_check_model, (dataset, model, task)),
            (_check_amount, (dataset, forget, task, split)),
        ]
        if isinstance(names, list):
            checks.append((_check_layers, (cell.label, names, model, task)))
        for check, values in checks:
            about = json.dumps([check.__name__, *values])
            if about not in seen:
                seen.add(about)
                check(*values)


def _sized(dataset: str) -> Entry:
    """A dataset with the sizes that its name gives it."""
    entry, given = named(dataset)
    words = {"entities": "nodes", "triples": "edges"}
    sizes: dict[str, Any] = {words.get(name, name): value for name, value in given.items()}
    known = ("nodes", "edges", "features", "relations")
    if "neighbors" in given:
        sizes["edges"] = 2 * entry.nodes * int(given["neighbors"])  # at most
    return replace(entry, **{name: size for name, size in sizes.items() if name in known})


def _check_model(dataset: str, model: Mapping[str, Any], task: str) -> None:
    entry, name = _sized(dataset), model["name"]
    takes = inspect.signature(models.lookup_dict[name]).parameters
    if "num_relations" in takes and not entry.typed:
        typed = some(entry.name for entry in ENTRIES.values() if entry.typed)
        raise SettingError(
            f"'models': '{name}' is for typed edges, and those of '{dataset}' have no types; take another model (gcn, say) or a "
            f"typed dataset ({typed})"
        )
    needs = "in_channels" in takes and takes["in_channels"].default is inspect.Parameter.empty
    if needs and "in_channels" not in model and not entry.features:
        other = "rgcn or rgat" if entry.typed else "a dataset with features"
        raise SettingError(
            f"'models': '{name}' computes from features of nodes, and '{dataset}' has none; take {other}"
        )
    if task == "graph" and "num_nodes" in takes:
        raise SettingError(
            f"'models': '{name}' has a trained vector for every node, and new graphs bring new nodes; take gcn, gat or gin"
        )
    _check_options(dataset, entry, model, task)


def _check_options(dataset: str, entry: Entry, model: Mapping[str, Any], task: str) -> None:
    """Refuse options of which no model can be made, and a model that no device has room for."""
    usual, name = defaults(model_factory(models.lookup_dict[model["name"]], task)), model["name"]
    unusual = {n: value for n, value in model.items() if n != "name" and usual.get(n) != value}
    if not unusual:
        return
    given = ", ".join(f"{n} {value!r}" for n, value in unusual.items())
    layers = unusual.get("num_layers", 0)
    if isinstance(layers, int) and layers > _LAYERS:
        raise SettingError(f"'models': a '{name}' with {given} has more than {_LAYERS:,} layers; take fewer")
    try:
        weights = _weights(entry, model, task)
    except Exception as error:
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise SettingError(f"'models': no '{name}' can be made with {given}: {said}") from None
    if weights > _WEIGHTS:
        raise SettingError(
            f"'models': a '{name}' with {given} has {weights:,} weights or more on '{dataset}', and the most is {_WEIGHTS:,}; "
            "take a smaller one"
        )


#: The most layers that are made to be looked at, and the most weights that are trained: 40 GB of them.
_LAYERS, _WEIGHTS = 1_000, 10**10

#: Models that cannot be made without their weights are made with them up to so many.
_MADE = 10**8


def _weights(entry: Entry, model: Mapping[str, Any], task: str) -> int:
    """How many weights a model would have on a graph; where it cannot be made without them, those of its plain sister, if any."""
    sizes = {"in_channels": entry.features, "num_nodes": entry.nodes, "num_relations": max(entry.relations, 1)}
    sizes |= {"out": entry.classes} if entry.classes and task != "link" else {}
    plain = {name: value for name, value in model.items() if name == "name" or not isinstance(value, str)}
    try:
        return sum(weight.numel() for weight in _skeleton(model, task, sizes).parameters())
    except Exception as error:  # what is wrong with the model itself shows again when it is made below
        if "overflow" in str(error).lower():
            return 2**61  # four bytes each: what torch can count
    weights = 0 if plain == model else _weights(entry, plain, task)
    if weights <= _MADE:
        _skeleton(model, task, {"out": sizes.get("out", 2)}, "cpu")  # a layer may want to see the weights it draws
    return weights


def _check_amount(dataset: str, forget: Mapping[str, Any], task: str, split: Mapping[str, Any]) -> None:
    kind, amount, steps = forget["kind"], forget["amount"], forget["steps"]
    noun, most = kind.removesuffix("s"), _most(_sized(dataset), kind, task, split)
    count = amount if isinstance(amount, int) else round(amount * most)
    if count > most:
        raise SettingError(
            f"'forget.amount': {counted(amount, noun)} are more than there are to learn from in '{dataset}' (at most "
            f"{most:,}); ask for fewer, or for a share such as 0.05"
        )
    if kind in ("edges", "nodes") and count == most:
        raise SettingError(
            f"'forget.amount': {amount:,} is all there is to learn from in '{dataset}' (at most {counted(most, noun)}), and "
            "a deletion has to leave some of it; ask for fewer"
        )
    if count < 1:
        raise SettingError(
            f"'forget.amount': a share of {amount} is not one {noun} of '{dataset}' (at most {counted(most, noun)}); ask for "
            "more, or for a whole number"
        )
    if steps > count:
        few = counted(count, noun) if isinstance(amount, int) else f"{measured(amount, kind)} ({count:,})"
        raise SettingError(
            f"'forget.steps': {few} cannot be deleted in {steps} steps; ask for fewer steps, or delete more"
        )


def _most(entry: Entry, kind: str, task: str, split: Mapping[str, Any]) -> int:
    """The most elements of a kind that a training graph can have; of edges near to test edges, say, there are fewer."""
    if kind == "relations":
        return entry.relations
    if kind == "edges":
        total = entry.edges if entry.typed else entry.edges // 2  # untyped graphs are undirected
        if not _drawn(split, task, "link"):
            return total
        # triples may have a few loops among them, which are neither held out nor deleted
        totals = range(max(total - 99, 0) if entry.typed else total, total + 1)
        return max(size - sum(int(split[part] * size) for part in ("val", "test")) for size in totals)
    if kind == "graphs" or (kind == "features" and task == "graph"):
        return int(split["train"] * entry.graphs) if _drawn(split, task, "graph") else entry.graphs
    return int(split["train"] * entry.nodes) if _drawn(split, task, "node") else entry.nodes


def _drawn(split: Mapping[str, Any], task: str, wanted: str) -> bool:
    return task == wanted and not split.get("given", False)


def _check_layers(label: str, names: list[str], model: Mapping[str, Any], task: str) -> None:
    skeleton = _skeleton(model, task)
    there = {name for name, _ in skeleton.named_modules()}
    stray = [name for name in names if name not in there]
    if stray:
        raise SettingError(
            f"'layers' of method '{label}': the model '{model['name']}' has no module '{stray[0]}'; take all, last or names "
            f"among {some(graph_layers(skeleton), 10)}, or keep the method to other models with only: {{models: […]}}"
        )


def _skeleton(
    model: Mapping[str, Any], task: str, sizes: Mapping[str, int] | None = None, device: str = "meta"
) -> nn.Module:
    """The model of a key without weights; what the graph decides is small where no ``sizes`` are given."""
    factory = model_factory(models.lookup_dict[model["name"]], task)
    small = {"in_channels": 1, "num_nodes": 1, "num_relations": 1, "out": 2}
    takes = inspect.signature(factory).parameters
    options = {n: v for n, v in small.items() if n in takes} | defaults(factory)
    options |= {name: size for name, size in (sizes or {}).items() if name in takes}
    options |= {name: value for name, value in model.items() if name != "name"}
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tensors without elements
        made: nn.Module = factory(**options)
    return made
