"""What an attacker may ask: the graph as it is served, and what was deleted presented again under its old id or a new one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Subject
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.nn.layers import copied
from gnndelete.nn.operator import layer_operators, rows
from gnndelete.tasks import LinkPrediction, NodeClassification

SENTENCES = {
    "served": "The remaining graph, as it is served.",
    "old_id": "What was deleted is put back under its old ids; operators act on the rows they know.",
    "new_id": "What was deleted is put back under new ids, which no operator knows: only the weights speak.",
}
BOTH = "Unseen edges are put in beside deleted ones, so that both carry messages."


@dataclass(frozen=True)
class Asked:
    """One subject on one of the graphs; ``move`` gives elements the ids they have there. Without it ``reason`` says why."""

    subject: Subject | None
    move: Callable[[Tensor], Tensor] = lambda elements: elements
    reason: str = ""


def ask(case: Case, name: str, subject: Subject) -> Asked:
    """Have a subject answer on the graph of the query ``served``, ``old_id`` or ``new_id``."""
    if name == "served":
        return Asked(subject)
    if subject.model is None:
        return Asked(None, reason="this method answers on the graph it was fitted on and on no other")
    if isinstance(case.original, HeteroGraph) and name == "new_id":
        return Asked(None, reason="new ids are not made for a HeteroData by this version")
    graph, move = (presented(case), _stay) if name == "old_id" else _renamed(case)
    try:
        if name == "new_id" and graph.edge_index.is_cuda:
            _on_cpu(case, subject.name, subject.model, graph, move)
        found = _answering(case, subject.name, subject.model, graph, move)
    except Exception as error:  # the user's own model: whatever it raises on a node it has no parameters for
        return Asked(
            None,
            reason=f"the model does not run on that graph ({_first_line(error)}); one with parameters of single nodes, "
            "such as an embedding table, has none for a new id",
        )
    return Asked(found, move)


def _answering(case: Case, name: str, model: nn.Module, graph: Data, move: Callable[[Tensor], Tensor]) -> Subject:
    """The model on another graph, after it has answered there about what the deletion names."""
    given = torch.arange(count_nodes(graph), device=graph.edge_index.device)
    with rows(model, given) if layer_operators(model) and not isinstance(graph, HeteroGraph) else nullcontext():
        found = Subject.of_model(name, model, graph, case.task, case.forward)
        found.predict(move(_probe(case)))
    return found


def _on_cpu(case: Case, name: str, model: nn.Module, graph: Data, move: Callable[[Tensor], Tensor]) -> None:
    """A table that has no row for a new id raises an error here; on CUDA it would end all work of the process there."""
    try:
        _answering(case, name, copied(model).cpu(), graph.clone().cpu(), move)
    except IndexError:
        raise
    except Exception:  # a model that is bound to its device is asked there
        return


def fair(case: Case) -> bool:
    """Whether unseen elements can be presented just as deleted ones are.

    Nodes are in the graph anyway. Unseen edges must be put in, which takes a graph whose edges have no attributes of
    their own; without them a deleted edge carries messages, a unseen one does not, and 0.5 is no longer the aim.
    """
    if not isinstance(case.task, LinkPrediction):
        return True
    if isinstance(case.original, HeteroGraph):
        return case.task.test is not None and not _edge_attributes(case)
    return case.task.test is not None and not any(case.original.is_edge_attr(key) for key in _edge_attributes(case))


def presented(case: Case) -> Data:
    """The graph with what was deleted, and with the unseen edges it is compared with."""
    task, graph = case.task, case.original
    if not isinstance(task, LinkPrediction) or task.test is None or not fair(case):
        return graph
    both = edge_table(graph).both_ways(task.test.positives.to(graph.edge_index.device))
    if isinstance(graph, HeteroGraph):
        return graph.with_more(both)
    result = graph.__copy__()
    result.edge_index = torch.cat([graph.edge_index, ends_of(both)], dim=1)
    if both.size(0) == 3:
        result.edge_type = torch.cat([graph.edge_type, both[1]])
    return result


def _edge_attributes(case: Case) -> list[str]:
    own = ("edge_index", "edge_type", "edge_label_index", "edge_label")
    if isinstance(case.original, HeteroGraph):
        stores = case.original.hetero.edge_stores
        return [key for store in stores for key in store if key not in own and store.is_edge_attr(key)]
    return [key for key, value in case.original.to_dict().items() if isinstance(value, Tensor) and key not in own]


def renamed(case: Case) -> tuple[Data, Callable[[Tensor], Tensor]]:
    """The presented graph with new ids for everything the deletion names; their old ids stay behind without edges."""
    data, nodes = presented(case), count_nodes(case.original)
    device = data.edge_index.device
    named = case.deletion.named_nodes.to(device)
    ids = torch.arange(nodes, device=device)
    ids[named] = nodes + torch.arange(named.numel(), device=device)
    graph = data.clone()
    for key, value in data.to_dict().items():
        if key in ("edge_index", "edge_label_index"):
            graph[key] = ids[value]
        elif isinstance(value, Tensor) and data.is_node_attr(key):
            graph[key] = torch.cat([value, value.index_select(0, named)])
    graph.num_nodes = nodes + named.numel()

    def move(elements: Tensor) -> Tensor:
        elements = elements.to(device)
        if elements.dim() == 2 and elements.size(0) == 3:  # triples; a flat list may hold three nodes
            return torch.stack([ids[elements[0]], elements[1], ids[elements[2]]])
        return ids[elements]

    return graph, move


def _renamed(case: Case) -> tuple[Data, Callable[[Tensor], Tensor]]:
    return (
        renamed_graphs(case.original, case.deletion.graphs) if isinstance(case.original, GraphBatch) else renamed(case)
    )


def renamed_graphs(data: GraphBatch, graphs: Tensor) -> tuple[Data, Callable[[Tensor], Tensor]]:
    """All graphs, and after them the given ones once more under new ids, with rows that no operator knows."""
    given = graphs.to(data.ptr.device)
    everyone = torch.arange(data.num_graphs, device=given.device)
    ids = everyone.clone()
    ids[given] = data.num_graphs + torch.arange(given.numel(), device=given.device)
    graph = data.select(torch.cat([everyone, given]))
    del graph["n_id"], graph["graph_id"]  # these would say again who they were
    return graph, lambda elements: ids[elements.to(ids.device)]


def with_base(case: Case, graph: Data) -> Subject:
    """The user's own model on another graph."""
    return Subject.of_model("before", case.base, graph, case.task, case.forward)


def _stay(elements: Tensor) -> Tensor:
    return elements


def _probe(case: Case) -> Tensor:
    """Elements of the kind the task is asked about, to see whether the answer comes at all.

    They are edges at nodes that the deletion names, since a decoder may have parameters of single nodes, too.
    """
    if isinstance(case.task, LinkPrediction):
        edges = [case.learned_edges(case.original).cpu()]
        edges += [] if case.task.test is None else [case.task.test.positives.cpu()]
        both = torch.cat(edges, dim=1)
        named = torch.isin(ends_of(both), case.deletion.named_nodes.cpu()).any(dim=0)
        return both[:, named] if bool(named.any()) else both[:, :1]
    if isinstance(case.task, NodeClassification) and isinstance(case.original, HeteroGraph):
        return case.task.part(case.original, "train").nonzero()[:1, 0]
    return torch.zeros(1, dtype=torch.long)


def _first_line(error: Any) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {shorten(text[0], 120, placeholder=' …') if text else 'no message'}"
