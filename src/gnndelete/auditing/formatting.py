"""Numbers of an audit as text: three digits, thousands separated, a dash for what was not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: Stands for a value that was not measured.
DASH = "–"

#: The graphs on which a model can be asked about deleted elements, as headings.
QUERY_TITLES = {
    "served": "as served",
    "old_id": "presented again, old id",
    "new_id": "presented again, new id",
}


def number(value: Any, digits: int = 3) -> str:
    """Any value as text.

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


def close(*values: float) -> tuple[str, ...]:
    """Numbers with so many digits that they differ where they are not the same, three at least.

    >>> close(0.93, 0.95), close(0.50004, 0.5)
    (('0.930', '0.950'), ('0.50004', '0.50000'))
    """
    digits = next((n for n in (3, 4, 5) if len({round(value, n) for value in values}) == len(set(values))), 5)
    return tuple(f"{value:.{digits}f}" for value in values)


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


def ratio(value: float) -> str:
    """A factor.

    >>> ratio(122.04), ratio(1.213)
    ('122×', '1.21×')
    """
    return f"{value:,.0f}×" if value >= 10 else f"{value:.2f}×"


def label(key: str) -> str:
    """The name of a score as words.

    >>> label("macro_f1"), label("auroc")
    ('macro f1', 'AUROC')
    """
    words = key.replace("_", " ")
    return words.upper() if words in {"auroc", "auprc", "auc", "f1", "mrr", "ndcg@10"} else words


def sentence(words: str) -> str:
    """Words as a sentence: a capital first, a full stop last.

    >>> sentence("no test data"), sentence("")
    ('No test data.', '')
    """
    text = words.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}" if text else ""


def deleted_title(elements: str, graph: str) -> str:
    """Which elements stand for what was deleted.

    >>> deleted_title("deleted nodes", "old_id"), deleted_title("deleted edges", "served")
    ('deleted nodes (presented again)', 'deleted edges')
    """
    return f"{elements} (presented again)" if graph == "old_id" else elements


def verdict_words(code: str) -> str:
    """A verdict's code in words that claim no more than a test does."""
    return "no difference seen" if code == "indistinguishable" else code
