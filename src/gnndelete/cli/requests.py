"""From the deletion settings to a `Deletion` of the training graph, with answers for edges that are not in it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.adjacency import EdgeTable
from gnndelete.cli.settings import DeletionSettings
from gnndelete.datasets.forget import forget_edges, forget_nodes
from gnndelete.deletion import Deletion
from gnndelete.errors import DeletionError, RequestError, SettingError, some
from gnndelete.tasks import LinkPrediction, Task


def read_request(settings: DeletionSettings, data: Data, task: Task) -> Deletion:
    """What is to be deleted from ``data``, the graph that earlier requests have left."""
    named = _named(settings)
    if settings.random is None:
        if not len(named):
            raise DeletionError(
                "nothing is named to be deleted; give --edges or --nodes FILE, --edge 0,5, --node 3, or --random 0.025"
            )
        return named
    if len(named):
        raise SettingError("elements are named and --random is given too; name what to delete, or have it drawn")
    if settings.random >= 1 and settings.random != int(settings.random):
        raise SettingError(f"--random must be a share below 1 or a whole number (got {settings.random})")
    if settings.kind == "nodes":
        return Deletion(nodes=forget_nodes(data, settings.random, seed=settings.seed))
    test = task.test.positives if isinstance(task, LinkPrediction) and task.test is not None else None
    if settings.where != "random" and test is None:
        raise SettingError(f"--where {settings.where} is relative to test edges, and this run has none; leave it out")
    drawn = forget_edges(data, settings.random, settings.where, test=test, hops=settings.hops, seed=settings.seed)
    return Deletion(edges=drawn)


def _named(settings: DeletionSettings) -> Deletion:
    request = Deletion(edges=settings.edges or None, nodes=settings.nodes or None)
    for option, path, kind in (("--edges", settings.edges_csv, "edges"), ("--nodes", settings.nodes_csv, "nodes")):
        if path is None:
            continue
        found = Deletion.from_csv(path)
        if kind not in found.counts:
            other = next(iter(found.counts))
            raise DeletionError(f"'{path}' names {other}, and {option} takes {kind}; give it with --{other}")
        request = request | found
    return request


def check_request(request: Deletion, data: Data, table: EdgeTable, task: Task) -> Deletion:
    """The request in the graph's own terms; an error says where an edge is that the model was not trained on."""
    try:
        return request.check(data, table)
    except DeletionError as error:
        edges = request.edges
        if (
            not isinstance(task, LinkPrediction)
            or table.typed
            or edges.size(0) != 2
            or bool((edges >= table.num_nodes).any())
        ):
            raise
        held: list[str] = []
        for name, part in (("validation", task.heldout), ("testing", task.test)):
            if part is not None:
                found = _among(edges, part.positives, table)
                held += [f"{pair} (for {name})" for pair in zip(*found.tolist(), strict=True)]
        if held:
            raise _held_out(held) from None
        if _among(edges, data.edge_index, table).size(1) < edges.size(1):
            raise DeletionError(f"{error}; only training edges of the run can be deleted") from None
        raise


def _held_out(held: list[str]) -> RequestError:
    return DeletionError(
        f"{len(held)} of the edges to delete were held out when the run was split: {some(held)}; the model was not "
        "trained on them, so there is nothing to forget: leave them out here and remove them from your own data"
    )


def _among(edges: Tensor, part: Tensor, table: EdgeTable) -> Tensor:
    """Those of ``edges`` that are in ``part``, in either direction where the graph is undirected."""
    part = part.cpu()
    if table.undirected:
        part = torch.cat([part, part.flip(0)], dim=1)
    return edges[:, EdgeTable(part, table.num_nodes).contains(edges)]
