"""R-GCN and R-GAT: encoders of typed graphs, with entities and relations as parameters.

The layers are PyG's `RGCNConv` and `RGATConv`, with the same parameters, names and results, but messages are summed per node
and relation before they are multiplied. PyG's loops hold a row for every node in every relation (R-GCN), or a weight matrix
for every edge (R-GAT: 20 GB on WordNet18); these hold one row for every pair of node and relation that occurs. What depends
on the edges alone (`Grouping`) is computed once for all layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import RGATConv, RGCNConv
from torch_geometric.nn.inits import glorot, reset
from torch_geometric.utils import softmax

from gnndelete.errors import ModelError, SettingError
from gnndelete.models.encoders import check_sizes


@dataclass(frozen=True, eq=False)
class Bags:
    """Rows to be summed: bag b holds ``index[starts[b] : starts[b + 1]]``, each with its share in the mean."""

    index: Tensor
    starts: Tensor
    share: Tensor


class Grouping:
    """The messages of a typed graph, sorted by *pair*: one relation and one receiving node.

    >>> edges, types = torch.tensor([[0, 1, 1], [2, 2, 2]]), torch.tensor([0, 0, 1])
    >>> grouping = Grouping(edges, types, num_nodes=3)
    >>> grouping.target.tolist(), grouping.per_relation
    ([2, 2], [1, 1])
    >>> grouping.mean(torch.tensor([[1.0], [3.0], [0.0]])).tolist()
    [[2.0], [3.0]]
    """

    def __init__(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> None:
        keys, self.order = torch.sort(edge_type * num_nodes + edge_index[1], stable=True)
        pairs, self.sizes = torch.unique_consecutive(keys, return_counts=True)
        self.target = pairs % num_nodes
        relation = torch.div(pairs, num_nodes, rounding_mode="floor")
        self.per_relation: list[int] = torch.bincount(relation).tolist() if pairs.numel() else []
        self._nodes = num_nodes
        share = torch.repeat_interleave(1 / self.sizes.double(), self.sizes, output_size=self.order.numel())
        starts = self.sizes.cumsum(0) - self.sizes
        self._bags = Bags(edge_index[0].index_select(0, self.order), starts, share)

    @cached_property
    def _back(self) -> Bags:
        """The inverse, from pairs to senders, for gradients."""
        senders, order = torch.sort(self._bags.index, stable=True)
        starts = torch.searchsorted(senders, torch.arange(self._nodes, device=senders.device))
        return Bags(self._pair_of.index_select(0, order), starts, self._bags.share.index_select(0, order))

    @cached_property
    def _pair_of(self) -> Tensor:
        """The pair of each message, messages sorted."""
        pairs = torch.arange(self.sizes.numel(), device=self.sizes.device)
        return torch.repeat_interleave(pairs, self.sizes, output_size=self.order.numel())

    def mean(self, x: Tensor) -> Tensor:
        """One row per pair: the mean of the rows of its senders."""
        return _BagMean.apply(x, self, False)

    def sum(self, messages: Tensor) -> Tensor:
        """One row per pair: the sum of its messages, one per edge in the order of the edges."""
        into = torch.empty_like(self.order).index_copy_(0, self.order, self._pair_of)
        return messages.new_zeros(self.sizes.numel(), messages.size(1)).index_add(0, into, messages)


class _BagMean(torch.autograd.Function):
    """Means of rows over bags, with a gradient that is deterministic and can be differentiated again.

    The gradient is a weighted sum over the inverse bags and as fast as the mean; that of torch's ``embedding_bag`` adds row
    after row.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, grouping: Grouping, back: bool) -> Tensor:
        ctx.grouping, ctx.back = grouping, back
        bags = grouping._back if back else grouping._bags
        if not bags.index.numel():
            return x.new_zeros(bags.starts.numel(), x.size(1))
        return F.embedding_bag(bags.index, x, bags.starts, mode="sum", per_sample_weights=bags.share.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return _BagMean.apply(slopes[0].contiguous(), ctx.grouping, not ctx.back), None, None


class RelationalConvolution(RGCNConv):
    """``h_i = x_i W_0 + b + sum_r mean_j x_j W_r`` over the neighbours j of i by each relation r."""

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_grouping: Grouping | None = None
    ) -> Tensor:
        grouping = edge_grouping or Grouping(edge_index, edge_type, x.size(0))
        if self.num_bases is not None:
            weights = (self.comp @ self.weight.flatten(1)).view(-1, self.in_channels, self.out_channels)
        else:
            weights = self.weight
        gathered = grouping.mean(x)
        out = sum_by_relation(x, gathered, grouping, [_dense(weight) for weight in weights.unbind()], self.out_channels)
        return out + x @ self.root + self.bias


class RelationalAttention(RGATConv):
    """``h_i = b + sum_j a_ij x_j W_r`` with additive attention of one head across all relations."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.ones_(self.w)  # PyG does not reset these two, which only other kinds of attention use
        nn.init.constant_(self.l2, 1 / self.out_channels)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_grouping: Grouping | None = None
    ) -> Tensor:
        grouping = edge_grouping or Grouping(edge_index, edge_type, x.size(0))
        if self.num_bases is not None:
            weights = (self.att @ self.basis.flatten(1)).view(-1, self.in_channels, self.out_channels)
        else:
            weights = torch.stack([_dense(weight) for weight in self.weight])
        source, target = edge_index
        # query and key of a node under each relation are numbers: a table [nodes, relations] holds them all
        queries, keys = (x @ (weights @ part).squeeze(-1).t() for part in (self.q, self.k))
        logits = _entries(queries, target, edge_type) + _entries(keys, source, edge_type)
        share = softmax(F.leaky_relu(logits, self.negative_slope), target, num_nodes=x.size(0))
        gathered = grouping.sum(share.view(-1, 1) * x.index_select(0, source))
        return sum_by_relation(x, gathered, grouping, weights.unbind(), self.out_channels) + self.bias


def sum_by_relation(x: Tensor, gathered: Tensor, grouping: Grouping, weights: Sequence[Tensor], width: int) -> Tensor:
    """``sum_r g_ir W_r`` for every node i, where ``gathered`` holds one row for every pair of node and relation."""
    out: Any = x.new_zeros(x.size(0), width)
    if grouping.per_relation:
        parts = zip(gathered.split(grouping.per_relation), grouping.target.split(grouping.per_relation), strict=True)
        for weight, (part, target) in zip(weights, parts, strict=False):
            if part.size(0):
                out = out.index_add_(0, target, part @ weight)  # a node has one row per relation
    return out


def _entries(table: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return table.reshape(-1).index_select(0, rows * table.size(1) + columns)


def _dense(weight: Tensor) -> Tensor:
    """The weight matrix of one relation; blocks go on its diagonal."""
    return weight if weight.dim() == 2 else torch.block_diag(*weight)


class RelationalEncoder(nn.Module, ABC):
    """R-GCN or R-GAT: trainable entities, then graph layers ``embedding -> hidden -> … -> out`` with ReLU between them.

    Args:
        num_nodes: Number of entities; each has a trained vector.
        num_relations: Number of relations; ``relation`` holds one row for each, for DistMult.
        in_channels: Number of node features, which a linear map adds to the entities; 0 for none.
        embedding: Width of the entities.
        hidden: Width of the layers in between.
        out: Width of the output and of the relations.
        num_layers: Number of graph layers.
        dropout: Share of entries that are dropped between layers.
        num_bases: Write the weights of all relations as sums of this many bases (Schlichtkrull et al. 2018).
        num_blocks: Make the weights of each relation block-diagonal; excludes ``num_bases``.
        reverse: Also pass messages against the direction of every relation, with weights of their own. The graph holds
            each triple once, so a deleted triple takes both directions with it.

    >>> model = RGCN(num_nodes=5, num_relations=2, embedding=16, hidden=32, out=8, num_bases=2)
    >>> model(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1])).shape
    torch.Size([5, 8])
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
            raise SettingError(
                f"'num_blocks' ({num_blocks}) must divide all widths {widths}, and does not divide {odd[0]}; choose another"
            )
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
        """Make one graph layer, called with ``(x, edge_index, edge_type, edge_grouping)``.

        Args:
            in_channels: Width of its input.
            out_channels: Width of its output.
            num_relations: Number of relations that carry messages.
            num_bases: As in the constructor.
            num_blocks: As in the constructor.
        """

    def forward(
        self, edge_index: Tensor, edge_type: Tensor, x: Tensor | None = None, n_id: Tensor | None = None
    ) -> Tensor:
        """Compute node representations.

        Args:
            edge_index: Edges ``[2, num_edges]``.
            edge_type: The relation of each edge.
            x: Node features, where the model was made with ``in_channels``.
            n_id: The entities of the rows of a sampled batch; by default all of them.

        Returns:
            ``[num_nodes, out]``.

        Raises:
            ModelError: If features are missing, or the graph has nodes that the model has no entity for.
        """
        h = self.entity if n_id is None else self.entity.index_select(0, n_id)
        if self.features is not None:
            if x is None:
                raise ModelError(
                    "the model was made with in_channels and the graph has no 'x'; give features, or make it without"
                )
            h = h + self.features(x)
        if edge_index.numel() and int(edge_index.max()) >= h.size(0):  # on an accelerator the index error is unreadable
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
        """Return the edges that carry messages: the triples and, with ``reverse``, their reverse.

        Args:
            edge_index: Edges ``[2, num_edges]``.
            edge_type: The relation of each edge.
            num_nodes: Number of nodes.
        """
        if not self.reverse:
            return edge_index, edge_type
        back = edge_index.flip(0), edge_type + self.num_relations
        return torch.cat([edge_index, back[0]], dim=1), torch.cat([edge_type, back[1]])

    def reset_parameters(self) -> None:
        """Draw new weights, entities and relations too."""
        glorot(self.entity)
        nn.init.normal_(self.relation)  # scores start at the scale of a dot product
        reset(self.convs)
        if self.features is not None:
            self.features.reset_parameters()


class RGCN(RelationalEncoder):  # Schlichtkrull et al. 2018
    @staticmethod
    def layer(
        in_channels: int, out_channels: int, num_relations: int, num_bases: int | None, num_blocks: int | None
    ) -> nn.Module:
        return RelationalConvolution(in_channels, out_channels, num_relations, num_bases, num_blocks)


class RGAT(RelationalEncoder):  # one head, Busbridge et al. 2019
    @staticmethod
    def layer(
        in_channels: int, out_channels: int, num_relations: int, num_bases: int | None, num_blocks: int | None
    ) -> nn.Module:
        return RelationalAttention(in_channels, out_channels, num_relations + 1, num_bases, num_blocks)

    def messages(self, edge_index: Tensor, edge_type: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
        # every node also attends to itself, by a relation of its own: PyG's layer has no path from a node to itself
        edge_index, edge_type = super().messages(edge_index, edge_type, num_nodes)
        loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
        loop_type = edge_type.new_full((num_nodes,), self.num_relations * (2 if self.reverse else 1))
        return torch.cat([edge_index, loops], dim=1), torch.cat([edge_type, loop_type])
