"""Ways of unlearning, by class and by name (`resolver`)."""

from __future__ import annotations

from class_resolver import ClassResolver

from gnndelete.methods.base import Context, Method, Outcome, Reason
from gnndelete.methods.gnndelete import GNNDelete
from gnndelete.methods.retrain import Retrain
from gnndelete.methods.unlink import Unlink

resolver: ClassResolver[Method] = ClassResolver(
    [GNNDelete, Retrain, Unlink],
    base=Method,  # type: ignore[type-abstract]
    default=GNNDelete,
)

__all__ = ["Context", "GNNDelete", "Method", "Outcome", "Reason", "Retrain", "Unlink", "resolver"]
