"""The card of an adapter: what a reader who finds the folder must know before using or trusting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnndelete.assurance import explain, explain_aim, taken


def worded(kind: str, count: int) -> str:
    """So many elements of a kind, in words.

    >>> worded("edges", 1), worded("features", 1200)
    ('1 edge', 'features of 1,200 nodes')
    """
    if kind == "features":
        return f"features of {count:,} node{'s' * (count > 1)}"
    return f"{count:,} {kind if count > 1 else kind.removesuffix('s')}"


def in_use(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that play no part beside the others.

    >>> in_use({"solver": "closed-form", "ridge": 1e-6, "epochs": 1500, "lr": 1e-3})
    {'solver': 'closed-form', 'ridge': 1e-06}
    """
    unused = ("epochs", "lr") if settings.get("solver") == "closed-form" else ()  # of the other solver
    return {name: value for name, value in settings.items() if name not in unused}


def card(config: dict[str, Any]) -> str:
    """The README.md beside an adapter's tensors."""
    settings = config.get("settings", {})
    counts = ", ".join(worded(kind, count) for kind, count in config.get("counts", {}).items()) or "nothing"
    assurance = config.get("assurance", "approximate")
    values = "\n".join(f"| {name} | `{value}` |" for name, value in in_use(settings).items())
    said = (config.get("details", {}).get("calibration") or {}).get("sentence")  # beside the aim already
    notes = "".join(f"\n- {note}" for note in config.get("notes", []) if note != said)
    operators = bool(config["operators"])
    made = f"Made by gnndelete {config['gnndelete']} with `{config.get('method', '?')}`, for {_requests(config)}."
    return f"""# Deletion adapter for `{config["base_model"]}`

{made} {_layers(config, counts) if operators else _empty(config, counts)}

**Assurance: {assurance}.** {explain(assurance, operators, config.get("counts"))}
{_aim(config)}

## Use

```python
import gnndelete as gd
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


_OPERATORS = """- The base weights are unchanged and still hold the data; whoever disables or strips the adapter has the old model
  back.
- The rows in the tensors name the neighbourhood of what was deleted. Which of them belonged together is not stored, but
  after a request for a single edge its two ends can be read off. Treat the folder as you treat the graph."""
_NONE = """- The model is the base model, and its weights still hold the data: on a graph that still has the deleted elements it
  answers as it always did.
- The folder names nothing that was deleted, only how many elements of each kind."""


def _empty(config: dict[str, Any], counts: str) -> str:
    done = taken(config.get("counts", {}), "the graph was cut")
    return f"""**This adapter is empty:** {done} (**{counts}**),
nothing else. No operator was needed or asked for, so that the folder only ties the base model to the remaining graph."""


def _layers(config: dict[str, Any], counts: str) -> str:
    layers = "\n".join(
        f"| `{place['layer'] or '(the model)'}` | {place['call']} | {place['width']} "
        f"| {sum(place['sizes'])} of {place['num_rows']} |"
        for place in config["operators"]
    )
    return f"""It makes the base model forget **{counts}**
by operators behind these layers:

| layer | call | width | rows changed |
|---|---|---|---|
{layers}"""


def _requests(config: dict[str, Any]) -> str:
    count = config.get("requests", 1)
    return f"{count:,} request{'s' * (count != 1)}"


def _aim(config: dict[str, Any]) -> str:
    aim = config.get("aim")
    if aim is None:
        return "**Aim: not stated.**"
    meaning = explain_aim(aim, config.get("lam"), config.get("details", {}).get("calibration"))
    return f"**Aim: {aim}.** {meaning[0].upper()}{meaning[1:]}."
