"""One writer per store: a lock that the operating system gives back when its holder ends, however it ends."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import TracebackType
from typing import IO

from gnndelete.errors import SettingError, why

try:
    import fcntl
except ImportError:  # no such lock on this system: then nothing guards against a second writer
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Held while a store is written. The file beside the store names the holder and stays; the lock on it does not."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.path = store.with_name(f"{store.name}.lock")
        self._file: IO[str] | None = None

    def __enter__(self) -> Lock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("a+")
        except OSError as error:
            raise SettingError(
                f"the store '{self._store}' cannot be written ({why(error)}); give another file"
            ) from error
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                file.close()
                raise SettingError(
                    f"{holder} is writing to this store ('{self.path}' is locked); wait for it, or give another --store"
                ) from None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
