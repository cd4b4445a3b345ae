"""Debian's package graph: packages that depend on, recommend, break or replace each other; a large real typed graph."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import torch

from gnndelete.datasets.catalog import Entry
from gnndelete.datasets.pyg import OfflineError
from gnndelete.datasets.stored import Content


def read_debian(entry: Entry, building: Path) -> Content:
    """Triples with the names of entities and relations, from ``triples.npz`` and ``nodes.tsv.gz``."""
    folder = building / entry.folder
    if not folder.is_dir():
        raise OfflineError("it has no public address")
    with np.load(folder / "triples.npz", allow_pickle=False) as file:
        triples, relations, count = file["triples"], file["relations"].tolist(), int(file["num_entities"])
    with gzip.open(folder / "nodes.tsv.gz", "rt", encoding="utf-8", newline="") as lines:
        names = [row["name"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype.kind not in "iu":
        raise ValueError(
            f"'triples' has shape {list(triples.shape)} and dtype {triples.dtype} where rows of 3 ids belong"
        )
    if len(names) != count or triples.min() < 0 or (triples.max(axis=0) >= (count, len(relations), count)).any():
        raise ValueError(f"the triples name entities or relations beyond the {len(names)} and {len(relations)} listed")
    head, relation, tail = torch.from_numpy(triples.astype(np.int64)).t().contiguous()
    data = {"edge_index": torch.stack([head, tail]), "edge_type": relation, "num_nodes": count}
    return {"data": data, "names": {"entity_names": names, "relation_names": relations}}
