"""A typed graph of OGB-BioKG's size, end to end on one device: 5,088,434 triples of 51 relations, R-GCN with 64 and 32 columns.

    python benchmarks/biokg.py --epochs 200 --out biokg.jsonl
    python benchmarks/biokg.py --scale 0.1 --epochs 5 --device cpu

The graph is generated (`generated:biokg`), so that nothing has to be fetched. Every line is a JSON object: loading,
splitting, training, one training epoch on the whole graph (loss, gradients and step, negatives included), deletions of a
share of the triples with one operator per layer (`shared`: 64² + 32² = 5,120 parameters) and one per ring, at a fixed lam
and calibrated. `first` is a request to a new `Unlearner`: checks, edge table, probing the model, solving; `further` uses
what the first found out about model and graph; `cold` is the very first of the process, in which an accelerator also
loads what it needs to solve. Seconds are medians of repeats. `epochs` is the time in units of one training epoch.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from options import at_least_one, device_name
from tables import link_task, matched
from torch import nn
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.io.memory import PeakMemory
from gnndelete.methods.base import synchronize
from gnndelete.nn.forward import call, evaluating
from gnndelete.training.minibatches import Neighborhoods

ENTITIES, TRIPLES, RELATIONS = 93_773, 5_088_434, 51


class Lines:
    """Results as JSON lines, on standard output and in a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def __call__(self, result: str, **values: Any) -> None:
        line = json.dumps({"result": result, **{k: _rounded(v) for k, v in values.items()}})
        print(line, flush=True)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(line + "\n")


def _rounded(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


class Clock:
    """Seconds and peak memory of a block, the device's work included."""

    seconds: float
    peak_mb: float | None


@contextmanager
def measured(device: torch.device) -> Iterator[Clock]:
    clock = Clock()
    synchronize(device)
    with PeakMemory(device) as memory:
        start = time.perf_counter()
        yield clock
        synchronize(device)
        clock.seconds = time.perf_counter() - start
    clock.peak_mb = memory.peak_mb


def repeated(work: Callable[[], Any], repeats: int, device: torch.device) -> tuple[float, float | None]:
    """The median of the seconds and the largest peak."""
    found = []
    for _ in range(repeats):
        with measured(device) as clock:
            work()
        found.append(clock)
    peaks = [clock.peak_mb for clock in found if clock.peak_mb is not None]
    return statistics.median(clock.seconds for clock in found), max(peaks, default=None)


def epoch_of(model: nn.Module, data: Data, task: gd.LinkPrediction, device: torch.device) -> Callable[[], None]:
    """One epoch of training on the whole graph, on a copy of the model."""
    learner = copy.deepcopy(model)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
    generator = torch.Generator(device).manual_seed(0)

    def epoch() -> None:
        learner.train()
        optimizer.zero_grad()
        task.loss(learner, call(learner, data), data, generator).backward()
        optimizer.step()

    return epoch


def batches(
    model: nn.Module, data: Data, task: gd.LinkPrediction, args: argparse.Namespace, device: torch.device, say: Lines
) -> None:
    """Some steps on sampled neighbourhoods: what training costs where the whole graph does not fit."""
    learner = copy.deepcopy(model).train()
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3)
    generator = torch.Generator(device).manual_seed(0)
    with measured(device) as clock:
        parts = Neighborhoods(learner, data, call, args.num_neighbors)
    say("neighbourhoods ready", seconds=clock.seconds, peak_mb=clock.peak_mb)
    steps, edges = 0, 0
    with measured(device) as clock:
        for batch in task.batches(data, args.batch_size, generator, parts.around):
            optimizer.zero_grad()
            task.loss(learner, call(learner, batch), batch, generator).backward()
            optimizer.step()
            steps, edges = steps + 1, edges + batch.num_edges
            if steps == args.steps:
                break
    per_step = clock.seconds / steps
    say(
        "training by batches",
        batch_size=args.batch_size,
        num_neighbors=args.num_neighbors,
        steps=steps,
        seconds_per_step=per_step,
        epoch_seconds=per_step * -(-data.num_edges // args.batch_size),
        edges_per_step=edges // steps,
        peak_mb=clock.peak_mb,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of BioKG's entities and triples")
    parser.add_argument("--epochs", type=at_least_one, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--embedding", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--width", type=int, default=32, help="of the output, for DistMult")
    parser.add_argument(
        "--bases", type=int, default=8, help="weights of a relation are mixed from so many; 0: its own matrix"
    )
    parser.add_argument("--delete", type=float, default=0.025, help="share of the training triples")
    parser.add_argument("--lam", type=float, default=0.1, help="of the deletions at a fixed lam")
    parser.add_argument("--repeats", type=at_least_one, default=5)
    parser.add_argument("--retrain", type=int, default=0, help="epochs to really train again with; 0: not at all")
    parser.add_argument("--batch-size", type=int, default=0, help="also time steps on batches of so many triples")
    parser.add_argument("--num-neighbors", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20, help="how many such steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None, help="file for the lines")
    args = parser.parse_args()
    device, say = torch.device(args.device), Lines(args.out)

    versions = {"torch": torch.__version__, "gnndelete": gd.__version__}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    say("setting", device=name, scale=args.scale, seed=args.seed, share=args.delete, bases=args.bases, **versions)
    start = time.perf_counter()
    entities, triples = round(ENTITIES * args.scale), round(TRIPLES * args.scale)
    whole = gd.datasets.load(f"generated:biokg?entities={entities}&triples={triples}&relations={RELATIONS}")
    say("load", seconds=time.perf_counter() - start, entities=entities, triples=whole.num_edges, relations=RELATIONS)
    start = time.perf_counter()
    split = gd.datasets.split_links(whole, seed=args.seed)
    data, task = split.data.to(device), link_task(split, args.seed, decoder="distmult")
    say("split", seconds=time.perf_counter() - start, training=data.num_edges, validation=split.validation.size(1))

    torch.manual_seed(args.seed)
    sizes = {"embedding": args.embedding, "hidden": args.hidden, "out": args.width, "num_bases": args.bases or None}
    model = gd.models.build("rgcn", num_nodes=entities, num_relations=RELATIONS, **sizes).to(device)
    with measured(device) as clock:
        result = gd.train(model, data, task, epochs=args.epochs, lr=args.lr, seed=args.seed)
    say(
        "train",
        seconds=clock.seconds,
        epochs_run=result.epochs_run,
        best_epoch=result.best_epoch,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        peak_mb=clock.peak_mb,
        **{f"test_{key}": value for key, value in gd.evaluate(model, data, task).items()},
    )
    work = epoch_of(model, data, task, device)
    work()
    epoch, peak = repeated(work, args.repeats, device)
    say("training epoch", seconds=epoch, peak_mb=peak)
    del work

    def forward() -> None:
        with evaluating(model):
            call(model, data)

    forward()
    seconds, peak = repeated(forward, args.repeats, device)
    say("forward pass", seconds=seconds, epochs=seconds / epoch, peak_mb=peak)
    if args.batch_size:
        batches(model, data, task, args, device, say)

    forget = gd.datasets.forget_edges(split.data, args.delete, seed=args.seed)
    request = gd.Deletion(edges=forget)
    methods = {
        "unlink": gd.Unlink(),
        "shared, fixed lam": gd.GNNDelete(lam=args.lam, operator="shared"),
        "ring, fixed lam": gd.GNNDelete(lam=args.lam),
        "shared, calibrated": gd.GNNDelete(operator="shared"),
        "ring, calibrated": gd.GNNDelete(),
    }
    found: dict[str, dict[str, Any]] = {}
    for label, method in methods.items():
        with measured(device) as cold:
            unlearner = gd.Unlearner(model, data, task=task, method=method, seed=args.seed)
            unlearned = unlearner.delete(request)
        values = unlearned.evaluate()
        unseen_auc, lam, notes = matched(unlearned, task, forget), unlearned.lam, list(unlearned.notes)
        parameters, operators = (
            unlearned.parameters,
            0 if unlearned.adapter is None else len(unlearned.adapter.operators),
        )
        del unlearned  # its model and graph would count as memory of the next

        def first(method: Any = method) -> None:
            gd.Unlearner(model, data, task=task, method=method, seed=args.seed).delete(request)

        def further(unlearner: gd.Unlearner = unlearner) -> None:
            unlearner.compact()  # the same request again, on a graph that is known

        seconds, peak = repeated(first, args.repeats, device)
        again, _ = repeated(further, args.repeats, device)
        found[label] = {"parameters": parameters, "seconds": seconds}
        say(
            f"delete: {label}",
            deleted=forget.size(1),
            seconds_first=seconds,
            seconds_further=again,
            seconds_cold=cold.seconds,
            epochs_first=seconds / epoch,
            epochs_further=again / epoch,
            parameters=parameters,
            operators=operators,
            peak_mb=peak,
            lam=lam,
            unseen_auc=unseen_auc,
            **values,
            notes=notes,
        )
    if args.retrain:
        with measured(device) as clock:
            method = gd.Retrain(epochs=args.retrain, lr=args.lr)
            unlearned = gd.Unlearner(model, data, task=task, method=method, seed=args.seed).delete(request)
        values = unlearned.evaluate() | {"unseen_auc": matched(unlearned, task, forget)}
        say(
            "retrain",
            epochs_run=args.retrain,
            seconds=clock.seconds,
            epochs=clock.seconds / epoch,
            peak_mb=clock.peak_mb,
            **values,
        )
    shared = found["shared, fixed lam"]
    say(
        "claims",
        deletion_within_one_epoch=shared["seconds"] <= epoch,
        ring_within_one_epoch=found["ring, fixed lam"]["seconds"] <= epoch,
        operator_parameters=shared["parameters"],
        expected=args.hidden**2 + args.width**2,
    )
    if device.type == "cuda":
        print(f"reserved at most {torch.cuda.max_memory_reserved(device) / 2**30:.1f} GiB", file=sys.stderr)


if __name__ == "__main__":
    main()
