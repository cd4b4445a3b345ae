"""Receipts and homes are checked to the last byte, and an adapter is solved again to the same digest."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from gnndelete.errors import AdapterError
from gnndelete.service import receipts
from gnndelete.service import schema as t
from gnndelete.service.folders import ADAPTER
from gnndelete.service.lifecycle import Service
from gnndelete.service.receipts import read_checkpoint
from gnndelete.service.verify import TOLERANCE, home_problems, replay

#: How many times as many flips as usual.
FUZZ = int(os.environ.get("GNNDELETE_FUZZ", "1"))


def receipt_of(shop, request: str) -> bytes:
    return shop.service.receipt(shop.admin, request)


def flipped(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ draw.randrange(1, 256)]) + content[place + 1 :]


def test_solving_again_gives_the_very_same_adapter(shop):
    asked = [shop.ask(edge)["id"] for edge in shop.edges(4)]
    shop.work()
    asked.append(shop.ask(shop.edges(9)[7])["id"])
    shop.work()
    shop.service.act(shop.admin, asked[1], "undo")
    late = shop.ask(shop.edges(15)[11])["id"]
    shop.work()
    for each in (asked[0], asked[-1], late):
        found = replay(shop.service.home.path, receipt_of(shop, each), database=shop.service.storage.url)
        assert found.is_identical, found.text


def test_replay_on_another_thread_count_stays_within_the_tolerance(small):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    found = replay(small.service.home.path, receipt_of(small, asked), threads=2)
    assert found.is_identical or 0 <= found.distance <= TOLERANCE


def test_replay_ends_with_the_old_weights(small):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    early = receipt_of(small, asked)
    small.service.regrow(small.admin, "shop")
    small.work()
    for content in (early, receipt_of(small, asked)):
        assert receipts.problems(content) == []
        found = replay(small.service.home.path, content)
        assert not found.is_possible
        assert "no longer possible" in found.text


def test_replay_finds_a_home_that_was_changed(small):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    content = receipt_of(small, asked)
    file = small.service.folder("default", "shop").folder("versions", 1) / ADAPTER
    file.write_bytes(flipped(file.read_bytes(), random.Random(0)))
    with pytest.raises(AdapterError, match="not the file that was written"):
        replay(small.service.home.path, content)


def test_every_flipped_byte_of_a_receipt_and_a_checkpoint_is_found(small):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    receipt, draw = receipt_of(small, asked), random.Random(1)
    assert receipts.problems(receipt) == []
    checkpoint = receipts.canonical(
        small.service.checkpoint(small.admin, json.loads(receipt)["ledger"]["checkpoint"]["size"])
    )
    assert receipts.problems(receipt, ledger=read_checkpoint(checkpoint)) == []
    for _ in range(150 * FUZZ):
        assert receipts.problems(flipped(receipt, draw))
        try:
            found = receipts.problems(receipt, ledger=read_checkpoint(flipped(checkpoint, draw)))
        except ValueError:
            continue
        assert found


def test_every_flipped_byte_of_a_model_and_a_ledger_is_found(small):
    small.ask(*small.edges(3))
    small.work()
    assert home_problems(small.service) == []
    draw = random.Random(2)
    folder = small.service.folder("default", "shop")
    files = [file for kind in ("generations", "versions") for file in (folder.path / kind).rglob("*") if file.is_file()]
    files = [file for file in files if "cache" not in file.parts]
    for _ in range(20 * FUZZ):
        file = draw.choice(files)
        before = file.read_bytes()
        file.write_bytes(flipped(before, draw))
        assert home_problems(small.service), file
        file.write_bytes(before)
    columns = [
        (t.Leaf, "content"),
        (t.Leaf, "hash"),
        (t.Node, "hash"),
        (t.SignedCheckpoint, "content"),
        (t.Receipt, "body"),
        (t.Receipt, "salt"),
    ]
    for _ in range(20 * FUZZ):
        table, column = draw.choice(columns)
        _flip_in_database(small.service, table, column, draw)
    assert home_problems(small.service) == []


def _flip_in_database(service: Service, table: type, column: str, draw: random.Random) -> None:
    """Change one byte of one row as it lies in the database; it must be found, and is put back."""
    with service.storage.writing() as records:
        rows = records.session.query(table).all()
        row = draw.choice(rows)
        before = getattr(row, column)
        changed = flipped(before.encode(), draw).decode("latin-1")
        setattr(row, column, changed)
    assert home_problems(service), (table, column, before, changed)
    with service.storage.writing() as records:
        setattr(records.session.merge(row), column, before)


def test_a_receipt_of_another_ledger_is_refused(small, tmp_path):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    receipt = receipt_of(small, asked)
    size = json.loads(receipt)["ledger"]["checkpoint"]["size"]
    small.ask(small.edges(9)[5])
    small.work()
    newer = small.service.checkpoint(small.admin)
    assert "no proof" in receipts.problems(receipt, ledger=read_checkpoint(receipts.canonical(newer)))[0]
    joined = small.service.checkpoint(small.admin, size)
    assert receipts.problems(receipt, ledger=read_checkpoint(receipts.canonical(joined))) == []
    assert receipts.problems(receipt, trusted="0" * 64) == ["it was signed by another key than the one given"]


def test_keys_that_are_rotated_keep_old_receipts_good(small, tmp_path):
    asked = small.ask(small.edge(0))["id"]
    small.work()
    old, before = receipt_of(small, asked), small.service.keys.signer.public
    after = small.service.keys.new_signer()
    assert small.service.keys.signer.public == after != before
    small.ask(small.edges(9)[5])
    small.work()
    new = receipt_of(small, asked)
    assert receipts.problems(old, trusted=before) == receipts.problems(new, trusted=after) == []
    assert receipts.problems(new, trusted=before)
    assert home_problems(small.service) == []
    copy = tmp_path / "copy"
    shutil.copytree(small.service.home.path, copy)
    Path(copy / "keys" / "public" / f"{before[:16]}.pem").unlink()
    other = Service(type(small.service.home)(copy))
    assert home_problems(other)
    other.storage.close()
