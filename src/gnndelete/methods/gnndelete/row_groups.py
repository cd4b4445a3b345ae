"""Row groups: which rows of a layer's output share one map, and how often each is an end of something deleted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from gnndelete.graph.edge_table import Hops
from gnndelete.methods.base import Context
from gnndelete.methods.gnndelete.objective import shares
from gnndelete.nn.hooks import Site
from gnndelete.nn.receptive_field import Probe

Kind = Literal["endpoints", "outer", "deleted", "lost-features", "isolated"]


@dataclass(frozen=True)
class Group:
    """Rows that share one map.

    Attributes:
        rows: Their positions in the output of a site.
        kind: ``"endpoints"`` are pulled to the mean, ``"outer"`` rings only stay where they are, ``"deleted"`` nodes and
            nodes with ``"lost-features"`` are also solved as they look when presented again, and rows of ``"isolated"``
            nodes are set by `node_embeddings`.
        c: How often each row is an end of something deleted; as shares once the group is at a site. None for rows that
            nothing pulls.
        k: Share of each row in what is kept, 1 / |K|; one number where all are equal.
    """

    rows: Tensor
    kind: Kind
    c: Tensor | None = None
    k: Tensor | float = 0.0


class RowGroups:
    """The row groups of one deletion, at every site.

    Args:
        context: The request.
        probe: The sites of the model.
        hops: How distance is counted.
        shared: One map for all rows of a site, as in the paper, instead of one per ring.
        isolated: Nodes whose rows are set by `node_embeddings`.
        keep_ends: Whether endpoints are among the rows to keep, as in the paper's text; its authors left them out.
    """

    def __init__(
        self, context: Context, probe: Probe, hops: Hops, shared: bool, isolated: Tensor, keep_ends: bool = True
    ) -> None:
        deletion, device = context.deletion, context.data.edge_index.device
        step = deletion.edges.size(0) - 1  # from the first row to the last, of pairs as of triples
        edges, nodes = deletion.edges.to(device)[::step].flatten(), context.gone
        features = deletion.feature_nodes.to(device)
        labels = deletion.labels
        if labels.numel() and context.task is not None:
            labels = context.task.learned_labels(labels, context.data)
        self._labels = labels.to(device)
        self.deleted = nodes[:0] if shared else _without(nodes, isolated)
        self.lost_features = features[:0] if shared else _without(features, isolated)
        self.presented = _joined(self.deleted, self.lost_features)  # whose rows on the original graph are needed
        touched = _joined(edges, nodes, features)
        ends = touched if shared else edges
        self._num_nodes = context.session.table.num_nodes
        self._all_deleted, self._isolated = nodes, isolated
        self._c = _count(ends, self._num_nodes)
        self._c_with_labels = _count(torch.cat([ends, self._labels]), self._num_nodes) if labels.numel() else self._c
        # a label carries no messages: nothing around its node has to be repaired
        self._rings = context.session.neighborhood(hops).rings(touched, max(site.hops for site in probe.sites))
        self.nodes = torch.cat(self._rings)  # S^L: all nodes that the deletion can reach
        self._probe, self._shared, self._keep_ends = probe, shared, keep_ends
        self._at_site: dict[Site, list[Group]] = {}
        self._inner: dict[tuple[range, bool], list[Group]] = {}

    def at(self, site: Site) -> list[Group]:
        """The groups of a site; made once, since every pass needs them."""
        if site not in self._at_site:
            # labels are learned by the last layer alone
            labels = self._labels if self._probe.is_last(site) else self._labels[:0]
            self._at_site[site] = self._one_group(site, labels) if self._shared else self._ring_groups(site, labels)
        return self._at_site[site]

    def rows(self, site: Site) -> Tensor:
        """The rows of all groups of a site, one group after the other."""
        return _joined(*(group.rows for group in self.at(site)))

    def _one_group(self, site: Site, labels: Tensor) -> list[Group]:
        rows = torch.cat([*self._rings[: site.hops + 1], labels]).unique()
        c = self._c_with_labels if labels.numel() else self._c
        return [self._place(Group(rows, "endpoints", c[rows]), site)]

    def _ring_groups(self, site: Site, labels: Tensor) -> list[Group]:
        special = _joined(self.deleted, self.lost_features, labels, self._isolated)
        key = site.rows, bool(labels.numel())
        if key not in self._inner:  # the same for all sites with these rows, however far they see
            self._inner[key] = [self._place(group, site) for group in self._inner_groups(labels, special)]
        if not site.hops:
            return self._inner[key]
        rings = self._rings[1 : site.hops + 1]
        outer = rings[0] if len(rings) == 1 else torch.cat(rings).sort().values
        return [*self._inner[key], self._place(Group(_without(outer, special), "outer"), site)]

    def _inner_groups(self, labels: Tensor, special: Tensor) -> list[Group]:
        c = self._c_with_labels if labels.numel() else self._c
        ring = _without(self._rings[0], special)
        result = [Group(ring, "endpoints", c[ring])]
        if self.deleted.numel():
            result.append(Group(self.deleted, "deleted"))
        if self.lost_features.numel():
            result.append(Group(self.lost_features, "lost-features", c[self.lost_features]))
        if self._isolated.numel():
            result.append(Group(self._isolated, "isolated"))
        if labels.numel():
            labels = _without(labels, self.lost_features)
            result.append(Group(labels, "endpoints", c[labels]))
        return result

    def _place(self, group: Group, site: Site) -> Group:
        """The group in the rows of a site, with its weights as shares."""
        rows, c = group.rows, group.c
        if site.rows.start > 0 or site.rows.stop < self._num_nodes:
            here = (rows >= site.rows.start) & (rows < site.rows.stop)
            rows, c = rows[here], None if c is None else c[here]
        k: Tensor | float = 1 / max(rows.numel(), 1)
        if self._all_deleted.numel():  # to keep a deleted node as it was is the opposite of forgetting
            k = shares((~torch.isin(rows, self._all_deleted)).double())
        if not self._keep_ends and c is not None:
            k = shares((c == 0).double() * k)
        c = None if c is None else shares(c)
        return replace(group, rows=rows - site.rows.start if site.rows.start else rows, c=c, k=k)


def _count(nodes: Tensor, size: int) -> Tensor:
    """How often each of ``size`` nodes is named. `bincount` would ask a GPU for the largest, and wait."""
    result = torch.zeros(size, dtype=torch.float64, device=nodes.device)
    return result.scatter_add_(0, nodes, torch.ones_like(nodes, dtype=torch.float64))


def _joined(*parts: Tensor) -> Tensor:
    """One behind the other. Most requests name one kind of element: then there is nothing to copy."""
    filled = [part for part in parts if part.numel()]
    return torch.cat(filled) if len(filled) > 1 else filled[0] if filled else parts[0]


def _without(rows: Tensor, others: Tensor) -> Tensor:
    return rows[~torch.isin(rows, others)] if others.numel() else rows
