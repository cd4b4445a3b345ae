"""GPS and Graphormer on PROTEINS and on a part of DBLP that fits full attention: 2.5% of the edges deleted, beside Unlink
and Retrain.

    GNNDELETE_DATA=… python benchmarks/transformers.py --nodes 2000 --seeds 3 --device cuda --out transformers.jsonl

The part is an induced subgraph, grown ring by ring from nodes drawn from the seed; on it the models predict links and classes
of nodes. The graphs of PROTEINS are classified by the same models with mean pooling (``--tasks graph``). Every deletion is
the same call: ``Unlearner(model, data, task, method).delete(deletion)``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from options import at_least_one, device_name
from tables import Cell, link_task, record, show
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.graph.edge_table import EdgeTable, Neighborhood
from gnndelete.methods.base import Method

BATCH = 64
SEEDS = (42, 21, 13, 87, 100)


def part(data: Data, nodes: int, seed: int) -> Data:
    """An induced subgraph of so many nodes: rings around random nodes, several so that no single topic prevails."""
    generator = torch.Generator().manual_seed(seed)
    table = EdgeTable(data.edge_index, data.num_nodes)
    starts = torch.randperm(data.num_nodes, generator=generator)[: max(nodes // 10, 1)]
    rings = Neighborhood(table, data.edge_index).rings(starts, 64)
    order = torch.cat([ring[torch.randperm(ring.numel(), generator=generator)] for ring in rings])
    return data.subgraph(order[:nodes].sort().values)


def methods(name: str, kind: str, epochs: int, lr: float) -> dict[str, Method]:
    batches: dict[str, Any] = {"batch_size": BATCH} if kind == "graph" else {}
    rows: dict[str, Method] = {
        "retrain": gd.Retrain(epochs=epochs, lr=lr, **batches),
        "unlink": gd.Unlink(),
        "gnndelete": gd.GNNDelete(),
        "gnndelete lam=.5": gd.GNNDelete(lam=0.5, aim="nonexistent"),
        "gnndelete paper()": gd.GNNDelete.paper(),
    }
    if name.startswith("gps") and kind != "graph":  # where the paper puts the operator: behind the local layer inside
        rows["gnndelete lam=.5 inside"] = gd.GNNDelete(
            lam=0.5, aim="nonexistent", layers=["convs.0.conv", "convs.1.conv"]
        )
    return rows


def build(name: str, in_channels: int, out: int, args: argparse.Namespace, **options: Any) -> nn.Module:
    kind, _, attention = name.partition(":")
    options |= {"attention": attention} if attention else {}
    shape = {"hidden": args.hidden, "num_layers": 2, "dropout": args.dropout}
    return gd.models.build(kind, in_channels, out=out, **shape, **options)


def measure(
    name: str, model: nn.Module, data: Any, task: Any, deletion: gd.Deletion, args: argparse.Namespace, seed: int
) -> Cell:
    result: Cell = {"original": original(model, data, task)}
    for label, method in methods(name, task.name, args.epochs, args.lr).items():
        unlearned = gd.Unlearner(model, data, task=task, method=method, seed=seed).delete(deletion)
        result[label] = {**unlearned.evaluate(), "seconds": unlearned.seconds}
        found = gd.audit(unlearned, attacks=False).to_dict()["forgetting"]
        served = found.get("unseen", {}).get("served", {}) if found["available"] else {}
        if served.get("available"):
            result[label]["unseen_auc"] = served["after"]["auc"]
    return result


def original(model: nn.Module, data: Any, task: Any) -> dict[str, float]:
    """The model before the deletion, by the names that the scores have after it."""
    return {
        name if name.startswith("test_") else f"test_{name}": v for name, v in gd.evaluate(model, data, task).items()
    }


def link_cell(name: str, data: Data, args: argparse.Namespace, seed: int) -> Cell:
    split = gd.datasets.split_links(data, seed=seed, val=0.1, test=0.1)
    task = link_task(split, seed)
    graph = split.data.to(args.device)
    torch.manual_seed(seed)
    model = build(name, graph.num_features, args.hidden // 2, args).to(args.device)
    gd.train(model, graph, task, epochs=args.epochs, lr=args.lr, seed=seed)
    forget = gd.datasets.forget_edges(graph, args.delete, seed=seed)
    return measure(name, model, graph, task, gd.Deletion(edges=forget), args, seed)


def node_cell(name: str, data: Data, args: argparse.Namespace, seed: int) -> Cell:
    graph = gd.datasets.split_nodes(data, seed=seed, train=0.8, val=0.1).to(args.device)
    torch.manual_seed(seed)
    model = build(name, graph.num_features, int(graph.y.max()) + 1, args).to(args.device)
    gd.train(model, graph, "node", epochs=args.epochs, lr=args.lr, seed=seed)
    forget = gd.datasets.forget_edges(graph, args.delete, seed=seed)
    return measure(name, model, graph, gd.NodeClassification(), gd.Deletion(edges=forget), args, seed)


def graph_cell(name: str, _: Data, args: argparse.Namespace, seed: int) -> Cell:
    """Graphs of PROTEINS by enzyme or not; the edges to forget come from the training graphs."""
    dataset = list(gd.datasets.load("proteins"))[:: args.every]
    graphs = gd.datasets.collate(dataset, gd.datasets.split_graphs(dataset, seed=seed)).to(args.device)
    torch.manual_seed(seed)
    model = build(name, graphs.num_features, 2, args, pool="mean").to(args.device)
    gd.train(model, graphs, "graph", epochs=args.epochs, lr=args.lr, seed=seed, batch_size=BATCH)
    forget = gd.datasets.forget_edges(graphs, args.delete, seed=seed)
    return measure(name, model, graphs, gd.GraphClassification(), gd.Deletion(edges=forget), args, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gps", "graphormer"], help="also gps:performer")
    parser.add_argument("--tasks", nargs="+", default=["graph", "link", "node"], choices=["link", "node", "graph"])
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--epochs", type=at_least_one, default=200)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--delete", type=float, default=0.025)
    parser.add_argument("--seeds", type=at_least_one, default=1)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th graph of PROTEINS, to try it out")
    parser.add_argument("--out", default=None, help="file to add one JSON line per result to")
    args = parser.parse_args()
    dblp = gd.datasets.load("dblp") if {"link", "node"} & set(args.tasks) else Data(num_nodes=0)
    cells: dict[str, Callable[..., Cell]] = {"link": link_cell, "node": node_cell, "graph": graph_cell}
    columns = {
        "link": ["test_auroc", "deleted_auroc", "unseen_auc", "seconds"],
        "node": ["test_accuracy", "test_f1", "seconds"],
        "graph": ["test_accuracy", "test_auroc", "seconds"],
    }
    store: dict[str, list[Cell]] = defaultdict(list)
    for name in args.models:
        for task in args.tasks:
            for seed in SEEDS[: args.seeds]:
                data = Data(num_nodes=0) if task == "graph" else part(dblp, args.nodes, seed)
                start = time.perf_counter()
                store[f"{task} {name}"].append(cells[task](name, data, args, seed))
                for label, found in store[f"{task} {name}"][-1].items():
                    record(args.out, {"model": name, "task": task, "seed": seed, "method": label, **found})
                size = "PROTEINS" if task == "graph" else f"{data.num_nodes:,} nodes, {data.num_edges // 2:,} edges"
                print(f"{task} {name} seed {seed} ({size}): {time.perf_counter() - start:.0f} s", file=sys.stderr)
            show(
                f"{name}, {task}: {args.delete:.1%} of edges deleted", store[f"{task} {name}"], columns[task], digits=3
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
