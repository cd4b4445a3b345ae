"""A graph on disk is prepared layer by layer, and requests on it give what they give in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphNorm, SAGEConv

import gnndelete as gd
from gnndelete.engine import session as sessions
from gnndelete.engine.trial import close
from gnndelete.errors import AdapterError, GNNDeleteError, ModelError, RequestError
from gnndelete.io.arrays import Draft, problems
from tests.engine.test_blocks import MODELS, NODES, WIDTH, Deep, make_graph
from tests.engine.test_local import KINDS

EDGE_ATTRIBUTES = ("edge_weight", "edge_attr", "edge_type")


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SAMPLED_NODES", 200)


def on_disk(folder: Path, data: Data, **options: Any) -> tuple[gd.DiskGraph, Data]:
    """A graph on disk, and the same in memory with its edges in the same order."""
    attributes = {name: data[name] for name in EDGE_ATTRIBUTES if name in data}
    graph = gd.DiskGraph.build(
        folder / "graph", data.edge_index, data.x, edge_attributes=attributes, node_attributes={"y": data.y}, **options
    )
    columns = torch.arange(graph.num_edges)
    whole = graph.part(torch.arange(graph.num_nodes), columns)
    del whole.n_id
    return graph, whole


def unlearner(model: nn.Module, data: Any, **options: Any) -> gd.Unlearner:
    options = {"method": gd.GNNDelete(lam=0.5), "engine": "local", "task": gd.LinkPrediction(), **options}
    return gd.Unlearner(model, data, **options)


def same_rows(disk: gd.Unlearner, memory: gd.Unlearner) -> None:
    one, other = disk.session.blocks, memory.session.blocks
    assert one is not None
    assert other is not None
    assert list(one.cache.rows) == list(other.cache.rows)
    for site, rows in other.cache.rows.items():
        assert close(one.cache.rows[site], rows), site.title
        assert torch.allclose(one.cache.sums[site], other.cache.sums[site], rtol=1e-5, atol=1e-3)
    for key, rows in other.cache.output.items():
        assert close(one.cache.output[key], rows)


ALL_PAIRS = torch.randint(NODES, (2, 300), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "name",
    ["sage", "gcn", "gatv2", "gcn-weights", "called-three-times", "edge-features", "gcn2", "appnp", "own-degrees"],
)
def test_deletions_on_disk_equal_those_in_memory(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    data, model = make_graph(), MODELS[name]().eval()
    del data.edge_type
    graph, whole = on_disk(tmp_path, data)
    for kind in KINDS if name in ("sage", "gcn") else ["edge", "node"]:
        disk, memory = unlearner(model, graph), unlearner(model, whole)
        disk.prepare(memory="200KB")
        same_rows(disk, memory.prepare())
        one, other = disk.delete(KINDS[kind](whole)), memory.delete(KINDS[kind](whole))
        assert one.engine == "local"
        assert close(one.predict(ALL_PAIRS), other.predict(ALL_PAIRS)), kind
        assert [n.code for n in one.notes] == [n.code for n in other.notes]
    assert problems(graph.folder) == []


def test_typed_directed_and_half_precision_graphs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data, model = make_graph(), MODELS["rgcn"]().eval()
    data.edge_type = (torch.arange(data.num_edges) % 2).long()
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[3, 70], [3, 70]])], dim=1)  # loops
    for name in EDGE_ATTRIBUTES:
        data[name] = torch.cat([data[name], data[name][:2]])
    graph, whole = on_disk(tmp_path, data, dtype="float16")
    assert graph.x.dtype == torch.float16
    disk, memory = (unlearner(model, each, task=gd.NodeClassification()) for each in (graph, whole))
    disk.prepare(memory="200KB")
    same_rows(disk, memory.prepare())
    one, other = (each.delete(gd.Deletion(nodes=[5, 200])) for each in (disk, memory))
    assert close(one.predict(torch.arange(NODES)), other.predict(torch.arange(NODES)))


def test_streams_of_segments_and_unlink(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Deep(SAGEConv).eval(), make_graph()
    del data.edge_type
    graph, whole = on_disk(tmp_path, data)
    for method in (gd.GNNDelete(lam=0.5), gd.Unlink()):
        disk, memory = (unlearner(model, each, method=method, sequence="segments") for each in (graph, whole))
        for request in (KINDS["edge"], KINDS["node"], lambda data: gd.Deletion(edges=data.edge_index[:, [140, 150]])):
            one, other = disk.delete(request(whole)), memory.delete(request(whole))
            assert close(one.predict(ALL_PAIRS), other.predict(ALL_PAIRS))


class Killed(BaseException):
    pass


def test_a_preparation_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, data = Deep(SAGEConv).eval(), make_graph()
    graph, _ = on_disk(tmp_path, data)
    unlearner(model, graph).prepare(tmp_path / "whole", memory="200KB")
    generator, left, kills = np.random.default_rng(0), [0], 0
    rows_computed = []
    append, commit, close_draft = Draft.append, Draft.commit, Draft.close

    def dying(function: Any) -> Any:
        def run(draft: Draft, *args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            if function is append:
                rows_computed.append(len(args[1]))
            return function(draft, *args, **kwargs)

        return run

    for name, function in (("append", append), ("commit", commit), ("close", close_draft)):
        monkeypatch.setattr(Draft, name, dying(function))
    done = False
    while not done:
        left[0] = int(generator.integers(2, 12))
        try:
            unlearner(model, graph).prepare(tmp_path / "killed", memory="200KB")
            done = True
        except Killed:
            kills += 1
            assert problems(tmp_path / "killed")  # it is not taken for a whole one
    assert kills >= 3
    assert sum(rows_computed) < 3 * NODES + kills * NODES  # what was there was used
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "killed").iterdir())
    for file in files:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes(), file


def test_rows_are_opened_again_and_damage_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, data = Deep(SAGEConv).eval(), make_graph()
    graph, _ = on_disk(tmp_path, data)
    folder = tmp_path / "rows"
    unlearner(model, graph).prepare(folder)
    assert problems(folder) == []
    with monkeypatch.context() as patch:
        patch.setattr(Draft, "append", lambda *_: pytest.fail("computed again"))
        unlearner(model, graph).prepare(folder)
    with pytest.raises(AdapterError, match=r"another model or graph"):
        unlearner(Deep(SAGEConv).eval(), graph).prepare(folder)
    content = bytearray((folder / "rows1").read_bytes())
    content[77] ^= 1
    (folder / "rows1").write_bytes(content)
    assert "rows1" in problems(folder)[0]


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = SAGEConv(WIDTH, 8), GraphNorm(8)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x, edge_index))


def test_what_cannot_be_served_on_disk_says_so_at_once(tmp_path: Path) -> None:
    data = make_graph()
    graph, _ = on_disk(tmp_path, data)
    model = Deep(SAGEConv).eval()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": gd.GNNDelete()}, "lam='auto'"),
        ({"engine": "full"}, "not read whole"),
        ({"method": gd.Retrain(), "fit": lambda *_: model}, "not read whole"),
    ]
    for options, words in cases:
        with pytest.raises(GNNDeleteError, match=words):
            unlearner(model, graph, **options)
    with pytest.raises(ModelError, match=r"table\.weight.*tables of nodes"):
        unlearner(MODELS["table-whole"](), graph)
    with pytest.raises(ModelError, match=r"cannot be run locally"):
        unlearner(Normed().eval(), graph).prepare()
    result = unlearner(model, graph).delete(gd.Deletion(nodes=[3]))
    with pytest.raises(RequestError, match=r"remaining graph of a DiskGraph"):
        result.data  # noqa: B018
    assert "data=on disk" in repr(result)


def test_a_sequence_goes_on_after_a_restart_and_inspect_reads_a_part(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, (graph, _) = Deep(SAGEConv).eval(), on_disk(tmp_path, make_graph())
    first = unlearner(model, graph)
    before = first.delete(gd.Deletion(nodes=[17])).predict(ALL_PAIRS)
    first.save_state(tmp_path / "state.json")
    again = unlearner(model, gd.DiskGraph(graph.folder)).load_state(tmp_path / "state.json").compact()
    assert torch.equal(again.predict(ALL_PAIRS), before)
    found = gd.inspect(model, graph)
    assert [site.hops for site in found.sites] == [1, 2]
    assert "part-inspected" in [note.code for note in found.notes]
