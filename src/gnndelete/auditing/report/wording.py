"""Numbers and keys of an audit as a reader meets them: three digits, thousands apart, a dash for what was not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnndelete.graph.kinds import in_words

DASH = "–"

KIND_NAMES = {"remaining": "remaining", "unseen": "unseen", "deleted": "deleted", "random": "random"}

QUERIES = {
    "served": "as served",
    "old_id": "presented again, old id",
    "new_id": "presented again, new id",
}

#: The verdict of one test in words that claim no more than it does; verdicts that are not here say it themselves.
VERDICTS = {"indistinguishable": "no difference seen"}


def number(value: Any, digits: int = 3) -> str:
    """A value as text.

    >>> number(0.51234), number(1189), number(None), number(0.00002), number(True)
    ('0.512', '1,189', '–', '2.0e-05', 'yes')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value and abs(value) < 0.5 * 10**-digits:
            return f"{value:.1e}"
        return f"{value:,.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(number(item, digits) for item in value) or DASH
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {number(item, digits)}" for key, item in value.items()) or DASH
    return str(value)


def share(value: float | None) -> str:
    """A share as a percentage.

    >>> share(0.314), share(None)
    ('31.4%', '–')
    """
    return DASH if value is None else f"{100 * value:.1f}%"


def seconds(value: float | None) -> str:
    """A time span.

    >>> seconds(0.0052), seconds(6.1), seconds(None)
    ('5.2 ms', '6.10 s', '–')
    """
    if value is None:
        return DASH
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"


def ratio(value: float | None) -> str:
    """How many times.

    >>> ratio(122.04), ratio(1.213)
    ('122×', '1.21×')
    """
    return DASH if value is None else f"{value:,.0f}×" if value >= 10 else f"{value:.2f}×"


def interval(test: Mapping[str, Any] | None) -> str:
    r"""The AUC of a unseen test with its 95% interval, which no line break parts.

    >>> interval({"auc": 0.512, "low": 0.493, "high": 0.531})
    '0.512 [0.493,\xa00.531]'
    """
    if not test or test.get("auc") is None:
        return DASH
    if test.get("low") is None or test.get("high") is None:
        return number(test["auc"])
    return f"{number(test['auc'])} [{number(test['low'])},\u00a0{number(test['high'])}]"


def label(key: str) -> str:
    """A key as words.

    >>> label("share_fell"), label("auroc")
    ('share fell', 'AUROC')
    """
    words = key.replace("_", " ")
    return words.upper() if words in {"auroc", "auprc", "auc"} else words


def counts(request: Mapping[str, Any]) -> str:
    """What was asked to be forgotten.

    >>> counts({"counts": {"edges": 1189, "nodes": 1}})
    '1,189 edges and 1 node'
    """
    return " and ".join(in_words(request.get("counts", {}))) or "nothing"


def of_deleted(part: Mapping[str, Any]) -> str:
    """Which elements stand for what was deleted.

    >>> of_deleted({"elements": "deleted nodes", "graph": "old_id"}), of_deleted({})
    ('deleted nodes, presented again,', 'deleted elements')
    """
    return f"{part.get('elements', 'deleted elements')}{', presented again,' * (part.get('graph') == 'old_id')}"


def reason(section: Mapping[str, Any] | None) -> str:
    """Why a section was not measured; empty where it was.

    >>> reason({"available": False, "reason": "No unseen edges."}), reason({"available": True})
    ('No unseen edges.', '')
    """
    if section is None:
        return "This was not measured."
    if section.get("available", True):
        return ""
    return sentence(str(section.get("reason") or "this was not measured"))


def sentence(words: str) -> str:
    """Words as a sentence: a capital first, a full stop last.

    >>> sentence("no test data"), sentence("")
    ('No test data.', '')
    """
    said = words.strip()
    return f"{said[:1].upper()}{said[1:]}{'' if said.endswith(('.', '?', '!')) else '.'}" if said else ""
