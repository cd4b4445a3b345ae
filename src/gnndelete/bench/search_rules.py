"""Versions of the search for lam: rows that an older search computed are computed again.

The same settings give other numbers after the search has changed. Raise the version of a task and an aim with every change
to `gnndelete.methods.gnndelete` or `gnndelete.metrics` that changes numbers.
"""

from __future__ import annotations

from gnndelete.methods import GNNDelete, Method

#: Version by task and aim, where it is not the first. ``"embeddings"``: links scored by trained embeddings of nodes.
#: 2 leaves out unseen edges that the deletion moves, and budget that buys next to nothing; for nodes, strata are adaptive.
#: 3 adjusts scores of edges for their surroundings, and resets embeddings of isolated nodes. 4 and 5 had peers, 5 and 6 not.
VERSIONS: dict[tuple[str, str], int] = {
    ("link", "retrained"): 5,
    ("link", "nonexistent"): 2,
    ("node", "retrained"): 2,
    ("node", "nonexistent"): 2,
    ("embeddings", "retrained"): 6,
}


def search_version(method: Method, task: str, embeddings: bool = False) -> int:
    """The version of what a method decides by itself.

    Args:
        method: The method with its settings.
        task: The name of the task.
        embeddings: Whether the model has trained embeddings of nodes.

    Returns:
        1 where nothing is searched.

    >>> search_version(GNNDelete(lam=0.5), "link"), search_version(GNNDelete(), "link") > 1
    (1, True)
    """
    if not isinstance(method, GNNDelete):
        return 1
    if embeddings and task == "link" and method.resets_embeddings:
        return VERSIONS["embeddings", method.aim]
    return VERSIONS.get((task, method.aim), 1) if method.lam == "auto" else 1
