"""Splits on disk, with the fingerprint of the graph they belong to: refused when graph or parameters changed."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.splits import GraphSplit, LinkSplit, keep_edges
from gnndelete.errors import GraphError, why
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.validation import fingerprint, tensor_digest
from gnndelete.io.files import write

_LINK = ("validation", "test", "validation_negatives", "test_negatives")
_NODE = ("train_mask", "val_mask", "test_mask")
_GRAPH = ("train", "validation", "test")


def save_split(split: LinkSplit | GraphSplit | Data, graph: Any, path: str | PathLike[str], **parameters: Any) -> None:
    """Write a split of ``graph`` (links, nodes or whole graphs), with the ``parameters`` it was made by."""
    kind, names = _kind(split)
    tensors = {name: getattr(split, name).cpu().contiguous() for name in names}
    facts = {"kind": kind, "graph": _name(graph), "parameters": json.dumps(parameters, sort_keys=True)}
    facts["seed"] = str(getattr(split, "seed", parameters.get("seed", 0)))
    write(Path(path), save(tensors, metadata=facts))


def load_split(path: str | PathLike[str], graph: Any, **parameters: Any) -> LinkSplit | GraphSplit | Data:
    """Read a split again; refused where the graph, or the parameters it should have been made by, are others.

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
        return GraphSplit(**{name: tensors[name] for name in _GRAPH}, seed=seed)
    device = graph.edge_index.device
    tensors = {name: value.to(device) for name, value in tensors.items()}
    if kind == "node":
        result = graph.__copy__()
        for name in _NODE:
            result[name] = tensors[name]
        return result
    table = EdgeTable(graph.edge_index, int(graph.num_nodes), graph.get("edge_type"))
    gone = torch.cat([tensors["validation"], tensors["test"]], dim=1)
    if table.undirected:
        gone = torch.cat([gone, gone.flip(0)], dim=1)
    return LinkSplit(
        keep_edges(graph, table.without(gone), int(graph.num_nodes)),
        **{name: tensors[name] for name in _LINK},
        seed=seed,
    )


def _kind(split: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(split, LinkSplit):
        return "link", _LINK
    if isinstance(split, GraphSplit):
        return "graph", _GRAPH
    if isinstance(split, Data) and all(isinstance(split.get(name), Tensor) for name in _NODE):
        return "node", _NODE
    raise GraphError(
        f"'{type(split).__name__}' is no split; give what split_links, split_nodes or split_graphs returned"
    )


def _name(graph: Any) -> str:
    if isinstance(graph, Data):
        return fingerprint(graph)
    sizes = [[int(g.num_nodes or 0), g.num_edges] if isinstance(g, Data) else [0, 0] for g in graph]
    return tensor_digest({"sizes": torch.tensor(sizes)})
