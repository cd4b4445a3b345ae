"""Graphormer: against a second writing of it, node by node; what may and what may not change its output; its operators."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections import deque
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete.errors import GraphError, ModelError, SettingError
from gnndelete.models import Graphormer
from gnndelete.models.graphormer import Block, RecentPaths, shortest_paths
from gnndelete.nn.layers import graph_layers
from gnndelete.nn.operator import layer_operators


def graph(nodes: int = 14, edges: int = 18, seed: int = 0, directed: bool = False) -> Data:
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(nodes, (2, edges), generator=generator)
    once = torch.unique(once[:, once[0] < once[1]], dim=1)
    attr = torch.randn(once.size(1), 3, generator=generator)
    edge_index = once if directed else torch.cat([once, once.flip(0)], dim=1)
    edge_attr = attr if directed else torch.cat([attr, attr])
    x = torch.randn(nodes, 6, generator=generator)
    return Data(x=x, edge_index=edge_index, edge_attr=edge_attr, y=torch.arange(nodes) % 3)


def model(seed: int = 0, **options: Any) -> Graphormer:
    torch.manual_seed(seed)
    made = Graphormer(6, hidden=8, out=5, heads=2, max_distance=3, max_degree=4, **options)
    with torch.no_grad():
        for parameter in made.parameters():  # nothing may be close to zero
            parameter.normal_(0, 0.6)
    return made.eval()


def run(made: Graphormer, data: Data) -> Tensor:
    with torch.no_grad():
        return made(data.x, data.edge_index, data.get("batch"), data.get("edge_attr"))


def by_hand(made: Graphormer, data: Data) -> Tensor:
    """The same function from its equations, with loops over nodes and heads and one search per node."""
    w = dict(made.named_parameters())
    n, heads = data.num_nodes, w["spatial.weight"].size(1)
    pairs = list(zip(*data.edge_index.tolist(), strict=True))
    out_degree, in_degree = ([sum(e[side] == v for e in pairs) for v in range(n)] for side in (0, 1))
    # per source: distance, number of shortest paths, sum of edge features over all of them
    spatial = torch.zeros(n, n, heads)
    for j in range(n):
        length, count, total = {j: 0}, {j: 1}, {j: torch.zeros(3)}
        queue = deque([j])
        while queue:
            p = queue.popleft()
            for index, (s, t) in enumerate(pairs):
                if s != p:
                    continue
                if t not in length:
                    length[t], count[t], total[t] = length[p] + 1, 0, torch.zeros(3)
                    queue.append(t)
                if length[t] == length[p] + 1:
                    count[t] += count[p]
                    total[t] = total[t] + total[p] + count[p] * data.edge_attr[index]
        for i in range(n):
            near = i in length and length[i] <= made.max_distance
            spatial[i, j] = w["spatial.weight"][length[i] if near else made.max_distance + 1]
            if near and i != j and "edge.weight" in w:
                spatial[i, j] += w["edge.weight"] @ (total[i] / (count[i] * length[i]))

    def norm(h: Tensor, name: str) -> Tensor:
        return F.layer_norm(h, h.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

    def linear(h: Tensor, name: str) -> Tensor:
        return h @ w[f"{name}.weight"].t() + w[f"{name}.bias"]

    h = linear(data.x, "embed")
    h = h + torch.stack([w["in_degree.weight"][min(d, made.max_degree)] for d in in_degree])
    h = h + torch.stack([w["out_degree.weight"][min(d, made.max_degree)] for d in out_degree])
    for index in range(len(made.layers)):
        name = f"layers.{index}"
        q, k, v = linear(norm(h, f"{name}.attention.norm"), f"{name}.attention.qkv").chunk(3, dim=1)
        size = q.size(1) // heads
        mixed = torch.zeros_like(h)
        for i in range(n):
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                scores = torch.stack(
                    [q[i, part] @ k[j, part] / math.sqrt(size) + spatial[i, j, head] for j in range(n)]
                )
                mixed[i, part] = scores.softmax(dim=0) @ v[:, part]
        h = h + linear(mixed, f"{name}.attention.out")
        h = h + linear(F.gelu(linear(norm(h, f"{name}.norm"), f"{name}.widen")), f"{name}.narrow")
    return linear(norm(h, "norm"), "head")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_output_equals_the_equations(edge_dim: int | None, directed: bool) -> None:
    made, data = model(edge_dim=edge_dim), graph(directed=directed)
    with torch.no_grad():
        torch.testing.assert_close(run(made, data), by_hand(made, data), rtol=1e-4, atol=1e-4)


def test_renumbered_nodes_and_edges_give_the_renumbered_output() -> None:
    made, data = model(edge_dim=3), graph()
    place = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    order = torch.randperm(data.num_edges, generator=torch.Generator().manual_seed(2))
    x = torch.empty_like(data.x)
    x[place] = data.x
    other = Data(x=x, edge_index=place[data.edge_index][:, order], edge_attr=data.edge_attr[order])
    torch.testing.assert_close(run(made, other)[place], run(made, data), rtol=1e-4, atol=1e-4)


def joined(*graphs: Data) -> Data:
    starts = torch.tensor([0, *(g.num_nodes for g in graphs)]).cumsum(0)
    return Data(
        x=torch.cat([g.x for g in graphs]),
        edge_index=torch.cat([g.edge_index + start for g, start in zip(graphs, starts[:-1], strict=True)], dim=1),
        edge_attr=torch.cat([g.edge_attr for g in graphs]),
        batch=torch.repeat_interleave(torch.arange(len(graphs)), starts.diff()),
        y=torch.cat([g.y for g in graphs]),
    )


def test_graphs_of_one_batch_do_not_see_each_other() -> None:
    made = model(edge_dim=3)
    graphs = [graph(5, 6, seed=1), graph(9, 14, seed=2), graph(7, 9, seed=3), graph(1, 0, seed=4)]
    batch = joined(*graphs)
    parts = run(made, batch).split([g.num_nodes for g in graphs])
    for part, alone in zip(parts, graphs, strict=True):
        torch.testing.assert_close(part, run(made, alone), rtol=1e-4, atol=1e-4)
    batch.x = batch.x.index_fill(0, torch.tensor([6]), float("nan"))  # not even what is no number crosses over
    broken = run(made, batch).isnan().any(dim=1)
    assert torch.equal(broken, batch.batch == 1)


def test_without_a_path_nodes_of_one_graph_still_see_each_other() -> None:
    made, data = model(), graph()
    data.edge_index, data.edge_attr = data.edge_index[:, :0], data.edge_attr[:0]
    before = run(made, data)
    data.x = data.x.index_add(0, torch.tensor([0]), torch.ones(1, 6))
    assert bool((run(made, data) != before).any(dim=1).all())


def test_paths_follow_the_graph_that_is_given() -> None:
    made, data = model(), Data(x=torch.randn(6, 6), edge_index=torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]))
    before = made._pairs(6, data.edge_index, None, None)[0]
    kept = gd.Deletion(edges=[(1, 2)]).remaining(data)
    after = made._pairs(6, kept.edge_index, None, None)[0]
    assert before.block.distance[0, 3, 1] == 2
    assert after.block.distance[0, 3, 1] == made.max_distance + 1
    changed = (before.bias != after.bias).any(dim=0)
    assert changed[2:, :2].sum() == 5  # pairs across the edge, up to three apart
    assert changed.sum() == 5
    data.edge_index[1, 0] = 2  # in place: the same tensor, another graph
    assert made._pairs(6, data.edge_index, None, None)[0].block.distance[0, 2, 0] == 1


def test_a_graph_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnndelete.models import graphormer

    searches = 0
    search = graphormer.shortest_paths

    def count(*args: Any) -> Any:
        nonlocal searches
        searches += 1
        return search(*args)

    monkeypatch.setattr(graphormer, "shortest_paths", count)
    made, data = model(), graph()
    outputs = [run(made, data) for _ in range(3)]
    assert searches == 1
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(run(copied, data), outputs[0])
    assert searches == 3


def test_gradients_reach_every_weight() -> None:
    made, data = model(edge_dim=3), graph()
    made(data.x, data.edge_index, edge_attr=data.edge_attr).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in made.parameters())


def test_compiled_it_says_the_same() -> None:
    made, data = model(), graph()
    compiled = torch.compile(made, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(data.x, data.edge_index), run(made, data))


def test_edge_features_in_one_column() -> None:
    made, data = model(edge_dim=1), graph()
    data.edge_attr = data.edge_attr[:, 0]
    flat = run(made, data)
    data.edge_attr = data.edge_attr[:, None]
    assert torch.equal(run(made, data), flat)


def test_errors() -> None:
    data = graph()
    with pytest.raises(ModelError, match=r"14 nodes has 196 pairs \(the limit is max_nodes=10\); use GPS"):
        run(model(max_nodes=10), data)
    with pytest.raises(ModelError, match=r"made for 2 edge features.*'edge_attr' of shape \[\d+, 3\]"):
        run(model(edge_dim=2), data)
    with pytest.raises(ModelError, match="no 'edge_attr'"):
        run(model(edge_dim=3), Data(x=data.x, edge_index=data.edge_index))
    for name, options in {
        "heads": {"hidden": 6, "heads": 4},
        "num_layers": {"num_layers": 0},
        "max_distance": {"max_distance": 0},
        "max_degree": {"max_degree": 0},
    }.items():
        with pytest.raises(SettingError, match=f"'{name}'"):
            Graphormer(6, **{"hidden": 8, **options})


def test_a_batch_of_small_graphs_passes_the_limit() -> None:
    assert run(model(max_nodes=10), joined(graph(9, 12), graph(8, 12))).shape == (17, 5)


def test_operators_sit_behind_attention_and_before_the_feed_forward_part() -> None:
    made, data = model(), graph()
    assert graph_layers(made) == ["layers.0.attention", "layers.1.attention"]
    edge = data.edge_index[:, 0].tolist()
    unlearned = gd.Unlearner(made, data, method=gd.GNNDelete(lam=0.5)).delete(gd.Deletion(edges=[edge]))
    assert [o.name for o in layer_operators(unlearned.model)] == ["layers.0.attention", "layers.1.attention"]
    seen: dict[str, Tensor] = {}
    layer = unlearned.model.get_submodule("layers.0")
    layer.attention.gnndelete.operators[0].register_forward_hook(lambda m, a, out: seen.update(mapped=out, given=a[0]))
    layer.norm.register_forward_pre_hook(lambda m, args: seen.update(normed=args[0]))
    run(unlearned.model, unlearned.data)
    assert torch.equal(seen["mapped"], seen["normed"])
    rows = (seen["mapped"] != seen["given"]).any(dim=1)
    assert set(edge) <= set(rows.nonzero().flatten().tolist())


@pytest.mark.parametrize("batched", [False, True])
def test_the_user_is_told_that_distance_bounds_nothing(batched: bool) -> None:
    line = torch.arange(30)
    torch.manual_seed(2)
    long = Data(
        x=torch.randn(31, 6), edge_index=torch.stack([torch.cat([line, line + 1]), torch.cat([line + 1, line])])
    )
    long.edge_attr, long.y = torch.zeros(60, 3), torch.arange(31) % 3
    data = joined(long, long) if batched else long
    found = gd.inspect(model(), data)
    assert not found.bounded
    assert found.hops is None
    assert "distance does not bound the influence" in str(found)
    assert not any(site.bounded for site in found.sites)
    unlearned = gd.Unlearner(model(), data, method=gd.GNNDelete(lam=0.5)).delete(gd.Deletion(edges=[(3, 4)]))
    assert any("distance does not bound" in note.text for note in unlearned.notes)
    changed = (run(unlearned.model, unlearned.data) != run(model(), unlearned.data)).any(dim=1)
    assert bool(changed[:31].all())  # even 25 hops away
    assert not bool(changed[31:].any())  # but not in another graph


def test_whole_graphs_of_a_batch_can_be_served_alone() -> None:
    """Rows of a part are named by gd.rows; a part that holds whole graphs says what the batch said of them."""
    made = model(edge_dim=3)
    batch = joined(graph(9, 14, seed=2), graph(7, 9, seed=3))
    deletion = gd.Deletion(edges=[batch.edge_index[:, -1].tolist()])
    unlearned = gd.Unlearner(made, batch, method=gd.GNNDelete(lam=0.5)).delete(deletion)
    ids = torch.arange(9, 16)
    kept = (unlearned.data.batch[unlearned.data.edge_index] == 1).all(dim=0)
    part = Data(
        x=unlearned.data.x[ids],
        edge_index=unlearned.data.edge_index[:, kept] - 9,
        edge_attr=unlearned.data.edge_attr[kept],
    )
    whole = run(unlearned.model, unlearned.data)[ids]
    with gd.rows(unlearned.model, ids):
        torch.testing.assert_close(run(unlearned.model, part), whole, rtol=1e-4, atol=1e-4)
    with unlearned.adapter.disabled():
        assert not torch.allclose(run(unlearned.model, part), whole, rtol=1e-3, atol=1e-3)


def test_a_deleted_node_leaves_no_trace_in_the_answers_about_others(graph: Data) -> None:
    """It stays as a blank row, so that ids never shift: whatever it was, the others' rows are the same."""
    made = Graphormer(graph.num_features, hidden=8, out=5, heads=2).eval()
    other = copy.copy(graph)
    other.x = graph.x.index_add(0, torch.tensor([4]), torch.ones(1, graph.num_features))
    answers = [
        gd.Unlearner(made, data, method="unlink").delete(gd.Deletion(nodes=[4])).output() for data in (graph, other)
    ]
    assert torch.equal(*answers)
    far = torch.ones(graph.num_nodes, dtype=torch.bool)
    far[k_hop_subgraph(4, 5, graph.edge_index, num_nodes=graph.num_nodes)[0]] = False
    assert bool(far.any())
    assert bool((answers[0][far] != run(made, graph)[far]).any())


def all_paths(edges: list[tuple[int, int]], start: int, end: int, limit: int) -> list[list[int]]:
    """Every shortest walk from start to end, as lists of positions in ``edges``; none if it takes more than ``limit``."""
    walks: list[tuple[int, list[int]]] = [(start, [])]
    for _ in range(limit + 1):
        found = [walk for node, walk in walks if node == end]
        if found:
            return found
        walks = [(t, [*walk, i]) for node, walk in walks for i, (s, t) in enumerate(edges) if s == node]
    return []


@given(st.data())
def test_lengths_and_features_equal_a_search_by_hand(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 6))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))  # loops and parallel edges included
    edges = data.draw(st.lists(pair, max_size=9))
    limit = data.draw(st.integers(1, 4))
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    attr = torch.randn(len(edges), 2, generator=torch.Generator().manual_seed(len(edges)))
    (block,) = shortest_paths(edge_index, nodes, edge_attr=attr, max_distance=limit)
    assert block.features is not None
    for j, i in itertools.product(range(nodes), repeat=2):
        walks = all_paths(edges, j, i, limit)
        length = len(walks[0]) if walks else limit + 1
        assert block.distance[0, i, j] == length
        mean = torch.zeros(2)
        if walks and length:
            mean = torch.stack([attr[walk].mean(dim=0) for walk in walks]).mean(dim=0)
        torch.testing.assert_close(block.features[0, i, j], mean, rtol=1e-4, atol=1e-5)


def ring(size: int) -> Tensor:
    line = torch.arange(size)
    return torch.stack([torch.cat([line, line.roll(1)]), torch.cat([line.roll(1), line])])


def unpacked(blocks: list[Block], num_nodes: int, far: int) -> Tensor:
    """Distances of all pairs of a batch, ``far`` across graphs."""
    whole = torch.full((num_nodes + 1, num_nodes + 1), far)
    for block in blocks:
        for nodes, distance in zip(block.nodes, block.distance, strict=True):
            real = nodes < num_nodes
            whole[nodes[real][:, None], nodes[real]] = distance[real][:, real].long()
    return whole[:-1, :-1]


def test_a_batch_is_its_graphs_in_any_order() -> None:
    sizes, offsets = [3, 20, 1, 5, 9, 4], [0, 3, 23, 24, 29, 38]
    edges = torch.cat([ring(size) + start for size, start in zip(sizes, offsets, strict=True)], dim=1)
    graph = torch.repeat_interleave(torch.arange(6), torch.tensor(sizes))
    place = torch.randperm(42, generator=torch.Generator().manual_seed(3))  # a node's new id
    mixed = torch.empty_like(graph)
    mixed[place] = graph * 2  # numbers without a graph are no harm
    blocks = shortest_paths(place[edges], 42, mixed, max_distance=3)
    assert sorted(n for block in blocks for n in block.nodes.flatten()[block.slots].tolist()) == list(range(42))
    assert all(block.nodes.numel() < 4 * block.slots.numel() for block in blocks)
    assert len(blocks) > 1
    expected = unpacked(shortest_paths(edges, 42, max_distance=3), 42, 4)
    assert torch.equal(unpacked(blocks, 42, 4)[place][:, place], expected)


def test_edges_between_graphs_of_a_batch_are_refused() -> None:
    with pytest.raises(GraphError, match="two graphs of the batch"):
        shortest_paths(torch.tensor([[0], [1]]), 2, torch.tensor([0, 1]))


def test_no_nodes_and_no_edges() -> None:
    assert shortest_paths(torch.empty(2, 0, dtype=torch.long), 0) == []
    (block,) = shortest_paths(torch.empty(2, 0, dtype=torch.long), 2, edge_attr=torch.empty(0, 3), max_distance=2)
    assert block.distance.tolist() == [[[0, 3], [3, 0]]]
    assert block.features is not None
    assert block.features.shape == (1, 2, 2, 3)


class Counting:
    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> list[Block]:
        self.runs += 1
        return []


def test_paths_are_remembered_until_a_tensor_changes() -> None:
    recent, compute = RecentPaths(), Counting()
    a, b = ring(4), ring(5)
    for edges in (a, b, a, b):
        recent.get((edges, None), (4,), compute)
    assert compute.runs == 2
    recent.get((a.clone(), None), (4,), compute)  # equal, but another tensor, which is gone afterwards
    recent.get((b, None), (4,), compute)
    assert compute.runs == 3
    b[0, 0] = 2
    recent.get((b, None), (4,), compute)
    assert compute.runs == 4
    recent.get((b, None), (5,), compute)
    assert compute.runs == 5
    with torch.inference_mode():
        c = ring(3)
        recent.get((c, None), (3,), compute)
        recent.get((c, None), (3,), compute)  # its changes would not show
    assert compute.runs == 7


def test_copies_and_pickles_remember_nothing() -> None:
    recent, compute = RecentPaths(), Counting()
    edges = ring(4)
    recent.get((edges,), (4,), compute)
    for copied in (copy.deepcopy(recent), pickle.loads(pickle.dumps(recent))):
        copied.get((edges,), (4,), compute)
    assert compute.runs == 3
