"""DEL itself: which rows it changes, where it sits, and that it can be taken off."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gnndelete as gd
from gnndelete.errors import ModelError
from gnndelete.nn.hooks import Site
from gnndelete.nn.operator import LinearMap, Operator, attach, detach, disabled


def scaled(factor, width=3):
    return LinearMap(width, factor * torch.eye(width))


def doubled(rows=(1, 3), more=(4,)):
    return Operator(6, 3, [torch.tensor(rows), torch.tensor(more)], [scaled(2.0), scaled(5.0)])


def test_only_its_rows_change_each_by_its_map():
    h = torch.randn(6, 3)
    kept = h.clone()
    out = doubled()(h)
    assert torch.equal(h, kept), "never in place"
    assert torch.equal(out[[0, 2, 5]], h[[0, 2, 5]])
    torch.testing.assert_close(out[[1, 3]], 2 * h[[1, 3]])
    torch.testing.assert_close(out[4], 5 * h[4])


def test_heads_and_dtypes_keep_their_shape():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        h = torch.randn(6, 3, 1).to(dtype)
        out = doubled()(h)
        assert out.dtype == dtype
        assert out.shape == h.shape
        torch.testing.assert_close(out[1], 2 * h[1])
    wide = Operator(2, 6, [torch.tensor([0])], [LinearMap(6, torch.eye(6).roll(1, 0))])
    h = torch.arange(12.0).view(2, 3, 2)
    assert wide(h)[0].flatten().tolist() == h[0].flatten().roll(-1).tolist(), "a map acts on all heads together"


@given(st.permutations(range(6)), st.integers(1, 6))
def test_a_batch_says_which_rows_it_holds(order, count):
    ids = torch.tensor(order[:count])
    h = torch.randn(6, 3)
    assert torch.equal(doubled()(h[ids], ids), doubled()(h)[ids])


def test_a_row_sampled_twice_is_changed_twice():
    h, ids = torch.randn(6, 3), torch.tensor([3, 0, 3])
    torch.testing.assert_close(doubled()(h[ids], ids), doubled()(h)[ids])


def test_gradients_pass_through():
    h = torch.randn(6, 3, requires_grad=True)
    doubled()(h).sum().backward()
    assert h.grad[:, 0].tolist() == [1, 2, 1, 2, 5, 1]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Identity()

    def forward(self, x):
        return self.layer(self.layer(x) + 1)  # the two calls must not be interchangeable


def test_every_call_of_a_layer_has_its_own_operator():
    model = Twice()
    attach(model, Site("layer", calls=2), Operator(1, 1, [torch.tensor([0])], [scaled(2.0, 1)]))
    attach(
        model,
        Site("layer", call=1, calls=2),
        Operator(1, 1, [torch.tensor([0])], [LinearMap(1, torch.tensor([[7.0]]))]),
    )
    for _ in range(3):
        assert model(torch.ones(1, 1)).item() == 21
    assert model.layer(torch.ones(1, 1)).item() == 2  # a pass broken off after one call
    assert model(torch.ones(1, 1)).item() == 21
    with disabled(model):
        assert model(torch.ones(1, 1)).item() == 2
    assert model(torch.ones(1, 1)).item() == 21
    detach(model)
    assert model(torch.ones(1, 1)).item() == 2
    assert not list(model.parameters())
    assert not model._forward_pre_hooks
    assert not model.layer._forward_hooks


def test_detach_leaves_the_hooks_of_the_user():
    model = Twice()
    model.layer.register_forward_hook(lambda *args: args[2] + 1)
    model.register_forward_pre_hook(lambda *args: None)
    attach(model, Site("layer", calls=2), Operator(1, 1, [torch.tensor([0])], [scaled(2.0, 1)]))
    detach(model)
    assert model(torch.ones(1, 1)).item() == 4
    assert len(model._forward_pre_hooks) == 1


class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Identity()
        attach(self, Site("layer"), doubled())

    def forward(self, x):
        return self.layer(x)


def test_rows_is_undone_also_after_an_error():
    model, whole = Once(), torch.ones(6, 3)
    expected = [1, 2, 1, 2, 5, 1]
    with pytest.raises(ZeroDivisionError), gd.rows(model, torch.tensor([1])):
        raise ZeroDivisionError
    assert model(whole)[:, 0].tolist() == expected
    with pytest.raises(ZeroDivisionError), disabled(model):
        raise ZeroDivisionError
    assert model(whole)[:, 0].tolist() == expected
    with gd.rows(model, [1, 2]), gd.rows(Once(), [0]):
        with gd.rows(model, [4]):
            assert model(whole[:1])[:, 0].tolist() == [5]
        assert model(whole[:2])[:, 0].tolist() == [2, 1]


def test_blocks_hold_for_copies_that_are_made_inside_and_for_one_thread():
    model = Once()
    with gd.rows(model, [4]):
        for made in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert made(torch.ones(1, 3))[:, 0].tolist() == [5]
    with disabled(model), ThreadPoolExecutor(1) as other:
        assert copy.deepcopy(model)(torch.ones(6, 3)).unique().tolist() == [1]
        assert other.submit(model, torch.ones(6, 3)).result().unique().tolist() == [1, 2, 5]


@pytest.mark.parametrize("kind", ["rows", "disabled", "calls"])
def test_eight_threads_give_what_one_gives(kind, at_once):
    model = Twice() if kind == "calls" else Once()
    if kind == "calls":
        for call, factor in enumerate((2.0, 7.0)):
            found = Operator(1, 1, [torch.tensor([0])], [scaled(factor, 1)])
            attach(model, Site("layer", call=call, calls=2), found)

    def work(seed):
        if kind == "calls":
            assert model(torch.ones(1, 1)).item() == 21
        elif kind == "disabled" and seed % 4 == 0:
            with disabled(model):
                assert model(torch.ones(6, 3)).unique().tolist() == [1]
        elif kind == "disabled":
            assert model(torch.ones(6, 3))[:, 0].tolist() == [1, 2, 1, 2, 5, 1]
        else:
            ids = torch.randperm(6, generator=torch.Generator().manual_seed(seed))[: 1 + seed % 6]
            with gd.rows(model, ids):
                assert torch.equal(model(torch.ones(len(ids), 3)), doubled()(torch.ones(6, 3))[ids])

    at_once(work, 200)


def test_a_batch_with_more_rows_than_ids_is_refused():
    model = Twice()
    attach(model, Site("layer", calls=2), doubled())
    with gd.rows(model, torch.tensor([1, 2])), pytest.raises(ModelError, match=r"got 3 rows.* given 2 ids.*n_id"):
        model(torch.ones(3, 3))
    with gd.rows(model, torch.tensor([0, 1, 2])):  # layers that trim a batch keep its first rows
        assert model(torch.ones(2, 3)).tolist() == [[2] * 3, [3] * 3]


@pytest.mark.parametrize("ids", [[0.5, 1.0], [-1, 2], [[0, 1]], [True, False]])
def test_rows_takes_ids_only(ids):
    many = torch.tensor(ids * 2000)
    with pytest.raises(ModelError, match=r"gnndelete\.rows takes") as caught, gd.rows(nn.Linear(1, 1), many):
        pass
    assert len(str(caught.value)) < 200, "it names a value, not all of them"
    assert ("(got -1)" in str(caught.value)) == (ids == [-1, 2])
