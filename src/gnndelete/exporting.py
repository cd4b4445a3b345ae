"""Export for serving: the rows of all nodes with their ids, for a vector index, or the model as a program.

Rows are written beside a list of what changed since an earlier export, so that an index is brought up to date by a few
upserts and removals.
"""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import json
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch_geometric.data import Data, HeteroData

from gnndelete.datasets.ids import IdMap
from gnndelete.datasets.table_files import need_pyarrow
from gnndelete.errors import GraphError, ModelError, NotYetError, SettingError, bounded, some, unknown
from gnndelete.graph.batch import GraphBatch, as_user_graph, collate
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.io.files import commit
from gnndelete.nn.forward import Forward, evaluating, resolve_forward
from gnndelete.nn.layers import working_copy
from gnndelete.tasks import Task
from gnndelete.tasks.base import representation

Format = Literal["embeddings", "npy", "onnx", "torch.export"]
FORMATS = ("embeddings", "npy", "onnx", "torch.export")

#: Says what an export folder holds, and lists what changed in it.
EXPORT, CHANGES, INPUTS = "export.json", "changes.csv", "inputs.npz"
_FORMAT = "gnndelete-export-1"


@dataclass(frozen=True)
class _Rows:
    """The rows of one node type: ids as text, and a float per column."""

    ids: list[str]
    values: np.ndarray


def export(
    model: nn.Module,
    data: Data | HeteroData,
    path: str | PathLike[str],
    format: Format = "embeddings",
    *,
    task: Task | None = None,
    forward: Forward | None = None,
    ids: IdMap | None = None,
    since: str | PathLike[str] | None = None,
    gone: Tensor | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write what a serving system loads to a folder. `Unlearned.export` does this for the result of a deletion.

    ``"embeddings"`` writes the output row of every node with its id, one Parquet file for each node type, and ``"npy"`` the
    same as ``TYPE.npy`` with ``TYPE.ids.txt``. ``changes.csv`` lists the rows that are new, updated or removed since an earlier
    export: the one in ``since``, else the one that is replaced. ``"onnx"`` and ``"torch.export"`` write the model as a program
    of the tensors of its graph, whose number of edges may change, with these tensors in ``inputs.npz``, and for link tasks a
    second program that scores pairs of its rows.

    Args:
        model: The model, with or without operators.
        data: The graph that it is served on.
        path: The folder. An earlier export in it is replaced; other files are never overwritten.
        format: ``"embeddings"``, ``"npy"``, ``"onnx"`` or ``"torch.export"``.
        task: What the model was trained for: says how pairs of rows are scored.
        forward: ``forward(model, data)`` runs the model, where the default call does not fit.
        ids: The names of the nodes; numbers within each type by default.
        since: The folder of an earlier export of rows.
        gone: Deleted nodes, whose rows are left out.
        facts: Further facts for ``export.json``.

    Returns:
        What was written, as in ``export.json``.

    Raises:
        SettingError: If the format, the folder or the earlier export cannot be used.
        ModelError: If the model returns no row for each node, or cannot be made a program.

    >>> import tempfile, gnndelete as gd
    >>> data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    >>> folder = tempfile.mkdtemp()
    >>> gd.export(gd.models.LightGCN(3, out=4), data, folder, "npy")["rows"]
    {'nodes': 3}
    >>> gd.export(gd.models.LightGCN(3, out=4), data, folder, "npy", gone=torch.tensor([2]))["changes"]
    {'added': 0, 'updated': 2, 'removed': 1}
    """
    if format not in FORMATS:
        raise SettingError(unknown("there is no export format", str(format), FORMATS))
    folder, graph, run = Path(path), collate(data), resolve_forward(forward)
    earlier = _earlier(folder)
    if earlier is not None and earlier["kind"] != format:
        raise SettingError(f"'{folder}' holds an export as {earlier['kind']}; name another folder for one as {format}")
    if isinstance(graph, GraphBatch):
        raise NotYetError(
            "a set of graphs cannot be exported yet", "save the model with torch.save(model.state_dict(), …)"
        )
    values: dict[str, Any] = {"format": _FORMAT, "kind": format, "graph": fingerprint(graph), **(facts or {})}
    as_program = format in ("onnx", "torch.export")
    if as_program and since is not None:
        raise SettingError(f"since names an earlier export of rows, and {format} exports a program; leave it out")
    if as_program:
        with evaluating(served := working_copy(model).cpu()):
            contents, more = _programs(served, copy.copy(graph).to("cpu"), run, task, format)
    else:
        with evaluating(model):
            output = run(model, graph)
        rows = _rows(output, graph, ids, torch.empty(0, dtype=torch.long) if gone is None else gone.cpu())
        contents, more = _row_files(rows, format, folder if since is None and earlier is not None else since)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    values |= {**more, "files": digests}
    contents[EXPORT] = (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
    left = [folder / name for name in (earlier or {}).get("files", ()) if name not in contents]
    files = {folder / name: content for name, content in contents.items()}
    commit(files, remove=left, private=[folder / CHANGES])
    return values


def _earlier(folder: Path) -> dict[str, Any] | None:
    """What an export that is already in a folder holds; a folder with other files is refused."""
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"'{folder}' is a file; name a folder to export to")
    if (folder / EXPORT).is_file():
        return _read(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise SettingError(f"'{folder}' holds other files and no earlier export; name a new folder")
    return None


def _read(folder: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads((folder / EXPORT).read_bytes())
        if values["format"] != _FORMAT or values["kind"] not in FORMATS or not isinstance(values["files"], dict):
            raise ValueError("another format")
    except OSError:
        raise SettingError(f"'{folder}' holds no earlier export (no {EXPORT}); name the folder of one") from None
    except (ValueError, KeyError, TypeError) as error:
        raise SettingError(f"'{folder / EXPORT}' is damaged ({error}); export to a new folder") from None
    return values


# Rows.


def _rows(output: Any, graph: Data, ids: IdMap | None, gone: Tensor) -> dict[str, _Rows]:
    """The rows of every node type but those of deleted nodes."""
    count = int(graph.num_nodes or 0)
    if ids is not None and len(ids) != count:
        raise GraphError(f"the graph has {count} nodes and {len(ids)} ids", "give the ids of this graph")
    if isinstance(graph, HeteroGraph):
        types = {
            name: rows for name, rows in graph.types.nodes.items() if not isinstance(output, dict) or name in output
        }
        parts = {name: representation(output, name) for name in types}
    else:
        types = {} if ids is None else dict(ids.types)
        types = types or {"nodes": range(count)}
        whole = representation(output)
        if whole.size(0) != count:
            raise _no_rows(whole, count)
        parts = {name: whole[rows.start : rows.stop] for name, rows in types.items()}
    stays = torch.ones(count, dtype=torch.bool).index_fill(0, gone, False)
    found = {}
    for name, part in parts.items():
        rows = types[name]
        if part.dim() < 2 or part.size(0) != len(rows):
            raise _no_rows(part, len(rows))
        kept = stays[rows.start : rows.stop]
        names = map(str, range(len(rows))) if ids is None else ids.names[rows.start : rows.stop]
        chosen = [each for each, keep in zip(names, kept.tolist(), strict=True) if keep]
        found[name] = _Rows(chosen, part.detach().cpu()[kept].flatten(1).float().numpy())
    return found


def _no_rows(found: Tensor, count: int) -> ModelError:
    return ModelError(
        f"the model returned {list(found.shape)} on {count} nodes, and an export of rows needs a vector for each node",
        "export the model itself, as onnx or torch.export, or give it a forward that returns its embeddings",
    )


def _row_files(
    rows: Mapping[str, _Rows], format: str, since: str | PathLike[str] | None
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an export of rows, and what they hold."""
    names = _file_names(list(rows))
    contents: dict[str, bytes] = {}
    for kind, part in rows.items():
        if format == "npy":
            contents[f"{names[kind]}.npy"] = _bytes(lambda file, part=part: np.save(file, part.values))
            contents[f"{names[kind]}.ids.txt"] = "".join(f"{each}\n" for each in part.ids).encode()
        else:
            contents[f"{names[kind]}.parquet"] = _to_parquet(part)
    values: dict[str, Any] = {
        "types": names,
        "rows": {kind: len(part.ids) for kind, part in rows.items()},
        "width": {kind: part.values.shape[1] for kind, part in rows.items()},
    }
    if since is None:
        return contents, values
    before, listed = dict(_read_rows(Path(since))), []
    for kind in dict.fromkeys([*rows, *before]):
        none = _Rows([], np.empty((0, 0), dtype=np.float32))
        listed += [(kind, *each) for each in _changes(before.get(kind, none), rows.get(kind, none))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("type", "id", "change"))
    writer.writerows(listed)
    contents[CHANGES] = text.getvalue().encode()
    counts = {change: sum(each[2] == change for each in listed) for change in ("added", "updated", "removed")}
    return contents, {
        **values,
        "since": hashlib.sha256((Path(since) / EXPORT).read_bytes()).hexdigest(),
        "changes": counts,
    }


def _changes(before: _Rows, after: _Rows) -> Iterator[tuple[str, str]]:
    """What has to be done to an index to bring it from one export to the next."""
    place = {name: row for row, name in enumerate(before.ids)}
    there = np.array([place.get(name, -1) for name in after.ids], dtype=np.int64)
    same = there >= 0
    if before.values.shape[1] == after.values.shape[1]:
        same[same] = (before.values[there[same]] == after.values[same]).all(axis=1)
    else:
        same[:] = False
    for row in np.flatnonzero(~same).tolist():
        yield after.ids[row], "updated" if there[row] >= 0 else "added"
    stays = set(after.ids)
    yield from ((name, "removed") for name in before.ids if name not in stays)


def _file_names(kinds: Sequence[str]) -> dict[str, str]:
    """A file name for every node type."""
    plain = {kind: re.sub(r"[^\w-]", "_", kind) for kind in kinds}
    return plain if len(set(plain.values())) == len(kinds) else {kind: f"type{n}" for n, kind in enumerate(kinds)}


def _to_parquet(rows: _Rows) -> bytes:
    pyarrow = need_pyarrow("and writing Parquet")
    width = max(rows.values.shape[1], 1)
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.values.reshape(-1)), width)
    table = pyarrow.table({"id": pyarrow.array(rows.ids, pyarrow.string()), "embedding": lists})
    return _bytes(lambda file: pyarrow.parquet.write_table(table, file))


def _bytes(write: Any) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _read_rows(folder: Path) -> Iterator[tuple[str, _Rows]]:
    """The rows of an earlier export, by node type."""
    values = _read(folder)
    if "types" not in values:
        raise SettingError(
            f"'{folder}' holds a program ({values.get('kind')}) and no rows; name an export of embeddings"
        )
    try:
        for kind, name in values["types"].items():
            if values["kind"] == "npy":
                ids = (folder / f"{name}.ids.txt").read_text().split("\n")[:-1]
                yield kind, _Rows(ids, np.load(folder / f"{name}.npy", mmap_mode="r"))
            else:
                table = need_pyarrow("an earlier export").parquet.read_table(folder / f"{name}.parquet")
                flat = table.column("embedding").combine_chunks().flatten().to_numpy(zero_copy_only=False)
                yield kind, _Rows(table.column("id").to_pylist(), flat.reshape(table.num_rows, -1))
    except (OSError, ValueError, KeyError) as error:
        raise SettingError(f"the export in '{folder}' is damaged ({error}); name another one, or export anew") from None


# Programs.


class _Program(nn.Module):
    """A model as a function of the tensors of its graph."""

    def __init__(self, model: nn.Module, data: Data | HeteroData, forward: Forward, names: Sequence[Any]) -> None:
        super().__init__()
        self.model, self.data, self.run, self.names = model, data, forward, names

    def forward(self, *tensors: Tensor) -> Any:
        data = copy.copy(self.data)
        for (kind, name), value in zip(self.names, tensors, strict=True):
            (data if kind is None else data[kind])[name] = value
        return self.run(self.model, data)


class _Score(nn.Module):
    """How a link task scores pairs of what the model returned."""

    def __init__(self, model: nn.Module, task: Any, tree: Any) -> None:
        super().__init__()
        self.model, self.decode, self.tree = model, task.decoder_of(model), tree

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.decode(pytree.tree_unflatten(list(tensors[:-1]), self.tree), tensors[-1]).view(-1)


def _programs(
    model: nn.Module, graph: Data, forward: Forward, task: Task | None, format: str
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an export of programs, and what they take and return."""
    data = as_user_graph(graph)
    inputs = _tensors(data)
    program = _traced(_Program(model, data, forward, list(inputs)), list(inputs.values()), _dynamic(data, inputs))
    used = [bool(node.users) for node in program.graph.nodes if node.op == "placeholder"][-len(inputs) :]
    if not all(used):  # such as labels and masks
        inputs = {key: value for (key, value), is_used in zip(inputs.items(), used, strict=True) if is_used}
        program = _traced(_Program(model, data, forward, list(inputs)), list(inputs.values()), _dynamic(data, inputs))
    names = [_name(kind, name) for kind, name in inputs]
    output = forward(model, graph)
    leaves, tree = pytree.tree_flatten(output)
    outputs = (
        [f"rows.{kind}" for kind in output] if isinstance(output, dict) else [f"rows.{n}" for n in range(len(leaves))]
    )
    outputs = ["rows"] if isinstance(output, Tensor) else outputs
    suffix = {"onnx": "onnx", "torch.export": "pt2"}[format]
    contents = {f"model.{suffix}": _dumped(program, format, names, outputs)}
    values: dict[str, Any] = {"inputs": names, "outputs": outputs}
    if task is not None and task.pairwise:
        pairs = torch.zeros(3 if "edge_type" in data else 2, 4, dtype=torch.long)
        score = _traced(_Score(model, task, tree), [*leaves, pairs], [None] * len(leaves) + [{1: _dim("pairs")}])
        contents[f"score.{suffix}"] = _dumped(score, format, [*outputs, "pairs"], ["scores"])
        values["score"] = {"inputs": [*outputs, "pairs"], "outputs": ["scores"]}
    arrays: dict[str, Any] = dict(zip(names, (value.detach().numpy() for value in inputs.values()), strict=True))
    contents[INPUTS] = _bytes(lambda file: np.savez(file, **arrays))
    return contents, values


def _tensors(data: Data | HeteroData) -> dict[tuple[Any, str], Tensor]:
    """Every dense tensor of a graph, by its type (None for a ``Data``) and name."""
    stores = (
        [(store._key, store) for store in data.stores[1:]] if isinstance(data, HeteroData) else [(None, data._store)]
    )
    return {
        (kind, name): value
        for kind, store in stores
        for name, value in store.items()
        if isinstance(value, Tensor) and value.layout == torch.strided
    }


def _name(kind: Any, name: str) -> str:
    return ".".join([*([kind] if isinstance(kind, str) else kind or ()), name])


def _dim(name: str) -> Any:
    return torch.export.Dim(name, min=2)


def _dynamic(data: Data | HeteroData, inputs: Mapping[tuple[Any, str], Tensor]) -> list[Any]:
    """Which dimensions may change: the number of edges of each type, where there are at least two."""
    dims: dict[Any, Any] = {}
    found: list[Any] = []
    for (kind, name), value in inputs.items():
        store = data if kind is None else data[kind]
        place = int(data.__cat_dim__(name, value, store)) % max(value.dim(), 1)
        if not store.is_edge_attr(name) or value.size(place) < 2 or value.size(place) != store.num_edges:
            found.append(None)
            continue
        found.append({place: dims.setdefault(kind, _dim(f"edges{len(dims)}"))})
    return found


def _traced(program: nn.Module, inputs: list[Tensor], dynamic: list[Any]) -> Any:
    with _as_model_error("it cannot be traced"), torch.no_grad():
        return torch.export.export(program, tuple(inputs), dynamic_shapes=(tuple(dynamic),), strict=False)


def _dumped(program: Any, format: str, inputs: list[str], outputs: list[str]) -> bytes:
    """A program as the content of a file."""
    if format == "torch.export":
        return _bytes(lambda file: torch.export.save(program, file))
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise SettingError(
            "exporting to ONNX needs onnx and onnxscript; install them with: pip install 'gnndelete[onnx]', or export as "
            "torch.export"
        ) from None
    with _as_model_error("it cannot be written as ONNX"), tempfile.TemporaryDirectory() as folder:
        made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=inputs, output_names=outputs)
        assert made is not None
        made.save(str(Path(folder) / "model.onnx"), external_data=False)
        return (Path(folder) / "model.onnx").read_bytes()


@contextmanager
def _as_model_error(what: str) -> Iterator[None]:
    """Errors of torch's exporters, which are of any kind, as one of the model."""
    import logging

    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch._export")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (torch.OutOfMemoryError, SettingError):
        raise
    except Exception as error:
        said = bounded((str(error).strip().splitlines() or [type(error).__name__])[0], 200)
        raise ModelError(
            f"the model cannot be exported as a program: {what} ({said})",
            "export its rows (embeddings or npy), or remove what depends on values, such as an if on a tensor, from its forward",
        ) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def describe(values: Mapping[str, Any]) -> list[str]:
    """What an export holds, in sentences.

    Args:
        values: What `export` returned.
    """
    if "rows" not in values:
        score = ", and score(rows, pairs)" if "score" in values else ""
        return [f"a program of {some(values['inputs'], 8)}{score}; {INPUTS} holds these of the graph to serve on"]
    counts = some((f"{count:,} {kind}" for kind, count in values["rows"].items()), 8)
    lines = [f"rows of {counts}, {some(sorted(set(values['width'].values())), 3)} numbers each"]
    if "changes" in values:
        changes = ", ".join(f"{count:,} {change}" for change, count in values["changes"].items())
        lines.append(
            f"changed since the last export: {changes} ({CHANGES}; it names removed nodes: delete it once applied)"
        )
    return lines
