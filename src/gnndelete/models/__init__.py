"""Encoders by name. Any ``nn.Module`` works with this library: these are the paper's and two transformers, for
experiments and examples."""

from __future__ import annotations

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

resolver: ClassResolver[nn.Module] = ClassResolver(
    [GCN, GAT, GIN, GPS, Graphormer], base=nn.Module, base_as_suffix=False
)


def build(name: str | type[nn.Module], in_channels: int, **options: Any) -> nn.Module:
    """A new model by its name; ``options`` go to its constructor.

    >>> build("gcn", in_channels=16, out=7).convs[1].out_channels
    7
    """
    try:
        kind = resolver.lookup(name)
    except KeyError:
        known = ", ".join(sorted(resolver.lookup_dict))
        raise SettingError(f"no model is called '{name}'; there are {known}, or pass a model of your own") from None
    return kind(in_channels, **options)


__all__ = ["GAT", "GCN", "GIN", "GPS", "Encoder", "Graphormer", "build", "resolver"]
