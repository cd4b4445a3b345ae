"""Sites of a model: which tensors of a layer's output hold node representations, and hooks that read or replace them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import count_nodes

#: An entry of a layer's output: None for a plain tensor, a position in a tuple, or a name in a dict.
Key = None | int | str

#: Called with a layer's name, the number of the call and the output; a result other than None replaces the output.
Visit = Callable[[str, int, Any], Any]


@dataclass(frozen=True)
class Site:
    """One entry of the output of one call of one layer: where an operator can sit.

    An operator may also replace rows of a ``table``, a parameter with a row per node: then ``layer`` is the module that has
    the parameter and ``key`` its name there. Two sites are equal when layer, call, key and table are; the rest is what a probe
    measured there.
    """

    layer: str
    call: int = 0
    key: Key = None
    #: Numbers in one row.
    width: int = field(default=0, compare=False)
    #: Rows up to this distance from a deleted element may change here.
    hops: int = field(default=0, compare=False)
    #: False where every node sees every other, so that distance bounds nothing.
    bounded: bool = field(default=True, compare=False)
    #: False where the reach could only be counted, not measured.
    probed: bool = field(default=True, compare=False)
    #: The nodes that the rows are: all nodes of the graph, or those of one type.
    rows: range = field(default=range(0), compare=False)
    #: How often the layer is called in one forward pass.
    calls: int = field(default=1, compare=False)
    #: Whether the operator acts on a parameter of the module instead of its output.
    table: bool = False

    def local(self, nodes: Tensor) -> Tensor:
        """The row numbers of those nodes that have a row here."""
        if not nodes.numel():
            return nodes
        return nodes[(nodes >= self.rows.start) & (nodes < self.rows.stop)] - self.rows.start

    @property
    def title(self) -> str:
        """The site in words: layer, call and key."""
        call = f" [call {self.call}]" if self.call else ""
        if self.table:
            return f"{self.layer}.{self.key}".lstrip(".")
        key = "" if self.key is None else f" [{self.key!r}]"
        return (self.layer or "(the model itself)") + call + key


class Rows:
    """Finds out which nodes the rows of a tensor are, on one graph.

    >>> rows = Rows(Data(num_nodes=3))
    >>> rows.of(torch.ones(3, 8)), rows.of(torch.ones(4, 8))
    (range(0, 3), None)
    """

    def __init__(self, data: Data) -> None:
        self.whole = range(count_nodes(data))
        self.types: dict[str, range] = data.types.nodes if isinstance(data, HeteroGraph) else {}

    def of(self, value: Any, key: Any = None) -> range | None:
        """The nodes of a floating-point matrix, found by the name of its node type or by the number of rows."""
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() < 2:
            return None
        if key in self.types:
            return self.types[key] if value.size(0) == len(self.types[key]) else None
        if value.size(0) == len(self.whole):
            return self.whole
        fitting = [rows for rows in self.types.values() if len(rows) == value.size(0)]
        return fitting[0] if len(fitting) == 1 else None  # two types of one size cannot be told from each other


def representations(output: Any, rows: Rows) -> list[tuple[Key, Tensor, range]]:
    """The entries of a layer's output with one row per node: a tensor, the first of a tuple, every one of a dict.

    With several node types an entry of a dict holds the rows of the type that names it.

    >>> [key for key, _, _ in representations((torch.ones(3, 2), torch.ones(9)), Rows(Data(num_nodes=3)))]
    [0]
    """
    entries: list[tuple[Key, Any]] = [(None, output)]
    if isinstance(output, dict):
        entries = list(output.items())
    elif isinstance(output, (tuple, list)):
        entries = list(enumerate(output))
    found = [(key, value, nodes) for key, value in entries if (nodes := rows.of(value, key)) is not None]
    return found if isinstance(output, dict) else found[:1]


def per_edge(output: Any, nodes: Iterable[int], edges: Any) -> Tensor | None:
    """The tensor that a model returned, where it has one or two rows per edge and none per node; else None.

    Other numbers of rows may be nodes and more, such as a virtual one, which is for the model to decide.

    >>> graph = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]])}
    >>> per_edge(torch.ones(3, 1), [3], graph) is None, per_edge((torch.ones(6, 1), "more"), [3], graph).shape
    (True, torch.Size([6, 1]))
    """
    found = output[0] if isinstance(output, (tuple, list)) and output else output
    if not isinstance(found, Tensor) or not found.dim() or found.size(0) in nodes:
        return None
    counts = [pairs.size(1) for name in ("edge_index", "edge_label_index") if (pairs := edges.get(name)) is not None]
    return found if any(found.size(0) in (count, 2 * count) for count in counts) else None


def entry(output: Any, key: Key) -> Tensor:
    """The tensor at ``key`` of a layer's output."""
    return output if key is None else output[key]


def replaced(output: Any, key: Key, value: Tensor) -> Any:
    """A copy of the output with another tensor at ``key``."""
    if key is None:
        return value
    if isinstance(output, dict):
        return type(output)({**output, key: value})
    items = list(output)
    items[int(key)] = value
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*items)
    return type(output)(items)


@contextmanager
def listening(model: nn.Module, names: list[str], visit: Visit) -> Iterator[None]:
    """Call ``visit(name, call, output)`` after every call of the named modules; its result replaces the output.

    ``call`` counts the calls of one module from 0. The hooks are removed afterwards, also after an error. Compiled parts
    run as they were written meanwhile, since hooks compile badly.
    """
    calls: Counter[str] = Counter()

    def after(name: str, _: nn.Module, __: Any, output: Any) -> Any:
        calls[name] += 1
        return visit(name, calls[name] - 1, output)

    with ExitStack() as stack:
        if any("_orig_mod" in module._modules for module in model.modules()):
            stack.enter_context(torch.compiler.set_stance("force_eager"))  # loads the compiler, which takes seconds
        for name in names:
            handle = model.get_submodule(name).register_forward_hook(partial(after, name))
            stack.callback(handle.remove)
        yield


class Finished(Exception):  # noqa: N818  (control flow, never shown to a user)
    """Raised by a visitor that needs nothing more, to skip the rest of the forward pass."""
