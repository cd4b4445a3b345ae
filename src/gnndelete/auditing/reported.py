"""Whether only the reported scores of the deleted pairs were moved: representations that changed move other pairs too."""

from __future__ import annotations

import torch

from gnndelete.auditing.case import Case
from gnndelete.auditing.queries import with_base
from gnndelete.auditing.rings import some
from gnndelete.tasks import LinkPrediction

#: Pairs that are asked, and the least share of the deleted pairs' movement that pairs beside them must show.
PAIRS, SHARE = 2000, 0.02
#: Movement of deleted pairs, in spreads of the scores, below which nothing was moved at all.
MOVED = 0.02


def only_reported(case: Case) -> str | None:
    """A sentence where deleted pairs answer differently from the base model on the same graph, and pairs beside them do not.

    A pair beside a deleted one shares an end with it; its other end is any node. A map of representations changes what
    is said of both; an answer that was written over changes one of them.
    """
    if not isinstance(case.task, LinkPrediction) or not case.asked_edges.size(1):
        return None
    pairs = some(case.asked_edges.cpu(), PAIRS, case.generator(11))
    other = case.task.random_targets(case.original, pairs.size(1), case.generator(12))
    beside = torch.stack([*pairs[:-1], other])
    base = with_base(case, case.after.graph)
    moved = [case.after.predict(part).double().cpu() - base.predict(part).double().cpu() for part in (pairs, beside)]
    if not all(bool(torch.isfinite(part).all()) for part in moved):
        return None
    spread = float(base.predict(beside).double().std()) if beside.size(1) > 1 else 1.0
    own, side = (float(part.abs().mean()) for part in moved)
    if own <= MOVED * spread or side >= SHARE * own:
        return None
    return (
        f"Only the reported scores of the deleted pairs were moved (by {own:.3g} on average, pairs beside them by {side:.3g}): "
        "what the model knows of their ends is unchanged."
    )
