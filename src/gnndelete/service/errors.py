"""What the service refuses: a code for programs, one sentence, the way out, and the status of the HTTP answer."""

from __future__ import annotations

from typing import Any

from gnndelete.errors import RequestError


class ServiceError(RequestError):
    """A request to the service that is refused; nothing was changed.

    Args:
        code: A short name in kebab-case that never changes.
        why: What is wrong. It never holds an id of the customer's.
        remedy: What to do about it.
        status: The status of the HTTP answer.
        **facts: Further plain values for programs.
    """

    def __init__(self, code: str, why: str, remedy: str = "", status: int = 409, **facts: Any) -> None:
        super().__init__(why, remedy)
        self.code, self.status, self.facts = code, status, facts


def not_found() -> ServiceError:
    """The answer about what does not exist or may not be seen: the two cannot be told apart."""
    return ServiceError(
        "not-found", "there is nothing here, or this key may not see it", "check the address and the key", 404
    )
