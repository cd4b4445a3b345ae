"""Row groups: which rows of a layer's output share one map, and how often each is an end of something deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gnndelete.graph.edge_table import Hops
from gnndelete.methods.base import Context
from gnndelete.nn.hooks import Site
from gnndelete.nn.receptive_field import Probe

Kind = Literal["endpoints", "outer", "deleted", "lost-features", "isolated"]


@dataclass(frozen=True)
class Group:
    """Rows of a site that share one map.

    Attributes:
        kind: ``"endpoints"`` are pulled to the mean, ``"outer"`` rings only stay where they are, ``"deleted"`` nodes and
            nodes with ``"lost-features"`` are also solved as they look when presented again, and rows of ``"isolated"``
            nodes are set by `node_embeddings`.
        rows: Their positions in the output of the site.
        c: How often each row is an end of something deleted, as shares; None for rows that nothing pulls.
        k: Share of each row in what is kept, 1 / |K|; one number where all are equal.
        toward: Rows whose mean they are pulled to: those of training nodes of the class that replaces a label. None: all rows.
    """

    kind: Kind
    rows: Tensor
    c: Tensor | None
    k: Tensor | float
    toward: Tensor | None = None


@dataclass(frozen=True)
class RowGroups:
    """The row groups of one deletion.

    Attributes:
        at: The groups of each site.
        nodes: S^L, all nodes that the deletion can reach.
        gone: All deleted nodes.
        deleted: Deleted nodes with a map of their own.
        lost_features: Nodes that lost features, with a map of their own.
    """

    at: dict[Site, list[Group]]
    nodes: Tensor
    gone: Tensor
    deleted: Tensor
    lost_features: Tensor


def row_groups(
    context: Context, probe: Probe, hops: Hops, shared: bool, isolated: Tensor | None, keep_ends: bool = True
) -> RowGroups:
    """Group the rows of every site.

    Args:
        context: The request.
        probe: The sites of the model.
        hops: How distance is counted.
        shared: One map for all rows of a site, as in the paper, instead of one per ring.
        isolated: Nodes whose rows are set by `node_embeddings`.
        keep_ends: Whether endpoints are among the rows to keep, as in the paper's text; its authors left them out.
    """
    deletion, device = context.deletion, context.data.edge_index.device
    step = deletion.edges.size(0) - 1  # from the first row to the last, of pairs as of triples
    edges, gone = deletion.edges[::step].flatten().to(device), deletion.nodes.to(device)
    features, none = deletion.features[0].unique().to(device), gone[:0]
    isolated = none if isolated is None else isolated
    labels = deletion.labels
    if labels.numel() and context.task is not None:
        labels = context.task.learned_labels(labels, context.data)
    labels = labels.to(device)
    corrected = [(nodes.to(device), toward.to(device)) for nodes, toward in _corrected(context)]
    wrong = torch.cat([none, *(nodes for nodes, _ in corrected)])
    labels = _without(labels, wrong)
    touched = torch.cat([edges, gone, features])
    # a label carries no messages: nothing around its node has to be repaired
    rings = context.session.neighborhood(hops).rings(touched, max(site.hops for site in probe.sites))
    deleted, lost = (none, none) if shared else (_without(gone, isolated), _without(features, isolated))
    ends = touched if shared else edges
    ones = torch.ones(ends.numel() + labels.numel(), dtype=torch.float64, device=device)
    counts = torch.zeros(context.session.table.num_nodes, dtype=torch.float64, device=device)
    counts.index_add_(0, ends, ones[: ends.numel()])  # `bincount` would make a GPU wait

    at = {}
    for site in probe.sites:
        learned = (
            labels if labels.numel() and probe.is_last(site) else none
        )  # labels are learned by the last layer alone
        c = counts.index_add(0, learned, ones[: learned.numel()]) if learned.numel() else counts
        if shared:
            rows = _without(
                torch.cat([*rings[: site.hops + 1], learned]).unique(), wrong if probe.is_last(site) else none
            )
            parts: list[tuple[Kind, Tensor, Tensor | None]] = [("endpoints", rows, c)]
        else:
            special = torch.cat([deleted, lost, learned, isolated, wrong if probe.is_last(site) else none])
            outer = rings[1] if site.hops == 1 else torch.cat([none, *rings[1 : site.hops + 1]]).sort().values
            parts = [
                ("endpoints", _without(rings[0], special), c),
                ("deleted", deleted, None),
                ("lost-features", lost, c),
                ("isolated", isolated, None),
                ("endpoints", _without(learned, lost), c),
                ("outer", _without(outer, special), None),
            ]
        at[site] = [_group(kind, rows, c, site, gone, keep_ends) for kind, rows, c in parts if rows.numel()]
        if probe.is_last(site):
            at[site] += [_corrected_group(site, nodes, toward) for nodes, toward in corrected]
    return RowGroups(at, torch.cat(rings), gone, deleted, lost)


def _corrected(context: Context) -> list[tuple[Tensor, Tensor]]:
    """Nodes whose label is replaced, and training nodes of the new class, for each class that is given anew."""
    new, task = context.deletion.new_labels, context.task
    if not new.size(1) or task is None or task.pairwise:
        return []
    train = task.learned(context.remaining).cpu()
    new = new[:, torch.isin(new[0], train)]
    train = train[~torch.isin(train, new[0])]
    classes = task.classes(context.remaining, train).cpu()
    found = [(new[0, new[1] == each], train[classes == each]) for each in new[1].unique()]
    return [(nodes, toward) for nodes, toward in found if toward.numel()]


def _corrected_group(site: Site, nodes: Tensor, toward: Tensor) -> Group:
    """Nodes that get one class: all pulled alike, to the mean of others of that class."""
    rows = site.local(nodes)
    share = torch.full(rows.shape, 1 / max(rows.numel(), 1), dtype=torch.float64, device=rows.device)
    return Group("endpoints", rows, share, 1 / max(rows.numel(), 1), site.local(toward))


def _group(kind: Kind, nodes: Tensor, counts: Tensor | None, site: Site, gone: Tensor, keep_ends: bool) -> Group:
    """The rows of those nodes that the site has, with their weights."""
    rows = site.local(nodes)
    c = None if counts is None else counts[site.rows.start : site.rows.stop][rows]
    k: Tensor | float = 1 / max(rows.numel(), 1)
    if gone.numel():  # to keep a deleted node as it was is the opposite of forgetting
        k = _shares((~torch.isin(rows, site.local(gone))).double())
    if not keep_ends and c is not None:
        k = _shares((c == 0).double() * k)
    return Group(kind, rows, None if c is None else _shares(c), k)


def _shares(counts: Tensor) -> Tensor:
    """Weights that sum to 1, such as c_i / sum_j c_j; all zero where every count is."""
    return counts / counts.sum().clamp_(min=1e-30)


def _without(rows: Tensor, others: Tensor) -> Tensor:
    return rows[~torch.isin(rows, others)] if others.numel() else rows
