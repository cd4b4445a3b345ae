"""What the encoders here share: a stack of graph layers with ReLU between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from gnndelete.models.sizes import check_sizes


class Encoder(nn.Module, ABC):
    """Graph layers ``in_channels -> hidden -> … -> out`` with ReLU (and batch norm, dropout) between them, none at the end."""

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
        """One graph layer, called with ``(x, edge_index)``."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node representations ``[num_nodes, out]``."""
        for index, conv in enumerate(self.convs):
            if index:
                x = x if self.norms is None else self.norms[index - 1](x)
                x = F.dropout(F.relu(x), p=self.dropout, training=self.training)
            x = conv(x, edge_index)
        return x

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        reset(self.convs)
        if self.norms is not None:
            reset(self.norms)
