"""Backups bring a service back and nothing that was deleted; keys change and receipts stay good."""

from __future__ import annotations

import shutil
import tarfile

import pytest

from gnndelete.datasets import NamedGraph
from gnndelete.errors import GNNDeleteError, RunError, SettingError
from gnndelete.service import receipts
from gnndelete.service.crypto import Sealed
from gnndelete.service.elements import Asked
from gnndelete.service.errors import ServiceError
from gnndelete.service.home import Home
from gnndelete.service.lifecycle import Service
from gnndelete.service.register import register
from gnndelete.service.upkeep import backup, collect, restore, rotate_keys
from gnndelete.service.verify import home_problems, replay
from gnndelete.testing import problem

from .conftest import MARK, new_database, open_shop


def other_place(shop):
    """A URL for what is restored: of the same kind."""
    return None if shop.service.storage.is_sqlite else new_database()


@pytest.fixture
def place(shop):
    """Where a backup of the shop is restored to: a new folder, and a new database of the same kind."""
    found = other_place(shop)
    folder = shop.service.home.path.parent / "restored"
    if found is None:
        yield folder, None
        return
    with found as url:
        yield folder, url


def test_a_backup_brings_everything_back(shop, place):
    folder, url = place
    asked = [shop.ask(edge)["id"] for edge in shop.edges(3)]
    shop.work()
    file = folder.parent / "backup.tar.gz"
    made = backup(shop.service, file)
    assert made["requests"] == 3
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(SettingError, match="new name"):
        backup(shop.service, file)
    found = restore(file, folder, url)
    assert found == {"models": 1, "requests": 3, "deleted_again": 0}
    back = open_shop(folder, shop.keys["admin"], url)
    assert back.scores(*shop.edges(5)) == shop.scores(*shop.edges(5))
    content = back.service.receipt(back.admin, asked[0])
    assert content == shop.service.receipt(shop.admin, asked[0])
    assert replay(folder, content, database=url).is_identical
    assert home_problems(back.service) == []
    fourth = back.ask(shop.edges(9)[7])["id"]
    back.service.regrow(back.admin, "shop")
    back.work()
    assert {back.state(each) for each in asked} == {"closed"}
    assert back.state(fourth) in ("suppressed", "closed")
    back.service.storage.close()


def test_what_was_deleted_since_a_backup_stays_deleted(shop, place, tmp_path):
    folder, url = place
    edges, node = shop.edges(8), shop.name(int(shop.data.edge_index[0, 5]))
    early = shop.ask(edges[0])["id"]
    shop.work()
    file = tmp_path / "early.tar.gz"
    backup(shop.service, file)
    kept, before = shop.scores(edges[7]), shop.scores(*edges[:4])
    for edge in edges[1:3]:
        shop.ask(edge)
    gone = shop.ask(elements={"nodes": [node]})["id"]
    shop.work()
    if shop.state(gone) == "held":
        shop.service.act(shop.admin, gone, "approve")
        shop.work()
    shop.service.regrow(shop.admin, "shop")
    shop.work()
    assert shop.state(early) == shop.state(gone) == "closed"
    shop.service.tombstones("default").save(tmp_path / "stones.json")
    from gnndelete.datasets.tombstones import Tombstones

    made = restore(file, folder, url, [Tombstones.load(tmp_path / "stones.json")])
    assert made["deleted_again"] == 3
    back = open_shop(folder, shop.keys["admin"], url)
    after = back.scores(*edges[:4])
    assert all(now < then for now, then in zip(after[1:3], before[1:3], strict=True))
    assert back.scores(edges[7]) == pytest.approx(kept, abs=0.5)
    with pytest.raises(ServiceError):
        back.scores([node, edges[0][0]])
    back.work()  # soon due: new weights at once
    states = {view["id"]: view["state"] for view in back.service.requests(back.admin)}
    assert states.pop(early) == "suppressed"
    assert list(states.values()) == ["closed"]
    assert all(f'"{node}"'.encode() not in content for _, content in back.files())
    back.service.storage.close()


def test_a_home_that_is_replaced_passes_its_tombstones_on(small, tmp_path):
    file = tmp_path / "backup.tar.gz"
    backup(small.service, file)
    small.ask(small.edge(0))
    small.work()
    with pytest.raises(SettingError, match="--replace"):
        restore(file, small.service.home.path)
    with pytest.raises(SettingError, match="stop the service"):
        restore(file, small.service.home.path, replace=True)
    small.worker.free()
    before = small.scores(small.edge(0))
    small.service.storage.close()
    assert restore(file, small.service.home.path, replace=True)["deleted_again"] == 1
    back = open_shop(small.service.home.path, small.keys["admin"])
    assert back.scores(small.edge(0)) == pytest.approx(before, abs=1e-4)
    back.service.storage.close()


def test_a_damaged_backup_changes_nothing(small, tmp_path):
    file, folder = tmp_path / "backup.tar.gz", tmp_path / "restored"
    backup(small.service, file)
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "parts", filter="data")
    part = next((tmp_path / "parts").rglob("base.safetensors"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    damaged = tmp_path / "damaged.tar.gz"
    with tarfile.open(damaged, "w:gz") as archive:
        archive.add(tmp_path / "parts" / "home", "home")
    with pytest.raises(GNNDeleteError, match=r"damaged|not the file"):
        restore(damaged, folder)
    (tmp_path / "cut.tar.gz").write_bytes(file.read_bytes()[:5000])
    with pytest.raises(RunError, match="could not be restored"):
        restore(tmp_path / "cut.tar.gz", folder)
    assert not folder.exists()
    assert not list(tmp_path.glob(".writing-*"))


def test_new_keys_make_old_copies_of_the_database_unreadable(shop):
    asked = shop.ask(shop.edge(0))["id"]
    shop.work()
    with shop.service.storage.reading() as records:
        old = records.secret(asked)
        old = Sealed(old.wrapped, old.sealed)
    receipt = shop.service.receipt(shop.admin, asked)
    made = rotate_keys(shop.service)
    assert made["requests"] == 1
    with pytest.raises(RunError, match="master key number 1 is gone"):
        shop.service.keys.safe.open(old, asked)
    assert receipts.problems(receipt) == []
    again = shop.service.receipt(shop.admin, asked)
    assert receipts.problems(again, trusted=made["signed_by"]) == []
    shop.service.act(shop.admin, asked, "undo")
    shop.work()
    assert shop.state(asked) == "cancelled"
    assert home_problems(shop.service) == []


def test_what_nothing_needs_is_removed(small):
    for edge in small.edges(3):
        small.ask(edge)
        small.work()
    small.clock.advance(1.1 * 86400)
    small.work()  # compaction
    small.ask(small.edges(9)[6])
    small.work()
    before = small.scores(*small.edges(5))
    folder = small.service.folder("default", "shop")
    made = collect(small.service)
    assert made["versions"] == 4
    assert len(folder.numbers("versions")) == 2
    assert collect(small.service)["versions"] == 0
    again = open_shop(small.service.home.path, small.keys["admin"])
    assert again.scores(*small.edges(5)) == before
    assert home_problems(again.service) == []
    again.service.storage.close()


def test_a_model_that_may_have_learned_what_was_deleted_is_refused(small, tmp_path):
    edge = small.edge(0)
    small.ask(edge)
    small.work()
    model, data, task = problem("link")
    ids = small.service.live(_row(small)).snapshot().generation.elements.graph.ids
    graph = NamedGraph(data, ids)
    with pytest.raises(ServiceError, match="1 edge that were deleted before"):
        register(small.service, "second", model, graph, task)
    left, _ = small.service.tombstones("default").strip(graph)
    register(small.service, "second", model, left, task)
    other = NamedGraph(data, ids)
    register(small.service, "second", model, other, task, tenant="bakery")
    assert small.service.predict(small.admin, "second", Asked({"edges": [edge]}))["version"] == 0


def _row(shop):
    with shop.service.storage.reading() as records:
        return records.model("default", "shop")


def test_a_copied_home_needs_its_keys(small, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(small.service.home.path, copy)
    (copy / "keys" / "master.json").unlink()
    service = Service(Home(copy))
    with pytest.raises(OSError, match="No such file"):
        _ = service.keys.safe
    assert MARK
    service.storage.close()
