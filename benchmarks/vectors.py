"""Models with a trained vector per node: what a deletion leaves of edges and accounts, and what it costs.

One row is one graph, model, request, seed and method. Rows are appended to a file, so that a run that was stopped goes on, and
trained models are kept next to it. `--report` prints the means over seeds, and beside each the worst run where a bound is
set, as differences to Retrain.

    python benchmarks/vectors.py --graph generated:ratings --model lightgcn-bpr --requests edges:0.01 edges:0.05 --seeds 0 1
    python benchmarks/vectors.py --report

The shadow attack of a seed learns from the model and the deletion of the next one: another training, split and request on the
same graph, asked by scores alone. It needs at least two seeds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

import gnndelete as gd
from gnndelete.auditing.case import Subject, open_case
from gnndelete.auditing.measures.forgetting import adjusted_tests, measure_unseen
from gnndelete.auditing.queries import ask
from gnndelete.bench.experiment import is_path
from gnndelete.graph.edge_table import ends_of
from gnndelete.io.store import Store
from gnndelete.methods import RetrainAgain
from gnndelete.metrics.lists import activity_groups, overlap, rank_correlation
from gnndelete.metrics.marks import Answers, edge_features, tell_apart
from gnndelete.metrics.ranking import auc, filtered_scores

#: Raise it where rows measure something else than before.
VERSION = 1

LIKES = ("user", "likes", "item")


class Rater(nn.Module):
    """A recommender on a HeteroData: a table per type, two layers of GraphSAGE in each direction, and the table once more."""

    def __init__(self, users: int, items: int, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleDict({"user": nn.Embedding(users, width), "item": nn.Embedding(items, width)})
        self.layers = nn.ModuleList(
            HeteroConv({kind: SAGEConv(width, width) for kind in (LIKES, ("item", "rev_likes", "user"))})
            for _ in range(2)
        )
        for table in self.tables.values():
            nn.init.xavier_uniform_(table.weight)

    def forward(self, edge_index_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
        start = {kind: table.weight for kind, table in self.tables.items()}
        first = {kind: h.relu() for kind, h in self.layers[0](start, edge_index_dict).items()}
        second = self.layers[1](first, edge_index_dict)
        return {kind: second[kind] + start[kind] for kind in start}


@dataclass(frozen=True)
class Recipe:
    """How a model is made and trained."""

    make: Callable[[Any], nn.Module]
    epochs: int
    lr: float
    loss: str = "bce"
    decoder: str = "dot"
    hetero: bool = False


MODELS = {
    "lightgcn-bpr": Recipe(lambda d: gd.models.LightGCN(d.num_nodes, 32, 2), 200, 0.01, "bpr"),
    "lightgcn-bce": Recipe(lambda d: gd.models.LightGCN(d.num_nodes, 32, 2), 200, 0.01),
    "gcn": Recipe(lambda d: gd.models.EmbeddingGCN(d.num_nodes, d.num_features, 32, hidden=64, out=32), 150, 0.01),
    "rgcn": Recipe(
        lambda d: gd.models.RGCN(d.num_nodes, int(d.edge_type.max()) + 1, embedding=32, hidden=32, out=32, num_bases=4),
        150,
        0.01,
        decoder="distmult",
    ),
    "hetero": Recipe(lambda d: Rater(d["user"].num_nodes, d["item"].num_nodes), 150, 0.01, hetero=True),
}

METHODS: dict[str, Callable[[], Any]] = {
    "unlink": lambda: "unlink",
    "ring": lambda: gd.GNNDelete(operator="ring"),
    "shared": lambda: gd.GNNDelete(operator="shared"),
    "rows": lambda: gd.GNNDelete(operator="rows"),
    "auto": gd.GNNDelete,
    "retrain": gd.Retrain,
    "retrain-again": RetrainAgain,
}


class World:
    """A graph, its split, and a model trained on it; models that were trained before are read from the folder."""

    def __init__(self, graph: str, model: str, seed: int, folder: Path, epochs: int | None = None) -> None:
        self.key = {"graph": graph, "model": model, "seed": seed, "epochs": epochs or MODELS[model].epochs}
        self.seed, self.folder, self.recipe = seed, folder, MODELS[model]
        whole = gd.datasets.load_graph(graph).data if is_path(graph) else gd.datasets.load(graph)
        split = gd.datasets.split_links(whole, seed=seed)
        self.data: Any = split.data
        parts: dict[str, Any] = {"validation": split.validation, "test": split.test}
        edge_type = None
        if self.recipe.hetero:
            self.data, parts = self._typed(split.data, parts)
            edge_type = LIKES
        self.task = gd.LinkPrediction(
            **parts, decoder=self.recipe.decoder, loss=self.recipe.loss, seed=seed, edge_type=edge_type
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model_ = self.recipe.make(self.data)
        self.model = self.fit(model_, self.data, seed, "base")

    def _typed(self, data: Data, parts: dict[str, Tensor]) -> tuple[HeteroData, dict[str, Tensor]]:
        """The same ratings as a HeteroData with both directions; users come first in the graph."""
        self.users = users = int(data.edge_index.min(dim=0).values.max()) + 1
        shift = torch.tensor([[0], [users]])
        pairs = data.edge_index[:, data.edge_index[0] < users] - shift
        found = HeteroData({"user": {"num_nodes": users}, "item": {"num_nodes": int(data.num_nodes) - users}})
        found[LIKES].edge_index = pairs
        found["item", "rev_likes", "user"].edge_index = pairs.flip(0)
        return found, {name: part.sort(dim=0).values - shift for name, part in parts.items()}

    def fit(self, model: nn.Module, data: Any, seed: int, name: str) -> nn.Module:
        text = json.dumps([VERSION, self.key, name, seed], sort_keys=True)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.pt"
        if path.is_file():
            model.load_state_dict(torch.load(path, weights_only=True))
            return model.eval()
        epochs = self.key["epochs"]
        gd.train(
            model, data, self.task, epochs=epochs, lr=self.recipe.lr, seed=seed, validate_every=max(epochs // 10, 1)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), path)
        return model.eval()

    def deletion(self, request: str) -> gd.Deletion:
        """``edges:0.05`` and ``accounts:0.01`` draw shares of the edges or users, ``edges:12`` so many of them."""
        kind, amount = request.split(":")
        generator = torch.Generator().manual_seed(1000 + self.seed)
        if kind == "edges":
            edges = self.data[LIKES].edge_index if self.recipe.hetero else self._once(self.data)
            chosen = edges[:, torch.randperm(edges.size(1), generator=generator)[: _count(amount, edges.size(1))]]
            return gd.Deletion(edges={LIKES: chosen} if self.recipe.hetero else chosen)
        users = self.data["user"].num_nodes if self.recipe.hetero else int(self._once(self.data)[0].max()) + 1
        chosen = torch.randperm(users, generator=generator)[: _count(amount, users)]
        return gd.Deletion(nodes={"user": chosen} if self.recipe.hetero else chosen)

    def _once(self, data: Data) -> Tensor:
        if "edge_type" in data:
            return torch.stack([data.edge_index[0], data.edge_type, data.edge_index[1]])
        return data.edge_index[:, data.edge_index[0] < data.edge_index[1]]

    def delete(self, request: str, method: str) -> gd.Unlearned:
        def fit(model: nn.Module, data: Any, seed: int) -> nn.Module:
            return self.fit(model, data, seed, request)

        def build() -> nn.Module:
            return self.recipe.make(self.data)

        made = METHODS[method]()
        unlearner = gd.Unlearner(
            self.model, self.data, task=self.task, method=made, fit=fit, build=build, seed=self.seed
        )
        return unlearner.delete(self.deletion(request))


def _count(amount: str, total: int) -> int:
    return int(amount) if "." not in amount else max(1, round(float(amount) * total))


# What is measured -------------------------------------------------------------------------------------------------------------


class Measured:
    """One result, and everything that a row holds of it."""

    def __init__(self, world: World, unlearned: gd.Unlearned, retrained: gd.Unlearned) -> None:
        self.world, self.unlearned = world, unlearned
        self.case = open_case(unlearned, seed=world.seed)
        self.retrained = open_case(retrained, seed=world.seed).after
        self.task = self.case.task

    @cached_property
    def deleted(self) -> Tensor:
        return self.task.elements(self.case.deletion, self.case.original, incident=True).cpu()

    @cached_property
    def unseen(self) -> Tensor:
        return self.task.unseen(self.case.remaining, "test", self.case.deletion).cpu()

    def row(self) -> dict[str, Any]:
        found: dict[str, Any] = {"seconds": self.unlearned.seconds, "lam": self.unlearned.lam}
        calibration = self.unlearned.calibration
        found["status"] = calibration["status"] if calibration else None
        found |= self.unlearned.evaluate()
        found |= self._lists()
        found |= self._triples()
        if self.case.deletion.nodes.numel():
            return found | self._accounts()
        plain = measure_unseen(self.case, self.case.after)
        adjusted = adjusted_tests(self.case, {"after": self.case.after})["after"]
        found |= {
            "unseen_auc": plain.auc if plain else None,
            "adjusted_auc": adjusted.auc,
            "se": adjusted.standard_error,
        }
        return found | {f"attack_{name}": test for name, test in self._marks().items()}

    def _lists(self) -> dict[str, float]:
        """Lists of untouched users beside the base model's and Retrain's, and NDCG@10 by activity."""
        task, case = self.task, self.case
        lists = task.lists(case.original, test=False)
        if lists is None:
            return {}
        test = self.unseen
        heads = lists.heads(task.learned(case.original).cpu())
        named = case.deletion.named_nodes.cpu()
        gone = torch.cat([named, ends_of(self.deleted).flatten()])
        untouched = heads[:, ~torch.isin(heads[0], gone)]
        answers = {"base": case.subjects["before"], "after": case.after, "retrain": self.retrained}
        tops = {name: lists.top(_scores(subject), untouched) for name, subject in answers.items()}
        pairs = _all_pairs(lists, untouched, 50_000, self.world.seed)
        given = {name: _scores(subject)(pairs) for name, subject in answers.items()}
        found = {
            "overlap_base": float(overlap(tops["after"], tops["base"]).mean()),
            "overlap_retrain": float(overlap(tops["after"], tops["retrain"]).mean()),
            "correlation_base": rank_correlation(given["after"], given["base"]),
            "correlation_retrain": rank_correlation(given["after"], given["retrain"]),
            "untouched": untouched.size(1),
        }
        served = task.lists(case.remaining, test=False)
        left = heads[:, ~torch.isin(heads[0], case.deletion.nodes.cpu())]
        learned = task.learned(case.original).cpu()
        degree = torch.bincount(ends_of(learned).flatten(), minlength=int(case.original.num_nodes))[left[0]]
        for name, group in zip(("low", "middle", "high"), activity_groups(degree), strict=True):
            chosen = left[:, group]
            top = served.top(_scores(case.after), chosen)
            found[f"ndcg_{name}"] = served.quality(top, chosen, test)["ndcg@10"]
        return found

    def _triples(self) -> dict[str, float]:
        """Filtered ranks of test triples by DistMult."""
        model = self.unlearned.model
        if self.world.recipe.decoder != "distmult" or model is None:
            return {}
        known = torch.cat([self.task.learned(self.case.original), *(self.task.unseen_edges().values())], dim=1)
        return filtered_scores(self.case.after.output, model.relation.detach(), self.unseen, known)

    def _marks(self) -> dict[str, float]:
        """Attacks that learn on the deleted edges themselves, and what the shadow attack will read."""
        case, deleted, unseen = self.case, self.deleted, self.unseen
        deleted, unseen = (case.sample(part, 1500, 31 + place) for place, part in enumerate((deleted, unseen)))
        elements, found = torch.cat([deleted, unseen], dim=1), {}
        for name, rows in (("", self._rows()), ("queries", None)):
            learned = self.task.learned_once(case.remaining).cpu()
            answers = Answers(_scores(case.after), rows, learned, int(case.original.num_nodes), case.seed)
            features = edge_features(answers, elements)
            if name:
                self.queries = {kind: (part, deleted.size(1)) for kind, part in features.items()}
            else:
                found = {kind: tell_apart(part, deleted.size(1), case.seed).auc for kind, part in features.items()}
        return found

    def _rows(self) -> Tensor | None:
        output = self.case.after.output
        return output.detach().double() if isinstance(output, Tensor) else None

    def _accounts(self) -> dict[str, Any]:
        """How former partners score for closed accounts against items these never had, and deleted against unseen edges."""
        found: dict[str, Any] = {}
        former, other = self.deleted, self._never()
        for query in ("served", "old_id"):
            asked = ask(self.case, query, self.case.after)
            if asked.subject is None:
                continue
            scores = _scores(asked.subject)
            found[f"{query}_partners"] = auc(scores(asked.move(former)), scores(asked.move(other)))
            test = measure_unseen(self.case, asked.subject, asked.move)
            found[f"{query}_unseen"] = test.auc if test else None
        return found

    def _never(self) -> Tensor:
        """As many pairs of the closed accounts with partners that they never had."""
        lists = self.task.lists(self.case.original)
        former = lists.from_the_first_side(self.deleted)
        generator = torch.Generator().manual_seed(self.world.seed)
        drawn = former.repeat_interleave(20, dim=1)
        drawn[-1] = lists.pool[torch.randint(lists.pool.numel(), (drawn.size(1),), generator=generator)]
        return drawn[:, ~lists.is_known(drawn)]


def _scores(subject: Subject) -> Callable[[Tensor], Tensor]:
    return lambda edges: subject.predict(edges).detach().double().cpu().view(-1)


def _all_pairs(lists: Any, heads: Tensor, limit: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    chosen = heads[:, torch.randint(heads.size(1), (limit,), generator=generator)]
    tails = lists.pool[torch.randint(lists.pool.numel(), (limit,), generator=generator)]
    return torch.cat([chosen, tails[None]])


# The run ----------------------------------------------------------------------------------------------------------------------


def run(
    graph: str,
    model: str,
    requests: Sequence[str],
    seeds: Sequence[int],
    methods: Sequence[str],
    out: Path,
    epochs: int | None,
) -> None:
    """Measure what is missing, row by row."""
    rows, folder = Store(out), out.with_suffix(".models")
    for seed in seeds:
        world = None
        for request in requests:
            retrained = None
            for method in dict.fromkeys(methods):
                key = {"version": VERSION, "graph": graph, "model": model, "epochs": epochs or MODELS[model].epochs}
                key |= {"request": request, "seed": seed, "method": method}
                if rows.get(key) is not None:
                    continue
                started = time.perf_counter()
                world = world or World(graph, model, seed, folder, epochs)
                retrained = retrained or world.delete(request, "retrain")
                unlearned = retrained if method == "retrain" else world.delete(request, method)
                measured = Measured(world, unlearned, retrained)
                row = measured.row()
                if hasattr(measured, "queries"):
                    np.savez_compressed(
                        _features_file(folder, key),
                        **{k: part for k, (part, _) in measured.queries.items()},
                        count=measured.queries["ends"][1],
                    )
                rows.add(key, row)
                print(json.dumps(key | {"wall": round(time.perf_counter() - started, 1)} | row), flush=True)


def _features_file(folder: Path, key: dict[str, Any]) -> Path:
    return folder / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]}.npz"


def shadow_attack(folder: Path, target: dict[str, Any], shadow: dict[str, Any]) -> dict[str, float]:
    """Boosted trees that learn on the shadow's deletion and are asked about the target's."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    files = [_features_file(folder, key) for key in (shadow, target)]
    if not all(file.is_file() for file in files):
        return {}
    learn, asked = (np.load(file) for file in files)
    found = {}
    for kind in ("ends", "pairs"):
        trees = HistGradientBoostingClassifier(max_iter=50, max_depth=4, min_samples_leaf=10, random_state=0)
        trees.fit(learn[kind], np.arange(len(learn[kind])) < int(learn["count"]))
        chance = trees.predict_proba(asked[kind])[:, 1]
        found[f"shadow_{kind}"] = auc(chance[: int(asked["count"])], chance[int(asked["count"]) :])
    return found


# The report -------------------------------------------------------------------------------------------------------------------

#: Columns of the report: a title, and the bound on the difference to Retrain in each run (None: shown without one).
COLUMNS = {
    "unseen_auc": "unseen AUC",
    "adjusted_auc": "adjusted",
    "old_id_unseen": "unseen, again",
    "served_partners": "partners, served",
    "old_id_partners": "partners, again",
    "test_auroc": "test AUROC",
    "test_ndcg@10": "NDCG@10",
    "mrr": "MRR",
    "ndcg_low": "NDCG low",
    "ndcg_middle": "middle",
    "ndcg_high": "high",
    "overlap_base": "overlap, base",
    "overlap_retrain": "overlap, Retrain",
    "correlation_retrain": "rank corr., Retrain",
    "attack_ends": "ends",
    "attack_pairs": "with pair",
    "shadow_ends": "shadow, ends",
    "shadow_pairs": "shadow, pair",
    "seconds": "seconds",
}


def report(out: Path) -> None:
    """A table per graph, model and request: means over seeds, and in brackets the largest difference to Retrain of one run."""
    folder = out.with_suffix(".models")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found: dict[tuple[str, ...], dict[str, dict[int, dict[str, Any]]]] = {}
    for line in lines:
        key, row = line["key"], line["row"]
        if key["version"] == VERSION:
            cell = found.setdefault((key["graph"], key["model"], key["request"]), {})
            cell.setdefault(key["method"], {})[key["seed"]] = {"key": key, **row}
    for cell, methods in found.items():
        for by_seed in methods.values():
            seeds = sorted(by_seed)
            for place, seed in enumerate(seeds):
                other = by_seed[seeds[(place + 1) % len(seeds)]]
                if len(seeds) > 1:
                    by_seed[seed] |= shadow_attack(folder, by_seed[seed]["key"], other["key"])
        shown = [name for name in COLUMNS if any(name in row for rows in methods.values() for row in rows.values())]
        print(f"\n**{', '.join(cell)}**\n\n| method | seeds | " + " | ".join(COLUMNS[name] for name in shown) + " |")
        print("|---" * (2 + len(shown)) + "|")
        for method, by_seed in methods.items():
            cells = [_cell(by_seed, methods.get("retrain", {}), name) for name in shown]
            print(f"| {method} | {len(by_seed)} | " + " | ".join(cells) + " |")


def _cell(rows: dict[int, dict[str, Any]], reference: dict[int, dict[str, Any]], name: str) -> str:
    values = {seed: row[name] for seed, row in rows.items() if row.get(name) is not None}
    if not values:
        return "–"
    gaps = [
        value - reference[seed][name] for seed, value in values.items() if reference.get(seed, {}).get(name) is not None
    ]
    text = f"{sum(values.values()) / len(values):.3f}"
    if rows is reference or not gaps or name == "seconds":
        return text
    return f"{text} ({sum(gaps) / len(gaps):+.3f}, {max(gaps, key=abs):+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="generated:ratings", help="a dataset or the path of a graph")
    parser.add_argument("--model", choices=MODELS, default="lightgcn-bpr")
    parser.add_argument("--requests", nargs="+", default=["edges:0.001", "edges:0.005", "edges:0.01", "edges:0.05"])
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=["unlink", "ring", "auto", "retrain", "retrain-again"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, help="instead of those of the model's recipe")
    parser.add_argument("--out", type=Path, default=Path("vectors.jsonl"))
    parser.add_argument("--report", action="store_true", help="print what the file holds instead of running")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.report:
        report(options.out)
    else:
        run(options.graph, options.model, options.requests, options.seeds, options.methods, options.out, options.epochs)


if __name__ == "__main__":
    main()
