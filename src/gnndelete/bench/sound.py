"""Whether an experiment can be done at all: what would fail in every cell is refused before the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gnndelete.bench.experiment import Experiment, Forget
from gnndelete.bench.own import effective, named
from gnndelete.bench.published import parts
from gnndelete.bench.repeated import check_apart
from gnndelete.datasets.registry import ENTRIES, Entry
from gnndelete.errors import RequestError, SettingError, some, unknown


def check_sound(experiment: Experiment) -> None:
    """Refuse names that do not exist, and a task or a deletion that a dataset has nothing for."""
    with about(experiment):
        if experiment.published is not None and experiment.published not in parts():
            raise SettingError(unknown("'published': no part of the paper is called", experiment.published, parts()))
        _check_seeds(experiment)
        for forget in experiment.forget:
            _check_task(experiment.task, forget)
            if forget.steps > 1 and "time" in experiment.measures:
                raise SettingError(
                    f"'measures': time is that of one request, and 'forget.steps' asks for {forget.steps}; take one of them away"
                )
        for dataset in experiment.datasets:
            entry, _ = named(dataset)
            _check_dataset(dataset, entry, experiment)
        check_apart("datasets", [(f"'{name}'", effective(name)) for name in experiment.datasets])


#: Seeds of the attacker's network and of the detector of outliers are below this, as numpy's RandomState has it.
_SEEDS = 2**32


def _check_seeds(experiment: Experiment) -> None:
    large = [seed for seed in experiment.seeds if seed >= _SEEDS]
    drawing = [measure for measure in experiment.measures if measure in ("mi", "outliers")]
    if large and drawing:
        raise SettingError(
            f"'seeds': {large[0]} is too large for the measure '{drawing[0]}', whose seeds go up to {_SEEDS - 1}; take another "
            "seed, or leave the measure out"
        )


@contextmanager
def about(experiment: Experiment) -> Iterator[None]:
    """Whatever is refused names the experiment that asks for it."""
    try:
        yield
    except RequestError as error:
        raise SettingError(f"the experiment '{experiment.name}': {error}") from None


def _check_task(task: str, forget: Forget) -> None:
    near = [where for where in forget.where if where in ("in", "out")]
    if near and task != "link":
        raise SettingError(
            f"'forget.where': {near[0]} is relative to test edges, and task '{task}' has none; take random or another place"
        )
    if forget.kind == "graphs" and task != "graph":
        raise SettingError(f"'forget.kind': graphs are deleted in task 'graph' (got task '{task}'); take another kind")
    if forget.kind == "labels" and task == "graph":
        raise SettingError("'forget.kind': labels are those of nodes, and task 'graph' has none; take graphs")
    if forget.kind == "labels" and task == "link":
        raise SettingError(
            "'forget.kind': task 'link' learns from no labels; take edges or another kind, or task 'node'"
        )


def _check_dataset(dataset: str, entry: Entry, experiment: Experiment) -> None:
    task, many = experiment.task, entry.graphs > 1
    if many != (task == "graph"):
        what = "many graphs" if many else "one graph"
        raise SettingError(f"'{dataset}' is {what}, and the task is '{task}'; choose another dataset or task")
    if task == "node" and not entry.classes:
        raise SettingError(
            f"'{dataset}' has no classes of nodes, and the task is 'node'; choose another dataset or task"
        )
    if experiment.split.given and entry.split_for != task:
        others = some(other.name for other in ENTRIES.values() if other.split_for == task)
        raise SettingError(
            f"'split.given': '{dataset}' came without a split for task '{task}'; leave 'given' out, or take a dataset that has "
            f"one ({others})"
        )
    if not entry.features and any(forget.kind == "features" for forget in experiment.forget):
        raise SettingError(f"'forget.kind': '{dataset}' has no features of nodes to delete; take another kind")
    if not entry.typed and any(forget.kind == "relations" for forget in experiment.forget):
        raise SettingError(
            f"'forget.kind': '{dataset}' has no relations to delete; take another kind or a typed dataset"
        )
