"""The reference of an audit: the same deletion by training again, cached so that a second audit need not train."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError, safe_open

from gnndelete import __version__
from gnndelete.cli.output import note
from gnndelete.cli.run_folder import CACHE, is_whole
from gnndelete.cli.settings import Settings
from gnndelete.errors import ModelError
from gnndelete.io.code import code_digest
from gnndelete.io.files import commit
from gnndelete.methods import Retrain
from gnndelete.nn.layers import working_copy
from gnndelete.result import Unlearned
from gnndelete.training.weights import dump_weights, load_weights
from gnndelete.unlearner import Unlearner


def reference(unlearned: Unlearned, version: str, out: Path, settings: Settings) -> Unlearned:
    """The same deletion by `Retrain`: from the cache in ``out``, else trained by the schedule of the run and cached."""
    original = unlearned.original_graph
    assert original is not None
    assert unlearned.base is not None
    method = _method(unlearned, settings)
    key = _key(version, method, settings, original.edge_index.device.type)
    file = next((out / CACHE).glob(f"reference-{key}-*"), None)
    cached = None if file is None else _cached(file, unlearned, method)
    if cached is not None:
        note(f"the reference was trained before; taken from {file}")
        return cached
    epochs, own = settings.train.epochs, settings.train.fit
    how = f"{epochs} epoch{'s' * (epochs != 1)}" if own is None else f"by {Path(own).name}"
    note(f"training the reference without what was deleted, {how}")
    unlearner = Unlearner(
        unlearned.base,
        unlearned.original,
        unlearned.task,
        method,
        fit=unlearned.fit,
        build=unlearned.build,
        seed=settings.train.seed,
    )
    trained = replace(unlearner.delete(unlearned.deletion), notes=())
    assert trained.model is not None
    content = dump_weights(trained.model, {"reference": json.dumps({"seconds": trained.seconds})})
    damaged = [] if file is None else [file]
    commit(
        {out / CACHE / f"reference-{key}-{hashlib.sha256(content).hexdigest()}.safetensors": content}, remove=damaged
    )
    return trained


def _method(unlearned: Unlearned, settings: Settings) -> Retrain:
    """Retrain from the next seed, or from another one where the model under audit was retrained from that."""
    schedule, seed = settings.train, settings.train.seed + 1
    if unlearned.method == "retrain":
        chosen = unlearned.settings.get("seed")
        seed += 2 * (seed == (unlearned.seed + 1 if chosen is None else chosen))  # the shadow uses the seed in between
    return Retrain(schedule.epochs, schedule.lr, schedule.patience, seed)


def _key(version: str, method: Retrain, settings: Settings, device: str) -> str:
    """A name for everything the reference depends on; the digest of the version covers model, graph and requests."""
    facts = {
        "version": version,
        "gnndelete": __version__,
        "train": settings.train.model_dump(mode="json", exclude={"device"}),
        "fit": None if settings.train.fit is None else code_digest(settings.train.fit),
        "seed": method.seed,
        "device": device,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _cached(file: Path, unlearned: Unlearned, method: Retrain) -> Unlearned | None:
    """The reference in a file; None, with a note, where the file is damaged."""
    assert unlearned.base is not None
    try:
        if not is_whole(file):
            raise ValueError("other content than was written")
        with safe_open(file, framework="pt") as opened:
            facts = json.loads((opened.metadata() or {})["reference"])
        model = working_copy(unlearned.base)
        load_weights(file, model)
        return replace(
            unlearned,
            model=model,
            adapter=None,
            method=method.name,
            settings=method.settings(),
            assurance=method.assurance,
            weights=method.weights,
            seconds=float(facts["seconds"]),
            parameters=sum(p.numel() for p in model.parameters()),
            notes=(),
            details={},
            predictor=None,
        )
    except (OSError, SafetensorError, ModelError, ValueError, KeyError, TypeError) as error:
        note(f"the cached reference {file} is damaged ({type(error).__name__}), so it is trained again")
        return None
