"""The measures of an audit, one file each, and their registry.

To add one, write a subclass of `Measure` whose `run` returns a `Section`, and name the class in an entry point of the group
``gnndelete.measures``. The audit runs it, ``to_dict()`` holds its section under the measure's name, and the report shows the
section's tables. To let it decide, add a rule to `gnndelete.auditing.verdict`.
"""

from __future__ import annotations

from class_resolver import ClassResolver

from gnndelete.auditing.measures.base import Measure, NotMeasuredError, PerModel, Section, Table, Unmeasured
from gnndelete.auditing.measures.cost import Cost
from gnndelete.auditing.measures.distance import Distance
from gnndelete.auditing.measures.figure_data import Embedding, Scores
from gnndelete.auditing.measures.forgetting import Forgetting
from gnndelete.auditing.measures.integrity import Integrity
from gnndelete.auditing.measures.lists import Lists
from gnndelete.auditing.measures.membership import Membership
from gnndelete.auditing.measures.outliers import Outliers
from gnndelete.auditing.measures.reference import Reference
from gnndelete.auditing.measures.theorem import Theorem
from gnndelete.auditing.measures.touched import Touched
from gnndelete.auditing.measures.trend import Trend
from gnndelete.auditing.measures.users import Users
from gnndelete.auditing.measures.utility import Utility
from gnndelete.auditing.measures.weights import WeightsMeasure
from gnndelete.auditing.measures.whitebox import WhiteBox

#: Entry points of this group add measures.
GROUP = "gnndelete.measures"

#: In the order of the report.
BUILT_IN: tuple[type[Measure], ...] = (
    Utility,
    Lists,
    Users,
    Forgetting,
    Touched,
    Membership,
    Trend,
    WhiteBox,
    WeightsMeasure,
    Distance,
    Integrity,
    Reference,
    Theorem,
    Outliers,
    Cost,
    Scores,
    Embedding,
)

resolver: ClassResolver[Measure] = ClassResolver(BUILT_IN, base=Measure)  # type: ignore[type-abstract]
resolver.register_entrypoint(GROUP)


def measures() -> list[Measure]:
    """All measures, in the order of the report."""
    return [kind() for kind in resolver.lookup_dict.values()]


__all__ = [
    "BUILT_IN",
    "GROUP",
    "Measure",
    "NotMeasuredError",
    "PerModel",
    "Section",
    "Table",
    "Unmeasured",
    "measures",
    "resolver",
]
