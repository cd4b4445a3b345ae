"""Whether touched nodes and deleted edges stand out among the other rows of the same model.

The paper's appendix gives the share of edges that an outlier detector calls regular, for 2.5% of DBLP's edges and GCN:
Retrain .746, GradAscent .503, D2D .517, GraphEraser .563, GraphEditor .642, CertUnlearn .625, GNNDelete .710. It names
neither the detector nor what it was fitted on, so shares compare between the models of one audit, not with that table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from sklearn.ensemble import IsolationForest
from torch import Tensor

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Section, Table
from gnndelete.auditing.samples import node_rows, touched
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.validation import count_nodes
from gnndelete.tasks.supervision import distinct_positives

#: Share of the rows it was fitted on that the detector calls outliers.
OUTLIER_RATE = 0.05
#: Rows the detector is fitted on, and rows of each kind that it judges.
ROW_LIMIT = 2_000
#: Fewer untouched nodes or remaining edges than this do not show what is regular.
ROW_MINIMUM = 40

WHAT = (
    "For each model an isolation forest is fitted on rows that the deletion does not touch; it calls 5% of those outliers. "
    "Touched nodes lost an edge, features or a label. For edges the paper's form is given: the share called regular, each edge "
    "as the product of its two rows. Touched nodes have more edges than others, so compare with 'before' and the reference."
)

_READINGS = {
    "more": "That is more than in {base}: the deletion can be seen in the representations.",
    "fewer": "That is fewer than in {base}: touched nodes were pulled to the middle, which can be recognised as well.",
    "alike": "That is not clearly different from {base}.",
}


@dataclass(frozen=True)
class NodeShares:
    """Shares of nodes that the detector calls outliers."""

    touched: float
    others: float


@dataclass(frozen=True)
class EdgeShares:
    """Shares of edges that the detector calls regular."""

    deleted: float
    remaining: float


@dataclass(frozen=True, kw_only=True)
class OutlierNodes(PerModel[NodeShares]):
    """The shares of each model, over ``count`` touched nodes."""

    count: int


@dataclass(frozen=True, kw_only=True)
class OutlierEdges(PerModel[EdgeShares]):
    """The shares of each model, over ``count`` deleted edges."""

    count: int


@dataclass(frozen=True, kw_only=True)
class OutliersSection(Section):
    """What the detector says of nodes and edges.

    Args:
        nodes: Touched nodes.
        edges: Deleted edges; None where there are none.
        against: The model that ``after`` is compared with: ``"reference"``, or else ``"before"``.
        reading: ``"more"`` or ``"fewer"`` touched nodes stand out than there, or ``"alike"``.
        detector: The name of the detector.
        rate: The share of its own examples that it calls outliers.
    """

    nodes: OutlierNodes
    edges: OutlierEdges | None = None
    against: str | None = None
    reading: str | None = None
    detector: str = "isolation forest"
    rate: float = OUTLIER_RATE

    def tables(self, names: Names) -> Iterable[Table]:
        listed: list[tuple[str, PerModel[Any], dict[str, str]]] = [
            ("nodes called outliers", self.nodes, {"touched": "touched nodes", "others": "untouched nodes"})
        ]
        if self.edges is not None:
            kinds = {"deleted": "deleted edges", "remaining": "remaining edges"}
            listed.append(("edges called regular", self.edges, kinds))
        for title, models, kinds in listed:
            rows = tuple(
                (words, *(share(getattr(models.get(name), kind, None)) for name in names))
                for kind, words in kinds.items()
            )
            yield Table((title, *names.values()), rows)


class Outliers(Measure):
    """Shares of outliers before, after and in the reference; models that keep no representations are left out."""

    name: ClassVar[str] = "outliers"
    title: ClassVar[str] = "Outliers among the embeddings"

    def run(self, case: Case) -> OutliersSection:
        nodes = count_nodes(case.original)
        z = {name: found for name, subject in case.subjects.items() if (found := node_rows(subject, nodes)) is not None}
        if "after" not in z:
            raise NotMeasuredError(
                f"method '{case.unlearned.method}' gives no finite representation of every node; a method that keeps the "
                "user's model, whose forward returns one row per node, does"
            )
        near, far = touched(case)
        if not near.numel():
            raise NotMeasuredError("no remaining node lost an edge, features or a label, so nothing could stand out")
        if far.numel() < ROW_MINIMUM:
            raise NotMeasuredError(
                f"the deletion leaves only {far.numel()} nodes untouched, too few to show what is regular"
            )
        near, far = case.sample(near, ROW_LIMIT, 1), case.sample(far, 2 * ROW_LIMIT, 2)
        models = {}
        for name, h in z.items():
            fitted, others = _halves(_numpy(h, far))
            outliers = _detector(fitted, case.seed)
            models[name] = NodeShares(touched=outliers(_numpy(h, near)), others=outliers(others))
        base = next((name for name in ("reference", "before") if name in models), None)
        section = OutliersSection(
            nodes=OutlierNodes(**models, count=near.numel()),
            edges=_edges(case, z),
            what=WHAT,
            against=base,
            reading=None if base is None else _reading(models["after"].touched, models[base].touched, near.numel()),
        )
        return replace(section, sentence=_sentence(section))


def _edges(case: Case, z: dict[str, Tensor]) -> OutlierEdges | None:
    """The paper's form: the share of deleted edges, and of remaining ones, that the detector calls regular."""
    edges = case.task.learned_once(case.remaining) if case.task.pairwise else distinct_positives(case.remaining)
    gone, left = ends_of(case.deletion.edges), ends_of(case.sample(edges, 2 * ROW_LIMIT, 3))
    if not gone.size(1) or left.size(1) < ROW_MINIMUM:
        return None
    gone = case.sample(gone, ROW_LIMIT, 4)
    shares = {}
    for name, h in z.items():
        fitted, others = _halves(_products(h, left))
        outliers = _detector(fitted, case.seed)
        shares[name] = EdgeShares(deleted=1 - outliers(_products(h, gone)), remaining=1 - outliers(others))
    return OutlierEdges(**shares, count=gone.size(1))


def _products(h: Tensor, edges: Tensor) -> np.ndarray:
    edges = edges.to(h.device)
    return (h[edges[0]] * h[edges[1]]).float().cpu().numpy()


def _numpy(h: Tensor, nodes: Tensor) -> np.ndarray:
    return h[nodes.to(h.device)].float().cpu().numpy()


def _halves(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = len(sample) // 2
    return sample[:middle], sample[middle:]


def _detector(regular: np.ndarray, seed: int) -> Callable[[np.ndarray], float]:
    """A function from rows to the share of outliers among them."""
    forest = IsolationForest(contamination=OUTLIER_RATE, random_state=seed).fit(regular)
    return lambda sample: float((forest.predict(sample) < 0).mean())


def _reading(after: float, base: float, count: int) -> str:
    """Whether more or fewer touched nodes stand out than in the base model, by over two standard errors."""
    variance = sum(max(share * (1 - share), 1 / count) for share in (after, base)) / count
    change = after - base
    return "alike" if abs(change) <= 2 * sqrt(variance) else "more" if change > 0 else "fewer"


def _sentence(section: OutliersSection) -> str:
    nodes = section.nodes
    assert nodes.after is not None
    text = f"{nodes.after.touched:.1%} of the touched nodes stand out after the deletion"
    text += f", {nodes.before.touched:.1%} before it" if nodes.before else ""
    text += f", {nodes.reference.touched:.1%} in the retrained model" if nodes.reference else ""
    text += f"; of untouched nodes {nodes.after.others:.1%} do."
    if section.against is None or section.reading is None:
        return text
    base = "the retrained model" if section.against == "reference" else "the model before the deletion"
    return f"{text} {_READINGS[section.reading].format(base=base)}"
