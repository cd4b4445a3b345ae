"""Runs one command line in a child of multiprocessing's fork server, which has imported everything already.

``ARGUMENTS``, ``OUT``, ``ERR`` and ``VARIABLES`` are set by whoever starts it.
"""

import os

from gnndelete.cli import run
from gnndelete.io.signals import catch_signals

os.environ.update(VARIABLES)  # noqa: F821
for number, path in ((1, OUT), (2, ERR)):  # noqa: F821
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)

catch_signals()
os._exit(run(ARGUMENTS))  # noqa: F821
