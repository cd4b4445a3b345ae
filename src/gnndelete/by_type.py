"""Requests in the words of a `HeteroData`: for each kind a dict by node type or edge type, and their place across all types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gnndelete.errors import DeletionError, GraphError, some
from gnndelete.hetero import HeteroGraph

Kinds = dict[str, Any]
TypeName = str | tuple[str, str, str]


def split_by_type(given: Kinds) -> dict[TypeName, Kinds] | None:
    """What each type loses, where the kinds are given by type; None for a request in plain ids.

    >>> split_by_type({"nodes": {"paper": [3]}, "labels": {"paper": [4]}, "edges": None})
    {'paper': {'nodes': [3], 'labels': [4]}}
    """
    asked = {kind: value for kind, value in given.items() if value is not None and kind != "fill"}
    typed = [kind for kind, value in asked.items() if _is_typed(kind, value)]
    if not typed:
        return None
    plain = [kind for kind in asked if kind not in typed]
    if plain:
        raise DeletionError(
            f"{typed[0]}= is given by type and {plain[0]}= is not; give all of them by type, as in {plain[0]}={{…: …}}"
        )
    result: dict[TypeName, Kinds] = {}
    for kind in typed:
        value = asked[kind]
        if kind == "relations":  # of one edge type there is one relation: number 0
            value = {name: [0] for name in ([value] if isinstance(value[0], str) else value)}
        for name, part in value.items():
            result.setdefault(_checked(kind, name), {})[kind] = part
    fill = given.get("fill", 0.0)
    for name, kinds in result.items():
        if "features" in kinds:
            kinds["fill"] = fill.get(name, 0.0) if isinstance(fill, Mapping) else fill
    return result


def _is_typed(kind: str, value: Any) -> bool:
    if kind == "relations":
        return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], (str, tuple))
    if not isinstance(value, Mapping) or not value:
        return False
    return kind in ("edges", "nodes", "labels") or (kind == "features" and isinstance(next(iter(value)), (str, tuple)))


def _checked(kind: str, name: Any) -> TypeName:
    if kind in ("edges", "relations"):
        if not isinstance(name, tuple) or len(name) != 3 or not all(isinstance(part, str) for part in name):
            raise DeletionError(
                f"{kind}= is a dict by edge type with the key {name!r}; an edge type is (source type, relation, target type)"
            )
    elif not isinstance(name, str):
        raise DeletionError(f"{kind}= names the node type {name!r}; a node type is a string")
    return name


def place(by_type: Mapping[TypeName, Any], data: HeteroGraph) -> tuple[Kinds, Tensor, Tensor]:
    """Everything that is named by type in ids across all types: edges, nodes, labels and relations; features and values."""
    edges, nodes, labels, relations = [], [], [], []
    features, values = [], []
    try:
        for name, part in by_type.items():
            if isinstance(name, tuple):
                number = data.types.number(name)
                if part.edges.size(1):
                    edges.append(data.place_edges(name, part.edges, "edges="))
                relations += [number] * part.relations.numel()
                continue
            nodes.append(data.place_nodes(name, part.nodes, "nodes="))
            labels.append(data.place_nodes(name, part.labels, "labels="))
            features.append(torch.stack([data.place_nodes(name, part.features[0], "features="), part.features[1]]))
            values.append(part.fill)
    except GraphError as error:
        raise DeletionError(str(error)) from None
    none = torch.empty(0, dtype=torch.long)
    kinds = {
        "edges": torch.cat(edges, dim=1) if edges else None,
        "nodes": torch.cat([none, *nodes]),
        "labels": torch.cat([none, *labels]),
        "relations": torch.tensor(relations, dtype=torch.long),
    }
    entries = torch.cat([torch.empty(2, 0, dtype=torch.long), *features], dim=1)
    return kinds, entries, torch.cat([torch.empty(0, dtype=torch.float64), *values])


def refuse_plain(data: HeteroGraph, counts: Mapping[str, int]) -> None:
    """Refuse plain ids on a graph where each type counts its own."""
    kind = next(iter(counts))
    known = data.types.edges if kind in ("edges", "relations") else data.types.nodes
    form = "[edge types]" if kind == "relations" else "{type: …}"
    raise DeletionError(
        f"{kind}= is given in plain ids, and every type of a HeteroData counts its own; give {kind}={form} with types among "
        f"{some(map(repr, known), 12)}"
    )
