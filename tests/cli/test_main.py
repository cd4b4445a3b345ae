"""The command line as a process: quick to start, clean on standard output, honest in its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli

VERBS = ("demo", "inspect", "train", "delete", "audit", "compare", "ls", "status", "close", "verify")


def _python(*arguments: str, cwd: Path | None = None, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    given = os.environ | {"PYTHONIOENCODING": encoding}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", cwd=cwd, timeout=120, env=given
    )


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
import gnndelete
from gnndelete.cli import run
codes = [run(arguments) for arguments in ([], ["--version"], *([verb, "--help"] for verb in {VERBS!r}))]
heavy = ("torch", "torch_geometric", "numpy", "scipy", "sklearn", "pydantic", "yaml", "matplotlib")
print([name for name in heavy if name in sys.modules], codes, file=sys.stderr)
"""
    done = _python("-c", code)
    assert done.stderr.strip().splitlines()[-1] == f"[] {[0] * (len(VERBS) + 2)}"
    for verb in VERBS:
        assert verb in done.stdout


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "ls"], ["bench", "run"], ["bench", "report"]])
def test_help_of_bench_imports_no_torch(arguments: list[str]) -> None:
    code = (
        "import sys; from gnndelete.cli import run; "
        f"code = run({[*arguments, '--help']!r}); sys.exit(code or 'torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert _python("-c", code).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["delete", "nowhere", "--node", "3"],
        ["audit", "nowhere"],
        ["compare", "nowhere", "--random", "3"],
        ["inspect", "nowhere"],
        ["inspect", "--set", "modle.hidden=3"],
        ["train", "--out", "run", "--set", "train.epoch=3"],
        ["bench", "run", "nowhere.yaml"],
        ["bench", "run", "nothing/such"],
    ],
)
def test_what_is_refused_by_its_settings_is_refused_before_torch_loads(arguments: list[str], tmp_path: Path) -> None:
    code = f"""
import sys
from gnndelete.cli import run
code = run({arguments!r})
sys.exit(code + 10 * ("torch" in sys.modules))
"""
    assert _python("-c", code, cwd=tmp_path).returncode == 2


def test_datasets_are_listed_without_torch() -> None:
    code = (
        "import sys; from gnndelete.cli import run; sys.exit(run(['ls', 'datasets']) + 10 * ('torch' in sys.modules))"
    )
    done = _python("-c", code)
    assert done.returncode == 0
    assert "wordnet18" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_json(cli: Cli, verb: str) -> None:
    shown = cli(verb, "--help")
    assert shown.code == 0
    assert "--json" in shown.out


def test_a_group_alone_shows_its_commands(cli: Cli) -> None:
    shown = cli("bench")
    assert shown.code == 0
    assert all(verb in shown.out for verb in ("ls", "run", "report"))


def test_module_and_noisy_code_keep_standard_output_pure(tmp_path: Path, graph_file: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "from gnndelete.models import GCN\n"
        "print('imported')\n"
        "def make(in_channels, hidden=4):\n"
        "    print('made')\n"
        "    return GCN(in_channels, hidden, 3)\n"
    )
    done = _python(
        "-m", "gnndelete", "inspect", "--graph", str(graph_file), "--model", "noisy.py:make", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "GCN"
    assert "made" in done.stderr


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    shown = _python("-m", "gnndelete", "delete", "Zoë", encoding="ascii", cwd=tmp_path)
    assert (shown.returncode, "error: 'Zo? is" in shown.stderr.replace("?'", "?")) == (2, True), shown.stderr
    answer = _python("-m", "gnndelete", "delete", "Zoë", "--json", encoding="ascii", cwd=tmp_path)
    assert "'Zoë'" in json.loads(answer.stdout)["error"]["message"]


def test_usage_errors_are_one_sentence(cli: Cli) -> None:
    for arguments in (
        ["nonsense"],
        ["delete"],
        ["train", "--nope"],
        ["ls", "everything"],
        ["train", "--epochs", "many"],
    ):
        plain = cli(*arguments)
        assert (plain.code, plain.out) == (2, "")
        assert plain.sentence.startswith("error: ")
        assert len(plain.sentence.splitlines()) == 1
        answer = cli(*arguments, "--json")
        assert answer.code == 2
        assert answer.values["error"]["exit_code"] == 2


def test_interrupt(cli: Cli, graph_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import gnndelete.methods  # what takes the name at import must not meet the replaced one
    import gnndelete.training.loop

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gnndelete.training.loop, "train", interrupted)
    stopped = cli("train", "--graph", graph_file, "--out", "run", "--json")
    assert stopped.code == 130
    assert "intact" in stopped.sentence
    assert stopped.values["error"]["kind"] == "Interrupted"
    assert not (tmp_path / "run").exists()


def test_an_unexpected_error_shows_where_it_came_from(cli: Cli, graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(1, 1)\n"
        "    def forward(self, x, edge_index):\n        raise ZeroDivisionError('mine')\n"
    )
    failed = cli("train", "--graph", graph_file, "--model", "broken.py:Net", "--out", "run", "--json")
    assert failed.code == 1
    assert "broken.py" in failed.err
    assert "mine" in failed.values["error"]["message"]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["delete", "audit", "compare", "status", "inspect", "verify"])
def test_help_names_both_verbs_that_write_runs(cli: Cli, verb: str) -> None:
    shown = " ".join(cli(verb, "--help").out.replace("│", " ").split())
    assert "run that 'train' or 'adopt' wrote" in shown
