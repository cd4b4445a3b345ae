"""Unseen elements that the model was trained on all the same: how many, and what is said of them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gnndelete.graph.edge_table import EdgeTable
from gnndelete.tasks.base import Task
from gnndelete.tasks.graph import GraphClassification
from gnndelete.tasks.link import LinkPrediction
from gnndelete.tasks.node import NodeClassification


def edges_learned(held: Tensor, table: EdgeTable) -> int:
    """How many unseen edges are in the graph."""
    return int(table.contains(held.to(table.keys.device)).sum()) if held.size(0) == 2 + table.typed else 0


def members_learned(held: Tensor, task: NodeClassification | GraphClassification, data: Any) -> int:
    """How many unseen nodes or graphs, by their ids, are in the training part."""
    learned = task.part(data, "train")
    return int(learned[held.to(learned.device)].sum())


def overlap_sentence(count: int, task: Task, part: str = "unseen") -> str:
    """What follows where some elements of a part were trained on; nothing where none were.

    >>> overlap_sentence(3, NodeClassification(), "test")[:67]
    '3 of the test nodes are among the nodes that the model was trained '
    >>> overlap_sentence(0, NodeClassification())
    ''
    """
    if not count:
        return ""
    what = (
        "edges" if isinstance(task, LinkPrediction) else "nodes" if isinstance(task, NodeClassification) else "graphs"
    )
    where = "in the graph" if what == "edges" else f"among the {what}"
    return (
        f"{count:,} of the {part} {what} are {where} that the model was trained on: compared with these, what is remembered "
        f"does not show. Hold out {what} that are not."
    )
