"""Links, rankings, nodes and graphs: what a model is trained for and measured on. Also by name: `resolver`."""

from __future__ import annotations

from class_resolver import ClassResolver

from gnndelete.tasks.base import Task
from gnndelete.tasks.graph import GraphClassification
from gnndelete.tasks.link import LinkPrediction
from gnndelete.tasks.node import NodeClassification
from gnndelete.tasks.ranking import RankingPrediction

resolver: ClassResolver[Task] = ClassResolver(
    [LinkPrediction, RankingPrediction, NodeClassification, GraphClassification],
    base=Task,  # type: ignore[type-abstract]
    base_as_suffix=False,
)

__all__ = ["GraphClassification", "LinkPrediction", "NodeClassification", "RankingPrediction", "Task", "resolver"]
