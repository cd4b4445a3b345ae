"""``gnndelete service``, and what train, adopt, status and verify do with a service."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra [serve]")

import torch

from gnndelete.io.code import load_module
from gnndelete.service.access import Caller
from gnndelete.service.elements import Asked
from gnndelete.service.home import Home
from gnndelete.service.lifecycle import Order, Service
from gnndelete.service.logs import quiet
from gnndelete.service.worker import Worker
from tests.shop import ITEMS, USERS, write_shop

from .conftest import SMALL, Cli, opened

ADMIN = Caller("test", "default", "admin")


@pytest.fixture
def served(cli: Cli, link_run: Path, tmp_path: Path) -> Path:
    """The home of a service with the model of a run, in which one edge was suppressed."""
    home = tmp_path / "home"
    made = cli("service", "register", link_run, "--home", home, "--name", "shop", "--json")
    assert (made.code, made.values["local"]) == (0, True), made.err
    service = Service(Home(home))
    edge = opened(link_run)[1].data.edge_index[:, 0].tolist()
    service.receive(ADMIN, "shop", Order(Asked({"edges": [edge]})))
    Worker(service, log=quiet).once()
    assert service.requests(ADMIN)[0]["state"] == "suppressed"
    (tmp_path / "edge.json").write_text(json.dumps(edge))
    service.storage.close()
    return home


def test_a_run_is_registered_and_its_requests_verified(cli: Cli, served: Path, tmp_path: Path, link_run: Path) -> None:
    service = Service(Home(served))
    request = service.requests(ADMIN)[0]["id"]
    (tmp_path / "receipt.json").write_bytes(service.receipt(ADMIN, request))
    service.storage.close()
    found = cli("verify", "receipt.json", "--key", served / "keys" / "public.pem", "--replay", served, "--json")
    assert found.code == 0, found.out
    assert found.values["verified"]
    assert found.values["replay"]["identical"]
    assert "not that nobody kept a copy" in cli("verify", "receipt.json").out
    content = (tmp_path / "receipt.json").read_bytes()
    (tmp_path / "receipt.json").write_bytes(content.replace(b'"base"', b'"new"', 1))
    assert cli("verify", "receipt.json").code == 1
    assert cli("verify", served).code == 0
    assert cli("verify", served, "--replay", served).code == 2
    again = cli("service", "register", link_run, "--home", served, "--name", "shop")
    assert (again.code, "choose another name" in again.sentence) == (2, True)


def test_a_model_of_the_users_own_is_registered(cli: Cli, tmp_path: Path) -> None:
    write_shop(tmp_path / "shop")
    code = load_module("shop/recnet.py")
    torch.save(code.RecNet(USERS, ITEMS).state_dict(), "weights.pt")
    options = ("--model", "shop/recnet.py:RecNet", "--checkpoint", "weights.pt", "--fit", "shop/recnet.py:bpr")
    assert cli("adopt", "shop", *options, "--out", "run").code == 0
    made = cli("service", "register", "run", "--home", "home", "--name", "shop", "--json")
    assert made.code == 0, made.err
    assert cli("verify", "home").code == 0


def test_status_says_what_is_due(cli: Cli, served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("status", served).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "shop (tenant default)"
    assert "  live: version 1, base weights of generation 1, segments: 1" in lines
    assert "  requests: 1 suppressed" in lines
    assert "suppression: 0 late (past the promised time)" in lines
    assert "new weights: 1 on track, 0 due soon, 0 overdue" in lines
    values = cli("status", served, "--json").values
    assert values["models"][0]["aliases"]["live"] == 1
    assert (values["due_requests"]["overdue"], values["late_requests"]) == (0, 0)


def test_keys_are_made_listed_and_revoked(cli: Cli, served: Path) -> None:
    made = cli("service", "key", "add", "--role", "operator", "--home", served, "--json").values
    service = Service(Home(served))
    assert service.access.caller(made["key"]).role == "operator"
    name = made["key"].split("_")[1]
    assert made["key"] not in cli("service", "key", "ls", "--home", served).out
    assert cli("service", "key", "revoke", name, "--home", served).code == 0
    assert cli("service", "key", "revoke", name, "--home", served).code == 2
    assert cli("service", "key", "ls", "--home", served, "--json").values["keys"][0]["revoked"]
    assert cli("service", "key", "add", "--role", "boss", "--home", served).code == 2
    service.storage.close()


def test_deleted_edges_are_left_out_by_train_and_refused_by_adopt(
    cli: Cli, served: Path, link_run: Path, graph_file: Path, tmp_path: Path
) -> None:
    stones = cli("service", "tombstones", "stones.json", "--home", served, "--json")
    assert stones.values["tombstones"] == 1
    first, second = json.loads((tmp_path / "edge.json").read_text())
    for place in ("stones.json", served):
        out = tmp_path / f"run-{Path(place).name}"
        made = cli("train", "--graph", graph_file, "--out", out, "--tombstones", place, *SMALL, "--json")
        assert made.code == 0, made.err
        edges = opened(out)[1].data.edge_index.t().tolist()
        assert [first, second] not in edges
        assert [second, first] not in edges
        assert cli("status", out).code == 0
    weights = link_run / "base" / "model.safetensors"
    model = ("--model", "gcn", "--checkpoint", weights, "--set", "model.hidden=8", "--set", "model.out=4")
    refused = cli("adopt", graph_file, *model, "--out", "adopted", "--tombstones", "stones.json")
    assert refused.code == 2
    assert "1 edge that were deleted before" in refused.sentence
    assert cli("adopt", graph_file, *model, "--out", "adopted").code == 0


def test_backup_restore_rotation_and_gc(cli: Cli, served: Path) -> None:
    made = cli("service", "backup", "service.tar.gz", "--home", served, "--json").values
    assert (made["models"], made["requests"]) == (1, 1)
    back = cli("service", "restore", "service.tar.gz", "--home", "back", "--json")
    assert back.values["deleted_again"] == 0
    assert cli("verify", "back").code == 0
    assert cli("service", "rotate-keys", "--home", "back", "--json").values["requests"] == 1
    assert cli("service", "gc", "--home", "back", "--json").values["versions"] == 0
    assert cli("verify", "back").code == 0


def test_a_folder_without_a_service_is_said(cli: Cli) -> None:
    for line in (("worker",), ("service", "gc"), ("service", "backup", "x")):
        found = cli(*line, "--home", "nowhere")
        assert (found.code, "is no home of a service" in found.sentence) == (2, True)
    assert cli("serve").code == 2


def test_a_missing_extra_is_one_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "gnndelete.service.server", raising=False)
    monkeypatch.delattr("gnndelete.service.server", raising=False)  # else the package gives it without an import
    found = cli("serve", "--home", "home")
    assert (found.code, "pip install 'gnndelete[serve]'" in found.sentence) == (2, True)
