"""Reading raw files with PyG's own dataset classes, after a look at what these classes would trust."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnndelete.datasets.catalog import Entry
from gnndelete.datasets.stored import Content, normalise, sparse_features
from gnndelete.datasets.untrusted import check_matrices, rewrite_pickles


class OfflineError(Exception):
    """Raw files are not here and could not be downloaded."""


def read_pyg(entry: Entry, building: Path) -> Content:
    """The content of PyG's dataset class ``entry.kind``."""
    from torch_geometric import datasets

    kind = guarded(getattr(datasets, entry.kind), rewrite_pickles if entry.kind == "Planetoid" else check_matrices)
    transform = {"pre_transform": sparse_features} if entry.sparse else {}
    found = kind(str(building / entry.folder.split("/")[0]), *([entry.title] if entry.title else []), **transform)
    if entry.graphs > 1:
        return {"data": found._data.to_dict(), "slices": found.slices}
    data = found[0]
    if entry.normalised:
        data.x = normalise(data.x)
    return {"data": data.to_dict()}


def guarded(kind: type, before: Callable[[Path], None]) -> Any:
    """PyG's dataset class ``kind``, that says `OfflineError` when a download fails and calls ``before`` on the raw files."""

    class Guarded(kind):
        log = property(lambda self: False, lambda self, value: None)  # "Processing… Done!" is PyG's word, not ours

        def download(self) -> None:
            try:
                _knock(getattr(kind, "url", None) or getattr(kind, "github_url", None) or self.meta_info["url"])
                super().download()
            except Exception as error:  # of urllib, aiohttp or ssl
                raise OfflineError(error) from error

        def process(self) -> None:
            before(Path(self.raw_dir))
            super().process()

    return Guarded


def _knock(url: str) -> None:
    """Find out within seconds whether there is a network: a download has no limit of its own on some systems."""
    scheme, _, rest = url.partition("://")
    try:
        urllib.request.urlopen(urllib.request.Request(f"{scheme}://{rest.split('/')[0]}", method="HEAD"), timeout=10)
    except urllib.error.HTTPError:
        return  # it answers
    except urllib.error.URLError as error:
        if "CERTIFICATE" not in str(error.reason):
            raise
