"""Loaders over a set of graphs: batches of some of them that say which rows of the whole they hold."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from gnndelete.graph.batch import Selection, collate


def graph_loader(
    graphs: Any, batch_size: int, which: Any = None, *, shuffle: bool = False, seed: int = 0, **options: Any
) -> DataLoader:
    """Batches of graphs, each with ``n_id``: its rows' ids in the whole set, and ``graph_id``: those of its graphs.

    ``which`` is a mask or the positions of the graphs to take; ``options`` go to torch's ``DataLoader``. Serve an
    unlearned model on such a batch with ``gd.rows(model, batch.n_id)``.

    >>> from torch_geometric.data import Data
    >>> graphs = [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]])) for _ in range(5)]
    >>> [batch.n_id.tolist() for batch in graph_loader(graphs, batch_size=2, which=[0, 2, 4])]
    [[0, 1, 4, 5], [8, 9]]
    """
    data = collate(graphs)
    ids = torch.arange(data.num_graphs) if which is None else torch.as_tensor(which).cpu()
    chosen: Any = (ids.nonzero().flatten() if ids.dtype == torch.bool else ids).tolist()
    generator = torch.Generator().manual_seed(seed) if shuffle else None
    return DataLoader(
        chosen, batch_size=batch_size, shuffle=shuffle, generator=generator, collate_fn=Selection(data), **options
    )
