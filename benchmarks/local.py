"""Local requests beside one forward pass and the full engine: graph size, model kind, degree, streams, memory.

    python benchmarks/local.py --quick
    python benchmarks/local.py --edges 1e5 1e6 2.4e6 1e7 --stream 1000 --json local.json --figure docs/assets/local.png

Graphs are random, with ten edges a node and 128 features (``--graph community``: with communities and hubs). Models have
two layers of width 128 and 64, and lam is fixed, so that a request costs no calibration. Every time is the median of
requests of random elements, each the first one of an unlearner that `prepare` has made ready; a forward pass is timed in
the same process. ``--parts`` chooses among:

- ``sizes``: 1 to 1,000 edges and one node, against the size of the graph, with `prepare`, memory and `predict`;
- ``kinds``: one edge on other kinds of models;
- ``degree``: one edge at a hub, against the degree of the hub;
- ``share``: requests of a growing share of the edges, local and full, to see where the whole graph is cheaper;
- ``stream``: single edges one after another, joint and in segments, and what `compact` changes.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from clock import forward_pass, medians, timed
from options import at_least_one
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, LGConv, SAGEConv

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.engine.trial import close
from gnndelete.metrics.edge_matching import degrees, edge_strata
from gnndelete.metrics.unseen_test import unseen_test

CPU = torch.device("cpu")
FEATURES, HIDDEN, OUT, LAM = 128, 128, 64, 0.5
PARTS = ("sizes", "kinds", "degree", "share", "stream")
SECONDS = {"1", "1_p90", "10", "100", "1000", "node", "prepare", "predict_1000", "full", "local"}
SECONDS |= {"tenth", "last", "tenth_mean", "last_mean", "compact", "hub_edge", "forward"}
Row = dict[str, Any]


class TwoLayers(nn.Module):
    """Two graph layers with a ReLU between them."""

    def __init__(self, layer: Callable[[int, int], nn.Module], features: int = FEATURES) -> None:
        super().__init__()
        self.convs = nn.ModuleList([layer(features, HIDDEN), layer(HIDDEN, OUT)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Representations of all nodes."""
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


class Table(nn.Module):
    """A trained vector per node and two layers of LightGCN."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(nodes, OUT)
        self.convs = nn.ModuleList([LGConv(), LGConv()])

    def forward(self, edge_index: Tensor) -> Tensor:
        """Representations of all nodes."""
        h = self.table.weight
        for conv in self.convs:
            h = conv(h, edge_index)
        return h


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "sage": SAGEConv,
    "gcn": GCNConv,
    "gat": GATConv,
    "gin": lambda width, out: GINConv(nn.Linear(width, out)),
}


def build(name: str, data: Data) -> nn.Module:
    """An untrained model: the time of a request does not depend on its weights."""
    torch.manual_seed(0)
    return (Table(int(data.num_nodes or 0)) if name == "table" else TwoLayers(LAYERS[name])).eval()


def uniform_graph(edges: int, hub: int = 0, seed: int = 0) -> Data:
    """A random graph of ten edges a node; node 0 has ``hub`` neighbours more."""
    generator = torch.Generator().manual_seed(seed)
    nodes = edges // 10
    ends = torch.randint(nodes, (2, edges // 2), generator=generator)
    ends = ends[:, ends[0] != ends[1]]
    if hub:
        others = torch.randperm(nodes - 1, generator=generator)[:hub] + 1
        ends = torch.cat([ends, torch.stack([torch.zeros_like(others), others])], dim=1)
    x = torch.randn(nodes, FEATURES, generator=generator)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), num_nodes=nodes)


def made(args: argparse.Namespace, edges: float, hub: int | None = None) -> Data:
    """The graph of a measurement: uniformly random, or with communities and power-law degrees."""
    if args.graph == "uniform" or hub is not None:
        return uniform_graph(int(edges), hub or 0)
    return community_graph(int(edges) // 10, int(edges), FEATURES, seed=0)


class Requests:
    """Random requests to one graph that no request before has named."""

    def __init__(self, data: Data, seed: int = 1) -> None:
        self.data = data
        columns = (data.edge_index[0] < data.edge_index[1]).nonzero().flatten()
        order = torch.randperm(columns.numel(), generator=torch.Generator().manual_seed(seed))
        self._columns = iter(columns[order[:200_000]].split(1))
        self._nodes = iter(torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed)).tolist())

    def edges(self, count: int) -> gd.Deletion:
        """A request of some edges."""
        return gd.Deletion(edges=self.data.edge_index[:, torch.cat([next(self._columns) for _ in range(count)])])

    def node(self) -> gd.Deletion:
        """A request of one node."""
        return gd.Deletion(nodes=[next(self._nodes)])


def unlearner(model: nn.Module, data: Data, **options: Any) -> gd.Unlearner:
    """An unlearner at a fixed lam, of a task that scores pairs."""
    pairs = torch.randint(int(data.num_nodes or 0), (2, 2, 1000), generator=torch.Generator().manual_seed(2))
    task = gd.LinkPrediction(validation=pairs[0], test=pairs[1])
    return gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=LAM), **options)


def times(ready: gd.Unlearner, deletions: Iterable[gd.Deletion]) -> list[float]:
    """Seconds of each request as the first one: a shallow copy of an unlearner shares all that was prepared."""
    return [timed(lambda d=deletion: copy.copy(ready).delete(d), CPU) for deletion in deletions]


def median(values: list[float]) -> float:
    """The median, in seconds."""
    return statistics.median(values)


def sizes(name: str, data: Data, repeats: int, full: bool) -> Row:
    """Requests of several sizes on one graph, beside a forward pass."""
    model, requests, large = build(name, data), Requests(data), data.num_edges > 2e6
    run = forward_pass(model, data)
    forward = median([timed(run, CPU) for _ in range(2 if large else 5)])
    ready = unlearner(model, data)
    row: Row = {"part": "sizes", "model": name, "edges": data.num_edges, "nodes": data.num_nodes, "forward": forward}
    row["prepare"] = timed(ready.prepare, CPU)
    blocks = ready._context.session.blocks
    if blocks is None:
        sys.exit(f"{name} is not local: {ready._context.session.not_local}")
    row["cache_bytes"] = blocks.cache.nbytes
    row["outputs_bytes"] = 4 * data.num_nodes * (HIDDEN + OUT)
    times(ready, [requests.edges(1)])  # what is made once
    found = times(ready, [requests.edges(1) for _ in range(repeats)])
    row["1"], row["1_p90"] = median(found), sorted(found)[int(0.9 * len(found))]
    for count in (10, 100, 1000):
        if 20 * count < data.num_edges:
            row[str(count)] = median(times(ready, [requests.edges(count) for _ in range(max(repeats // count, 3))]))
    row["node"] = median(times(ready, [requests.node() for _ in range(max(repeats // 4, 3))]))
    result = copy.copy(ready).delete(requests.edges(1))
    row["engine"] = result.engine
    pairs = torch.randint(data.num_nodes, (2, 1000))
    result.predict(pairs)
    row["predict_1000"] = median([timed(lambda: result.predict(pairs), CPU) for _ in range(9)])
    if full:
        whole = unlearner(model, data, engine="full")
        times(whole, [requests.edges(1)])
        row["full"] = median(times(whole, [requests.edges(1) for _ in range(1 if large else 3)]))
    return row


def degree(name: str, data: Data, hub: int) -> Row:
    """Edges at a hub, and those of its neighbours: what a request costs follows its neighbourhood."""
    model = build(name, data)
    forward = medians({"forward": forward_pass(model, data)}, 3, CPU)["forward"]
    ready = unlearner(model, data).prepare()
    near = (data.edge_index[0] == 0).nonzero().flatten()[:6]
    deletions = [gd.Deletion(edges=data.edge_index[:, [column]]) for column in near.tolist()]
    times(ready, deletions[:1])
    engine = copy.copy(ready).delete(deletions[1]).engine
    block = ready._context.session.blocks.near(deletions[2].check(data), share=1.0)
    row: Row = {"part": "degree", "model": name, "edges": data.num_edges, "hub": hub, "forward": forward}
    found = {"hub_edge": median(times(ready, deletions[2:])), "engine": engine, "block_edges": block.data.num_edges}
    return row | found


def share(name: str, data: Data, part: float) -> Row:
    """A request of a share of the edges on its block, however large, and on the whole graph."""
    model, requests = build(name, data), Requests(data)
    ready, whole = unlearner(model, data, engine="local").prepare(), unlearner(model, data, engine="full")
    count = max(int(part * data.num_edges / 2), 1)
    for each in (ready, whole):
        times(each, [requests.edges(1)])
    deletion = requests.edges(count)
    block = ready._context.session.blocks.near(deletion.check(data), share=1.0)
    local, full = (median(times(each, [deletion] * 3)) for each in (ready, whole))
    row: Row = {"part": "share", "model": name, "edges": data.num_edges, "deleted": count, "local": local, "full": full}
    row["block_edges"], row["block_nodes"] = block.data.num_edges / data.num_edges, block.nodes.numel() / data.num_nodes
    return row


def stream(name: str, requests: int, nodes: int, epochs: int) -> list[Row]:
    """Single edges one after another on a trained model: seconds of early and late ones, and how far segments drift."""
    split = gd.datasets.split_links(community_graph(nodes, 10 * nodes, 64, exponent=5, seed=0), seed=0)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    data = split.data
    torch.manual_seed(0)
    model = TwoLayers(LAYERS[name], split.data.num_features)
    gd.train(model, data, task, epochs=epochs, lr=0.01, seed=0)
    half = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    order = torch.randperm(half.size(1), generator=torch.Generator().manual_seed(3))[:requests]
    small = gd.Unlearner(model, data, task=task).prepare().delete(gd.Deletion(edges=half[:, order[:1]]))
    method = gd.GNNDelete(lam=small.lam or 0.0)  # as rehearsed
    rows = []
    results: dict[str, gd.Unlearned] = {}
    for sequence in ("segments", "joint"):
        served = gd.Unlearner(model, data, task=task, method=method, sequence=sequence).prepare()
        seconds = []
        for column in order.tolist():
            start = time.perf_counter()
            results[sequence] = served.delete(gd.Deletion(edges=half[:, [column]]))
            seconds.append(time.perf_counter() - start)
        early, late = seconds[5:25], seconds[-20:]
        row: Row = {"part": "stream", "model": name, "sequence": sequence, "requests": requests}
        row |= {"tenth": median(early), "last": median(late), "tenth_mean": statistics.mean(early)}
        row["last_mean"] = statistics.mean(late)
        row["forward"] = medians({"forward": forward_pass(model, data)}, 5, CPU)["forward"]
        if sequence == "segments":
            start = time.perf_counter()
            results["compact"] = served.compact()
            row["compact"] = time.perf_counter() - start
        row["seconds"] = [round(value, 5) for value in seconds]
        rows.append(row)
    together = gd.Deletion(edges=half[:, order])
    results["together"] = gd.Unlearner(model, data, task=task, method=method, engine="full").delete(together)
    unseen = task.unseen(data, "test")
    remaining = results["together"].data
    strata = edge_strata(degrees(remaining), together.edges, unseen)
    scores = {}
    for kind, result in results.items():
        values = result.predict(torch.cat([together.edges, unseen], dim=1)).split([requests, unseen.size(1)])
        scores[kind] = (task.evaluate_by(result.predict, data)["auroc"], unseen_test(*values, **strata).auc)
    output = {kind: result.output() for kind, result in results.items()}
    summary: Row = {"part": "stream", "model": name, "sequence": "distance", "lam": method.lam}
    for kind in ("segments", "joint", "compact", "together"):
        summary[f"{kind}_test_auroc"], summary[f"{kind}_unseen_auc"] = scores[kind]
        difference = (output[kind] - output["together"]).abs().max() / output["together"].abs().max()
        summary[f"{kind}_difference"] = float(difference)
    summary["compact_is_joint"] = close(output["compact"], output["together"])
    return [*rows, summary]


def words(row: Row) -> str:
    """A row in one line: times with the share of a forward pass that they are."""
    found = []
    for key, value in row.items():
        if key in SECONDS and "forward" in row:
            found.append(f"{key} {value * 1000:,.2f} ms = 1/{row['forward'] / value:,.1f}")
        elif key in SECONDS:
            found.append(f"{key} {value * 1000:,.2f} ms")
        elif isinstance(value, float):
            found.append(f"{key} {value:.4g}")
        elif key not in ("part", "seconds"):
            found.append(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}")
    return f"{row['part']:<7}" + ", ".join(found)


def figure(rows: list[Row], path: str) -> None:
    """Seconds against the size of the graph, a model each, and the seconds of each request of a stream."""
    from matplotlib.figure import Figure

    by_size = [row for row in rows if row["part"] == "sizes"]
    streams = [row for row in rows if row["part"] == "stream" and "seconds" in row]
    names = list(dict.fromkeys(row["model"] for row in by_size))
    drawn = Figure(figsize=(4 * (len(names) + bool(streams)), 3.6), layout="constrained")
    axes = list(drawn.subplots(1, len(names) + bool(streams), squeeze=False)[0])
    lines = {"forward": "a forward pass", "full": "1 edge, full engine", "1000": "1,000 edges", "100": "100 edges"}
    lines |= {"node": "1 node", "10": "10 edges", "1": "1 edge"}
    for axis, name in zip(axes, names, strict=False):
        here = sorted((row for row in by_size if row["model"] == name), key=lambda row: row["edges"])
        for number, (key, label) in enumerate(lines.items()):
            points = [(row["edges"], row[key]) for row in here if key in row]
            style = "--" if key in ("forward", "full") else "-"
            axis.loglog(*zip(*points, strict=True), style, marker="o", markersize=3, color=f"C{number}", label=label)
        axis.set(title=f"{name.upper()}, two layers, one thread", xlabel="edges in the graph", ylabel="seconds")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    for row in streams:
        seconds = torch.tensor(row["seconds"])
        smooth = seconds.unfold(0, 9, 1).median(dim=1).values
        axes[-1].semilogy(range(5, 5 + smooth.numel()), smooth, label=row["sequence"])
        axes[-1].set(title="a stream of single edges", xlabel="request", ylabel="seconds (median of 9)")
    if streams:
        axes[-1].legend(fontsize=7)
        axes[-1].grid(alpha=0.3)
    drawn.savefig(path, dpi=110)


def work(args: argparse.Namespace) -> Iterable[Callable[[], list[Row]]]:
    """What is measured, one graph at a time."""
    main = args.models[0]
    for edges in args.edges if "sizes" in args.parts else ():
        for name in args.models:
            yield lambda e=edges, n=name: [sizes(n, made(args, e), args.repeats, e <= args.full_up_to)]
    for name in ("gat", "gin", "table") if "kinds" in args.parts else ():
        yield lambda n=name: [{**sizes(n, made(args, args.at), args.repeats, full=True), "part": "kinds"}]
    for hub in (0, 100, 1_000, int(args.at) // 20) if "degree" in args.parts else ():
        yield lambda h=hub: [degree(main, made(args, args.at, h), h)]
    for part in (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2) if "share" in args.parts else ():
        yield lambda p=part: [share(main, made(args, args.at), p)]
    for name in args.models if "stream" in args.parts else ():
        yield lambda n=name: stream(n, args.stream, 20_000 if not args.quick else 4_000, 60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", nargs="+", type=float, default=[1e5, 4e5, 1e6, 2.4e6])
    parser.add_argument("--graph", choices=("uniform", "community"), default="uniform")
    parser.add_argument("--at", type=float, default=4e5, help="edges of the graph of the other parts")
    parser.add_argument("--models", nargs="+", choices=LAYERS, default=["sage", "gcn"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--repeats", type=at_least_one, default=200, help="single-edge requests of which a median is taken"
    )
    parser.add_argument("--stream", type=at_least_one, default=200, help="requests of a stream")
    parser.add_argument("--full-up-to", type=float, default=1e9, help="largest graph for engine='full'")
    parser.add_argument("--quick", action="store_true", help="small graphs and few repeats, in about a minute")
    parser.add_argument("--json", default=None, help="file to append one JSON line per measurement to")
    parser.add_argument("--figure", default=None, help="image file for the figure")
    parser.add_argument(
        "--drawn-from", nargs="+", default=[], help="JSON files to draw the figure from; nothing is measured"
    )
    args = parser.parse_args()
    if args.quick:
        args.edges, args.at, args.repeats, args.stream = [1e5, 1e6], 1e5, 20, 60
    torch.set_num_threads(1)
    rows = [json.loads(line) for path in args.drawn_from for line in Path(path).read_text().splitlines()]
    for measure in () if rows else work(args):
        for row in measure():
            row["graph"] = args.graph
            rows.append(row)
            print(words(row), flush=True)
            if args.json:
                with open(args.json, "a") as file:
                    file.write(json.dumps(row) + "\n")
    if args.figure:
        figure(rows, args.figure)


if __name__ == "__main__":
    main()
