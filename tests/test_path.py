"""The way of one deletion through the package stays short: a reader follows it from `Unlearner.delete` to the result."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import gnndelete as gd

PACKAGE = str(Path(gd.__file__).parent)

#: Parts of the function that they are written in.
INLINE = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<module>")


def traced(work):
    """The functions of the package that ``work`` enters, by file."""
    found = defaultdict(set)

    def profile(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in INLINE:
            found[code.co_filename.removeprefix(PACKAGE)].add(code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@pytest.fixture(scope="module")
def quickstart():
    """The README's model, graph, task and edges."""
    split = gd.datasets.split_links(gd.datasets.load("digits"))
    task = gd.LinkPrediction(validation=split.validation, test=split.test)
    torch.manual_seed(0)
    model = gd.models.GCN(split.data.num_features)
    gd.train(model, split.data, task, epochs=50, lr=0.01)
    return model, split.data, task, gd.datasets.forget_edges(split.data, 0.025)


@pytest.mark.parametrize(
    ("method", "files", "functions"), [(None, 29, 183), (gd.GNNDelete(lam=0.5), 24, 144)], ids=["default", "lam=0.5"]
)
def test_a_deletion_passes_few_files_and_functions(quickstart, method, files, functions):
    model, data, task, edges = quickstart
    results = []

    def work():
        results.append(gd.Unlearner(model, data, task=task, method=method).delete(deletion))

    deletion = gd.Deletion(edges=edges)
    work()  # loads modules
    found = traced(work)
    listed = "\n".join(f"{name} ({len(each)}): {', '.join(sorted(each))}" for name, each in sorted(found.items()))
    assert results[-1].lam == (0.5 if method else 0)
    assert len(found) <= files, listed
    assert sum(map(len, found.values())) <= functions, listed
