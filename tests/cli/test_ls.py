"""``gnndelete ls``: everything that can be named."""

from __future__ import annotations

import gnndelete as gd

from .conftest import Cli


def test_ls(cli: Cli) -> None:
    everything = cli("ls", "--json").values
    assert list(everything) == ["datasets", "models", "methods", "tasks"]
    assert [entry["name"] for entry in everything["datasets"]] == gd.datasets.names()
    counted = {entry["name"]: (entry["classes"], entry["relations"]) for entry in everything["datasets"]}
    assert (counted["wordnet18"], counted["dblp"]) == ((0, 18), (4, 0))
    assert {entry["name"] for entry in everything["methods"]} == set(gd.methods.resolver.lookup_dict)
    assert {entry["name"] for entry in everything["tasks"]} == {"link", "node", "graph", "ranking"}
    assert all(entry["description"] for kind in ("models", "methods", "tasks") for entry in everything[kind])
    assert list(cli("ls", "models", "--json").values) == ["models"]
    shown = cli("ls", "methods")
    assert "inference-only" in shown.out
    assert "digits" not in shown.out
