"""Sets of graphs in the raw layout of OGB, read from their tables alone: no package of OGB's, nothing that is pickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gnndelete.datasets.stored import Content

#: The parts of a split, as their files are called.
_PARTS = ("train", "valid", "test")


def read_tables(folder: Path) -> Content:
    """Graphs whose nodes, edges and labels stand one below the other in ``raw``, as ``num-*-list`` counts them.

    Edges are stored once and go both ways here, the second direction right after the first, as OGB's own classes have it.
    """
    raw = folder / "raw"
    nodes, edges = (_table(raw / f"num-{what}-list.csv.gz").flatten() for what in ("node", "edge"))
    x, once, labels = (_table(raw / f"{name}.csv.gz") for name in ("node-feat", "edge", "graph-label"))
    found = (len(x), len(once), len(labels), len(edges))
    if found != (known := (int(nodes.sum()), int(edges.sum()), len(nodes), len(nodes))):
        raise ValueError(f"tables of {found} rows where {known} are counted")
    size = nodes.repeat_interleave(edges)
    if len(once) and not bool(((once >= 0) & (once < size[:, None])).all()):
        raise ValueError("edges that name nodes beyond the last one of their graph")
    data = {"edge_index": torch.stack([once, once.flip(1)], dim=1).view(-1, 2).t().contiguous(), "x": x, "y": labels}
    starts = {"edge_index": 2 * edges, "x": nodes, "y": torch.ones_like(nodes)}
    if (raw / "edge-feat.csv.gz").is_file():
        attributes = _table(raw / "edge-feat.csv.gz")
        if len(attributes) != len(once):
            raise ValueError(f"features of {len(attributes)} edges instead of {len(once)}")
        data["edge_attr"], starts["edge_attr"] = attributes.repeat_interleave(2, dim=0), 2 * edges
    slices = {key: torch.cat([counts.new_zeros(1), counts.cumsum(0)]) for key, counts in starts.items()}
    split = {part: _table(next(folder.glob(f"split/*/{part}.csv.gz"))).flatten() for part in _PARTS}
    return {"data": data, "slices": slices, "split": split}


def _table(path: Path) -> Tensor:
    """Whole numbers ``[rows, columns]``."""
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, delimiter=",", ndmin=2))
