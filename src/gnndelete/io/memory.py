"""The peak memory of a piece of work."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import torch


class PeakMemory:
    """Measures a block: the allocator's peak on CUDA, the growth of resident memory on Linux, otherwise nothing.

    Args:
        device: Where the work is done.

    >>> with PeakMemory(torch.device("cpu")) as memory:
    ...     _ = torch.zeros(8)
    >>> memory.peak_mb is None or memory.peak_mb >= 0
    True
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.peak_mb: float | None = None

    def __enter__(self) -> PeakMemory:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before: float | None = self._allocated("current")
        else:
            _reset_high_water()
            self._before = _resident("VmRSS")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._device.type == "cuda":
            after: float | None = self._allocated("peak")
        else:
            after = _resident("VmHWM")
        if self._before is not None and after is not None:
            self.peak_mb = max(after - self._before, 0.0)

    def _allocated(self, when: str) -> float:
        """Allocated megabytes on a CUDA device; `torch.cuda.memory_stats` would sort a hundred other figures."""
        found = torch.cuda.memory_stats_as_nested_dict(self._device)
        return float(found["allocated_bytes"]["all"][when]) / 2**20 if found else 0.0


def _reset_high_water() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not Linux, or not allowed: the peak then counts from the start of the process
        return


def _resident(field: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), None)
