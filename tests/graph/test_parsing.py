"""What is no id, no edge and no cell: one sentence that names the argument and the value."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from gnndelete import Deletion
from gnndelete.datasets import IdMap
from gnndelete.errors import DeletionError
from gnndelete.graph.batch import collate

from ..conftest import one_sentence

MALFORMED = {
    "floats": (dict(edges=[(0.5, 1.0)]), "edges", "0.5"),
    "float tensor": (dict(edges=torch.tensor([[0.25], [1.0]])), "edges", "0.25"),
    "bfloat16 tensor": (dict(nodes=torch.tensor([2.0], dtype=torch.bfloat16)), "nodes", "2.0"),
    "mask": (dict(nodes=torch.tensor([True, False])), "nodes", "boolean"),
    "booleans": (dict(edges=[(True, False)]), "edges", "boolean"),
    "strings": (dict(edges=[("a", "b")]), "edges", "a"),
    "a string": (dict(edges="0,1"), "edges", "'0,1'"),
    "strings as nodes": (dict(nodes=["7"]), "nodes", "7"),
    "nothing there": (dict(edges=[(0, None)]), "edges", "None"),
    "a number": (dict(edges=5), "edges", "5"),
    "a bool": (dict(nodes=True), "nodes", "True"),
    "transposed": (dict(edges=torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4]])), "[4, 2]", "transpose"),
    "a vector": (dict(edges=torch.tensor([0, 1])), "edges", "[2]"),
    "three dimensions": (dict(edges=torch.zeros(2, 1, 1, dtype=torch.long)), "edges", "[2, 1, 1]"),
    "a ragged list": (dict(edges=[(0, 1), (2,)]), "edges", "(2,)"),
    "pairs and triples": (dict(edges=[(0, 1), (2, 3, 4)]), "edges", "(2, 3, 4)"),
    "flat": (dict(edges=[0, 1]), "edges", "0"),
    "scalars": (dict(edges=[torch.tensor(0), torch.tensor(1)]), "edges", "tensor(0)"),
    "too deep": (dict(edges=[((0, 1), (2, 3))]), "edges", "(0, 1)"),
    "a dict": (dict(edges={0: 1}), "edge type", "0"),
    "dicts": (dict(edges=[{0: 1, 2: 3}]), "edges", "{0: 1, 2: 3}"),
    "negative": (dict(edges=[(0, -1)]), "edges", "-1"),
    "negative node": (dict(nodes=torch.tensor([-3])), "nodes", "-3"),
    "square": (dict(nodes=[[0, 1], [2, 3]]), "nodes", "[0, 1]"),
    "too big": (dict(nodes=np.array([2**63], dtype=np.uint64)), "nodes", str(2**63)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name):
    request, *needles = MALFORMED[name]
    with pytest.raises(DeletionError) as caught:
        Deletion(**request)
    one_sentence(caught.value, *needles)


# Anything at all


class Table:
    """A DataFrame as far as the parser can see."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def to_numpy(self) -> np.ndarray:
        return np.array(self.rows, dtype=object)

    def __iter__(self):
        return iter("columns")


within: list[Any] = []
within.append((within, within))
sparse = torch.tensor([[0, 5], [1, 2]]).to_sparse()
NO_IDS = {
    "bools among integers": [27, True],
    "masked": np.ma.array([3, 4], mask=[0, 1]),
    "meta": torch.zeros(2, dtype=torch.long, device="meta"),
    "sparse": sparse,
    "quantized": torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.quint8),
    "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "complex": torch.tensor([1j]),
    "itself": within,
    "a dict": {"ids": {"ids": [11]}},
    "bytes": b"12",
    "none": [None],
    "huge": [10**5000],
    "unsigned": [np.uint64(2**63)],
    "a long text": ["x" * 10**6],
    "rows of another kind": [{1, 2}],
    "sparse rows": [sparse, sparse],
    "half a table": Table([[1, 2.5]]),
    "a table with a hole": Table([[1, float("nan")]]),
    "an object": object(),
}


@pytest.mark.parametrize("kind", ["edges", "nodes", "features", "labels", "relations", "graphs", "fill"])
@pytest.mark.parametrize("name", NO_IDS)
def test_what_is_no_list_of_ids_is_refused_in_a_short_sentence(kind, name):
    if (kind, name) in (("fill", "unsigned"), ("relations", "a long text")):
        return  # a number, and the name of a relation
    request = {"features": [1], "fill": NO_IDS[name]} if kind == "fill" else {kind: NO_IDS[name]}
    with pytest.raises(DeletionError) as caught:
        Deletion(**request)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


number = st.one_of(st.integers(-(2**70), 2**70), st.booleans(), st.floats(), st.text(max_size=3), st.none())
dtypes = st.sampled_from([np.int8, np.uint64, np.float32, np.bool_, np.complex64, object])
arrays = st.builds(lambda values, dtype: np.array(values).astype(dtype), st.lists(st.integers(0, 3)), dtypes)
keys = st.one_of(st.integers(0, 3), st.sampled_from("ab"))
anything = st.recursive(
    st.one_of(number, arrays, arrays.filter(lambda a: a.dtype not in (object, np.uint64)).map(torch.from_numpy)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(keys, inner, max_size=2)
    ),
    max_leaves=6,
)


def graphs() -> list[Any]:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    typed = HeteroData({"a": {"x": torch.ones(3, 2)}, "b": {"x": torch.ones(3, 1), "y": torch.tensor([0, 1, -1])}})
    typed["a", "has", "b"].edge_index = edges
    return [
        Data(x=torch.ones(4, 2), edge_index=edges, y=torch.tensor([0, -1, 1, 1])),
        Data(edge_index=edges, edge_type=torch.tensor([0, 1, 0, 1]), num_nodes=4),
        [Data(x=torch.ones(3, 1), edge_index=edges, y=torch.tensor([0])) for _ in range(2)],
        typed,
    ]


@given(anything, st.sampled_from(["edges", "nodes", "features", "labels", "relations", "graphs"]), anything)
def test_anything_is_understood_or_refused(value, kind, fill):
    for request in ({kind: value}, {"features": value, "fill": fill}, {kind: {"a": value}}, {kind: {("has",): value}}):
        for graph in graphs():
            with suppress(DeletionError):
                remaining = Deletion(**request).remaining(graph)
                assert remaining.num_nodes == collate(graph).num_nodes, "ids never shift"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6))
def test_names_mean_their_nodes(pairs):
    ids = IdMap([f"user:{node}" for node in range(6)])
    named = [(f"user:{u}", f"user:{v}") for u, v in pairs]
    for edges in (named, iter(named), Table(named)):
        assert Deletion(edges=edges, ids=ids) == Deletion(edges=pairs)
    heads = [head for head, _ in named]
    made = Deletion(nodes=heads, labels=Table(heads), features=[(head, 1) for head in heads], ids=ids)
    plain = [u for u, _ in pairs]
    assert made == Deletion(nodes=plain, labels=plain, features=[(u, 1) for u in plain])
    assert Deletion(features={heads[0]: [0, 2]}, ids=ids) == Deletion(features={plain[0]: [0, 2]})
    triples = [(u, 7, v) for u, v in pairs]
    assert Deletion(edges=[(f"user:{u}", 7, f"user:{v}") for u, _, v in triples], ids=ids) == Deletion(edges=triples)
    with pytest.raises(DeletionError, match=r"'user:9'"):
        Deletion(nodes=["user:9"], ids=ids)


def test_errors_use_the_names():
    ids = IdMap(["ann", "bob", "cid"])
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3)
    with pytest.raises(DeletionError, match=r"\('ann', 'cid'\)"):
        Deletion(edges=[("ann", "cid")], ids=ids).check(data)


def test_values_that_the_features_cannot_hold():
    edges = torch.tensor([[0, 1], [1, 0]])
    for x, fill in ((torch.ones(2, 1), 1e308), (torch.ones(2, 1).half(), 1e5), (torch.ones(2, 1).byte(), 300)):
        with pytest.raises(DeletionError, match="cannot hold"):
            Deletion(features=[0], fill=fill).check(Data(x=x, edge_index=edges))


@pytest.mark.parametrize("features", [[1], [(1, 0)], [(1, 0), (2, 1)], {1: [1], 2: [0, 1]}, [1, 2]])
@pytest.mark.parametrize("width", [2, 4])
def test_a_fill_has_a_value_for_each_column(features, width):
    data = Data(x=torch.ones(3, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(DeletionError, match=f"fill= has {width} values, one per column, and 'x' has 3 columns"):
        Deletion(features=features, fill=[0.5] * width).check(data)
    assert Deletion(features=features, fill=[0.5] * 3).check(data).fill.unique().tolist() == [0.5]


@pytest.mark.parametrize("ids", [{"a": 1}, ["a", "b"], object(), "ab"])
def test_names_are_given_as_a_map(ids):
    with pytest.raises(DeletionError, match="give an IdMap"):
        Deletion(nodes=["a"], ids=ids)
