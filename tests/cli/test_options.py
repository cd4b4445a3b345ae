"""How command lines are read: flags are shown as such, and errors name the value and the way out."""

from __future__ import annotations

import pytest

from .conftest import Cli

_VERBS = ("demo", "inspect", "train", "delete", "audit", "compare", "ls", "status", "close", "verify")
_COMMANDS = ([], *([verb] for verb in _VERBS), ["bench"], *(["bench", verb] for verb in ("ls", "run", "report")))


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
def test_flags_are_shown_as_flags(cli: Cli, command: list[str]) -> None:
    done = cli(*command, "--help")
    assert done.code == 0
    assert "--help  " in done.out
    assert "bool" not in done.out.lower()


def test_options_with_a_value_are_still_shown_with_it(cli: Cli) -> None:
    shown = [line.split() for line in cli("delete", "--help").out.splitlines()]
    assert any(words[1:3] == ["--random", "<float>"] or words[1:3] == ["--random", "FLOAT"] for words in shown)
    assert any(words[1:3] == ["--dry-run", "Check"] for words in shown)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("delete runs/a --random abc", "'--random'…'abc'"),
        ("train --out a --epochs 1.5", "'--epochs'…'1.5'"),
        ("delete runs/a --graph 3 --graph x", "'--graph'…'x'"),
        ("bench run x --jobs 0", "'--jobs'…'0'"),
        ("bench report --figures gif", "'--figures': 'gif' is not one of 'svg', 'png'"),
        (
            "foo",
            "there is no command 'foo'; choose from demo, inspect, train, adopt, delete, audit, compare, ls, status, close, "
            "export, verify",
        ),
        ("trian", "there is no command 'trian'; did you mean 'train'?"),
        ("bench foo", "there is no command 'foo'; choose from ls, run, report"),
        (
            "train",
            "Missing option '--out'. For example: gnndelete train --dataset digits --model gcn --task link --out runs/a",
        ),
        ("delete", "Missing argument 'RUN'. For example: gnndelete delete runs/a --edges requests.csv"),
        ("bench run", "For example: gnndelete bench run paper/link-dblp"),
    ],
)
def test_errors_name_the_value_and_the_way_out(cli: Cli, command: str, said: str) -> None:
    done = cli(*command.split())
    assert done.code == 2
    assert all(part in done.err for part in said.split("…"))  # between them stand words of the parser
