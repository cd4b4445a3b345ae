"""Faults and hostile folders: kills, two writers, signals, a closed standard output, planted code and paths.

``GNNDELETE_FUZZ=20`` makes the drawn parts twenty times as large (``make fuzz``).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from gnndelete.cli import run
from gnndelete.cli.run_folder import open_run
from gnndelete.datasets import load_graph
from gnndelete.graph.fingerprint import fingerprint

from .conftest import Cli, contents, latest, make_graph

FUZZ = int(os.environ.get("GNNDELETE_FUZZ", "1"))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork to kill a child of")


def requests(folder: Path) -> list[list[int]]:
    """The nodes of all requests in force; nothing else was asked for."""
    found = open_run(folder)
    found.check(*range(len(found.chain)))
    if not found.latest.requests:
        return []
    state = json.loads((found.folder() / "state.json").read_text())
    assert len(state["requests"]) == found.latest.requests
    return [request["nodes"] for request in state["requests"]]


def _killed_at(event: int, arguments: list[str]) -> int:
    """A command in a child that dies at the n-th operation on a file below its run; its exit code."""
    child = os.fork()
    if child == 0:
        left, below = event, arguments[1]

        def count(name: str, values: tuple[object, ...]) -> None:
            nonlocal left
            counted = name in ("os.rename", "os.remove", "os.mkdir", "os.chmod", "open", "os.rmdir")
            left -= counted and str(values[0]).startswith(below)
            if left == 0:
                left -= 1  # the kill is an event itself
                os.kill(os.getpid(), signal.SIGKILL)

        code = 70
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.addaudithook(count)
            code = run(arguments)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("start", range(2))
def test_a_kill_at_any_operation_loses_doubles_and_halves_nothing(link_run: Path, tmp_path: Path, start: int) -> None:
    assert run(["delete", str(link_run), "--node", "4", "--lam", "0.2"]) == 0
    seen = set()
    for event in range(1 + start, 400, 2 if FUZZ > 1 else 6):
        folder = Path(shutil.copytree(link_run, tmp_path / f"run{event}"))
        arguments = ["delete", str(folder), "--node", "17", "--lam", "0.2", "--request-id", "r"]
        code = _killed_at(event, arguments)
        folder = folder.rename(tmp_path / f"moved{event}")
        after = requests(folder)
        assert after in ([[4]], [[4], [17]])
        seen.add(len(after))
        arguments[1] = str(folder)
        assert run(arguments) == 0  # the same request again: served now, or its outcome
        assert requests(folder) == [[4], [17]]
        assert run(["verify", str(folder)]) == 0
        assert not list(folder.rglob(".w*"))
        if code == 0:
            break
    else:
        raise AssertionError("it never ended by itself")
    assert seen == {1, 2}


def test_two_to_eight_writers_at_once(link_run: Path, tmp_path: Path) -> None:
    for trial in range(2 * FUZZ):
        folder = Path(shutil.copytree(link_run, tmp_path / f"run{trial}"))
        nodes = range(3, 3 + (2, 8)[trial % 2])
        children = {}
        for node in nodes:
            child = os.fork()
            if child == 0:
                code = 70
                try:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                    code = run(["delete", str(folder), "--node", str(node), "--lam", "0.2"])
                finally:
                    os._exit(code)
            children[child] = node
        codes = {node: os.waitpid(child, 0)[1] for child, node in children.items()}
        assert set(codes.values()) == {0}
        assert sorted(requests(folder)) == [[node] for node in nodes]
        assert run(["verify", str(folder)]) == 0


def _process(folder: Path, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gnndelete", "delete", str(folder), "--lam", "0.2", *arguments]
    return subprocess.Popen(command, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("where", ["closed", "full", "pipe"])
def test_what_was_applied_is_a_success_whatever_happens_to_standard_output(link_run: Path, where: str) -> None:
    if where == "full" and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    if where == "closed":
        done = subprocess.run(["sh", "-c", f"{sys.executable} -m gnndelete delete {link_run} --node 4 --json >&-"])
        assert done.returncode == 0
    elif where == "full":
        with open("/dev/full", "w") as full:
            process = _process(link_run, "--node", "4", "--json", stdout=full, stderr=subprocess.PIPE)
            said = process.communicate()[1].decode()
        assert (process.returncode, "the request was applied" in said, "Traceback" in said) == (0, True, False)
    else:
        process = _process(link_run, "--node", "4", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
        assert (process.wait(), "Traceback" in said) == (0, False)
    assert requests(link_run) == [[4]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_is_answered_truthfully(link_run: Path, number: signal.Signals) -> None:
    draw, codes = random.Random(number), []
    for node in range(3, 3 + max(2, FUZZ)):
        before = requests(link_run)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = _process(link_run, "--node", str(node), "--json", **pipes)
        time.sleep(draw.uniform(2, 6))
        process.send_signal(number)
        out, err = process.communicate()
        codes.append(process.returncode)
        applied = requests(link_run) == [*before, [node]]
        if process.returncode == 0:
            assert applied
            assert json.loads(out)["applied"]
        elif out:  # else it was stopped before the command line was read
            assert not applied
            error = json.loads(out)["error"]
            assert (error["exit_code"], error["applied"], process.returncode) == (128 + number, False, 128 + number)
            assert b"Traceback" not in err
        else:
            assert not applied
    assert run(["verify", str(link_run)]) == 0


def test_an_interrupt_after_the_request_was_applied_is_held(
    cli: Cli, link_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def renamed(self: Path, target: Path) -> Path:
        result = rename(self, target)
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        return result

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(Path, "rename", renamed)
    done = cli("delete", link_run, "--node", 4, "--json")
    monkeypatch.undo()
    assert (done.code, done.values["applied"]) == (0, True), done.err
    assert {number: signal.getsignal(number) for number in before} == before
    assert requests(link_run) == [[4]]


def test_a_request_that_was_served_is_answered_from_its_record(cli: Cli, link_run: Path) -> None:
    first = cli("delete", link_run, "--node", 4, "--lam", 0.2, "--request-id", "r1", "--json")
    assert cli("delete", link_run, "--node", 17, "--lam", 0.2).code == 0
    before = contents(link_run)
    again = cli("delete", link_run, "--node", 4, "--lam", 0.2, "--request-id", "r1", "--json")
    assert (again.code, again.values["repeated"], again.values["version"]) == (0, True, 1)
    same = set(first.values) - {"remaining_graph"}
    assert {name: again.values[name] for name in same} == {name: first.values[name] for name in same}
    assert "was served before, as version 1; nothing was done" in again.err
    assert contents(link_run) == before


def test_the_id_of_another_request_is_refused(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("node\n4\n")
    named = ("delete", link_run, "--lam", 0.2, "--request-id", "r1")
    assert cli(*named, "--nodes", "a.csv").code == 0
    (tmp_path / "a.csv").rename(tmp_path / "moved.csv")
    assert cli(*named, "--nodes", "moved.csv").code == 0
    assert cli(*named).code == 0  # the id alone asks for the outcome
    (tmp_path / "moved.csv").write_text("node\n9\n")
    for other in (("--nodes", "moved.csv"), ("--node", 9), ("--node", 4, "--edge", "1,2")):
        refused = cli(*named, *other)
        assert (refused.code, "was given to another request" in refused.sentence) == (2, True)
    assert requests(link_run) == [[4]]
    assert cli("close", link_run).code == 0
    assert cli(*named, "--node", 9).code == 0  # nothing is left to compare with


def test_a_repeated_request_writes_its_copies(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    request = ("delete", link_run, "--node", 4, "--lam", 0.2, "--request-id", "r1", "--json")
    copies = ("--out", "served", "--save-graph", "left")
    assert cli(*request).code == 0
    for folder, moved, mark in (("served", "README.md", "result.json"), ("left", "graph.pt", "remaining.json")):
        (tmp_path / folder / ".writing-1-x").mkdir(parents=True)  # as a kill leaves it
        (tmp_path / folder / ".writing-1-x" / mark).touch()
        (tmp_path / folder / moved).write_bytes(b"of before")
    before = contents(link_run)
    assert cli(*request, *copies, "--dry-run").code == 0
    assert [path.name for path in (tmp_path / "served").glob("[!.]*")] == ["README.md"]
    again = cli(*request, *copies)
    assert (again.code, again.values["repeated"], again.values["out"]) == (0, True, "served")
    assert again.values["remaining_graph"] == "left"
    served = contents(latest(link_run))
    del served["state.json"]
    assert contents(tmp_path / "served") == served
    assert contents(link_run) == before
    graph = load_graph(tmp_path / "left").data
    assert fingerprint(graph) == open_run(link_run).latest.remaining
    assert not list((tmp_path / "left").glob(".*"))


def test_a_request_that_was_dropped_is_served_again(cli: Cli, link_run: Path) -> None:
    named = ("delete", link_run, "--node", 4, "--lam", 0.2, "--request-id", "r1", "--json")
    assert cli(*named).code == 0
    assert cli("delete", link_run, "--node", 17, "--lam", 0.2, "--fresh").code == 0
    again = cli(*named)
    assert (again.code, "repeated" in again.values) == (0, False)
    assert sorted(requests(link_run)) == [[4], [17]]


def test_the_result_of_another_run_is_not_overwritten(
    cli: Cli, trained: Path, trained_nodes: Path, tmp_path: Path
) -> None:
    runs = [Path(shutil.copytree(each, tmp_path / name)) for each, name in ((trained, "a"), (trained_nodes, "b"))]
    assert cli("delete", runs[0], "--node", 4, "--lam", 0.2, "--out", "served").code == 0
    before = contents(tmp_path / "served")
    refused = cli("delete", runs[1], "--node", 4, "--lam", 0.2, "--out", "served")
    assert (refused.code, "holds the result of another run" in refused.sentence) == (2, True)
    assert contents(tmp_path / "served") == before
    assert cli("delete", runs[0], "--node", 9, "--lam", 0.2, "--out", "served").code == 0


# Run folders from elsewhere.


def _edit(folder: Path, **edits: object) -> None:
    """Edit the settings of a run and make its manifests fit, as whoever plants them would."""
    from gnndelete.io.versions import Manifest, _sha256

    file = folder / "base/settings.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **edits}))
    manifest = Manifest.read(folder / "base")
    files = {**manifest.files, "settings.yaml": _sha256(file.read_bytes())}
    manifest = manifest.model_copy(update={"files": files})
    (folder / "base/manifest.json").write_bytes(manifest.to_bytes())
    (folder / "current").write_text(json.dumps({"version": 0, "digest": manifest.digest}))


VERBS = (["inspect"], ["delete", "--node", "4", "--dry-run"], ["delete", "--node", "4"], ["compare", "--node", "4"])


@pytest.fixture
def untouched(tmp_path: Path) -> Iterator[Path]:
    """A folder outside every run, in which nothing may change."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    yield outside
    assert contents(outside) == {"file": b"mine"}


@pytest.mark.parametrize("name", ["os:system", "evil.py:Net", "evil:Net"])
def test_a_planted_model_is_not_run(
    cli: Cli, link_run: Path, untouched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    code = f"import pathlib\npathlib.Path({str(untouched / 'ran')!r}).touch()\nNet = None\n"
    (tmp_path / "evil.py").write_text(code)
    (link_run / "evil.py").write_text(code)
    planted = str(link_run / name) if ".py" in name else name
    _edit(link_run, model={"name": planted, "command": f"touch {untouched / 'ran'}"})
    (link_run / "evil.py").rename(tmp_path / "other.py")
    for verb in VERBS:
        refused = cli(verb[0], link_run, *verb[1:])
        said = "not trusted" in refused.sentence or "is not there" in refused.sentence
        assert (refused.code, said) == (2, True), refused.err


def test_a_model_is_trusted_once_and_until_it_changes(
    cli: Cli, graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from gnndelete.models import GCN\ndef make(in_channels):\n    return GCN(in_channels, 8, 3)\n"
    (tmp_path / "net.py").write_text(code)
    train = ("train", "--graph", graph_file, "--model", "net.py:make", "--task", "node", "--epochs", 2, "--out", "run")
    assert cli(*train).code == 0
    assert cli("inspect", "run").code == 0  # whoever trained it named it
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    refused = cli("inspect", "run")
    assert (refused.code, "then give --trust once" in refused.sentence) == (2, True)
    assert cli("inspect", "run", "--trust").code == 0
    assert cli("delete", "run", "--node", 3).code == 0
    (tmp_path / "net.py").write_text(f"{code}\n# changed\n")
    assert "moved or changed" in cli("audit", "run").sentence
    assert cli("inspect", "run", "--model", "net.py:make").code == 0  # named on the command line
    assert cli("inspect", "run").code == 0
    (tmp_path / "moved").mkdir()
    (tmp_path / "net.py").rename(tmp_path / "moved/net.py")
    assert cli("inspect", "run", "--model", "moved/net.py:make").code == 0


def test_settings_of_a_run_ask_for_nothing(cli: Cli, link_run: Path) -> None:
    _edit(link_run, deletion={"nodes": [7]})
    refused = cli("delete", link_run)
    assert (refused.code, "holds more than train wrote" in refused.sentence) == (2, True)


@pytest.mark.parametrize("where", ["versions", "audit", "lock", "current", "base/x", "versions/.writing", "comparison"])
def test_links_in_a_run_are_refused(cli: Cli, link_run: Path, untouched: Path, where: str) -> None:
    target = link_run / where
    target.unlink(missing_ok=True)
    target.parent.mkdir(exist_ok=True)
    target.symlink_to(untouched / "file" if where in ("lock", "current", "base/x") else untouched)
    for verb in (*VERBS, ["audit"], ["status"], ["close"]):
        refused = cli(verb[0], link_run, *verb[1:])
        assert (refused.code, "is a link" in refused.sentence) == (2, True), refused.err
    assert cli("verify", link_run).code == 1


@pytest.mark.parametrize(
    "planted", [b"\xff\xfe", b"[" * 100_000, b"{}", b"null", b'{"a": 1e999}', b"[1]", b"9" * 10_000]
)
@pytest.mark.parametrize("where", ["current", "base/manifest.json", "base/settings.yaml"])
def test_planted_content_is_refused_in_one_sentence(cli: Cli, link_run: Path, where: str, planted: bytes) -> None:
    (link_run / where).write_bytes(planted)
    for verb in VERBS:
        refused = cli(verb[0], link_run, *verb[1:])
        assert refused.code == 2
        assert len(refused.sentence.splitlines()) == 1
        assert len(refused.sentence) < 700


# Bad command lines.


def test_bad_command_lines_end_in_one_bounded_sentence(cli: Cli, link_run: Path, tmp_path: Path) -> None:
    deep, long = "[" * 3000, "x" * 20_000
    files = {
        "deep.yaml": deep,
        "nested.yaml": "{a: " * 2000,
        "digits.yaml": f"train: {{seed: {'9' * 5000}}}",
        "bomb.yaml": "a0: &a0 [x, x]\n"
        + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
        "nul.yaml": "train: \0",
        "long.yaml": f"{{{long}: 1}}",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    before = contents(link_run)
    cases = [
        *(("-c", name, "--node", 3) for name in files),
        ("--random", "inf"), ("--random", "nan"), ("--random", "-1"), ("--random", "1e300"),
        ("--set", f"train.seed={'9' * 5000}", "--node", 3), ("--set", f"a={deep}"), ("--set", long), ("--set", f"{long}=1"),
        ("--edge", "a,b\nc,d"), ("--edge", "\x1b[31m,1"), ("--node", long), ("--node", '"' * 25_000), ("--relation", long),
        ("--request-id", long, "--node", 3), ("--request-id", "a\nb", "--node", 3), ("--method", long, "--node", 3),
        ("--out", "/proc/x", "--node", 3), ("--out", "x" * 300, "--node", 3), ("--save-graph", "/dev/null", "--node", 3),
        ("--edges", "/dev/null"), ("--edges", tmp_path),
    ]  # fmt: skip
    for case in cases:
        refused = cli("delete", link_run, *case, "--json")
        assert refused.code in (1, 2), case
        assert len(refused.sentence.splitlines()) == 1, case
        assert len(refused.err) < 6000, case
        assert refused.values["error"]["applied"] is False
    assert contents(link_run) == before


def test_relations_and_files_are_not_written_down(cli: Cli, tmp_path: Path) -> None:
    graph = make_graph()
    graph.edge_type = torch.arange(graph.edge_index.size(1)) % 3
    torch.save(graph, tmp_path / "typed.pt")
    small = ("--task", "node", "--model", "rgcn", "--epochs", 2, "--out", "run")
    assert cli("train", "--graph", "typed.pt", *small).code == 0
    (tmp_path / "jane doe.csv").write_text("node\n3\n")
    request = ("--relation", "2", "--nodes", "jane doe.csv", "--method", "unlink")
    assert cli("delete", "run", *request).code == 0
    text = (latest(Path("run")) / "settings.yaml").read_text()
    assert "jane" not in text
    assert "relations" not in yaml.safe_load(text)["deletion"]
