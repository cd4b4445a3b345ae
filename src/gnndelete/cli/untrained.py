"""Edges of a request that a link model was never trained on, because they validate or test it: named, or left out."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gnndelete.cli.report import note, plain
from gnndelete.datasets import NamedGraph
from gnndelete.errors import DeletionError, some
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import EdgeTable, ends_of
from gnndelete.graph.existing import tuples
from gnndelete.graph.parsing import among
from gnndelete.tasks import LinkPrediction, Task
from gnndelete.tasks.trained import check_request


def check_trained(
    request: Deletion, graph: NamedGraph, table: EdgeTable, task: Task, skip: bool = False
) -> tuple[Deletion, int]:
    """The request in the graph's own terms, and how many unseen edges were left out of it, as ``skip`` asks for."""
    held, names = _unseen_elements(request, graph, table, task)
    if not names:
        return check_request(request, graph.data, table, task, graph.ids), 0
    if not skip:
        try:
            return check_request(request, graph.data, table, task, graph.ids), 0
        except DeletionError as error:
            raise DeletionError(f"{error} (--skip-unseen leaves them out)") from None
    rest = copy.copy(request)
    object.__setattr__(rest, "edges", request.edges[:, ~held])
    if not len(rest):
        raise DeletionError(
            f"nothing is left to delete: all of it was held out from training, so that the model has not learned it: "
            f"{some(names)}; remove it from your own data"
        )
    said = f"{len(names)} edge{'s' * (len(names) != 1)} that the model was not trained on: {plain(some(names))}"
    note(
        f"note: left out {said}; there is nothing to forget, but this run goes on validating and testing with them: remove "
        "them from your own data before the next one is trained"
    )
    return check_request(rest, graph.data, table, task, graph.ids), len(names)


def _unseen_elements(request: Deletion, graph: NamedGraph, table: EdgeTable, task: Task) -> tuple[Tensor, list[str]]:
    """Which edges are held out and in no place trained on, and what errors call them, each once."""
    edges = request.edges
    none = torch.zeros(edges.size(1), dtype=torch.bool)
    fits = edges.size(0) == (3 if table.typed else 2) and not bool((ends_of(edges) >= table.num_nodes).any())
    if not edges.size(1) or not fits or not isinstance(task, LinkPrediction):
        return none, []
    parts = [("validation", task.validation), ("testing", task.test)]
    found = {word: _in(edges, part.positives, table) for word, part in parts if part is not None}
    held = torch.stack([none, *found.values()]).any(dim=0)
    if bool(held.any()):  # parallel edges may be on both sides
        held &= ~(_in(edges, task.positives(graph.data), table) | table.contains(edges.to(table.keys.device)).cpu())
    names: dict[str, None] = {}
    for word, own in found.items():
        named = edges[:, own & held].sort(dim=0).values if table.undirected else edges[:, own & held]
        names |= dict.fromkeys(f"{pair} (for {word})" for pair in tuples(named, request._ids or graph.ids))
    return held, list(names)


def _in(edges: Tensor, part: Tensor, table: EdgeTable) -> Tensor:
    """Which edges are among others, in either direction where the graph is undirected."""
    part = part.cpu()
    if not part.size(1):
        return torch.zeros(edges.size(1), dtype=torch.bool)
    return among(edges, torch.cat([part, part.flip(0)], dim=1) if table.undirected else part)
