"""`compare`: several methods and seeds, one deletion, one table. Finished rows can be stored on disk."""

from __future__ import annotations

import inspect
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
from torch import nn
from torch_geometric.data import Data

from gnndelete import __version__
from gnndelete.engine.session import Session
from gnndelete.errors import GNNDeleteError, SettingError
from gnndelete.graph.batch import collate
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.fingerprint import attributes, tensor_digest
from gnndelete.graph.validation import check_deletion, check_graph
from gnndelete.io.memory import PeakMemory
from gnndelete.io.progress import track
from gnndelete.io.store import Store
from gnndelete.methods import CONTROLS, GraphEraser, Method, Retrain, require_fit
from gnndelete.methods import resolver as methods_resolver
from gnndelete.methods.base import Context, Fit, plain, reasons
from gnndelete.nn.forward import Forward, resolve_forward
from gnndelete.notes import Note
from gnndelete.registry import by_name
from gnndelete.result import evidence
from gnndelete.tasks import Task
from gnndelete.tasks import resolver as tasks_resolver
from gnndelete.training.loop import as_fitting
from gnndelete.unlearner import Unlearner

Methods = Sequence[Method | str] | Mapping[str, Method | str]

#: Scores in the order in which a table shows them, with their titles.
COLUMNS = {
    "test_auroc": "test AUROC",
    "test_ndcg@10": "NDCG@10",
    "test_accuracy": "accuracy",
    "test_f1": "F1",
    "deleted_auroc": "deleted AUROC",
}

#: Columns of a terminal from which a table shows everything.
WIDE = 130


@dataclass(frozen=True, repr=False)
class Comparison:
    """Rows of results, one per method and seed; the untouched model is the row ``original``.

    Args:
        rows: The results.
        notes: What a reader of the table must know.
    """

    rows: tuple[dict[str, Any], ...]
    notes: tuple[Note, ...] = ()

    @property
    def methods(self) -> list[str]:
        """The labels of the rows, each once."""
        return list(dict.fromkeys(row["label"] for row in self.rows))

    def scores(self) -> list[str]:
        """Return the names of the scores that some row has."""
        return [name for name in COLUMNS if any(name in row.get("scores", {}) for row in self.rows)]

    def summary(self) -> list[dict[str, Any]]:
        """Return the mean and standard deviation over seeds per method, and the gap to Retrain seed by seed."""
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
                "weights": next((row["weights"] for row in done if row.get("weights")), None),
                "error": next((row["error"] for row in own if "error" in row), None),
            }
            for name in self.scores():
                values = [row["scores"][name] for row in done if name in row["scores"]]
                gaps = [
                    row["scores"][name] - reference[row["seed"]][name]
                    for row in done
                    if name in row["scores"] and name in reference.get(row["seed"], {})
                ]
                line[name] = _mean_and_std(values)
                line[f"{name}_gap"] = _mean_and_std(gaps) if label != retrain else None
            for name in ("seconds", "parameters", "peak_mb"):
                line[name] = _mean_and_std([row[name] for row in done if row.get(name) is not None])
            result.append(line)
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return rows, summary and notes as plain values."""
        return {"rows": list(self.rows), "summary": self.summary(), "notes": [note.to_dict() for note in self.notes]}

    def table(self, title: str | None = None, wide: bool = True) -> Table:
        """Return a table for the terminal.

        Args:
            title: The title above it.
            wide: Show spreads, parameters and memory, too.
        """
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("", no_wrap=True)
        gaps = wide or len(self.scores()) < 3  # else the row of Retrain has to do
        for name in self.scores():
            table.add_column(COLUMNS[name] if wide else COLUMNS[name].split()[0], justify="right", no_wrap=True)
            if gaps:
                table.add_column("gap to Retrain" if wide else "gap", justify="right", no_wrap=True)
        costs = {"seconds": ".3g", **({"parameters": ",.0f", "peak_mb": ",.0f"} if wide else {})}
        if not all(
            row.get("peak_mb") for row in self.rows if "seconds" in row
        ):  # on a CPU nobody counts it, or not for all
            costs.pop("peak_mb", None)
        for name in costs:
            table.add_column(name.replace("_mb", " MB"), justify="right", no_wrap=True)
        table.add_column("assurance", no_wrap=wide)  # where the terminal is narrow, numbers come first
        table.add_column("weights", no_wrap=True)
        for line in self.summary():
            cells = [line["method"]]
            for name in self.scores():
                cells.append(_cell(line[name], ".3f", spread=wide))
                cells += [_cell(line[f"{name}_gap"], "+.3f", spread=False)] if gaps else []
            cells += [_cell(line[name], form, spread=False) for name, form in costs.items()]
            table.add_row(*cells, line["assurance"] or ("failed" if line["error"] else "-"), line["weights"] or "-")
        return table

    def failures(self) -> list[str]:
        """Return one sentence for every method that failed."""
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
    """Delete the same elements by several methods and seeds, and put the results into one table.

    Retrain runs once per seed where it fits, since every gap is measured to it.

    Args:
        model: The trained model.
        data: The graph that it was trained on.
        deletion: What must be forgotten.
        task: What the model was trained for, as a task or its name.
        methods: Methods, their names, or ``{label: method}``. The default is every registered method that fits. Rows
            without a label are named after the method and the settings that are not its defaults.
        seeds: The seeds, or how many of them.
        forward: ``forward(model, data)`` runs the model, where the default call does not fit.
        fit: ``fit(model, data, seed)`` trains a model by your schedule. Without it Retrain trains 1,000 epochs.
        build: ``build()`` returns an untrained model.
        controls: Add two ruined models, which show that a high deleted AUROC alone proves nothing.
        store: A JSON-lines file that keeps finished rows, so that an interrupted comparison can be resumed. Rows of other
            settings, models or graphs are never mixed in.
        schedule: The plain values that ``fit`` depends on. They are part of the key of a stored row.
        progress: Show a progress bar.

    Returns:
        One row per method and seed, and ``original`` for the untouched model.

    Raises:
        SettingError: If there is no seed or method, or two rows have one label.
        RequestError: If a method does not fit, or the graph does not have what the deletion names.

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
    session = Session(model, data, resolve_forward(forward))
    checked = check_deletion(deletion, data, session.table, known.unseen_edges)
    context = Context(session, task=known, fit=fit and as_fitting(fit), build=build).for_deletion(checked)
    chosen = _chosen(methods, context, controls)
    scope = {
        "version": __version__,
        "model": session.base_fingerprint(),
        "graph": session.graph_fingerprint(),
        **({"attributes": described} if (described := attributes(data)) else {}),
        "deletion": checked.fingerprint,
        "task": tensor_digest(known.measured_on(data)),
        "schedule": None if fit is None else dict(schedule or {}),
        "device": data.edge_index.device.type,
    }
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        before = evidence(model, data, known, checked, context.remaining, seed=seed, forward=session.forward)
        rows.append({"label": "original", "seed": seed, "assurance": None, "scores": before})

    def key(one: LabelledMethod, seed: int) -> dict[str, Any]:
        own = {"method": one.method.name, "settings": plain(one.method.settings())}
        return {**scope, "label": one.label, **own, "seed": seed}

    jobs = [(one, seed) for seed in seeds for one in chosen]
    done = Store(store)
    for one, seed in track(jobs, "comparing", progress, lambda job: f"{job[0].label}, seed {job[1]}"):
        row = done.get(key(one, seed))
        if row is None or "error" in row:
            row = _run(one.label, one.method, seed, context)
            done.add(key(one, seed), row)
        rows.append(row)
    return Comparison(tuple(rows), _notes(chosen, context, schedule or {}))


#: How many settings a label names; a label names all of them where two methods would have the same label.
SETTINGS_IN_LABEL = 3


@dataclass(frozen=True)
class LabelledMethod:
    """A method with its label in the table."""

    label: str
    method: Method
    chosen_by_user: bool = False


def method_label(method: Method, named: int | None = SETTINGS_IN_LABEL) -> str:
    """The name of a method with the settings that differ from its defaults, or from the nearest preset.

    >>> from gnndelete.methods import GNNDelete
    >>> method_label(GNNDelete(aim="nonexistent")), method_label(GNNDelete.paper(hops="directed", lam=0.2))
    ('gnndelete (aim nonexistent)', 'gnndelete paper(lam 0.2, hops directed)')
    """
    preset, different = settings_that_differ(method)
    settings = [f"{name} {value}" for name, value in different.items()]
    text = ", ".join([*settings[:named], *(["…"] if named is not None and len(settings) > named else [])])
    return f"{method.name} {preset}({text})" if preset or text else method.name


def settings_that_differ(method: Method, usual: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """The preset that is nearest to a method, empty for its defaults, and the settings in which the method differs from it.

    Args:
        method: The method.
        usual: Defaults that replace those of the method.
    """
    kind, settings = type(method), plain(method.settings())
    given = {name: plain(p.default) for name, p in inspect.signature(kind).parameters.items()} | dict(usual or {})
    nearest, found = "", [name for name, value in settings.items() if name in given and given[name] != value]
    for preset in kind.presets:
        make = getattr(kind, preset)
        takes = {n: plain(p.default) for n, p in inspect.signature(make).parameters.items() if n in settings}
        base = make(**{name: settings[name] for name in takes}).settings()
        different = [
            name for name, value in settings.items() if base.get(name) != value or takes.get(name, value) != value
        ]
        if len(different) < len(found):
            nearest, found = preset, different
    return nearest, {name: settings[name] for name in found}


def label_methods(methods: Iterable[Method], known: Sequence[LabelledMethod] = ()) -> list[LabelledMethod]:
    """Give each method a label that no other has; the first Retrain, which gaps are measured to, is just ``retrain``."""
    found = list(known)
    for method in methods:
        taken = {other.label for other in found}
        reference = method.name == Retrain.name and all(other.method.name != Retrain.name for other in found)
        label = method.name if reference else method_label(method)
        if label in taken:
            label = method_label(method, named=None)
        copies = (f"{label} #{number}" for number in range(2, len(found) + 2))
        found.append(LabelledMethod(next(copy for copy in (label, *copies) if copy not in taken), method))
    return found


def _chosen(methods: Methods | None, context: Context, controls: bool) -> list[LabelledMethod]:
    if methods is None:
        made = [method() for _, method in sorted(methods_resolver.lookup_dict.items())]
        picked = label_methods(method for method in made if not reasons(method, context))
    elif isinstance(methods, Mapping):
        picked = [
            LabelledMethod(str(name), by_name("method", method, methods_resolver), chosen_by_user=True)
            for name, method in methods.items()
        ]
    else:
        picked = label_methods(by_name("method", method, methods_resolver) for method in methods)
    if methods is not None:
        for one in picked:
            require_fit(one.method, context)
    if not any(one.method.name == "retrain" for one in picked):
        reference = methods_resolver.make("retrain")
        picked = [*([] if reasons(reference, context) else label_methods([reference])), *picked]
    chosen = (
        label_methods((c for control in CONTROLS if not reasons(c := control(), context)), picked)
        if controls
        else picked
    )
    labels = ["original", *(control.name for control in CONTROLS if controls), *(one.label for one in chosen)]
    for one in chosen:
        if one.chosen_by_user and labels.count(one.label) > 1:
            raise SettingError(
                f"'{one.label}' is what another row of the table is called; give 'methods' another label"
            )
    return chosen


def _notes(chosen: list[LabelledMethod], context: Context, schedule: Mapping[str, Any]) -> tuple[Note, ...]:
    """What a reader of the table must know about its reference and about how models were trained."""
    notes = []
    if not any(one.method.name == Retrain.name for one in chosen):
        why = reasons(methods_resolver.make(Retrain.name), context)
        notes += [Note("no-reference", f"Retrain does not fit, so there are no gaps to it: {why[0]}")] if why else []
    if context.fit is not None:
        return (*notes, *(note for one in chosen if (note := _own_schedule(one, schedule))))
    for epochs in sorted({one.method.epochs for one in chosen if isinstance(one.method, Retrain)}):
        text = (
            f"Without fit=, Retrain trained {epochs:,} epochs of the built-in schedule. If your model was trained by another "
            "schedule, the gap to Retrain also contains the gap between the schedules."
        )
        notes.append(Note("schedule-default", text))
    return tuple(notes)


def _own_schedule(one: LabelledMethod, schedule: Mapping[str, Any]) -> Note | None:
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


def _run(label: str, method: Method, seed: int, context: Context) -> dict[str, Any]:
    row: dict[str, Any] = {"label": label, "method": method.name, "settings": plain(method.settings()), "seed": seed}
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
        with PeakMemory(context.data.edge_index.device) as memory:
            unlearned = unlearner.delete(context.deletion)
        scores = unlearned.evaluate()
    except GNNDeleteError as error:  # recorded, shown, and never counted as a number
        return row | {"error": str(error), "assurance": None, "seconds_until_error": time.perf_counter() - start}
    return row | {
        "assurance": unlearned.assurance,
        "weights": unlearned.weights,
        "scores": scores,
        "seconds": unlearned.seconds,
        "parameters": unlearned.parameters,
        "peak_mb": memory.peak_mb,
        "notes": [note.to_dict() for note in unlearned.notes],
        "details": unlearned.details,
    }


def _mean_and_std(values: list[float]) -> dict[str, float] | None:
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0} if values else None


def _cell(value: dict[str, float] | None, form: str, spread: bool) -> str:
    if value is None:
        return "-"
    text = f"{value['mean']:{form}}"
    return f"{text} ±{value['std']:{form}}" if spread and value["std"] else text
