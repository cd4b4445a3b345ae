"""Controls for tables of methods.

`ZeroedEndpoints` and `UntrainedOperator` reach a high deleted AUROC by ruining the model. `RetrainAgain` shows how far two
retrained models differ by chance: no method can be expected to come closer to one of them.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from gnndelete.methods.base import Assurance, Context, Method, Outcome, Reason
from gnndelete.methods.retrain import Retrain
from gnndelete.nn.adapter import Adapter
from gnndelete.nn.layers import graph_layers, working_copy
from gnndelete.nn.operator import LinearMap, Operator, attach
from gnndelete.notes import Note


class UntrainedOperator(Method):
    """The paper's operator as its authors initialise it, every entry 1/1000, and never trained.

    Args:
        value: Every entry of the operator.

    >>> UntrainedOperator().settings()
    {'value': 0.001}
    """

    name: ClassVar[str] = "untrained"
    assurance: ClassVar[Assurance] = "approximate"
    summary: ClassVar[str] = "a control: an operator that was never trained"
    node_types: ClassVar[bool] = True

    def __init__(self, value: float = 0.001) -> None:
        self.value = value

    def unfit(self, context: Context) -> list[Reason]:
        if graph_layers(context.model):
            return []
        return [Reason(f"'{type(context.model).__name__}' has no graph layers", "leave this control out")]

    def _reach(self, hops: int, last: bool) -> int | None:
        """How many hops around the deletion the map behind a layer acts; None for no map."""
        return hops

    def unlearn(self, context: Context) -> Outcome:
        probe = context.session.probe("all")
        model = working_copy(context.model)
        device = context.data.edge_index.device
        named = context.deletion.named_nodes.to(device)
        neighborhood = context.session.neighborhood("undirected")
        for site in probe.sites:
            reach = self._reach(site.hops, probe.is_last(site))
            if reach is None:
                continue
            weight = torch.full((site.width, site.width), self.value, device=device)
            maps: list[nn.Module] = [LinearMap(site.width, weight).requires_grad_(False)]
            rows = site.local(neighborhood.within(named, reach))
            if not rows.numel():
                continue
            operator = Operator(len(site.rows), site.width, [rows], maps)
            attach(model, site, operator)
        adapter = Adapter(model)
        note = Note("control", "A control, not a method: it forgets by ruining the model.")
        return Outcome(model=model, parameters=adapter.num_parameters, adapter=adapter, notes=(note,))


class ZeroedEndpoints(UntrainedOperator):
    """Rows of the last layer that touch the deletion, set to zero.

    Args:
        value: Every entry of the operator.

    >>> ZeroedEndpoints().value
    0.0
    """

    name: ClassVar[str] = "zeroed"
    summary: ClassVar[str] = "a control: representations next to the deletion set to zero"

    def __init__(self, value: float = 0.0) -> None:
        super().__init__(value)

    def _reach(self, hops: int, last: bool) -> int | None:
        return 0 if last else None


class RetrainAgain(Retrain):
    """Retrain with another seed, to be compared with `Retrain`.

    Args:
        epochs: As in `Retrain`, like all parameters.
        lr: As in `Retrain`.
        patience: As in `Retrain`.
        seed: As in `Retrain`; None takes the second one after the seed of the deletion.
        batch_size: As in `Retrain`.
        num_neighbors: As in `Retrain`.

    >>> RetrainAgain.next_seed - Retrain.next_seed
    1
    """

    name: ClassVar[str] = "retrain-again"
    summary: ClassVar[str] = "a control: train a new model once more, with another seed"
    next_seed: ClassVar[int] = 2
