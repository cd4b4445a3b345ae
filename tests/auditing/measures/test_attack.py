"""The shadow: same architecture, data disjoint from everything attacked, nothing of the user's touched."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gnndelete.auditing.case import Case
from gnndelete.auditing.measures.attack import EXAMPLE_MINIMUM, train_shadow
from gnndelete.tasks.supervision import distinct_positives


def pairs(edges: Tensor) -> set[tuple[int, ...]]:
    return {tuple(sorted(edge)) for edge in edges.t().tolist()}


def test_a_link_shadow_never_sees_what_is_attacked_nor_what_it_holds_out(edge_case: Case) -> None:
    shadow = train_shadow(edge_case)
    assert shadow.subject is not None
    assert type(shadow.subject.model) is type(edge_case.base)
    present, absent = pairs(shadow.present), pairs(shadow.absent)
    seen = pairs(shadow.subject.graph.edge_index)
    assert present == seen
    assert not absent & seen
    assert present | absent == pairs(edge_case.remaining.edge_index)
    assert len(absent) == pytest.approx(0.1 * len(present | absent), abs=1)
    attacked = pairs(edge_case.deletion.edges) | pairs(edge_case.task.test.positives)
    validation = pairs(edge_case.task.validation.positives)
    assert not (present | absent) & (attacked | validation)


def test_a_node_shadow_never_sees_the_labels_it_holds_out(node_case: Case) -> None:
    shadow = train_shadow(node_case)
    assert shadow.subject is not None
    graph, absent = shadow.subject.graph, shadow.absent
    assert not bool(graph.train_mask[absent].any())
    assert bool((graph.y[absent] == -1).all())
    assert graph.train_mask.nonzero().flatten().tolist() == shadow.present.sort().values.tolist()
    attacked = torch.cat([node_case.deletion.nodes, node_case.remaining.test_mask.nonzero().flatten()])
    assert not bool(torch.isin(torch.cat([shadow.present, absent]), attacked).any())
    assert bool((node_case.remaining.y[absent] >= 0).all())  # the case's own graph keeps its labels


@pytest.mark.parametrize("name", ["edge_case", "node_case"])
def test_nothing_of_the_users_is_touched_and_a_seed_means_one_shadow(name: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(name)
    weights, graph = copy.deepcopy(case.base.state_dict()), case.remaining.clone()
    state = torch.random.get_rng_state()
    first, second, other = train_shadow(case), train_shadow(case), train_shadow(replace(case, seed=case.seed + 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, weights[key]) for key, value in case.base.state_dict().items())
    assert all(torch.equal(case.remaining[key], graph[key]) for key in ("x", "edge_index", "y"))
    assert torch.equal(first.subject.output, second.subject.output)
    assert torch.equal(first.absent, second.absent)
    assert not torch.equal(first.absent, other.absent)


def test_without_a_fit_function_the_schedule_of_the_reference_is_taken(edge_case: Case) -> None:
    settings = {**edge_case.reference.settings, "epochs": 3}
    shadow = train_shadow(replace(edge_case, fit=None, reference=replace(edge_case.reference, settings=settings)))
    assert "schedule of the retrained reference: 3 epochs" in shadow.what


def test_a_factory_builds_the_shadow_where_weights_cannot_be_reset(edge_case: Case) -> None:
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(48, 8))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight

    case = replace(edge_case, base=Stubborn())
    refused = train_shadow(case)
    assert refused.subject is None
    assert "build=" in refused.reason
    state = torch.random.get_rng_state()
    assert train_shadow(replace(case, build=Stubborn)).subject is not None
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_graph_too_small_for_a_shadow_is_named(edge_case: Case) -> None:
    few = edge_case.remaining.clone()
    once = distinct_positives(few)[:, :30]
    few.edge_index = torch.cat([once, once.flip(0)], dim=1)
    shadow = train_shadow(replace(edge_case, remaining=few))
    assert shadow.subject is None
    assert f"at least {EXAMPLE_MINIMUM}" in shadow.reason


def test_supervision_edges_of_their_own_are_what_is_unseen_elements(edge_case: Case) -> None:
    def untrained(model: nn.Module, data: Any, seed: int) -> None:
        return None

    graph = edge_case.remaining.clone()
    graph.edge_label_index = distinct_positives(graph)[:, :200].flip(0)
    shadow = train_shadow(replace(edge_case, remaining=graph, fit=untrained))
    assert shadow.subject is not None
    assert shadow.present.size(1) + shadow.absent.size(1) == 200
    assert not pairs(shadow.absent) & pairs(shadow.subject.graph.edge_label_index)
    assert not pairs(shadow.absent) & pairs(shadow.subject.graph.edge_index)


def test_link_edges_come_once() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]]), num_nodes=3)
    assert pairs(distinct_positives(data)) == {(0, 1), (1, 2)}
