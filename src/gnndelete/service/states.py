"""The life of a request, as tables: states, what may be asked for in each, and who may ask.

received ─► validated ─► suppressed ─► regrown ─► destroyed ─► closed
    │           │            └► cancelled (undone)
duplicate   held, denied, cancelled, failed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnndelete.service.clock import DAY

Due = Literal["on-track", "due-soon", "overdue", "done"]

#: What each state means to whoever asked.
STATES: dict[str, str] = {
    "received": "The request came in.",
    "validated": "The request fits the model and waits to be suppressed.",
    "held": "The request waits for the approval of an operator.",
    "suppressed": "The served model answers as if it had not learned the elements; its old weights still hold them.",
    "regrown": "New weights that never saw the elements are served; the old ones are about to be destroyed.",
    "destroyed": "The old weights, their graph and their adapters were destroyed; the ids of the request are next.",
    "closed": "The key to the ids of the request was destroyed. Only the commitment, tombstones and the receipt remain.",
    "duplicate": "Everything it names was asked for before; the earlier request stands.",
    "denied": "An operator denied the request; nothing was changed.",
    "cancelled": "The request was cancelled or undone; the model answers as if it had never been made.",
    "failed": "A step failed for good; it can be tried again from there.",
}

#: The way of a request that meets no obstacle.
WAY = ("received", "validated", "suppressed", "regrown", "destroyed", "closed")

#: What each remaining step will do, for whoever reads it.
STEPS: dict[str, str] = {
    "validated": "Check the request against the model.",
    "suppressed": "Put an adapter in force, so that served answers no longer know the elements.",
    "regrown": "Replace the weights by new ones that never saw the elements.",
    "destroyed": "Destroy the old weights.",
    "closed": "Destroy the key to the ids of the request.",
}

#: States in which nothing more happens.
FINAL = frozenset({"closed", "duplicate", "denied", "cancelled"})

#: States in which what a request names is deleted, or will be.
STANDING = frozenset({"received", "validated", "held", "suppressed", "regrown", "destroyed", "closed", "failed"})

#: States in which the served model must not know the elements.
IN_FORCE = frozenset({"suppressed", "regrown", "destroyed", "closed"})

ROLES = ("requester", "operator", "auditor", "admin")


@dataclass(frozen=True)
class Action:
    """What can be asked for about a request.

    Args:
        before: The states in which it can be asked for.
        after: The state that follows; None where the worker decides or acts first.
        roles: Who may ask.
        said: What it does.
    """

    before: frozenset[str]
    after: str | None
    roles: frozenset[str]
    said: str


_OPERATE = frozenset({"operator", "admin"})

ACTIONS: dict[str, Action] = {
    "approve": Action(frozenset({"held"}), "validated", _OPERATE, "let a held request go on"),
    "deny": Action(frozenset({"validated", "held"}), "denied", _OPERATE, "refuse a request before it is suppressed"),
    "cancel": Action(
        frozenset({"validated", "held"}),
        "cancelled",
        _OPERATE | {"requester"},
        "withdraw a request before it is suppressed",
    ),
    "undo": Action(
        frozenset({"suppressed"}), None, _OPERATE | {"requester"}, "bring the elements back within the window for it"
    ),
    "retry": Action(frozenset({"failed"}), None, _OPERATE, "try the failed step again"),
}

#: Reasons why a request is held, in words.
HELD: dict[str, str] = {
    "asked": "The caller asked that it be held.",
    "many-of-one-origin": "One origin asks to forget an unusually large part of the graph.",
    "damage": "The predicted damage lies far above that of random requests of its size.",
    "removes-class": "No training example of a class would be left.",
    "removes-relation": "No edge of a relation would be left.",
}

#: Steps that the worker does, and the state that a request is in before each.
STEP_FROM = {
    "suppress": "validated",
    "undo": "suppressed",
    "regrow": "suppressed",
    "destroy": "regrown",
    "close": "destroyed",
}


def remaining(state: str) -> list[str]:
    """The steps that a request still has before it.

    >>> remaining("suppressed")
    ['regrown', 'destroyed', 'closed']
    """
    if state in FINAL:
        return []
    known = state if state in WAY else "received" if state == "failed" else "validated"
    return list(WAY[WAY.index(known) + 1 :])


def due_status(state: str, due: float, now: float, soon: float = 5 * DAY) -> Due:
    """Whether a request will be done in time; it is done when its weights are new.

    >>> due_status("suppressed", due=10 * DAY, now=0), due_status("suppressed", due=0, now=1)
    ('on-track', 'overdue')
    """
    if state in FINAL or state in ("regrown", "destroyed"):
        return "done"
    if now > due:
        return "overdue"
    return "due-soon" if due - now <= soon else "on-track"
