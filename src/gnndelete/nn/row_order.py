"""Are the rows behind a layer in the order of the nodes? An operator knows its rows by node id."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.validation import count_nodes
from gnndelete.nn.perturb import Seen
from gnndelete.nn.reach import joined

#: Pairs of nodes that are looked for: some may be found in their own rows by chance.
_PAIRS = 4


def reordered(run: Callable[[Data, Tensor], list[Seen]], data: Data, table: EdgeTable) -> list[str]:
    """Names of layers behind which the rows are nodes in another order. ``run`` poisons nodes in the data alone.

    Two nodes with no edge but the one between them move no more than two rows there, and not their own; and with all edges
    they move rows that no edge joins with these two: edges too are numbered otherwise. (A model that looks up other nodes by
    number has edges as the graph has them.)
    """
    left: set[str] | None = None
    displaced: set[str] = set()
    for ends in _pairs(data):
        try:
            single = data.edge_subgraph(table.positions(torch.stack([ends, ends.flip(0)], dim=1)))
            single.num_nodes = count_nodes(data)
            whole, alone = _the_same(run, data, ends), _the_same(run, single, ends)
        except Exception:  # whatever a model or an attribute of the user's has against a graph of one edge
            return []
        found = set()
        for item, own in zip(whole, alone, strict=False):
            rows = torch.empty(0) if own.moved is None else own.moved.nonzero().flatten()
            if item.layer is not None and 0 < rows.numel() <= 2 and not joined(item, table, rows):
                found.add(item.layer)
                displaced |= set() if bool(torch.isin(rows, ends).all()) else {item.layer}
        left = found if left is None else left & found
        if not left:
            return []
    return sorted((left or set()) & displaced)


def _the_same(run: Callable[[Data, Tensor], list[Seen]], data: Data, ends: Tensor) -> list[Seen]:
    """A run with numbers drawn as in every other: a model may shuffle rows on purpose, and not twice alike."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return run(data, ends)


def _pairs(data: Data) -> list[Tensor]:
    """Ends of edges from all over the list of them."""
    edges = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    places = torch.linspace(0, max(edges.size(1) - 1, 0), _PAIRS, device=edges.device).long().unique()
    return list(edges[:, places].t()) if edges.size(1) else []
