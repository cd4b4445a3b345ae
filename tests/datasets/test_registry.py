"""Loading by name: the bundled and generated graphs anywhere, real ones with the sizes that are published."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gnndelete.datasets import describe, load, names
from gnndelete.datasets.registry import ENTRIES, named
from gnndelete.errors import GraphError, SettingError

GRAPHS = [entry.name for entry in describe() if entry.kind and entry.graphs == 1]
SETS = [entry.name for entry in describe() if entry.graphs > 1 and entry.name != "ogbg-molhiv"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _use_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNDELETE_CACHE", str(cache))


def needed(name: str) -> None:
    """Skip, with the reason, where the raw files of a dataset are not at hand."""
    if "GNNDELETE_DATA" not in os.environ:
        pytest.skip("GNNDELETE_DATA names no data folder")
    folder = Path(os.environ["GNNDELETE_DATA"]) / ENTRIES[name].folder
    if not all((folder / file).is_file() for file in ENTRIES[name].files):
        pytest.skip(f"{name} is not in the data folder")


def test_unknown_name() -> None:
    with pytest.raises(GraphError, match=r"'dlbp'; did you mean 'dblp'\?"):
        load("dlbp")
    with pytest.raises(GraphError, match=r"'zzz'; choose from digits, .*planetoid-cora"):
        load("zzz")
    assert len(set(names())) == len(names()) == len(describe())
    for entry in describe():
        assert entry.source
        assert entry.held


def test_parameters_in_the_name() -> None:
    data = load("Generated:Collab?nodes=300&edges=1_200&features=8&mixing=0.5&seed=3")
    assert (data.num_nodes, data.num_edges, data.num_features) == (300, 1200, 8)
    other = load("generated:collab?nodes=300&edges=1200&features=8&mixing=0.5&seed=4")
    assert not torch.equal(data.edge_index, other.edge_index)
    typed = load("generated:biokg?entities=200&triples=900&relations=5")
    assert (typed.num_nodes, typed.num_edges, typed.edge_type.unique().tolist()) == (200, 900, [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("generated:collab?node=3", r"no parameter 'node'; did you mean 'nodes'\?"),
        ("generated:collab?nodes=many", r"'nodes'.*whole number.*'many'"),
        ("generated:biokg?mixing=x", r"'mixing'.*a number.*'x'"),
        ("generated:collab?nodes", r"NAME\?parameter=value"),
        ("dblp?seed=3", r"'dblp' takes no parameters.*generated:biokg"),
        ("generated:collab?nodes=0", r"'generated:collab\?nodes=0': 'nodes' must be at least 1 \(got 0\)"),
        ("generated:collab?nodes=5", r"at most 10 for 5 nodes \(got 2358104\)"),
        ("generated:collab?noise=nan", r"'noise' must be a finite number \(got nan\)"),
        ("generated:collab?seed=-1", r"'seed' must be at least 0 \(got -1\)"),
        ("generated:biokg?entities=3", r"'entities' must be at least 20"),
        ("generated:biokg?relations=9_000_000", r"'triples' must lie between .*\(9000000\)"),
        ("digits?neighbors=0", r"'digits\?neighbors=0': 'neighbors' must lie between 1 and 1780 \(got 0\)"),
    ],
)
def test_parameters_that_make_no_sense(name: str, message: str) -> None:
    """They are refused before a graph is made, also where only the name is looked at."""
    with pytest.raises(SettingError, match=message):
        load(name)
    with pytest.raises(SettingError, match=message):
        named(name)


@pytest.mark.parametrize("name", GRAPHS)
def test_published_sizes(name: str) -> None:
    needed(name)
    entry = ENTRIES[name]
    data = load(name)
    assert (data.num_nodes, data.num_edges, data.num_features) == (entry.nodes, entry.edges, entry.features)
    assert int((data.edge_type if entry.typed else data.y).max()) + 1 == (entry.relations or entry.classes)
    if entry.typed:
        assert int(data.edge_type.min()) == 0
    if "train_mask" in data and entry.typed:
        parts = torch.stack([data.train_mask, data.val_mask, data.test_mask])
        assert parts.shape == (3, entry.edges)
        assert bool((parts.sum(dim=0) == 1).all())
    masks = data["train_mask"].size(0) if "train_mask" in data else 0
    assert entry.split_for == {0: "", entry.nodes: "node", entry.edges: "link"}[masks]
    if entry.normalised:
        sums = data.x.sum(dim=1)
        assert torch.allclose(sums[sums > 0], torch.ones_like(sums[sums > 0]), atol=1e-5)


@pytest.mark.parametrize("name", SETS)
def test_published_sets(name: str) -> None:
    needed(name)
    entry, found = ENTRIES[name], load(name)
    assert (len(found), found.num_features, found.num_classes) == (entry.graphs, entry.features, entry.classes)
    assert bool(found.split) == (entry.split_for == "graph")
    assert sum(graph.num_nodes for graph in found) == entry.nodes
    assert sum(graph.num_edges for graph in found) == entry.edges


@pytest.mark.slow
def test_molhiv() -> None:
    needed("ogbg-molhiv")
    pytest.importorskip("ogb")
    entry, found = ENTRIES["ogbg-molhiv"], load("ogbg-molhiv")
    assert (len(found), found.num_features, found.num_classes) == (entry.graphs, entry.features, entry.classes)
    assert (int(found.slices["x"][-1]), int(found.slices["edge_index"][-1])) == (entry.nodes, entry.edges)
    assert int(found.y.sum()) == 1_443
    assert {part: len(ids) for part, ids in found.split.items()} == {"train": 32_901, "valid": 4_113, "test": 4_113}
    assert entry.split_for == "graph"
    assert torch.cat(list(found.get_idx_split().values())).unique().numel() == len(found)
    assert found[found.split["valid"]][0].x.shape[1] == 9


def test_cs_is_sparse_on_disk_and_where_asked(cache: Path) -> None:
    needed("cs")
    data = load("cs", sparse=True)
    assert data.x.is_sparse
    assert data.x.shape == (18_333, 6_805)
    assert sum(path.stat().st_size for path in (cache / "datasets").glob("cs-*")) < 40e6


def test_debian_names() -> None:
    needed("debian")
    data = load("debian")
    assert data.relation_names.names[:2] == ("Depends", "Pre-Depends")
    assert data.entity_names.to_name([0, 1]) == ["0ad", "0ad-data"]
    assert data.entity_names.to_int(["0ad-data"]).tolist() == [1]
    assert len(data.entity_names) == data.num_nodes


@pytest.mark.parametrize("title", ["Cora", "CiteSeer"])
def test_planetoid_is_what_pyg_reads(title: str, tmp_path: Path) -> None:
    """The pickles are rewritten before PyG reads them: nothing of their content may change."""
    from torch_geometric.datasets import Planetoid
    from torch_geometric.transforms import NormalizeFeatures

    name = f"planetoid-{title.lower()}"
    needed(name)
    raw = tmp_path / title / "raw"
    raw.mkdir(parents=True)
    for file in ENTRIES[name].files:
        (raw / file).symlink_to(Path(os.environ["GNNDELETE_DATA"]).resolve() / ENTRIES[name].folder / file)
    expected, found = Planetoid(str(tmp_path), title, transform=NormalizeFeatures())[0], load(name)
    assert sorted(found.keys()) == sorted(expected.keys())
    for key in set(found.keys()) - {"x"}:
        assert torch.equal(found[key], expected[key])
    assert torch.allclose(found.x, expected.x, atol=1e-7)
