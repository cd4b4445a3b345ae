"""From nodes to graphs: an encoder, a pool over the nodes of each graph, and a head. Also embeddings of integer features."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from gnndelete.errors import GraphError, SettingError
from gnndelete.models.encoders import check_sizes

Pool = Literal["mean", "add"]


class Categories(nn.Module):
    """The sum of one embedding per column of integer features, as for the properties of atoms.

    Args:
        sizes: Number of values of each column.
        width: Width of the embeddings.

    >>> Categories([5, 3], 8)(torch.tensor([[4, 0], [1, 2]])).shape
    torch.Size([2, 8])
    """

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.tables: Sequence[nn.Embedding] = nn.ModuleList(nn.Embedding(size, width) for size in sizes)  # type: ignore[assignment]
        self.reset_parameters()

    @staticmethod
    def sizes(x: Tensor) -> list[int] | None:
        """Return the number of values of each column; None where features are numbers rather than categories.

        Args:
            x: Node features.

        >>> Categories.sizes(torch.tensor([[4, 0], [1, 2]])), Categories.sizes(torch.ones(2, 3))
        ([5, 3], None)
        """
        if x.is_floating_point():
            return None
        return [int(most) + 1 for most in x.max(dim=0).values]

    def forward(self, x: Tensor) -> Tensor:
        """Embed integer features.

        Args:
            x: ``[num_nodes, columns]``.

        Raises:
            GraphError: If features are not whole numbers, or have another number of columns.
        """
        if x.is_floating_point() or x.dim() != 2 or x.size(1) != len(self.tables):
            raise GraphError(
                f"'x' must hold whole numbers in {len(self.tables)} columns (got {x.dtype} of shape {list(x.shape)})"
            )
        total = self.tables[0](x[:, 0])
        for column, table in enumerate(self.tables[1:], start=1):  # a stack of all would take as many times the memory
            total = total + table(x[:, column])
        return total

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for table in self.tables:
            nn.init.xavier_uniform_(table.weight)


class Pooled(nn.Module):
    """An encoder, a pool over the nodes of each graph, and a linear head.

    Deleted nodes (``alive`` is False) are left out of the pool. An encoder whose ``forward`` takes ``batch`` gets it. One
    graph without ``batch`` is pooled as a whole.

    Args:
        encoder: Called with ``(x, edge_index)``; returns one row per node.
        width: Width of these rows.
        classes: Number of classes.
        pool: ``"mean"`` or ``"add"``.
        norm: Put a batch norm before the pool.
        dropout: Share of entries that are dropped before the pool.
        categories: Number of values of each column, where features are integers to embed.
        in_channels: Width of these embeddings; needed with ``categories``.

    >>> from gnndelete.models import GCN
    >>> model = Pooled(GCN(4, out=8), width=8, classes=2)
    >>> model(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), batch=torch.tensor([0, 0, 1])).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        classes: int,
        pool: Pool | str = "mean",
        norm: bool = False,
        dropout: float = 0.0,
        categories: Sequence[int] | None = None,
        in_channels: int | None = None,
    ) -> None:
        super().__init__()
        if pool not in ("mean", "add"):
            raise SettingError(f"'pool' must be 'mean' or 'add' (got {pool!r})")
        check_sizes(dropout, width=width, classes=classes)
        if categories is not None and in_channels is None:
            raise SettingError("'categories' are embedded for the encoder; give their width with in_channels=…")
        self.embed = None if categories is None else Categories(categories, in_channels or 0)
        self.encoder = encoder
        self.norm = nn.BatchNorm1d(width) if norm else None
        self.head = nn.Linear(width, classes)
        self.pool, self.dropout = pool, dropout
        self._takes_batch = "batch" in inspect.signature(encoder.forward).parameters

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        alive: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Tensor:
        """Compute one row of logits per graph.

        Args:
            x: Node features ``[num_nodes, in_channels]``.
            edge_index: Edges ``[2, num_edges]``.
            batch: The graph of each node; by default all are in one.
            alive: Which nodes count; by default all.
            num_graphs: Number of graphs; by default the largest entry of ``batch`` plus one.

        Returns:
            ``[num_graphs, classes]``.
        """
        x = x if self.embed is None else self.embed(x)
        extra: dict[str, Any] = {"batch": batch} if self._takes_batch else {}
        h = self.encoder(x, edge_index, **extra)
        h = F.relu(h if self.norm is None else self.norm(h))
        h = F.dropout(h, p=self.dropout, training=self.training)
        return self.head(self._pooled(h, batch, alive, num_graphs))

    def _pooled(self, h: Tensor, batch: Tensor | None, alive: Tensor | None, num_graphs: int | None) -> Tensor:
        if batch is None:
            batch, num_graphs = torch.zeros(h.size(0), dtype=torch.long, device=h.device), 1
        if num_graphs is None:
            num_graphs = int(batch.max()) + 1 if batch.numel() else 0
        weight = h.new_ones(h.size(0)) if alive is None else alive.to(h.dtype)
        total = h.new_zeros(num_graphs, h.size(1)).index_add(0, batch, h * weight[:, None])
        if self.pool == "add":
            return total
        return total / h.new_zeros(num_graphs).index_add(0, batch, weight).clamp(min=1)[:, None]

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for part in (self.embed, self.encoder, self.norm, self.head):
            if part is not None:
                reset(part)
