"""Jobs: pieces of work that any process can do from plain values, and that never raise but say what went wrong."""

from __future__ import annotations

import errno
import math
import time
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal

from gnndelete.bench.cells import Cell, digest, title
from gnndelete.bench.words import full_memory
from gnndelete.errors import AbsentError, GNNDeleteError, ModelError, StorageError

Kind = Literal["model", "shadow", "cell"]

#: The kind of error of a method that does not apply to a model, a task or what is deleted: no failure, and no number.
UNFIT = "Unfit"

#: The kind of error of a disk on which nothing more can be written: no cell is to blame, and the next one would meet it too.
FULL = StorageError.__name__

#: The kind of error of a dataset that is not here: no cell is to blame, and once it is here they can be done.
ABSENT = AbsentError.__name__

#: The kind of error of a job whose process was ended from outside.
KILLED = "Killed"


@dataclass(frozen=True)
class Job:
    """A base model or a shadow model to train and keep, or a cell to measure."""

    kind: Kind
    cell: Cell  # of a model, one of the cells that need it
    models: Path
    device: str
    threads: int
    jobs: int

    @property
    def key(self) -> dict[str, Any]:
        return kept_under(self.kind, self.cell)

    @property
    def digest(self) -> str:
        return digest(self.key)

    def __str__(self) -> str:
        return str(self.cell) if self.kind == "cell" else f"{title(self.key)}: {self.kind}"


def kept_under(kind: Kind, cell: Cell) -> dict[str, Any]:
    """The key of a cell or of the model that it needs; empty where it needs no such model."""
    return cell.key if kind == "cell" else cell.base if kind == "model" else cell.shadow or {}


@dataclass(frozen=True)
class Done:
    """What came of a job: a row for a cell, an error for whatever failed."""

    job: Job
    row: dict[str, Any]

    @property
    def failed(self) -> bool:
        return "error" in self.row

    @property
    def unfit(self) -> bool:
        return self.row.get("kind") == UNFIT

    @property
    def absent(self) -> bool:
        return self.row.get("kind") == ABSENT

    @property
    def full(self) -> bool:
        return self.row.get("kind") == FULL


def perform(job: Job) -> Done:
    """Do a job. Whatever it raises is recorded: one cell that fails says nothing about the others."""
    import torch

    from gnndelete.bench.kept import base_model
    from gnndelete.bench.measure import measure, train_shadow_of
    from gnndelete.bench.provenance import provenance

    start = time.perf_counter()
    before = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    device = torch.device(job.device)
    try:
        if job.kind == "model":
            found: dict[str, Any] = {"seconds": base_model(job.cell.base, job.models, device).seconds}
        elif job.kind == "shadow":
            found = {"seconds": train_shadow_of(job.cell, job.models, device)}
        else:
            found = measure(job.cell, job.models, device)
    except Exception as error:
        found = _failure(error)
    finally:
        torch.set_num_threads(before)
    row = {"label": job.cell.label, **found, "wall_seconds": time.perf_counter() - start}
    return Done(job, finite({**row, **provenance(device, job.jobs, job.threads)}))


def killed(job: Job, said: str) -> Done:
    """What is recorded of a job that took its process with it: nobody else can say it."""
    import torch

    from gnndelete.bench.provenance import provenance

    row = {"label": job.cell.label, "error": said, "kind": KILLED}
    return Done(job, finite({**row, **provenance(torch.device(job.device), job.jobs, job.threads)}))


def failure(cell: Cell, row: dict[str, Any]) -> dict[str, Any]:
    """A cell that failed as a run tells of it: which one, why, and where, as far as that was kept."""
    return {"cell": str(cell), "error": row["error"], **({"where": row["where"]} if row.get("where") else {})}


def _failure(error: Exception) -> dict[str, Any]:
    """The error as one sentence, and its kind; of one that nobody raised on purpose, also where it came from."""
    lines, kind = str(error).strip().splitlines(), type(error).__name__
    said = full_memory(lines[0]) if lines else ""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return {"error": said, "kind": FULL}
    if isinstance(error, GNNDeleteError) or (lines and said != lines[0]):
        unfit = isinstance(error, ModelError) and " does not fit: " in said
        return {"error": said or kind, "kind": UNFIT if unfit else kind}
    return {"error": f"{kind}: {said}" if said else kind, "kind": kind, "where": _where(error)}


#: Packages in which an error surfaces; that of a method's author lies outside of them.
_SURFACES = ("gnndelete", "torch", "torch_geometric")


def _where(error: Exception) -> list[str]:
    """The innermost three places of an error, and the innermost one of the user's own code where it is further out."""
    places = [(_within(Path(frame.filename)), frame) for frame in extract_tb(error.__traceback__)]
    own = [index for index, (path, _) in enumerate(places) if path.parts[0] not in _SURFACES][-1:]
    shown = sorted({*own, *range(max(0, len(places) - 3), len(places))})
    return [f"{path.as_posix()}:{frame.lineno} {frame.name}" for path, frame in (places[index] for index in shown)]


def _within(path: Path) -> Path:
    """A file from the folder of its package on; a path of somebody's machine is nobody's business."""
    top = path.parent
    while top != top.parent and (top / "__init__.py").is_file():
        top = top.parent
    return path.relative_to(top)


def finite(value: Any) -> Any:
    """Plain JSON: what is no finite number becomes null.

    >>> finite({"a": [float("nan"), 1.0]})
    {'a': [None, 1.0]}
    """
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
