"""What is served follows from its graph and its rows, or is called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import gnndelete as gd
from gnndelete.auditing.case import Case, Subject
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.integrity import Integrity


def checks(case: Case) -> dict[str, Any]:
    return run_measure(Integrity(), case).to_dict()


def serving(case: Case, **changes: Any) -> Case:
    return replace(case, subjects={**case.subjects, "after": replace(case.after, **changes)})


class Frozen(nn.Module):
    """Answers for the graph it was given first, whatever it is asked on."""

    def __init__(self, inner: nn.Module, data: Any) -> None:
        super().__init__()
        self.inner, self.x, self.edge_index = inner, data.x, data.edge_index

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(self.x, self.edge_index)


def test_an_honest_model_reads_its_graph(edge_case: Case, node_case: Case) -> None:
    for case in (edge_case, node_case):
        reading = checks(case)["reading"]
        assert reading["after"] == reading["base"] > 0


def test_a_model_with_the_old_graph_inside_does_not(edge_case: Case, node_case: Case) -> None:
    for case in (edge_case, node_case):
        frozen = Subject.of_model("after", Frozen(case.base, case.original), case.remaining, case.task, case.forward)
        reading = checks(replace(case, subjects={**case.subjects, "after": frozen}))["reading"]
        assert reading["after"] == 0 < reading["base"]


def test_answers_beside_either_end_move_with_a_map_and_not_with_a_list(links: Any, edge_case: Case) -> None:
    edges = gd.Deletion(edges=gd.datasets.forget_edges(links.data, 60, seed=5))
    honest = checks(links.case(gd.GNNDelete(lam=0.4), edges))["movement"]
    assert honest["neighbors"] > 0.05 * honest["deleted"]
    assert honest["consistency"] > 0.5

    true = edge_case.after.predict
    gone = {tuple(sorted(pair)) for pair in edge_case.deletion.edges.t().tolist()}
    ends = edge_case.deletion.edges.unique()

    def listed(pairs: Tensor) -> Tensor:
        scores = true(pairs).clone()
        named = torch.tensor([tuple(sorted(pair)) in gone for pair in pairs.t().tolist()])
        touched = torch.isin(pairs, ends).any(dim=0) & ~named
        noise = torch.sin(1000 * (pairs[0] + 1.7 * pairs[1]).double())
        return torch.where(named, scores - 3, scores + touched * noise.to(scores))

    movement = checks(serving(edge_case, predict=listed))["movement"]
    assert movement["neighbors"] > 0.1 * movement["deleted"], "the noise hides that only listed answers moved"
    assert movement["consistency"] < 0.2
