"""One deletion request against a run: taken up after earlier ones, served, measured, and written all or nothing."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.assurance import explain
from gnndelete.cli.aside import move_aside, requests_of
from gnndelete.cli.construct import build_method, build_model
from gnndelete.cli.loading import dump_weights
from gnndelete.cli.reference import AUDIT, CACHE, START
from gnndelete.cli.remaining import NAMES, check_folder, graph_files
from gnndelete.cli.report import note, plain
from gnndelete.cli.requests import read_request
from gnndelete.cli.runs import MODEL, RESULT, SETTINGS, STATE, open_run, to_bytes, versions
from gnndelete.cli.sequence import remember
from gnndelete.cli.settings import SCHEDULE, Settings
from gnndelete.cli.untrained import check_trained
from gnndelete.errors import DeletionError, RunError, SettingError, some
from gnndelete.evidence import evidence
from gnndelete.graph.deletion import Deletion
from gnndelete.graph.existing import already_deleted, not_deleted
from gnndelete.graph.validation import edge_table, fingerprint
from gnndelete.io.files import commit, writable, writing
from gnndelete.nn.adapter import CARD, CONFIG, TENSORS, model_fingerprint
from gnndelete.result import Unlearned
from gnndelete.training.loop import train
from gnndelete.unlearner import Unlearner


class Serving:
    """A run with its unlearner, ready for one request."""

    def __init__(
        self,
        run: Path,
        out: Path,
        settings: Settings,
        save_graph: Path | None = None,
        skip_deleted: bool = False,
        skip_unseen: bool = False,
    ) -> None:
        self.skip_deleted, self.skip_unseen = skip_deleted, skip_unseen
        self._skipped = self._unseen = 0  # so many elements were left out
        self.run, self.out, self.settings, self.state, self.folder = run, out, settings, run / STATE, save_graph
        if save_graph is not None:
            check_folder(save_graph, run, out, settings.data.graph)
        self.method = build_method(settings)  # a mistake in its parameters shows before anything is loaded
        if not self.method.keeps_model:
            raise SettingError(
                f"method '{self.method.name}' answers with a model of its own, which cannot be kept in a run; compare it "
                f"with 'gnndelete compare {run} --methods {self.method.name}', or use it from Python"
            )
        writable(run, out, *([save_graph] if save_graph is not None else []))
        self.model, self.graph, self.task = open_run(run, settings)
        self.data = self.graph.data
        self.table = edge_table(self.data)
        self._serving = Deletion()
        # The built-in models can be reset; one of the user's may only be able to be made again.
        build = self._build if ":" in settings.model.name else None
        seed = settings.train.seed
        self.unlearner = Unlearner(
            self.model, self.data, self.task, self.method, fit=self._fit, build=build, seed=seed, progress=True
        )

    def plan(self, fresh: bool) -> dict[str, Any]:
        """What `serve` would do, after all checks and without doing it."""
        request, earlier, _ = self._request(fresh)
        together = request
        for old in earlier:
            together = together | old
        return {
            "dry_run": True,
            "request": request.counts,
            "skipped": self._skipped,
            "skipped_unseen": self._unseen,
            "earlier_requests": len(earlier),
            "counts": together.check(self.data, self.table).counts,
            "method": self.method.name,
            "settings": self.method.settings(),
            "aim": self.method.settings().get("aim"),
            "lam": self.method.settings().get("lam"),
            "assurance": self.method.assurance,
            "weaker": "inference-only" if self._may_only_cut() else None,
            "assurance_meaning": explain(self.method.assurance, self.method.name == "gnndelete", together.counts),
            "out": str(self.out),
            "state": str(self.state),
            "remaining_graph": None if self.folder is None else str(self.folder),
        }

    def _may_only_cut(self) -> bool:
        """Whether the method may find that cutting the graph is enough, which promises less."""
        settings = self.method.settings()
        return settings.get("lam") == "auto" and settings.get("aim") == "retrained"

    def save_remaining(self) -> dict[str, Any]:
        """Write the graph that earlier requests have left, without serving another one."""
        assert self.folder is not None
        if _read(self.state) is None:
            raise DeletionError(f"nothing was deleted from the run '{self.run}' yet; name what to delete")
        gone, left = self._left(self.unlearner.load_state(self.state).history)
        contents, old = self._graph_files(left, gone, len(self.unlearner.history))
        commit(contents, remove=old)
        return {
            "counts": gone.counts,
            "requests": len(self.unlearner.history),
            "remaining_fingerprint": fingerprint(left),
            "remaining_graph": str(self.folder),
        }

    def serve(self, fresh: bool) -> dict[str, Any]:
        """Delete, measure, and write the result together with the new state of the run."""
        request, _, seen = self._request(fresh)
        if fresh and seen is not None:
            note(f"note: --fresh drops {_requests(seen)} earlier request(s); what they deleted is back in the model")
        self._serving = request
        unlearned = self.unlearner.delete(request)
        values = self._values(request, unlearned)
        contents = {
            self.out / RESULT: to_bytes(values),
            self.out / SETTINGS: self.settings.filled("method", unlearned.settings).to_yaml().encode(),
            **self._files(unlearned),
        }
        assert unlearned.data is not None
        graph, old = self._graph_files(unlearned.data, unlearned.deletion, len(unlearned.history))
        if seen != _read(self.state):
            raise RunError(
                f"another request was served meanwhile ('{self.state}' has changed); nothing was written, ask again"
            )
        known = {self.out / name for name in (MODEL, CONFIG, TENSORS, CARD)} if (self.out / RESULT).exists() else set()
        # references of earlier audits were trained on what is deleted now, and their reports are about another result
        audit = self.run / AUDIT
        stale = [*(audit / CACHE).glob(f"{START}*")]
        aside, moved = move_aside(audit, requests_of(audit))
        commit(
            contents | graph | aside,
            remove=[*(known - contents.keys()), *old, *stale, *moved],
            private=[self.state],
        )
        if moved:
            note(f"note: the report in {audit} was about the earlier requests; it is now in {next(iter(aside)).parent}")
        return {"out": str(self.out), "state": str(self.state), **values}

    def _request(self, fresh: bool) -> tuple[Deletion, tuple[Deletion, ...], bytes | None]:
        """The checked request, the earlier ones it is solved with, and the state file as it was read."""
        seen = _read(self.state)
        if seen is not None and not fresh:
            self.unlearner.load_state(self.state)
        earlier = self.unlearner.history
        gone, left = self._left(earlier)
        asked = read_request(self.settings.deletion, replace(self.graph, data=left), self.task)
        request, self._unseen = check_trained(asked, self.graph, self.table, self.task, self.skip_unseen)
        return self._new(request, gone), earlier, seen

    def _new(self, request: Deletion, gone: Deletion) -> Deletion:
        """The request, of which nothing was deleted before; or, where that is asked for, the rest of it."""
        if not self.skip_deleted:
            try:
                return request.without(gone)
            except DeletionError as error:
                raise DeletionError(f"{error} (--skip-deleted does so)") from None
        again = dict.fromkeys(already_deleted(request, gone, request._ids, request._inside))
        left = not_deleted(request, gone) if again else request
        self._skipped = len(again)
        if again and not len(left):
            raise DeletionError(
                f"nothing is left to delete: all of it was deleted by earlier requests, which stay in force: {some(again)}"
            )
        if again:
            elements = f"{len(again)} element{'s' * (len(again) != 1)}"
            note(f"note: left out {elements} that earlier requests have deleted: {plain(some(again))}")
        return left

    def _left(self, earlier: tuple[Deletion, ...]) -> tuple[Deletion, Data]:
        """All of some requests together, and the graph without them."""
        gone = Deletion()
        for old in earlier:
            gone = gone | old
        return gone, gone.remaining(self.data, self.table) if earlier else self.data

    def _graph_files(self, left: Data, gone: Deletion, requests: int) -> tuple[dict[Path, bytes], list[Path]]:
        """The remaining graph where it is asked for, and what of an earlier one must go."""
        if self.folder is None:
            return {}, []
        facts = {"run": str(self.run), "requests": requests, "remaining_fingerprint": fingerprint(left)}
        files = graph_files(replace(self.graph, data=left), gone.nodes, facts)
        return {self.folder / n: content for n, content in files.items()}, [
            self.folder / name for name in NAMES if name not in files
        ]

    def _values(self, request: Deletion, unlearned: Unlearned) -> dict[str, Any]:
        assert unlearned.data is not None
        deletion, seed = unlearned.deletion, unlearned.seed
        before = evidence(self.model, self.data, self.task, deletion, unlearned.data, seed=seed)
        return {
            **unlearned.summary(),
            "request": request.counts,
            "skipped": self._skipped,
            "skipped_unseen": self._unseen,
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
            "model_fingerprint": self._model_fingerprint(unlearned),
            "remaining_graph": None if self.folder is None else str(self.folder),
        }

    def _model_fingerprint(self, unlearned: Unlearned) -> str | None:
        """Of the model that is written where there is no adapter, whose own config has one."""
        return None if unlearned.adapter is not None or unlearned.model is None else model_fingerprint(unlearned.model)

    def _files(self, unlearned: Unlearned) -> dict[Path, bytes]:
        """The adapter, or the whole model where the method makes none, and the state of the run."""
        with tempfile.TemporaryDirectory(dir=self.run, prefix=writing()) as folder:
            self.unlearner.save_state(Path(folder) / STATE)
            contents = {self.state: remember((Path(folder) / STATE).read_bytes(), self.method)}
            if unlearned.model is None:
                return contents
            if unlearned.adapter is None:
                return contents | {self.out / MODEL: dump_weights(unlearned.model)}
            unlearned.save(Path(folder) / "adapter")
            return contents | {self.out / p.name: p.read_bytes() for p in (Path(folder) / "adapter").iterdir()}

    def _fit(self, model: nn.Module, data: Data, seed: int) -> nn.Module:
        """The run's own schedule, with what the method's parameters say instead."""
        schedule = self.settings.train.model_dump(include=set(SCHEDULE))
        schedule |= {name: getattr(self.method, name) for name in schedule if hasattr(self.method, name)}
        nodes = torch.cat([request.nodes for request in (*self.unlearner.history, self._serving)])
        train(model, data, self.task.without(nodes), seed=seed, progress=True, **schedule)
        return model

    def _build(self) -> nn.Module:
        chosen = getattr(self.method, "seed", None)
        seed = self.settings.train.seed + 1 if chosen is None else chosen
        return build_model(self.settings.model, self.data, self.settings.task.name, seed)


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _requests(state: bytes) -> int | str:
    try:
        return len(json.loads(state)["requests"])
    except (ValueError, KeyError, TypeError):
        return "all"
