"""GAT: graph attention with one head (Velickovic et al. 2018)."""

from __future__ import annotations

from torch import nn
from torch_geometric.nn import GATConv

from gnndelete.models.encoder import Encoder


class GAT(Encoder):
    """Two (or ``num_layers``) layers of graph attention with one head (Velickovic et al. 2018).

    >>> import torch
    >>> model = GAT(in_channels=16, hidden=32, out=8)
    >>> model(torch.ones(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 8])
    """

    @staticmethod
    def layer(in_channels: int, out_channels: int) -> nn.Module:
        return GATConv(in_channels, out_channels)
