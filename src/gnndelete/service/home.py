"""The home of a service: one folder with keys, settings, models and, by default, the database.

service.json          settings
keys/signing.pem      signs receipts and checkpoints; public.pem, public/ the keys that may have signed them
keys/master.json      encrypt the keys of requests
keys/tombstones.key   the key of the hashes of what was deleted
keys/database         the URL of the database, where another was given at the first start (it may hold a password)
service.sqlite        the database, unless another is given
models/TENANT/NAME/   one folder per model
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gnndelete.errors import SettingError
from gnndelete.io.files import write, write_all
from gnndelete.io.versions import locked
from gnndelete.service.clock import DAY, MINUTE
from gnndelete.service.crypto import Safe, Signer, public_pem, read_public_pem

SETTINGS, DATABASE, DATABASE_URL = "service.json", "service.sqlite", "database"
SIGNING, PUBLIC_PEM, PUBLIC, MASTER, TOMBSTONES = "signing.pem", "public.pem", "public", "master.json", "tombstones.key"

#: The URL of the database, where none is given.
DATABASE_VARIABLE = "GNNDELETE_DATABASE"


class Settings(BaseModel):
    """How the service works. Times are in seconds.

    Attributes:
        due: A request is due so long after it came in, unless it says otherwise: a month, as in GDPR 12(3).
        suppress_within: Suppression is promised within this time.
        due_soon: A request is *due soon* from so long before its due date on; the second clock then starts by itself.
        undo_window: So long after its suppression a request can be undone.
        compact_every: Segments are solved again as one so often.
        regrow_every: New weights are made so often where requests wait for them.
        audit: New weights are audited before they are served; receipts carry the verdict. It can take as long as making them.
        close_after: The key to a request's ids is destroyed so long after the old weights.
        lease: A worker that is silent for so long has lost its work.
        attempts: So often a step is tried before it counts as failed.
        together: At most so many waiting requests are solved together.
        rate: Requests per second and API key; ``burst`` at once.
        body_limit: Bytes of a request at the most.
        webhook_hosts: Hosts that webhooks may go to, beside all public ones over https.
        many_share: One origin that asks to forget more than this share of the graph within a day is held.
        many_least: Fewer requests of one origin are never held for it.
        damage_factor: Requests whose predicted damage is above this multiple of the largest of random ones are held.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = 1
    due: float = Field(default=30 * DAY, gt=0)
    suppress_within: float = Field(default=5 * MINUTE, gt=0)
    due_soon: float = Field(default=5 * DAY, gt=0)
    undo_window: float = Field(default=DAY, ge=0)
    compact_every: float = Field(default=DAY, gt=0)
    regrow_every: float = Field(default=7 * DAY, gt=0)
    audit: bool = True
    close_after: float = Field(default=0, ge=0)
    lease: float = Field(default=30.0, gt=0)
    attempts: int = Field(default=5, ge=1)
    together: int = Field(default=100, ge=1)
    rate: float = Field(default=500.0, gt=0)
    burst: int = Field(default=1000, ge=1)
    body_limit: int = Field(default=1_000_000, ge=1000)
    webhook_hosts: tuple[str, ...] = ()
    many_share: float = Field(default=0.1, gt=0)
    many_least: int = Field(default=100, ge=1)
    damage_factor: float = Field(default=1.5, gt=0)


class Keys:
    """The keys of a service; read again when they were rotated, since its processes run on.

    Args:
        path: Their folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[int, Signer, Safe, bytes, frozenset[str]] | None = None

    @property
    def _current(self) -> tuple[int, Signer, Safe, bytes, frozenset[str]]:
        stamp = self.path.stat().st_mtime_ns  # every file in it is replaced by a rename
        if self._read is None or self._read[0] != stamp:
            masters = json.loads((self.path / MASTER).read_bytes())
            self._read = (
                stamp,
                Signer((self.path / SIGNING).read_bytes()),
                Safe({int(number): bytes.fromhex(key) for number, key in masters.items()}),
                bytes.fromhex((self.path / TOMBSTONES).read_text()),
                frozenset(read_public_pem(each.read_bytes()) for each in (self.path / PUBLIC).glob("*.pem")),
            )
        return self._read

    @property
    def signer(self) -> Signer:
        """Signs receipts and checkpoints."""
        return self._current[1]

    @property
    def safe(self) -> Safe:
        """Encrypts the ids of requests."""
        return self._current[2]

    @property
    def tombstones(self) -> bytes:
        """The key of the hashes of what was deleted."""
        return self._current[3]

    @property
    def trusted(self) -> frozenset[str]:
        """The public keys that this service signs by, or has signed by."""
        return self._current[4]

    def new_signer(self) -> str:
        """Sign by a new key from now on; what was signed by earlier ones stays good.

        Returns:
            The public key.
        """
        pem = Signer.generate()
        public = Signer(pem).public
        write(self.path / PUBLIC / f"{public[:16]}.pem", public_pem(public))
        write_all(self.path, {SIGNING: pem, PUBLIC_PEM: public_pem(public)}, private=True)
        return public

    def write_masters(self, masters: Mapping[int, bytes]) -> None:
        """Replace the master keys."""
        content = json.dumps({str(number): key.hex() for number, key in masters.items()})
        write(self.path / MASTER, content.encode(), private=True)


class Home:
    """The folder of a service.

    Args:
        path: The folder.

    Raises:
        SettingError: If there is no service in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).absolute()
        try:
            self.settings = Settings.model_validate_json((self.path / SETTINGS).read_bytes())
        except FileNotFoundError:
            raise SettingError(f"'{path}' is no home of a service; gnndelete serve --home {path} makes one") from None
        except (OSError, ValidationError) as error:
            first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise SettingError(f"'{self.path / SETTINGS}' cannot be read ({first}); correct it") from None
        self.keys = Keys(self.path / "keys")

    @classmethod
    def create(cls, path: Path, settings: Settings | None = None, database: str | None = None) -> Home:
        """Make a home where there is none, with keys of its own; an existing one is opened.

        Args:
            path: The folder.
            settings: Settings other than the default ones.
            database: The URL of the database, which later commands use where they name no other.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(path):
            if not (path / SETTINGS).exists():
                keys = Keys(path / "keys")
                keys.write_masters({1: secrets.token_bytes(32)})
                write(keys.path / TOMBSTONES, secrets.token_hex(32).encode(), private=True)
                if database is not None:
                    write(keys.path / DATABASE_URL, database.encode(), private=True)
                keys.new_signer()
                write(path / SETTINGS, (settings or Settings()).model_dump_json(indent=1).encode())
        return cls(path)

    @property
    def database(self) -> str:
        """The URL of the database, where none is given."""
        if url := os.environ.get(DATABASE_VARIABLE):
            return url
        recorded = self.keys.path / DATABASE_URL
        return recorded.read_text() if recorded.exists() else f"sqlite:///{self.path / DATABASE}"

    def model_folder(self, tenant: str, name: str) -> Path:
        """The folder of a model."""
        return self.path / "models" / tenant / name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from changing the home itself."""
        with locked(self.path):
            yield
