"""What the encoders of typed graphs share: entities and relations as parameters, and messages along and against relations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot, reset

from gnndelete.errors import ModelError, SettingError
from gnndelete.models.grouping import Grouping
from gnndelete.models.sizes import check_sizes


class RelationalEncoder(nn.Module, ABC):
    """Trainable entities, then graph layers ``embedding -> hidden -> … -> out`` with ReLU (and dropout) between them.

    ``relation`` holds one row per relation for DistMult. With ``reverse`` each layer also passes messages against the
    direction of every relation, with weights of their own; the graph itself holds each triple once, so that a deleted
    triple takes both ways with it. ``num_bases`` or ``num_blocks`` regularise the weights of the relations (Schlichtkrull
    et al. 2018). Node features, where ``in_channels`` says that there are some, are added to the entities by a linear map.
    """

    def __init__(
        self,
        num_nodes: int,
        num_relations: int,
        in_channels: int = 0,
        embedding: int = 128,
        hidden: int = 128,
        out: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        num_bases: int | None = None,
        num_blocks: int | None = None,
        reverse: bool = True,
    ) -> None:
        super().__init__()
        counts = {"num_nodes": num_nodes, "num_relations": num_relations, "num_layers": num_layers}
        check_sizes(dropout, **counts, embedding=embedding, hidden=hidden, out=out)
        if num_bases is not None and num_blocks is not None:
            raise SettingError(
                f"'num_bases' ({num_bases}) and 'num_blocks' ({num_blocks}) exclude each other; give one"
            )
        widths = [embedding, *[hidden] * (num_layers - 1), out]
        odd = [width for width in widths if num_blocks is not None and width % num_blocks]
        if odd:
            raise SettingError(f"'num_blocks' ({num_blocks}) must divide all widths {widths}; {odd[0]} it does not")
        self.num_nodes, self.num_relations, self.reverse, self.dropout = num_nodes, num_relations, reverse, dropout
        self.entity = nn.Parameter(torch.empty(num_nodes, embedding))
        self.relation = nn.Parameter(torch.empty(num_relations, out))
        self.features = nn.Linear(in_channels, embedding) if in_channels else None
        kinds = num_relations * (2 if reverse else 1)
        self.convs = nn.ModuleList(
            self.layer(width, following, kinds, num_bases, num_blocks) for width, following in pairwise(widths)
        )
        self.reset_parameters()

    @staticmethod
    @abstractmethod
    def layer(
        in_channels: int, out_channels: int, num_relations: int, num_bases: int | None, num_blocks: int | None
    ) -> nn.Module:
        """One graph layer, called with ``(x, edge_index, edge_type, edge_grouping)``."""

    def forward(
        self, edge_index: Tensor, edge_type: Tensor, x: Tensor | None = None, n_id: Tensor | None = None
    ) -> Tensor:
        """Node representations ``[num_nodes, out]``; ``n_id`` says which entities the rows of a sampled batch are."""
        h = self.entity if n_id is None else self.entity.index_select(0, n_id)
        if self.features is not None:
            if x is None:
                raise ModelError(
                    "the model was made with in_channels and the graph has no 'x'; give features, or make it without"
                )
            h = h + self.features(x)
        if edge_index.numel() and int(edge_index.max()) >= h.size(0):  # an accelerator would not say it in words
            raise ModelError(
                f"the graph names node {int(edge_index.max())}, and the model has the entities 0 to {h.size(0) - 1}; make one "
                "for this graph, or give the batch's n_id"
            )
        edge_index, edge_type = self.messages(edge_index, edge_type, h.size(0))
        grouping = Grouping(edge_index, edge_type, h.size(0))  # once for all layers
        for index, conv in enumerate(self.convs):
            if index:
                h = F.dropout(F.relu(h), p=self.dropout, training=self.training)
            h = conv(h, edge_index, edge_type, grouping)
        return h

    def messages(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
        """The edges that carry messages: the triples and, with ``reverse``, each of them the other way."""
        if not self.reverse:
            return edge_index, edge_type
        back = edge_index.flip(0), edge_type + self.num_relations
        return torch.cat([edge_index, back[0]], dim=1), torch.cat([edge_type, back[1]])

    def reset_parameters(self) -> None:
        """Draw all weights anew, entities and relations too."""
        glorot(self.entity)
        nn.init.normal_(self.relation)  # around 1 in size, so that scores start at the scale of a dot product
        reset(self.convs)
        if self.features is not None:
            self.features.reset_parameters()
