"""One writer per store: a lock that the operating system gives back when its holder ends, however it ends."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from gnndelete.errors import SettingError, why
from gnndelete.io.files import made

try:
    import fcntl
except ImportError:  # no such lock on this system: then nothing guards against a second writer
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Held while a store is written. The file beside the store names the holder and goes with it.

    A folder that was made for it and in which nothing was written goes too.
    """

    def __init__(self, store: Path) -> None:
        if not store.name or store.is_dir():
            raise SettingError(f"the store '{store}' is a folder; give a file, such as {store / 'results.jsonl'}")
        self._store = store
        self.path = store.with_name(f"{store.name}.lock")
        self._held = ExitStack()

    def __enter__(self) -> Lock:
        with ExitStack() as undo:
            try:
                undo.enter_context(made(self.path.parent))
                file = self._taken(undo)
            except OSError as error:
                raise SettingError(
                    f"the store '{self._store}' cannot be written ({why(error)}); give another file"
                ) from error
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            self._held = undo.pop_all()
        return self

    def _taken(self, undo: ExitStack) -> IO[str]:
        """The locked file. Whoever held it before may have removed it in between: then it is another file by now."""
        while True:
            file = undo.enter_context(self.path.open("a+"))
            if fcntl is None:
                break
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise SettingError(
                    f"{holder} is writing to this store ('{self.path}' is locked); wait for it, or give another --store"
                ) from None
            if self.path.exists() and os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                break
        undo.callback(self._remove)  # before the file is closed, and the lock with it
        return file

    def _remove(self) -> None:
        with suppress(OSError):  # a system that keeps open files
            self.path.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()
