"""Loading a dataset by its name. Nothing is ever written into the data folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from torch_geometric.data import Data

from gnndelete.datasets.catalog import ENTRIES, Entry
from gnndelete.datasets.digits import check_digits, digits
from gnndelete.datasets.generated import (
    check_community_graph,
    check_knowledge_graph,
    community_graph,
    knowledge_graph,
)
from gnndelete.datasets.mirror import data_folder, open_raw
from gnndelete.datasets.stored import as_graph
from gnndelete.errors import GraphError, SettingError, unknown

_MADE: dict[str, Callable[..., Data]] = {
    "digits": digits,
    "generated:collab": community_graph,
    "generated:biokg": knowledge_graph,
}
_CHECKS: dict[str, Callable[..., None]] = {
    "digits": check_digits,
    "generated:collab": check_community_graph,
    "generated:biokg": check_knowledge_graph,
}


def names() -> list[str]:
    """Names that `load` knows.

    >>> "digits" in names()
    True
    """
    return list(ENTRIES)


def describe() -> list[Entry]:
    """Every known dataset with its size and origin.

    >>> describe()[0].source
    'bundled with scikit-learn'
    """
    return list(ENTRIES.values())


def load(name: str, root: str | Path | None = None, *, sparse: bool = False) -> Any:
    """A dataset by its name, in any case: a ``Data``, or for many graphs a PyG dataset of them.

    Raw files are looked for under ``root`` (else ``$GNNDELETE_DATA``) in the usual layout of PyG and OGB, such as
    ``CitationFull/dblp/raw/dblp.npz`` or ``ogb/ogbg_molhiv/raw``, else downloaded into the cache folder. Features of the
    citation and co-author graphs are normalised to sum to one per node, as the paper's authors do. The cache holds
    features that are mostly zero as sparse tensors; they come back dense (CS: 499 MB), or with ``sparse=True`` as they
    are, which GCN and GAT take and GIN does not.

    Typed graphs have ``edge_type``, and ``train_mask``, ``val_mask``, ``test_mask`` over their edges where they came with
    a split; ``debian`` also ``entity_names`` and ``relation_names``, each an `IdMap`. ``ogbl-collab`` is the graph of its
    training edges, with ``validation``, ``test`` and their ``_negatives`` beside it; ``ogbg-molhiv`` has its scaffold split
    as ``.split``.

    What is made here takes parameters in its name:

    >>> load("digits")
    Data(x=[1797, 64], edge_index=[2, 19858], y=[1797])
    >>> load("generated:collab?nodes=500&edges=3000&features=16&seed=3")
    Data(x=[500, 16], edge_index=[2, 3000], y=[500])
    """
    entry, parameters = named(name)
    if entry.name in _MADE:
        return _MADE[entry.name](**parameters)
    return as_graph(open_raw(entry, data_folder(root), _reader(entry)), sparse)


def named(name: str) -> tuple[Entry, dict[str, int | float]]:
    """What is known of a dataset without loading it, and the parameters in its name; a name that `load` refuses is refused.

    >>> entry, parameters = named("generated:collab?nodes=500&edges=3000")
    >>> entry.graphs, parameters
    (1, {'nodes': 500, 'edges': 3000})
    """
    key, _, query = name.strip().partition("?")
    key = key.lower()
    entry = ENTRIES.get(key)
    if entry is None:
        raise GraphError(unknown("no dataset is called", key, ENTRIES))
    if key in _MADE:
        given = _parameters(name, query, _MADE[key])
        try:
            _CHECKS[key](**_defaults(_MADE[key]) | given)
        except SettingError as error:
            raise SettingError(f"'{name}': {error}") from None
        return entry, given
    if query:
        raise SettingError(f"'{key}' takes no parameters (got '?{query}'); those that do are: {', '.join(_MADE)}")
    return entry, {}


def effective(name: str) -> tuple[str, dict[str, int | float]]:
    """What `load` makes of a name, with parameters that are left out: names that have this in common are one dataset.

    >>> effective("Digits") == effective("digits?neighbors=8")
    True
    """
    entry, given = named(name)
    return entry.name, _defaults(_MADE[entry.name]) | given if entry.name in _MADE else {}


def _defaults(make: Callable[..., Data]) -> dict[str, int | float]:
    return {key: parameter.default for key, parameter in inspect.signature(make).parameters.items()}


def _reader(entry: Entry) -> Callable[[Entry, Path], dict[str, Any]]:
    if entry.kind == "debian":
        from gnndelete.datasets.debian import read_debian

        return read_debian
    if entry.folder.startswith("ogb/"):
        from gnndelete.datasets.ogb import read_ogb

        return read_ogb
    from gnndelete.datasets.pyg import read_pyg

    return read_pyg


def _parameters(name: str, query: str, make: Callable[..., Data]) -> dict[str, int | float]:
    """``nodes=10&seed=3`` as arguments, each of the type of its default."""
    known = _defaults(make)
    try:
        given = parse_qsl(query, strict_parsing=True, keep_blank_values=True) if query else []
    except ValueError:
        raise SettingError(f"'{name}' does not read as NAME?parameter=value&parameter=value") from None
    found: dict[str, int | float] = {}
    for key, value in given:
        if key not in known:
            raise SettingError(unknown(f"'{name}' has no parameter", key, known))
        kind = type(known[key])
        try:
            found[key] = kind(value.replace(",", "").replace("_", ""))
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise SettingError(f"parameter '{key}' of '{name}' must be {what} (got '{value}')") from None
    return found
