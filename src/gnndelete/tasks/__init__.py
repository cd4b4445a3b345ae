"""Link, node and graph prediction: what a model is trained for and measured on. Also by name: `resolver`."""

from __future__ import annotations

from class_resolver import ClassResolver

from gnndelete.tasks.base import Task
from gnndelete.tasks.graph import GraphClassification
from gnndelete.tasks.link import LinkPrediction
from gnndelete.tasks.node import NodeClassification

resolver: ClassResolver[Task] = ClassResolver(
    [LinkPrediction, NodeClassification, GraphClassification],
    base=Task,  # type: ignore[type-abstract]
    base_as_suffix=False,
)

__all__ = ["GraphClassification", "LinkPrediction", "NodeClassification", "Task", "resolver"]
