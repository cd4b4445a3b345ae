"""Weights in files: what wrappers add to names, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gnndelete.errors import ModelError
from gnndelete.training.weights import load_weights


def test_a_prefix_that_the_models_own_names_have_stays(tmp_path: Path) -> None:
    """Weights of a wrapped model fit the wrapped model, and names of which some alone have the prefix are not touched."""
    plain, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    wrapped = torch.nn.DataParallel(plain)
    torch.save(wrapped.state_dict(), tmp_path / "wrapped.pt")
    again = torch.nn.DataParallel(other)
    load_weights(tmp_path / "wrapped.pt", again)
    assert torch.equal(other.weight, plain.weight)
    torch.save({"module.weight": plain.weight.detach(), "bias": plain.bias.detach()}, tmp_path / "mixed.pt")
    with pytest.raises(ModelError, match=r"lacks weight; check"):
        load_weights(tmp_path / "mixed.pt", other)
