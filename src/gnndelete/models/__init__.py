"""Encoders by name. Any ``nn.Module`` works with this library: these are the paper's and two transformers, for
experiments and examples."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import Any

from class_resolver import ClassResolver
from torch import nn

from gnndelete.errors import SettingError
from gnndelete.models.encoder import Encoder
from gnndelete.models.gat import GAT
from gnndelete.models.gcn import GCN
from gnndelete.models.gin import GIN
from gnndelete.models.gps import GPS
from gnndelete.models.graphormer import Graphormer
from gnndelete.models.pooled import Categories, Pooled
from gnndelete.models.rgat import RGAT
from gnndelete.models.rgcn import RGCN

resolver: ClassResolver[nn.Module] = ClassResolver(
    [GCN, GAT, GIN, GPS, Graphormer, RGCN, RGAT], base=nn.Module, base_as_suffix=False
)


def build(name: str | type[nn.Module], in_channels: int | None = None, **options: Any) -> nn.Module:
    """A new model by its name; ``options`` go to its constructor, such as ``num_nodes`` and ``num_relations`` of R-GCN.

    With ``pool`` it answers for whole graphs (`Pooled`).

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
    """An encoder of one kind with a pool and a head for ``out`` classes; ``categories`` are the sizes of integer columns.

    ``norm`` is a batch norm before the pool, and between the layers of an encoder that has none of its own.
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


__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "GPS",
    "RGAT",
    "RGCN",
    "Categories",
    "Encoder",
    "Graphormer",
    "Pooled",
    "build",
    "pooled",
    "resolver",
]
