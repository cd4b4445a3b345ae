"""Trained models on disk: shared by cells, and trained again if their file is damaged."""

from __future__ import annotations

from pathlib import Path

import torch

from gnndelete.bench.experiment import Experiment, read
from gnndelete.bench.results_file import source
from gnndelete.bench.runner import Choice, run

from .conftest import Write, lines, numbers


def test_a_row_says_which_source_trained_the_model_it_starts_from(small: Experiment, store: Path) -> None:
    from gnndelete.bench.material import _base_model

    run([small], store=store, choice=Choice(labels=["unlink"]))
    assert {line["row"]["trained_by"] for line in lines(store)} == {source()}
    for path in (store.parent / "models").iterdir():
        torch.save(torch.load(path, weights_only=True) | {"source": "0123456789ab"}, path)
    _base_model.cache_clear()
    run([small], store=store)
    others = [line["row"]["trained_by"] for line in lines(store) if line["row"]["label"] != "unlink"]
    assert set(others) == {"0123456789ab"}
    for path in (store.parent / "models").iterdir():  # as models were kept before
        whole = torch.load(path, weights_only=True)
        del whole["source"]
        torch.save(whole, path)
    _base_model.cache_clear()
    run([small.model_copy(update={"measures": ["scores"]})], store=store)
    assert lines(store)[-1]["row"]["trained_by"] is None


def test_a_damaged_model_is_trained_again(small: Experiment, tmp_path: Path) -> None:
    whole, damaged = tmp_path / "a/r.jsonl", tmp_path / "b/r.jsonl"
    run([small], store=whole)
    names = [path.name for path in (whole.parent / "models").iterdir()]
    (damaged.parent / "models").mkdir(parents=True)
    for name in names:
        (damaged.parent / "models" / name).write_bytes(b"torn")
    from gnndelete.bench.material import _base_model

    _base_model.cache_clear()
    run([small], store=damaged)
    assert numbers(whole) == numbers(damaged)
    for path in (damaged.parent / "models").iterdir():  # all but one of its tensors fit
        kept = torch.load(path, weights_only=True)
        last = list(kept["state"])[-1]
        kept["state"] = {name: value + 1 for name, value in kept["state"].items()} | {last: torch.zeros(99)}
        torch.save(kept, path)
    damaged.unlink()
    _base_model.cache_clear()
    run([small], store=damaged)
    assert numbers(whole) == numbers(damaged)


def test_trained_models_are_kept_and_shared(small: Experiment, write: Write, store: Path) -> None:
    run([small], store=store, choice=Choice(labels=["unlink"]))
    kept = {path.name: path.stat().st_mtime_ns for path in (store.parent / "models").iterdir()}
    assert len(kept) == 2
    other = run([read(str(write("other", forget={"amount": 0.1})))], store=store)
    assert (other.done, other.models) == (6, 0)
    assert {path.name: path.stat().st_mtime_ns for path in (store.parent / "models").iterdir()} == kept
