"""The public contract: every registered method passes it, broken ones do not, and a plugin is found by its name."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

from gnndelete.methods import (
    CONTROLS,
    D2D,
    GIF,
    JODIE,
    MEGU,
    CertUnlearn,
    GNNDelete,
    GradAscent,
    GraphEditor,
    GraphEraser,
    Regrow,
    Unlink,
    resolver,
)
from gnndelete.models import GCN
from gnndelete.testing import check_method

#: How each registered method is made for the check; a new one needs a line here.
CASES = {
    "certunlearn": lambda: CertUnlearn(own_model=True),
    "d2d": D2D,
    "gif": lambda: GIF(iterations=10),
    "gnndelete": GNNDelete,
    "gradascent": GradAscent,
    "grapheditor": lambda: GraphEditor(own_model=True),
    "grapheraser": lambda: GraphEraser(shards=3, epochs=5),
    "jodie": lambda: JODIE(dim=8, epochs=1),
    "megu": MEGU,
    "regrow": Regrow,
    "retrain": resolver.lookup("retrain"),
    "unlink": Unlink,
}
COMBINATIONS = {f"{task}/{kind}" for task in ("link", "node") for kind in ("edges", "nodes", "features", "labels")}
COMBINATIONS |= {"typed/edges", "typed/relations", "graph/edges", "graph/graphs"}


def test_every_registered_method_has_a_case():
    assert set(CASES) == set(resolver.lookup_dict)


@pytest.mark.parametrize("name", sorted(CASES))
def test_registered_methods_keep_the_contract(name):
    served = check_method(CASES[name])
    assert served
    assert set(served) <= COMBINATIONS


@pytest.mark.parametrize("make", [GNNDelete.paper, lambda: GNNDelete(solver="gradient", epochs=20), *CONTROLS])
def test_variants_and_controls_keep_the_contract(make):
    assert set(check_method(make)) == COMBINATIONS


class TouchesTheModel(Unlink):
    def unlearn(self, context):
        with torch.no_grad():
            next(iter(context.model.parameters())).add_(1)
        return super().unlearn(context)


class UsesGlobalRandomness(Unlink):
    def unlearn(self, context):
        torch.rand(1)
        return super().unlearn(context)


class Inflates(Unlink):
    assurance = "guaranteed"


class ReturnsAnother(Unlink):
    def unlearn(self, context):
        outcome = super().unlearn(context)
        outcome.model.__class__ = type("Other", (GCN,), {})
        return outcome


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (TouchesTheModel, "the user's weight"),
        (UsesGlobalRandomness, "random state"),
        (Inflates, "assurance"),
        (ReturnsAnother, "another class"),
    ],
)
def test_broken_methods_are_told_so(broken, message):
    with pytest.raises((AssertionError, KeyError), match=message):
        check_method(broken)


def test_a_method_of_another_package_is_found_by_name(tmp_path):
    package = tmp_path / "forgetful"
    package.mkdir()
    (package / "__init__.py").write_text(
        textwrap.dedent(
            """
            from gnndelete.methods import Method, Outcome
            from gnndelete.nn.layers import working_copy

            class Shrug(Method):
                name = "shrug"
                assurance = "inference-only"
                summary = "keeps everything as it is"

                def unlearn(self, context):
                    return Outcome(model=working_copy(context.model), parameters=0)
            """
        )
    )
    info = tmp_path / "forgetful-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: forgetful\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gnndelete.methods]\nshrug = forgetful:Shrug\n")
    code = (
        "from gnndelete.methods import resolver\nfrom gnndelete.testing import check_method\n"
        "print(len(check_method(resolver.lookup('shrug'))))"
    )
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert int(done.stdout) == len(COMBINATIONS), done.stderr
