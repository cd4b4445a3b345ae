"""What the methods with a linear model of their own share: whether they fit, and the rows they are trained on.

The rows depend only on the remaining graph and the seed. Each true edge draws its own non-edge from a hash of the seed and
its two ends, so that a fit without the deleted elements has exactly the same rows as an update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, LGConv, MessagePassing, SGConv, SSGConv
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from gnndelete.errors import GraphError, NotYetError
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.parsing import edge_list
from gnndelete.graph.validation import count_nodes
from gnndelete.methods.base import Context, Reason
from gnndelete.nn.forward import evaluating
from gnndelete.nn.layers import working_copy
from gnndelete.notes import Note
from gnndelete.tasks.base import representation
from gnndelete.tasks.link import check_edges

#: Modules that are linear in the features, whatever their weights.
_LINEAR: tuple[type, ...] = (SGConv, SSGConv, LGConv, APPNP, SumAggregation, MeanAggregation)
_LINEAR += (nn.Linear, PyGLinear, nn.Identity, nn.Dropout)

#: How often a true edge draws before it goes without a non-edge, which happens only in an almost complete graph.
MAX_DRAWS = 64


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows, sorted by ``key``: nodes with their class, or pairs with +1 (an edge) or -1 (none).

    The key names the row, not its content: the non-edge of a true edge has the same key when it is drawn again.
    """

    key: Tensor  # [m]
    ends: Tensor  # [2, m]; a node is both of its ends
    target: Tensor  # [m]

    def __len__(self) -> int:
        return self.key.numel()

    def signs(self, classes: int | None) -> Tensor:
        """Targets as ``[m, C]`` columns of +1 and -1, one per class; for pairs one column."""
        if classes is None:
            return self.target.double()[:, None]
        return 2.0 * nn.functional.one_hot(self.target, classes).double() - 1.0


def changed_rows(before: Rows, after: Rows, moved: Tensor) -> tuple[Tensor, Tensor]:
    """Positions in ``before`` and in ``after`` of the rows that differ; ``moved`` is a mask of nodes with new features."""

    def differing(a: Rows, b: Rows) -> Tensor:
        if not len(a) or not len(b):
            return torch.arange(len(a), device=a.key.device)
        match = torch.searchsorted(b.key, a.key).clamp_(max=len(b) - 1)
        same = (b.key[match] == a.key) & (b.ends[:, match] == a.ends).all(dim=0) & (b.target[match] == a.target)
        return (~same | moved[a.ends].any(dim=0)).nonzero().flatten()

    return differing(before, after), differing(after, before)


def training_rows(context: Context, data: Data, alive: Tensor) -> Rows:
    """What a linear model of the task is trained on: labelled training nodes, or true edges with one non-edge each."""
    task = context.task
    assert task is not None
    if task.pairwise:
        rows = _pairs(data, alive, context.session.table.undirected, context.seed)
    else:
        nodes = task.learned(data)
        rows = Rows(nodes, torch.stack([nodes, nodes]), task.classes(data, nodes))
    if not len(rows):
        what = "edge" if task.pairwise else "labelled training node"
        raise GraphError(f"no {what} is left to train on after this deletion; a model of nothing cannot be kept")
    return rows


def classes(context: Context) -> int | None:
    """Number of classes, as the original graph declares them; None for pairs."""
    assert context.task is not None
    return None if context.task.pairwise else int(context.data.y.max()) + 1


def alive_nodes(context: Context, deleted: Tensor | None = None) -> Tensor:
    """A mask over the nodes without the ``deleted`` ones."""
    alive = torch.ones(count_nodes(context.data), dtype=torch.bool, device=context.data.edge_index.device)
    return alive if deleted is None else alive.index_fill(0, deleted.to(alive.device), False)


def as_ends(elements: Any, nodes: bool, alive: Tensor) -> Tensor:
    """Elements as ``[2, k]`` ends on the right device: edges, or nodes that are both of their ends."""
    if nodes:
        ids = torch.as_tensor(elements, device=alive.device).long().view(-1)
        ends = torch.stack([ids, ids])
    else:
        ends = edge_list(elements, "edges").to(alive.device)
    check_edges(ends, alive.numel(), "nodes" if nodes else "edges")
    return ends


def shared_notes(title: str, context: Context, dim: int) -> list[Note]:
    """Notes on the model that every linear method has in common."""
    text = (
        f"{title} answers with a linear model of its own; the weights of '{type(context.model).__name__}' play no part, "
        "still hold the deleted elements, and give other scores."
    )
    notes = [Note("other-model", text)]
    if context.data.x.size(1) > dim:
        text = f"{context.data.x.size(1)} features went through a random map to {dim} columns (dim=)."
        notes.append(Note("features-projected", text))
    if not context.session.table.undirected:
        notes.append(Note("both-directions", "Features are propagated along edges in both directions."))
    if "edge_weight" in context.data or "edge_attr" in context.data:
        notes.append(Note("edge-attributes-unused", "Edge weights and attributes are not used."))
    return notes


def linear_reasons(title: str, context: Context, own_model: bool) -> list[Reason]:
    """Why a method that fits a linear model of its own cannot serve this model, graph and task."""
    reasons = []
    data, task = context.data, context.task
    if task is None:
        reasons.append(Reason(f"{title} fits a model of its own and must know for what", "pass task='link' or 'node'"))
    elif not task.on_nodes:
        reasons.append(Reason(f"{title} serves links and nodes, not '{task.name}'", "use retrain"))
    elif not context.session.table.typed:
        try:
            task.check(data)
        except (GraphError, NotYetError) as error:
            reasons.append(Reason(error.why, error.remedy or "complete the graph"))
    x = data.get("x")
    if not isinstance(x, Tensor) or x.dim() != 2 or x.size(0) != count_nodes(data):
        reasons.append(Reason(f"{title} propagates features, and the graph has no 'x' [num_nodes, d]", "use gnndelete"))
    if context.session.table.typed:
        reasons.append(Reason(f"{title} is not defined on typed edges", "drop 'edge_type', or use gnndelete"))
    if not reasons and not own_model and not is_linear(context):
        why = f"{title} edits a linear model; '{type(context.model).__name__}' is not linear"
        remedy = "pass own_model=True to fit its own linear model on the same graph (as the paper's comparison does)"
        reasons.append(Reason(why, f"{remedy}, or use gnndelete"))
    return reasons


def is_linear(context: Context) -> bool:
    """Whether the user's model has only linear modules, and is linear in the features of its graph."""
    for module in context.model.modules():
        holder = next(module.children(), None) is not None and not isinstance(module, MessagePassing)
        if not isinstance(module, _LINEAR) and not holder:
            return False
    model = working_copy(context.model)
    data = context.data.__copy__()
    with evaluating(model):

        def output(factor: float) -> Tensor:
            data.x = factor * context.data.x
            return representation(context.session.forward(model, data)).double()

        # modules do not show what `forward` does between them: relu fails the first factor, tanh the second
        zero, one = output(0.0), output(1.0)
        scale = 1e-3 * float((one - zero).abs().max()) + 1e-9
        return all(
            float((output(factor) - zero - factor * (one - zero)).abs().max()) <= scale * abs(factor)
            for factor in (-1.0, 3.0)
        )


def _pairs(data: Data, alive: Tensor, undirected: bool, seed: int) -> Rows:
    count = alive.numel()
    true, label = data.get("edge_label_index"), data.get("edge_label")
    if true is None:
        true = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    elif label is not None:
        true = true[:, label.view(-1) > 0]
    edges = torch.cat([data.edge_index, true], dim=1)
    if undirected:
        true, edges = true.sort(dim=0).values, edges.sort(dim=0).values
    key = torch.unique(true[0] * count + true[1])
    false, found = _non_edges(key, EdgeTable(edges, count), alive, undirected, seed)
    ends = torch.cat([torch.stack([key // count, key % count]), false[:, found]], dim=1)
    target = torch.ones(ends.size(1), dtype=torch.long, device=key.device)
    target[key.numel() :] = -1
    name, order = torch.sort(torch.cat([2 * key, 2 * key[found] + 1]))
    return Rows(name, ends[:, order], target[order])


def _non_edges(key: Tensor, known: EdgeTable, alive: Tensor, undirected: bool, seed: int) -> tuple[Tensor, Tensor]:
    """For each true edge the first of its own draws that is a pair of living nodes and no edge, and whether there is one."""
    count = alive.numel()
    pairs = torch.zeros(2, key.numel(), dtype=torch.long, device=key.device)
    pending = torch.arange(key.numel(), device=key.device)
    for draw in range(MAX_DRAWS):
        hashed = _mix(key[pending] + _mix(torch.tensor((MAX_DRAWS * seed + draw) % (1 << 62), device=key.device)))
        pair = (torch.stack([hashed, _mix(hashed + 1)]) & torch.iinfo(torch.long).max) % count  # without the sign
        if undirected:
            pair = pair.sort(dim=0).values
        fine = (pair[0] != pair[1]) & alive[pair].all(dim=0) & ~known.contains(pair)
        pairs[:, pending[fine]] = pair[:, fine]
        pending = pending[~fine]
        if not pending.numel():
            break
    found = torch.ones(key.numel(), dtype=torch.bool, device=key.device).index_fill(0, pending, False)
    return pairs, found


def _mix(value: Tensor) -> Tensor:
    """A 64-bit hash (the finaliser of splitmix64): the same on every device, and a number for every single edge."""

    def shift(value: Tensor, bits: int) -> Tensor:
        return (value >> bits) & ((1 << (64 - bits)) - 1)  # torch shifts the sign bit in; the hash needs zeros

    value = value + -7046029254386353131
    value = (value ^ shift(value, 30)) * -4658895280553007687
    value = (value ^ shift(value, 27)) * -7723592293110705685
    return value ^ shift(value, 31)
