"""On a CUDA device: every model, every method with every kind of deletion, calibration, audits and files, beside the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import gnndelete as gd
from gnndelete.datasets.negatives import triples
from gnndelete.methods import CONTROLS
from gnndelete.testing import check_method, problem

from . import hetero
from .conftest import MODELS, Case, build_subject, flat
from .test_testing import CASES, COMBINATIONS

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]

MIXED = (
    gd.Deletion(edges=[(3, 4), (5, 7), (20, 22)], nodes=[9, 30])
    | gd.Deletion(features=[(node, 2) for node in (0, 14, 15, 33, 44)], fill=0.5)
    | gd.Deletion(labels=[36])
)
ALIKE = {"rtol": 2e-3, "atol": 2e-3}  # sums of float32 in another order, solved in least squares
TASKS = ("link", "node", "typed", "graph")


def close(there: object, here: object) -> None:
    for one, other in zip(flat(there), flat(here), strict=True):
        assert one.device.type == "cuda"
        torch.testing.assert_close(one.cpu(), other, **ALIKE)


def some(data: Data) -> gd.Deletion:
    """Every 17th edge."""
    return gd.Deletion(edges=(triples(data) if "edge_type" in data else data.edge_index)[:, ::17])


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_every_model_says_the_same(case: Case) -> None:
    here, there = build_subject(case), build_subject(case)
    there.model, there.data = there.model.cuda(), there.data.cuda()
    alike = here.unlearner(here.method(lam=0.5)).delete(MIXED), there.unlearner(there.method(lam=0.5)).delete(MIXED)
    assert [place for place, _ in alike[0].adapter.operators] == [place for place, _ in alike[1].adapter.operators]
    close(alike[1].output(), alike[0].output())


@pytest.mark.parametrize("name", hetero.MODELS)
def test_graphs_of_several_types(name: str) -> None:
    data = hetero.make_hetero()
    model = hetero.make_model(name, data)
    deletion = gd.Deletion(edges={hetero.WRITES: data[hetero.WRITES].edge_index[:, 20:23]}, nodes={"author": [30]})

    def serve(data: HeteroData) -> gd.Unlearned:
        on = copy.deepcopy(model).to(data["paper"].x.device)
        return gd.Unlearner(on, data, method=gd.GNNDelete(lam=0.5)).delete(deletion)

    there, here = serve(data.clone().cuda()), serve(data)
    assert [place for place, _ in there.adapter.operators] == [place for place, _ in here.adapter.operators]
    close(there.output(), here.output())


@pytest.mark.parametrize("name", sorted(CASES))
def test_methods_keep_the_contract(name: str) -> None:
    assert check_method(CASES[name], device="cuda") == check_method(CASES[name])


@pytest.mark.parametrize("make", [gd.GNNDelete.paper, lambda: gd.GNNDelete(solver="gradient", epochs=20), *CONTROLS])
def test_variants_and_controls_keep_the_contract(make: Callable[[], gd.Method]) -> None:
    assert set(check_method(make, device="cuda")) == COMBINATIONS


@pytest.mark.parametrize("aim", ["retrained", "nonexistent"])
@pytest.mark.parametrize("task_name", TASKS)
def test_calibration_is_that_of_the_cpu(task_name: str, aim: str) -> None:
    model, data, task = problem(task_name)
    deletion = some(data)
    method = gd.GNNDelete(aim=aim)
    here = gd.Unlearner(model, data, task=task, method=method).delete(deletion)
    there = gd.Unlearner(copy.deepcopy(model).cuda(), data.clone().cuda(), task=task, method=method).delete(deletion)
    assert there.lam == pytest.approx(here.lam, abs=0.02)
    for name, value in here.evaluate().items():
        assert there.evaluate()[name] == pytest.approx(value, abs=0.02, nan_ok=True), name


@pytest.mark.parametrize("task_name", TASKS)
def test_audits_and_files(task_name: str, tmp_path: Path) -> None:
    model, data, task = problem(task_name)
    there, graph = copy.deepcopy(model).cuda(), data.clone().cuda()
    deletion = some(data)
    served = gd.Unlearner(there, graph, task=task, method=gd.GNNDelete(lam=0.5)).delete(deletion)
    again = gd.Unlearner(there, graph, task=task, method=gd.Retrain(epochs=10)).delete(deletion)
    assert str(gd.audit(served, reference=again))
    served.save(tmp_path)
    back = gd.load(tmp_path, model, data=served.data.clone().cpu(), task=task)
    close(served.output(), back.output())
