"""Whether touched nodes and deleted edges stand out among the other rows of the same model, as in the paper's appendix.

It gives the share of edges that an outlier detector calls regular, for 2.5% of DBLP's edges and GCN: Retrain .746,
GradAscent .503, D2D .517, GraphEraser .563, GraphEditor .642, CertUnlearn .625, GNNDelete .710. It names neither the detector
nor what it was fitted on, so shares compare between the models of one audit, not with that table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from sklearn.ensemble import IsolationForest
from torch import Tensor

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, PerModel, Section, Table, row
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


@dataclass(frozen=True, kw_only=True)
class OutliersSection(Section):
    """Shares of nodes called outliers, and of edges called regular; ``counts`` are the touched nodes and deleted edges."""

    touched: PerModel[float]
    untouched: PerModel[float]
    deleted: PerModel[float] | None = None
    remaining: PerModel[float] | None = None
    counts: dict[str, int]

    def tables(self, names: Names) -> Iterable[Table]:
        nodes = (row("touched nodes", self.touched, names, share), row("untouched nodes", self.untouched, names, share))
        yield Table(("nodes called outliers", *names.values()), nodes)
        if self.deleted is not None and self.remaining is not None:
            edges = (
                row("deleted edges", self.deleted, names, share),
                row("remaining edges", self.remaining, names, share),
            )
            yield Table(("edges called regular", *names.values()), edges)


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
        shares = {name: _outliers(h[near.to(h.device)], h[far.to(h.device)], case.seed) for name, h in z.items()}
        edges = case.task.learned_once(case.remaining) if case.task.pairwise else distinct_positives(case.remaining)
        gone, left = ends_of(case.deletion.edges), ends_of(case.sample(edges, 2 * ROW_LIMIT, 3))
        regular = {}
        if gone.size(1) and left.size(1) >= ROW_MINIMUM:
            gone = case.sample(gone, ROW_LIMIT, 4)
            for name, h in z.items():
                u, v = gone.to(h.device)
                s, t = left.to(h.device)
                first, second = _outliers(h[u] * h[v], h[s] * h[t], case.seed)
                regular[name] = (1 - first, 1 - second)
        before, after, reference = (shares.get(name) for name in ("before", "after", "reference"))
        assert after is not None
        sentence = f"{after[0]:.1%} of the touched nodes stand out after the deletion"
        sentence += f", {before[0]:.1%} before it" if before else ""
        sentence += f", {reference[0]:.1%} in the retrained model" if reference else ""
        return OutliersSection(
            touched=PerModel(**{name: found[0] for name, found in shares.items()}),
            untouched=PerModel(**{name: found[1] for name, found in shares.items()}),
            deleted=PerModel(**{name: found[0] for name, found in regular.items()}) if regular else None,
            remaining=PerModel(**{name: found[1] for name, found in regular.items()}) if regular else None,
            counts={"nodes": near.numel(), "edges": gone.size(1)},
            sentence=f"{sentence}; of untouched nodes {after[1]:.1%} do.",
            what=WHAT,
        )


def _outliers(judged: Tensor, regular: Tensor, seed: int) -> tuple[float, float]:
    """The share of outliers among the rows in question, and among that half of regular rows the detector has not seen."""
    judged_rows, regular_rows = judged.float().cpu().numpy(), regular.float().cpu().numpy()
    middle = len(regular_rows) // 2
    forest = IsolationForest(contamination=OUTLIER_RATE, random_state=seed).fit(regular_rows[:middle])
    first, second = (float((forest.predict(part) < 0).mean()) for part in (judged_rows, regular_rows[middle:]))
    return first, second
