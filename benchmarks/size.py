"""Deletion against graph size, 0.1M to 100M directed edges, beside its floor (a forward pass) and a training epoch.

    python benchmarks/size.py --device cuda --edges 1e5 2.4e6 2.4e7 1e8

Graphs are random with a skewed degree and are made on the device. A *first request* is everything from a trained model
and a graph: checks, edge table, the probe of the receptive field, rings, targets, solves. A *further request* uses what
the first one found out about the graph; *messages* is a further request without sparse products. ``--stages`` says where
the time of a further request goes. Times are medians of repeats that take turns in one process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from clock import forward_pass, medians, training_epoch
from options import at_least_one, device_name
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete import unlearner
from gnndelete.methods.base import synchronize
from gnndelete.methods.gnndelete import layerwise
from gnndelete.methods.gnndelete import method as steps


def random_graph(edges: int, features: int, device: torch.device, seed: int = 0) -> Data:
    """An undirected graph of about ``edges`` directed edges, ten per node, whose low ids are hubs."""
    generator = torch.Generator(device).manual_seed(seed)
    nodes = max(edges // 10, 10)
    found = torch.empty(0, dtype=torch.long, device=device)
    while found.numel() < edges // 2:
        draw = torch.rand(2, edges // 2 - found.numel() + 16, generator=generator, device=device)
        ends = (torch.stack([draw[0] ** 1.5, draw[1]]).double() * nodes).long().clamp_(max=nodes - 1)
        pair = ends.min(dim=0).values * nodes + ends.max(dim=0).values
        found = torch.cat([found, pair[ends[0] != ends[1]]]).unique()
        found = found[torch.randperm(found.numel(), generator=generator, device=device)[: edges // 2]]
    ends = torch.stack([found // nodes, found % nodes])
    x = torch.randn(nodes, features, generator=generator, device=device)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), num_nodes=nodes)


@contextmanager
def stages(device: torch.device) -> Iterator[dict[str, float]]:
    """Seconds by part of a deletion; the clock waits for the device, so that the parts take longer than the whole."""
    spent: dict[str, float] = defaultdict(float)
    parts: list[tuple[Any, str, str]] = [
        (unlearner, "check_deletion", "check of the request"),
        (unlearner, "require_fit", "fit of the method"),
        (unlearner, "cut", "remaining graph"),
        (steps, "row_groups", "rings and row groups"),
        (layerwise.Layerwise, "_base_pass", "base pass (targets)"),
        (layerwise.Layerwise, "run", "base and solving pass"),
        (steps, "attach", "attaching"),
        (steps, "closed_form", "solves"),
        (steps, "working_copy", "copy of the model"),
        (unlearner.Unlearned, "from_outcome", "result"),
        (layerwise, "mean_row", "means"),
    ]
    kept = [(owner, name, vars(owner)[name]) for owner, name, _ in parts]

    def wrapped(function: Callable[..., Any], title: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            synchronize(device)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                synchronize(device)
                spent[title] += time.perf_counter() - start

        return run

    for owner, name, title in parts:
        found = vars(owner)[name]
        inner = found.__func__ if isinstance(found, classmethod) else found
        setattr(
            owner, name, classmethod(wrapped(inner, title)) if isinstance(found, classmethod) else wrapped(inner, title)
        )
    try:
        yield spent
    finally:
        for owner, name, found in kept:
            setattr(owner, name, found)


def measured(edges: int, args: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(args.device)
    data = random_graph(edges, args.features, device)
    torch.manual_seed(0)
    model = gd.models.build(args.model, args.features, hidden=args.hidden, out=args.out).to(device)
    task = gd.LinkPrediction()
    learner = gd.models.build(args.model, args.features, hidden=args.hidden, out=args.out).to(device)
    generator = torch.Generator(device).manual_seed(0)
    half = data.edge_index[:, : data.num_edges // 2]
    picked = torch.randperm(half.size(1), generator=generator, device=device)[: max(int(half.size(1) * args.delete), 1)]
    request = gd.Deletion(edges=half[:, picked].cpu())
    method = gd.GNNDelete(lam=0.03)

    warm = gd.Unlearner(model, data, task=task, method=method)
    warm.delete(request)

    def with_messages() -> None:
        """The same with a message per edge, as PyG's layers work without `sparse_products`."""
        products, steps.sparse_products = steps.sparse_products, lambda *_, **__: nullcontext()
        try:
            warm.compact()
        finally:
            steps.sparse_products = products

    work: dict[str, Callable[[], object]] = {"forward": forward_pass(model, data), "further": warm.current}
    if edges <= args.messages_up_to:
        work["messages"] = with_messages
    if edges <= args.first_up_to:
        work["first"] = lambda: gd.Unlearner(model, data, task=task, method=method).delete(request)
    if edges <= args.epochs_up_to:
        work["epoch"] = training_epoch(learner, data, task)
    seconds = medians(work, args.repeats, device)
    row: dict[str, Any] = {"edges": data.num_edges, "nodes": data.num_nodes, "deleted": args.delete, "seconds": seconds}
    row["over_forward"] = seconds["further"] / seconds["forward"]
    if args.stages:
        with stages(device) as spent:
            for _ in range(3):
                warm.compact()
        row["stages"] = {name: value / 3 for name, value in spent.items()}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        warm.compact()
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", nargs="+", type=float, default=[1e5, 2.4e6, 2.4e7, 1e8])
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--out", type=int, default=64)
    parser.add_argument("--delete", type=float, default=0.01, help="share of the edges to delete")
    parser.add_argument("--repeats", type=at_least_one, default=7)
    parser.add_argument("--first-up-to", type=float, default=1e9, help="largest graph for first requests")
    parser.add_argument("--epochs-up-to", type=float, default=1e9, help="largest graph for training epochs")
    parser.add_argument("--messages-up-to", type=float, default=1e9, help="largest graph for requests with messages")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", default=None, help="file to append one JSON line per size to")
    args = parser.parse_args()
    for edges in args.edges:
        row = measured(int(edges), args)
        print(f"{row['edges']:,} edges: " + ", ".join(f"{k} {v * 1000:.2f} ms" for k, v in row["seconds"].items()))
        print(
            f"  a further request takes {row['over_forward']:.2f} forward passes; peak {row.get('peak_gb', 0):.1f} GB"
        )
        for name, value in sorted(row.get("stages", {}).items(), key=lambda item: -item[1]):
            print(f"    {name:<26}{value * 1000:>10.3f} ms")
        sys.stdout.flush()
        if args.json:
            with open(args.json, "a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
