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
from gnndelete.models.sizes import check_sizes

Pool = Literal["mean", "add"]


class Categories(nn.Module):
    """The sum of one embedding per column of integer features, as for the properties of atoms.

    >>> Categories([5, 3], 8)(torch.tensor([[4, 0], [1, 2]])).shape
    torch.Size([2, 8])
    """

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.tables: Sequence[nn.Embedding] = nn.ModuleList(nn.Embedding(size, width) for size in sizes)  # type: ignore[assignment]
        self.reset_parameters()

    @staticmethod
    def sizes(x: Tensor) -> list[int] | None:
        """How many values each column needs; None where features are numbers rather than categories.

        >>> Categories.sizes(torch.tensor([[4, 0], [1, 2]])), Categories.sizes(torch.ones(2, 3))
        ([5, 3], None)
        """
        if x.is_floating_point():
            return None
        return [int(most) + 1 for most in x.max(dim=0).values]

    def forward(self, x: Tensor) -> Tensor:
        if x.is_floating_point() or x.dim() != 2 or x.size(1) != len(self.tables):
            raise GraphError(
                f"'x' must hold whole numbers in {len(self.tables)} columns (got {x.dtype} of shape {list(x.shape)})"
            )
        total = self.tables[0](x[:, 0])
        for column, table in enumerate(
            self.tables[1:], start=1
        ):  # one after the other: a stack would be as many times as large
            total = total + table(x[:, column])
        return total

    def reset_parameters(self) -> None:
        for table in self.tables:
            nn.init.xavier_uniform_(table.weight)


class Pooled(nn.Module):
    """``encoder(x, edge_index)`` gives rows of ``width``; they are pooled per graph, and a linear head gives ``classes``.

    Deleted nodes (``alive`` is False) are left out of the pool, so that a graph without a node is just that. An encoder
    whose ``forward`` takes ``batch`` gets it. One graph without ``batch`` is pooled as a whole.

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
            raise SettingError("'categories' are embedded for the encoder; say how wide with in_channels=…")
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
        """Logits ``[num_graphs, classes]``."""
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
        """Draw all weights anew."""
        for part in (self.embed, self.encoder, self.norm, self.head):
            if part is not None:
                reset(part)
