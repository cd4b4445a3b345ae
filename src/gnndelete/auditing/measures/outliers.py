"""Whether the touched nodes, and the deleted edges, stand out among the others of the same model's representations.

The paper's appendix gives the share of edges that an outlier detector calls regular, for 2.5% of DBLP's edges and GCN:
Retrain .746, GradAscent .503, D2D .517, GraphEraser .563, GraphEditor .642, CertUnlearn .625, GNNDelete .710. It names
neither the detector nor what it was fitted on, so shares compare between the models of one audit, not with that table.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from sklearn.ensemble import IsolationForest
from torch import Tensor

from gnndelete.auditing.case import Case
from gnndelete.auditing.rings import rows, some, touched
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.validation import count_nodes

#: Share of the rows it was fitted on that the detector calls outliers.
RATE = 0.05

#: Rows the detector is fitted on and rows of each kind that it judges; fewer than FEWEST untouched ones say nothing.
LIMIT, FEWEST = 2_000, 40

WHAT = (
    "An isolation forest, fitted for each model on rows of its own that the deletion does not touch, calls 5% of those "
    "outliers. 'touched' is the share it calls outliers among nodes that lost an edge, features or a label, 'others' among "
    "further untouched nodes. "
    "'edges' is the paper's form: the share called regular, for deleted edges and further remaining ones, each edge as the "
    "product of its ends. Touched nodes have more edges than others, so compare with 'before' and the reference."
)


_VERDICTS = {
    "more": "That is more than in {base}: the deletion can be seen in the representations.",
    "fewer": "That is fewer than in {base}: touched nodes were pulled to the middle, which can be recognised as well.",
    "alike": "That is not clearly different from {base}.",
}


def outliers(case: Case) -> dict[str, Any]:
    """Shares of outliers before, after and in the reference; models that keep no representations are left out."""
    nodes = count_nodes(case.original)
    z = {name: found for name, subject in case.subjects.items() if (found := rows(subject, nodes)) is not None}
    if "after" not in z:
        return _not(
            f"method '{case.unlearned.method}' gives no finite representation of every node; a method that keeps the "
            "user's model, whose forward returns one row per node, does"
        )
    near, far = touched(case)
    if not near.numel():
        return _not("no node that is left lost an edge, features or a label, so there is nothing that could stand out")
    if far.numel() < FEWEST:
        return _not(f"the deletion leaves only {far.numel()} nodes untouched, too few to say what is regular")
    near = some(near, LIMIT, case.generator(1))
    far = some(far, 2 * LIMIT, case.generator(2))
    models = {}
    for name, h in z.items():
        fitted, others = _halves(_numpy(h, far))
        flag = _detector(fitted, case.seed)
        models[name] = {"touched": flag(_numpy(h, near)), "others": flag(others)}
    result: dict[str, Any] = {
        "available": True,
        "detector": "isolation forest",
        "rate": RATE,
        "what": WHAT,
        "nodes": {"count": near.numel(), **models},
        "edges": _edges(case, z),
    }
    base = next((name for name in ("reference", "before") if name in models), None)
    result["against"] = base
    result["reading"] = None if base is None else _reading(models["after"], models[base], near.numel())
    result["sentence"] = _sentence(result)
    return result


def _not(reason: str) -> dict[str, Any]:
    return {"available": False, "reason": reason}


def _edges(case: Case, z: dict[str, Tensor]) -> dict[str, Any] | None:
    """The paper's form: the share of deleted edges, and of remaining ones, that the detector calls regular."""
    gone, left = ends_of(case.deletion.edges), ends_of(case.some_remaining(2 * LIMIT, offset=3))
    if not gone.size(1) or left.size(1) < FEWEST:
        return None
    gone = some(gone, LIMIT, case.generator(4))
    shares: dict[str, Any] = {"count": gone.size(1)}
    for name, h in z.items():
        fitted, others = _halves(_products(h, left))
        flag = _detector(fitted, case.seed)
        shares[name] = {"deleted": 1 - flag(_products(h, gone)), "remaining": 1 - flag(others)}
    return shares


def _products(h: Tensor, edges: Tensor) -> np.ndarray:
    edges = edges.to(h.device)
    return (h[edges[0]] * h[edges[1]]).float().cpu().numpy()


def _numpy(h: Tensor, nodes: Tensor) -> np.ndarray:
    return h[nodes.to(h.device)].float().cpu().numpy()


def _halves(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = len(sample) // 2
    return sample[:middle], sample[middle:]


def _detector(regular: np.ndarray, seed: int) -> Any:
    forest = IsolationForest(contamination=RATE, random_state=seed).fit(regular)

    def flag(sample: np.ndarray) -> float:
        return float((forest.predict(sample) < 0).mean())

    return flag


def _reading(after: dict[str, float], base: dict[str, float], count: int) -> str:
    """More or fewer touched nodes stand out than in the base model: by over two standard errors, else "alike"."""
    spread = sum(max(share * (1 - share), 1 / count) for share in (after["touched"], base["touched"])) / count
    change = after["touched"] - base["touched"]
    return "alike" if abs(change) <= 2 * sqrt(spread) else "more" if change > 0 else "fewer"


def _sentence(result: dict[str, Any]) -> str:
    nodes, base = result["nodes"], result["against"]
    said = f"{nodes['after']['touched']:.1%} of the touched nodes stand out after the deletion"
    if "before" in nodes:
        said += f", {nodes['before']['touched']:.1%} before it"
    if "reference" in nodes:
        said += f", {nodes['reference']['touched']:.1%} in the retrained model"
    said += f"; of untouched nodes {nodes['after']['others']:.1%} do."
    if base is None:
        return said
    named = "the retrained model" if base == "reference" else "the model before the deletion"
    return f"{said} {_VERDICTS[result['reading']].format(base=named)}"
