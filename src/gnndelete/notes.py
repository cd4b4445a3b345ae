"""`Note`: something a user must know about a result. Programs read its code, people its text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """One remark about a result.

    Args:
        code: A short name in kebab-case that never changes, such as ``"calibration"``.
        text: One or two sentences for people. They may be reworded at any time.

    >>> note = Note("isolated-nodes", "3 nodes lost their last edge.")
    >>> note.code, str(note)
    ('isolated-nodes', '3 nodes lost their last edge.')
    """

    code: str
    text: str

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, str]:
        """Return the note as plain values, for JSON."""
        return {"code": self.code, "text": self.text}
