"""Reading raw files with OGB's own dataset classes (``pip install gnndelete[ogb]``), or without them: see `read_tables`.

OGB calls ``torch.load`` as if it were safe to load anything. That happens here only, on the file that OGB's class itself
wrote a moment before into a folder of ours that no other user can enter, and even so with ``weights_only`` and no more
than PyG's own classes allowed. Splits that come with a dataset are pickles too: they are read here, arrays only.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.datasets.catalog import Entry
from gnndelete.datasets.pyg import guarded
from gnndelete.datasets.stored import Content
from gnndelete.datasets.tables_of_graphs import read_tables
from gnndelete.errors import GraphError


def read_ogb(entry: Entry, building: Path) -> Content:
    """The content of OGB's dataset class ``entry.kind``, with the original split; sets of graphs that are here need no OGB."""
    if entry.graphs > 1 and (building / entry.folder).is_dir():
        return read_tables(building / entry.folder)
    with contextlib.redirect_stdout(sys.stderr):  # OGB prints as it goes
        kind = guarded(_ogb_class(entry), lambda _: None)
        here = building / entry.folder
        if here.is_dir():
            release = here / "RELEASE_v1.txt"
            if not release.exists():
                release.touch()  # without it OGB asks a question on the terminal
            for shortcut in here.rglob("split_dict.pt"):
                shortcut.unlink()
        with _pyg_classes():
            found = kind(entry.title, str(here.parent))
        if entry.graphs > 1:
            return {"data": found._data.to_dict(), "slices": found.slices, "split": found.get_idx_split()}
    split = {
        part: _read_split(here / "split" / found.meta_info["split"] / f"{part}.pt")
        for part in ("train", "valid", "test")
    }
    return {"data": (_typed(found._data, split) if entry.typed else _plain(found._data, split)).to_dict()}


def _ogb_class(entry: Entry) -> Any:
    """OGB's class. OGB looks for news of itself on the network when imported; it does without, and waits for nothing."""
    absent = object()
    before = sys.modules.get("outdated", absent)
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        if entry.kind == "PygLinkPropPredDataset":
            from ogb.linkproppred import PygLinkPropPredDataset

            return PygLinkPropPredDataset
        from ogb.graphproppred import PygGraphPropPredDataset

        return PygGraphPropPredDataset
    except ImportError as error:
        raise GraphError(
            f"dataset '{entry.name}' needs the package ogb ({error}); run: pip install gnndelete[ogb]"
        ) from error
    finally:
        if before is absent:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = before  # type: ignore[assignment]


@contextlib.contextmanager
def _pyg_classes() -> Iterator[None]:
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    with _allowed([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        yield


@contextlib.contextmanager
def _allowed(classes: list[Any]) -> Iterator[None]:
    """Let ``weights_only`` pass these for a while; those that others allowed for good are left to them."""
    with torch.serialization.safe_globals(
        [one for one in classes if one not in torch.serialization.get_safe_globals()]
    ):
        yield


def _read_split(path: Path) -> dict[str, Any]:
    """A dict of arrays; the published files were written by older versions of numpy, with its names of then."""
    reconstruct = np.empty(0).__reduce__()[0]
    allowed = [
        np.ndarray,
        np.dtype,
        *(type(np.dtype(code)) for code in ("i4", "i8", "u1", "f4", "f8", "O", "U1", "S1")),
    ]
    named: list[Any] = [(reconstruct, f"numpy.{place}.multiarray._reconstruct") for place in ("core", "_core")]
    with _allowed([*allowed, *named]):
        return {
            key: torch.from_numpy(value) if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" else value
            for key, value in torch.load(path, weights_only=True).items()
        }


def _plain(data: Data, split: dict[str, Any]) -> Data:
    """The graph of training edges; unseen edges and negatives under the names of `LinkSplit`, each ``[2, k]``."""
    for name, part in (("validation", "valid"), ("test", "test")):
        data[name] = split[part]["edge"].t().contiguous()
        data[f"{name}_negatives"] = split[part]["edge_neg"].t().contiguous()
    return data


def _typed(data: Data, split: dict[str, Any]) -> Data:
    """All triples in one graph: entities of one kind after those of another, masks for the three parts."""
    counts = {kind: int(count) for kind, count in sorted(data.num_nodes_dict.items())}
    sizes = list(counts.values())
    offset = dict(zip(counts, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    def end(part: dict[str, Any], side: str) -> Tensor:
        kinds, codes = np.unique(np.asarray(part[f"{side}_type"], dtype=str), return_inverse=True)
        return part[side].long() + torch.tensor([offset[str(kind)] for kind in kinds])[torch.from_numpy(codes)]

    parts = [split[part] for part in ("train", "valid", "test")]
    which = torch.arange(3).repeat_interleave(torch.tensor([len(part["head"]) for part in parts]))
    edge_index = torch.cat([torch.stack([end(part, "head"), end(part, "tail")]) for part in parts], dim=1)
    return Data(
        edge_index=edge_index,
        edge_type=torch.cat([part["relation"].long() for part in parts]),
        node_type=torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        train_mask=which == 0,
        val_mask=which == 1,
        test_mask=which == 2,
        num_nodes=sum(sizes),
    )
