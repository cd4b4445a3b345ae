"""What must hold for every model: one table of models (conftest.MODELS) times these behaviours."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch_geometric.utils import k_hop_subgraph

import gnndelete as gd
from gnndelete.errors import ModelError
from gnndelete.nn.operator import layer_operators


def rows_near(subject, hops):
    seeds = torch.cat([subject.deletion.edges.flatten(), subject.deletion.nodes])
    inside = torch.zeros(subject.data.num_nodes, dtype=torch.bool)
    inside[k_hop_subgraph(seeds, hops, subject.data.edge_index, num_nodes=subject.data.num_nodes)[0]] = True
    return inside


def test_inspect_finds_layers_and_their_reach(subject):
    found = gd.inspect(subject.model, subject.data, layers=subject.case.layers)
    bounded = subject.case.bounded or (True,) * len(subject.case.sites)
    near = [(s.layer, s.call, s.key, s.hops if s.bounded else None) for s in found.sites]
    expected = zip(subject.case.sites, bounded, strict=True)
    assert near == [(*site[:3], site[3] if local else None) for site, local in expected]
    assert found.hops == subject.case.hops
    assert found.bounded == (subject.case.hops is not None)
    assert all(site.probed for site in found.sites)
    assert found.parameters == sum(site.width**2 for site in found.sites)
    assert "the whole graph" in str(found) or found.bounded


def test_rows_outside_the_neighbourhood_are_bit_identical(subject, run):
    for deletion in (subject.deletion, gd.Deletion(nodes=[4])):
        subject.deletion = deletion
        unlearned = subject.unlearner().delete(deletion)
        before, after = run(subject.base(), unlearned.data), run(unlearned.model, unlearned.data)
        assert not torch.equal(before, after), "the operators must do something"
        if subject.case.hops is None:
            assert any("distance does not bound" in note.text for note in unlearned.notes)
            continue
        inside = rows_near(subject, subject.case.hops)
        assert 0 < inside.sum() < subject.data.num_nodes / 2
        assert torch.equal(before[~inside], after[~inside])


def test_lam_zero_equals_unlink(subject, run):
    kept = subject.unlearner(subject.method(lam=0, targets="remaining")).delete(subject.deletion)
    cut = subject.unlearner("unlink").delete(subject.deletion)
    assert torch.equal(run(kept.model, kept.data), run(cut.model, cut.data))
    assert torch.equal(run(cut.model, cut.data), run(subject.base(), cut.data))
    assert kept.parameters == 0


def test_base_weights_do_not_change_and_get_no_gradient(subject, tensors):
    unlearned = subject.unlearner(subject.method(solver="gradient", epochs=3)).delete(subject.deletion)
    state = unlearned.model.state_dict()
    for name, value in subject.model.state_dict().items():
        assert torch.equal(state[name], value)
    assert all(p.grad is None for p in unlearned.model.parameters())
    assert all(not p.requires_grad for _, op in unlearned.adapter.operators for p in op.parameters())


def test_model_and_data_of_the_user_are_untouched(subject, snapshot):
    before = snapshot(subject.model, subject.data)
    gd.inspect(subject.model, subject.data, layers=subject.case.layers)
    unlearner = subject.unlearner()
    unlearned = unlearner.delete(subject.deletion)
    unlearner.delete(gd.Deletion(nodes=[20]))
    unlearned.output()
    assert snapshot(subject.model, subject.data) == before
    assert unlearned.model is not subject.model
    assert type(unlearned.model) is type(subject.model)


def test_an_interrupted_run_changes_nothing(subject, snapshot, run):
    from gnndelete.nn.forward import call

    last = subject.case.sites[-1][0]
    before = snapshot(subject.model, subject.data)
    interrupted = 0
    for stop_at in range(1, 9):
        passes = 0

        def forward(model, data, stop_at=stop_at):
            nonlocal passes
            passes += 1
            if passes == stop_at:
                model.get_submodule(last).register_forward_pre_hook(stop)
            return call(model, data)

        def stop(*_):
            raise KeyboardInterrupt

        try:
            unlearner = subject.unlearner(forward=forward)
            unlearner.delete(subject.deletion)
        except KeyboardInterrupt:
            interrupted += 1
            assert snapshot(subject.model, subject.data) == before
    assert interrupted >= 3  # the probe, the pass for the targets, the pass that solves


def test_a_request_interrupted_midway_can_be_repeated(make_subject, run):
    from gnndelete.nn.forward import call

    subject = make_subject("gcn")
    broken = True

    def forward(model, data):
        if broken and data.edge_index.size(1) < subject.data.edge_index.size(1):
            raise KeyboardInterrupt
        return call(model, data)

    unlearner = subject.unlearner(forward=forward)
    with pytest.raises(KeyboardInterrupt):
        unlearner.delete(subject.deletion)
    assert unlearner.history == ()
    broken = False
    again, clean = unlearner.delete(subject.deletion), subject.unlearner().delete(subject.deletion)
    assert torch.equal(run(again.model, again.data), run(clean.model, clean.data))


def test_copies_and_pickles_say_the_same(subject, run):
    unlearned = subject.unlearner().delete(subject.deletion)
    expected = run(unlearned.model, unlearned.data)
    assert torch.equal(run(copy.deepcopy(unlearned.model), unlearned.data), expected)
    assert torch.equal(run(pickle.loads(pickle.dumps(unlearned.model)), unlearned.data), expected)
    state = unlearned.model.state_dict()
    clone = copy.deepcopy(unlearned.model)
    for parameter in clone.parameters():
        parameter.data.zero_()
    clone.load_state_dict(state, strict=True)
    assert torch.equal(run(clone, unlearned.data), expected)


def test_disabled_is_the_base_model_for_a_block(subject, run):
    unlearned = subject.unlearner().delete(subject.deletion)
    base = run(subject.base(), unlearned.data)
    expected = run(unlearned.model, unlearned.data)
    with unlearned.adapter.disabled():
        assert torch.equal(run(unlearned.model, unlearned.data), base)
    assert torch.equal(run(unlearned.model, unlearned.data), expected)


def test_after_detaching_the_base_checkpoint_loads_strictly(subject, run):
    unlearned = subject.unlearner().delete(subject.deletion)
    added = set(unlearned.model.state_dict()) - set(subject.model.state_dict())
    assert added
    assert all("gnndelete" in name.split(".") for name in added)
    model = unlearned.adapter.detach()
    model.load_state_dict(subject.model.state_dict(), strict=True)
    assert not layer_operators(model)
    assert torch.equal(run(model, unlearned.data), run(subject.base(), unlearned.data))
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    assert hooks == sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in subject.model.modules())


def test_another_number_of_rows_is_refused(subject):
    from gnndelete.nn.forward import call

    if not subject.case.batches:
        pytest.skip("the model itself cannot run on a part of the graph, or sees all of it")
    unlearned = subject.unlearner().delete(subject.deletion)
    part = unlearned.data.subgraph(torch.arange(20))
    with pytest.raises(ModelError, match=r"got 20 rows.* 48 nodes.*gnndelete\.rows"):
        call(unlearned.model.eval(), part)


def test_a_sampled_batch_says_the_same_as_the_whole_graph(subject, run):
    if not subject.case.batches:
        pytest.skip("the model itself cannot run on a part of the graph, or sees all of it")
    unlearned = subject.unlearner().delete(subject.deletion)
    whole, data = run(unlearned.model, unlearned.data), unlearned.data
    seeds = torch.tensor([4, 8, 1])
    # one hop more than the receptive field, because layers that normalise also see the degrees at its border
    field = k_hop_subgraph(seeds, subject.case.hops + 1, data.edge_index, num_nodes=data.num_nodes)[0]
    n_id = torch.cat([seeds, field[~torch.isin(field, seeds)].flip(0)])
    assert n_id.numel() < data.num_nodes
    place = torch.full((data.num_nodes,), -1)
    place[n_id] = torch.arange(n_id.numel())
    inside = (place[data.edge_index] >= 0).all(dim=0)
    batch = copy.copy(data)
    batch.num_nodes = n_id.numel()
    batch.x, batch.edge_index = data.x[n_id], place[data.edge_index[:, inside]]
    batch.edge_weight, batch.edge_attr = data.edge_weight[inside], data.edge_attr[inside]
    with gd.rows(unlearned.model, n_id):
        part = run(unlearned.model, batch)
    torch.testing.assert_close(part[:3], whole[seeds], rtol=1e-4, atol=1e-5)
    with unlearned.adapter.disabled():
        base = run(unlearned.model, batch)
    assert not torch.allclose(base[:3], whole[seeds], rtol=1e-3, atol=1e-4), "the seeds must be rows that were changed"


def test_an_adapter_on_disk_says_the_same(subject, run, tmp_path):
    unlearned = subject.unlearner().delete(subject.deletion)
    unlearned.save(tmp_path)
    back = gd.load(tmp_path, subject.model, data=unlearned.data)
    assert torch.equal(run(back.model, back.data), run(unlearned.model, unlearned.data))
    assert back.assurance == unlearned.assurance == "approximate"
    assert back.parameters == unlearned.parameters > 0


def test_one_request_after_the_other_equals_both_at_once(subject, run):
    a, b = gd.Deletion(edges=[(3, 4), (5, 7)]), gd.Deletion(edges=[(20, 22)], nodes=[9])
    results = []
    for order in ([a, b], [b, a], [a | b]):
        unlearner = subject.unlearner()
        for request in order:
            unlearned = unlearner.delete(request)
        results.append(run(unlearned.model, unlearned.data))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_an_unlearned_model_is_no_base_until_its_operators_are_off(subject, run):
    first = subject.unlearner().delete(subject.deletion)
    with pytest.raises(ModelError, match="already carries deletion operators"):
        gd.Unlearner(first.model, first.data, method=subject.method())
    base = first.adapter.detach()
    again = gd.Unlearner(base, subject.data, method=subject.method()).delete(subject.deletion)
    fresh = subject.unlearner().delete(subject.deletion)
    assert torch.equal(run(again.model, again.data), run(fresh.model, fresh.data))


@pytest.mark.parametrize("name", ["gcn", "three-calls", "gat-tuples"])
def test_compiled_models_say_the_same(make_subject, run, name):
    subject = make_subject(name)
    unlearned = subject.unlearner().delete(subject.deletion)
    expected = run(unlearned.model, unlearned.data)
    compiled = torch.compile(unlearned.model.eval(), backend="eager")
    with torch.no_grad():
        for _ in range(2):
            output = compiled(unlearned.data.x, unlearned.data.edge_index)
            output = output[0] if isinstance(output, tuple) else output
            torch.testing.assert_close(output, expected)


def test_an_exported_model_says_the_same(make_subject, run):
    subject = make_subject("sage-mean")
    unlearned = subject.unlearner().delete(subject.deletion)
    program = torch.export.export(unlearned.model.eval(), (unlearned.data.x, unlearned.data.edge_index), strict=False)
    output = program.module()(unlearned.data.x, unlearned.data.edge_index)
    torch.testing.assert_close(output, run(unlearned.model, unlearned.data))


def test_operators_are_solved_on_what_they_will_see(subject, run):
    """The rows a map was fitted to are the rows it gets when the finished model runs, at every layer."""
    fitted, given = [], []
    method = subject.method(watch=lambda site, problem, _: fitted.append((site.title, problem.h[problem.rows])))
    unlearned = subject.unlearner(method).delete(subject.deletion)
    for _, operator in unlearned.adapter.operators:
        operator.register_forward_pre_hook(
            lambda op, args: given.extend(args[0][rows] for rows in op.rows.split(op.sizes)), with_kwargs=False
        )
    run(unlearned.model, unlearned.data)
    assert len(fitted) == len(given) > 0
    for (title, expected), seen in zip(fitted, given, strict=True):
        assert torch.equal(expected, seen), title
