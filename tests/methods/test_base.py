"""The contract of methods, and that each of them is tested."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import gnndelete as gd
from gnndelete.engine.session import Session
from gnndelete.methods import CONTROLS, Context, Method, RetrainAgain, resolver
from gnndelete.nn.forward import call
from gnndelete.notes import MEANING

METHODS = sorted(resolver.lookup_dict)
CLASSES = [*resolver.lookup_dict.values(), *CONTROLS, RetrainAgain]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_tests_of_its_own(name):
    folder = Path(__file__).parent
    assert list(folder.rglob(f"test_{name}.py")) or (folder / name / "test_method.py").exists()


@pytest.mark.parametrize("name", METHODS)
def test_the_contract(name, graph, gcn):
    method = resolver.make(name)
    assert method.name == name
    assert method.assurance in MEANING
    assert method.summary
    settings = method.settings()
    assert all(value is None or isinstance(value, (bool, int, float, str, list)) for value in settings.values())
    assert type(method)(**settings).settings() == settings, "settings are the constructor's arguments"
    assert repr(method).startswith(type(method).__name__)
    for reason in method.unfit(Context(Session(gcn, graph, call))):
        assert reason.why
        assert reason.remedy


def test_a_context_cuts_the_graph_once(graph, gcn):
    context = Context(Session(gcn, graph, call)).for_deletion(gd.Deletion(edges=[(3, 4)]))
    assert context.remaining is context.remaining
    assert context.remaining.edge_index.size(1) == graph.edge_index.size(1) - 2


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.name)
def test_settings_give_the_same_method(kind: type[Method]) -> None:
    method = kind()
    again = type(method)(**method.settings())
    assert again.settings() == method.settings()
    assert vars(again) == vars(method)
    again.check()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.name)
def test_constructors_only_store(kind: type[Method]) -> None:
    names = list(inspect.signature(kind).parameters)
    nonsense = {name: object() for name in names}
    method = kind(**nonsense)
    assert {name: getattr(method, name) for name in names} == nonsense
