"""Audits of deleted features and labels: what is compared with unseen nodes, on which graph, and what cannot be."""

from __future__ import annotations

from typing import Any

import torch

import gnndelete as gd
from gnndelete.auditing.entry import run_measure
from gnndelete.auditing.measures.forgetting import Forgetting
from gnndelete.auditing.measures.integrity import still_there
from gnndelete.auditing.queries import presented, renamed
from gnndelete.auditing.samples import compared
from gnndelete.auditing.verdict import judge


def forgetting(case) -> dict[str, Any]:
    return run_measure(Forgetting(), case).to_dict()


def some_nodes(world: Any, count: int = 40) -> torch.Tensor:
    return gd.datasets.forget_nodes(world.data, count, seed=5)


def aucs(case, query: str) -> dict[str, float]:
    test = forgetting(case)["unseen"][query]
    return {name: test[name]["auc"] for name in ("before", "after", "reference")}


def test_a_label_that_was_remembered_is_seen_as_served_until_it_is_forgotten(nodes: Any) -> None:
    deletion = gd.Deletion(labels=some_nodes(nodes))
    cut = nodes.case("unlink", deletion, reference=True)
    trained = nodes.data.train_mask[deletion.labels]
    assert compared(cut)[0].tolist() == deletion.labels[trained].tolist()
    for query in ("served", "old_id", "new_id"):
        found = aucs(cut, query)
        assert found["after"] == found["before"] > 0.75, "no edge and no feature has changed"
        assert found["reference"] < 0.55
    assert judge(Forgetting().run(cut).unseen["served"]).code == "under-forgotten"
    assert not forgetting(cut)["unseen"]["served"]["unfair"]
    solved = aucs(nodes.case(gd.GNNDelete(lam=0.8), deletion, reference=True), "served")
    assert solved["after"] < found["after"] - 0.15


def test_features_are_asked_where_they_are_presented_again(nodes: Any) -> None:
    deletion = gd.Deletion(features=some_nodes(nodes))
    case = nodes.case("gnndelete", deletion, reference=True)
    section = forgetting(case)
    assert "without their features" in section["unseen"]["served"]["unfair"]
    assert torch.equal(presented(case).x, nodes.data.x)
    graph, move = renamed(case)
    assert torch.equal(graph.x[move(deletion.feature_nodes)], nodes.data.x[deletion.feature_nodes])
    found = aucs(case, "old_id")
    assert found["after"] <= found["before"]
    assert found["reference"] > 0.6, "the labels are still learned, so that 0.5 is not to be expected"
    assert "still learned" in section["unseen"]["old_id"]["unfair"]


def test_three_nodes_all_get_new_ids_and_are_not_taken_for_a_triple(nodes: Any) -> None:
    deletion = gd.Deletion(labels=some_nodes(nodes, 3))
    graph, move = renamed(nodes.case("unlink", deletion))
    count = nodes.data.num_nodes
    assert move(deletion.labels).tolist() == [count, count + 1, count + 2]
    assert torch.equal(graph.y[move(deletion.labels)], nodes.data.y[deletion.labels])
    assert move(torch.stack([deletion.labels, deletion.labels])).tolist() == [[count, count + 1, count + 2]] * 2


def test_the_whole_report(nodes: Any) -> None:
    for kind in ("features", "labels"):
        deletion = gd.Deletion(**{kind: some_nodes(nodes)})
        unlearned = nodes.unlearner("gnndelete").delete(deletion)
        audit = gd.audit(unlearned, nodes.unlearner("retrain").delete(deletion))
        values = audit.to_dict()
        assert values["request"]["counts"] == {kind: 40}
        assert set(values["verdict"]["by_query"]) == {"served", "old_id", "new_id"}
        assert values["membership"]["available"]
        assert kind.removesuffix("s") in values["membership"]["elements"]
        assert values["utility"]["near"]
        assert ("features of 40 nodes" if kind == "features" else "40 labels") in str(audit)
        assert audit.to_html()


def test_what_a_link_model_cannot_be_asked(links: Any) -> None:
    for deletion, words in (
        (gd.Deletion(features=[3, 5]), "a link model scores pairs of nodes, and features are none"),
        (gd.Deletion(labels=[3, 5]), "a link model learns from no labels"),
    ):
        values = gd.audit(links.unlearner("gnndelete").delete(deletion)).to_dict()
        assert words in values["forgetting"]["reason"]
        assert words in values["membership"]["reason"]
        assert values["utility"]["available"]
        assert values["verdict"]["code"] == "undecided"


def test_what_is_still_there(nodes: Any) -> None:
    deletion = gd.Deletion(features=[3, 5, 7], labels=[9, 11])
    case = nodes.case("unlink", deletion)
    assert still_there(case) == 0
    original = case.after.__class__("after", case.after.predict, case.original, case.after.model)
    assert still_there(nodes.case("unlink", deletion, subjects={**case.subjects, "after": original})) == 5
