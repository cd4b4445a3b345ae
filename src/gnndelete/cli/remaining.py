"""The graph that remains after a deletion, as files: what the model is to be served on from then on."""

from __future__ import annotations

import io
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.cli.runs import METRICS, to_bytes
from gnndelete.datasets import IdMap, NamedGraph, save_graph
from gnndelete.datasets.formats import CONFIG, IDS, TENSORS
from gnndelete.errors import SettingError

MARK, PICKLED = "remaining.json", "graph.pt"
NAMES = (MARK, PICKLED, CONFIG, TENSORS, IDS)
"""Every file that may stand in such a folder."""


def check_folder(folder: Path, run: Path, out: Path, graph: Path | None) -> None:
    """Refuse a folder in which anything but an earlier remaining graph would be lost."""
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"'{folder}' is a file; give --save-graph a folder")
    place = folder.resolve()
    if place in (run.resolve(), out.resolve()) or (folder / METRICS).exists():
        raise SettingError(f"'{folder}' holds a run or its result; give --save-graph a folder of its own")
    if graph is not None and place in (graph.resolve(), graph.resolve().parent):
        raise SettingError(f"'{folder}' holds the graph the run was trained on; give --save-graph another folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise SettingError(f"'{folder}' holds other files and no remaining graph; give --save-graph a new folder")


def graph_files(graph: NamedGraph, deleted: Tensor, facts: dict[str, Any]) -> dict[str, bytes]:
    """The files of a remaining graph by name; the names of the deleted nodes are not in them.

    A graph with ids is written as `save_graph` does, another one as ``graph.pt``.
    """
    mark = {MARK: to_bytes(facts)}
    if graph.ids is None:
        return mark | {PICKLED: _pickled(graph.data)}
    with tempfile.TemporaryDirectory() as folder:
        save_graph(replace(graph, ids=without_names(graph.ids, deleted)), folder)
        return mark | {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def without_names(ids: IdMap, nodes: Tensor) -> IdMap:
    """The ids with the names of some nodes taken out; every node keeps its place.

    >>> without_names(IdMap(["ann", "bob", "cy"]), torch.tensor([1])).names
    ('ann', 'deleted:1', 'cy')
    """
    if not nodes.numel():
        return ids
    start = "deleted:"
    while any(name.startswith(start) for name in ids.names):
        start = f"_{start}"
    gone = set(nodes.tolist())
    return IdMap(f"{start}{place}" if place in gone else name for place, name in enumerate(ids.names))


def _pickled(data: Data) -> bytes:
    # Copies: torch.save writes the whole memory behind a tensor, also what the tensor does not show of it.
    values = {n: v.detach().cpu().clone() if isinstance(v, Tensor) else v for n, v in data.to_dict().items()}
    file = io.BytesIO()
    torch.save(Data.from_dict(values), file)
    return file.getvalue()
