"""Settings files: what is refused, in one short sentence."""

from __future__ import annotations

import time

import pytest

from gnndelete.errors import SettingError
from gnndelete.io.yaml import MAX_BYTES, read_toml, read_yaml

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k + 1}: &a{k + 1} [{', '.join(f'*a{k}' for _ in range(9))}]\n" for k in range(9)
)
REFUSED = {
    "an alias bomb": (BOMB, "alias"),
    "deep lists": ("[" * 3000, "levels deep"),
    "deep mappings": ("{a: " * 2000, "levels deep"),
    "a long number": ("train: {seed: " + "9" * 5000 + "}", "not YAML"),
    "a zero byte": ("a: \0", "not YAML"),
    "a list": ("[1, 2]", "'list'"),
    "twice": ("a: 1\na: 2", "given twice"),
    "length": ("a: " + "x" * MAX_BYTES, "longer than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    content, needle = REFUSED[name]
    (tmp_path / "run.yaml").write_text(content)
    start = time.perf_counter()
    with pytest.raises(SettingError, match=needle) as caught:
        read_yaml(tmp_path / "run.yaml")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert time.perf_counter() - start < 5


BAD_TOML = {
    "deep lists": ("a = " + "[" * 100_000, "nested too deeply"),
    "deep tables": ("a = " + "{a=" * 3000, "nested too deeply"),
    "long keys": (".".join(["a"] * 50_000) + " = 1", "more than 20 dots"),
    "long sections": ("[" + ".".join(["a"] * 50_000) + "]", "more than 20 dots"),
    "a long number": ("a = " + "9" * 5000, "not TOML"),
    "a zero byte": ("\0", "not TOML"),
    "length": ("# " + "x" * MAX_BYTES, "longer than"),
}


@pytest.mark.parametrize("name", BAD_TOML)
def test_toml_is_refused_soon(tmp_path, name):
    content, needle = BAD_TOML[name]
    (tmp_path / "graph.toml").write_text(content)
    start = time.perf_counter()
    with pytest.raises(SettingError, match=needle) as caught:
        read_toml(tmp_path / "graph.toml")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert time.perf_counter() - start < 5


def test_toml(tmp_path):
    text = '\ufeff# a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w = 1\n[a.b]\nc = "1.2.3.4.5.6.7.8.9.0.1.2.3.4.5.6.7.8.9.0.1.2"\n'
    (tmp_path / "graph.toml").write_text(text, encoding="utf-8")
    assert read_toml(tmp_path / "graph.toml") == {"a": {"b": {"c": "1.2.3.4.5.6.7.8.9.0.1.2.3.4.5.6.7.8.9.0.1.2"}}}


def test_numbers_and_sections(tmp_path):
    (tmp_path / "run.yaml").write_text("train: {lr: 1e-3, epochs: 3}\nempty:\n")
    assert read_yaml(tmp_path / "run.yaml") == {"train": {"lr": 1e-3, "epochs": 3}, "empty": None}
