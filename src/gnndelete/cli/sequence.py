"""How the earlier requests of a run were served, kept in its state: a further one goes on like that, or says what changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnndelete.cli.settings import Settings

if TYPE_CHECKING:
    from gnndelete.methods import Method

_SERVED, _KEPT = "served", ("aim", "lam")


def remember(state: bytes, method: Method) -> bytes:
    """The state of a run with the method of its latest request, and what that aimed at."""
    kept = {name: value for name, value in method.settings().items() if name in _KEPT}
    return (json.dumps({**json.loads(state), _SERVED: {"method": method.name, **kept}}) + "\n").encode()


def go_on(settings: Settings, state: Path) -> tuple[Settings, str]:
    """The settings with the aim of earlier requests where none is given, and a sentence where something is not as before.

    All requests of a run are solved together, so that another aim would be another one for what was deleted before.
    """
    earlier = _served(state)
    if not earlier:
        return settings, ""
    method, given = settings.method, settings.method.parameters
    if method.name != earlier["method"]:
        return (
            settings,
            f"all requests of this run are now served with '{method.name}', no longer with '{earlier['method']}'",
        )
    kept = {name: earlier[name] for name in _KEPT if name in earlier and name not in given}
    if "aim" in given:
        kept.pop("lam", None)  # a strength that was given for another aim
    said = []
    if kept.get("aim", "retrained") != "retrained":
        said.append(f"aim {kept['aim']} as for the earlier requests")
    if kept.get("lam", "auto") != "auto":
        said.append(f"lam {kept['lam']:g} as for the earlier requests")
    changed = [
        f"{name} {given[name]} instead of {earlier[name]}, for the earlier requests too"
        for name in _KEPT
        if name in given and name in earlier and given[name] != earlier[name]
    ]
    return settings.filled("method", kept), "; ".join(said + changed)


def _served(state: Path) -> dict[str, Any]:
    try:
        served = json.loads(state.read_text()).get(_SERVED)
    except (OSError, ValueError, AttributeError):  # a state that cannot be read is refused where it is needed
        return {}
    return served if isinstance(served, dict) and "method" in served else {}
