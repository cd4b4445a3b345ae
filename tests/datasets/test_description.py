"""Several tables: what they are taken for, what a description says, and every mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import gnndelete as gd
from gnndelete.datasets import from_tables, load_graph, save_graph
from gnndelete.datasets.description import Description, Sources, find_description, read_description, to_toml
from gnndelete.errors import GraphError, SettingError

SHOP = {
    "users.csv": "user_id,age,plan\nu1,30,free\nu2,,pro\nu3,50,free\nu4,20,pro\n",
    "items.csv": "item_id,price,title\ni1,5,One\ni2,7,Two\n7,8,Three\n",
    "interactions.csv": "user_id,item_id,ts,rating\nu1,i1,1700000000,5\nu2,i1,1700000001,4\nu2,7,1700000002,1\n"
    "u1,i1,1700000009,5\n",
}
TOML = """\
layout = "hetero"

[nodes.user]
table = "users.csv"
key = "user_id"
features = ["age"]

[nodes.item]
table = "items.csv"
key = "item_id"

[edges.bought]
table = "interactions.csv"
source = "user_id"
target = "item_id"
"""


@pytest.fixture
def shop(tmp_path: Path):
    def write(files=SHOP, **more: str) -> Path:
        for name, text in {**files, **{name.replace("__", "."): text for name, text in more.items()}}.items():
            (tmp_path / name).write_text(text)
        return tmp_path

    return write


def test_three_tables_are_understood(shop) -> None:
    graph = load_graph(shop())
    assert isinstance(graph.data, HeteroData)
    assert graph.data.edge_types == [("user", "interactions", "item"), ("item", "rev_interactions", "user")]
    assert graph.data["user", "interactions", "item"].edge_index.tolist() == [[0, 1, 1], [0, 0, 2]]
    assert graph.features == {"user": ("age", "plan=free", "plan=pro"), "item": ("price",)}
    assert graph.edge_features == ("rating",)
    assert graph.ids.types == {"user": range(4), "item": range(4, 7)}
    text = graph.describe()
    for needle in (
        "4 rows, 1 of them repeated",
        "ts: not used (a time)",
        "title: not used (text)",
        "counts as 33.3333",
    ):
        assert needle in text
    again = Description.from_dict(Description.from_dict(__import__("tomllib").loads(text)).to_dict())
    assert from_tables(shop(), description=again).describe() == text


def test_one_graph_of_several_types(shop) -> None:
    graph = load_graph(shop(), layout="single")
    assert isinstance(graph.data, Data)
    assert graph.features == ("user.age", "user.plan=free", "user.plan=pro", "item.price")
    assert graph.data.x[4:].tolist() == [[0, 0, 0, 5], [0, 0, 0, 7], [0, 0, 0, 8]]
    assert graph.data.edge_index.tolist() == [[0, 1, 1, 4, 4, 6], [4, 4, 6, 0, 1, 1]]
    assert graph.data.node_type.tolist() == [0] * 4 + [1] * 3
    views = "user_id,item_id\nu3,i2\n"
    typed = load_graph(shop(views__csv=views), layout="single")
    assert typed.relations == ("interactions", "views")
    assert typed.data.reverse_offset == 2
    assert typed.data.edge_type.tolist() == [0, 0, 0, 1, 2, 2, 2, 3]


def test_ids_and_requests_by_type(shop) -> None:
    hetero, single = load_graph(shop()), load_graph(shop(), layout="single")
    bought = ("user", "interactions", "item")
    assert gd.Deletion(nodes={"item": ["7"]}, ids=hetero.ids).by_type["item"].nodes.tolist() == [2]
    assert gd.Deletion(nodes={"item": ["7"]}, ids=single.ids).nodes.tolist() == [6]
    assert gd.Deletion(nodes={"item": [7]}, ids=single.ids).nodes.tolist() == [
        6
    ]  # a name, though it looks like a number
    pair = gd.Deletion(edges={bought: [("u2", "7")]}, ids=hetero.ids)
    assert pair.by_type[bought].edges.tolist() == [[1], [2]]
    request = shop(r__csv="user_id,item_id,ts\nu2,7,5\n", n__csv="user_id\nu1\n", j__json='[{"item_id": 7}]')
    for graph in (hetero, single):
        whole = gd.datasets.NamedGraph if graph is None else graph
        assert gd.Deletion.from_csv(request / "r.csv", graph=whole) == gd.Deletion(
            edges={bought: [("u2", "7")]}, ids=graph.ids
        )
        assert gd.Deletion.from_csv(request / "n.csv", graph=whole) == gd.Deletion(
            nodes={"user": ["u1"]}, ids=graph.ids
        )
        assert gd.Deletion.from_csv(request / "j.json", graph=whole) == gd.Deletion(
            nodes={"item": ["7"]}, ids=graph.ids
        )
    remaining = gd.Deletion(nodes={"user": ["u2"]}, ids=hetero.ids).remaining(hetero.data)
    assert remaining[bought].edge_index.tolist() == [[0], [0]]
    assert remaining["item", "rev_interactions", "user"].edge_index.tolist() == [[0], [0]]


def test_names_that_two_types_share(shop) -> None:
    graph = load_graph(shop({**SHOP, "users.csv": SHOP["users.csv"] + "7,10,pro\n"}))
    with pytest.raises(gd.errors.DeletionError, match="several types have: write 'user:7', 'item:7'"):
        graph.ids.to_int(["7"])
    assert graph.ids.to_int(["item:7", "user:7"]).tolist() == [7, 4]


def test_a_description_in_a_file(shop) -> None:
    folder = shop(graph__toml=TOML)
    graph = load_graph(folder)
    assert graph.data.edge_types[0] == ("user", "bought", "item")
    assert graph.features["user"] == ("age",)
    assert load_graph(folder / "graph.toml").ids == graph.ids
    (folder / "graph.toml").rename(folder / "mine.toml")
    assert from_tables(folder, description=folder / "mine.toml").ids == graph.ids
    yaml = "nodes: {user: {table: users, key: user_id}}\nedges:\n  friends: {table: sales, source: user_id, target: item_id"
    yaml += ", target_type: item}\n"
    assert read_description(shop(a__yaml=yaml) / "a.yaml").types == ("user", "item")


def test_rows_in_the_order_of_the_model(shop) -> None:
    users = "user_id,row,age\nu1,2,30\nu2,0,40\nu3,1,50\n"
    text = TOML.replace('features = ["age"]', 'index = "row"')
    graph = load_graph(shop({**SHOP, "users.csv": users, "graph.toml": text}))
    assert graph.ids.of("user").names == ("u2", "u3", "u1")
    assert graph.data["user"].x.flatten().tolist() == [40, 50, 30]
    assert graph.data["user", "bought", "item"].edge_index.tolist() == [[2, 0, 0], [0, 0, 2]]
    with pytest.raises(GraphError, match=r"'row' of '.*users.csv' must hold each row of the model once, from 0 to 2"):
        load_graph(shop({**SHOP, "users.csv": users.replace("u1,2", "u1,3"), "graph.toml": text}))


def test_a_split_column_says_what_the_model_never_saw(shop) -> None:
    edges = "user_id,item_id,split\nu1,i1,train\nu2,i1,test\nu2,7,valid\nu1,i1,test\nu3,i2,\nu2,i1,valid\n"
    graph = load_graph(shop({**SHOP, "interactions.csv": edges}))
    kind = ("user", "interactions", "item")
    assert graph.data[kind].edge_index.tolist() == [[0, 2], [0, 1]]
    held = {part: sorted(zip(*pairs.tolist(), strict=True)) for part, pairs in graph.unseen[kind].items()}
    assert held == {"validation": [(1, 0), (1, 2)]}  # (1, 0) was asked for twice, and (0, 0) was trained on
    assert "not trained on, by the column split: 2 for validation" in graph.describe()
    masks = "user_id,label,split\nu1,a,train\nu2,b,test\nu3,a,validation\nu4,b,\n"
    nodes = load_graph(shop({**SHOP, "users.csv": masks})).data["user"]
    assert nodes.train_mask.tolist() == [True, False, False, True]
    assert (nodes.val_mask.tolist(), nodes.test_mask.tolist()) == (
        [False, False, True, False],
        [False, True, False, False],
    )
    with pytest.raises(
        GraphError, match=r"'split' of '.*interactions.csv' holds 'later'; write train, validation or test"
    ):
        load_graph(shop({**SHOP, "interactions.csv": edges.replace("valid", "later")}))


FOUND = {
    "edges alone": ({"follows.csv": "src,dst\na,b\n"}, ("node",), [("node", "follows", "node")]),
    "ids alone": ({"sales.csv": "user_id,item_id\na,b\n"}, ("user", "item"), [("user", "sales", "item")]),
    "a key of its own": (
        {**SHOP, "interactions.csv": "order_id,user_id,item_id\no1,u1,i1\no2,u2,i2\n"},
        ("user", "item"),
        [("user", "interactions", "item")],
    ),
    "a reference in a node table": (
        {"people.csv": "id,city_id\np1,c1\np2,c1\n", "cities.csv": "id,size\nc1,5\nc2,6\n"},
        ("people", "city"),
        [("people", "people_city", "city")],
    ),
    "by the ids": (
        {"users.csv": "user_id,age\na,1\nb,2\n", "friends.csv": "follower_id,followee_id\na,b\nb,a\n"},
        ("user",),
        [("user", "friends", "user")],
    ),
    "three ends": (
        {
            **SHOP,
            "stores.csv": "store_id,size\ns1,1\n",
            "interactions.csv": "user_id,item_id,store_id\nu1,i1,s1\nu1,i2,s1\n",
        },
        ("user", "item", "store"),
        [("user", "interactions_item", "item"), ("user", "interactions_store", "store")],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_tables_are_taken_for(shop, name: str) -> None:
    files, types, kinds = FOUND[name]
    found = find_description(Sources.at(shop(files)))
    assert found.types == types
    assert [each.kind for each in found.edges] == kinds
    load_graph(shop(files))


MISTAKES = {
    "no table": (TOML.replace('table = "users.csv"\n', ""), "has no 'table' in [nodes.user]; name the file or table"),
    "unknown option": (TOML.replace("key =", "keys ="), "an option 'keys'; did you mean 'key'?"),
    "unknown section": ("[node.user]\n" + TOML, "has a section 'node'; did you mean 'nodes'?"),
    "no edges": (TOML.partition("[edges")[0], "names no edges; add a section [edges.NAME]"),
    "no TOML": ("[nodes\n", "is not TOML"),
    "unknown table": (TOML.replace("users.csv", "user.csv"), "called 'user.csv'; did you mean 'users.csv'?"),
    "unknown key": (
        TOML.replace('key = "user_id"', 'key = "uid"'),
        'since it is no key (keys: uid of user, item_id of item); add source_type = "user"',
    ),
    "unknown source": (
        TOML.replace('source = "user_id"', 'source = "usr"\nsource_type = "user"'),
        "no column 'usr' (its columns: 'user_id', 'item_id', 'ts', 'rating'); correct 'source' in [edges.bought]",
    ),
    "whose": (
        TOML.replace('source = "user_id"', 'source = "usr"'),
        "which nodes the column 'usr' of [edges.bought] names, since it is no key",
    ),
    "a list": (
        TOML.replace('key = "user_id"', 'key = ["user_id"]'),
        "'key' in [nodes.user] is ['user_id']; give a name",
    ),
    "layout": (TOML.replace('"hetero"', '"hetro"'), "'layout' must be 'auto', 'hetero', 'single' (got 'hetro')"),
    "feature": (TOML.replace('["age"]', '["ages"]'), "has no column 'ages'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_description(shop, name: str) -> None:
    text, needle = MISTAKES[name]
    with pytest.raises((GraphError, SettingError)) as caught:
        load_graph(shop(graph__toml=text))
    assert needle in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tables_that_are_no_graph(shop, tmp_path: Path) -> None:
    with pytest.raises(GraphError) as caught:
        load_graph(shop({"prices.csv": "day,price\n2024-01-01,5\n2024-01-01,6\n"}))
    for needle in ("no table in", "'prices.csv' has day, price", '[edges.prices] table = "prices.csv"'):
        assert needle in str(caught.value)
    (tmp_path / "prices.csv").unlink()
    with pytest.raises(GraphError, match=r"1 id of '.*interactions.csv' is not in '.*users.csv': 'u9'.* \(line 2\)"):
        load_graph(shop({**SHOP, "interactions.csv": "user_id,item_id\nu9,i1\n"}))
    with pytest.raises(SettingError, match="source names columns of one table, and there are several"):
        load_graph(shop(), source="user_id")


def test_saved_and_loaded(shop, tmp_path: Path) -> None:
    graph = load_graph(shop())
    save_graph(graph, tmp_path / "saved")
    again = load_graph(tmp_path / "saved")
    assert (again.ids, again.features, again.tables, again.encodings) == (
        graph.ids,
        graph.features,
        graph.tables,
        graph.encodings,
    )
    for kind in graph.data.edge_types:
        assert torch.equal(again.data[kind].edge_index, graph.data[kind].edge_index)
    assert to_toml(again.tables) == to_toml(graph.tables)


@pytest.mark.parametrize("features", ["3", "[[1]]", "true", '[[["age"]]]'])
def test_features_are_names_of_columns(tmp_path, features):
    (tmp_path / "graph.toml").write_text(TOML.replace('["age"]', features))
    with pytest.raises(SettingError, match="list names of columns"):
        read_description(tmp_path / "graph.toml")
