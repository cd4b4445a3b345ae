"""Training, validation and test parts of a graph's links, nodes or graphs, in memory and on disk.

The same seed gives the same split on every machine.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.negatives import TripleCorrupter, pair_sampler
from gnndelete.errors import GraphError, NotYetError, SettingError, why
from gnndelete.graph.edge_table import EdgeTable, entries
from gnndelete.graph.fingerprint import fingerprint, tensor_digest
from gnndelete.graph.validation import count_relations
from gnndelete.io.files import write


class _Sized:
    """Shows its fields, with tensors by their sizes, as PyG shows a graph."""

    def __repr__(self) -> str:
        values = {name: list(value.shape) if isinstance(value, Tensor) else value for name, value in vars(self).items()}
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in values.items())})"


@dataclass(frozen=True, eq=False, repr=False)
class LinkSplit(_Sized):
    """A training graph, and edges (with as many non-edges) that it does not contain.

    Edges of an undirected graph are listed once, as u < v; the training graph holds both directions. On a typed graph all
    four are ``[3, k]`` triples (head, relation, tail), and a negative keeps its relation.

    Args:
        data: The training graph.
        validation: Validation edges ``[2, k]``.
        test: Test edges ``[2, k]``.
        validation_negatives: As many pairs that are not edges.
        test_negatives: As many pairs that are not edges.
        seed: The seed of the split.
    """

    data: Data
    validation: Tensor
    test: Tensor
    validation_negatives: Tensor
    test_negatives: Tensor
    seed: int


def split_links(data: Data, seed: int = 0, val: float = 0.05, test: float = 0.05, *, given: bool = False) -> LinkSplit:
    """Take validation and test edges out of a graph, with as many non-edges.

    Self-loops stay in the training graph. Parallel copies of an edge stay or go together. Non-edges of a bipartite graph,
    such as users and items, join its two parts.

    Args:
        data: The graph.
        seed: Draws the edges and the non-edges.
        val: Share of validation edges.
        test: Share of test edges.
        given: Take the split that the graph came with, its ``val_mask`` and ``test_mask`` over the edges.

    Returns:
        The training graph and the edges that were taken out.

    Raises:
        GraphError: If the graph has no edges to split, or no masks with ``given=True``.
        SettingError: If the shares are not between 0 and 1.

    >>> from gnndelete.datasets import load
    >>> split = split_links(load("digits"), seed=1)
    >>> split.validation.shape == split.validation_negatives.shape == split.test.shape
    True
    """
    _check_fractions(val=val, test=test)
    if not isinstance(data, Data):
        raise NotYetError(f"links of a '{type(data).__name__}' cannot be split yet; pass a Data with 'edge_type'")
    if data.edge_index is None:
        raise GraphError(
            f"the graph has no 'edge_index' (it has: {', '.join(data.keys()) or 'nothing'}); links need it"
        )
    if data.get("reverse_offset") is not None:
        raise GraphError(
            "the graph holds reverse relations, which would give the unseen edges away; split it before them"
        )
    num_nodes = int(data.num_nodes or 0)
    device = data.edge_index.device
    edge_index, kind = data.edge_index.cpu(), data.get("edge_type")
    table = EdgeTable(edge_index, num_nodes, None if kind is None else kind.cpu())
    generator = torch.Generator().manual_seed(seed)

    edge = edge_index if kind is None else torch.stack([edge_index[0], kind.cpu(), edge_index[1]])
    if table.undirected:
        edge = edge.sort(dim=0).values
    key = table.key(edge)
    if given:
        parts = [torch.unique(key[_edge_mask(data, name)]) for name in ("val_mask", "test_mask")]
        taken, num_val = torch.cat(parts), parts[0].numel()
    else:
        free = torch.unique(key[edge[0] != edge[-1]])
        num_val, num_test = int(val * free.numel()), int(test * free.numel())
        taken = free[torch.randperm(free.numel(), generator=generator)[: num_val + num_test]]
    positives = table.edges(taken)
    if kind is None:
        sampler = pair_sampler(edge_index, num_nodes, undirected=table.undirected)
        negatives = sampler.sample(taken.numel(), generator, distinct=True)
    else:
        negatives = TripleCorrupter(edge_index, kind.cpu(), num_nodes).corrupt(positives, generator)
    positives, negatives = positives.to(device), negatives.to(device)
    return LinkSplit(
        data=keep_edges(data, ~torch.isin(key, taken).to(device), num_nodes),
        validation=positives[:, :num_val],
        test=positives[:, num_val:],
        validation_negatives=negatives[:, :num_val],
        test_negatives=negatives[:, num_val:],
        seed=seed,
    )


def _edge_mask(data: Data, name: str) -> Tensor:
    mask = data.get(name)
    if mask is None or mask.dtype != torch.bool or mask.size(0) != data.edge_index.size(1):
        raise GraphError(
            f"given=True needs '{name}' with one entry per edge ({data.edge_index.size(1)}); split at random"
        )
    return mask.cpu()


def split_nodes(data: Data, seed: int = 0, train: float = 0.9, val: float = 0.05) -> Data:
    """Split the labelled nodes of a graph.

    Args:
        data: The graph. Nodes without a label (``y == -1``) are in no part.
        seed: Draws the parts.
        train: Share of training nodes.
        val: Share of validation nodes; the rest is test data.

    Returns:
        A copy of the graph with ``train_mask``, ``val_mask`` and ``test_mask``.

    Raises:
        SettingError: If the shares are not between 0 and 1, or add up to more than 1.

    >>> from gnndelete.datasets import load
    >>> data = split_nodes(load("digits"), seed=1)
    >>> int(data.train_mask.sum() + data.val_mask.sum() + data.test_mask.sum()) == data.num_nodes
    True
    """
    _check_fractions(train=train, val=val)
    num_nodes = int(data.num_nodes or 0)
    nodes = torch.arange(num_nodes)
    if isinstance(data.y, Tensor) and data.y.numel() == num_nodes:
        nodes = nodes[data.y.view(-1).cpu() != -1]
    nodes = nodes[torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))]
    num_train, num_val = int(train * nodes.numel()), int(val * nodes.numel())
    parts = nodes[:num_train], nodes[num_train : num_train + num_val], nodes[num_train + num_val :]
    device = data.x.device if data.x is not None else data.edge_index.device
    split = copy.copy(data)
    for name, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        mask[part] = True
        split[name] = mask.to(device)
    return split


@dataclass(frozen=True, eq=False, repr=False)
class GraphSplit(_Sized):
    """Positions of the training, validation and test graphs of a dataset.

    Args:
        train: Positions of the training graphs.
        validation: Positions of the validation graphs.
        test: Positions of the test graphs.
        seed: The seed of the split.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    seed: int


def split_graphs(graphs: Any, seed: int = 0, train: float = 0.8, val: float = 0.1) -> GraphSplit:
    """Split a dataset of graphs at random.

    Args:
        graphs: The graphs; only their number matters.
        seed: Draws the parts.
        train: Share of training graphs.
        val: Share of validation graphs; the rest is test data.

    Returns:
        The positions of the graphs in each part, sorted.

    Raises:
        SettingError: If the shares are not between 0 and 1, or add up to more than 1.

    >>> split_graphs(range(20), seed=1)
    GraphSplit(train=[16], validation=[2], test=[2], seed=1)
    """
    _check_fractions(train=train, val=val)
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(seed))
    first, second = int(train * len(graphs)), int(train * len(graphs)) + int(val * len(graphs))
    parts = order[:first], order[first:second], order[second:]
    training, validation, test = (part.sort().values for part in parts)
    return GraphSplit(training, validation, test, seed)


def keep_edges(data: Data, keep: Tensor, num_nodes: int) -> Data:
    """A copy with the edges in the mask ``keep`` and everything that belongs to them; the rest is shared."""
    split, left = copy.copy(data), keep.nonzero().flatten()
    if data.x is None:
        split.num_nodes = num_nodes  # otherwise inferred from the edges, which are fewer now
    if "edge_type" in data:
        split.num_relations = count_relations(data)  # of one of them no edge may be left
    for key in list(data.keys()):
        per_edge_mask = key in ("train_mask", "val_mask", "test_mask") and data.is_edge_attr(key)
        if key in ("edge_label", "edge_label_index", "adj_t") or per_edge_mask:
            del split[key]  # these would bring the unseen edges back, or speak of edges that are gone
        elif data.is_edge_attr(key):
            split[key] = entries(data, key, left)
    return split


def _check_fractions(**fractions: float) -> None:
    for name, value in fractions.items():
        if not 0 <= value <= 1:
            raise SettingError(f"'{name}' must lie between 0 and 1 (got {value})")
    if sum(fractions.values()) > 1:
        shown = " and ".join(f"'{name}' {value}" for name, value in fractions.items())
        raise SettingError(f"{shown} add up to more than 1; leave something for the rest")


#: The tensors of a split of each kind.
_TENSORS = {
    "link": ("validation", "test", "validation_negatives", "test_negatives"),
    "node": ("train_mask", "val_mask", "test_mask"),
    "graph": ("train", "validation", "test"),
}


def save_split(split: LinkSplit | GraphSplit | Data, graph: Any, path: str | PathLike[str], **parameters: Any) -> None:
    """Write a split to a file, with the fingerprint of its graph.

    Args:
        split: What `split_links`, `split_nodes` or `split_graphs` returned.
        graph: The graph, or the graphs, that were split.
        path: The file.
        parameters: The parameters of the split; `load_split` compares them.

    Raises:
        GraphError: If ``split`` is no split.
    """
    kind = "link" if isinstance(split, LinkSplit) else "graph" if isinstance(split, GraphSplit) else "node"
    try:
        tensors = {name: getattr(split, name).cpu().contiguous() for name in _TENSORS[kind]}
    except AttributeError:
        why_not = f"'{type(split).__name__}' is no split"
        raise GraphError(why_not, "give what split_links, split_nodes or split_graphs returned") from None
    facts = {"kind": kind, "graph": _name(graph), "parameters": json.dumps(parameters, sort_keys=True)}
    facts["seed"] = str(getattr(split, "seed", parameters.get("seed", 0)))
    write(Path(path), save(tensors, metadata=facts))


def load_split(path: str | PathLike[str], graph: Any, **parameters: Any) -> LinkSplit | GraphSplit | Data:
    """Read a split that `save_split` wrote.

    Args:
        path: The file.
        graph: The graph, or the graphs, that were split.
        parameters: The parameters that the split must have been made with.

    Returns:
        The split.

    Raises:
        GraphError: If the file is damaged, or the graph or the parameters are different ones.

    >>> import tempfile
    >>> from gnndelete.datasets import load, split_links
    >>> data = load("digits")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_split(split_links(data, seed=3), data, f"{folder}/split", seed=3)
    ...     load_split(f"{folder}/split", data, seed=3).seed
    3
    """
    try:
        with safe_open(str(path), "pt") as file:
            facts = dict(file.metadata() or {})
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        kind, seed, made = facts["kind"], int(facts["seed"]), json.loads(facts["parameters"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise GraphError(f"no readable split at '{path}' ({why(error)}); make it again with save_split") from error
    if facts["graph"] != _name(graph):
        raise GraphError(
            f"the split at '{path}' belongs to another graph, or the graph has changed since; make it again"
        )
    changed = sorted(name for name in {*made, *parameters} if made.get(name) != parameters.get(name))
    if changed:
        name = changed[0]
        raise GraphError(
            f"the split at '{path}' was made with {name}={made.get(name)!r}, not {parameters.get(name)!r}; make it again"
        )
    if kind == "graph":
        return GraphSplit(**tensors, seed=seed)
    tensors = {name: value.to(graph.edge_index.device) for name, value in tensors.items()}
    if kind == "node":
        return copy.copy(graph).update(tensors)
    table = EdgeTable(graph.edge_index, int(graph.num_nodes), graph.get("edge_type"))
    gone = torch.cat([tensors["validation"], tensors["test"]], dim=1)
    if table.undirected:
        gone = torch.cat([gone, gone.flip(0)], dim=1)
    keep = torch.ones(graph.edge_index.size(1), dtype=torch.bool, device=graph.edge_index.device)
    keep[table.positions(gone)] = False
    return LinkSplit(keep_edges(graph, keep, int(graph.num_nodes)), **tensors, seed=seed)


def _name(graph: Any) -> str:
    if isinstance(graph, Data):
        return fingerprint(graph)
    sizes = [[int(g.num_nodes or 0), g.num_edges] if isinstance(g, Data) else [0, 0] for g in graph]
    return tensor_digest({"sizes": torch.tensor(sizes)})
