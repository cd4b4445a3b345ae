"""Requests in the words of a `HeteroData`: for each kind a dict by node type or edge type, and their place across all types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gnndelete.errors import DeletionError, GraphError, some
from gnndelete.graph.hetero import HeteroGraph

Kinds = dict[str, Any]
TypeName = str | tuple[str, ...]  # a node type, an edge type, or the relation of one alone: (relation,)

ONE_GRAPH = "graphs= names graphs of a set, and a HeteroData is one graph; name nodes= or edges= by type instead"


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
    if "graphs" in plain:
        raise DeletionError(ONE_GRAPH)
    if plain:
        raise DeletionError(
            f"{typed[0]}= is given by type and {plain[0]}= is not; give all of them by type, as in {plain[0]}={{…: …}}"
        )
    result: dict[TypeName, Kinds] = {}
    for kind in typed:
        value = asked[kind]
        if kind == "relations":  # of one edge type there is one relation: number 0
            value = {name: [0] for name in _edge_types(value)}
        for name, part in value.items():
            result.setdefault(_checked(kind, name), {})[kind] = part
    _give_fill(given.get("fill", 0.0), result)
    return result


def _give_fill(fill: Any, types: dict[TypeName, Kinds]) -> None:
    """Add to each type that loses features what replaces them."""
    losing = {name: kinds for name, kinds in types.items() if "features" in kinds}
    odd = [name for name in fill if name not in losing] if isinstance(fill, Mapping) else []
    if odd:
        known = f"those of {some(map(repr, losing), 12)}" if losing else "none"
        raise DeletionError(
            f"fill= says what replaces features of {some(map(repr, odd))}, and features= names {known}; name the same types"
        )
    for name, kinds in losing.items():
        kinds["fill"] = fill.get(name, 0.0) if isinstance(fill, Mapping) else fill


def _edge_types(value: Any) -> list[Any]:
    """Edge types as they are named: one, a list of them, or relations alone, which `Types.number` looks up.

    >>> _edge_types(["buys", ("user", "knows", "user")])
    [('buys',), ('user', 'knows', 'user')]
    """
    if isinstance(value, str) or (isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str)):
        value = [value]
    return [(name,) if isinstance(name, str) else tuple(name) if isinstance(name, list) else name for name in value]


def _is_typed(kind: str, value: Any) -> bool:
    if kind == "relations":
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        return isinstance(first, (str, tuple, list))
    if not isinstance(value, Mapping) or not value:
        return False
    return kind in ("edges", "nodes", "labels") or (kind == "features" and isinstance(next(iter(value)), (str, tuple)))


def _checked(kind: str, name: Any) -> TypeName:
    if kind in ("edges", "relations"):
        widths = (1, 3) if kind == "relations" else (3,)
        if not isinstance(name, tuple) or len(name) not in widths or not all(isinstance(part, str) for part in name):
            got = f"is a dict by edge type with the key {name!r}" if kind == "edges" else f"names {name!r}"
            raise DeletionError(f"{kind}= {got}; an edge type is (source type, relation, target type)")
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


def refuse_types(by_type: Mapping[TypeName, Any]) -> None:
    """Refuse names of types on a graph that has none."""
    types = [name[0] if len(name) == 1 else name for name in by_type]  # a relation alone is a tuple of one
    raise DeletionError(
        f"the request names types ({some(map(repr, types))}), and the graph is no HeteroData; give plain ids"
    )


def refuse_plain(data: HeteroGraph, counts: Mapping[str, int]) -> None:
    """Refuse plain ids on a graph where each type counts its own."""
    kind = next(iter(counts))
    if kind == "graphs":
        raise DeletionError(ONE_GRAPH)
    known = data.types.edges if kind in ("edges", "relations") else data.types.nodes
    form = "[edge types]" if kind == "relations" else "{type: …}"
    raise DeletionError(
        f"{kind}= is given in plain ids, and every type of a HeteroData counts its own; give {kind}={form} with types among "
        f"{some(map(repr, known), 12)}"
    )
