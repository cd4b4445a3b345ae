"""Loaders without compiled extras: neighbour sampling in plain torch as a PyG ``BaseSampler``, and batches of graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler import NeighborSampler as CompiledSampler
from torch_geometric.sampler.neighbor_sampler import edge_sample
from torch_geometric.typing import WITH_PYG_LIB

from gnndelete.errors import SettingError
from gnndelete.graph.batch import Selection, collate
from gnndelete.graph.edge_table import EdgeTable, ranges
from gnndelete.graph.validation import check_graph, count_nodes

#: Up to this many neighbours of a hub are drawn one after the other, each compared with those before.
_FEW_NEIGHBORS = 64


class NeighborSampler(BaseSampler):
    """Samples the edges that come in to a batch of nodes, hop by hop.

    Args:
        data: The graph.
        num_neighbors: The most edges per node at each hop; -1 takes all.
        halo: Give the outermost nodes all their edges too, so that layers that divide by degrees, such as GCN, give the
            seeds exactly what the whole graph gives them. By default on where every entry of ``num_neighbors`` is -1.
        both_ways: Also take edges that go out, for models that pass messages against the direction of a relation. An edge
            comes once.
        generator: Draws the edges; torch's default generator where it is None.

    Raises:
        SettingError: If ``num_neighbors`` is not a list of positive numbers or -1.

    >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]), num_nodes=4)
    >>> out = NeighborSampler(path, [-1], halo=False).sample(torch.tensor([0]))
    >>> out.node.tolist(), out.row.tolist(), out.col.tolist()
    ([0, 1], [1], [0])
    """

    def __init__(
        self,
        data: Data,
        num_neighbors: list[int],
        *,
        halo: bool | None = None,
        both_ways: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        check_graph(data)
        self.num_neighbors = check_fanout(num_neighbors)
        if halo is None:
            halo = all(count == -1 for count in num_neighbors)
        self._fanout = [*num_neighbors, -1] if halo else list(num_neighbors)
        self.generator = generator
        self.num_nodes = count_nodes(data)
        # sorted by target: the edges that come in to a node stand together
        ends = data.edge_index.flip(0).cpu()
        incoming = EdgeTable(torch.cat([ends, ends.flip(0)], dim=1) if both_ways else ends, self.num_nodes)
        self._source = incoming.keys % self.num_nodes
        self._edge = incoming.order % max(ends.size(1), 1)
        self._ends = ends if both_ways else None
        self._pointers = torch.cat([torch.zeros(1, dtype=torch.long), incoming.degree.cumsum(0)])
        self._local = torch.full((self.num_nodes,), -1)

    def sample(self, seeds: Tensor, _time: Tensor | None = None) -> SamplerOutput:
        """Sample the subgraph around seeds.

        Args:
            seeds: Distinct nodes.
            _time: Not used; PyG passes it.

        Returns:
            PyG's ``SamplerOutput``; the seeds are its first nodes.
        """
        nodes, rows, cols, edges = [seeds], [], [], []
        self._local[seeds] = torch.arange(seeds.numel())
        total, frontier = seeds.numel(), seeds
        for count in self._fanout:
            positions = self._choose(frontier, count)
            source = self._source[positions]
            fresh = torch.unique(source[self._local[source] < 0])
            self._local[fresh] = torch.arange(total, total + fresh.numel())
            rows.append(self._local[source])
            cols.append(self._local[torch.searchsorted(self._pointers, positions, right=True) - 1])
            edges.append(self._edge[positions])
            nodes.append(fresh)
            total, frontier = total + fresh.numel(), fresh
        node, edge, row, col = torch.cat(nodes), torch.cat(edges), torch.cat(rows), torch.cat(cols)
        counts: list[int] | None = [part.numel() for part in edges]
        if self._ends is not None:  # an edge may come from both its ends
            edge, counts = torch.unique(edge), None
            col, row = self._local[self._ends[:, edge]]
        self._local[node] = -1
        return SamplerOutput(
            node=node,
            row=row,
            col=col,
            edge=edge,
            batch=None,
            num_sampled_nodes=[part.numel() for part in nodes],
            num_sampled_edges=counts,
        )

    def _choose(self, frontier: Tensor, count: int) -> Tensor:
        """Positions of the sampled edges that come in to the frontier; without replacement."""
        start, stop = self._pointers[frontier], self._pointers[frontier + 1]
        if count < 0:
            return ranges(start, stop)
        hub = (stop - start > max(4 * count, 64)) & (count <= _FEW_NEIGHBORS)
        hubs = self._of_many(start[hub], (stop - start)[hub], count)
        start, stop = start[~hub], stop[~hub]
        positions = ranges(start, stop)
        group = torch.repeat_interleave(torch.arange(start.numel()), stop - start)
        lot = torch.rand(positions.numel(), dtype=torch.float64, generator=self.generator)
        order = torch.argsort(group + lot)
        rank = ranges(torch.zeros_like(start), stop - start)  # of each edge among those of its node
        return torch.cat([positions[order[rank < count]], hubs])

    def _of_many(self, start: Tensor, degree: Tensor, count: int) -> Tensor:
        """Draw ``count`` edges of each hub at a cost that does not grow with its degree (Floyd's sampling, for all at once)."""
        picked = start.new_empty(start.numel(), count)
        for step in range(count):
            last = degree - count + step
            lot = torch.rand(start.numel(), dtype=torch.float64, generator=self.generator)
            drawn = (lot * (last + 1)).long()
            taken = (picked[:, :step] == drawn.view(-1, 1)).any(dim=1)
            picked[:, step] = torch.where(taken, last, drawn)
        return (start.view(-1, 1) + picked).flatten()

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """Sample for PyG's ``NodeLoader``.

        Args:
            index: The nodes of a batch.
            _: Not used; PyG passes them.

        Returns:
            The sampled subgraph.

        Raises:
            SettingError: If a node comes twice in the batch.
        """
        if torch.unique(index.node).numel() != index.node.numel():
            raise SettingError("a batch names a node twice; give distinct input nodes")
        out = self.sample(index.node)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """Sample for PyG's ``LinkLoader``.

        Args:
            index: The edges of a batch.
            neg_sampling: How PyG adds negative pairs.

        Returns:
            The sampled subgraph.
        """
        return edge_sample(index, self.sample, self.num_nodes, False, None, neg_sampling)


def check_fanout(num_neighbors: list[int]) -> list[int]:
    """The list itself, if every entry is a positive number or -1."""
    if not num_neighbors or any(not isinstance(n, int) or (n < 1 and n != -1) for n in num_neighbors):
        raise SettingError(
            f"'num_neighbors' must be a list of positive numbers or -1, one per hop (got {num_neighbors!r})"
        )
    return list(num_neighbors)


def sampler(data: Data, num_neighbors: list[int], halo: bool | None = None, both_ways: bool = False) -> BaseSampler:
    """PyG's compiled sampler where pyg-lib is installed, else `NeighborSampler`; with -1 both give the same edges."""
    if WITH_PYG_LIB and not both_ways:
        everything = all(count == -1 for count in check_fanout(num_neighbors))
        extra = [-1] if (everything if halo is None else halo) else []
        return CompiledSampler(data, num_neighbors=[*num_neighbors, *extra])
    return NeighborSampler(data, num_neighbors, halo=halo, both_ways=both_ways)


def node_loader(
    data: Data, num_neighbors: list[int], input_nodes: Any = None, *, both_ways: bool = False, **options: Any
) -> NodeLoader:
    """Make a PyG ``NodeLoader`` that needs no compiled extras.

    Args:
        data: The graph.
        num_neighbors: The most edges per node at each hop; -1 takes all.
        input_nodes: The nodes to load; all by default.
        both_ways: Also sample edges that go out, for models such as R-GCN that pass messages against the direction.
        options: Further arguments of ``NodeLoader``, such as ``batch_size``.

    Returns:
        The loader. Batches have ``n_id``, which `gnndelete.rows` needs.

    >>> from gnndelete.datasets import load
    >>> batch = next(iter(node_loader(load("digits"), [-1, -1], batch_size=4)))
    >>> batch.batch_size, bool((batch.n_id[:4] == torch.arange(4)).all())
    (4, True)
    """
    return NodeLoader(data, sampler(data, num_neighbors, both_ways=both_ways), input_nodes=input_nodes, **options)


def link_loader(
    data: Data, num_neighbors: list[int], edge_label_index: Any = None, *, both_ways: bool = False, **options: Any
) -> LinkLoader:
    """Make a PyG ``LinkLoader`` that needs no compiled extras.

    Args:
        data: The graph.
        num_neighbors: The most edges per node at each hop; -1 takes all.
        edge_label_index: The edges to load; all by default.
        both_ways: Also sample edges that go out, see `node_loader`.
        options: Further arguments of ``LinkLoader``; ``neg_sampling="binary"`` adds random pairs.

    Returns:
        The loader. Batches have ``n_id``, which `gnndelete.rows` needs.
    """
    chosen = sampler(data, num_neighbors, both_ways=both_ways)
    return LinkLoader(data, chosen, edge_label_index=edge_label_index, **options)


def graph_loader(
    graphs: Any, batch_size: int, which: Any = None, *, shuffle: bool = False, seed: int = 0, **options: Any
) -> DataLoader:
    """Load a set of graphs in batches.

    Args:
        graphs: The graphs.
        batch_size: Graphs per batch.
        which: A mask or the positions of the graphs to load; all by default.
        shuffle: Load them in random order.
        seed: Draws the order.
        options: Further arguments of torch's ``DataLoader``.

    Returns:
        The loader. Batches have ``n_id``, the ids of their rows in the whole set, and ``graph_id``, those of their graphs.
        Serve an unlearned model on a batch with ``gd.rows(model, batch.n_id)``.

    >>> from torch_geometric.data import Data
    >>> graphs = [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]])) for _ in range(5)]
    >>> [batch.n_id.tolist() for batch in graph_loader(graphs, batch_size=2, which=[0, 2, 4])]
    [[0, 1, 4, 5], [8, 9]]
    """
    data = collate(graphs)
    ids = torch.arange(data.num_graphs) if which is None else torch.as_tensor(which).cpu()
    chosen: Any = (ids.nonzero().flatten() if ids.dtype == torch.bool else ids).tolist()
    generator = torch.Generator().manual_seed(seed) if shuffle else None
    return DataLoader(
        chosen, batch_size=batch_size, shuffle=shuffle, generator=generator, collate_fn=Selection(data), **options
    )
