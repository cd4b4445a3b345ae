"""The adapter: all operators of one unlearned model, as an object and as three files on disk."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from gnndelete import __version__
from gnndelete.errors import AdapterError, bounded, some, why
from gnndelete.graph.fingerprint import tensor_digest
from gnndelete.graph.kinds import in_words
from gnndelete.io.files import STAGING_PREFIX, commit, was_begun
from gnndelete.io.versions import Count, Digest, read_file
from gnndelete.nn.forward import bare, unwrapped
from gnndelete.nn.hooks import Key, Site
from gnndelete.nn.operator import (
    PREFIX,
    AddedRows,
    GivenRows,
    LinearMap,
    Operator,
    RowMap,
    attach,
    base_tables,
    detach,
    disabled,
    layer_operators,
)
from gnndelete.notes import explain, explain_aim, what_left

FORMAT = 1
CONFIG, TENSORS, CARD = "adapter_config.json", "adapter_model.safetensors", "README.md"

#: Keys of the config that an adapter writes itself; all others are facts about the result.
_WRITTEN = ("format", "gnndelete", "torch", "python", "base_model", "base_fingerprint", "tensors_sha256", "operators")
REQUIRED = (*_WRITTEN, "method", "settings", "assurance", "weights", "seconds", "parameters", "notes", "seed")


#: A config holds no tensors.
MAX_CONFIG_BYTES = 1 << 26


class _Config(BaseModel):
    """The types of what a config says."""

    model_config = ConfigDict(strict=True)

    base_model: str
    base_fingerprint: Digest
    tensors_sha256: Digest
    operators: list[dict[str, Any]]
    method: str
    settings: dict[str, Any]
    assurance: Literal["retrained", "exact", "certified", "approximate", "inference-only"]
    weights: Literal["base", "new"]
    seconds: float
    parameters: Count
    notes: list[dict[Literal["code", "text"], str]]
    seed: int
    requests: Count = 0
    counts: dict[str, Count] = {}
    remaining_fingerprint: Digest | None = None
    original_fingerprint: Digest | None = None
    remaining_attributes: dict[str, str] = {}
    details: dict[str, Any] = {}


@dataclass(frozen=True)
class OperatorConfig:
    """What the config on disk says of one operator: its site, its size, and who makes its maps."""

    layer: str
    call: int
    key: Key
    calls: int
    num_rows: int
    width: int
    sizes: list[int]
    map: str  # "linear", or "custom" where the user's factory makes the maps
    table: bool = False  # whether it replaces rows of a parameter of the layer

    @classmethod
    def of(cls, site: Site, operator: Operator, layer: str) -> OperatorConfig:
        """``layer`` is the name of the site's layer without wrappers such as ``torch.compile``."""
        linear = all(isinstance(part, (LinearMap, RowMap)) for part in operator.maps)
        size = operator.num_rows, operator.width, operator.sizes
        return cls(layer, site.call, site.key, site.calls, *size, "linear" if linear else "custom", site.table)


@dataclass(frozen=True, repr=False)
class Adapter:
    """All operators of one unlearned model.

    Args:
        model: The model that the operators are attached to.
        facts: What is known about how the operators were made. `Unlearned.save` and `load` fill it in.
    """

    model: nn.Module
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def operators(self) -> list[tuple[Site, Operator]]:
        """Every operator with its site (``site.layer``, ``site.call``, ``site.key``), in the order of the modules."""
        return [
            (site, operator)
            for layer in layer_operators(self.model)
            for site, operator in zip(layer.sites, layer.operators, strict=True)
            if isinstance(operator, Operator)
        ]

    @property
    def num_parameters(self) -> int:
        """How many numbers the operators hold."""
        return sum(p.numel() for _, operator in self.operators for p in operator.parameters())

    def __repr__(self) -> str:
        size = f"operators={len(self.operators)}, parameters={self.num_parameters}"
        return f"Adapter(model={type(self.model).__name__}, {size})"

    def disabled(self) -> AbstractContextManager[None]:
        """Switch the operators off for the length of a block, in this thread. This brings the deleted data back into the answers.

        Returns:
            A context manager for a ``with`` statement.
        """
        return disabled(self.model)

    def detach(self) -> nn.Module:
        """Remove the operators from the model for good; the base checkpoint then loads strictly.

        Returns:
            The model, which is the base model again.
        """
        detach(self.model)
        return self.model

    def save(self, path: str | PathLike[str]) -> None:
        """Write config, tensors and model card into a folder. A file is replaced only by a complete one.

        Args:
            path: A new folder, or one that holds an adapter, which is replaced.

        Raises:
            AdapterError: If the folder holds other files and no adapter: the card would replace their README.md.
        """
        _refuse_other_files(Path(path))
        named = [(replace(site, layer=bare(self.model, site.layer)), operator) for site, operator in self.operators]
        content, entries = dump_operators(named)
        config = {
            "format": FORMAT,
            "gnndelete": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "base_model": type(unwrapped(self.model)).__name__,
            "base_fingerprint": model_fingerprint(self.model),
            "tensors_sha256": hashlib.sha256(content).hexdigest(),
            "operators": entries,
            **self.facts,
        }
        if missing := [name for name in REQUIRED if name not in config]:
            raise AdapterError(f"the adapter does not know {some(missing)}", "save the result: unlearned.save(path)")
        written = _config_bytes(config)
        folder = Path(path)
        files = {folder / TENSORS: content, folder / CONFIG: written, folder / CARD: card(config).encode()}
        commit(files, private=[folder / TENSORS])


def dump_operators(operators: Sequence[tuple[Site, Operator]]) -> tuple[bytes, list[dict[str, Any]]]:
    """Operators as the content of a safetensors file, and plain values that say what is in it."""
    tensors: dict[str, Tensor] = {}
    entries = []
    for index, (site, attached) in enumerate(operators):
        operator = _ordered(attached)
        entries.append(asdict(OperatorConfig.of(site, operator, site.layer)))
        for name, value in operator.state_dict().items():
            tensors[f"{index}.{name}"] = value.detach().cpu().contiguous()
    return dump_tensors(tensors), entries


def load_operators(content: bytes, entries: Sequence[Mapping[str, Any]]) -> list[tuple[Site, Operator]]:
    """What `dump_operators` wrote; maps of the user's own cannot be read back."""
    tensors, found = load_tensors(content), []
    for index, entry in enumerate(entries):
        config, prefix = OperatorConfig(**entry), f"{index}."
        values = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
        site = Site(config.layer, config.call, config.key, config.width, calls=config.calls, table=config.table)
        found.append((site, _operator("the given content", config, values, None)))
    return found


def _ordered(operator: Operator) -> Operator:
    """The same operator with its groups by their first row: their order must not tell which rows are the deleted ones."""
    groups = operator.rows.split(operator.sizes)
    order = sorted(range(len(groups)), key=lambda index: groups[index].tolist()[:1])
    maps = list(operator.maps)
    return Operator(operator.num_rows, operator.width, [groups[i] for i in order], [maps[i] for i in order])


def _refuse_other_files(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise AdapterError(f"'{folder}' is a file; an adapter is a folder: give a new one")
    if (folder / CONFIG).exists() or not folder.exists() or was_begun(folder, CONFIG):
        return
    if other := sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(STAGING_PREFIX)):
        raise AdapterError(
            f"'{folder}' holds other files and no adapter ({some(other, 3)}); give a new folder, such as "
            f"'{folder / 'adapter'}'"
        )


def read_config(path: str | PathLike[str]) -> dict[str, Any]:
    """The config of the adapter in a folder; an AdapterError where there is none that can be read."""
    file = Path(path) / CONFIG
    remedy = "restore it from a backup, or delete again"
    try:
        content = read_file(file, MAX_CONFIG_BYTES)
        config = json.loads(content)
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            found = bounded(repr(config.get("format")), 40) if isinstance(config, dict) else type(config).__name__
            raise AdapterError(
                f"'{file}' has format {found}, this version reads format {FORMAT}; save the adapter again"
            )
        if missing := [name for name in REQUIRED if name not in config]:
            raise AdapterError(f"'{file}' is damaged: it lacks {some(missing)}; {remedy}")
        digest = config.pop("sha256", None)
        if _config_bytes(config) != content or _sealed(config)["sha256"] != digest:
            raise AdapterError(f"'{file}' is not what was written; {remedy}")
        _Config.model_validate(config)
    except AdapterError:
        raise
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise AdapterError(f"'{file}' is damaged: '{bounded(place, 60)}' has a wrong value; {remedy}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise AdapterError(
            f"no readable adapter at '{path}' ({file.name}: {bounded(why(error), 200)}); give the folder that save() wrote"
        ) from error
    return config


def _sealed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the digest of its other values."""
    return {**config, "sha256": hashlib.sha256(json.dumps(config, indent=2).encode()).hexdigest()}


def _config_bytes(config: Mapping[str, Any]) -> bytes:
    """The content of the file of a config, whose digest goes last."""
    return (json.dumps(_sealed(config), indent=2) + "\n").encode()


def restore(path: str | PathLike[str], config: dict[str, Any], model: nn.Module, factory: Any = None) -> Adapter:
    """Attach the operators in a folder to ``model``, a copy of the base model; another model is refused."""
    if layer_operators(model):
        raise AdapterError(f"the model for the adapter at '{path}' already carries one; give the base model")
    if model_fingerprint(model) != config["base_fingerprint"]:
        raise AdapterError(
            f"the adapter at '{path}' was made for another base model ('{config['base_model']}' with fingerprint "
            f"{config['base_fingerprint'][:12]}, got {model_fingerprint(model)[:12]}); load the checkpoint it was made from"
        )
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    layers = {bare(model, name): name for name, _ in model.named_modules()}  # of nested wrappers, the innermost
    try:
        tensors = _read_tensors(Path(path) / TENSORS, config["tensors_sha256"])
        for index, entry in enumerate(config["operators"]):
            found = OperatorConfig(**entry)
            prefix = f"{index}."
            values = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
            layer = layers.get(found.layer, found.layer)
            site = Site(layer, found.call, found.key, found.width, calls=found.calls, table=found.table)
            attach(model, site, _operator(path, found, values, factory).to(device))
    except AdapterError:
        raise
    except Exception as error:  # anything that is wrong inside the files
        raise AdapterError(
            f"the adapter at '{path}' is damaged ({type(error).__name__}: {error}); restore it from a backup, or delete again"
        ) from error
    return Adapter(model, {name: value for name, value in config.items() if name not in _WRITTEN})


def _read_tensors(file: Path, digest: str) -> dict[str, Tensor]:
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise AdapterError(
            f"'{file.name}' at '{file.parent}' is not the file that the config belongs to; restore both, or delete again"
        )
    return load_tensors(content)


def _operator(path: str | PathLike[str], found: OperatorConfig, tensors: dict[str, Tensor], factory: Any) -> Operator:
    groups = list(tensors["rows"].split(found.sizes))
    maps: list[nn.Module] = []
    for index in range(len(groups)):
        if found.map != "linear":
            if factory is None:
                raise AdapterError(
                    f"the adapter at '{path}' holds custom operators; pass operator= the factory that makes them"
                )
            maps.append(factory(found.width))
        elif (values := tensors.get(f"maps.{index}.values")) is not None:
            maps.append(GivenRows(values))
        elif (values := tensors.get(f"maps.{index}.offsets")) is not None:
            maps.append(AddedRows(values))
        else:
            maps.append(LinearMap(0, tensors[f"maps.{index}.weight"]))
    operator = Operator(found.num_rows, found.width, groups, maps)
    operator.load_state_dict(tensors)
    return operator


def base_state(model: nn.Module) -> dict[str, Tensor]:
    """The weights and buffers of a model without its operators, under the names that they have without wrappers."""
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)} | base_tables(
        model
    )
    return {bare(model, name): value for name, value in state.items() if PREFIX not in name.split(".")}


def model_fingerprint(model: nn.Module) -> str:
    """A digest of a model's weights without its operators; a compiled model has the one of the model inside."""
    return tensor_digest(base_state(model))


def in_use(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that the others make irrelevant.

    >>> in_use({"solver": "closed-form", "ridge": 1e-6, "epochs": 1500, "lr": 1e-3})
    {'solver': 'closed-form', 'ridge': 1e-06}
    """
    unused = ("epochs", "lr") if settings.get("solver") == "closed-form" else ()  # of the other solver
    return {name: value for name, value in settings.items() if name not in unused}


def card(config: dict[str, Any]) -> str:
    """The README.md beside an adapter's tensors."""
    settings = config.get("settings", {})
    counts = ", ".join(in_words(config.get("counts", {}))) or "nothing"
    assurance = config.get("assurance", "approximate")
    values = "\n".join(f"| {name} | `{value}` |" for name, value in in_use(settings).items())
    notes = "".join(f"\n- {note['text']}" for note in config.get("notes", []) if note["code"] != "calibration")
    operators = bool(config["operators"])
    requests = config.get("requests", 1)
    made = f"Made by gnndelete {config['gnndelete']} with `{config.get('method', '?')}`, for {requests:,} request"
    made += "s." if requests != 1 else "."
    return f"""# Deletion adapter for `{config["base_model"]}`

{made} {_layers(config, counts) if operators else _empty(config, counts)}

**Assurance: {assurance}, {config.get("weights", "base")} weights.** {explain(assurance, operators, config.get("counts"))}
{_aim(config)}

## Use

```python
unlearned = gd.load("this-folder", base_model, data=remaining_graph)
unlearned.model  # same class, same forward
```

Run the model on the **remaining graph**, from which the deleted elements are gone; the adapter does not remove them.
Base model fingerprint `{config["base_fingerprint"][:16]}`; another base model, or another graph, is refused.

## What this does not give

{_OPERATORS if operators else _NONE}{notes}

## Settings

| name | value |
|---|---|
{values}
"""


_OPERATORS = """- The base weights are unchanged and still hold the data; anyone who disables or strips the adapter has the old
  model back.
- The rows in the tensors name the neighbourhood of what was deleted. Which of them belonged together is not stored, but
  after a request for a single edge its two ends can be read off. Treat the folder as you treat the graph."""
_NONE = """- The model is the base model, and its weights still hold the data: on a graph that still has the deleted elements it
  answers as it always did.
- The folder names nothing that was deleted, only how many elements of each kind."""


def _empty(config: dict[str, Any], counts: str) -> str:
    done = what_left(config.get("counts", {}), "the graph was cut")
    return f"""**This adapter is empty:** {done} (**{counts}**),
nothing else. No operator was needed or requested, so the folder only ties the base model to the remaining graph."""


def _layers(config: dict[str, Any], counts: str) -> str:
    layers = "\n".join(
        f"| `{entry['layer'] or '(the model)'}` | {entry['call']} | {entry['width']} "
        f"| {sum(entry['sizes'])} of {entry['num_rows']} |"
        for entry in config["operators"]
    )
    return f"""It makes the base model forget **{counts}**
by operators behind these layers:

| layer | call | width | rows changed |
|---|---|---|---|
{layers}"""


def _aim(config: dict[str, Any]) -> str:
    aim = config.get("aim")
    if aim is None:
        return "**Aim: not stated.**"
    meaning = explain_aim(aim, config.get("lam"), config.get("details", {}).get("calibration"))
    return f"**Aim: {aim}.** {meaning[0].upper()}{meaning[1:]}."
