"""``gnndelete adopt``: a model trained elsewhere, on tables as they are; nothing is set aside unless files or columns say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import gnndelete as gd
from gnndelete.io.code import load_module
from tests.shop import ITEMS, USERS, write_pairs, write_shop

from .conftest import Cli, contents

Pairs = list[tuple[str, str]]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pairs]:
    """A shop, with weights of both models that were trained on all of its edges."""
    shop = tmp_path_factory.mktemp("made") / "shop"
    pairs = write_shop(shop)
    code = load_module(str(shop / "recnet.py"))
    for name, layout in (("RecNet", "single"), ("TypedNet", "hetero")):
        graph = gd.datasets.load_graph(shop, layout=layout)
        sizes = {"user": USERS, "item": ITEMS}
        torch.manual_seed(0)
        model = code.RecNet(USERS, ITEMS) if layout == "single" else code.TypedNet(sizes, graph.data.metadata())
        torch.save(code.bpr(model, graph.data, 0).state_dict(), shop / f"{name}.pt")
    return shop, pairs


@pytest.fixture
def shop(made: tuple[Path, Pairs], tmp_path: Path) -> tuple[Path, Pairs]:
    import shutil

    return Path(shutil.copytree(made[0], tmp_path / "shop")), made[1]


def take_over(cli: Cli, model: str = "RecNet", *more: object, out: str = "run"):  # type: ignore[no-untyped-def]
    options = (
        "--model",
        f"shop/recnet.py:{model}",
        "--checkpoint",
        f"shop/{model}.pt",
        "--out",
        out,
        "--device",
        "cpu",
    )
    return cli("adopt", "shop", *options, *more, "--json")


@pytest.mark.parametrize("model", ["RecNet", "TypedNet"])
def test_a_user_is_deleted_by_three_commands(cli: Cli, shop: tuple[Path, Pairs], model: str) -> None:
    adopted = take_over(cli, model, "--fit", "shop/recnet.py:bpr")
    assert adopted.code == 0, adopted.err
    assert adopted.values["task"] == "ranking"
    assert adopted.values["unseen"] == {"validation": 0, "test": 0}
    assert adopted.values["edges"] == 2 * len(shop[1])
    user = shop[1][0][0]
    done = cli("delete", "run", "--node", f"user:{user}", "--json")
    assert done.code == 0, done.err
    assert done.values["request"] == {"nodes": 1}
    found = cli("audit", "run", "--no-attacks", "--json")
    assert found.code == 0, found.err
    assert "by recnet.py:bpr" in found.err
    assert not any(each["code"] == "trained-by-another-loss" for each in found.values["verdict"]["warnings"])
    assert cli("verify", "run").code == 0


def test_nothing_is_set_aside_and_every_result_says_so(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    shown = cli("adopt", "shop", "--model", "shop/recnet.py:RecNet", "--checkpoint", "shop/RecNet.pt", "--out", "run")
    assert "nothing is known to be unseen by the model for validation and test" in shown.out
    assert "--validation FILE and --test FILE" in shown.out
    request = write_pairs(Path("request.csv"), shop[1][:40])
    done = cli("delete", "run", "--edges", request, "--json")
    assert done.code == 0, done.err  # no edge is refused as never learned
    assert done.values["calibration"]["status"] == "fallback"
    assert "gnndelete adopt --validation FILE" in done.values["calibration"]["sentence"]
    assert "LinkPrediction(" not in done.out
    planned = cli("delete", "run", "--node", f"user:{shop[1][-1][0]}", "--dry-run").out.replace("\n", " ")
    assert "Together with 1 earlier request: " in planned
    assert "How strongly (lam) cannot be calibrated, so a fixed lam is taken: no validation edges are known" in planned
    assert "when it runs" not in planned
    found = cli("audit", "run", "--no-attacks", "--set", "train.epochs=5", "--json")
    assert found.values["verdict"]["code"] == "undecided"
    assert "gnndelete adopt" in found.values["forgetting"]["reason"]
    assert "gnndelete adopt --validation FILE --test FILE" in found.values["utility"]["reason"]
    [warning] = [each for each in found.values["verdict"]["warnings"] if each["code"] == "trained-by-another-loss"]
    assert "--fit" in warning["text"]


@pytest.mark.parametrize("model", ["RecNet", "TypedNet"])
@pytest.mark.parametrize("by", ["files", "column"])
def test_what_is_named_as_unseen_is_taken_out_of_the_graph(
    cli: Cli, shop: tuple[Path, Pairs], model: str, by: str
) -> None:
    folder, pairs = shop
    validation, test, rest = pairs[:30], pairs[30:60], pairs[60:]
    options: tuple[object, ...] = ()
    if by == "files":
        files = [write_pairs(Path(f"{name}.csv"), part) for name, part in (("val", validation), ("test", test))]
        options = ("--validation", files[0], "--test", files[1])
    else:
        parts = {**dict.fromkeys(validation, "val"), **dict.fromkeys(test, "test")}
        lines = [f"{user},{item},{parts.get((user, item), '')}" for user, item in pairs]
        (folder / "interactions.csv").write_text("\n".join(["user_id,item_id,split", *lines, ""]))
    adopted = take_over(cli, model, *options)
    assert adopted.code == 0, adopted.err
    assert adopted.values["unseen"] == {"validation": 30, "test": 30}
    assert adopted.values["unseen_by"] == {"files": "files", "column": "graph"}[by]
    assert adopted.values["edges"] == 2 * len(rest)
    refused = cli("delete", "run", "--edges", write_pairs(Path("held.csv"), [validation[0], rest[0]]))
    assert refused.code == 2
    assert validation[0][0] in refused.sentence
    done = cli("delete", "run", "--edges", write_pairs(Path("request.csv"), rest[:60]), "--json")
    assert done.code == 0, done.err
    assert "are known that the model was not trained on" not in done.values["calibration"]["sentence"]
    assert "ndcg@10" in {name.removeprefix("test_") for name in done.values["after"]}


def test_describe_prints_what_was_understood(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    shown = cli("adopt", "shop", "--describe")
    assert shown.code == 0
    assert "[edges.interactions]" in shown.out
    assert "# ts: not used (a time)" in shown.out
    Path("shop.toml").write_text(shown.out.replace("[edges.interactions]", "[edges.bought]"))
    again = take_over(cli, "RecNet", "--description", "shop.toml")
    assert again.code == 0, again.err
    assert "bought" in (Path("run/base/tables.json")).read_text()


def test_files_that_come_into_the_folder_are_no_tables_of_the_run(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    assert take_over(cli).code == 0
    request = write_pairs(Path("shop/requests.csv"), shop[1][:3])
    done = cli("delete", "run", "--edges", request, "--json")
    assert done.code == 0, done.err
    encodings = json.loads(Path("run/base/tables.json").read_text())["encodings"]
    [country] = [each for each in encodings["nodes.user"] if each["column"] == "country"]
    assert country["values"] == ["de", "fr", "it"]


def test_weights_come_in_several_forms(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    state = torch.load("shop/RecNet.pt")
    save_file(state, "plain.safetensors")
    torch.save({"state_dict": {f"model.{name}": value for name, value in state.items()}, "epoch": 3}, "lightning.ckpt")
    reference = None
    for name in ("shop/RecNet.pt", "plain.safetensors", "lightning.ckpt"):
        options = ("--model", "shop/recnet.py:RecNet", "--checkpoint", name, "--out", f"run-{Path(name).stem}")
        assert cli("adopt", "shop", *options).code == 0
        weights = Path(f"run-{Path(name).stem}/base/model.safetensors").read_bytes()
        reference = weights if reference is None else reference
        assert weights == reference


def test_epochs_0_points_to_adopt(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    refused = cli(
        "train",
        "--graph",
        "shop",
        "--model",
        "shop/recnet.py:RecNet",
        "--checkpoint",
        "shop/RecNet.pt",
        "--epochs",
        0,
        "--out",
        "run",
    )
    assert refused.code == 2
    assert "gnndelete adopt" in refused.sentence
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "run"), "--model, --checkpoint are missing"),
        (("--model", "shop/recnet.py:RecNet", "--out", "run"), "--checkpoint is missing; add --checkpoint weights.pt"),
        (("--fit", "shop/recnet.py:short"), "function(model, data, seed)"),
        (("--fit", "shop/recnet.py:missing"), "is not in it"),
        (("--fit", "shop/recnet.py:number"), "is no function"),
        (("--fit", "recnet"), "names no function"),
        (("--predict", "bought"), "there is one kind"),
        (("--validation", "none.csv"), "the validation file 'none.csv' cannot be read"),
        (("--validation", "wrong.csv"), "'u-x'"),
        (("--validation", "users.csv"), "and the model predicts edges"),
        (("--validation", "pairs.csv", "--test", "pairs.csv"), "in the files of --validation and of --test"),
        (("--validation", "all.csv"), "name fewer"),
        (("--layout", "square"), "'data.layout'"),
        (("--task", "rank"), "'task.name'"),
    ],
)
def test_errors_are_sentences_in_the_words_of_the_user(
    cli: Cli, shop: tuple[Path, Pairs], arguments: tuple[str, ...], said: str
) -> None:
    write_pairs(Path("wrong.csv"), [("u-x", "i-1")])
    write_pairs(Path("pairs.csv"), shop[1][:3])
    write_pairs(Path("all.csv"), shop[1])
    Path("users.csv").write_text("user_id\nu-100\n")
    complete = ("--model", "shop/recnet.py:RecNet", "--checkpoint", "shop/RecNet.pt", "--out", "run")
    refused = cli("adopt", "shop", *arguments, *(complete if "--out" not in arguments else ()))
    assert refused.code == 2, refused.out
    assert said in refused.sentence
    assert not Path("run").exists()


def test_a_run_that_was_adopted_can_be_looked_at(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    assert take_over(cli, "TypedNet").code == 0
    before = contents(Path("run"))
    assert cli("inspect", "run", "--json").values["methods"]["gnndelete"]["fits"]
    assert cli("status", "run", "--json").values["versions"][0]["kind"] == "adopt"
    compared = cli(
        "compare", "run", "--random", 20, "--seeds", 1, "--methods", "unlink", "--set", "train.epochs=2", "--json"
    )
    assert compared.code == 0, compared.err
    assert before.items() <= contents(Path("run")).items()


def edited(name: str, change) -> None:  # type: ignore[no-untyped-def]
    """Change the lines of a table of the shop."""
    path = Path("shop") / name
    path.write_text("\n".join(change(path.read_text().split("\n"))))


BROKEN = """
import torch


class Raises(torch.nn.Module):
    def __init__(self, num_users):
        raise KeyError("x")


def fails(model, data, seed):
    return data.nothing
"""

TABLES = {
    "a repeated id": ("users.csv", lambda rows: [*rows[:-1], rows[1], ""], "'u-100' is in an earlier row too"),
    "an empty id": ("users.csv", lambda rows: [*rows[:3], ",de,20", *rows[4:]], "line 4 ('user_id' is empty)"),
    "an empty end": ("interactions.csv", lambda rows: [rows[0], "u-100,,1", *rows[2:]], "line 2 ('item_id' is empty)"),
    "an unknown end": (
        "interactions.csv",
        lambda rows: [rows[0], "u-1x,i-1,1", *rows[2:]],
        "1 id of 'shop/interactions.csv'",
    ),
    "a short row": ("items.csv", lambda rows: [rows[0], "i-0,Thing", *rows[2:]], "line 2 (2 cells instead of 4"),
    "semicolons": ("interactions.csv", lambda rows: [row.replace(",", ";") for row in rows], "are separated by ';'"),
    "a repeated column": ("users.csv", lambda rows: ["user_id,age,age", *rows[1:]], "several columns named 'age'"),
    "an unknown part": (
        "interactions.csv",
        lambda rows: [f"{row},{'split' if not at else 'kept'}" if row else row for at, row in enumerate(rows)],
        "the column 'split' of 'shop/interactions.csv' holds 'kept'; write train, validation or test",
    ),
    "no rows": ("interactions.csv", lambda rows: rows[:1], "holds a header and no rows"),
    "nothing": ("interactions.csv", lambda rows: [""], "'shop/interactions.csv' is empty"),
}


@pytest.mark.parametrize("name", TABLES)
def test_errors_of_tables_name_the_file_and_the_line(cli: Cli, shop: tuple[Path, Pairs], name: str) -> None:
    table, change, said = TABLES[name]
    edited(table, change)
    refused = take_over(cli)
    assert refused.code == 2, refused.out
    assert said in refused.sentence
    assert str(Path.cwd()) not in refused.sentence
    assert not Path("run").exists()


def test_a_table_in_another_encoding_is_not_left_out_in_silence(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    path = Path("shop/items.csv")
    path.write_bytes(path.read_bytes().replace(b"Thing", b"Th\xefng"))
    assert "(not in UTF-8)" in take_over(cli).sentence


def test_tables_that_are_not_used_are_named(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    Path("shop/notes.csv").write_text("remark,number\ngood,0.5\n")
    assert take_over(cli).values["unused_tables"] == ["notes.csv"]
    assert "neither nodes nor edges: notes.csv" in cli("adopt", "shop", "--describe").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "shop/broken.py:Raises"), "cannot be made (broken.py, line 7: KeyError: 'x'); correct it"),
        (("--checkpoint", "larger.pt"), f"'user.weight' is {USERS + 1} × 8 there and {USERS} × 8 in the model"),
        (("--layout", "hetero"), "does not run on the graph"),
        (
            ("--validation", "renamed.csv"),
            "neither a header that is known nor a row of ids; name the columns user_id,item_id",
        ),
    ],
)
def test_errors_of_own_code_and_files_are_one_sentence(
    cli: Cli, shop: tuple[Path, Pairs], arguments: tuple[str, ...], said: str
) -> None:
    Path("shop/broken.py").write_text(BROKEN)
    code = load_module(str(Path("shop/recnet.py").resolve()))
    torch.save(code.RecNet(USERS + 1, ITEMS).state_dict(), "larger.pt")
    Path("renamed.csv").write_text("customer,product\nu-100,i-1\n")
    given = {"--model": "shop/recnet.py:RecNet", "--checkpoint": "shop/RecNet.pt", "--out": "run"}
    given |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    refused = cli("adopt", "shop", *(part for pair in given.items() for part in pair))
    assert refused.code == 2, refused.err
    assert "Traceback" not in refused.err
    assert said in refused.sentence


def test_a_training_of_ones_own_that_fails_names_its_line(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    Path("shop/broken.py").write_text(BROKEN)
    assert take_over(cli, "RecNet", "--fit", "shop/broken.py:fails").code == 0
    assert cli("delete", "run", "--node", "u-103").code == 0
    failed = cli("audit", "run", "--no-attacks")
    assert "Traceback" not in failed.err
    assert "--fit 'shop/broken.py:fails' failed (broken.py, line 11: AttributeError" in failed.err


def test_weights_that_do_not_know_the_graph_are_doubted(cli: Cli, shop: tuple[Path, Pairs]) -> None:
    known = take_over(cli)
    assert known.values["fits"]["auroc"] > 0.7
    code = load_module(str(Path("shop/recnet.py").resolve()))
    torch.manual_seed(0)
    model = code.RecNet(USERS, ITEMS)
    torch.save(model.state_dict(), "shop/RecNet.pt")
    complete = ("--model", "shop/recnet.py:RecNet", "--checkpoint", "shop/RecNet.pt", "--out", "other")
    assert "hardly knows the graph" in cli("adopt", "shop", *complete).out
