"""A griffe extension: the examples in docstrings become code blocks, where Markdown would take ``>>>`` for quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# From a line that starts with a prompt to the next empty line, or to the end.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class Doctests(Extension):
    """Fence every example as an interactive session."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
