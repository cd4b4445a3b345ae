"""What the deletion cost, beside training again."""

from __future__ import annotations

from typing import Any

from gnndelete.auditing.case import Case
from gnndelete.result import Unlearned


def cost(case: Case) -> dict[str, Any]:
    """Seconds, parameters and peak memory of the deletion and of the reference, and how often one goes into the other."""
    own = _of(case.unlearned)
    other = None if case.reference is None or case.reference.seconds <= 0 else _of(case.reference)
    ratio = None if other is None or not own["seconds"] else other["seconds"] / own["seconds"]
    sentence = f"The deletion took {own['seconds']:.3g} s, calibration included."
    if not own["parameters"]:
        sentence = f"The deletion took {own['seconds']:.3g} s: it cut the graph and changed no weight."
    if ratio is not None and other is not None:
        sentence += (
            f" Training again took {other['seconds']:.3g} s on the same kind of device: {ratio:.0f} times as long."
        )
    return {"available": True, "deletion": own, "reference": other, "ratio": ratio, "sentence": sentence}


def _of(unlearned: Unlearned) -> dict[str, Any]:
    return {"seconds": unlearned.seconds, "parameters": unlearned.parameters, "peak_mb": unlearned.peak_mb}
