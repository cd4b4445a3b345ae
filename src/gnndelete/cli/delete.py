"""``gnndelete delete``: forget elements from the model of a run, together with all earlier requests."""

from __future__ import annotations

import hashlib
import json as json_format
import secrets
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.deletion_options import deletion_options
from gnndelete.cli.output import Report, note, plain, prose, score_title, table
from gnndelete.io.signals import hold_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from torch import Tensor

    from gnndelete.cli.settings import Settings
    from gnndelete.datasets import NamedGraph
    from gnndelete.graph.deletion import Deletion
    from gnndelete.io.versions import Versions
    from gnndelete.result import Unlearned

_how = partial(typer.Option, rich_help_panel="How")


@deletion_options
def delete(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that 'train' or 'adopt' wrote.")],
    request: dict[str, Any],
    method: Annotated[str | None, _how(help="See 'gnndelete ls methods'.")] = None,
    lam: Annotated[str | None, _how(help="Weight of forgetting: auto, or from 0 to 1 (gnndelete).")] = None,
    aim: Annotated[
        str | None, _how(help="As if retrained, or as if nonexistent; as for earlier requests by default.")
    ] = None,
    device: options.Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write a copy of the result to this folder, to serve it.")
    ] = None,
    save_graph: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the remaining graph to this folder; without a request, that of earlier requests."
        ),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Your name of the request: asked again, the stored outcome is printed."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Drop the earlier requests of this run: what they deleted comes back.")
    ] = False,
    skip_deleted: Annotated[
        bool, typer.Option("--skip-deleted", help="Leave out what earlier requests have deleted, and report how much.")
    ] = False,
    skip_unseen: options.SkipUnseen = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the request and show what would happen.")] = False,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Keep in the run what requests start from: further ones then cost their neighbourhood. Also without a request.",
        ),
    ] = False,
    trust: options.Trust = False,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
) -> Report:
    """Make the model of a run forget edges, nodes, features, labels, relations or graphs.

    [bold]gnndelete delete runs/a --edges requests.csv[/]

    The request is solved together with all earlier requests of the run, and written as a new version of it.
    For link models the edges must be training edges of the run: the model never learned the others.
    state.json in a version names what was deleted and is needed for later requests: keep it as safe as the data itself.
    """
    from gnndelete.cli.run_folder import open_run, run_settings, served_before, take_over, writing

    received = datetime.now(UTC)
    chosen = {**request, "method.name": method, "method.lam": _number(lam), "method.aim": aim, "train.device": device}
    with nullcontext(open_run(run)) if dry_run else writing(run) as opened:
        settings = run_settings(opened, config, set_, chosen, trust=trust)
        changed = ""
        if not fresh and settings.deletion.asks:
            settings, changed = take_over(settings, opened.latest)
        from gnndelete.errors import SettingError

        if request_id is not None and not (0 < len(request_id) <= 200 and request_id.isprintable()):
            raise SettingError(f"--request-id takes 1 to 200 printable characters (got {request_id!r})")
        serving = _Serving(opened, settings, out, save_graph, fresh, skip_deleted, skip_unseen)
        done = None if request_id is None else served_before(opened, request_id)
        if done is not None:
            values = serving.stored(done, dry_run)
            return Report(values, lambda console: _show(console, values))
        serving.open()
        if save_graph is not None and not settings.deletion.asks and not (fresh or dry_run):
            saved = serving.save_remaining()
            return Report(saved, lambda console: _show_saved(console, saved))
        if prepare and not settings.deletion.asks and not dry_run:
            prepared = serving.prepare()
            return Report(prepared, lambda console: _show_prepared(console, prepared))
        if prepare and not dry_run:
            serving.prepare()
        values = serving.plan() if dry_run else serving.serve(request_id, received)
    if changed:
        note(f"note: {changed}")
    return Report(values, lambda console: (_show_plan if dry_run else _show)(console, values))


@dataclass
class _Serving:
    """A run and one request against it."""

    run: Versions
    settings: Settings
    out: Path | None
    graph_folder: Path | None
    fresh: bool
    skip_deleted: bool
    skip_unseen: bool
    prepared: bool = False

    def __post_init__(self) -> None:
        """Refuse what can be refused before anything is loaded."""
        from gnndelete.cli.construct import build_method
        from gnndelete.cli.run_folder import REMAINING, RESULT, check_folder
        from gnndelete.errors import SettingError
        from gnndelete.io.files import require_writable
        from gnndelete.io.versions import MANIFEST, Manifest

        self.method, root = build_method(self.settings), self.run.root
        if not self.method.keeps_model:
            raise SettingError(
                f"method '{self.method.name}' answers with a model of its own, which cannot be kept in a run; compare it "
                f"with 'gnndelete compare {root} --methods {self.method.name}', or use it from Python"
            )
        source = self.settings.data.graph
        reserved = [root, root / "versions", self.run.folder(), *([] if source is None else [source, source.parent])]
        if self.out is not None:
            check_folder(self.out, RESULT, reserved)
            if (self.out / MANIFEST).exists() and Manifest.read(self.out).base != self.run.latest.base:
                raise SettingError(f"'{self.out}' holds the result of another run; give --out another folder")
        if self.graph_folder is not None:
            check_folder(self.graph_folder, REMAINING, [*reserved, *([self.out] if self.out else [])], "--save-graph")
        require_writable(*(folder for folder in (self.out, self.graph_folder) if folder is not None))

    def open(self) -> None:
        """Load the model and the graph, and the requests before this one."""
        from gnndelete.cli.construct import build_function, find_fit, fit_function
        from gnndelete.cli.run_folder import STATE, open_model, require_state, union
        from gnndelete.graph.batch import collate
        from gnndelete.graph.validation import edge_table
        from gnndelete.unlearner import Unlearner

        def seed() -> int:
            chosen = getattr(self.method, "seed", None)
            return self.settings.train.seed + 1 if chosen is None else chosen

        def fit(model: Any, data: Any, seed: int, epochs: int = self.settings.train.epochs, **course: Any) -> Any:
            gone = (self.deleted | self.request).nodes  # by the schedule of the run, or that of the method
            usual = fit_function(self.settings, self.task.without(gone), self.method)
            return usual(model, data, seed, **({"epochs": epochs, **course} if course else {}))

        if self.run.latest.kind == "close" or (not self.settings.deletion.asks and self.graph_folder is not None):
            require_state(self.run)
        self.model, self.graph, self.task = open_model(self.run, self.settings)
        self.data, self.table = self.graph.data, edge_table(self.graph.data)
        build = build_function(self.settings, self.graph, seed)
        self.unlearner = Unlearner(
            self.model,
            self.data,
            self.task,
            self.method,
            fit=fit if self.settings.train.fit is None else find_fit(self.settings.train.fit),
            build=build,
            seed=self.settings.train.seed,
            progress=True,
        )
        if self.run.latest.requests and not self.fresh:
            self.unlearner.load_state(self.run.folder() / STATE)
        self.deleted = union(self.unlearner.history)
        left = self.deleted.remaining(self.data, self.table) if self.unlearner.history else self.data
        self.remaining = collate(left)

    def plan(self) -> dict[str, Any]:
        """What `serve` would do, after all checks and without doing it."""
        from gnndelete.notes import explain

        self._check()
        together = (self.deleted | self.request).check(self.data, self.table)
        settings, assurance = self.method.settings(), self.method.assurance
        # a search for lam may find that cutting the graph is enough, which promises less
        may_only_cut = settings.get("lam") == "auto" and settings.get("aim") == "retrained"
        return {
            "dry_run": True,
            "applied": False,
            "run": str(self.run.root),
            **self._asked(),
            "earlier_requests": len(self.unlearner.history),
            "counts": together.counts,
            "method": self.method.name,
            "settings": settings,
            "aim": settings.get("aim"),
            "lam": settings.get("lam"),
            "not_calibrated": self._not_calibrated() if settings.get("lam") == "auto" else None,
            "assurance": assurance,
            "weights": self.method.weights,
            "weaker": "inference-only" if may_only_cut else None,
            "assurance_meaning": explain(assurance, self.method.name == "gnndelete", together.counts),
            "remaining_graph": None if self.graph_folder is None else str(self.graph_folder),
        }

    def _not_calibrated(self) -> str | None:
        """Why no lam can be chosen, where nothing is known that the model was not trained on."""
        if self.request.new_labels.size(1) or self.task.unseen(self.data, "validation").size(-1):
            return None
        return self.task.no_unseen("validation")

    def save_remaining(self) -> dict[str, Any]:
        """Write the graph that earlier requests have left, without serving another one."""
        from gnndelete.cli.run_folder import export_graph

        assert self.graph_folder is not None
        graph, gone, values = self._graph_left()
        export_graph(self.graph_folder, graph, gone, values)
        return {**values, "remaining_graph": str(self.graph_folder)}

    def _graph_left(self) -> tuple[NamedGraph, Tensor, dict[str, Any]]:
        """The graph that earlier requests have left, the nodes that are gone, and what is said about it."""
        if not hasattr(self, "graph"):
            self.open()
        latest = self.run.latest
        facts = {"counts": latest.counts, "requests": latest.requests, "remaining_fingerprint": latest.remaining}
        return replace(self.graph, data=self.remaining), self.deleted.nodes, facts

    def serve(self, request_id: str | None, received: datetime) -> dict[str, Any]:
        """Delete, measure, and publish the result as a new version; then write the copies that were asked for."""
        from gnndelete.cli.run_folder import AUDIT, CACHE, PREPARED, PRIVATE, TAKEN_OVER, provenance, report_digest
        from gnndelete.graph.fingerprint import fingerprint

        self._check()
        if (self.run.root / PREPARED).is_dir() and not self.prepared:
            self.prepare()
        dropped = self.run.latest.requests if self.fresh else 0
        if dropped:
            note(f"note: --fresh drops {_requests(dropped, 'earlier ')}; what was deleted is back in the model")
        unlearned = self.unlearner.delete(self.request)
        assert unlearned.graph is not None
        remaining, before = fingerprint(unlearned.graph), self.run.latest
        values = {**self._values(unlearned), "remaining_fingerprint": remaining, "request_id": request_id}
        served = {name: unlearned.settings[name] for name in TAKEN_OVER if name in unlearned.settings}
        report = self.run.root / AUDIT / f"{before.version:04}"
        self.run.publish(
            lambda folder: self._write(folder, unlearned, values),
            PRIVATE,
            kind="delete",
            request_id=request_id,
            received=received,
            served=received,
            requests=len(unlearned.history),
            request=self.request.counts,
            counts=unlearned.deletion.counts,
            base=before.base,
            graph=before.graph,
            remaining=remaining,
            facts={
                "method": self.method.name,
                "weights": unlearned.weights,
                **served,
                "device": values["device"],
                "dropped": dropped,
                "audit": report_digest(report),
            },
            **provenance(),
        )
        # Cached references were trained on what is deleted now.
        shutil.rmtree(self.run.root / AUDIT / CACHE, ignore_errors=True)
        facts = {name: values[name] for name in ("counts", "requests", "remaining_fingerprint")}
        left = replace(self.graph, data=unlearned.data), unlearned.deletion.nodes, facts
        version = self.run.latest.version
        return {**values, "applied": True, **self._places(version), **self._copied(version, lambda: left)}

    def prepare(self) -> dict[str, Any]:
        """Compute what local requests start from, or read it from the run where it is there already."""
        from gnndelete.cli.run_folder import PREPARED

        self.prepared, folder = True, self.run.root / PREPARED
        self.unlearner.prepare(folder)
        session = self.unlearner.session
        rehearsed = None if session.rehearsed is None else session.rehearsed.lam
        facts = {"local": session.blocks is not None, "not_local": session.not_local, "rehearsed_lam": rehearsed}
        return {"run": str(self.run.root), "prepared": str(folder), **facts}

    def stored(self, version: int, dry_run: bool) -> dict[str, Any]:
        """The outcome of a request that was served before. Copies that are asked for are written, as they are now."""
        from gnndelete.cli.run_folder import RESULT, STATE
        from gnndelete.errors import SettingError

        self.run.check(version)
        state = self.run.folder(version) / STATE
        if self.settings.deletion.asks and state.exists():  # it is erased when a run is closed
            known = json_format.loads(state.read_bytes())
            if self._digest(str(known.get("salt"))) not in ("", known.get("named")):
                raise SettingError(
                    f"this --request-id was given to another request, served as version {version}; give this one its own"
                )
        values = json_format.loads((self.run.folder(version) / RESULT).read_bytes())
        values = {**values, "applied": True, "repeated": True, **self._places(version), "remaining_graph": None}
        copies = [str(each) for each in (self.out, self.graph_folder) if each is not None and not dry_run]
        done = f"the latest version was copied to {' and '.join(copies)}" if copies else "nothing was done"
        if copies:
            values |= self._copied(version, self._graph_left)
        note(f"note: this request was served before, as version {version}; {plain(done)}")
        return values

    def _check(self) -> None:
        """Read the request, and refuse what is not there or leave it out."""
        from gnndelete.cli.deletion_options import check_trained, read_request

        named = read_request(self.settings.deletion, replace(self.graph, data=self.remaining), self.task)
        request, self.skipped_unseen = check_trained(named, self.graph, self.table, self.task, self.skip_unseen)
        self.request, self.skipped = _new(request, self.deleted, self.skip_deleted)

    def _asked(self) -> dict[str, Any]:
        return {"request": self.request.counts, "skipped": self.skipped, "skipped_unseen": self.skipped_unseen}

    def _places(self, version: int) -> dict[str, Any]:
        from gnndelete.cli.run_folder import STATE

        folder = self.run.folder(version)
        return {"run": str(self.run.root), "version": version, "out": str(folder), "state": str(folder / STATE)}

    def _values(self, unlearned: Unlearned) -> dict[str, Any]:
        from gnndelete.graph.hetero import HeteroGraph
        from gnndelete.result import evidence, evidence_by

        data, seed, deletion = unlearned.graph, unlearned.seed, unlearned.deletion
        assert data is not None
        if unlearned.served is not None and not isinstance(self.data, HeteroGraph):
            answers = partial(unlearned.served.before().predict, self.task)
            before = evidence_by(answers, self.task, deletion, data, seed=seed)
        else:
            before = evidence(self.model, self.data, self.task, deletion, data, seed=seed)
        return {
            **unlearned.summary(),
            **self._asked(),
            "assurance_meaning": unlearned.assurance_meaning,
            "aim_meaning": unlearned.aim_meaning,
            "calibration": unlearned.calibration,
            "engine": unlearned.engine,
            "before": before,
            "after": unlearned.evaluate(),
            "task": self.task.name,
            "device": str(self.data.edge_index.device),
        }

    def _write(self, folder: Path, unlearned: Unlearned, values: dict[str, Any]) -> None:
        """The files of the version: the result, the settings, all requests, and the adapter or the whole model."""
        from gnndelete.cli.run_folder import MODEL, RESULT, SETTINGS, STATE, to_bytes
        from gnndelete.io.files import write_file
        from gnndelete.training.weights import dump_weights

        if unlearned.adapter is not None:
            unlearned.save(folder)
        elif unlearned.model is not None:
            write_file(folder / MODEL, dump_weights(unlearned.model))
        self.unlearner.save_state(folder / STATE)
        salt = secrets.token_hex(32)
        state = {**json_format.loads((folder / STATE).read_bytes()), "salt": salt, "named": self._digest(salt)}
        write_file(folder / STATE, to_bytes(state), private=True)
        write_file(folder / RESULT, to_bytes(values))
        settings = self.settings.filled("method", unlearned.settings).to_yaml(folder=folder)
        write_file(folder / SETTINGS, settings.encode())
        hold_signals()

    def _digest(self, salt: str) -> str:
        """A digest of what the command names, to tell another request of the same id; empty where a file is read only once."""
        named = self.settings.deletion.model_dump(mode="json")
        for name, value in named.items():
            if name.endswith("_csv") and value is not None:
                if not Path(value).is_file():
                    return ""
                with Path(value).open("rb") as file:
                    named[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return hashlib.sha256(json_format.dumps([salt, named], sort_keys=True).encode()).hexdigest()

    def _copied(self, version: int, left: Callable[[], tuple[NamedGraph, Tensor, dict[str, Any]]]) -> dict[str, Any]:
        """Write the copies of a request that was applied; where they are."""
        from gnndelete.cli.run_folder import export_graph, export_result
        from gnndelete.errors import AppliedError, GNNDeleteError

        try:
            if self.out is not None:
                export_result(self.run, self.out)
            if self.graph_folder is not None:
                export_graph(self.graph_folder, *left())
        except (GNNDeleteError, OSError) as error:
            raise AppliedError(f"the request was applied as version {version}, and its copy failed: {error}") from error
        places = {"remaining_graph": None if self.graph_folder is None else str(self.graph_folder)}
        return places if self.out is None else {**places, "out": str(self.out)}


def _new(request: Deletion, deleted: Deletion, skip: bool) -> tuple[Deletion, int]:
    """The request; elements that were deleted before are an error or, with --skip-deleted, left out and counted."""
    from gnndelete.errors import DeletionError, some

    if not skip:
        try:
            return request.require_new(deleted), 0
        except DeletionError as error:
            raise DeletionError(error.why, f"{error.remedy} (--skip-deleted does so)") from None
    again = request.already_deleted(deleted)
    left = request.not_deleted(deleted) if again else request
    if not len(left):
        raise DeletionError(
            f"nothing is left to delete: all of it was deleted by earlier requests, which stay in force: {some(again)}"
        )
    if again:
        elements = f"{len(again)} element{'s' * (len(again) != 1)}"
        note(f"note: left out {elements} that earlier requests have deleted: {plain(some(again))}")
    return left, len(again)


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _counts(counts: dict[str, int]) -> str:
    from gnndelete.graph.kinds import in_words

    return ", ".join(in_words(counts)) or "nothing"


def _requests(count: int, which: str = "") -> str:
    return f"{count:,} {which}request{'s' * (count != 1)}"


def _show_plan(console: Console, values: dict[str, Any]) -> None:
    level = values["assurance"]
    if values["weaker"] is not None:
        level += f", or {values['weaker']} if taking the elements out of the data is enough"
    lines = [f"The request is valid: {_counts(values['request'])} would be forgotten with '{values['method']}'."]
    if values["earlier_requests"]:
        lines.append(f"Together with {_requests(values['earlier_requests'], 'earlier ')}: {_counts(values['counts'])}.")
    lines.append(f"assurance: {level}; {values['weights']} weights. {values['assurance_meaning']}")
    if values["aim"]:
        lines.append(f"aim: {_aim(values)}.")
    lines.append(f"The result would be a new version of {values['run']}.")
    prose(console, [*lines, "Nothing was written."])


def _aim(values: dict[str, Any]) -> str:
    from gnndelete.notes import AIMS, explain_aim

    aim, lam = values["aim"], values["lam"]
    if lam != "auto":
        return f"{aim}: {explain_aim(aim, lam)}"
    if values["not_calibrated"]:
        return f"{aim}: {AIMS[aim]}. How strongly (lam) cannot be calibrated, so a fixed lam is taken: {values['not_calibrated']}"
    return f"{aim}: {AIMS[aim]}. How strongly (lam) is chosen on validation data when it runs"


def _show_saved(console: Console, values: dict[str, Any]) -> None:
    text = f"The graph without {_counts(values['counts'])} ({_requests(values['requests'])}) was written to "
    console.print(f"{text}{values['remaining_graph']}. Nothing else was changed.", markup=False, soft_wrap=True)


def _show_prepared(console: Console, values: dict[str, Any]) -> None:
    if values["local"]:
        text = f"Requests to {values['run']} now cost their neighbourhood. SENSITIVE: {values['prepared']} holds rows of the "
        text += "graph before any deletion; 'gnndelete close' removes it."
    else:
        text = f"Requests to {values['run']} use the whole graph: {values['not_local']}. Nothing was written."
    console.print(text, markup=False, soft_wrap=True)


def _show(console: Console, values: dict[str, Any]) -> None:
    before, after = values["before"], values["after"]
    console.print(f"{_counts(values['counts'])} forgotten with {values['method']}", markup=False, style="bold")
    rows = [(score_title(name), f"{before[name]:.4f}", f"{after[name]:.4f}") for name in after]
    rows += [("seconds", "", f"{values['seconds']:.3g}"), ("parameters changed", "", f"{values['parameters']:,}")]
    if after:
        console.print(table(("", "before", "after"), rows))
    else:
        console.print(table(("", ""), [(name, value) for name, _, value in rows]))
    lines = [f"assurance: {values['assurance']}, {values['weights']} weights. {values['assurance_meaning']}"]
    if values["aim"]:
        lines.append(f"aim: {values['aim']}: {values['aim_meaning']}.")
    if "deleted_auroc" in after:
        lines.append(
            "deleted AUROC: at 1 every deleted edge scores below the remaining ones; read it together with the test AUROC."
        )
    if after:
        lines.append("Both columns are measured without deleted elements in the test data.")
    else:
        lines.append("The model's score was not measured: nothing is known that it was not trained on.")
    lines += [f"note: {note['text']}" for note in values["notes"] if note["code"] != "calibration"]
    lines.append(f"requests so far: {values['requests']}; written to {values['out']}")
    saved = values["remaining_graph"]
    how = (
        f": {saved}" if saved else f"; 'gnndelete delete {values['run']} --save-graph DIR' writes it, deleting nothing"
    )
    lines.append(f"serve it on the remaining graph{how}")
    lines.append(f"or write what you serve, rows with ids or a program: gnndelete export {values['run']} --out DIR")
    lines.append(f"SENSITIVE: {values['state']} names what was deleted; later requests need it")
    prose(console, lines)
