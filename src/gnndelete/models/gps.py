"""GPS: a local graph layer in parallel with attention between all nodes of a graph (Rampášek et al. 2022).

Attention compares n x n pairs: sizes are checked, and graphs of unequal size are computed in groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, GPSConv
from torch_geometric.nn.inits import reset

from gnndelete.errors import ModelError, SettingError
from gnndelete.models.encoders import check_sizes

LOCAL: dict[str, Callable[[int], nn.Module]] = {
    "gcn": lambda width: GCNConv(width, width),
    "gin": lambda width: GINConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))),
}


class GPS(nn.Module):
    """GraphGPS: PyG's ``GPSConv`` blocks, each a local graph layer in parallel with attention over all nodes of a graph.

    Positional encodings are not computed here: they are columns of ``x``, and those made from the graph before a deletion
    still hold what is deleted.

    Args:
        in_channels: Number of node features.
        hidden: Width of the blocks; ``heads`` must divide it.
        out: Width of the output.
        num_layers: Number of blocks.
        heads: Number of attention heads.
        local: The local graph layer: ``"gcn"`` or ``"gin"``.
        attention: ``"multihead"`` compares every node with every other; ``"performer"`` is its linear approximation, for
            graphs of any size.
        dropout: Share of entries that are dropped.
        max_nodes: Larger graphs are refused by ``"multihead"``.

    >>> import torch
    >>> model = GPS(in_channels=16, hidden=32, out=8)
    >>> model(torch.ones(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        in_channels: int,
        hidden: int = 128,
        out: int = 64,
        num_layers: int = 2,
        heads: int = 4,
        local: Literal["gcn", "gin"] = "gcn",
        attention: Literal["multihead", "performer"] = "multihead",
        dropout: float = 0.0,
        max_nodes: int = 8192,
    ) -> None:
        super().__init__()
        check_widths(hidden, out, num_layers, heads, dropout)
        if local not in LOCAL:
            raise SettingError(f"'local' must be {' or '.join(map(repr, LOCAL))} (got {local!r})")
        if attention not in ("multihead", "performer"):
            raise SettingError(f"'attention' must be 'multihead' or 'performer' (got {attention!r})")
        self.embed = nn.Linear(in_channels, hidden)
        self.convs = nn.ModuleList(
            GPSConv(hidden, LOCAL[local](hidden), heads=heads, dropout=dropout, attn_type=attention)
            for _ in range(num_layers)
        )
        if attention == "multihead":
            for block in self.convs:
                block.attn = GroupedAttention(hidden, heads, batch_first=True)
        self.head = nn.Linear(hidden, out)
        self.dropout = dropout
        self.max_nodes = max_nodes if attention == "multihead" else None

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Compute node representations.

        Args:
            x: Node features ``[num_nodes, in_channels]``.
            edge_index: Edges ``[2, num_edges]``.
            batch: The graph of each node; by default all are in one.

        Returns:
            ``[num_nodes, out]``.

        Raises:
            ModelError: If the graph is too large.
        """
        if self.max_nodes is not None:
            check_size("GPS", x.size(0), batch, self.max_nodes, "use attention='performer', which is linear")
        x = F.dropout(self.embed(x), p=self.dropout, training=self.training)
        for conv in self.convs:
            x = conv(x, edge_index, batch)
        return self.head(x)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for block in self.convs:
            if isinstance(attention := block.attn, nn.MultiheadAttention):
                reset(attention.out_proj)  # PyG's blocks do not reset this one
        reset(nn.ModuleList([self.embed, *self.convs, self.head]))


def check_widths(hidden: int, out: int, num_layers: int, heads: int, dropout: float) -> None:
    """Refuse widths that do not fit together."""
    check_sizes(dropout, hidden=hidden, out=out, num_layers=num_layers, heads=heads)
    if hidden % heads:
        raise SettingError(f"'hidden' must be a multiple of 'heads' (got hidden={hidden} and heads={heads})")


def check_size(model: str, num_nodes: int, batch: Tensor | None, max_nodes: int, way_out: str) -> None:
    """Refuse a graph whose n x n pairs would not fit; in a batch each graph is checked by itself."""
    if num_nodes <= max_nodes:  # then no graph of the batch is larger
        return
    largest = num_nodes if batch is None else int(torch.bincount(batch).max())
    if largest > max_nodes:
        raise ModelError(
            f"{model} compares every node with every other, and a graph with {largest:,} nodes has {largest**2:,} pairs (the "
            f"limit is max_nodes={max_nodes:,}); {way_out}, work on an induced subgraph, or raise max_nodes"
        )


class GroupedAttention(nn.MultiheadAttention):
    """torch's attention for a padded batch of graphs of unequal size, computed for graphs of similar size together.

    Padding every graph to the largest would cost the square of that size for each; here padding at most doubles a side.
    Weights and their names are those of ``nn.MultiheadAttention``.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        *args: Any,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """As in ``nn.MultiheadAttention``; ``key_padding_mask`` marks the padding at the end of each graph."""
        if query.size(0) == 1 or key_padding_mask is None or need_weights:
            return super().forward(query, key, value, key_padding_mask, need_weights, *args, **options)
        sizes = (~key_padding_mask).sum(dim=1)
        scales = size_scale(sizes)
        result = torch.zeros_like(query)
        for scale in torch.unique(scales[sizes > 0]).tolist():
            chosen = ((scales == scale) & (sizes > 0)).nonzero().flatten()
            size = int(sizes[chosen].max())
            q, k, v = (part[chosen, :size] for part in (query, key, value))
            found, _ = super().forward(q, k, v, key_padding_mask[chosen, :size], need_weights, *args, **options)
            padded = F.pad(found, (0, 0, 0, query.size(1) - size))
            result = result.index_copy(0, chosen, padded)
        return result, None


def size_scale(sizes: Tensor) -> Tensor:
    """Sizes between the same powers of two have the same scale.

    >>> size_scale(torch.tensor([1, 2, 3, 4, 5, 8, 9])).tolist()
    [0, 1, 2, 2, 3, 3, 4]
    """
    return sizes.clamp(min=1).double().log2().ceil().long()
