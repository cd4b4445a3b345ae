"""Importing the package costs next to nothing, and every public name is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gnndelete


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_does_not_pull_in_torch():
    heavy = "'torch', 'torch_geometric', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'pydantic'"
    code = f"import sys, gnndelete; dir(gnndelete); print([m for m in ({heavy}) if m in sys.modules])"
    assert python(code).strip() == "[]"


def test_a_deletion_on_the_command_line_imports_only_what_it_needs():
    heavy = "'scipy', 'sklearn', 'matplotlib', 'pandas'"
    ours = "gnndelete.cli, gnndelete.cli.construct, gnndelete.cli.run_folder, gnndelete.unlearner"
    code = f"import sys, torch_geometric; before = set(sys.modules); import {ours}; "
    assert python(f"{code}print([m for m in ({heavy}) if m in set(sys.modules) - before])").strip() == "[]"


def test_every_public_name_resolves():
    code = "import gnndelete as gd; print([n for n in gd.__all__ if getattr(gd, n, None) is None])"
    assert python(code).strip() == "[]"
    assert set(gnndelete.__all__) - {"__version__"} <= set(dir(gnndelete))
    order = sorted(set(gnndelete.__all__), key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert order == list(gnndelete.__all__)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        _ = gnndelete.magic


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    assert gnndelete.__version__ == version("gnndelete")
