"""`compare`: several methods, several seeds, one deletion, one split, one table; finished rows are kept on disk."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from shutil import get_terminal_size
from statistics import mean, stdev
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.engine.session import Session
from gnndelete.errors import GNNDeleteError, SettingError
from gnndelete.evidence import evidence
from gnndelete.graph.batch import collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.hetero import HeteroGraph
from gnndelete.graph.validation import attributes, check_graph, tensor_digest
from gnndelete.io.progress import track
from gnndelete.methods import CONTROLS, GraphEraser, Method, Retrain, require_fit
from gnndelete.methods import resolver as methods_resolver
from gnndelete.methods.base import Context, Fit, reasons
from gnndelete.methods.gnndelete.node_embeddings import possible_vectors
from gnndelete.nn.forward import Forward, as_seen, call
from gnndelete.notes import Note
from gnndelete.registry import by_name
from gnndelete.tasks import LinkPrediction, NodeClassification, Task
from gnndelete.tasks import resolver as tasks_resolver
from gnndelete.tasks.trained import check_request
from gnndelete.titles import Kept, Titled, check_labels, titled
from gnndelete.training.loop import as_fitting
from gnndelete.unlearner import Unlearner
from gnndelete.version import __version__

Methods = Sequence[Method | str] | Mapping[str, Method | str]

_KINDS = ("positives", "negatives")

#: Scores in the order in which a table shows them, with their titles.
COLUMNS = {"test_auroc": "E_t AUROC", "test_accuracy": "accuracy", "test_f1": "F1", "deleted_auroc": "E_d AUROC"}

#: Columns of a terminal from which a table shows everything.
WIDE = 105


@dataclass(frozen=True, repr=False)
class Comparison:
    """Rows of results, one per method and seed; the untouched model is the row ``original``."""

    rows: tuple[dict[str, Any], ...]
    notes: tuple[Note, ...] = ()  # what a reader of the table must know

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(row["label"] for row in self.rows))

    def scores(self) -> list[str]:
        return [name for name in COLUMNS if any(name in row.get("scores", {}) for row in self.rows)]

    def summary(self) -> list[dict[str, Any]]:
        """Per method the mean and standard deviation over seeds, and the gap to Retrain, seed by seed."""
        retrain = next((row["label"] for row in self.rows if row.get("method") == "retrain"), None)
        reference = {row["seed"]: row["scores"] for row in self.rows if row["label"] == retrain and "scores" in row}
        result = []
        for label in self.methods:
            own = [row for row in self.rows if row["label"] == label]
            done = [row for row in own if "scores" in row]
            line: dict[str, Any] = {
                "method": label,
                "seeds": len(done),
                "assurance": next((row["assurance"] for row in done if row["assurance"]), None),
                "error": next((row["error"] for row in own if "error" in row), None),
            }
            for name in self.scores():
                values = [row["scores"][name] for row in done if name in row["scores"]]
                gaps = [
                    row["scores"][name] - reference[row["seed"]][name]
                    for row in done
                    if name in row["scores"] and name in reference.get(row["seed"], {})
                ]
                line[name] = _spread(values)
                line[f"{name}_gap"] = _spread(gaps) if label != retrain else None
            for name in ("seconds", "parameters", "peak_mb"):
                line[name] = _spread([row[name] for row in done if row.get(name) is not None])
            result.append(line)
        return result

    def to_dict(self) -> dict[str, Any]:
        return {"rows": list(self.rows), "summary": self.summary(), "notes": [note.to_dict() for note in self.notes]}

    def table(self, title: str | None = None, wide: bool = True) -> Table:
        """A rich table for the terminal; a narrow one shortens titles and leaves out spreads, parameters and memory."""
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        for name in self.scores():
            table.add_column(COLUMNS[name] if wide else COLUMNS[name].split()[0], justify="right", no_wrap=True)
            table.add_column("gap to Retrain" if wide else "gap", justify="right", no_wrap=True)
        costs = {"seconds": ".3g", **({"parameters": ",.0f", "peak_mb": ",.0f"} if wide else {})}
        if not all(
            row.get("peak_mb") for row in self.rows if "seconds" in row
        ):  # on a CPU nobody counts it, or not for all
            costs.pop("peak_mb", None)
        for name in costs:
            table.add_column(name.replace("_mb", " MB"), justify="right", no_wrap=True)
        table.add_column("assurance", no_wrap=True)
        for line in self.summary():
            cells = [line["method"]]
            for name in self.scores():
                cells += [_cell(line[name], ".3f", spread=wide), _cell(line[f"{name}_gap"], "+.3f", spread=False)]
            cells += [_cell(line[name], form, spread=False) for name, form in costs.items()]
            table.add_row(*cells, line["assurance"] or ("failed" if line["error"] else "-"))
        return table

    def failures(self) -> list[str]:
        """One sentence for every method that failed; they would not fit into the table."""
        return [f"{line['method']} failed: {line['error']}" for line in self.summary() if line["error"]]

    def __repr__(self) -> str:
        return f"Comparison(methods={self.methods}, rows={len(self.rows)})"

    def __str__(self) -> str:
        narrow = sys.stdout is not None and sys.stdout.isatty() and get_terminal_size().columns < WIDE
        console = Console(width=get_terminal_size().columns if narrow else 170, record=True, file=io.StringIO())
        console.print(self.table(wide=not narrow))
        for note in (*self.failures(), *(f"note: {note.text}" for note in self.notes)):
            console.print(note, markup=False, highlight=False)
        return console.export_text()


def compare(
    model: nn.Module,
    data: Data,
    deletion: Deletion,
    task: Task | str,
    methods: Methods | str | None = None,
    seeds: Iterable[int] | int = (0,),
    *,
    forward: Forward | None = None,
    fit: Fit | None = None,
    build: Callable[[], nn.Module] | None = None,
    controls: bool = True,
    store: str | PathLike[str] | None = None,
    schedule: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Comparison:
    """Delete the same elements by several methods from several seeds and put the results side by side.

    Without ``methods`` every registered one that fits is run. A row is called by the name of its method and the settings in
    which it is not the default, presets by theirs (``gnndelete paper()``), or by the labels of ``{label: method}``.
    Retrain runs once per seed, where it fits, since every gap is measured against it; the controls run beside them. With
    ``store``, a JSON-lines file, finished rows are kept and an interrupted comparison goes on where it was; rows made from
    other settings, models or graphs are never mixed in.
    Give ``fit(model, data, seed)`` with the schedule your model was trained by: without it Retrain trains 1,000 epochs.
    A function cannot be told from another on disk, so name in ``schedule`` the plain values that ``fit`` depends on.

    >>> from gnndelete.testing import problem
    >>> model, data, task = problem("node")
    >>> table = compare(model, data, Deletion(nodes=[1]), task, ["unlink"], fit=lambda model, data, seed: model)
    >>> table.methods
    ['original', 'retrain', 'unlink', 'zeroed', 'untrained']
    """
    seeds = list(range(seeds) if isinstance(seeds, int) else seeds)
    if not seeds or (methods is not None and not methods):
        raise SettingError("there is nothing to compare: give at least one seed and one method")
    methods = [methods] if isinstance(methods, str) else methods
    data = collate(data)
    if not isinstance(data, Data):
        check_graph(data)
    known: Task = by_name("task", task, tasks_resolver).on(data)
    known.check(data)
    session = Session(model, data, as_seen(forward) or call)
    checked = check_request(deletion, data, session.table, known)
    context = Context(session, task=known, fit=as_fitting(fit), build=build).for_deletion(checked)
    chosen = _chosen(methods, context, controls)
    scope = {
        "version": __version__,
        "model": session.base_fingerprint(),
        "graph": session.graph_fingerprint(),
        **({"attributes": described} if (described := attributes(data)) else {}),
        "deletion": checked.fingerprint,
        "task": _task_digest(known, data),
        "schedule": None if fit is None else dict(schedule or {}),
        "device": data.edge_index.device.type,
    }
    vectors = bool(possible_vectors(model, data))
    rows = [{"label": "original", "seed": s, "assurance": None, "scores": _original(context, s)} for s in seeds]

    def key(one: Titled, seed: int) -> dict[str, Any]:
        rule = one.method.rule(known.name, vectors)
        own = {"method": one.method.name, "settings": one.method.settings(), "rule": rule}
        return {**scope, "label": one.label, **own, "seed": seed}

    jobs = [(one, seed) for seed in seeds for one in chosen]
    done = Kept(store, (key(*job) for job in jobs))
    for one, seed in track(jobs, "comparing", progress, lambda job: f"{job[0].label}, seed {job[1]}"):
        row = done.get(key(one, seed), one)
        if row is None:
            row = _run(one.label, one.method, seed, context)
            done.add(key(one, seed), row)
        rows.append(row)
    return Comparison(tuple(rows), (*_without_reference(chosen, context), *_notes(chosen, fit, schedule or {})))


def _task_digest(task: Task, data: Data) -> str:
    """What scores are taken on: unseen and test edges, or labels and masks."""
    if isinstance(task, LinkPrediction):
        parts = {"validation": task.validation, "test": task.test}
        pairs = {f"{name}.{kind}": getattr(part, kind) for name, part in parts.items() if part for kind in _KINDS}
        return tensor_digest({name: value for name, value in pairs.items() if value is not None})
    names = ("y", "train_mask", "val_mask", "test_mask")
    own = (
        data.hetero[task.node_type] if isinstance(task, NodeClassification) and isinstance(data, HeteroGraph) else data
    )
    return tensor_digest({name: own[name] for name in names if isinstance(own.get(name), Tensor)})


def _chosen(methods: Methods | None, context: Context, controls: bool) -> list[Titled]:
    if methods is None:
        made = [method() for _, method in sorted(methods_resolver.lookup_dict.items())]
        picked = titled(method for method in made if not reasons(method, context))
    elif isinstance(methods, Mapping):
        picked = [
            Titled(str(name), by_name("method", value, methods_resolver), given=True) for name, value in methods.items()
        ]
    else:
        picked = titled(by_name("method", method, methods_resolver) for method in methods)
    if methods is not None:
        for one in picked:
            require_fit(one.method, context)
    if not any(one.method.name == "retrain" for one in picked):
        reference = methods_resolver.make("retrain")
        picked = [*([] if reasons(reference, context) else titled([reference])), *picked]
    chosen = titled((c for control in CONTROLS if not reasons(c := control(), context)), picked) if controls else picked
    check_labels(chosen, ["original", *(control.name for control in CONTROLS if controls)])
    return chosen


def _without_reference(chosen: list[Titled], context: Context) -> tuple[Note, ...]:
    """Why there is nothing to take gaps to, where there is not."""
    if any(one.method.name == Retrain.name for one in chosen):
        return ()
    why = reasons(methods_resolver.make(Retrain.name), context)
    return (Note("no-reference", f"Retrain does not fit, so there are no gaps to it: {why[0]}"),) if why else ()


def _notes(chosen: list[Titled], fit: Fit | None, schedule: Mapping[str, Any]) -> tuple[Note, ...]:
    if fit is not None:
        return tuple(note for one in chosen if (note := _own_schedule(one, schedule)))
    trained = {one.method.epochs for one in chosen if isinstance(one.method, Retrain)}
    return tuple(
        Note(
            "schedule-default",
            f"Without fit=, Retrain trained {epochs:,} epochs of the built-in schedule. If your model was trained by another "
            "schedule, the gap to Retrain also contains the gap between the schedules.",
        )
        for epochs in sorted(trained)
    )


def _own_schedule(one: Titled, schedule: Mapping[str, Any]) -> Note | None:
    """What a reader must know of a method that trains models like the user's, but not by ``fit``."""
    if not isinstance(one.method, GraphEraser) or one.method.use_fit:
        return None
    own = {"epochs": one.method.epochs, "lr": one.method.lr}
    if own == {name: schedule.get(name) for name in own}:
        return None
    return Note(
        "schedule-of-shards",
        f"{one.label} trained its shards for {own['epochs']:,} epochs at lr {own['lr']:g}, and not by fit, so its seconds and "
        "scores are not those of your schedule. Give GraphEraser(epochs=…, lr=…) with yours, or use_fit=True if fit can "
        "train a part of the graph.",
    )


def _original(context: Context, seed: int) -> dict[str, float]:
    assert context.task is not None
    forward = context.session.forward
    return evidence(
        context.model, context.data, context.task, context.deletion, context.remaining, seed=seed, forward=forward
    )


def _run(label: str, method: Method, seed: int, context: Context) -> dict[str, Any]:
    row: dict[str, Any] = {"label": label, "method": method.name, "settings": method.settings(), "seed": seed}
    start = time.perf_counter()
    try:
        unlearner = Unlearner(
            context.model,
            context.data,
            task=context.task,
            method=method,
            forward=context.session.forward,
            fit=context.fit,
            build=context.build,
            seed=seed,
        )
        unlearned = unlearner.delete(context.deletion)
        scores = unlearned.evaluate()
    except GNNDeleteError as error:  # recorded, shown, and never counted as a number
        return row | {"error": str(error), "assurance": None, "seconds_until_error": time.perf_counter() - start}
    return row | {
        "assurance": unlearned.assurance,
        "scores": scores,
        "seconds": unlearned.seconds,
        "parameters": unlearned.parameters,
        "peak_mb": unlearned.peak_mb,
        "notes": [note.to_dict() for note in unlearned.notes],
        "details": unlearned.details,
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0} if values else None


def _cell(value: dict[str, float] | None, form: str, spread: bool) -> str:
    if value is None:
        return "-"
    text = f"{value['mean']:{form}}"
    return f"{text} ±{value['std']:{form}}" if spread and value["std"] else text
