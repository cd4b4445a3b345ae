"""Negative sampling beside PyG's, on one graph in one process; our index is built once per graph and shown apart.

python benchmarks/negatives.py
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from options import at_least_one
from torch_geometric.utils import negative_sampling

from gnndelete.datasets import NegativeSampler
from gnndelete.datasets.generated import community_graph
from gnndelete.graph.edge_table import EdgeTable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=235_868)
    parser.add_argument("--edges", type=int, default=2_358_104)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--repeats", type=at_least_one, default=5)
    args = parser.parse_args()
    data = community_graph(args.nodes, args.edges, features=1)
    start = time.perf_counter()
    sampler = NegativeSampler(data.edge_index, args.nodes)
    built = time.perf_counter() - start
    table = EdgeTable(data.edge_index, args.nodes)
    generator = torch.Generator().manual_seed(0)
    ours, theirs, wrong = [], [], {"ours": 0, "theirs": 0}
    for _ in range(args.repeats):
        start = time.perf_counter()
        own = sampler.sample(args.count, generator)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        other = negative_sampling(data.edge_index, args.nodes, args.count)
        theirs.append(time.perf_counter() - start)
        for name, pairs in (("ours", own), ("theirs", other)):
            wrong[name] += int((table.contains(pairs) | (pairs[0] == pairs[1])).sum())
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{args.count:,} negatives on {args.edges:,} edges (medians of {args.repeats})")
    print(
        f"  ours   {a * 1000:9.2f} ms, index {built * 1000:.0f} ms once per graph; true edges returned: {wrong['ours']}"
    )
    print(f"  PyG's  {b * 1000:9.2f} ms; true edges or self-loops returned: {wrong['theirs']}")
    print(f"  PyG's over ours: {b / a:.0f}")


if __name__ == "__main__":
    main()
