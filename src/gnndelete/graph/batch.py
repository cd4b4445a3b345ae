"""What users hand in, as one graph: `collate` on the way in, `as_user_graph` on the way out.

`GraphBatch` puts a set of graphs side by side, so that nodes and edges have ids across all of them. Graph g has the nodes
``ptr[g]`` to ``ptr[g + 1]``, and no edge leaves a graph. Ids never shift: a deleted graph keeps its id.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, HeteroData

from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.edge_table import entries, ranges
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.parsing import ids_in_order

#: Attributes with one entry per graph, even if there are as many nodes or edges as graphs.
PER_GRAPH = ("y", "train_mask", "val_mask", "test_mask")
_PARTS = {"train_mask": "train", "val_mask": "validation", "test_mask": "test"}


class GraphBatch(Data):
    """Graphs side by side in one ``Data``: ``batch`` holds the graph of each node, ``ptr`` the first node of each graph.

    ``y`` and the masks hold one entry per graph. ``alive`` marks the nodes that are not deleted, so that a model whose
    ``forward`` takes it can leave deleted nodes out when it pools. Make one with `collate`.

    Args:
        x: Features of all nodes.
        edge_index: The ``[2, E]`` edges, in ids across all graphs.
        edge_attr: Features of edges.
        y: One label per graph.
        pos: Positions of nodes.
        time: Times of nodes or edges.
        kwargs: Further attributes, ``batch`` and ``ptr`` among them.

    >>> edge = torch.tensor([[0, 1], [1, 0]])
    >>> batch = collate([Data(x=torch.ones(2, 1), edge_index=edge, y=torch.tensor([k])) for k in (0, 1)])
    >>> batch.num_graphs, batch.edge_index.tolist()
    (2, [[0, 1, 2, 3], [1, 0, 3, 2]])
    >>> batch.at(1, [0, 1]).tolist()  # nodes 0 and 1 of graph 1
    [2, 3]
    """

    @property
    def num_graphs(self) -> int:
        """The number of graphs."""
        return int(self.ptr.numel()) - 1

    @property
    def sizes(self) -> Tensor:
        """The number of nodes of every graph."""
        return self.ptr.diff()

    def nodes_of(self, graphs: Any) -> Tensor:
        """Return the ids of all nodes of some graphs, in the order of the graphs.

        Args:
            graphs: Ids of graphs.
        """
        chosen = ids_in_order(graphs, "graph", self.num_graphs).to(self.ptr.device)
        return ranges(self.ptr[chosen], self.ptr[chosen + 1])

    def at(self, graph: int, local: Any) -> Tensor:
        """Return the ids, across all graphs, of nodes that are numbered from 0 within one graph.

        Args:
            graph: The id of the graph.
            local: Node numbers within it, in any shape, such as the ``[2, k]`` ends of edges.

        Raises:
            SettingError: If there is no such graph or node.
        """
        nodes, size = torch.as_tensor(local), int(self.sizes[ids_in_order(graph, "graph", self.num_graphs)])
        if nodes.is_floating_point() or nodes.dtype == torch.bool:
            raise SettingError(f"nodes within a graph are whole numbers from 0 (got {nodes.dtype})")
        if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < size:
            raise SettingError(
                f"graph {graph} has the nodes 0 to {size - 1} (got {int(nodes.min())} to {int(nodes.max())})"
            )
        return nodes.to(self.ptr.device) + self.ptr[graph]

    def where(self, nodes: Any) -> tuple[Tensor, Tensor]:
        """Return the graph of each node and its number within that graph: the inverse of `at`.

        Args:
            nodes: Ids of nodes across all graphs.
        """
        ids = torch.as_tensor(nodes, device=self.ptr.device)
        graph = self.batch[ids]
        return graph, ids - self.ptr[graph]

    def select(self, graphs: Any) -> GraphBatch:
        """Return some graphs as a batch; its ``n_id`` and ``graph_id`` hold the ids that its nodes and graphs have here.

        Args:
            graphs: Ids of graphs, in the order wanted.
        """
        return Selection(self)(graphs)

    def get_example(self, graph: int) -> Data:
        """Return one graph as a ``Data`` with ``n_id``, which a loader carries into its batches.

        Args:
            graph: The id of the graph.
        """
        return _single(self.select([graph]))

    def to_data_list(self) -> list[Data]:
        """Return all graphs, each as `get_example` gives it."""
        take = Selection(self)
        return [_single(take([graph])) for graph in range(self.num_graphs)]

    def is_graph_attr(self, key: str) -> bool:
        """Return whether an attribute has one entry per graph.

        Args:
            key: The name of the attribute.
        """
        value = self[key]
        has_length = isinstance(value, (list, tuple)) or (isinstance(value, Tensor) and value.dim())
        size = len(value) if has_length else -1
        if key == "ptr" or size != self.num_graphs:
            return False
        return key in PER_GRAPH or not (super().is_node_attr(key) or super().is_edge_attr(key))

    def is_node_attr(self, key: str) -> bool:
        """Return whether an attribute has one entry per node.

        Args:
            key: The name of the attribute.
        """
        return key != "ptr" and not self.is_graph_attr(key) and super().is_node_attr(key)

    def is_edge_attr(self, key: str) -> bool:
        """Return whether an attribute has one entry per edge.

        Args:
            key: The name of the attribute.
        """
        return key != "ptr" and not self.is_graph_attr(key) and super().is_edge_attr(key)


class Selection:
    """Takes graphs out of a batch again and again: the positions of their edges are looked up once."""

    def __init__(self, data: GraphBatch) -> None:
        self.data = data
        owner = data.batch[data.edge_index[0]]
        self._order = None
        if owner.numel() and bool((owner[1:] < owner[:-1]).any()):  # edges are not in the order of their graphs
            owner, self._order = torch.sort(owner, stable=True)
        self._bounds = torch.searchsorted(owner, torch.arange(data.num_graphs + 1, device=owner.device))
        kinds = {"graph": data.is_graph_attr, "node": data.is_node_attr, "edge": data.is_edge_attr}
        self._kinds = {
            key: next((kind for kind, holds in kinds.items() if holds(key)), "other")
            for key in data.to_dict()
            if key not in ("edge_index", "batch", "ptr", "num_nodes")
        }

    def __call__(self, graphs: Any) -> GraphBatch:
        data = self.data
        chosen = ids_in_order(graphs, "graph", data.num_graphs).to(data.ptr.device)
        nodes = ranges(data.ptr[chosen], data.ptr[chosen + 1])
        edges = ranges(self._bounds[chosen], self._bounds[chosen + 1])
        per_graph = self._bounds[chosen + 1] - self._bounds[chosen]
        edges = edges if self._order is None else self._order[edges]
        sizes = data.sizes[chosen]
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        shift = torch.repeat_interleave(ptr[:-1] - data.ptr[chosen], per_graph, output_size=edges.numel())
        result = GraphBatch(edge_index=data.edge_index[:, edges] + shift)
        positions = {"node": nodes, "edge": edges, "graph": chosen}
        for key, kind in self._kinds.items():
            result[key] = data[key] if kind == "other" else entries(data, key, positions[kind])
        result.batch = torch.repeat_interleave(
            torch.arange(chosen.numel(), device=ptr.device), sizes, output_size=nodes.numel()
        )
        result.ptr, result.num_nodes = ptr, nodes.numel()
        if "n_id" not in data:  # a selection of a selection keeps the original ids
            result.n_id, result.graph_id = nodes, chosen
        return result


def _single(batch: GraphBatch) -> Data:
    return Data.from_dict({key: value for key, value in batch.to_dict().items() if key not in ("batch", "ptr")})


def collate(graphs: Any, split: Any = None) -> Any:
    """Put graphs side by side.

    Args:
        graphs: A list of ``Data``, a PyG dataset or a PyG ``Batch`` becomes a `GraphBatch`. A ``HeteroData`` becomes a
            `HeteroGraph`. A single ``Data`` stays as it is, or is copied with ``num_nodes`` where only its edges tell it.
        split: What `split_graphs` returns, or a dict of graph ids by part. It becomes ``train_mask``, ``val_mask`` and
            ``test_mask``, one entry per graph. Default: the attribute ``split`` of a dataset.

    Returns:
        The graphs as one.

    Raises:
        GraphError: If the graphs cannot be put side by side, or a split is given for a single graph.
    """
    is_set = isinstance(graphs, Dataset)
    split = (getattr(graphs, "split", None) or None) if split is None and is_set else split
    if isinstance(graphs, HeteroData):
        graphs = HeteroGraph.of(graphs)
    elif (
        is_set
        or isinstance(graphs, (Batch, list, tuple))
        or (isinstance(graphs, Data) and "ptr" in graphs and "batch" in graphs)
    ):
        graphs = graphs if isinstance(graphs, GraphBatch) else _side_by_side(graphs)
        return graphs if split is None else with_split(graphs, split)
    if split is not None:
        raise GraphError("a split of graphs is given, and the data is one graph; give a list of graphs or a dataset")
    if not isinstance(graphs, Data) or "num_nodes" in graphs or graphs.get("x") is not None:
        return graphs
    if not isinstance(graphs.edge_index, Tensor) or not graphs.edge_index.numel():
        return graphs
    with warnings.catch_warnings():  # otherwise PyG counts the ends of edges whenever it is asked, and warns each time
        warnings.filterwarnings("ignore", message="Unable to accurately infer 'num_nodes'")
        count = graphs.num_nodes
    result = graphs.__copy__()
    result.num_nodes = count
    return result


def _side_by_side(graphs: Any) -> GraphBatch:
    values = graphs.to_dict() if isinstance(graphs, Data) else None
    if values is None:
        listed = list(graphs)
        wrong = next((graph for graph in listed if not isinstance(graph, Data)), None)
        if wrong is not None or not listed:
            problem = "is empty" if wrong is None else f"holds a '{type(wrong).__name__}'"
            raise GraphError(f"the list of graphs {problem}; give torch_geometric Data objects")
        try:
            values = Batch.from_data_list(listed).to_dict()
        except (KeyError, RuntimeError, AttributeError) as error:
            raise GraphError(
                f"the graphs cannot be put side by side ({type(error).__name__}: {error})",
                "give all of them the same attributes",
            ) from error
    if "edge_index" not in values:
        raise GraphError("the graphs have no 'edge_index'; give torch_geometric Data objects with one")
    result = GraphBatch.from_dict({key: value for key, value in values.items() if not key.startswith("_")})
    result.num_nodes = int(result.batch.numel())
    if "alive" not in result:
        result.alive = torch.ones(result.num_nodes, dtype=torch.bool, device=result.batch.device)
    return result


def with_split(batch: GraphBatch, split: Any) -> GraphBatch:
    """A copy with the parts of ``split`` as masks."""
    result = batch.__copy__()
    parts = dict(split) if isinstance(split, dict) else {part: getattr(split, part) for part in _PARTS.values()}
    parts.setdefault("validation", parts.get("valid"))
    for mask, part in _PARTS.items():
        if parts.get(part) is not None:
            chosen = torch.zeros(batch.num_graphs, dtype=torch.bool, device=batch.ptr.device)
            chosen[ids_in_order(parts[part], "graph", batch.num_graphs).to(chosen.device)] = True
            result[mask] = chosen
    return result


def as_user_graph(data: Any) -> Any:
    """A graph in its user's form: the `HeteroData` of a `HeteroGraph`; everything else as it is."""
    return data.hetero if isinstance(data, HeteroGraph) else data


def node_stores(data: Any, nodes: Tensor) -> Iterator[tuple[str | None, Any, Tensor, int]]:
    """For each node type among ``nodes``: its name, its store, a mask of its nodes, and the id of its first node.

    A graph without types is one store, without a name.
    """
    if not nodes.numel():
        return
    if not isinstance(data, HeteroGraph):
        yield None, data, torch.ones_like(nodes, dtype=torch.bool), 0
        return
    for name, rows in data.types.nodes.items():
        mask = (nodes >= rows.start) & (nodes < rows.stop)
        if bool(mask.any()):
            yield name, data.hetero[name], mask, rows.start


def label_edges(data: Data) -> Tensor | None:
    """The true edges among ``edge_label_index``, with their types on a HeteroData; None where the graph has none."""
    if not isinstance(data, HeteroGraph):
        pairs, label = data.get("edge_label_index"), data.get("edge_label")
        return pairs if pairs is None or label is None else pairs[:, label > 0]
    parts = []
    for kind in data.types.edges:
        pairs, label = data.hetero[kind].get("edge_label_index"), data.hetero[kind].get("edge_label")
        if pairs is not None:
            parts.append(data.place_edges(kind, pairs if label is None else pairs[:, label > 0], "edge_label_index"))
    return torch.cat(parts, dim=1) if parts else None
