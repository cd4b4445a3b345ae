"""Layer outputs of the base model on the original graph: what every later request starts from.

Cutting edges changes only rows near them, so these rows are right for all others, for every request. They are computed in one
forward pass, kept in memory or in memory-mapped files, and never written again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnndelete.errors import AdapterError
from gnndelete.io.files import ensure_folder, write
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key, Site, entry, listening, representations

MANIFEST = "cache.json"
_FORMAT = 1
_REMEDY = "remove the folder and prepare again"


@dataclass(frozen=True)
class Cache:
    """Rows of every site and of the model's output, on the original graph.

    Attributes:
        rows: The output of each site: ``[nodes of the site, width]``.
        output: The entries of the model's output with a row per node, by key (None: the output is one tensor).
        sums: Per site the sum of all rows, in double precision.
    """

    rows: Mapping[Site, Tensor]
    output: Mapping[Key, Tensor]
    sums: Mapping[Site, Tensor]

    @classmethod
    def compute(cls, session: Any, model: nn.Module, sites: tuple[Site, ...]) -> Cache:
        """One forward pass of ``model``, a working copy, over the graph of the session."""
        rows: dict[Site, Tensor] = {}

        def visit(name: str, call: int, output: Any) -> None:
            for site in sites:
                if (site.layer, site.call) == (name, call):
                    # a copy, since the model may write into its layer's output afterwards
                    rows[site] = entry(output, site.key).detach().clone()

        names = list(dict.fromkeys(site.layer for site in sites))
        with evaluating(model), listening(model, names, visit):
            output = session.answer(model, session.data)
        entries = {key: value for key, value, _ in representations(output, session.row_ranges)}
        for key, value in entries.items():  # the output of the last layer is often that of the model: kept once
            same = (kept for kept in rows.values() if kept.shape == value.shape and torch.equal(kept, value))
            entries[key] = next(same, value)
        sums = {site: value.flatten(1).sum(dim=0, dtype=torch.float64) for site, value in rows.items()}
        return cls(rows, entries, sums)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(value.numel() * value.element_size() for value in (*self.rows.values(), *self.output.values()))

    def save(self, folder: Path, identity: Mapping[str, str]) -> None:
        """Write the rows as raw files, and last the manifest that names and digests them.

        Args:
            folder: Where to write; it is made.
            identity: Digests of the model and the graph that the rows belong to.
        """
        ensure_folder(folder)
        entries = []
        for name, tensor, facts in self._named():
            data = tensor.detach().contiguous().cpu()
            raw = data.view(torch.uint8).numpy().tobytes() if data.dim() else b""
            write(folder / name, raw, private=True)
            shape, digest = list(data.shape), hashlib.sha256(raw).hexdigest()
            entries.append({**facts, "file": name, "shape": shape, "dtype": str(data.dtype)[6:], "sha256": digest})
        manifest = {"format": _FORMAT, "identity": dict(identity), "entries": entries}
        write(folder / MANIFEST, json.dumps(manifest, indent=1).encode(), private=True)

    def _named(self) -> list[tuple[str, Tensor, dict[str, Any]]]:
        sites = [
            (
                f"site-{number}{suffix}.bin",
                tensor,
                {"kind": kind, "site": {**asdict(site), "rows": [site.rows.start, site.rows.stop]}},
            )
            for number, site in enumerate(self.rows)
            for kind, suffix, tensor in (("rows", "", self.rows[site]), ("sums", "-sum", self.sums[site]))
        ]
        outputs = [
            (f"output-{number}.bin", tensor, {"kind": "output", "key": key})
            for number, (key, tensor) in enumerate(self.output.items())
        ]
        return [*sites, *outputs]

    @classmethod
    def load(cls, folder: Path, identity: Mapping[str, str]) -> Cache | None:
        """Map the files of `save` into memory; None where there are none, or they belong to another model or graph.

        Args:
            folder: The folder that `save` wrote.
            identity: Digests of the model and the graph at hand.

        Raises:
            AdapterError: If the files are damaged.
        """
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise AdapterError(
                f"the cache at '{folder}' cannot be read ({error})", "remove the folder and prepare again"
            ) from error
        if manifest.get("format") != _FORMAT or manifest.get("identity") != dict(identity):
            return None
        rows: dict[Site, Tensor] = {}
        sums: dict[Site, Tensor] = {}
        output: dict[Key, Tensor] = {}
        for item in manifest["entries"]:
            tensor = _mapped(folder, item)
            if item["kind"] == "output":
                output[item["key"]] = tensor
                continue
            site = Site(**{**item["site"], "rows": range(*item["site"]["rows"])})
            (rows if item["kind"] == "rows" else sums)[site] = tensor
        return cls(rows, output, sums)


def _facts(site: Site) -> dict[str, Any]:
    return {**asdict(site), "rows": [site.rows.start, site.rows.stop]}


def _mapped(folder: Path, item: Mapping[str, Any]) -> Tensor:
    """A tensor of a raw file, read page by page as it is used."""
    path, dtype = folder / Path(item["file"]).name, getattr(torch, item["dtype"])
    count = 1
    for size in item["shape"]:
        count *= size
    expected = count * torch.empty((), dtype=dtype).element_size()
    if not path.is_file() or path.stat().st_size != expected:
        raise AdapterError(
            f"the cache file '{path}' is missing or has another size", "remove the folder and prepare again"
        )
    if not count:
        return torch.empty(item["shape"], dtype=dtype)
    return torch.from_file(str(path), shared=False, size=count, dtype=dtype).view(item["shape"])
