"""A request checked against a graph and a task: an error says where an edge is that the model was not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.errors import DeletionError, RequestError, some
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.existing import tuples
from gnndelete.tasks.base import Task
from gnndelete.tasks.link import LinkPrediction
from gnndelete.tasks.supervision import positives

if TYPE_CHECKING:
    from gnndelete.datasets.ids import IdMap


def check_request(
    request: Deletion, data: Data, table: EdgeTable, task: Task | None, ids: IdMap | None = None
) -> Deletion:
    """The request in the graph's own terms; unseen edges of a link task are called so where they are named."""
    try:
        return request.check(data, table)
    except DeletionError as error:
        if not isinstance(task, LinkPrediction):
            raise
        asked = request._in_place(data)
        edges = asked.edges
        if edges.size(0) != (3 if table.typed else 2) or bool((ends_of(edges) >= table.num_nodes).any()):
            raise
        held: list[str] = []
        for name, part in (("validation", task.validation), ("testing", task.test)):
            if part is not None:
                found = _among(edges, part.positives, table)
                held += [f"{pair} (for {name})" for pair in tuples(found, asked._ids or ids)]
        if held:
            raise _held_out(held) from None
        if _among(edges, positives(data), table).size(1) < edges.size(1):
            raise DeletionError(f"{error}; only edges that the model was trained on can be deleted") from None
        raise


def _held_out(held: list[str]) -> RequestError:
    return DeletionError(
        f"{len(held)} of the edges to delete {'was' if len(held) == 1 else 'were'} held out from training: {some(held)}; the "
        "model was not trained on them, so there is nothing to forget: leave them out here and remove them from your own data"
    )


def _among(edges: Tensor, part: Tensor, table: EdgeTable) -> Tensor:
    """Those of ``edges`` that are in ``part``, in either direction where the graph is undirected."""
    part = part.cpu()
    if table.undirected:
        part = torch.cat([part, part.flip(0)], dim=1)
    known = EdgeTable(ends_of(part), table.num_nodes, part[1] if table.typed else None)
    return edges[:, known.contains(edges)]
