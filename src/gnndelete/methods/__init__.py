"""Ways of unlearning, by class and by name (`resolver`).

To add a built-in method, write its file and list its class in `METHODS`. A package of your own adds one by an entry point in
the group ``gnndelete.methods`` that names a `Method` class, and tries it with `gnndelete.testing.check_method`.
"""

from __future__ import annotations

from class_resolver import ClassResolver

from gnndelete.methods.base import Context, Method, Outcome, Reason, reasons, require_fit
from gnndelete.methods.controls import RetrainAgain, UntrainedOperator, ZeroedEndpoints
from gnndelete.methods.d2d import D2D
from gnndelete.methods.gif import GIF
from gnndelete.methods.gnndelete.method import GNNDelete
from gnndelete.methods.gradascent import GradAscent
from gnndelete.methods.grapheraser.method import GraphEraser
from gnndelete.methods.jodie import JODIE
from gnndelete.methods.linear.certunlearn import CertUnlearn
from gnndelete.methods.linear.grapheditor import GraphEditor
from gnndelete.methods.megu import MEGU
from gnndelete.methods.regrow.method import Regrow
from gnndelete.methods.retrain import Retrain
from gnndelete.methods.unlink import Unlink

#: Entry points of this group add methods.
GROUP = "gnndelete.methods"

#: The built-in methods.
METHODS: tuple[type[Method], ...] = (
    CertUnlearn,
    D2D,
    GIF,
    GNNDelete,
    GradAscent,
    GraphEditor,
    GraphEraser,
    JODIE,
    MEGU,
    Regrow,
    Retrain,
    Unlink,
)

resolver: ClassResolver[Method] = ClassResolver(
    METHODS,
    base=Method,  # type: ignore[type-abstract]
    default=GNNDelete,
)
resolver.register_entrypoint(GROUP)

#: Controls in every table of methods: they reach a high deleted AUROC by ruining the model.
CONTROLS: tuple[type[Method], ...] = (ZeroedEndpoints, UntrainedOperator)

#: Methods to recommend where another one does not fit, best first.
_PREFERRED = ("gnndelete", "unlink", "retrain")


def nearest_fit(context: Context) -> str | None:
    """Return the name of a method that fits, to recommend where another one does not; None where none does.

    Args:
        context: Model, graph and task.
    """
    return next((name for name in _PREFERRED if not reasons(resolver.make(name), context)), None)


__all__ = [
    "CONTROLS",
    "D2D",
    "GIF",
    "GROUP",
    "JODIE",
    "MEGU",
    "METHODS",
    "CertUnlearn",
    "Context",
    "GNNDelete",
    "GradAscent",
    "GraphEditor",
    "GraphEraser",
    "Method",
    "Outcome",
    "Reason",
    "Regrow",
    "Retrain",
    "RetrainAgain",
    "Unlink",
    "UntrainedOperator",
    "ZeroedEndpoints",
    "nearest_fit",
    "reasons",
    "require_fit",
    "resolver",
]
