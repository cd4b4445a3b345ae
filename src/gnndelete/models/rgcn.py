"""R-GCN: one linear map per relation (Schlichtkrull et al. 2018)."""

from __future__ import annotations

from torch import nn

from gnndelete.models.relational import RelationalEncoder
from gnndelete.models.relational_layers import RelationalConvolution


class RGCN(RelationalEncoder):
    """Two (or ``num_layers``) relational graph convolutions over trainable entities (Schlichtkrull et al. 2018).

    >>> import torch
    >>> model = RGCN(num_nodes=5, num_relations=2, embedding=16, hidden=32, out=8, num_bases=2)
    >>> model(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1])).shape
    torch.Size([5, 8])
    """

    @staticmethod
    def layer(
        in_channels: int, out_channels: int, num_relations: int, num_bases: int | None, num_blocks: int | None
    ) -> nn.Module:
        return RelationalConvolution(in_channels, out_channels, num_relations, num_bases, num_blocks)
