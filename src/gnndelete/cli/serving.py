"""One deletion request against a run: checked, solved together with earlier ones, measured, and written all or nothing."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.cli.construct import build_function, build_method, dump_weights, fit_function
from gnndelete.cli.deletion_options import check_trained, read_request
from gnndelete.cli.output import note, plain
from gnndelete.cli.reference import cached_references
from gnndelete.cli.run_folder import (
    AUDIT,
    MODEL,
    REMAINING,
    RESULT,
    SETTINGS,
    STATE,
    add_method,
    check_target,
    graph_files,
    move_report,
    open_run,
    report_name,
    to_bytes,
    versions,
)
from gnndelete.cli.settings import Settings
from gnndelete.errors import DeletionError, RunError, SettingError, some
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.fingerprint import fingerprint
from gnndelete.graph.validation import edge_table
from gnndelete.io.files import commit, require_writable, staging_prefix
from gnndelete.nn.adapter import CARD, CONFIG, TENSORS, model_fingerprint
from gnndelete.notes import explain
from gnndelete.result import Unlearned, evidence
from gnndelete.unlearner import Unlearner


class Serving:
    """A run with its unlearner, ready for one request."""

    def __init__(
        self,
        run: Path,
        out: Path,
        settings: Settings,
        graph_folder: Path | None = None,
        skip_deleted: bool = False,
        skip_unseen: bool = False,
    ) -> None:
        self.run, self.out, self.settings, self.state = run, out, settings, run / STATE
        self.graph_folder, self.skip_deleted, self.skip_unseen = graph_folder, skip_deleted, skip_unseen
        self._skipped = self._skipped_unseen = 0  # how many elements were left out
        if graph_folder is not None:
            source = settings.data.graph
            reserved = [run, out] if source is None else [run, out, source, source.parent]
            check_target(graph_folder, [REMAINING], reserved, "--save-graph")
        self.method = build_method(settings)  # refuses bad parameters before anything is loaded
        if not self.method.keeps_model:
            raise SettingError(
                f"method '{self.method.name}' answers with a model of its own, which cannot be kept in a run; compare it "
                f"with 'gnndelete compare {run} --methods {self.method.name}', or use it from Python"
            )
        require_writable(run, out, *([graph_folder] if graph_folder is not None else []))
        self.model, self.graph, self.task = open_run(run, settings)
        self.data = self.graph.data
        self.table = edge_table(self.data)
        self._request_nodes = torch.empty(0, dtype=torch.long)
        self.unlearner = Unlearner(
            self.model,
            self.data,
            self.task,
            self.method,
            fit=self._fit,
            build=build_function(settings, self.data, self._seed),
            seed=settings.train.seed,
            progress=True,
        )

    def plan(self, fresh: bool) -> dict[str, Any]:
        """What `serve` would do, after all checks and without doing it."""
        request, earlier, _ = self._request(fresh)
        together = request
        for old in earlier:
            together = together | old
        settings, assurance = self.method.settings(), self.method.assurance
        # a search for lam may find that cutting the graph is enough, which promises less
        may_only_cut = settings.get("lam") == "auto" and settings.get("aim") == "retrained"
        return {
            "dry_run": True,
            "request": request.counts,
            "skipped": self._skipped,
            "skipped_unseen": self._skipped_unseen,
            "earlier_requests": len(earlier),
            "counts": together.check(self.data, self.table).counts,
            "method": self.method.name,
            "settings": settings,
            "aim": settings.get("aim"),
            "lam": settings.get("lam"),
            "assurance": assurance,
            "weaker": "inference-only" if may_only_cut else None,
            "assurance_meaning": explain(assurance, self.method.name == "gnndelete", together.counts),
            "out": str(self.out),
            "state": str(self.state),
            "remaining_graph": None if self.graph_folder is None else str(self.graph_folder),
        }

    def save_remaining(self) -> dict[str, Any]:
        """Write the graph that earlier requests have left, without serving another one."""
        if _read(self.state) is None:
            raise DeletionError(f"nothing was deleted from the run '{self.run}' yet; name what to delete")
        history = self.unlearner.load_state(self.state).history
        deleted, remaining = self._remaining(history)
        contents, old = self._graph_files(remaining, deleted, len(history))
        commit(contents, remove=old)
        return {
            "counts": deleted.counts,
            "requests": len(history),
            "remaining_fingerprint": fingerprint(remaining),
            "remaining_graph": str(self.graph_folder),
        }

    def serve(self, fresh: bool) -> dict[str, Any]:
        """Delete, measure, and write the result together with the new state of the run."""
        request, _, state = self._request(fresh)
        if fresh and state is not None:
            note(f"note: --fresh drops {_count(state)} earlier request(s); what they deleted is back in the model")
        self._request_nodes = request.nodes
        unlearned = self.unlearner.delete(request)
        values = self._values(request, unlearned)
        contents = {
            self.out / RESULT: to_bytes(values),
            self.out / SETTINGS: self.settings.filled("method", unlearned.settings).to_yaml().encode(),
            **self._model_files(unlearned),
        }
        remove = [path for path in (self.out / n for n in (MODEL, CONFIG, TENSORS, CARD)) if path not in contents]
        assert unlearned.data is not None
        graph, old_graph = self._graph_files(unlearned.data, unlearned.deletion, len(unlearned.history))
        # Cached references were trained on what is deleted now, and the report is about an earlier result.
        audit = self.run / AUDIT
        report, moved = move_report(audit, report_name(audit))
        if state != _read(self.state):
            raise RunError(
                f"another request was served meanwhile ('{self.state}' has changed); nothing was written, ask again"
            )
        files = contents | graph | report
        files[self.state] = files.pop(self.state)  # last: a request counts once all its files are written
        commit(
            files,
            remove=[*remove, *old_graph, *cached_references(audit), *moved],
            private=[self.state],
        )
        if moved:
            note(
                f"note: the report in {audit} was about the earlier requests; it is now in {next(iter(report)).parent}"
            )
        return {"out": str(self.out), "state": str(self.state), **values}

    def _request(self, fresh: bool) -> tuple[Deletion, tuple[Deletion, ...], bytes | None]:
        """The checked request, the earlier ones it is solved with, and the content of the state file."""
        state = _read(self.state)
        if state is not None and not fresh:
            self.unlearner.load_state(self.state)
        earlier = self.unlearner.history
        deleted, remaining = self._remaining(earlier)
        request = read_request(self.settings.deletion, replace(self.graph, data=remaining), self.task)
        request, self._skipped_unseen = check_trained(request, self.graph, self.table, self.task, self.skip_unseen)
        return self._new(request, deleted), earlier, state

    def _new(self, request: Deletion, deleted: Deletion) -> Deletion:
        """The request; elements that were deleted before are an error or, with --skip-deleted, left out."""
        if not self.skip_deleted:
            try:
                return request.require_new(deleted)
            except DeletionError as error:
                raise DeletionError(error.why, f"{error.remedy} (--skip-deleted does so)") from None
        again = request.already_deleted(deleted)
        if not again:
            return request
        left = request.not_deleted(deleted)
        self._skipped = len(again)
        if not len(left):
            raise DeletionError(
                f"nothing is left to delete: all of it was deleted by earlier requests, which stay in force: {some(again)}"
            )
        elements = f"{len(again)} element{'s' * (len(again) != 1)}"
        note(f"note: left out {elements} that earlier requests have deleted: {plain(some(again))}")
        return left

    def _remaining(self, history: tuple[Deletion, ...]) -> tuple[Deletion, Data]:
        """The union of requests, and the graph without it."""
        deleted = Deletion()
        for request in history:
            deleted = deleted | request
        return deleted, deleted.remaining(self.data, self.table) if history else self.data

    def _graph_files(self, remaining: Data, deleted: Deletion, requests: int) -> tuple[dict[Path, bytes], list[Path]]:
        """The files of the remaining graph with --save-graph, and the files of an earlier one to remove."""
        if self.graph_folder is None:
            return {}, []
        facts = {"run": str(self.run), "requests": requests, "remaining_fingerprint": fingerprint(remaining)}
        return graph_files(self.graph_folder, replace(self.graph, data=remaining), deleted.nodes, facts)

    def _values(self, request: Deletion, unlearned: Unlearned) -> dict[str, Any]:
        assert unlearned.data is not None
        before = evidence(self.model, self.data, self.task, unlearned.deletion, unlearned.data, seed=unlearned.seed)
        # the config of an adapter has a fingerprint of its own
        whole = None if unlearned.adapter is not None else unlearned.model
        return {
            **unlearned.summary(),
            "request": request.counts,
            "skipped": self._skipped,
            "skipped_unseen": self._skipped_unseen,
            "assurance_meaning": unlearned.assurance_meaning,
            "aim_meaning": unlearned.aim_meaning,
            "calibration": unlearned.calibration,
            "before": before,
            "after": unlearned.evaluate(),
            "run": str(self.run),
            "task": self.task.name,
            "device": str(self.data.edge_index.device),
            "versions": versions(),
            "original_fingerprint": fingerprint(self.data),
            "remaining_fingerprint": fingerprint(unlearned.data),
            "model_fingerprint": None if whole is None else model_fingerprint(whole),
            "remaining_graph": None if self.graph_folder is None else str(self.graph_folder),
        }

    def _model_files(self, unlearned: Unlearned) -> dict[Path, bytes]:
        """The adapter, or the whole model where the method makes none, and the state of the run."""
        with tempfile.TemporaryDirectory(dir=self.run, prefix=staging_prefix()) as folder:
            self.unlearner.save_state(Path(folder) / STATE)
            contents = {self.state: add_method((Path(folder) / STATE).read_bytes(), self.method)}
            if unlearned.model is None:
                return contents
            if unlearned.adapter is None:
                return contents | {self.out / MODEL: dump_weights(unlearned.model)}
            unlearned.save(Path(folder) / "adapter")
            return contents | {self.out / p.name: p.read_bytes() for p in (Path(folder) / "adapter").iterdir()}

    def _fit(self, model: nn.Module, data: Data, seed: int) -> nn.Module:
        """Train by the schedule of the run, or by that of the method where it has one."""
        nodes = torch.cat([*(request.nodes for request in self.unlearner.history), self._request_nodes])
        return fit_function(self.settings, self.task.without(nodes), self.method)(model, data, seed)

    def _seed(self) -> int:
        seed = getattr(self.method, "seed", None)
        return self.settings.train.seed + 1 if seed is None else seed


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _count(state: bytes) -> int | str:
    try:
        return len(json.loads(state)["requests"])
    except (ValueError, KeyError, TypeError):
        return "all"
