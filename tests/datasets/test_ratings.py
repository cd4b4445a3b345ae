"""Ratings as MovieLens and Gowalla publish them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

import gnndelete as gd
from gnndelete.errors import GraphError

#: The same three ratings, of the users 1, 7 and 7, in each format.
FILES = {
    "ratings.csv": "userId,movieId,rating,timestamp\n1,31,2.5,12\n7,31,4.0,13\n7,50,5.0,14\n",
    "ratings.dat": "1::31::2.5::12\n7::31::4::13\n7::50::5::14\n",
    "u.data": "1\t31\t2.5\t12\n7\t31\t4\t13\n7\t50\t5\t14\n",
    "loc-gowalla_totalCheckins.txt": (
        "1\t2010-10-19T23:55:27Z\t30.2\t-97.7\t31\n7\t2010-10-18T22:17:43Z\t30.2\t-97.7\t31\n"
        "7\t2010-10-18T22:17:43Z\t30.2\t-97.7\t50\n7\t2010-10-19T22:17:43Z\t30.2\t-97.7\t50\n"
    ),
    "train.txt": "1 31\n7 31 50\n",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_format_gives_the_same_graph(tmp_path: Path, name: str, packed: bool) -> None:
    if packed:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(FILES[name].encode()))
    else:
        (tmp_path / name).write_text(FILES[name])
    graph = gd.datasets.load_ratings(tmp_path)
    assert graph.ids.names == ("1", "7", "31", "50")
    assert list(graph.ids.types) == ["user", "item"]
    once = graph.data.edge_index[:, graph.data.edge_index[0] < 2]
    assert sorted(once.t().tolist()) == [[0, 2], [1, 2], [1, 3]]


def test_low_ratings_are_left_out_and_types_kept(tmp_path: Path) -> None:
    (tmp_path / "ratings.dat").write_text(FILES["ratings.dat"])
    graph = gd.datasets.load_ratings(tmp_path / "ratings.dat", least=4, layout="hetero")
    assert graph.data["user", "rated", "item"].edge_index.size(1) == 2
    assert gd.Deletion(nodes={"user": ["7"]}, ids=graph.ids).counts == {"nodes": 1}


def test_the_split_of_gowalla_is_named_as_unseen(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(FILES["train.txt"])
    (tmp_path / "test.txt").write_text("1 50\n")
    graph = gd.datasets.load_ratings(tmp_path)
    [unseen] = graph.unseen.values()
    assert torch.equal(unseen["test"], torch.tensor([[0], [3]]))
    task = gd.RankingPrediction(**unseen)
    assert "ndcg@4" in gd.evaluate(gd.models.LightGCN(4, out=4), graph.data, task)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("u.data", "1\t31\n", "line 1 (2 cells, and a user, an item and a rating are needed)"),
        ("ratings.dat", "1::31::good::12\n", "line 1 (the rating is 'good', no number)"),
        ("ratings.csv", "userId,movieId,rating\n,31,2\n", "'user' is empty"),
        ("likes.txt", "1 31\n", "is called like no file of ratings"),
        ("readme.md", "", "holds none of ratings.csv"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(GraphError) as caught:
        gd.datasets.load_ratings(tmp_path if name == "readme.md" else tmp_path / name)
    assert said in str(caught.value)
