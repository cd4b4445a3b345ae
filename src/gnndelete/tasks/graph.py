"""Graph classification: announced, not yet supported."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import torch
from torch import nn

from gnndelete.errors import NotYetError
from gnndelete.tasks.base import Predict, Task


class GraphClassification(Task):
    """Which class is a whole graph? Can be named, but this version does not serve it yet.

    >>> GraphClassification().name
    'graph'
    """

    name: ClassVar[str] = "graph"
    synonyms: ClassVar[set[str]] = {"graph"}

    def check(self, data: Any) -> NoReturn:
        _refuse()

    def loss(self, model: nn.Module, output: Any, data: Any, generator: torch.Generator | None = None) -> NoReturn:
        _refuse()

    def validates(self, data: Any) -> NoReturn:
        _refuse()

    def validate(self, model: nn.Module, output: Any, data: Any) -> NoReturn:
        _refuse()

    def evaluate_by(self, predict: Predict, data: Any) -> NoReturn:
        _refuse()

    def predict(self, model: nn.Module, output: Any, elements: Any) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise NotYetError("graph classification is not yet supported; use LinkPrediction or NodeClassification")
