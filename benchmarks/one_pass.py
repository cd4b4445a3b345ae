"""What a deletion costs beside a forward pass, a training epoch, the gradient solver and retraining, all in one process.

    GNNDELETE_DATA=… python benchmarks/one_pass.py --dataset dblp --model gcn

A *first request* is everything from a trained model and a graph: checks, edge table, probing the receptive field, rings,
targets, solves. A *further request* uses what the first one found out about the graph. Times are medians of repeats that
take turns, so that a slow moment of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import json

import torch
from clock import forward_pass, medians, training_epoch
from options import at_least_one, device_name
from torch import nn

import gnndelete as gd
from gnndelete.methods.gnndelete.objective import Problem, objective
from gnndelete.methods.gnndelete.solvers import gradient
from gnndelete.nn.hooks import Site
from gnndelete.nn.operator import LinearMap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="dblp")
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--delete", type=float, default=0.025, help="share of the training edges to delete")
    parser.add_argument("--repeats", type=at_least_one, default=9)
    parser.add_argument(
        "--train-epochs", type=int, default=30, help="epochs before measuring, so that layers are not random"
    )
    parser.add_argument(
        "--retrain-epochs", type=int, default=None, help="epochs really run; fewer than 1,000 are scaled up"
    )
    parser.add_argument("--gradient-epochs", type=int, default=1500)
    parser.add_argument("--json", default=None)
    args = parser.parse_args()

    split = gd.datasets.split_links(gd.datasets.load(args.dataset), seed=0)
    device = torch.device(args.device)
    data = split.data.to(device)
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = gd.models.build(args.model, data.num_features).to(device)
    gd.train(model, data, task, epochs=args.train_epochs, seed=0)
    request = gd.Deletion(edges=gd.datasets.forget_edges(split.data, args.delete, seed=0))

    learner = gd.models.build(args.model, data.num_features).to(device)
    plain = gd.GNNDelete(lam=0.5)  # at a fixed lam: calibration has a benchmark of its own
    warm = gd.Unlearner(model, data, task=task, method=plain)
    warm.delete(request)

    work = {
        "forward pass": forward_pass(model, data),
        "training epoch": training_epoch(learner, data, task),
        "exact, first request": lambda: gd.Unlearner(model, data, task=task, method=plain).delete(request),
        "exact, further request": warm.current,  # the same request again, on a graph that is known
    }
    seconds = medians(work, args.repeats, device)

    epochs = args.retrain_epochs or (1000 if device.type == "cuda" else 20)
    retrain = gd.Unlearner(model, data, task=task, method=gd.Retrain(epochs=epochs)).delete(request).seconds
    seconds["retrain 1,000 epochs"] = retrain * 1000 / epochs
    slow = gd.GNNDelete(lam=0.5, solver="gradient", epochs=args.gradient_epochs)
    seconds["gradient solver"] = gd.Unlearner(model, data, task=task, method=slow).delete(request).seconds

    objectives: list[tuple[str, int, float, float]] = []

    def compare(site: Site, problem: Problem, solved: nn.Module) -> None:
        start = LinearMap(site.width).to(problem.h.device, problem.h.dtype)
        trained = gradient(problem, start, args.gradient_epochs, 1e-3)
        objectives.append((site.title, problem.rows.numel(), objective(problem, solved), objective(problem, trained)))

    gd.Unlearner(model, data, task=task, method=gd.GNNDelete(lam=0.5, watch=compare)).delete(request)

    first, further_s = seconds["exact, first request"], seconds["exact, further request"]
    scaled = "" if epochs >= 1000 else f" (scaled from {epochs} epochs)"
    print(
        f"{args.dataset}, {args.model}, {device}: {data.num_nodes:,} nodes, {data.num_edges:,} edges, {request} deleted"
    )
    for name, value in seconds.items():
        print(f"  {name:<24}{value * 1000:>12.1f} ms{scaled if name.startswith('retrain') else ''}")
    for title, value in (("first", first), ("further", further_s)):
        print(f"exact deletion, {title} request")
        print(f"  over one training epoch      {value / seconds['training epoch']:>10.2f}")
        print(f"  over one forward pass        {value / seconds['forward pass']:>10.2f}")
        print(f"  retraining over it           {seconds['retrain 1,000 epochs'] / value:>10.0f}")
        print(f"  gradient solver over it      {seconds['gradient solver'] / value:>10.0f}")
    print(f"objective per map on the same inputs    rows       exact   gradient ({args.gradient_epochs} epochs)")
    for title, rows, best, other in objectives:
        print(f"  {title:<32}{rows:>10,}{best:>12.6f}{other:>12.6f}   {'ok' if best <= other else 'EXACT IS HIGHER'}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"seconds": seconds, "objectives": objectives, "retrain_epochs_run": epochs}, file, indent=2)


if __name__ == "__main__":
    main()
