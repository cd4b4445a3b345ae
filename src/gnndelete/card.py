"""The card of an adapter: what a reader who finds the folder must know before using or trusting it."""

from __future__ import annotations

from typing import Any

from gnndelete.assurance import explain, explain_aim


def worded(kind: str, count: int) -> str:
    """So many elements of a kind, in words.

    >>> worded("edges", 1), worded("features", 1200)
    ('1 edge', 'features of 1,200 nodes')
    """
    if kind == "features":
        return f"features of {count:,} node{'s' * (count > 1)}"
    return f"{count:,} {kind if count > 1 else kind.removesuffix('s')}"


def card(config: dict[str, Any]) -> str:
    """The README.md beside an adapter's tensors."""
    settings = config.get("settings", {})
    counts = ", ".join(worded(kind, count) for kind, count in config.get("counts", {}).items()) or "nothing"
    assurance = config.get("assurance", "approximate")
    values = "\n".join(f"| {name} | `{value}` |" for name, value in settings.items())
    notes = "\n".join(f"- {note}" for note in config.get("notes", []))
    layers = "\n".join(
        f"| `{place['layer'] or '(the model)'}` | {place['call']} | {place['width']} "
        f"| {sum(place['sizes'])} of {place['num_rows']} |"
        for place in config["operators"]
    )
    return f"""# Deletion adapter for `{config["base_model"]}`

Made by gnndelete {config["gnndelete"]} with `{config.get("method", "?")}`. It makes the base model forget **{counts}**
in {config.get("requests", 1)} request(s).

**Assurance: {assurance}.** {explain(assurance, adapter=bool(config["operators"]))}
{_aim(config)}

| layer | call | width | rows changed |
|---|---|---|---|
{layers}

## Use

```python
import gnndelete as gd
unlearned = gd.load("this-folder", base_model, data=remaining_graph)
unlearned.model  # same class, same forward
```

Run the model on the **remaining graph**, from which the deleted elements are gone; the adapter does not remove them.
Base model fingerprint `{config["base_fingerprint"][:16]}`; another base model, or another graph, is refused.

## What this does not give

- The base weights are unchanged and still hold the data; whoever disables or strips the adapter has the old model back.
- The rows in the tensors name the neighbourhood of what was deleted. Which of them belonged together is not stored, but
  after a request for a single edge its two ends can be read off. Treat the folder as you treat the graph.
{notes}

## Settings

| name | value |
|---|---|
{values}
"""


def _aim(config: dict[str, Any]) -> str:
    aim = config.get("aim")
    if aim is None:
        return "**Aim: not stated.**"
    meaning = explain_aim(aim, config.get("lam"), config.get("details", {}).get("calibration"))
    return f"**Aim: {aim}.** {meaning[0].upper()}{meaning[1:]}."
