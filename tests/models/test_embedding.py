"""Models with a trained vector per node: as PyG computes them, trained by both losses, and whole or in batches."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn.models import LightGCN as PyGLightGCN

import gnndelete as gd
from gnndelete.datasets import load, split_links
from gnndelete.errors import ModelError, SettingError
from gnndelete.models import EmbeddingGCN, EmbeddingSAGE, LightGCN, build

RATINGS = "generated:ratings?users=60&items=90&edges=1800&genres=4"
NAMES = ["lightgcn", "embeddinggcn", "embeddingsage"]
EDGES = torch.tensor([[0, 1, 2, 3, 0, 3], [2, 3, 0, 1, 3, 0]])


def test_lightgcn_computes_what_pygs_model_computes() -> None:
    model, known = LightGCN(4, out=8, num_layers=2), PyGLightGCN(4, 8, num_layers=2)
    known.embedding.load_state_dict(model.embedding.state_dict())
    weight = torch.rand(6)
    assert torch.allclose(model(EDGES), known.get_embedding(EDGES), atol=1e-6)
    assert torch.allclose(model(EDGES, weight), known.get_embedding(EDGES, weight), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_batches_take_their_own_vectors(name: str) -> None:
    model = build(name, num_nodes=6)
    n_id = torch.tensor([5, 2, 0, 1])
    whole = torch.stack([n_id[EDGES[0]], n_id[EDGES[1]]])
    assert torch.allclose(model(EDGES, n_id=n_id), model(whole)[n_id], atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_node_without_a_vector_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="names node 3, and the model has vectors for the nodes 0 to 2"):
        build(name, num_nodes=3)(EDGES)


@pytest.mark.parametrize("kind", [EmbeddingGCN, EmbeddingSAGE])
def test_vectors_are_joined_with_features(kind) -> None:  # type: ignore[no-untyped-def]
    model = kind(4, in_channels=3, embedding=5, hidden=7, out=2)
    assert model.convs[0].in_channels == 8
    x = torch.rand(4, 3)
    assert not torch.allclose(model(EDGES, x), model(EDGES, x + 1))
    with pytest.raises(ModelError, match="has no 'x'"):
        model(EDGES)


@pytest.mark.parametrize("name", NAMES)
def test_a_reset_draws_all_weights_again(name: str) -> None:
    model = build(name, num_nodes=4)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.reset_parameters()
    assert [
        key for key, value in model.state_dict().items() if "weight" in key and torch.equal(value, before[key])
    ] == []


def test_sizes_are_checked() -> None:
    with pytest.raises(SettingError, match="'num_nodes' must be a whole number"):
        LightGCN(0)
    with pytest.raises(SettingError, match="'embedding' must be a whole number"):
        EmbeddingGCN(3, embedding=0)


@pytest.mark.parametrize("loss", ["bce", "bpr"])
@pytest.mark.parametrize("name", NAMES)
def test_trained_on_ratings_and_deleted_from(name: str, loss: str) -> None:
    split = split_links(load(RATINGS), seed=0, val=0.1, test=0.1)
    task = gd.LinkPrediction(validation=split.validation, test=split.test, loss=loss)
    torch.manual_seed(0)
    model = build(name, num_nodes=150, out=16)
    gd.train(model, split.data, task, epochs=60, lr=0.02)
    unlearner = gd.Unlearner(model, split.data, task=task, method=gd.GNNDelete(lam=0.1))
    unlearned = unlearner.delete(gd.Deletion(edges=split.data.edge_index[:, :20]))
    assert task.evaluate(model, model(split.data.edge_index), split.data)["auroc"] > 0.55
    assert unlearned.evaluate()["test_auroc"] > 0.55
