"""What an auditor checks: a receipt offline, its adapter by solving it again, and the whole home of a service."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from gnndelete.errors import AdapterError, GNNDeleteError, RunError, SettingError
from gnndelete.graph.deletion import Deletion
from gnndelete.nn.adapter import dump_operators, model_fingerprint
from gnndelete.service import ledger, merkle
from gnndelete.service import schema as t
from gnndelete.service.crypto import canonical, digest, joined_digest, read_public_pem, salted
from gnndelete.service.elements import Asked, together
from gnndelete.service.folders import ADAPTER, ModelFolder
from gnndelete.service.home import Home
from gnndelete.service.lifecycle import Service
from gnndelete.service.receipts import Checkpoint, Receipt, chained, commitment, read, read_checkpoint
from gnndelete.service.solver import Solver
from gnndelete.service.storage import Records

#: How far operators may be from those of the receipt, relative to their norm, where the software or the number of threads
#: differs: sums of floating-point numbers come in another order.
TOLERANCE = 1e-4

#: Holds an API key for the ledger of a service.
KEY_VARIABLE = "GNNDELETE_API_KEY"


@dataclass(frozen=True)
class Replayed:
    """What solving a deletion again gave.

    Attributes:
        is_possible: Whether what it starts from still exists.
        text: What was found, in one sentence.
        is_identical: Whether the adapter has the digest of the receipt.
        distance: How far it is from the stored one, relative to its norm.
    """

    is_possible: bool
    text: str
    is_identical: bool = False
    distance: float | None = None


def read_key(path: Path) -> str:
    """The public key in a PEM file."""
    try:
        return read_public_pem(path.read_bytes())
    except FileNotFoundError:
        raise SettingError(f"there is no file '{path}'; give --key the public.pem of the service") from None
    except ValueError:
        raise SettingError(f"'{path}' holds no public key; give --key the public.pem of the service") from None


def fetch_checkpoint(source: str, size: int, api_key: str | None) -> Checkpoint:
    """A checkpoint from a file, or from a service with a proof that it continues the ledger of a receipt.

    Args:
        source: A file, or the URL of a service.
        size: The number of leaves when the receipt was issued.
        api_key: A key of the service.

    Raises:
        ValueError: If what was found is no checkpoint.
    """
    if not source.startswith(("http://", "https://")):
        try:
            return read_checkpoint(Path(source).read_bytes())
        except FileNotFoundError:
            raise SettingError(f"there is no file '{source}'; give --ledger a checkpoint or a URL") from None
    address = f"{source.rstrip('/').removesuffix('/v1/ledger/checkpoint')}/v1/ledger/checkpoint?from={size}"
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return read_checkpoint(answer.read())
    except URLError as error:
        reason = getattr(error, "code", None) or getattr(error, "reason", error)
        raise RunError(
            f"the ledger at '{source}' could not be read ({reason})",
            f"check the address, and that {KEY_VARIABLE} holds an API key of the service",
        ) from None


# Solving again


def replay(folder: Path, content: bytes, threads: int | None = None, database: str | None = None) -> Replayed:
    """Solve the deletion of a receipt again, from the named base, graph and request, and compare the adapter.

    Args:
        folder: The home of the service, or a copy of it.
        content: The receipt, which holds.
        threads: How many threads solve; by default as many as did then.
        database: The URL of its database; by default the one that the home names.

    Raises:
        AdapterError: If what the folder holds is not what the receipt says.
    """
    receipt = read(content)
    if receipt.weights == "new":
        return Replayed(
            False,
            "replay is no longer possible: the weights are new, and the old ones with their graph and ids were destroyed",
        )
    service = Service(Home(folder), database)
    try:
        with service.storage.reading() as records:
            return _replay(service, records, receipt, threads)
    finally:
        service.storage.close()


def _replay(service: Service, records: Records, receipt: Receipt, threads: int | None) -> Replayed:
    request = records.request(receipt.id)
    if request is None:
        raise AdapterError(f"'{service.home.path}' knows no request {receipt.id}", "name the home it was made in")
    model, number = records.model_by_id(request.model_id), int(receipt.model["version"])
    folder = service.folder(model.tenant, model.name)
    if number not in folder.numbers("versions"):
        state = f"the request is {request.state}" if request.in_version == number else "a later receipt supersedes it"
        return Replayed(False, f"replay is no longer possible: version {number} of the model is gone; {state}")
    found = folder.problems("versions", number)
    manifest = folder.manifest("versions", number)
    _require(not found, found[0] if found else "")
    _require(manifest["adapter"] == receipt.adapter, "the stored adapter is not that of the receipt")
    _require(manifest["base"] == receipt.base, "the stored base is not that of the receipt")
    _require(manifest["graph"] == receipt.graph.model_dump(), "the stored graph is not that of the receipt")
    chain = [folder.manifest("versions", each) for each in manifest["chain"]]
    found_ids = {each: service.payload(records, each) for part in chain for each in part["solved"]}
    payloads = {each: payload for each, payload in found_ids.items() if payload is not None}
    if gone := found_ids.keys() - payloads.keys():
        what = "the ids of the request were" if receipt.id in gone else "the ids of an earlier request below it were"
        return Replayed(False, f"replay is no longer possible: {what} destroyed")
    commitments = {each: salted(payload["salt"], canonical(payload["elements"])) for each, payload in payloads.items()}
    _require(commitments[receipt.id] == receipt.request, "what the request names is not what the receipt commits to")
    after = chained(manifest["graph"]["before"], joined_digest(commitments[each] for each in manifest["solved"]))
    _require(after == receipt.graph.after, "the graph after the deletion is not that of the receipt")
    with _threads(threads or int(receipt.software.get("threads", "0")) or None):
        solver = Solver(folder, manifest["generation"])
        _require(model_fingerprint(solver.made.model) == receipt.base, "the weights are not those of the receipt")

        def deletion(part: dict[str, Any]) -> Deletion:
            named = [payloads[each]["elements"] for each in part["solved"]]
            return together([solver.elements.still_there(Asked(each)) for each in named])

        for part in chain[:-1]:
            solver.restore(deletion(part), folder.read_operators(part["number"]))
        solved, _ = dump_operators(solver.suppress(deletion(chain[-1])).operators)
    stored = (folder.folder("versions", number) / ADAPTER).read_bytes()
    if solved == stored:
        return Replayed(True, "replayed: solving the deletion again gives the very same adapter", True, 0.0)
    distance = _distance(load_tensors(solved), load_tensors(stored))
    _require(
        distance is not None and distance <= TOLERANCE,
        "solving the deletion again gives another adapter"
        + ("" if distance is None else f" (relative distance {distance:.1e}, tolerance {TOLERANCE:.0e})"),
    )
    return Replayed(
        True,
        f"replayed: solving the deletion again gives the same adapter up to rounding (relative distance {distance:.1e}, "
        f"tolerance {TOLERANCE:.0e}); the software or the number of threads differs",
        False,
        distance,
    )


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise AdapterError(why, "restore the home of the service from a backup, or ask who issued the receipt")


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float | None:
    """How far two adapters are from each other, relative to their norm; None where they have other shapes or rows."""
    if {name: value.shape for name, value in one.items()} != {name: value.shape for name, value in other.items()}:
        return None
    gap = norm = 0.0
    for name, value in one.items():
        if not value.is_floating_point():
            if not torch.equal(value, other[name]):
                return None
            continue
        gap += float((value.double() - other[name].double()).square().sum())
        norm += float(other[name].double().square().sum())
    return (gap / norm) ** 0.5 if norm else gap


# The whole home


def home_problems(service: Service) -> list[str]:
    """What is wrong in the home of a service: every row of the ledger, every receipt, every file of every model."""
    with service.storage.reading() as records:
        found = ledger.problems(records, service.keys.trusted)
        leaves = {leaf.hash for leaf in records.leaves()}
        for receipt in records.receipts():
            found += _receipt_problems(records, receipt)
        models = records.models()
        recorded = {model.id: records.versions(model.id, 1_000_000) for model in models}
    for model in models:
        folder = service.folder(model.tenant, model.name)
        found += _model_problems(folder, recorded[model.id], leaves)
    return found


def _receipt_problems(records: Records, receipt: t.Receipt) -> list[str]:
    leaf = records.leaf(receipt.leaf)
    try:
        body = json.loads(receipt.body)
        good = (
            leaf is not None
            and canonical(body).decode() == receipt.body
            and body["id"] == receipt.request_id
            and commitment(body, receipt.salt).hex() == leaf.content
            and receipt.salt == receipt.salt.lower()
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        good = False
    return [] if good else [f"the receipt at leaf {receipt.leaf} was changed"]


def _model_problems(folder: ModelFolder, recorded: Sequence[t.Version], leaves: set[str]) -> list[str]:
    known = {version.number: version.digest for version in recorded}
    found: list[str] = []
    try:
        live = folder.aliases["live"]
    except GNNDeleteError as error:
        return [str(error)]
    if live not in folder.numbers("versions"):
        found.append(f"the live version {live} in '{folder.path}' is gone")
    for kind in ("generations", "versions"):
        for number in folder.numbers(kind):
            bad = folder.problems(kind, number)
            found += bad
            if bad or kind == "generations":
                continue
            value = digest(folder.manifest(kind, number))
            if number in known and known[number] != value:
                found.append(f"version {number} in '{folder.path}' is not the one that was recorded")
            elif number in known and merkle.leaf_hash(bytes.fromhex(value)).hex() not in leaves:
                found.append(f"the ledger does not hold version {number} in '{folder.path}'")
    return found
