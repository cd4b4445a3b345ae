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
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from gnndelete.errors import AdapterError, bounded, why
from gnndelete.graph.batch import GraphBatch
from gnndelete.io.files import write
from gnndelete.nn.forward import evaluating
from gnndelete.nn.hooks import Key, Site, entry, listening, representations

MANIFEST, ROWS = "cache.json", "rows.safetensors"
_FORMAT = 2
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
        if (
            isinstance(session.data, GraphBatch)
            and isinstance(output, Tensor)
            and len(output) == session.data.num_graphs
        ):
            entries = {None: output}  # one row per graph
        for key, value in entries.items():  # the output of the last layer is often that of the model: kept once
            same = (kept for kept in rows.values() if kept.shape == value.shape and torch.equal(kept, value))
            entries[key] = next(same, value)
        sums = {site: value.flatten(1).sum(dim=0, dtype=torch.float64) for site, value in rows.items()}
        return cls(rows, entries, sums)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows; those of the last layer are often the model's output, and held once."""
        held = {value.data_ptr(): value for value in (*self.rows.values(), *self.output.values())}
        return sum(value.numel() * value.element_size() for value in held.values())

    def save(self, folder: Path, identity: Mapping[str, str], **facts: Any) -> None:
        """Write the rows to one file, and last the manifest that names and digests them.

        Args:
            folder: Where to write; it is made.
            identity: Digests of the model and the graph that the rows belong to.
            **facts: Further plain values, which `load` gives back.
        """
        tensors = {f"rows.{number}": rows for number, rows in enumerate(self.rows.values())}
        tensors |= {f"sums.{number}": self.sums[site] for number, site in enumerate(self.rows)}
        alone = {
            key: rows for key, rows in self.output.items() if not any(rows is known for known in self.rows.values())
        }
        tensors |= {f"output.{number}": rows for number, rows in enumerate(alone.values())}
        same = [
            [key, number]
            for key, rows in self.output.items()
            for number, known in enumerate(self.rows.values())
            if rows is known
        ]
        content = save({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()})
        manifest = {
            "format": _FORMAT,
            "identity": dict(identity),
            "sites": [{**asdict(site), "rows": [site.rows.start, site.rows.stop]} for site in self.rows],
            "output": list(alone),
            "output_of_site": same,
            "sha256": hashlib.sha256(content).hexdigest(),
            "facts": facts,
        }
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / ROWS, content, private=True)
        manifest = json.loads(json.dumps(manifest))  # as `load` reads it
        manifest["digest"] = _digest(manifest)
        write(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode(), private=True)

    @classmethod
    def load(cls, folder: Path, identity: Mapping[str, str]) -> tuple[Cache, dict[str, Any]] | None:
        """Map the file of `save` into memory; None where there is none, or it belongs to another model or graph.

        Every byte is read once and compared with the digest, so that no later request starts from a damaged row.

        Args:
            folder: The folder that `save` wrote.
            identity: Digests of the model and the graph at hand.

        Returns:
            The cache, whose rows are read from the disk as they are used, and the further facts.

        Raises:
            AdapterError: If the files are damaged.
        """
        if not (folder / MANIFEST).exists():
            return None
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if manifest.pop("digest") != _digest(manifest):
                raise ValueError(f"{MANIFEST} is not what was written")
            if manifest["format"] != _FORMAT or manifest["identity"] != dict(identity):
                return None
            with (folder / ROWS).open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != manifest["sha256"]:
                    raise ValueError(f"{ROWS} is not what was written")
            sites = [Site(**{**site, "rows": range(*site["rows"])}) for site in manifest["sites"]]
            with safe_open(folder / ROWS, framework="pt") as file:
                rows = {site: file.get_tensor(f"rows.{number}") for number, site in enumerate(sites)}
                sums = {site: file.get_tensor(f"sums.{number}") for number, site in enumerate(sites)}
                output = {key: file.get_tensor(f"output.{n}") for n, key in enumerate(manifest["output"])}
            output |= {key: rows[sites[number]] for key, number in manifest["output_of_site"]}
            return cls(rows, output, sums), manifest["facts"]
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            IndexError,
            AttributeError,
            RecursionError,
            SafetensorError,
        ) as error:
            raise AdapterError(
                f"the cache at '{folder}' cannot be read ({bounded(why(error), 200)})",
                "remove the folder and prepare again",
            ) from error


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
