"""A named graph on disk: graph.safetensors, graph.json and ids.json, which hold numbers and text and nothing that runs."""

from __future__ import annotations

import json
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.assembly import NamedGraph
from gnndelete.datasets.ids import IdMap
from gnndelete.errors import GraphError, some
from gnndelete.graph.validation import check_graph, count_nodes, tensor_digest
from gnndelete.io.files import write_all

CONFIG, TENSORS, IDS = "graph.json", "graph.safetensors", "ids.json"
_FORMAT = "gnndelete-graph-1"
_TEXTS = tuple(field.name for field in fields(NamedGraph) if field.name not in ("data", "ids"))
_LAYOUTS = {"coo": torch.sparse_coo, "csr": torch.sparse_csr, "csc": torch.sparse_csc}


def save_graph(graph: NamedGraph | Data, folder: str | PathLike[str]) -> None:
    """Write a graph with all its names, to be read back with `load_graph`.

    >>> import tempfile
    >>> from gnndelete.datasets.formats import load_graph
    >>> folder = tempfile.mkdtemp()
    >>> graph = NamedGraph(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2), IdMap(["user:4711", "item:7"]))
    >>> save_graph(graph, folder)
    >>> load_graph(folder)
    NamedGraph(Data(edge_index=[2, 1], num_nodes=2), ids=IdMap('user:4711', 'item:7'))
    """
    named = NamedGraph(graph) if isinstance(graph, Data) else graph
    check_graph(named.data)
    if named.ids is not None and len(named.ids) != count_nodes(named.data):
        raise GraphError(f"the graph has {count_nodes(named.data)} nodes and {len(named.ids)} ids; give one per node")
    tensors, sparse, plain = _parts(named.data)
    config = {
        "format": _FORMAT,
        "tensors": tensor_digest(tensors),
        "ids": None if named.ids is None else named.ids.fingerprint,
        **{name: getattr(named, name) for name in _TEXTS},
        "sparse": sparse,
        "plain": plain,
    }
    contents = {TENSORS: dump_tensors(tensors), CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    if named.ids is not None:
        contents[IDS] = named.ids.to_bytes()
    write_all(Path(folder), contents)


def read_folder(folder: Path) -> NamedGraph:
    """What `save_graph` wrote; refused where a file is damaged or does not belong to the others."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        if config["format"] != _FORMAT:
            raise GraphError(f"'{folder / CONFIG}' is of another format ({config['format']!r}); save the graph again")
        tensors = load_tensors((folder / TENSORS).read_bytes())
        if tensor_digest(tensors) != config["tensors"]:
            raise GraphError(f"'{folder / TENSORS}' is not the file that {CONFIG} describes; save the graph again")
        ids = None if config["ids"] is None else IdMap.load(folder / IDS)
        if ids is not None and ids.fingerprint != config["ids"]:
            raise GraphError(f"'{folder / IDS}' belongs to another graph; save the graph again")
        data = Data.from_dict(_values(tensors, config["sparse"], config["plain"]))
        texts = {name: tuple(map(str, config[name])) for name in _TEXTS}
    except OSError as error:
        raise GraphError(
            f"the graph '{folder}' cannot be read ({error.filename or folder}: {error.strerror or error})"
        ) from None
    except GraphError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError, SafetensorError) as error:
        raise GraphError(f"the graph '{folder}' is damaged ({error}); save it again") from None
    check_graph(data)
    if ids is not None and len(ids) != count_nodes(data):
        raise GraphError(f"'{folder}' has {count_nodes(data)} nodes and {len(ids)} ids; save the graph again")
    return NamedGraph(data, ids, **texts)


def _parts(data: Data) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """Tensors by name, the layouts of those that are sparse (kept as their entries), and values that are no tensors."""
    tensors: dict[str, Tensor] = {}
    sparse: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, value in data.to_dict().items():
        if isinstance(value, Tensor) and value.layout == torch.strided:
            tensors[name] = value.detach().cpu().contiguous().clone()
        elif isinstance(value, Tensor):
            entries = value.detach().cpu().to_sparse_coo().coalesce()
            tensors |= {f"{name}/indices": entries.indices().contiguous(), f"{name}/values": entries.values()}
            layout = next(key for key, known in _LAYOUTS.items() if known == value.layout)
            sparse[name] = {"layout": layout, "shape": list(value.shape)}
        elif isinstance(value, (bool, int, float, str)):
            plain[name] = value
        else:
            raise GraphError(
                f"data.{name} is a '{type(value).__name__}', which is not saved; give a tensor or remove it"
            )
    odd = [name for name in data.keys() if "/" in name]  # noqa: SIM118  # Data is no dict
    if odd:
        raise GraphError(f"attributes of data must not have a slash in their name: {some(odd)}; rename them")
    return tensors, sparse, plain


def _values(tensors: dict[str, Tensor], sparse: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in tensors.items() if "/" not in name} | plain
    for name, form in sparse.items():
        entries = torch.sparse_coo_tensor(
            tensors[f"{name}/indices"], tensors[f"{name}/values"], form["shape"], check_invariants=True
        ).coalesce()
        values[name] = entries if form["layout"] == "coo" else entries.to_sparse(layout=_LAYOUTS[form["layout"]])
    return values
