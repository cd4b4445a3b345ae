"""Node pairs that are not edges, drawn uniformly and exactly, without rejection and with nothing n x n.

Ordered pairs are the numbers ``u * n + v``. Below the i-th taken number t_i (an edge or a self-loop) lie ``t_i - i``
free ones, so the r-th free pair is found by one binary search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.edge_table import EdgeTable


class NegativeSampler:
    """Draws pairs of nodes that are neither edges nor self-loops; built once per graph, then one binary search per draw.

    On an undirected graph a pair comes as u < v.

    Args:
        edge_index: The edges ``[2, E]``.
        num_nodes: Number of nodes; with ``targets``, the number of sources.
        undirected: None to see it from the edges. True also accepts a list that holds each edge in one direction only.
        targets: Count the two ends separately: ``num_nodes`` sources and this many targets.

    >>> import torch
    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> sampler = NegativeSampler(path, num_nodes=3)
    >>> sampler.available
    1
    >>> sampler.sample(2, torch.Generator().manual_seed(0)).tolist()
    [[0, 0], [2, 2]]
    """

    def __init__(
        self, edge_index: Tensor, num_nodes: int, undirected: bool | None = None, targets: int | None = None
    ) -> None:
        if targets is not None:
            taken = torch.unique(EdgeTable(edge_index, targets).keys)
            self.undirected, self.num_nodes = False, targets
            self._free_below = taken - torch.arange(taken.numel(), device=taken.device)
            self._ordered = num_nodes * targets - taken.numel()
            return
        if undirected:
            edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        table = EdgeTable(edge_index, num_nodes)
        self.undirected = table.undirected if undirected is None else undirected
        self.num_nodes = num_nodes
        loops = torch.arange(num_nodes, device=edge_index.device) * (num_nodes + 1)
        taken = torch.unique(torch.cat([table.keys, loops]))
        self._free_below = taken - torch.arange(taken.numel(), device=taken.device)
        self._ordered = num_nodes * num_nodes - taken.numel()

    @property
    def available(self) -> int:
        """How many different negatives this graph has."""
        return self._ordered // 2 if self.undirected else self._ordered

    def sample(self, count: int, generator: torch.Generator | None = None, *, distinct: bool = False) -> Tensor:
        """Draw pairs.

        Args:
            count: How many.
            generator: Draws them; torch's default generator where it is None.
            distinct: Draw no pair twice.

        Returns:
            ``[2, count]`` pairs on the device of the edges.

        Raises:
            GraphError: If the graph has fewer such pairs.
            SettingError: If ``count`` is negative.
        """
        if count < 0:
            raise SettingError(f"'count' must not be negative (got {count})")
        if count > 0 and self.available < (count if distinct else 1):
            raise GraphError(
                f"{count} {'distinct ' if distinct else ''}negative pairs were asked for, and a graph of "
                f"{self.num_nodes} nodes with these edges has {self.available} pairs that are not edges; ask for fewer"
            )
        if count == 0:
            return self._free_below.new_empty(2, 0)
        if not distinct:
            return self._pairs(self._draw(count, generator))
        if 4 * count > self.available:
            # Few pairs are left over: a permutation of all of them is no larger than a few times the answer.
            pairs = self._pairs(self._permutation(self._ordered, generator), canonical=False)
            if self.undirected:
                pairs = pairs[:, pairs[0] < pairs[1]]
            return pairs[:, :count].contiguous()
        found = self._free_below.new_empty(0)
        while found.numel() < count:
            pairs = self._pairs(self._draw(count - found.numel() + 16, generator))
            found = torch.unique(torch.cat([found, pairs[0] * self.num_nodes + pairs[1]]))
        found = found[self._permutation(found.numel(), generator)[:count]]
        return self._split(found)

    def _draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        device = self._free_below.device if generator is None else generator.device
        return torch.randint(self._ordered, (count,), generator=generator, device=device).to(self._free_below.device)

    def _permutation(self, count: int, generator: torch.Generator | None) -> Tensor:
        device = self._free_below.device if generator is None else generator.device
        return torch.randperm(count, generator=generator, device=device).to(self._free_below.device)

    def _pairs(self, rank: Tensor, canonical: bool = True) -> Tensor:
        pairs = self._split(rank + torch.searchsorted(self._free_below, rank, right=True))
        return torch.stack(pairs.aminmax(dim=0)) if canonical and self.undirected else pairs

    def _split(self, key: Tensor) -> Tensor:
        return torch.stack([key // self.num_nodes, key % self.num_nodes])
