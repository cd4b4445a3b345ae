"""GIN: graph isomorphism layers with one linear map each (Xu et al. 2019)."""

from __future__ import annotations

from torch import nn
from torch_geometric.nn import GINConv

from gnndelete.models.encoder import Encoder


class GIN(Encoder):
    """Two (or ``num_layers``) graph isomorphism layers with one linear map each (Xu et al. 2019).

    >>> import torch
    >>> model = GIN(in_channels=16, hidden=32, out=8)
    >>> model(torch.ones(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 8])
    """

    @staticmethod
    def layer(in_channels: int, out_channels: int) -> nn.Module:
        return GINConv(nn.Linear(in_channels, out_channels))
