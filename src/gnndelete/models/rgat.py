"""R-GAT: attention over typed edges (Busbridge et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnndelete.models.relational import RelationalEncoder
from gnndelete.models.relational_layers import RelationalAttention


class RGAT(RelationalEncoder):
    """Two (or ``num_layers``) layers of relational attention with one head over trainable entities (Busbridge et al. 2019).

    Every node also attends to itself, by a relation of its own: PyG's layer alone has no way from a node to itself.

    >>> model = RGAT(num_nodes=5, num_relations=2, embedding=16, hidden=32, out=8, num_blocks=4)
    >>> model(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1])).shape
    torch.Size([5, 8])
    """

    @staticmethod
    def layer(
        in_channels: int, out_channels: int, num_relations: int, num_bases: int | None, num_blocks: int | None
    ) -> nn.Module:
        return RelationalAttention(in_channels, out_channels, num_relations + 1, num_bases, num_blocks)

    def messages(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
        edge_index, edge_type = super().messages(edge_index, edge_type, num_nodes)
        loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
        own = edge_type.new_full((num_nodes,), self.num_relations * (2 if self.reverse else 1))
        return torch.cat([edge_index, loops], dim=1), torch.cat([edge_type, own])
