"""Where settings come from, which source wins, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gnndelete.cli.settings import Settings, resolve
from gnndelete.errors import SettingError


def test_rank_of_sources(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("train: {epochs: 11, lr: 1e-2, seed: 5}\nmodel: {name: gat, hidden: 16}\nmethod: {lam: 0.1}\n")
    settings = resolve(None, file, ["train.epochs=12", "method.lam=0.2"], {"train.epochs": 13, "train.device": None})
    assert settings.train.epochs == 13
    assert settings.train.lr == 0.01
    assert settings.train.seed == 5
    assert settings.train.device == "auto"
    assert (settings.model.name, settings.model.options) == ("gat", {"hidden": 16})
    assert settings.method.parameters == {"lam": 0.2}
    assert resolve(None, file, ["train.epochs=12"]).train.epochs == 12
    assert resolve(None, file).train.epochs == 11
    assert resolve().train.epochs == 1000


def test_a_word_is_short_for_a_section() -> None:
    settings = resolve({"data": "digits", "model": "gin"}, None, ["task=node"], {"method.name": "unlink"})
    assert (settings.data.dataset, settings.model.name, settings.task.name) == ("digits", "gin", "node")
    assert settings.method.name == "unlink"


def test_options_of_another_model_or_method_are_dropped() -> None:
    base = {"method": {"name": "gnndelete", "lam": 0.3}, "model": {"name": "gcn", "hidden": 8}}
    assert resolve(base, None, (), {"method.name": "unlink"}).method.parameters == {}
    assert resolve(base, None, (), {"method.name": "gnndelete"}).method.parameters == {"lam": 0.3}
    assert resolve(base, None, ["model.name=gat"]).model.options == {}
    assert resolve(base, None, ["model.out=3"]).model.options == {"hidden": 8, "out": 3}
    assert resolve(base, None, ["method.name=retrain", "method.epochs=3"]).method.parameters == {"epochs": 3}


def test_what_to_delete_is_replaced_as_a_whole() -> None:
    base = {"deletion": {"random": 0.5, "seed": 7}}
    deletion = resolve(base, None, (), {"deletion.edges": [[0, 5]], "deletion.nodes": [3]}).deletion
    assert (deletion.random, deletion.edges, deletion.nodes, deletion.seed) == (None, [[0, 5]], [3], 7)
    together = resolve(base, None, ["deletion.edges=[[0, 5]]", "deletion.nodes=[3]"]).deletion
    assert (together.edges, together.nodes) == ([[0, 5]], [3])
    named = resolve({"data": "digits"}, None, (), {"data.graph": "g.pt"}).data
    assert (named.dataset, named.graph) == (None, Path.cwd() / "g.pt")


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("train.epoch=3", "there is no setting 'train.epoch'; did you mean 'train.epochs'?"),
        ("trian.epochs=3", "there is no setting 'trian'; did you mean 'train'?"),
        ("train.epochs=many", "'train.epochs'"),
        ("train.epochs=yes", "(got True)"),
        ("train.epochs=-1", "(got -1)"),
        ("train.lr=0", "(got 0)"),
        ("train=3", "'train'"),
        ("data.val=1", "(got 1)"),
        ("deletion.where=sideways", "'random', 'in', 'out'"),
        ("task.name=edge", "'link', 'ranking', 'node' or 'graph'"),
        ("method.lam", "--set method.lam=0.3"),
        ("method.lam=[", "is not YAML"),
        ("=3", "has no value"),
    ],
)
def test_mistakes(assignment: str, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        resolve(None, None, [assignment])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["- a list", "train: [", "train: 3", "1: 2", "42", "\x00", "train: !!python/name:os.system x"]
)
def test_files_that_hold_no_settings(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(SettingError):
        resolve(None, file)


def test_effective_settings_can_be_read_back(tmp_path: Path) -> None:
    settings = resolve(None, None, ["train.lr=1e-5", "method.lam=0.25", "model.hidden=3"], {"data.graph": "graph.pt"})
    file = tmp_path / "settings.yaml"
    file.write_text(settings.to_yaml())
    assert resolve(None, file) == settings
    assert set(yaml.safe_load(settings.to_yaml("data", "train"))) == {"data", "train"}


def test_named_elements_are_not_written_down() -> None:
    text = resolve(None, None, ["deletion.edges=[[1234, 5678]]", "deletion.nodes=[4321]"]).to_yaml()
    assert not any(secret in text for secret in ("1234", "5678", "4321"))
    assert "edges" not in yaml.safe_load(text)["deletion"]


def test_every_section_forbids_unknown_names_or_checks_them_later() -> None:
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        assert kind is not None
        assert kind.model_config["extra"] == ("allow" if name in ("model", "method") else "forbid")
