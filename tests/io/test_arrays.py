"""Folders of arrays: what is planted in one is refused, and nothing outside it is touched."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnndelete.errors import AdapterError, SettingError
from gnndelete.io import arrays
from gnndelete.io.arrays import Arrays, Draft

KIND, IDENTITY = "test", {"of": "a test"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    file = tmp_path / "outside"
    file.write_bytes(b"mine" * 10)
    yield file
    assert file.read_bytes() == b"mine" * 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draft = Draft(tmp_path / "arrays", KIND, IDENTITY)
    draft.append("x", np.arange(6.0))
    draft.close({"x": ("float64", [2, 3])}, made="today")
    return tmp_path / "arrays"


def planted(folder: Path, place: str, value: Any) -> None:
    """Change one value of the manifest, whose digest fits again."""
    manifest = json.loads((folder / arrays.MANIFEST).read_text())
    del manifest["sha256"]
    part = manifest
    *above, last = place.split("/")
    for name in above:
        part = part[name]
    part[last] = value
    content = arrays._text({**manifest, "sha256": arrays._digest(manifest)})
    (folder / arrays.MANIFEST).write_text(content)


@pytest.mark.parametrize("identity", [IDENTITY, {"of": "another"}])
@pytest.mark.parametrize("name", ["../outside", "parts/../../outside", "{outside}"])
def test_a_planted_draft_reaches_nothing_outside(
    tmp_path: Path, outside: Path, identity: dict[str, str], name: str
) -> None:
    sizes = {name.format(outside=outside): 3}
    state = {"kind": KIND, "identity": identity, "sizes": sizes, "facts": {}}
    folder = tmp_path / "arrays"
    folder.mkdir()
    (folder / arrays.DRAFT).write_text(json.dumps(state))
    assert Draft(folder, KIND, IDENTITY).sizes == {}


@pytest.mark.parametrize("where", ["x", "parts", arrays.DRAFT, arrays.MANIFEST])
def test_a_draft_writes_through_no_link(tmp_path: Path, outside: Path, where: str) -> None:
    (tmp_path / "arrays").mkdir()
    (tmp_path / "arrays" / where).symlink_to(outside)
    with pytest.raises(AdapterError, match="is a link"):
        Draft(tmp_path / "arrays", KIND, IDENTITY)


def test_a_draft_that_lost_bytes_is_begun_again(tmp_path: Path) -> None:
    draft = Draft(tmp_path, KIND, IDENTITY)
    draft.append("x", np.arange(6.0))
    draft.commit()
    assert Draft(tmp_path, KIND, IDENTITY).sizes == {"x": 48}
    os.truncate(tmp_path / "x", 40)
    assert Draft(tmp_path, KIND, IDENTITY).sizes == {}


@pytest.mark.parametrize("name", ["../x", "/x", ".x", "a b", "x" * 200, "manifest.json"])
def test_names_of_arrays_lead_nowhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="is no name of an array"):
        Draft(tmp_path, KIND, IDENTITY).append(name, np.ones(1))


FORGED = [
    ("files/x/dtype", "O"), ("files/x/dtype", 3), ("files/x/shape", [-1, 6]), ("files/x/shape", [2**62, 8]),
    ("files/x/shape", [2.0, 3]), ("files/x/shape", None), ("files/x/sha256", None), ("files", []), ("kind", ["x"]),
    ("files/..", {"dtype": "uint8", "shape": [40], "sha256": []}), ("format", 2), ("more", 1), ("facts", None),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value"), FORGED)
def test_a_forged_manifest_is_refused_in_one_sentence(folder: Path, place: str, value: Any) -> None:
    if place == "files/..":
        place = "files/../outside"
        (folder.parent / "outside").write_bytes(b"mine" * 10)
        manifest = json.loads((folder / arrays.MANIFEST).read_text())
        files = {**copy.deepcopy(manifest["files"]), "../outside": value}
        place, value = "files", files
    planted(folder, place, value)
    with pytest.raises(AdapterError) as error:
        Arrays(folder, KIND)
    assert len(str(error.value)) < 500
    assert len(arrays.problems(folder)) == 1


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 10_000, b"null", b"[]", b"\xff", b'{"sha256": 1}'])
def test_content_that_is_no_manifest_is_refused(folder: Path, content: bytes) -> None:
    (folder / arrays.MANIFEST).write_bytes(content)
    with pytest.raises(AdapterError, match="manifest"):
        Arrays(folder, KIND)
    assert len(arrays.problems(folder)) == 1
    (folder / arrays.MANIFEST).unlink()
    (folder / arrays.DRAFT).write_bytes(content)
    assert Draft(folder, KIND, IDENTITY).sizes == {}
