"""What is no id, no edge and no cell: one sentence that names the argument and the value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnndelete import Deletion
from gnndelete.errors import DeletionError

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
