"""Graphs on disk beside the same graphs in memory: build, preparation and one-edge requests, in one process.

The size of the process is measured while the graph on disk is built, prepared and asked; the graph in memory comes afterwards.

    python benchmarks/disk.py --edges 1_000_000 --memory 1GB
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import gnndelete as gd
from gnndelete.engine.cache import Cache
from gnndelete.nn.layers import working_copy

PART = 1 << 20


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(width, width), SAGEConv(width, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def edges(nodes: int, count: int) -> Iterator[Tensor]:
    """Random edges, most of them between near ids, with a few nodes of many edges."""
    generator = torch.Generator().manual_seed(0)
    for start in range(0, count, PART):
        size = min(PART, count - start)
        source = (torch.rand(size, generator=generator) ** 2 * nodes).long().clamp_(max=nodes - 1)
        near = (source + (torch.randn(size, generator=generator) * 1000).long()) % nodes
        anywhere = torch.randint(nodes, (size,), generator=generator)
        target = torch.where(torch.rand(size, generator=generator) < 0.8, near, anywhere)
        yield torch.stack([source, target])[:, source != target]


def features(nodes: int, width: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    for start in range(0, nodes, PART):
        yield torch.randn(min(PART, nodes - start), width, generator=generator)


def peak_mb() -> float:
    """The largest size that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def requests(unlearner: gd.Unlearner, chosen: Tensor) -> list[float]:
    """The seconds of requests for one edge each; the same requests are made in memory and on disk."""
    seconds = []
    for number in range(chosen.size(1)):
        start = time.perf_counter()
        unlearner.delete(gd.Deletion(edges=chosen[:, [number]]))
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(count: int, width: int, memory: str, folder: Path) -> dict[str, Any]:
    """All figures of one size."""
    nodes = count // 10
    torch.manual_seed(0)
    model = Model(width).eval()
    found: dict[str, Any] = {"nodes": nodes, "width": width, "memory": memory, "process_mb": peak_mb()}
    start = time.perf_counter()
    graph = gd.DiskGraph.build(
        folder / "graph", edges(nodes, count // 2), features(nodes, width), undirected=True, memory=memory
    )
    found |= {"edges": graph.num_edges, "build_s": time.perf_counter() - start, "build_peak_mb": peak_mb()}
    found["graph_mb"] = graph.files_bytes / 2**20
    options: Any = {"method": gd.GNNDelete(lam=0.5), "engine": "local", "sequence": "segments"}
    on_disk = gd.Unlearner(model, graph, **options)
    start = time.perf_counter()
    on_disk.prepare(folder / "rows", memory=memory)
    found |= {"prepare_s": time.perf_counter() - start, "prepare_peak_mb": peak_mb()}
    chosen = graph.edge_index[:, torch.randint(graph.num_edges, (40,))].long()
    disk_seconds = requests(on_disk, chosen)
    found["requests_peak_mb"] = peak_mb()

    data = Data(x=graph.x.clone(), edge_index=graph.edge_index.long().clone())
    in_memory = gd.Unlearner(model, data, **options)
    start = time.perf_counter()
    rows = Cache.compute(in_memory.session, working_copy(model), in_memory.session.probe("all").sites)
    found["layers_in_memory_s"] = time.perf_counter() - start
    in_memory.prepare()
    memory_seconds = requests(in_memory, chosen)
    blocks = on_disk.session.blocks
    assert blocks is not None
    pairs = zip(rows.rows.values(), blocks.cache.rows.values(), strict=True)
    found["largest_difference"] = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
    found["request_disk_ms"] = 1000 * statistics.median(disk_seconds[20:])
    found["request_memory_ms"] = 1000 * statistics.median(memory_seconds[20:])
    found["prepare_ratio"] = found["prepare_s"] / found["layers_in_memory_s"]
    found["request_ratio"] = found["request_disk_ms"] / found["request_memory_ms"]
    found["both_peak_mb"] = peak_mb()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000, help="counted both ways")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--folder", type=Path, help="where to write; the default is a temporary folder")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        found = measure(arguments.edges, arguments.width, arguments.memory, folder)
        print(json.dumps({name: round(v, 6) if isinstance(v, float) else v for name, v in found.items()}, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
