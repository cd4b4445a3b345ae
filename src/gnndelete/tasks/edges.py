"""Edges as users hand them over for unseen and test data: plain, labelled, or inside a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.hetero import one_type
from gnndelete.graph.parsing import edge_list


@dataclass(frozen=True, eq=False)
class LabeledEdges:
    """True edges, and pairs known not to be edges (``None``: to be drawn)."""

    positives: Tensor
    negatives: Tensor | None = None

    def without(self, nodes: Tensor) -> LabeledEdges | None:
        """Those that name none of the given nodes; None where no true edge is left."""
        kept = [
            part if part is None else part[:, ~torch.isin(ends_of(part), nodes.to(part.device)).any(dim=0)]
            for part in (self.positives, self.negatives)
        ]
        return LabeledEdges(kept[0], kept[1]) if kept[0] is not None and kept[0].size(1) else None


def labeled_edges(value: Any, negatives: Any, name: str, edge_type: Any = None) -> LabeledEdges | None:
    """Read ``validation=`` or ``test=`` with its negatives; nothing, or no edges at all, is ``None``."""
    if isinstance(value, HeteroData):
        kinds = [kind for kind in value.edge_types if "edge_label_index" in value[kind] and edge_type in (None, kind)]
        value = value[
            one_type(kinds, f"edge types of '{name}' with 'edge_label_index'", "edge_type=", value.edge_types)
        ]
    elif isinstance(value, Mapping) and len(value) == 1 and edge_type in (None, *value):
        value = next(iter(value.values()))
    if value is None:
        if negatives is not None:
            raise SettingError(f"'{name}_negatives' was given without '{name}'; pass the true edges too")
        return None
    edges, label = value, None
    if hasattr(value, "edge_label_index"):
        edges, label = value.edge_label_index, getattr(value, "edge_label", None)
        if edges is None or label is None:
            raise SettingError(f"'{name}' is a graph without 'edge_label_index' and 'edge_label'; pass a [2, k] tensor")
    elif isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(part, Tensor) for part in value):
        edges, label = value
    edges = edge_list(edges, name)
    known = None if negatives is None else edge_list(negatives, f"{name}_negatives")
    if label is not None:
        if label.numel() != edges.size(1):
            raise SettingError(
                f"'{name}' has {edges.size(1)} edges and {label.numel()} labels; give one label per edge"
            )
        true = label.view(-1) > 0
        if known is not None and not bool(true.all()):
            raise SettingError(
                f"'{name}' holds edges labelled 0 and '{name}_negatives' was given too; pass one of them"
            )
        if not bool(true.all()):
            known = edges[:, ~true]
        edges = edges[:, true]
    return LabeledEdges(edges, known) if edges.size(1) else None


def check_width(edges: Tensor, typed: bool, name: str) -> None:
    """Refuse pairs on a typed graph and triples on a plain one."""
    if edges.size(0) != (3 if typed else 2):
        raise GraphError(
            f"'{name}' holds pairs, and the graph has 'edge_type': give triples (head, relation, tail)"
            if typed
            else f"'{name}' holds triples, and the graph has no 'edge_type': give pairs (source, target)"
        )


def check_range(edges: Tensor, num_nodes: int, name: str, output: bool = False) -> None:
    """Refuse node ids that the graph, or the model's ``output``, has no row for."""
    if not edges.numel():
        return
    low, high = torch.stack(ends_of(edges).aminmax()).tolist()  # a device is waited for once
    if low < 0 or high >= num_nodes:
        wrong = high if high >= num_nodes else low
        if output:
            raise GraphError(
                f"'{name}' names node {wrong}, and the model returned {num_nodes} rows, from 0 to {num_nodes - 1}; it must "
                "return one for every node of the graph, and edges name nodes among these"
            )
        raise GraphError(f"'{name}' names node {wrong}, and the graph has the nodes 0 to {num_nodes - 1}")
