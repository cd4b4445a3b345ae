"""Communities of a graph by label propagation: good enough to delete a coherent part of it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from gnndelete.graph.validation import count_nodes


def communities(data: Data, seed: int = 0, rounds: int = 10) -> Tensor:
    """Find communities by label propagation.

    In each round about half of the nodes take over the most common label among their neighbours.

    Args:
        data: The graph.
        seed: Draws which nodes move and breaks ties.
        rounds: Number of rounds.

    Returns:
        One label per node, from 0.

    >>> two = torch.tensor([[0, 1, 0, 2, 1, 2, 3, 4, 3, 5, 4, 5], [1, 0, 2, 0, 2, 1, 4, 3, 5, 3, 5, 4]])
    >>> label = communities(Data(edge_index=two, num_nodes=6))
    >>> bool(label[0] == label[1] == label[2]), bool(label[0] == label[3])
    (True, False)
    """
    nodes = count_nodes(data)
    device = data.edge_index.device
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    label = torch.arange(nodes, device=device)
    for _ in range(rounds):
        vote, count = torch.unique(target * nodes + label[source], return_counts=True)
        tie = torch.rand(vote.numel(), generator=generator).to(device)
        voter = vote // nodes
        order = torch.argsort(voter * (int(count.max()) + 2) + count + tie.double())  # by node, its winner last
        last = torch.cat([voter[1:] != voter[:-1], torch.ones(1, dtype=torch.bool, device=device)])
        winner = label.clone()
        winner[voter[last]] = (vote % nodes)[order[last]]
        moves = torch.rand(nodes, generator=generator).to(device) < 0.5  # all at once would swap labels for ever
        label = torch.where(moves, winner, label)
    return torch.unique(label, return_inverse=True)[1]
