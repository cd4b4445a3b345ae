"""The reference of an audit: the same deletion by training again, kept so that a second audit need not train."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gnndelete.cli.loading import dump_weights, load_weights
from gnndelete.cli.report import note
from gnndelete.cli.settings import Settings
from gnndelete.errors import ModelError
from gnndelete.graph.validation import fingerprint, tensor_digest
from gnndelete.io.files import commit
from gnndelete.methods import Retrain
from gnndelete.nn.adapter import model_fingerprint
from gnndelete.nn.layers import working_copy
from gnndelete.result import Unlearned
from gnndelete.tasks import LinkPrediction
from gnndelete.unlearner import Unlearner
from gnndelete.version import __version__

#: Where an audit goes within its run by default, and where it keeps references.
AUDIT, CACHE, START = "audit", "cache", "reference-"


def reference(unlearned: Unlearned, out: Path, settings: Settings) -> Unlearned:
    """The same deletion by `Retrain`: taken from the cache in ``out``, else trained by the run's schedule and kept there."""
    assert unlearned.original is not None
    assert unlearned.base is not None
    method = _method(unlearned, settings)
    key = _key(unlearned, method, settings)
    file = out / CACHE / f"{START}{key}.safetensors"
    kept = _kept(file, unlearned, method) if file.is_file() else None
    if kept is not None:
        note(f"the reference was trained before; taken from {file}")
        return kept
    epochs = settings.train.epochs
    note(f"training the reference without what was deleted, {epochs} epoch{'s' * (epochs != 1)}")
    given = {"fit": unlearned.fit, "build": unlearned.build, "seed": settings.train.seed}
    trained = Unlearner(unlearned.base, unlearned.original, unlearned.task, method, **given).delete(unlearned.deletion)  # type: ignore[arg-type]
    trained = replace(trained, notes=())
    assert trained.model is not None
    facts = {"seconds": trained.seconds, "peak_mb": trained.peak_mb, "fingerprint": model_fingerprint(trained.model)}
    commit({file: dump_weights(trained.model, {"reference": json.dumps(facts)})}, remove=_older(file))
    return trained


def _method(unlearned: Unlearned, settings: Settings) -> Retrain:
    """Retrain from the next seed, or from another one where that is the very model under audit."""
    schedule, seed = settings.train, settings.train.seed + 1
    if unlearned.method == "retrain":
        own = unlearned.settings.get("seed")
        seed += 2 * (seed == (unlearned.seed + 1 if own is None else own))  # the shadow has the one between
    return Retrain(schedule.epochs, schedule.lr, schedule.patience, seed)


def _key(unlearned: Unlearned, method: Retrain, settings: Settings) -> str:
    """A name for everything the reference depends on; it starts with that of the remaining graph."""
    assert unlearned.data is not None
    assert unlearned.base is not None
    task, data = unlearned.task, unlearned.data
    tensors: dict[str, Any] = {f"data.{name}": value for name, value in data.to_dict().items()}
    if isinstance(task, LinkPrediction) and task.validation is not None:
        tensors |= {"val.true": task.validation.positives, "val.false": task.validation.negatives}
    facts = {
        "version": __version__,
        "base": model_fingerprint(unlearned.base),
        "deletion": unlearned.deletion.fingerprint,
        "data": tensor_digest(
            {n: v for n, v in tensors.items() if isinstance(v, Tensor) and v.layout == torch.strided}
        ),
        "model": settings.model.model_dump(mode="json", exclude={"checkpoint"}),
        "task": settings.task.model_dump(mode="json"),
        "train": settings.train.model_dump(mode="json", exclude={"device"}),
        "seed": method.seed,
        "device": data.edge_index.device.type,
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{fingerprint(data)[:16]}-{digest[:16]}"


def _kept(file: Path, unlearned: Unlearned, method: Retrain) -> Unlearned | None:
    """The reference in a file; None, with a word about it, where that is not what was written there."""
    assert unlearned.base is not None
    try:
        with safe_open(file, framework="pt") as opened:
            facts = json.loads((opened.metadata() or {})["reference"])
        model = working_copy(unlearned.base)
        load_weights(file, model)
        if model_fingerprint(model) != facts["fingerprint"]:
            raise ValueError("other weights than were written")
        return replace(
            unlearned,
            model=model,
            adapter=None,
            method=method.name,
            settings=method.settings(),
            assurance=method.assurance,
            seconds=float(facts["seconds"]),
            peak_mb=facts["peak_mb"],
            parameters=sum(p.numel() for p in model.parameters()),
            notes=(),
            details={},
            predictor=None,
        )
    except (OSError, SafetensorError, ModelError, ValueError, KeyError, TypeError) as error:
        note(f"the reference kept in {file} is damaged ({type(error).__name__}), so it is trained again")
        return None


def _older(file: Path) -> list[Path]:
    """References for other deletions: they were trained on what may have been deleted since."""
    same = file.name.rpartition("-")[0]
    return [path for path in file.parent.glob(f"{START}*.safetensors") if not path.name.startswith(f"{same}-")]
