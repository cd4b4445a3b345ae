"""Versions: whole or absent after a kill at any moment, one writer at a time, and every changed bit is found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gnndelete.errors import AdapterError, AppliedError, RunError
from gnndelete.io import versions
from gnndelete.io.versions import Manifest, Versions, folder_problems, locked

KILLS = int(os.environ.get("GNNDELETE_FUZZ", "1"))
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork to kill a child of")


def add(root: Path, name: str, **fields: object) -> Manifest:
    """Add a version as a verb does."""

    def make(folder: Path) -> None:
        (folder / "ids.json").write_text(f"secret {name}")
        (folder / "result.json").write_text(name)

    now = datetime.now(UTC)
    with locked(root):
        run = Versions(root)
        run.repair()
        known = {"kind": "delete" if run.chain else "train", "base": "a" * 64, "graph": "b" * 64}
        fields = {**known, "received": now, "served": now, "request_id": name, **fields}
        return run.publish(make, frozenset({"ids.json"}), **fields)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("first", "second"):
        add(folder, name)
    return folder


def names(root: Path) -> list[str | None]:
    run = Versions(root)
    run.check(*range(len(run.chain)))
    return [manifest.request_id for manifest in run.chain]


def test_a_chain(root: Path) -> None:
    third = add(root, "third", counts={"nodes": 1}, facts={"lam": 0.5})
    run = Versions(root)
    assert [manifest.version for manifest in run.chain] == [0, 1, 2]
    assert run.latest == third
    assert run.latest.previous == run.chain[1].digest
    assert run.folder(0).name == "base"
    assert stat.S_IMODE((run.folder() / "ids.json").stat().st_mode) == 0o600
    assert json.loads((root / "current").read_text()) == {"version": 2, "digest": third.digest}


def test_the_umask_is_respected(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        add(tmp_path, "first")
    finally:
        os.umask(before)
    assert not [path for path in tmp_path.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.parametrize("name", ["manifest.json", "result.json", "ids.json"])
@pytest.mark.parametrize("version", [0, 1])
def test_every_flipped_bit_is_found(root: Path, name: str, version: int) -> None:
    file = Versions(root).folder(version) / name
    content = file.read_bytes()
    for place in range(0, len(content), max(1, 7 // KILLS)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            file.write_bytes(bytes(changed))
            with pytest.raises(AdapterError, match="restore"):
                names(root)
    file.write_bytes(content)
    assert names(root) == ["first", "second"]


def test_a_flipped_bit_in_current_is_found_or_says_the_same(root: Path) -> None:
    content = (root / "current").read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        (root / "current").write_bytes(bytes(changed))
        try:
            assert names(root) == ["first", "second"]
            assert json.loads(changed) == json.loads(content)
        except AdapterError:
            pass


def _remove_latest(root: Path) -> None:
    shutil.rmtree(root / "versions/0002")


def _older_current(root: Path) -> None:
    run = Versions(root)
    (root / "current").write_text(json.dumps({"version": 0, "digest": run.chain[0].digest}))


def _older_version(root: Path) -> None:
    shutil.rmtree(root / "versions/0002")
    shutil.copytree(root / "versions/0001", root / "versions/0002")


def _no_current(root: Path) -> None:
    (root / "current").unlink()


def _gap(root: Path) -> None:
    shutil.rmtree(root / "versions/0001")


def _no_ids(root: Path) -> None:
    (root / "versions/0002/ids.json").unlink()


def _more(root: Path) -> None:
    (root / "versions/0002/more").write_text("")


@pytest.mark.parametrize("change", [_remove_latest, _older_current, _older_version, _no_current, _gap, _no_ids, _more])
def test_nothing_earlier_comes_back(root: Path, change: Callable[[Path], None]) -> None:
    add(root, "third")
    change(root)
    with pytest.raises(AdapterError):
        names(root)


@pytest.mark.parametrize(
    "edit",
    [
        {"files": {"../../etc/passwd": "a" * 64}},
        {"files": {"/etc/passwd": "a" * 64}},
        {"version": "1"},
        {"version": True},
        {"counts": {"nodes": "../.."}},
        {"requests": -1},
        {"kind": "os:system"},
        {"more": 1},
        {"request_id": "x" * 1000},
    ],
)
def test_a_manifest_holds_checked_types_and_no_path_leads_out(root: Path, edit: dict[str, object]) -> None:
    file = root / "versions/0001/manifest.json"
    values = {**json.loads(file.read_text()), **edit}
    file.write_text(json.dumps(values))
    with pytest.raises(AdapterError, match="a field is wrong"):
        Versions(root)


@pytest.mark.parametrize("where", ["lock", "current", "versions", "versions/0001/result.json", "audit"])
def test_links_are_refused(root: Path, tmp_path: Path, where: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    if (root / where).is_dir():
        shutil.move(root / where, tmp_path / "moved")
        (root / where).symlink_to(tmp_path / "moved")
    else:
        (root / where).unlink(missing_ok=True)
        (root / where).symlink_to(outside)
    with pytest.raises(AdapterError, match="is a link"):
        Versions(root)
    with pytest.raises(AdapterError, match="is a link"), locked(root):
        pass
    assert outside.read_text() == "mine"


def _child(root: Path, event: int) -> int:
    """Add a version in a child that dies at the n-th operation on a file; its exit code."""
    child = os.fork()
    if child == 0:
        left = event

        def count(name: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            left -= name in ("os.rename", "os.remove", "os.mkdir", "os.chmod", "open", "os.rmdir")
            if left == 0:
                left -= 1  # the kill is an event itself
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        add(root, "killed")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@forks
@pytest.mark.parametrize("moved", [False, True])
def test_a_kill_at_any_operation_leaves_all_or_nothing(root: Path, tmp_path: Path, moved: bool) -> None:
    found = set()
    for event in range(1, 200):
        run = Path(shutil.copytree(root, tmp_path / f"run{event}"))
        code = _child(run, event)
        if moved:
            run = run.rename(tmp_path / f"moved{event}")
        after = names(run)
        assert after in (["first", "second"], ["first", "second", "killed"])
        if code == 0:
            assert after[-1] == "killed"
            break
        found.add(len(after))
        add(run, "next")
        assert names(run) == [*after, "next"]
        assert not list(run.rglob(".writing"))
    assert found == {2, 3}  # before the rename, and after it
    assert event > 12


@pytest.mark.parametrize("step", range(8))
def test_an_error_at_any_sync_is_told_apart(root: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    fsync, left = os.fsync, step + 2  # the first two are those of `repair`

    def failing(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    try:
        add(root, "third")
        applied = True
    except AppliedError:
        applied = True
    except RunError:
        applied = False
    monkeypatch.undo()
    assert names(root)[2:] == ["third"] * applied


@forks
def test_writers_wait_for_each_other(root: Path) -> None:
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            add(root, f"from {number}")
            os._exit(0)
        children.append(child)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    assert sorted(map(str, names(root)[2:])) == [f"from {number}" for number in range(8)]


def test_a_reader_beside_a_writer_sees_whole_versions(root: Path) -> None:
    stop, failed = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                names(root)
            except Exception as error:
                failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20):
        add(root, f"{number}")
    stop.set()
    reader.join()
    assert not failed


def test_waiting_is_told(root: Path) -> None:
    told = threading.Event()
    with locked(root):
        other = threading.Thread(target=lambda: locked(root, told.set).__enter__())
        other.start()
        assert told.wait(10)
    other.join(10)


def test_what_was_closed_is_erased_and_stays_verifiable(root: Path) -> None:
    def without_ids(folder: Path) -> None:
        (folder / "result.json").write_text("second")

    now = datetime.now(UTC)
    with locked(root):
        run = Versions(root)
        run.publish(without_ids, kind="close", base="a" * 64, graph="b" * 64, received=now, served=now)
    assert "was to be erased" in " ".join(Versions(root).problems(1))
    with locked(root):
        Versions(root).repair()
    assert not list(root.rglob("ids.json"))
    assert names(root) == ["first", "second", None]
    assert "ids.json" in Versions(root).chain[1].files  # its digest, as a commitment


def test_problems_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    digest = versions._sha256(b"y")
    assert folder_problems(tmp_path, {"a": digest, "b": digest}) == [
        f"'{tmp_path / 'a'}' is not the file that was written",
        f"'{tmp_path / 'b'}' is gone",
    ]
