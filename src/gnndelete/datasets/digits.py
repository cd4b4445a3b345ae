"""The graph that needs no download: scikit-learn's bundled images of digits, linked to those that look alike."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from gnndelete.datasets.catalog import ENTRIES
from gnndelete.errors import SettingError

_SPARE = 16
"""Neighbours asked for beyond the wanted ones, so that ties are settled by id and not by the search tree."""


def digits(neighbors: int = 8) -> Data:
    """1,797 images, each linked in both directions to its nearest ``neighbors`` (Euclidean), ten classes.

    Pixels are scaled to zero mean and unit variance.

    >>> data = digits()
    >>> data.num_nodes, data.num_features, int(data.y.max()) + 1, data.is_undirected(), data.has_self_loops()
    (1797, 64, 10, True, False)
    """
    check_digits(neighbors)
    from sklearn.datasets import load_digits
    from sklearn.neighbors import KDTree

    pixels, labels = load_digits(return_X_y=True)
    count = len(pixels)
    # Pixels are whole numbers, so equal distances are exactly equal on every machine.
    distance, found = KDTree(pixels).query(pixels, k=neighbors + 1 + _SPARE)
    distance[found == np.arange(count)[:, None]] = np.inf
    nearest = np.take_along_axis(found, np.lexsort((found, distance)), axis=1)[:, :neighbors]
    head = torch.arange(count).repeat_interleave(neighbors)
    edge_index = to_undirected(torch.stack([head, torch.from_numpy(nearest).reshape(-1)]), num_nodes=count)

    x = torch.from_numpy(pixels)
    x = (x - x.mean(dim=0)) / x.std(dim=0, correction=0).clamp(min=1e-9)
    return Data(x=x.float(), edge_index=edge_index, y=torch.from_numpy(labels).long())


def check_digits(neighbors: int) -> None:
    """Refuse what `digits` makes no graph of."""
    most = ENTRIES["digits"].nodes - _SPARE - 1
    if not 1 <= neighbors <= most:
        raise SettingError(f"'neighbors' must lie between 1 and {most} (got {neighbors})")
