"""Finding and exchanging representations in a layer's output, and hooks that leave no trace."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from gnndelete.nn.hooks import Finished, Rows, entry, listening, replaced, representations

Pair = namedtuple("Pair", ["h", "alpha"])
ROWS = torch.ones(4, 2)
OTHER = torch.zeros(4, 2)

OUTPUTS = {
    "tensor": (ROWS, [None]),
    "three dimensions": (torch.ones(4, 2, 3), [None]),
    "tuple": ((torch.ones(9), ROWS, ROWS), [1]),
    "list": ([ROWS, "text"], [0]),
    "named tuple": (Pair(ROWS, torch.ones(9)), [0]),
    "dict": ({"a": ROWS, "b": 3, "c": ROWS}, ["a", "c"]),
    "ordered dict": (OrderedDict(z=ROWS), ["z"]),
    "other rows": (torch.ones(5, 2), []),
    "vector": (torch.ones(4), []),
    "integers": (torch.ones(4, 2, dtype=torch.long), []),
    "text": ("text", []),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_representations_can_be_found_and_exchanged(name):
    output, keys = OUTPUTS[name]
    assert [key for key, _, _ in representations(output, Rows(Data(num_nodes=4)))] == keys
    for key in keys:
        value = torch.zeros_like(entry(output, key))
        changed = replaced(output, key, value)
        assert entry(changed, key) is value
        assert type(changed) is type(output)
        assert not torch.equal(entry(output, key), value), "the output itself stays as it was"
        if isinstance(output, dict):
            assert list(changed) == list(output)
        if isinstance(output, tuple):
            assert all(changed[i] is output[i] for i in range(len(output)) if i != key)


def test_listening_counts_calls_and_exchanges_outputs():
    model = nn.Sequential(nn.Identity(), nn.Identity())
    model[1] = model[0]
    seen = []

    def visit(name, call, output):
        seen.append((name, call))
        return output + 1

    with listening(model, ["0"], visit):
        assert model(torch.zeros(1)).item() == 2
    assert seen == [("0", 0), ("0", 1)]
    assert model(torch.zeros(1)).item() == 0


@pytest.mark.parametrize("error", [Finished, KeyboardInterrupt, ValueError])
def test_hooks_are_gone_whatever_happened(error):
    model = nn.Sequential(nn.Linear(1, 1))

    def visit(*_):
        raise error

    with pytest.raises(error), listening(model, ["0", ""], visit):
        model(torch.zeros(1, 1))
    assert not any(module._forward_hooks for module in model.modules())
