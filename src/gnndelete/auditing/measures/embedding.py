"""Figure data: where the rows near the deletion lie before and after it, in two principal components."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from gnndelete.auditing.case import Case
from gnndelete.auditing.rings import rings, rows, some
from gnndelete.graph.validation import count_nodes

RINGS = ("ring 0", "ring 1", "elsewhere")


def embedding(case: Case, limit: int = 400) -> dict[str, Any]:
    """Up to ``limit`` points of each ring, the same nodes in the same random order before and after.

    One projection is fitted on both together, so that a point's two places show how far its node moved.
    """
    nodes = count_nodes(case.original)
    z = {name: rows(case.subjects[name], nodes) for name in ("before", "after") if name in case.subjects}
    before, after = z.get("before"), z.get("after")
    if before is None or after is None:
        missing = "before" if before is None else "after"
        return _not(f"the model {missing} the deletion gives no finite representation of every node to draw")
    if before.size(1) != after.size(1):
        return _not(f"the models' representations have different widths ({before.size(1)} and {after.size(1)})")
    sample = [some(ring, limit, case.generator(10 + index)) for index, ring in enumerate(rings(case))]
    points = {
        name: [h[ring.to(h.device)].double().cpu().numpy() for ring in sample]
        for name, h in (("before", before), ("after", after))
    }
    together = np.concatenate([part for parts in points.values() for part in parts])
    if not np.ptp(together, axis=0).any():  # no spread, so no directions of spread either
        return _not("all representations are the same, so there is nothing to draw")
    pca = PCA(n_components=min(2, *together.shape), svd_solver="full").fit(together)
    return {
        "available": True,
        **{
            name: {ring: _flat(pca, part) for ring, part in zip(RINGS, parts, strict=True)}
            for name, parts in points.items()
        },
        "explained": [round(float(ratio), 4) for ratio in pca.explained_variance_ratio_],
    }


def _not(reason: str) -> dict[str, Any]:
    return {"available": False, "reason": reason}


def _flat(pca: PCA, part: np.ndarray) -> list[list[float]]:
    if not len(part):
        return []
    flat = pca.transform(part)
    flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))  # representations of width 1 lie on a line
    return [[round(float(x), 4), round(float(y), 4)] for x, y in flat]
