"""Which rows the operators of a deletion have, what each row weighs, and where they learn from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.neighborhood import Hops
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.solvers import Problem
from gnndelete.nn.hooks import Site
from gnndelete.nn.receptive_field import Probe
from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification


@dataclass(frozen=True)
class Group:
    """Rows that share one map. ``forget``: lam pulls them away; ``gone``: they belong to deleted nodes.

    ``again``: their nodes have lost features, and what must be forgotten is what they say when these are presented again.
    ``alone``: their nodes are deleted or have lost their last edge, and trained vectors know nothing of them any more.
    """

    rows: Tensor
    forget: bool
    gone: bool = False
    again: bool = False
    alone: bool = False
    alive: Tensor | float = 0.0  # weights of keeping, 1 in all, one number where all are alike; none of deleted nodes
    ends: Tensor | None = None  # weights of forgetting, 1 in all: how often each row is an end of something deleted


class Shape:
    """Which rows each operator has, and how often each row is an endpoint of something deleted.

    ``keep_ends``: whether endpoints are among the rows of Neighborhood Influence, as in the paper; its authors left them out.
    """

    def __init__(
        self, context: Context, probe: Probe, hops: Hops, shared: bool, alone: Tensor, keep_ends: bool = True
    ) -> None:
        deletion, device = context.deletion, context.data.edge_index.device
        step = deletion.edges.size(0) - 1  # from the first row to the last, of pairs as of triples
        edges, nodes = deletion.edges.to(device)[::step].flatten(), context.gone
        asked = deletion.feature_nodes, learned_labels(context)
        features, labels = (ids.to(device) if ids.numel() else nodes[:0] for ids in asked)
        count = context.session.table.num_nodes
        self.gone = nodes[:0] if shared else _without(nodes, alone)
        self.again = features[:0] if shared else _without(features, alone)
        self.presented = _joined(self.gone, self.again)  # whose rows on the original graph are needed
        touched = _joined(edges, nodes, features)
        ends = touched if shared else edges
        self._count, self._dead, self._alone = count, nodes, alone
        self._ends = _counted(ends, count)
        self._ends_told = _counted(torch.cat([ends, labels]), count) if labels.numel() else self._ends
        near = context.session.neighborhood(hops)
        # a label carries no messages: nothing around its node has to be repaired
        self._rings = near.rings(touched, max(site.hops for site in probe.sites))
        self._labels, self._probe = labels, probe
        self._shared, self._keep_ends = shared, keep_ends
        self._groups: dict[Site, list[Group]] = {}
        self._pulled: dict[tuple[range, bool], list[Group]] = {}

    @property
    def nodes(self) -> Tensor:
        """S^L: all nodes that what is deleted can reach."""
        return torch.cat(self._rings)

    def groups(self, site: Site) -> list[Group]:
        """The groups of a site, in its own rows; found once, since every pass asks for them."""
        if site not in self._groups:
            told = self._labels if self._probe.is_last(site) else self._labels[:0]
            self._groups[site] = [self._one(site, told)] if self._shared else self._several(site, told)
        return self._groups[site]

    def _one(self, site: Site, told: Tensor) -> Group:
        rows = torch.cat([*self._rings[: site.hops + 1], told]).unique()
        return self._local(Group(rows, forget=True, ends=self._counts(told)[rows]), site)

    def _several(self, site: Site, told: Tensor) -> list[Group]:
        apart = _joined(self.gone, self.again, told, self._alone)
        key = site.rows, bool(told.numel())
        if key not in self._pulled:  # the same for all sites with these rows, however far they see
            self._pulled[key] = [self._local(group, site) for group in self._forgetting(told, apart)]
        if not site.hops:
            return self._pulled[key]
        rings = self._rings[1 : site.hops + 1]
        outer = rings[0] if len(rings) == 1 else torch.cat(rings).sort().values
        return [*self._pulled[key], self._local(Group(_without(outer, apart), forget=False), site)]

    def _forgetting(self, told: Tensor, apart: Tensor) -> list[Group]:
        counts, inner = self._counts(told), _without(self._rings[0], apart)
        result = [Group(inner, forget=True, ends=counts[inner])]
        if self.gone.numel():
            result.append(Group(self.gone, forget=True, gone=True))
        if self.again.numel():
            result.append(Group(self.again, forget=True, again=True, ends=counts[self.again]))
        if self._alone.numel():
            result.append(Group(self._alone, forget=True, alone=True))
        if told.numel():
            told = _without(told, self.again)
            result.append(Group(told, forget=True, ends=counts[told]))
        return result

    def _counts(self, told: Tensor) -> Tensor:
        return self._ends_told if told.numel() else self._ends

    def _local(self, group: Group, site: Site) -> Group:
        rows, ends = group.rows, group.ends
        if site.rows.start > 0 or site.rows.stop < self._count:
            own = (rows >= site.rows.start) & (rows < site.rows.stop)
            rows, ends = rows[own], None if ends is None else ends[own]
        alive: Tensor | float = 1 / max(rows.numel(), 1)
        if self._dead.numel():  # nothing of them is kept: staying close to what they were is the opposite of forgetting
            alive = _shared_out((~torch.isin(rows, self._dead)).double())
        if not self._keep_ends and ends is not None:
            alive = _shared_out((ends == 0).double() * alive)
        ends = None if ends is None else _shared_out(ends)
        return replace(group, rows=rows - site.rows.start if site.rows.start else rows, alive=alive, ends=ends)

    def rows(self, site: Site) -> Tensor:
        return _joined(*(group.rows for group in self.groups(site)))

    def problem(self, group: Group, h: Tensor, lam: float, mean: Tensor, keep: Tensor | None) -> Problem:
        weight = lam if group.forget else 0.0  # outer rings see Neighborhood Influence alone
        ends = group.ends if weight else None
        dec = None if ends is None else weight * ends
        alive = group.alive * (1 - weight) if weight else group.alive
        if not isinstance(alive, Tensor):
            alive = torch.full(group.rows.shape, alive, dtype=torch.float64, device=h.device)
        return Problem(h, group.rows, dec, alive, mean, keep)


def _shared_out(weights: Tensor) -> Tensor:
    """The same weights, 1 in all; none at all stay none."""
    return weights / weights.sum().clamp_(min=1e-30)


def _counted(nodes: Tensor, count: int) -> Tensor:
    """How often each of ``count`` nodes is named (`bincount` would ask a GPU for the largest, and wait)."""
    result = torch.zeros(count, dtype=torch.float64, device=nodes.device)
    return result.scatter_add_(0, nodes, torch.ones_like(nodes, dtype=torch.float64))


def _joined(*parts: Tensor) -> Tensor:
    """One behind the other; most requests name one kind of element, and then there is nothing to copy."""
    filled = [part for part in parts if part.numel()]
    return torch.cat(filled) if len(filled) > 1 else filled[0] if filled else parts[0]


def _without(rows: Tensor, others: Tensor) -> Tensor:
    return rows[~torch.isin(rows, others)] if others.numel() else rows


def learned_labels(context: Context) -> Tensor:
    """The deleted labels that a model may have learned from: none where it predicts links, or was trained on none of them."""
    labels, task = context.deletion.labels, context.task
    if not labels.numel() or isinstance(task, LinkPrediction):
        return labels[:0]
    known = not isinstance(task, NodeClassification) or bool(task.part(context.data, "train").cpu()[labels].any())
    return labels if known else labels[:0]


def only_untrained_graphs(context: Context) -> bool:
    """Whether all that is deleted are whole graphs, and the model was trained on none of them."""
    task, data, deletion = context.task, context.data, context.deletion
    if not isinstance(task, GraphClassification) or not isinstance(data, GraphBatch) or not deletion.graphs.numel():
        return False
    inside = bool(torch.isin(data.batch.cpu()[deletion.nodes], deletion.graphs).all())
    others = deletion.edges.size(1) or deletion.features.size(1) or deletion.labels.numel()
    return inside and not others and not bool(task.part(data, "train").cpu()[deletion.graphs].any())
