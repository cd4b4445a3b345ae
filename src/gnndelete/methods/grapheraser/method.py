"""GraphEraser: one model per shard of the graph; a deletion retrains the shards that held the element."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.validation import count_nodes
from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason, Weights, check_numbers, synchronize
from gnndelete.methods.grapheraser.partition import at_random, bekm, blpa, capacity, metis
from gnndelete.methods.grapheraser.shards import Job, indivisible, induced, positions, run_all
from gnndelete.methods.retrain import decoder_reasons, kept_notes, reset_reasons
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.nn.reset import untrained
from gnndelete.notes import Note
from gnndelete.tasks.base import Predict, representation

Partition = Literal["blpa", "bekm", "metis", "random"]

#: The fingerprint of an empty deletion: that of a shard which lacks nothing.
_COMPLETE = Deletion().fingerprint


@dataclass(frozen=True)
class Shard:
    """A trained shard. ``missing`` is the fingerprint of what had been deleted inside it when it was trained."""

    model: nn.Module | None  # None where there was nothing to learn from
    missing: str = _COMPLETE


@dataclass(frozen=True)
class Shards:
    """What is remembered from one request to the next."""

    shard_of: Tensor  # the shard of every node, -1 for none
    shards: tuple[Shard, ...]


class GraphEraser(Method):
    """Split the graph into shards, train a model on each, and mix their answers (Chen et al., CCS 2022).

    Edges between shards are never trained on. A shard is trained on its induced subgraph with ids of its own, so all shards
    together cost about one graph; to answer, every model runs on the whole remaining graph. The first request makes the
    partition on the original graph and trains the shards that it does not touch (``details``: ``prepare_seconds``), then
    those it touches, without the deleted elements (``unlearn_seconds``). Later requests reuse all shards in which nothing
    new is deleted. Mixing weights are learned again at each request. A model with a vector per node needs the argument
    ``n_id``, by which it finds the vectors of a shard's nodes; each shard's model has trained only those of its own nodes.

    Args:
        shards: Number of shards.
        partition: ``"blpa"`` (label propagation), ``"bekm"`` (k-means on the output of your model), ``"metis"``, or
            ``"random"``, which reads no data, so that the result is exact.
        aggregation: ``"learned"`` learns how much each shard's model counts, ``"mean"`` weighs all equally.
        epochs: Passes over a shard's training data by the built-in loop.
        lr: Learning rate of the built-in loop.
        samples: Number of remaining training elements from which mixing weights are learned.
        jobs: Train in this many processes; -1 takes all cores.
        ray: Train on the Ray cluster at this address.
        repartition: Make a new partition of the remaining graph (BEKM: of its features) and train all shards at every
            request.
        use_fit: Train shards by the Unlearner's ``fit``, which must then accept a part of the graph with ids of its own.

    >>> GraphEraser(shards=4, partition="random").settings()["aggregation"]
    'learned'
    """

    name: ClassVar[str] = "grapheraser"
    keeps_model: ClassVar[bool] = False
    assurance: ClassVar[Assurance] = "approximate"
    weights: ClassVar[Weights] = "new"
    needs = "a training function"
    summary: ClassVar[str] = "train a model on each shard of the graph, retrain the shards that held the element"

    def __init__(
        self,
        shards: int = 10,
        partition: Partition = "blpa",
        aggregation: Literal["learned", "mean"] = "learned",
        epochs: int = 1000,
        lr: float = 1e-3,
        samples: int = 1000,
        jobs: int = 1,
        ray: str | None = None,
        repartition: bool = False,
        use_fit: bool = False,
    ) -> None:
        self.shards = shards
        self.partition = partition
        self.aggregation = aggregation
        self.epochs = epochs
        self.lr = lr
        self.samples = samples
        self.jobs = jobs
        self.ray = ray
        self.repartition = repartition
        self.use_fit = use_fit

    def check(self) -> None:
        for name, allowed in (("partition", get_args(Partition)), ("aggregation", ("learned", "mean"))):
            if getattr(self, name) not in allowed:
                raise SettingError(f"'{name}' must be {' or '.join(map(repr, allowed))} (got {getattr(self, name)!r})")
        check_numbers(self, positive=("lr",), whole=("shards", "epochs", "samples"))
        if self.jobs != -1:
            check_numbers(self, whole=("jobs",))

    def unfit(self, context: Context) -> list[Reason]:
        reasons, nodes = [], count_nodes(context.data)
        if context.task is None:
            reasons.append(Reason("nothing says how the shards' answers are mixed", "pass task='link' or task='node'"))
        elif not context.task.on_nodes:
            why = f"its partition cuts one graph into shards, and the task is about {context.task.noun}s"
            return [Reason(why, "use method='gnndelete' or method='retrain'")]
        if self.shards > nodes:
            why = f"{self.shards} shards were asked for and the graph has {nodes} nodes"
            reasons.append(Reason(why, "ask for fewer"))
        if self.partition == "metis" and find_spec("pymetis") is None:
            remedy = "pip install gnndelete[shards], or choose partition='blpa'"
            reasons.append(Reason("partition='metis' needs the package 'pymetis'", remedy))
        if self.ray is not None and find_spec("ray") is None:
            reasons.append(Reason("ray= needs the package 'ray'", "pip install gnndelete[ray], or use jobs="))
        if self.partition == "bekm" and self.repartition and context.data.get("x") is None:
            why = "repartition=True with 'bekm' needs features 'x'"
            reasons.append(Reason(why, "choose partition='blpa', or keep the partition"))
        reasons += reset_reasons(context) + decoder_reasons(context, context.fit if self.use_fit else None)
        if not reasons and (problem := indivisible(context, self.shards)) is not None:
            remedy = "give forward an argument n_id and look node vectors up by it, those of the decoder too"
            reasons.append(Reason(problem, f"{remedy}, or choose method='retrain'"))
        return reasons

    def unlearn(self, context: Context) -> Outcome:
        began = time.perf_counter()
        previous: Shards | None = None if self.repartition else context.memory.get(self.name)
        shard_of = self._partition(context) if previous is None else previous.shard_of
        missing = _missing(context.deletion, shard_of, self.shards)
        trained = [Shard(None)] * self.shards if previous is None else list(previous.shards)
        first = [] if previous or self.repartition else [s for s in range(self.shards) if missing[s] == _COMPLETE]
        if previous is not None:
            touched = [s for s in range(self.shards) if missing[s] != trained[s].missing]
        else:
            touched = [s for s in range(self.shards) if s not in first]
        self._train(context, shard_of, first, missing, trained)
        synchronize(context.data.edge_index.device)
        prepared = time.perf_counter() if first else began
        self._train(context, shard_of, touched, missing, trained)

        predictors, alpha = self._mix(context, trained)
        active = [s for s in range(self.shards) if trained[s].model is not None]
        learned = sum(p.numel() for s in touched if (model := trained[s].model) is not None for p in model.parameters())
        learned += alpha.numel() if self.aggregation == "learned" else 0
        crossing = int((shard_of[context.data.edge_index[0].cpu()] != shard_of[context.data.edge_index[1].cpu()]).sum())
        details: dict[str, Any] = {
            "prepare_seconds": prepared - began,
            "prepared": len(first),
            "retrained": touched,
            "sizes": torch.bincount(shard_of[shard_of >= 0], minlength=self.shards).tolist(),
            "capacity": capacity(int((shard_of >= 0).sum()), self.shards),
            "crossing": crossing / max(1, context.data.edge_index.size(1)),
            "alpha": dict(zip(active, alpha.tolist(), strict=True)),
        }
        synchronize(context.data.edge_index.device)
        details["unlearn_seconds"] = time.perf_counter() - prepared
        outcome = Outcome(
            model=None,
            parameters=learned,
            predict=lambda elements: _mixed(predictors, alpha, elements),
            assurance=self._reached(),
            notes=self._notes(context, touched, crossing, len(active)),
            details=details,
        )
        if not self.repartition:
            context.memory[self.name] = Shards(shard_of, tuple(trained))  # last: an interruption changes nothing
        return outcome

    def _partition(self, context: Context) -> Tensor:
        """The shard of every node, from the original graph, or from what remains of it."""
        data = context.remaining if self.repartition else context.data
        total, k = count_nodes(data), self.shards
        alive = torch.ones(total, dtype=torch.bool)
        if self.repartition:
            alive[context.deletion.nodes] = False
        nodes, generator = alive.nonzero().flatten(), torch.Generator().manual_seed(context.seed)
        edges = positions(nodes, total)[data.edge_index.cpu()]  # a deleted node has no edges left
        if self.partition == "random":
            found = at_random(nodes.numel(), k, generator)
        elif self.partition == "blpa":
            found = blpa(edges, nodes.numel(), k, generator)
        elif self.partition == "metis":
            found = metis(edges, nodes.numel(), k, context.seed)
        elif self.repartition:  # the model was trained on what is deleted; features of other nodes were not
            found = bekm(data.x.to_dense()[nodes.to(data.x.device)], k, generator)
        else:
            model = working_copy(context.model)
            with evaluating(model):
                found = bekm(representation(context.session.forward(model, data)), k, generator)
        shard_of = torch.full((total,), -1)
        shard_of[nodes] = found
        return shard_of

    def _train(
        self, context: Context, shard_of: Tensor, which: list[int], missing: list[str], into: list[Shard]
    ) -> None:
        """Train the shards ``which`` from fresh weights on what remains of them."""
        assert context.remaining_task is not None
        task, data, total, jobs = context.remaining_task, context.remaining, shard_of.numel(), {}
        alive = torch.ones(total, dtype=torch.bool)
        alive[context.deletion.nodes] = False
        for s in which:
            nodes = ((shard_of == s) & alive).nonzero().flatten().to(data.edge_index.device)
            part, seed = induced(data, nodes), context.seed + s
            into[s] = Shard(None, missing[s])
            if not task.can_learn(part):
                continue
            jobs[s] = Job(
                model=untrained(context.model, context.build, seed).to(data.edge_index.device),
                data=part,
                task=task.on_part(part, nodes, total, torch.Generator().manual_seed(seed)),
                seed=seed,
                epochs=self.epochs,
                lr=self.lr,
                forward=context.session.forward,
                fit=context.fit if self.use_fit else None,
                progress=context.progress and self.jobs == 1,
            )
        for s, model in zip(jobs, run_all(list(jobs.values()), self.jobs, self.ray), strict=True):
            into[s] = Shard(model, missing[s])

    def _mix(self, context: Context, trained: list[Shard]) -> tuple[list[Predict], Tensor]:
        """One way to predict per trained shard, on the whole remaining graph, and the weight of each."""
        assert context.remaining_task is not None
        predictors = [_predictor(context, shard.model) for shard in trained if shard.model is not None]
        if not predictors:
            raise GraphError(f"none of the {self.shards} shards has anything to train on; ask for fewer shards")
        if self.aggregation == "mean":
            return predictors, torch.full((len(predictors),), 1 / len(predictors), dtype=torch.double)
        generator = torch.Generator().manual_seed(context.seed)
        task, data = context.remaining_task, context.remaining
        elements, target = task.sample(data, self.samples, generator)
        scores = torch.stack([task.scores(predict, data, elements) for predict in predictors], dim=1)
        return predictors, mixing_weights(scores, target, logits=task.pairwise)

    def _reached(self) -> Assurance:
        if self.repartition:
            return "retrained"
        return "exact" if self.partition == "random" else "approximate"

    def _notes(self, context: Context, touched: list[int], crossing: int, active: int) -> tuple[Note, ...]:
        text = f"Answers come from {active} models, one per shard, mixed; your model takes no part in them."
        notes = [Note("other-model", text)]
        text = (
            f"{len(touched)} of {self.shards} shards were retrained; {crossing} of {context.data.edge_index.size(1)} "
            "entries of edge_index cross shards and were never trained on."
        )
        notes.append(Note("shards", text))
        if active < self.shards:
            empty = self.shards - active
            text = f"{empty} shards have nothing to train on and take no part in answers; ask for fewer shards."
            notes.append(Note("empty-shards", text))
        if context.fit is not None and self.use_fit:
            text = "Trained by the given fit function; epochs and lr of this method played no part."
            notes.append(Note("training", text))
        if self._reached() == "approximate":
            text = (
                "No model was trained on the deleted elements, but the partition was made with them and may still reveal "
                "them: repartition=True or partition='random' avoids this."
            )
            notes.append(Note("partition-remembers", text))
        elif self._reached() == "exact":
            text = "Equal to training all shards without the deleted elements: the partition reads no data."
            notes.append(Note("exact", text))
        return (*notes, *kept_notes(context))


def _missing(deletion: Deletion, shard_of: Tensor, shards: int) -> list[str]:
    """For each shard the fingerprint of what is deleted inside it; edges between shards are inside none."""
    ends = shard_of[ends_of(deletion.edges)]
    edge_shard = torch.where(ends[0] == ends[1], ends[0], -1)
    node_shard, label_shard, feature_shard = (
        shard_of[p] for p in (deletion.nodes, deletion.labels, deletion.features[0])
    )
    found = [_COMPLETE] * shards
    for s in torch.unique(torch.cat([edge_shard, node_shard, label_shard, feature_shard])).tolist():
        if s >= 0:
            inside = Deletion(
                edges=deletion.edges[:, edge_shard == s],
                nodes=deletion.nodes[node_shard == s],
                labels=deletion.labels[label_shard == s],
            )
            cells = feature_shard == s
            found[s] = inside.replace(features=deletion.features[:, cells], fill=deletion.fill[cells]).fingerprint
    return found


def _predictor(context: Context, model: nn.Module) -> Predict:
    task = context.remaining_task
    assert task is not None
    model = working_copy(model)  # drops the normalised adjacency that some layers cache for their shard
    with evaluating(model):
        output = context.session.forward(model, context.remaining)

    def predict(elements: Any) -> Tensor:
        with evaluating(model):
            return task.predict(model, output, elements)

    return predict


def _mixed(predictors: list[Predict], alpha: Tensor, elements: Any) -> Tensor:
    parts = [predict(elements) * weight for predict, weight in zip(predictors, alpha.tolist(), strict=True)]
    return torch.stack(parts).sum(dim=0)


def mixing_weights(scores: Tensor, target: Tensor, logits: bool) -> Tensor:
    """Weights alpha >= 0 that sum to 1 and minimise the cross-entropy, never worse than equal weights; the problem is convex.

    ``scores`` is ``[samples, shards]``. With ``logits`` they are logits of links with ``target`` 0 or 1, else the probability
    that each shard gives the true class (``target`` is not read then).

    >>> mixing_weights(torch.tensor([[0.9, 0.1], [0.8, 0.3]]), torch.ones(2), logits=False).tolist()
    [1.0, 0.0]
    """
    E, y = scores.double().cpu().numpy(), target.double().cpu().numpy()
    shards = E.shape[1]
    equal = np.full(shards, 1 / shards)
    if shards == 1 or not len(E):
        return torch.from_numpy(equal)

    def value_and_slope(alpha: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = E @ alpha
        if logits:
            return float(np.mean(np.logaddexp(0, mixed) - y * mixed)), E.T @ (0.5 * (1 + np.tanh(mixed / 2)) - y) / len(
                E
            )
        mixed = np.maximum(mixed, 1e-12)
        return float(-np.log(mixed).mean()), -E.T @ (1 / mixed) / len(E)

    from scipy.optimize import minimize  # takes longer to import than a local request

    found = minimize(
        value_and_slope,
        equal,
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * shards,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: np.ones(shards)},
        options={"maxiter": 500, "ftol": 1e-10},
    ).x
    alpha = np.where(found > 1e-9, found, 0)
    if not np.isfinite(alpha).all() or alpha.sum() <= 0:
        return torch.from_numpy(equal)
    alpha /= alpha.sum()
    return torch.from_numpy(alpha if value_and_slope(alpha)[0] < value_and_slope(equal)[0] else equal)
