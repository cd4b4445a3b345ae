"""How an attacker may ask: on the graph as served, or with what was deleted presented again under its old id or a new one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from textwrap import shorten

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case, Subject
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.kinds import can_take_edges, with_more_edges
from gnndelete.graph.validation import count_nodes, edge_table
from gnndelete.nn.layers import copied
from gnndelete.nn.operator import layer_operators, rows

#: Gives elements the ids that they have on the graph of a query.
Move = Callable[[Tensor], Tensor]

#: The queries, and what the graph of each is.
QUERIES = {
    "served": "The remaining graph, as it is served.",
    "old_id": "What was deleted is put back under its old ids. Operators act on the rows they know.",
    "new_id": "What was deleted is put back under new ids. No operator knows these, so only the weights answer.",
}
NO_ROW = "the model has parameters per node, such as an embedding table, and none for a new id"
UNSEEN_PRESENTED = "Unseen edges are put in as well, so that both kinds carry messages."


@dataclass(frozen=True)
class QueriedModel:
    """One model on the graph of a query; without a ``subject``, ``reason`` says why it cannot be asked there."""

    subject: Subject | None
    move: Move = lambda elements: elements
    reason: str = ""


def ask(case: Case, query: str, subject: Subject) -> QueriedModel:
    """Have a model answer on the graph of the query ``served``, ``old_id`` or ``new_id``."""
    if query == "served":
        return QueriedModel(subject)
    if subject.model is None:
        return QueriedModel(None, reason="this method answers on the graph it was fitted on and on no other")
    if isinstance(case.original, HeteroGraph) and query == "new_id":
        return QueriedModel(None, reason="this version makes no new ids on a HeteroData")
    graph, move = (presented(case), lambda elements: elements) if query == "old_id" else renamed(case)
    try:
        if query == "new_id" and graph.edge_index.is_cuda:
            _try_on_cpu(case, subject.name, subject.model, graph, move)
        found = _answering(case, subject.name, subject.model, graph, move)
    except Exception as error:  # the user's own model may raise anything on a node it has no parameters for
        if query == "new_id" and (isinstance(error, IndexError) or "out of bounds" in str(error)):
            return QueriedModel(None, reason=NO_ROW)
        return QueriedModel(
            None,
            reason=f"the model does not run on that graph ({_first_line(error)}); a model with parameters per node, such as an "
            "embedding table, has none for a new id",
        )
    return QueriedModel(found, move)


def _answering(case: Case, name: str, model: nn.Module, graph: Data, move: Move) -> Subject:
    """The model on another graph, after one question about what the deletion names."""
    every = torch.arange(count_nodes(graph), device=graph.edge_index.device)
    with rows(model, every) if layer_operators(model) and not isinstance(graph, HeteroGraph) else nullcontext():
        found = Subject.of_model(name, model, graph, case.task, case.forward)
        found.predict(move(_probe(case)))
    return found


def _try_on_cpu(case: Case, name: str, model: nn.Module, graph: Data, move: Move) -> None:
    """Raise the error of a table without a row for a new id here: on CUDA it would end all work of the process."""
    try:
        _answering(case, name, copied(model).cpu(), graph.clone().cpu(), move)
    except IndexError:
        raise
    except Exception:  # a model that is bound to its device is asked there
        return


def presents_unseen(case: Case) -> bool:
    """Whether unseen elements can be presented exactly as deleted ones are.

    Nodes are in the graph anyway. Unseen edges must be put in, which takes a graph whose edges have no attributes. Without
    them a deleted edge carries messages and an unseen one does not, and 0.5 is no longer the target.
    """
    if not case.task.pairwise:
        return True
    return bool(case.task.unseen(case.remaining, "test").size(1)) and can_take_edges(case.original)


def presented(case: Case) -> Data:
    """The graph with what was deleted and, for links, the unseen edges it is compared with."""
    graph = case.original
    if not case.task.pairwise or not presents_unseen(case):
        return graph
    return with_more_edges(graph, edge_table(graph), case.task.unseen(case.remaining, "test"))


def renamed(case: Case) -> tuple[Data, Move]:
    """The presented graph with new ids for everything the deletion names; the old ids stay behind without edges."""
    if isinstance(case.original, GraphBatch):
        return renamed_graphs(case.original, case.deletion.graphs)
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


def renamed_graphs(data: GraphBatch, graphs: Tensor) -> tuple[Data, Move]:
    """All graphs, and after them the deleted ones once more under new ids, with rows that no operator knows."""
    deleted = graphs.to(data.ptr.device)
    every = torch.arange(data.num_graphs, device=deleted.device)
    ids = every.clone()
    ids[deleted] = data.num_graphs + torch.arange(deleted.numel(), device=deleted.device)
    graph = data.select(torch.cat([every, deleted]))
    del graph["n_id"], graph["graph_id"]  # these would identify them again
    return graph, lambda elements: ids[elements.to(ids.device)]


def with_base(case: Case, graph: Data) -> Subject:
    """The model before the deletion, on another graph."""
    return Subject.of_model("before", case.base, graph, case.task, case.forward)


def _probe(case: Case) -> Tensor:
    """Elements to try a model with. A decoder may have parameters per node, so edges are taken at nodes the deletion names."""
    learned = case.task.learned(case.original).cpu()
    if not case.task.pairwise:
        named = case.task.elements(case.deletion, case.original).cpu()  # a model may have no row for their new ids
        return torch.cat([learned[:1], named]) if learned.numel() + named.numel() else torch.zeros(1, dtype=torch.long)
    edges = torch.cat([learned, case.task.unseen(case.remaining, "test").cpu().to(learned.dtype)], dim=1)
    named = torch.isin(ends_of(edges), case.deletion.named_nodes.cpu()).any(dim=0)
    return edges[:, named] if bool(named.any()) else edges[:, :1]


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {shorten(text[0], 120, placeholder=' …') if text else 'no message'}"
