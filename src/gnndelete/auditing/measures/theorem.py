"""The paper's Theorem 1 for every deleted edge, and the exact identity of the linear operator on the same inputs.

The theorem: <z_u, z_v> - <z'_u, z'_v> >= -(1 + |W|^2) / 2 * |z_u - z_v|^2 with z' = sigma(W z), W the last layer's operator.
Its proof takes all four vectors to be of unit length and sigma to be 1-Lipschitz; here sigma is the identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gnndelete.auditing.case import Case
from gnndelete.auditing.formatting import number, share
from gnndelete.auditing.measures.base import Measure, Names, NotMeasuredError, Section, Table
from gnndelete.graph.edge_table import ends_of
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import listening
from gnndelete.nn.layers import copied, graph_layers
from gnndelete.nn.operator import GivenRows, LinearMap, Operator

#: Deleted edges that are examined; a sample where there are more, to bound the memory.
EDGE_LIMIT = 50_000

ASSUMPTIONS = (
    "The theorem is about the last layer, one linear operator W for both ends, the same inputs before and after, and vectors of "
    "unit length. Real vectors have other lengths: they are scaled to unit length here, before the operator and again after it, "
    "and |W| is the largest singular value. The other rows are the same inequality without the second scaling, and without any: "
    "the theorem does not promise those."
)


@dataclass(frozen=True)
class Reading:
    """The inequality over all edges, for one scaling of the vectors.

    ``actual`` is <z_u, z_v> - <z'_u, z'_v>, ``bound`` the right-hand side. ``tightness`` is the median of actual / bound: 1
    where they are equal, 0 where nothing changed, below 0 where the score of the edge fell.
    """

    holds: float
    tightness: float | None = None
    slack: float | None = None
    actual_mean: float | None = None
    bound_mean: float | None = None
    lowered: float | None = None


@dataclass(frozen=True, kw_only=True)
class TheoremSection(Section):
    """How often Theorem 1 holds over the deleted edges and how tight it is.

    Args:
        edges: Deleted edges examined, out of ``deleted``.
        unit: Under the theorem's assumptions.
        operator: With unit vectors before the operator only.
        served: With vectors as served.
        sharper: The bound -|z_u - z_v|^2 / 2, which holds for any W. The paper's proof adds |z'_u - z'_v|^2 where it has to
            be subtracted; with the right sign the same steps give this bound.
        operator_norm: The largest |W|.
        identity_max_error: Of <z_u,z_v> - <z'_u,z'_v> = z_u^T (I - W W^T) z_v, relative.
        assumptions: What the theorem assumes, in words.
    """

    edges: int
    deleted: int
    unit: Reading
    operator: Reading
    served: Reading
    sharper: Reading
    operator_norm: float
    identity_max_error: float
    assumptions: str = ASSUMPTIONS

    def tables(self, names: Names) -> Iterable[Table]:
        readings = {
            "under its own assumptions (unit vectors)": self.unit,
            "unit vectors before the operator only": self.operator,
            "vectors as served": self.served,
            "sharper bound, unit vectors": self.sharper,
        }
        rows = tuple(
            (title, share(part.holds), number(part.tightness), number(part.actual_mean), number(part.bound_mean))
            for title, part in readings.items()
        )
        columns = ("vectors", "holds", "median of actual / bound", "mean actual", "mean bound")
        yield Table(columns, rows, self.assumptions)
        listed = (
            ("deleted edges examined", f"{number(self.edges)} of {number(self.deleted)}"),
            ("edges whose product fell", share(self.unit.lowered)),
            ("norm of the operator", number(self.operator_norm)),
            ("exact identity, largest relative error", number(self.identity_max_error)),
        )
        yield Table(("measure", "value"), listed)


class Theorem(Measure):
    """Theorem 1 limits only how far the score of a deleted edge can rise."""

    name: ClassVar[str] = "theorem"
    title: ClassVar[str] = "Theorem 1 of the paper"

    def run(self, case: Case) -> TheoremSection:
        adapter = case.unlearned.adapter
        if adapter is None:
            raise NotMeasuredError(
                f"Theorem 1 is about a deletion operator behind the last layer, and method '{case.unlearned.method}' has none; "
                "GNNDelete makes one"
            )
        if isinstance(case.original, HeteroGraph):
            raise NotMeasuredError(
                "Theorem 1 is about one map for both ends of an edge; each node type has its own operator"
            )
        if not case.deletion.edges.size(1):
            raise NotMeasuredError("Theorem 1 is about deleted edges, and none was deleted")
        if any(site.table for site, _ in adapter.operators):
            raise NotMeasuredError(
                "the adapter corrects trained vectors of nodes and maps no rows; operator='ring' or 'shared' makes a map"
            )
        if all(_gives_rows(operator) for _, operator in adapter.operators):
            raise NotMeasuredError(
                "the adapter maps no rows, since lam is 0: only the edges were cut; a larger lam makes a map"
            )
        last = _last_operator(case, copied(adapter.model, share=True))  # other threads may run the model itself
        if last is None:
            raise NotMeasuredError(
                "the operators are switched off on this model; leave adapter.disabled() before the audit"
            )
        if not last.last:
            raise NotMeasuredError(
                "no operator is behind the last graph layer; layers='all' or layers='last' puts one there"
            )
        if not all(isinstance(apply, (LinearMap, GivenRows)) for apply in last.operator.maps):
            raise NotMeasuredError("the operators are the user's own; Theorem 1 and the identity need h -> h W")
        return _measure(case, last)


@dataclass(frozen=True)
class _Pass:
    """What went into the last operator of one forward pass and what came out."""

    operator: Operator
    before: Tensor
    after: Tensor
    last: bool  # no graph layer follows it


def _gives_rows(operator: Operator) -> bool:
    """Whether it maps nothing and only gives rows to isolated nodes."""
    return all(isinstance(apply, GivenRows) for apply in operator.maps)


def _last_operator(case: Case, model: nn.Module) -> _Pass | None:
    """Run the unlearned model once and listen to its operators; None where none of them acts."""
    found: list[tuple[Operator, Tensor, Tensor]] = []
    answered: list[nn.Module] = []  # the layers that answered after the operator seen last

    def keep(operator: Any, inputs: tuple[Any, ...], result: Tensor) -> None:
        found[:] = [(operator, inputs[0].detach().flatten(1), result.detach().flatten(1))]
        answered.clear()

    def count(name: str, _: int, output: Any) -> Any:
        answered.append(model.get_submodule(name))
        return output

    operators = [module for module in model.modules() if isinstance(module, Operator) and not _gives_rows(module)]
    handles = [operator.register_forward_hook(keep) for operator in operators]
    try:
        with evaluating(model), listening(model, graph_layers(model), count):
            case.forward(model, case.after.graph)
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        return None
    # the hook that listens to a layer runs after the one by which the layer's own operator acts
    own_layer = len(answered) == 1 and any(module is found[0][0] for module in answered[0].modules())
    return _Pass(*found[0], last=not answered or own_layer)


#: What is known of each deleted edge: both sides of the inequality in three readings, |W|, and the identity's error.
_Values = dict[str, Tensor]


def _measure(case: Case, last: _Pass) -> TheoremSection:
    groups = torch.full((last.before.size(0),), -1, device=last.operator.rows.device)  # which map acts on each row
    for index, part in enumerate(last.operator.rows.split(last.operator.sizes)):
        groups[part] = index
    u, v = case.sample(ends_of(case.deletion.edges), EDGE_LIMIT, 0).to(groups.device)
    parts = [
        _both_sides(last, apply.weight, u[chosen], v[chosen])
        for index, apply in enumerate(last.operator.maps)
        if isinstance(apply, LinearMap) and bool((chosen := (groups[u] == index) & (groups[v] == index)).any())
    ]
    values = {name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    if not parts or not values["norm"].numel():
        raise NotMeasuredError("no deleted edge has both ends mapped by one operator to vectors that have a direction")
    actual, sharper = values["unit"], values["unit bound"]
    section = TheoremSection(
        edges=actual.numel(),
        deleted=case.deletion.edges.size(1),
        unit=_reading(values, "unit"),
        operator=_reading(values, "operator"),
        served=_reading(values, "served"),
        sharper=Reading(_holds(actual, sharper), _ratio(actual, sharper)),
        operator_norm=float(values["norm"].max()),
        identity_max_error=float(values["identity error"].max()),
    )
    return replace(section, sentence=_sentence(section))


def _both_sides(last: _Pass, weight: Tensor, u: Tensor, v: Tensor) -> _Values:
    """For the edges of one W, in double precision: <z_u, z_v> - <w_u, w_v>, and the bound without its factor of |W|."""
    W = weight.detach().double()
    z_u, z_v, w_u, w_v = (rows[ends].double() for rows in (last.before, last.after) for ends in (u, v))
    exact = _dot(z_u, z_v - (z_v @ W) @ W.t())  # z_u^T (I - W W^T) z_v
    scale = z_u.norm(dim=1) * z_v.norm(dim=1) + w_u.norm(dim=1) * w_v.norm(dim=1)
    error = (_dot(z_u, z_v) - _dot(w_u, w_v) - exact).abs() / scale.clamp(min=1e-300)
    usable = torch.stack([end.norm(dim=1) for end in (z_u, z_v, w_u, w_v)]).min(dim=0).values > 0
    z_u, z_v, w_u, w_v = z_u[usable], z_v[usable], w_u[usable], w_v[usable]
    one_u, one_v = _unit(z_u), _unit(z_v)
    readings = {
        "unit": (one_u, one_v, _unit(w_u), _unit(w_v)),
        "operator": (one_u, one_v, one_u @ W, one_v @ W),
        "served": (z_u, z_v, w_u, w_v),
    }
    values = {name: _dot(a, b) - _dot(c, d) for name, (a, b, c, d) in readings.items()}
    bounds = {f"{name} bound": -(a - b).square().sum(dim=1) / 2 for name, (a, b, _, _) in readings.items()}
    norm = torch.linalg.matrix_norm(W, 2).expand(z_u.size(0))
    return values | bounds | {"norm": norm, "identity error": error[usable]}


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(dim=1)


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def _reading(values: _Values, name: str) -> Reading:
    actual, bound = values[name], (1 + values["norm"].square()) * values[f"{name} bound"]
    return Reading(
        holds=_holds(actual, bound),
        tightness=_ratio(actual, bound),
        slack=float((actual - bound).median()),
        actual_mean=float(actual.mean()),
        bound_mean=float(bound.mean()),
        lowered=float((actual > 0).double().mean()),
    )


def _holds(actual: Tensor, bound: Tensor) -> float:
    """How often the inequality holds, up to rounding: both sides are equal where both ends are the same vector."""
    return float((actual >= bound - 1e-9 * (1 + bound.abs())).double().mean())


def _ratio(actual: Tensor, bound: Tensor) -> float | None:
    """The median of actual / bound; None where the bound is 0 throughout."""
    real = bound < -1e-12
    return float((actual[real] / bound[real]).median()) if bool(real.any()) else None


def _sentence(section: TheoremSection) -> str:
    unit, served = section.unit, section.served
    text = f"Theorem 1 holds for {unit.holds:.1%} of {section.edges:,} deleted edges under its own assumptions"
    if unit.tightness is not None:
        text += f"; the median of actual over bound is {unit.tightness:z.3f} (1: tight, 0: no change)"
    return (
        f"{text}. It limits only how far a score can rise, and the operator lowered {served.lowered:.1%} of the inner "
        f"products as served, so it says little about forgetting. Without the scaling to unit length the inequality holds for "
        f"{served.holds:.1%}. The identity <z_u,z_v> - <z'_u,z'_v> = z_u^T (I - W W^T) z_v is met up to a relative error of "
        f"{section.identity_max_error:.0e}."
    )
