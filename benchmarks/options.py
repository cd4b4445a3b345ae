"""Values on the command lines of benchmarks that are refused in one sentence: counts below 1, devices that are not here."""

from __future__ import annotations

import argparse

from gnndelete.errors import SettingError
from gnndelete.training.loop import find_device


def at_least_one(text: str) -> int:
    """A count, of seeds for example."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number of at least 1 (got '{text}')")
    return number


def device_name(text: str) -> str:
    """A device of this machine by its name."""
    try:
        return str(find_device(text, "--device"))
    except SettingError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
