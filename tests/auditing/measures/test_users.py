"""What a recommender says of deleted users, and to light, medium and heavy ones that stay."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import gnndelete as gd
from gnndelete.auditing.case import open_case
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.base import PerModel, Unmeasured
from gnndelete.auditing.measures.users import Users, UsersSection
from gnndelete.auditing.measures.utility import Skill
from gnndelete.auditing.verdict import Findings, decide, group_loses
from gnndelete.metrics.lists import Lists, ndcg_of_each
from gnndelete.testing import problem

USERS, ITEMS = 60, 40


def ratings() -> tuple[Data, torch.Tensor]:
    """Users like half of the items of their own kind; a few pairs are never in the graph."""
    generator = torch.Generator().manual_seed(0)
    same = torch.arange(USERS)[:, None] % 2 == torch.arange(ITEMS)[None] % 2
    once = (same & (torch.rand(USERS, ITEMS, generator=generator) < 0.5)).nonzero().t() + torch.tensor([[0], [USERS]])
    once = once[:, torch.randperm(once.size(1), generator=generator)]
    kept, unseen = once[:, 60:], once[:, :60]
    return Data(edge_index=torch.cat([kept, kept.flip(0)], dim=1), num_nodes=USERS + ITEMS), unseen


def fit(model, data, seed, task=None):  # type: ignore[no-untyped-def]
    gd.train(model, data, task or gd.RankingPrediction(), epochs=60, lr=0.05, seed=seed)
    return model


@pytest.fixture(scope="module")
def trained() -> tuple[Data, torch.Tensor, torch.nn.Module]:
    data, unseen = ratings()
    torch.manual_seed(0)
    return data, unseen, fit(gd.models.LightGCN(USERS + ITEMS, 16, 2), data, 0)


def audited(trained, nodes, method, unseen=False, reference=True):  # type: ignore[no-untyped-def]
    data, held, model = trained
    task = gd.RankingPrediction(test=held) if unseen else gd.RankingPrediction()
    deletion = gd.Deletion(nodes=nodes)

    def delete(name):  # type: ignore[no-untyped-def]
        unlearner = gd.Unlearner(model, data, task=task, method=name, fit=fit)
        return unlearner.delete(deletion)

    return gd.audit(delete(method), reference=delete("retrain") if reference else None, attacks=False)


def test_unlink_still_knows_former_items_of_deleted_users_and_retrain_does_not(trained) -> None:  # type: ignore[no-untyped-def]
    found = audited(trained, list(range(14)), "unlink")
    served = found.sections["users"].former["served"]
    assert served.nodes == 14
    assert served.values.before > 0.85
    assert served.values.after > 0.7 > served.values.reference
    assert served.gap > 2 * served.gap_error
    assert (found.verdict.code, found.verdict.rule) == ("under-forgotten", "former-pairs")
    assert "nothing is known that the model was not trained on" in found.verdict.text


def test_few_deleted_users_are_shown_and_decide_nothing(trained) -> None:  # type: ignore[no-untyped-def]
    found = audited(trained, [3], "unlink")
    assert found.sections["users"].former["served"].gap_error is None
    assert found.verdict.rule == "unseen-test"
    assert found.verdict.code == "undecided"
    assert "Former pairs of deleted nodes" in str(found)


def test_deleted_items_are_ranked_among_users(trained) -> None:  # type: ignore[no-untyped-def]
    found = audited(trained, [USERS + 1, USERS + 2], "unlink", reference=False).sections["users"]
    assert found.former["served"].nodes == 2
    assert found.former["served"].values.before > 0.85
    assert found.kept_with == "before"


def test_groups_of_other_users_stand_side_by_side(trained) -> None:  # type: ignore[no-untyped-def]
    found = audited(trained, [0, 1, 2], "gnndelete", unseen=True)
    groups = found.sections["users"].groups
    assert set(groups) <= {"light", "medium", "heavy"}
    assert all(skill.values.after > 0 and skill.before_error is not None for skill in groups.values())
    assert "NDCG@10 of heavy users" in found.to_html()


def test_a_heterodata_is_measured_too() -> None:
    data, unseen = ratings()
    once = data.edge_index[:, data.edge_index[0] < USERS] - torch.tensor([[0], [USERS]])
    from torch_geometric.data import HeteroData

    hetero = HeteroData({"user": {"x": torch.randn(USERS, 4)}, "item": {"x": torch.randn(ITEMS, 4)}})
    hetero["user", "likes", "item"].edge_index = once
    hetero["item", "rev_likes", "user"].edge_index = once.flip(0)
    from torch_geometric.nn import HeteroConv, SAGEConv

    model = HeteroConv({kind: SAGEConv(4, 8) for kind in hetero.edge_types})
    task = gd.RankingPrediction(test=unseen - torch.tensor([[0], [USERS]]), edge_type=("user", "likes", "item"))
    unlearner = gd.Unlearner(
        model, hetero, task=task, method="unlink", forward=lambda model, data: model(data.x_dict, data.edge_index_dict)
    )
    found = run_measure(Users(), open_case(unlearner.delete(gd.Deletion(nodes={"user": [0, 1]}))))
    assert isinstance(found, UsersSection)
    assert found.former["served"].nodes == 2
    assert found.groups


def test_graphs_without_two_sides_are_left_out() -> None:
    model, data, task = problem("link")
    unlearned = gd.Unlearner(model, data, task=task, method="unlink").delete(gd.Deletion(nodes=[1]))
    found = run_measure(Users(), open_case(unlearned))
    assert isinstance(found, Unmeasured)
    assert "bipartite" in found.reason


def test_a_group_that_loses_is_a_warning() -> None:
    values = {"light": (0.30, 0.25), "heavy": (0.30, 0.295)}
    groups = {
        name: Skill("ndcg@10", PerModel(before, after), 0.0, 0.0, 50, f"{name} users", before_error=0.01)
        for name, (before, after) in values.items()
    }
    found = Findings(sections={"users": UsersSection(groups=groups)})
    opinion = group_loses(found)
    assert opinion is not None
    assert "light users 0.250, 0.300 before" in opinion.text
    assert "heavy" not in opinion.text
    assert "group-loses" in [warning.code for warning in decide(found).warnings]


def test_the_mean_of_single_lists_is_the_ndcg_of_all() -> None:
    generator = torch.Generator().manual_seed(1)
    known = torch.stack([torch.arange(20), 20 + torch.randint(30, (20,), generator=generator)])
    lists = Lists(torch.cat([known, torch.stack([torch.zeros(30).long(), 20 + torch.arange(30)])], dim=1), 50)
    heads = torch.arange(20)[None]
    edges = torch.stack([torch.arange(20), 20 + torch.randint(30, (20,), generator=generator)])
    edges = torch.unique(torch.cat([edges, torch.stack([edges[0], 20 + (edges[1] + 3) % 30])], dim=1), dim=1)
    listed = 20 + torch.stack([torch.randperm(30, generator=generator)[:10] for _ in range(20)])
    mean = float(ndcg_of_each(listed, heads, edges).mean())
    assert mean == pytest.approx(lists.quality(listed, heads, edges)["ndcg@10"], abs=1e-6)
