"""Models by name, for experiments and examples: the paper's encoders and two graph transformers.

The library works with any ``nn.Module``; it needs none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

from class_resolver import ClassResolver
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.errors import GraphError, SettingError
from gnndelete.graph.validation import count_relations
from gnndelete.models.embedding import EmbeddingGCN, EmbeddingSAGE, LightGCN
from gnndelete.models.encoders import GAT, GCN, GIN, Encoder
from gnndelete.models.gps import GPS
from gnndelete.models.graphormer import Graphormer
from gnndelete.models.pooled import Categories, Pooled
from gnndelete.models.relational import RGAT, RGCN
from gnndelete.registry import check_parameters

resolver: ClassResolver[nn.Module] = ClassResolver(
    [GCN, GAT, GIN, GPS, Graphormer, RGCN, RGAT, LightGCN, EmbeddingGCN, EmbeddingSAGE],
    base=nn.Module,
    base_as_suffix=False,
)


def build(name: str | type[nn.Module], in_channels: int | None = None, **options: Any) -> nn.Module:
    """Make a new model by its name.

    Args:
        name: ``"gcn"``, ``"gat"``, ``"gin"``, ``"gps"``, ``"graphormer"``, ``"rgcn"``, ``"rgat"``, ``"lightgcn"``,
            ``"embeddinggcn"`` or ``"embeddingsage"``, or a model class.
        in_channels: Number of node features.
        **options: Arguments of the model's constructor, such as ``num_relations`` of R-GCN. With ``pool`` the model
            classifies whole graphs (`pooled`).

    Returns:
        The untrained model.

    Raises:
        SettingError: If no model has this name, or the options do not fit it.

    >>> build("gcn", in_channels=16, out=7).convs[1].out_channels
    7
    >>> build("gin", in_channels=16, out=2, pool="mean").head.out_features
    2
    """
    try:
        kind = resolver.lookup(name)
    except KeyError:
        known = ", ".join(sorted(resolver.lookup_dict))
        raise SettingError(f"no model is called '{name}'; there are {known}, or pass a model of your own") from None
    options = options if in_channels is None else {"in_channels": in_channels, **options}
    make: Any = partial(pooled, kind) if options.get("pool") else kind
    try:
        signature(make).bind(**options)
    except TypeError as error:
        raise SettingError(
            f"the model '{kind.__name__}' cannot be made from these options ({error}); correct them"
        ) from None
    return make(**options)


def pooled(
    kind: type[nn.Module],
    in_channels: int,
    hidden: int = 64,
    out: int = 2,
    num_layers: int = 3,
    dropout: float = 0.0,
    norm: bool = True,
    pool: str = "mean",
    categories: list[int] | None = None,
    **options: Any,
) -> Pooled:
    """Make an encoder with a pool and a head that classifies whole graphs.

    Args:
        kind: The class of the encoder.
        in_channels: Number of node features.
        hidden: Width of the encoder.
        out: Number of classes.
        num_layers: Number of graph layers.
        dropout: Share of entries that are dropped.
        norm: Put a batch norm before the pool, and between the layers where the encoder has that option.
        pool: ``"mean"`` or ``"add"``.
        categories: Number of values of each column, where features are integers to embed.
        **options: Further arguments of the encoder.

    Returns:
        The untrained model.

    Raises:
        SettingError: If the encoder has a trained vector per node.

    >>> from gnndelete.models import GCN
    >>> pooled(GCN, in_channels=16, out=3).head.out_features
    3
    """
    takes = signature(kind).parameters
    if "num_nodes" in takes:
        raise SettingError(
            f"'{kind.__name__}' has a trained vector for every node it was made for, and new graphs bring new nodes: it "
            "cannot be pooled; take gcn, gat, gin, gps or graphormer"
        )
    width = in_channels if categories is None else hidden
    shape = {"hidden": hidden, "out": hidden, "num_layers": num_layers, "dropout": dropout, **options}
    encoder = kind(width, **shape, **({"norm": norm} if "norm" in takes else {}))
    return Pooled(encoder, hidden, out, pool=pool, norm=norm, dropout=dropout, categories=categories, in_channels=width)


#: Options that the graph decides; they can be left out of a configuration.
FROM_GRAPH = ("in_channels", "num_classes", "num_nodes", "num_relations", "categories")


def model_factory(kind: Any, task: str) -> Callable[..., Any]:
    """The function that makes a built-in model for a task; models of whole graphs get a pool."""
    return partial(pooled, kind) if task == "graph" else kind


def defaults(factory: Callable[..., Any]) -> dict[str, Any]:
    """The default values of a factory that are plain.

    >>> from gnndelete.models import GCN
    >>> defaults(GCN)["hidden"]
    128
    """
    takes = signature(factory).parameters
    return {name: p.default for name, p in takes.items() if isinstance(p.default, (bool, int, float, str, type(None)))}


def fill_options(
    factory: Callable[..., Any],
    given: Mapping[str, Any],
    data: Data,
    task: str,
    name: str,
    builtin: bool = True,
    sizes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All options of a model: those given, those that follow from the graph, and the defaults of its factory.

    Arguments called ``in_channels``, ``num_classes``, ``num_nodes`` and ``num_relations``, and ``out`` of a built-in model
    that classifies, are filled in from the graph where nothing else is given; so are those that ``sizes`` names.

    >>> from gnndelete.datasets import load
    >>> from gnndelete.models import GCN
    >>> fill_options(GCN, {"hidden": 8}, load("digits"), "node", "gcn")["out"]
    10
    """
    filled: dict[str, Any] = {"in_channels": data.num_features, "num_nodes": data.num_nodes}
    filled |= {"num_classes": _classes(data), "num_relations": count_relations(data), **(sizes or {})}
    if isinstance(data.x, Tensor):
        filled["categories"] = Categories.sizes(data.x)
    if builtin and task in ("node", "graph"):
        filled["out"] = _classes(data)
    takes = signature(factory).parameters
    needs = "in_channels" in takes and takes["in_channels"].default is Parameter.empty
    if needs and "in_channels" not in given and not data.num_features:
        other = "take --model rgcn or rgat" if "edge_type" in data else "take --model lightgcn or embeddinggcn"
        raise GraphError(
            f"the graph has no node features, and the model '{name}' computes from them; add columns of numbers "
            f"to the table of nodes (data.x), or {other}"
        )
    if builtin and "num_relations" in takes and not filled["num_relations"]:
        raise GraphError(f"the model '{name}' is for typed edges, and the graph has no 'edge_type'; take --model gcn")
    options = defaults(factory) | {name: value for name, value in filled.items() if name in takes} | dict(given)
    return check_parameters(factory, options, f"model '{name}'", "model.")


def _classes(data: Data) -> int | None:
    y = data.get("y")
    return int(y.max()) + 1 if isinstance(y, Tensor) and y.numel() and not y.is_floating_point() else None


__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GPS",
    "RGAT",
    "RGCN",
    "Categories",
    "EmbeddingGCN",
    "EmbeddingSAGE",
    "Encoder",
    "Graphormer",
    "LightGCN",
    "Pooled",
    "build",
    "pooled",
    "resolver",
]
