"""Which nodes a deletion touches, and the rows that a model under audit has for them."""

from __future__ import annotations

import torch
from torch import Tensor

from gnndelete.auditing.case import Case, Subject
from gnndelete.errors import ModelError
from gnndelete.graph.neighborhood import Neighborhood
from gnndelete.graph.validation import edge_table
from gnndelete.tasks.base import representation


def rings(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Ring 0 (what the deletion names), ring 1 (their neighbours in the original graph) and all other nodes."""
    table = edge_table(case.original)
    named = case.deletion.named_nodes
    near = Neighborhood(table, case.original.edge_index).rings(named, 1)
    elsewhere = torch.ones(table.num_nodes, dtype=torch.bool)
    for ring in near:
        elsewhere[ring.cpu()] = False
    return near[0].cpu(), near[1].cpu(), elsewhere.nonzero().flatten()


def touched(case: Case) -> tuple[Tensor, Tensor]:
    """Nodes that lost an edge (with the deletion or a deleted node), features or a label, and the others.

    Deleted nodes are in neither.
    """
    table, nodes = edge_table(case.original), case.deletion.nodes
    beside = Neighborhood(table, case.original.edge_index).rings(nodes, 1)[1]
    lost = torch.zeros(table.num_nodes, dtype=torch.bool)
    lost[case.deletion.named_nodes] = True
    lost[beside.cpu()] = True
    there = torch.ones_like(lost).index_fill(0, nodes, False)
    return (lost & there).nonzero().flatten(), (~lost & there).nonzero().flatten()


def some(nodes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """At most ``count`` of the nodes (or columns of edges), in random order: places in the result name nobody."""
    pick = torch.randperm(nodes.size(-1), generator=generator)[:count]
    return nodes[..., pick.to(nodes.device)]


def rows(subject: Subject, num_nodes: int) -> Tensor | None:
    """One finite row per node of what the model returned; None where it keeps no model or returns something else."""
    if subject.output is None:
        return None
    try:
        z = representation(subject.output)
    except ModelError:
        return None
    if z.dim() < 2 or z.size(0) != num_nodes or not bool(torch.isfinite(z).all()):
        return None
    return z.detach().flatten(1)
