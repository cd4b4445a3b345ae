"""Models with a trained vector per node: LightGCN, and a GCN and a GraphSAGE whose input is a table of vectors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import LGConv, SAGEConv

from gnndelete.errors import ModelError
from gnndelete.models.encoders import GCN, check_sizes


class LightGCN(nn.Module):
    """LightGCN: a trained vector per node, propagated a few times; the output is the mean over all layers (He et al. 2020).

    PyG's `LGConv` layers and initialisation. PyG's model of this name returns scores of edges; this one returns the rows
    that a link task scores.

    Args:
        num_nodes: Number of nodes, users and items together; each has a trained vector.
        out: Width of the vectors.
        num_layers: Number of propagations.

    >>> model = LightGCN(num_nodes=4, out=8)
    >>> model(torch.tensor([[0, 1, 2, 3], [2, 3, 0, 1]])).shape
    torch.Size([4, 8])
    """

    def __init__(self, num_nodes: int, out: int = 64, num_layers: int = 3) -> None:
        super().__init__()
        check_sizes(num_nodes=num_nodes, out=out, num_layers=num_layers)
        self.embedding = nn.Embedding(num_nodes, out)
        self.convs = nn.ModuleList(LGConv() for _ in range(num_layers))
        self.reset_parameters()

    def forward(self, edge_index: Tensor, edge_weight: Tensor | None = None, n_id: Tensor | None = None) -> Tensor:
        """Compute node representations.

        Args:
            edge_index: Edges ``[2, num_edges]``, in both directions.
            edge_weight: A weight per edge.
            n_id: The nodes of the rows of a sampled batch; by default all of them.

        Returns:
            ``[num_nodes, out]``.

        Raises:
            ModelError: If the graph has nodes that the model has no vector for.
        """
        x = rows_of(self.embedding, edge_index, n_id)
        layers = [x]
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight)
            layers.append(x)
        return torch.stack(layers).mean(dim=0)

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        nn.init.xavier_uniform_(self.embedding.weight)


class EmbeddingGCN(GCN):
    """A GCN whose input is a trained vector per node, beside the features where there are any.

    Args:
        num_nodes: Number of nodes; each has a trained vector.
        in_channels: Number of node features; 0 for none.
        embedding: Width of the vectors.
        hidden: Width of the layers in between.
        out: Width of the output.
        num_layers: Number of graph layers.
        dropout: Share of entries that are dropped between layers.
        norm: Put a batch norm between layers.

    >>> model = EmbeddingGCN(num_nodes=4, embedding=8, hidden=16, out=8)
    >>> model(torch.tensor([[0, 1, 2, 3], [2, 3, 0, 1]])).shape
    torch.Size([4, 8])
    """

    def __init__(
        self,
        num_nodes: int,
        in_channels: int = 0,
        embedding: int = 64,
        hidden: int = 128,
        out: int = 64,
        num_layers: int = 2,
        dropout: float = 0.0,
        norm: bool = False,
    ) -> None:
        check_sizes(num_nodes=num_nodes, embedding=embedding)
        super().__init__(in_channels + embedding, hidden, out, num_layers, dropout, norm)
        self.embedding = nn.Embedding(num_nodes, embedding)
        self.in_channels = in_channels
        nn.init.xavier_uniform_(self.embedding.weight)

    def forward(self, edge_index: Tensor, x: Tensor | None = None, n_id: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Compute node representations.

        Args:
            edge_index: Edges ``[2, num_edges]``.
            x: Node features, where the model was made with ``in_channels``.
            n_id: The nodes of the rows of a sampled batch; by default all of them.

        Returns:
            ``[num_nodes, out]``.

        Raises:
            ModelError: If features are missing, or the graph has nodes that the model has no vector for.
        """
        rows = with_features(rows_of(self.embedding, edge_index, n_id), x, self.in_channels)
        return super().forward(rows, edge_index)

    def reset_parameters(self) -> None:
        """Draw new weights and vectors."""
        super().reset_parameters()
        nn.init.xavier_uniform_(self.embedding.weight)


class EmbeddingSAGE(nn.Module):
    """GraphSAGE as a recommender: a trained vector per user and item, beside features, and layers that keep a row of their own.

    One encoder for users and items; the rows are scored by their inner product. `SAGEConv` adds a node's own row to the mean of
    its neighbours', so that a user with few ratings is more than the items it rated.

    Args:
        num_nodes: Number of nodes, users and items together; each has a trained vector.
        in_channels: Number of node features; 0 for none.
        embedding: Width of the vectors.
        hidden: Width of the layers in between.
        out: Width of the output.
        num_layers: Number of graph layers.

    >>> model = EmbeddingSAGE(num_nodes=4, embedding=8, hidden=16, out=8)
    >>> model(torch.tensor([[0, 1, 2, 3], [2, 3, 0, 1]])).shape
    torch.Size([4, 8])
    """

    def __init__(
        self,
        num_nodes: int,
        in_channels: int = 0,
        embedding: int = 64,
        hidden: int = 64,
        out: int = 64,
        num_layers: int = 2,
    ) -> None:
        super().__init__()
        check_sizes(num_nodes=num_nodes, embedding=embedding, hidden=hidden, out=out, num_layers=num_layers)
        self.in_channels = in_channels
        self.embedding = nn.Embedding(num_nodes, embedding)
        widths = [in_channels + embedding, *[hidden] * (num_layers - 1), out]
        self.convs = nn.ModuleList(SAGEConv(*pair) for pair in pairwise(widths))
        nn.init.xavier_uniform_(self.embedding.weight)

    def forward(self, edge_index: Tensor, x: Tensor | None = None, n_id: Tensor | None = None) -> Tensor:
        """Compute node representations.

        Args:
            edge_index: Edges ``[2, num_edges]``, in both directions.
            x: Node features, where the model was made with ``in_channels``.
            n_id: The nodes of the rows of a sampled batch; by default all of them.

        Returns:
            ``[num_nodes, out]``.

        Raises:
            ModelError: If features are missing, or the graph has nodes that the model has no vector for.
        """
        rows = with_features(rows_of(self.embedding, edge_index, n_id), x, self.in_channels)
        for place, conv in enumerate(self.convs):
            rows = conv(rows if not place else rows.relu(), edge_index)
        return rows

    def reset_parameters(self) -> None:
        """Draw new weights and vectors."""
        layers: Any = self.convs
        for conv in layers:
            conv.reset_parameters()
        nn.init.xavier_uniform_(self.embedding.weight)


def with_features(rows: Tensor, x: Tensor | None, in_channels: int) -> Tensor:
    """Vectors beside features, where the model was made for features."""
    if not in_channels:
        return rows
    if x is None:
        raise ModelError("the model was made with in_channels and the graph has no 'x'; give features")
    return torch.cat([x, rows], dim=1)


def rows_of(table: nn.Embedding, edge_index: Tensor, n_id: Tensor | None) -> Tensor:
    """The vectors of all nodes, or of those of a batch; a graph with more nodes than vectors is refused."""
    rows = table.weight if n_id is None else table(n_id)
    if torch.compiler.is_exporting():  # an exported program cannot look at values
        return rows
    if edge_index.numel() and int(edge_index.max()) >= rows.size(0):  # on an accelerator the index error is unreadable
        raise ModelError(
            f"the graph names node {int(edge_index.max())}, and the model has vectors for the nodes 0 to {rows.size(0) - 1}; "
            "make one for this graph, or give the batch's n_id"
        )
    return rows
