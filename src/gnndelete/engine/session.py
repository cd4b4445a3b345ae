"""What is computed once for a model and its graph and shared by all requests: edge table, neighbourhoods, probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import GraphError, ModelError
from gnndelete.graph.batch import GraphBatch
from gnndelete.graph.edge_table import EdgeTable
from gnndelete.graph.fingerprint import attributes, fingerprint
from gnndelete.graph.neighborhood import Hops, Neighborhood
from gnndelete.graph.validation import check_graph, edge_table
from gnndelete.nn.adapter import model_fingerprint
from gnndelete.nn.checks import refuse_blind
from gnndelete.nn.forward import Forward
from gnndelete.nn.layers import Layers
from gnndelete.nn.operator import layer_operators
from gnndelete.nn.receptive_field import Probe, probe

#: Of many graphs, how many are enough to measure the reach of a model's layers on.
PROBED_GRAPHS = 64

#: What is said of a model that answers differently each time.
RANDOM = (
    "The model draws random numbers in evaluation mode (a dropout without training=self.training, say): the same request "
    "gives another result each time, and what is said of lam, of distance and of forgetting holds on average at best."
)


#: Refuses an output of a model on a graph.
Check = Callable[[Any, Any], None]


class Session:
    """A checked pair of model and graph. Neither is changed; everything expensive is made when first asked for.

    ``check`` is what a task has to say of the model's output.
    """

    def __init__(self, model: nn.Module, data: Data, forward: Forward, check: Check | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise ModelError(f"model is a '{type(model).__name__}'; pass a trained torch.nn.Module")
        if layer_operators(model):
            raise ModelError(
                "the model already carries deletion operators; give the base model, and further requests to the Unlearner "
                "that served the first (unlearner.delete, or load_state after a restart)"
            )
        check_graph(data)
        devices = {p.device for p in model.parameters()} or {data.edge_index.device}
        if data.edge_index.device not in devices:
            raise GraphError(
                f"the model is on '{next(iter(devices))}' and the graph on '{data.edge_index.device}'; move one with .to(…)"
            )
        self.model, self.data, self.forward, self._check = model, data, forward, check
        self.table = edge_table(data)
        self._looked = False
        self.random = False  # whether the model draws random numbers in evaluation mode; known once it was probed
        self._near: dict[str, Neighborhood] = {}
        self._probes: dict[str, Probe] = {}

    @cached_property
    def loopless(self) -> bool:
        """Whether no edge joins a node with itself; then none of a remaining graph does."""
        return not bool((self.data.edge_index[0] == self.data.edge_index[1]).any())

    def neighborhood(self, hops: Hops = "undirected") -> Neighborhood:
        if hops not in self._near:
            self._near[hops] = Neighborhood(self.table, self.data.edge_index, hops)
        return self._near[hops]

    def probe(self, layers: Layers = "all") -> Probe:
        key = repr(layers)
        if key not in self._probes:
            data, table = self.sample()
            before = _random_states(data.edge_index.device)
            found = probe(self.model, data, table, self.answer, layers)
            # nothing here draws from the global generators, so that whoever did is the model
            self.random = not all(map(torch.equal, before, _random_states(data.edge_index.device)))
            if data is not self.data:  # what was measured on a part holds for the rows of all graphs
                whole = range(self.table.num_nodes)
                found = replace(found, sites=tuple(replace(site, rows=whole) for site in found.sites))
            self._probes[key] = found
        return self._probes[key]

    def answer(self, model: nn.Module, data: Data) -> Any:
        """A whole pass, whose output is looked at: one sentence where the task cannot be about it."""
        output = self.forward(model, data)
        if self._check is not None:
            self._check(output, data)
        return output

    def look(self) -> None:
        """Refuse a model that does not read the graph's edges; asked once."""
        if not self._looked:
            refuse_blind(self.model, self.sample()[0], self.forward)
            self._looked = True

    def sample(self) -> tuple[Data, EdgeTable]:
        """What the model is probed on: of many graphs the largest ones show as much as all."""
        if not isinstance(self.data, GraphBatch) or self.data.num_graphs <= PROBED_GRAPHS:
            return self.data, self.table
        part = self.data.select(self.data.sizes.topk(PROBED_GRAPHS).indices)
        return part, edge_table(part)

    def base_fingerprint(self) -> str:
        return model_fingerprint(self.model)

    def graph_fingerprint(self) -> str:
        return fingerprint(self.data)

    @cached_property
    def graph_attributes(self) -> dict[str, str]:
        """Weights, labels and the like, by names and digests: looked at once, since many of them take seconds."""
        return attributes(self.data, labels=True)


def _random_states(device: torch.device) -> list[Tensor]:
    """The global generators that a model on a device may draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states
