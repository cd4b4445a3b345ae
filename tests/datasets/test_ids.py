"""External ids: both directions, closest matches, files, and requests written in them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnndelete import Deletion
from gnndelete.datasets import IdMap
from gnndelete.datasets.ids import without_names
from gnndelete.errors import DeletionError, GraphError

USERS = IdMap(["user:4711", "user:12", "item:7", "user:9"])
NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
        lambda name: name == name.strip() and not {"\n", "\r"} & set(name)
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(NAMES, st.data())
def test_names_survive_every_round_trip(tmp_path_factory: pytest.TempPathFactory, names: list[str], data) -> None:
    ids = IdMap(names)
    places = data.draw(st.lists(st.integers(0, len(names) - 1)))
    assert ids.to_int(ids.to_name(places)).tolist() == places
    assert ids.to_name(ids.to_int(names)) == names
    folder = tmp_path_factory.mktemp("ids")
    ids.save(folder / "ids.json")
    assert IdMap.load(folder / "ids.json") == ids
    with (folder / "request.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["source", "target"], *([name, names[0]] for name in names)])
    found = Deletion.from_csv(folder / "request.csv", ids=ids)
    assert found == Deletion(edges=[(place, 0) for place in range(len(names))])


def test_fingerprint_tells_names_and_order_apart() -> None:
    assert IdMap(["a", "b"]).fingerprint == IdMap(["a", "b"]).fingerprint
    assert len({IdMap(n).fingerprint for n in (["a", "b"], ["b", "a"], ["ab"], [])}) == 4
    assert IdMap(["a"]) != IdMap(["b"])
    assert hash(IdMap(["a"])) == hash(IdMap(["a"]))


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\rb", "\udcff", 7, None])
def test_names_that_cannot_be_used(name: object) -> None:
    with pytest.raises(GraphError, match="1 ids cannot be used"):
        IdMap(["fine", name])  # type: ignore[list-item]


def test_repeated_names() -> None:
    with pytest.raises(GraphError, match="2 ids stand for several nodes: 'a', 'b'"):
        IdMap(["a", "b", "a", "b"])


def test_unknown_ids_are_counted_and_the_closest_shown() -> None:
    with pytest.raises(
        DeletionError, match=r"2 ids are not in the graph: 'user:4712', did you mean 'user:4711'\?, 'zz'"
    ):
        USERS.to_int(["user:12", "user:4712", "zz", "zz"])
    with pytest.raises(DeletionError, match=r"and 5 more"):
        USERS.to_int([f"q{i}" for i in range(25)])
    with pytest.raises(DeletionError, match="give a list"):
        USERS.to_int("user:12")
    with pytest.raises(DeletionError, match="4, -1; they go from 0 to 3"):
        USERS.to_name([0, 4, -1])
    assert USERS.to_name(torch.tensor([[2], [0]])) == ["item:7", "user:4711"]


@pytest.mark.parametrize("typo", ["user:471", "user:47111", "usr:4711", "user:4171", "Xser:4711", "user;4711"])
def test_closest_in_a_small_and_a_large_graph(typo: str) -> None:
    assert USERS.closest(typo) == "user:4711"
    large = IdMap([*(f"other-{i}" for i in range(30_000)), "user:4711"])
    assert large.closest(typo) in ("user:4711", None)
    assert large.closest("user:47111") == "user:4711"
    assert large.closest("nothing like it") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04]q\x00.",
        b"[]",
        b'{"format": "other"}',
        b'{"format": "gnndelete-ids-1", "names": ["a"], "sha256": "0"}',
        b'{"format": "gnndelete-ids-1", "names": "ab", "sha256": "0"}',
        b"[" * 100_000,
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ids.json").write_bytes(content)
    with pytest.raises(GraphError, match="damaged"):
        IdMap.load(tmp_path / "ids.json")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = USERS.to_bytes()
    assert json.loads(content)["names"] == list(USERS.names)
    for length in range(len(content) - 2):
        (tmp_path / "ids.json").write_bytes(content[:length])
        with pytest.raises(GraphError):
            IdMap.load(tmp_path / "ids.json")
    with pytest.raises(GraphError, match="cannot be read"):
        IdMap.load(tmp_path / "none.json")


def test_names_that_stand_for_deleted_nodes_are_never_taken() -> None:
    ids = IdMap(["deleted:1", "ann", "bob"])
    assert without_names(ids, torch.tensor([1])).names == ("deleted:1", "_deleted:1", "bob")
    assert without_names(ids, torch.tensor([], dtype=torch.long)) is ids
