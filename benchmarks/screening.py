"""How well the damage that a service predicts tells chosen requests from random ones, and where its threshold lies.

    python benchmarks/screening.py --graphs digits cora
    python benchmarks/screening.py --graphs digits cora pubmed --json screening.json

Of each graph a GCN is trained to predict links, and random requests are rehearsed as at registration. Then fresh random
requests, and requests that an attacker would choose (the elements with the largest damage among many, and the nodes with the
most neighbours), are compared with the rehearsed ones: a request is held where the ratio exceeds ``damage_factor``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from options import at_least_one

import gnndelete as gd
from gnndelete.datasets import load, split_links
from gnndelete.engine.session import Session
from gnndelete.models import GCN
from gnndelete.service.screening import damage, random_request, rehearse, usual_damage
from gnndelete.tasks import LinkPrediction

FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0)


def prepared(name: str, epochs: int) -> Session:
    """A trained model on a graph, ready for local requests."""
    split = split_links(load(name), seed=0)
    task = LinkPrediction(validation=split.validation, test=split.test)
    model = GCN(split.data.num_features, 64, 32)
    gd.train(model, split.data, task, epochs=epochs, lr=0.01, seed=0)
    return gd.Unlearner(model, split.data, task=task, method="unlink").prepare().session


def ratio(session: Session, rehearsed: dict[str, dict[str, float]], request: gd.Deletion) -> float:
    return damage(session, request)[1] / float(usual_damage(rehearsed, request) or 1.0)


def chosen(session: Session, kind: str, size: int, candidates: int, seed: int) -> gd.Deletion:
    """The elements with the largest damage, one by one, among some."""
    generator = torch.Generator().manual_seed(seed)
    singles = [random_request(session, kind, 1, generator) for _ in range(candidates)]
    singles.sort(key=lambda each: -damage(session, each)[1])
    union = singles[0]
    for each in singles[1:size]:
        union = union | each
    return union.check(session.data, session.table)


def hubs(session: Session, size: int) -> gd.Deletion:
    """The nodes with the most neighbours."""
    degrees = session.data.edge_index[0].bincount(minlength=session.table.num_nodes)
    return gd.Deletion(nodes=degrees.topk(size).indices)


def measure(name: str, epochs: int, requests: int) -> dict[str, Any]:
    session = prepared(name, epochs)
    rehearsed = rehearse(session)
    generator = torch.Generator().manual_seed(17)
    found: dict[str, Any] = {"rehearsed": rehearsed}
    random: dict[str, list[float]] = {}
    for kind in rehearsed:
        for size in (1, 10):
            count = requests if size == 1 else max(requests // 5, 1)
            drawn = [random_request(session, kind, size, generator) for _ in range(count)]
            random[f"{kind} {size}"] = [ratio(session, rehearsed, each) for each in drawn]
    found["random"] = {
        case: {"median": torch.tensor(values).median().item(), "largest": max(values), **held(values)}
        for case, values in random.items()
    }
    found["chosen"] = {
        f"{kind} {size}": ratio(session, rehearsed, chosen(session, kind, size, 3 * requests, 5))
        for kind in rehearsed
        for size in (1, 10)
    }
    found["hubs"] = {str(size): ratio(session, rehearsed, hubs(session, size)) for size in (1, 10)}
    return found


def held(values: list[float]) -> dict[str, float]:
    return {f"held at {factor}": sum(value > factor for value in values) / len(values) for factor in FACTORS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["digits", "cora"], help="datasets (default: %(default)s)")
    parser.add_argument("--epochs", type=at_least_one, default=100)
    parser.add_argument("--requests", type=at_least_one, default=100, help="random ones of one element")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in options.graphs:
        found[name] = measure(name, options.epochs, options.requests)
        print(f"{name}: {json.dumps(found[name], indent=1)}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
