"""gnndelete makes trained graph neural networks forget edges, nodes and more, in about one forward pass.

Everything here is imported when first used, so that ``import gnndelete`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"


if TYPE_CHECKING:
    from gnndelete import datasets, models, tasks
    from gnndelete.auditing import Audit, audit
    from gnndelete.comparison import compare
    from gnndelete.exporting import export
    from gnndelete.graph.deletion import Deletion
    from gnndelete.graph.disk import DiskGraph
    from gnndelete.inspection import Inspection, inspect
    from gnndelete.methods import (
        D2D,
        GIF,
        JODIE,
        MEGU,
        CertUnlearn,
        GNNDelete,
        GradAscent,
        GraphEditor,
        GraphEraser,
        Method,
        Regrow,
        Retrain,
        Unlink,
    )
    from gnndelete.nn.adapter import Adapter
    from gnndelete.nn.operator import rows
    from gnndelete.notes import Note
    from gnndelete.result import Unlearned, evaluate, load
    from gnndelete.tasks import GraphClassification, LinkPrediction, NodeClassification, RankingPrediction
    from gnndelete.training.loop import train
    from gnndelete.unlearner import Unlearner

#: Where each public name is defined.
_HOME = {
    name: module
    for module, names in {
        "auditing": "Audit audit",
        "comparison": "compare",
        "exporting": "export",
        "graph.deletion": "Deletion",
        "graph.disk": "DiskGraph",
        "inspection": "Inspection inspect",
        "methods": "CertUnlearn D2D GIF GNNDelete GradAscent GraphEditor GraphEraser JODIE MEGU Method Regrow Retrain Unlink",
        "nn.adapter": "Adapter",
        "nn.operator": "rows",
        "notes": "Note",
        "result": "Unlearned evaluate load",
        "tasks": "GraphClassification LinkPrediction NodeClassification RankingPrediction",
        "training.loop": "train",
        "unlearner": "Unlearner",
    }.items()
    for name in names.split()
}
_MODULES = ("datasets", "errors", "methods", "models", "tasks")

__all__ = [
    "D2D",
    "GIF",
    "JODIE",
    "MEGU",
    "Adapter",
    "Audit",
    "CertUnlearn",
    "Deletion",
    "DiskGraph",
    "GNNDelete",
    "GradAscent",
    "GraphClassification",
    "GraphEditor",
    "GraphEraser",
    "Inspection",
    "LinkPrediction",
    "Method",
    "NodeClassification",
    "Note",
    "RankingPrediction",
    "Regrow",
    "Retrain",
    "Unlearned",
    "Unlearner",
    "Unlink",
    "__version__",
    "audit",
    "compare",
    "datasets",
    "evaluate",
    "export",
    "inspect",
    "load",
    "models",
    "rows",
    "tasks",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gnndelete.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'gnndelete' has no attribute {name!r}")
    globals()[name] = found = getattr(importlib.import_module(f"gnndelete.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
