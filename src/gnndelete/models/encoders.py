"""GCN, GAT and GIN: stacks of graph layers with ReLU between them."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from itertools import pairwise
from numbers import Real
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv
from torch_geometric.nn.inits import reset

from gnndelete.errors import SettingError


def check_sizes(dropout: Any = 0.0, **sizes: Any) -> None:
    """Refuse widths and counts that are not whole numbers from 1, and a dropout that is not a share.

    >>> check_sizes(dropout=0.5, hidden=128)
    >>> check_sizes(hidden=0)
    Traceback (most recent call last):
    gnndelete.errors.SettingError: 'hidden' must be a whole number of at least 1 (got 0)
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not _is_whole(size) or size < 1:
            raise SettingError(f"'{name}' must be a whole number of at least 1 (got {size!r})")
    if isinstance(dropout, bool) or not isinstance(dropout, Real) or not 0 <= float(dropout) < 1:
        raise SettingError(f"'dropout' must be a number from 0 to below 1 (got {dropout!r})")


def _is_whole(size: Any) -> bool:
    """Whether a size can be used as an index: numbers of numpy and tensors of one integer can."""
    try:
        operator.index(size)
    except TypeError:
        return False
    return True


class Encoder(nn.Module, ABC):
    """GCN, GAT or GIN: graph layers ``in_channels -> hidden -> … -> out`` with ReLU (and batch norm, dropout) between them.

    Args:
        in_channels: Number of node features.
        hidden: Width of the layers in between.
        out: Width of the output.
        num_layers: Number of graph layers.
        dropout: Share of entries that are dropped between layers.
        norm: Put a batch norm between layers.

    >>> import torch
    >>> model = GCN(in_channels=16, hidden=32, out=8)
    >>> model(torch.ones(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        in_channels: int,
        hidden: int = 128,
        out: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        norm: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(dropout, hidden=hidden, out=out, num_layers=num_layers)
        widths = [in_channels, *[hidden] * (num_layers - 1), out]
        self.convs = nn.ModuleList(self.layer(width, following) for width, following in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in self.convs[1:]) if norm else None
        self.dropout = dropout

    @staticmethod
    @abstractmethod
    def layer(in_channels: int, out_channels: int) -> nn.Module:
        """Make one graph layer, called with ``(x, edge_index)``.

        Args:
            in_channels: Width of its input.
            out_channels: Width of its output.
        """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Compute node representations.

        Args:
            x: Node features ``[num_nodes, in_channels]``.
            edge_index: Edges ``[2, num_edges]``.

        Returns:
            ``[num_nodes, out]``.
        """
        for index, conv in enumerate(self.convs):
            if index:
                x = x if self.norms is None else self.norms[index - 1](x)
                x = F.dropout(F.relu(x), p=self.dropout, training=self.training)
            x = conv(x, edge_index)
        return x

    def reset_parameters(self) -> None:
        """Draw new weights."""
        reset(self.convs)
        if self.norms is not None:
            reset(self.norms)


class GCN(Encoder):  # Kipf and Welling 2017
    @staticmethod
    def layer(in_channels: int, out_channels: int) -> nn.Module:
        return GCNConv(in_channels, out_channels)


class GAT(Encoder):  # graph attention with one head, Velickovic et al. 2018
    @staticmethod
    def layer(in_channels: int, out_channels: int) -> nn.Module:
        return GATConv(in_channels, out_channels)


class GIN(Encoder):  # graph isomorphism layers with one linear map each, Xu et al. 2019
    @staticmethod
    def layer(in_channels: int, out_channels: int) -> nn.Module:
        return GINConv(nn.Linear(in_channels, out_channels))
