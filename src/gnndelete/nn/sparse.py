"""Passes of one deletion as sparse matrix products, in place of one message per edge.

PyG gathers a message per edge and sums them up: on a large graph that is most of a layer's time and memory. A layer that
only sums neighbours can multiply with the adjacency matrix instead. A deletion runs its layers a few times over the same
graph, so the matrix (for GCN layers with its normalisation) is made once and shared by all of them. The layers, their weights
and what they compute stay PyG's own; afterwards they are as they were.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCN2Conv, GCNConv, GINConv, GraphConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils.sparse import index2ptr

from gnndelete.io.locks import ProcessLocks

#: Layers that normalise the edges first, and can keep the result.
_NORMALIZING = (GCNConv, GCN2Conv, APPNP)
#: Layers that take the edges as they are. Classes derived from these may do otherwise, so they are left out.
_PLAIN = (GINConv, SAGEConv, GraphConv)

#: PyG's names of the hooks on the steps inside a layer.
_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate")
_HOOKS = tuple(f"_{step}_forward{when}_hooks" for step in _STEPS for when in ("", "_pre"))

_LOCKS = ProcessLocks(RLock)


@contextmanager
def sparse_products(model: nn.Module, *graphs: Data, loopless: bool = False) -> Iterator[None]:
    """For the length of a block, known layers of ``model`` multiply by the edges of ``graphs`` (in place: give a copy).

    Only tensors of these graphs are recognised, and only while nobody writes into them: edges that a model makes in its own
    ``forward`` pass as messages. ``loopless``: no edge joins a node with itself, so that a layer that adds self-loops need
    not look for existing ones.

    >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> layer = SAGEConv(3, 2, aggr="sum")
    >>> with torch.no_grad(), sparse_products(layer, graph):
    ...     product = layer(graph.x, graph.edge_index)
    >>> torch.allclose(product, layer(graph.x, graph.edge_index))
    True
    """
    tensors = [(name, v) for graph in graphs for name, v in graph.to_dict().items() if isinstance(v, Tensor)]
    matrices = _Matrices(
        tensors={id(tensor): tensor for _, tensor in tensors if not tensor.is_inference()},
        loopless={
            id(t): t._version for name, t in tensors if name == "edge_index" and loopless and not t.is_inference()
        },
    )
    layers = [module for module in model.modules() if _multiplies(module)]
    for layer in layers:
        forward = functools.partial(matrices.run, layer, layer.forward)
        layer.forward = functools.update_wrapper(forward, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _multiplies(module: Any) -> bool:
    """Whether a layer only sums neighbours, and nobody hooks into its single messages."""
    if not isinstance(module, MessagePassing) or type(module) not in (*_NORMALIZING, *_PLAIN):
        return False
    if "forward" in vars(module) or not module.fuse or module.explain:  # changed by hand, or explained
        return False
    # PyG generates `propagate` of a class once, for its first layer: where that one could not multiply, none can
    written = getattr(type(module).propagate, "__code__", None)
    if written is None or "message_and_aggregate" not in written.co_names:
        return False
    if module.flow != "source_to_target" or module.aggr not in ("add", "sum", "mean"):
        return False
    if type(module) in _NORMALIZING and (not module.normalize or module.cached):
        return False
    changed = vars(module).keys() & {"message", "aggregate", "message_and_aggregate", "update", "propagate"}
    aggregation = MeanAggregation if module.aggr == "mean" else SumAggregation
    if changed or type(module.aggr_module) is not aggregation:
        return False
    return not any(hooks for name, hooks in vars(module).items() if name.endswith(_HOOKS))


@dataclass
class _Matrices:
    """The matrices of some graphs, made when first needed."""

    tensors: dict[int, Tensor]  # those of the graphs, by their identity
    loopless: dict[int, int]  # edges without self-loops, and how often they had been written to
    made: dict[Any, Tensor] = field(default_factory=dict)

    def run(self, layer: Any, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the layer's ``forward``, with a matrix in place of edges that are known."""
        named = dict(zip(inspect.signature(compute).parameters, args, strict=False)) | kwargs
        normalizes = type(layer) in _NORMALIZING
        settings = (getattr(layer, "improved", False), layer.add_self_loops) if normalizes else None
        found = self._find(settings, **named) if "x" in named and "edge_index" in named else None
        if found is None:
            return compute(*args, **kwargs)
        if not normalizes:
            weights = {"edge_weight": None} if "edge_weight" in named else {}  # they are in the matrix
            return compute(**named | {"edge_index": found} | weights)
        layer.cached, layer._cached_edge_index = True, (found, None)  # the layer looks here before it normalises
        try:
            return compute(*args, **kwargs)
        finally:
            layer.cached, layer._cached_edge_index = False, None

    def _find(
        self,
        settings: tuple[bool, bool] | None,
        x: Any,
        edge_index: Any,
        edge_weight: Any = None,
        size: Any = None,
        **_: Any,
    ) -> Tensor | None:
        """The matrix of some edges, for a layer that normalises them by ``settings``; None where they must pass as messages."""
        if not isinstance(x, Tensor) or x.dim() != 2 or x.dtype not in (torch.float32, torch.float64):
            return None
        if size is not None or type(edge_index) is not Tensor or {x.layout, edge_index.layout} != {torch.strided}:
            return None
        if torch.is_autocast_enabled(x.device.type) or x.device.type not in ("cpu", "cuda"):
            return None
        if x.device.type == "cpu" and not torch.backends.mkl.is_available():
            return None
        if edge_weight is not None and (edge_weight.dtype != x.dtype or edge_weight.dim() != 1):
            return None
        given = [edge_index] if edge_weight is None else [edge_index, edge_weight]
        if edge_index.size(0) != 2 or not all(id(tensor) in self.tensors for tensor in given):
            return None
        key = *((id(tensor), tensor._version) for tensor in given), x.size(0), x.dtype, settings
        if key in self.made:
            return self.made[key]
        if settings is not None:
            improved, loops = settings
            if loops and edge_weight is None and self.loopless.get(id(edge_index)) == edge_index._version:
                nodes = torch.arange(x.size(0), device=edge_index.device)
                edge_index, loops = torch.cat([edge_index, nodes.expand(2, -1)], dim=1), False
            edge_index, edge_weight = gcn_norm(edge_index, edge_weight, x.size(0), improved, loops, dtype=x.dtype)
        elif edge_weight is None:
            edge_weight = torch.ones(edge_index.size(1), dtype=x.dtype, device=edge_index.device)
        return self.made.setdefault(key, matrix(edge_index, edge_weight, x.size(0)))


def matrix(edge_index: Tensor, weights: Tensor, nodes: int) -> Tensor:
    """The matrix that sums weighted neighbours: a row per target, in the order in which the edges are given.

    >>> matrix(torch.tensor([[0, 1, 2], [2, 2, 0]]), torch.tensor([1.0, 2.0, 3.0]), 3).to_dense()[2].tolist()
    [1.0, 2.0, 0.0]
    """
    dtype = torch.int32 if max(nodes, edge_index.size(1)) < 2**31 - 1 else torch.int64
    target, order = edge_index[1].to(dtype).sort(stable=True)
    _warn_silently()
    return torch.sparse_csr_tensor(
        index2ptr(target, nodes),
        edge_index[0][order].to(dtype),
        weights[order],
        (nodes, nodes),
        check_invariants=False,
    )


@functools.cache
def _warn_silently() -> None:
    """Have torch say once that this layout is new, where nobody hears it."""
    with _LOCKS[os.getpid()], warnings.catch_warnings():  # which is for one thread at a time
        warnings.simplefilter("ignore", UserWarning)
        torch.sparse_csr_tensor(
            torch.tensor([0, 0]), torch.tensor([]).long(), torch.tensor([]), (1, 1), check_invariants=False
        )
