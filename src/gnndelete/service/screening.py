"""What a request would do, predicted before anything is solved, and which requests an operator should look at first.

The damage of a request is how far the cut alone moves the rows of the model's output that stay, in rows: a damage of 10 means
that as much has moved as if ten average rows had been replaced. At registration random requests of several sizes are tried on
the model; a request is held where its damage is above a multiple of the largest of them at its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import log
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gnndelete.engine.blocks import Blocks, ends_of_deletion
from gnndelete.engine.session import Session
from gnndelete.graph.deletion import NOTHING, Deletion
from gnndelete.graph.kinds import cut
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import entry
from gnndelete.service.clock import DAY
from gnndelete.tasks import Task

if TYPE_CHECKING:
    from gnndelete.service import schema as t
    from gnndelete.service.lifecycle import Service
    from gnndelete.service.live import Snapshot
    from gnndelete.service.storage import Records

#: Sizes that are rehearsed, and how many random requests of each; no more than `LARGEST_SHARE` of the graph.
REHEARSED = {1: 60, 10: 20, 100: 8}
LARGEST_SHARE = 0.02


@dataclass(frozen=True)
class Effect:
    """What a request would do.

    Attributes:
        rows: Rows of the model that it can change.
        neighbours: Nodes at distance one of what it names.
        damage: How far the cut alone moves what stays, in rows; None where the model cannot be run on a part of its graph.
        usual: The largest damage of random requests of the same size and kind.
        codes: Reasons to hold it.
    """

    rows: int | None
    neighbours: int
    damage: float | None
    usual: float | None
    codes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The effect as plain values."""
        return {**asdict(self), "codes": list(self.codes)}


def rehearse(session: Session, seed: int = 0) -> dict[str, dict[str, float]]:
    """The largest damage of random requests, by kind and size.

    Args:
        session: The model and its graph, prepared.
        seed: Of the draws.
    """
    if session.blocks is None:
        return {}
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, dict[str, float]] = {}
    for kind, total in (("edges", session.table.num_edges), ("nodes", session.table.num_nodes)):
        for size, count in REHEARSED.items():
            if size > max(LARGEST_SHARE * total, 1):
                continue
            damages = [damage(session, random_request(session, kind, size, generator))[1] for _ in range(count)]
            found.setdefault(kind, {})[str(size)] = round(max(damages), 4)
    return found


def random_request(session: Session, kind: str, size: int, generator: torch.Generator) -> Deletion:
    """A request for elements that are drawn at random.

    Args:
        session: The model and its graph.
        kind: ``edges`` or ``nodes``.
        size: How many.
        generator: Draws them.
    """
    if kind == "nodes":
        return Deletion(nodes=torch.randperm(session.table.num_nodes, generator=generator)[:size])
    columns = torch.randint(session.table.num_edges, (size,), generator=generator)
    edges = session.table.edges(session.table.keys[columns.to(session.table.keys.device)]).cpu()
    return Deletion(edges=edges).check(session.data, session.table)


def damage(session: Session, deletion: Deletion, earlier: Deletion = NOTHING) -> tuple[int, float]:
    """How many rows cutting a checked deletion can change, and how far it moves those that stay, in average rows.

    Args:
        session: The model and its graph, prepared; segments in force count as they are.
        deletion: What would be cut.
        earlier: What is gone already.
    """
    blocks = session.blocks
    assert blocks is not None
    block = blocks.near(deletion, share=1.0, earlier=earlier)
    assert block is not None
    remaining = cut(block.deletion(block.part_of(deletion)), block.data, block.table)
    total = 0.0
    with evaluating(blocks.model):
        output = blocks.run(block, remaining)
    for key, base in blocks.cache.output.items():
        ids, computed = blocks.computed_output(block, key)
        before = base.index_select(0, ids) if blocks.segments is None else blocks.segments.output[key].read(ids)
        after = entry(output, key).index_select(0, computed)
        moved = (after - before).flatten(1).norm(dim=1)
        if key is None and deletion.nodes.numel():
            moved = moved[~torch.isin(ids, deletion.nodes)]
        total += float(moved.double().sum()) / max(_row_norm(blocks, key), 1e-12)
    return int(block.computed.numel()), total


def _row_norm(blocks: Blocks, key: Any) -> float:
    """The norm of an average row of the output, by a sample of a thousand."""
    base = blocks.cache.output[key]
    step = max(len(base) // 1000, 1)
    return float(base[::step].flatten(1).norm(dim=1).double().mean())


def usual_damage(rehearsed: Mapping[str, Mapping[str, float]], deletion: Deletion) -> float | None:
    """The largest damage of random requests of the size of a deletion, between the rehearsed sizes in proportion.

    >>> usual_damage({"edges": {"1": 2.0, "10": 8.0}}, Deletion(edges=[(0, 1), (1, 2), (2, 3)]))
    3.87...
    """
    total = 0.0
    counts = {"edges": deletion.edges.size(1), "nodes": deletion.nodes.numel()}
    for kind, count in counts.items():
        if not count:
            continue
        known = {int(size): value for size, value in rehearsed.get(kind, {}).items()}
        if not known:
            return None
        total += _between(known, count)
    return total if total else None


def _between(known: Mapping[int, float], count: int) -> float:
    sizes = sorted(known)
    if count >= sizes[-1]:
        return known[sizes[-1]] * count / sizes[-1]
    above = next(size for size in sizes if size >= count)
    below = max((size for size in sizes if size <= count), default=above)
    if above == below:
        return known[above]
    share = (log(count) - log(below)) / (log(above) - log(below))
    low, high = max(known[below], 1e-12), max(known[above], 1e-12)
    return float(low ** (1 - share) * high**share)


def effect_of(
    session: Session, task: Task, deletion: Deletion, gone: Deletion, rehearsed: Mapping[str, Any], factor: float
) -> Effect:
    """What a checked deletion would do to a model.

    Args:
        session: The model and its graph.
        task: What the model was trained for.
        deletion: What would be cut.
        gone: What is gone already.
        rehearsed: What `rehearse` found.
        factor: The multiple of the usual damage above which a request is held.
    """
    left = deletion.not_deleted(gone) if len(gone) else deletion
    ends = ends_of_deletion(left).unique()
    neighbours = int(session.neighborhood().rings(ends, 1)[1].numel())
    rows, found = None, None
    if session.blocks is not None and len(left):
        rows, found = damage(session, left, gone)
        found = round(found, 4)
    usual = usual_damage(rehearsed, left)
    codes = []
    if found is not None and usual is not None and found > factor * usual:
        codes.append("damage")
    if removes_class(task, session.data, left, gone):
        codes.append("removes-class")
    if removes_relation(session.data, session.table, left, gone):
        codes.append("removes-relation")
    return Effect(rows, neighbours, found, usual, tuple(codes))


def removes_class(task: Task, data: Any, deletion: Deletion, gone: Deletion) -> bool:
    """Whether no training example of a class would be left."""
    if not task.learns_labels or not task.on_nodes:
        return False
    learned = task.learned(data)
    if not learned.numel():
        return False

    def left(*deletions: Deletion) -> Tensor:
        lost = torch.cat([ids for each in deletions for ids in (each.nodes, each.labels)])
        stay = learned[~torch.isin(learned, lost)]
        return task.classes(data, stay).flatten().unique()

    return len(left(deletion, gone)) < len(left(gone))


def removes_relation(data: Any, table: Any, deletion: Deletion, gone: Deletion) -> bool:
    """Whether no edge of a relation would be left."""
    if deletion.relations.numel():
        return True
    if not table.typed or deletion.edges.size(0) != 3 or not deletion.edges.size(1):
        return False
    kinds = data.get("edge_type")
    if kinds is None:
        return False
    both = 2 if table.undirected or table.mirrored else 1
    size = int(max(int(kinds.max()), int(deletion.edges[1].max()))) + 1
    before = kinds.bincount(minlength=size) // both
    if gone.edges.size(0) == 3:
        before = before - gone.edges[1].bincount(minlength=size)[:size]
    after = before - deletion.edges[1].bincount(minlength=size)[:size]
    return bool(((before > 0) & (after <= 0)).any())


def predicted_effect(service: Service, model: t.Model, snapshot: Snapshot, deletion: Deletion) -> Effect:
    """What a request would do to the model that is live, for a dry run."""
    generation = snapshot.generation
    with generation.trying() as session:
        return effect_of(
            session,
            generation.made.task,
            deletion,
            NOTHING,
            generation.made.facts.get("damage", {}),
            service.settings.damage_factor,
        )


def of_one_origin(records: Records, model: t.Model, origin: str, now: float, share: float, least: int) -> bool:
    """Whether one origin asks to forget an unusually large part of the graph within a day."""
    requests, elements = records.of_origin(model.id, origin, now - DAY)
    return requests >= least and elements > share * model.elements
