"""GCN: graph convolutions (Kipf and Welling 2017)."""

from __future__ import annotations

from torch import nn
from torch_geometric.nn import GCNConv

from gnndelete.models.encoder import Encoder


class GCN(Encoder):
    """Two (or ``num_layers``) layers of graph convolutions (Kipf and Welling 2017).

    >>> import torch
    >>> model = GCN(in_channels=16, hidden=32, out=8)
    >>> model(torch.ones(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 8])
    """

    @staticmethod
    def layer(in_channels: int, out_channels: int) -> nn.Module:
        return GCNConv(in_channels, out_channels)
