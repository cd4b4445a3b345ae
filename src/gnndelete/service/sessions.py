"""Sessions of the console: a signed cookie that names an API key, and a token against forged posts.

The cookie holds no secret of the key. It ends after eight hours, and at once where its key is revoked.
"""

from __future__ import annotations

import time
from secrets import token_hex
from typing import TYPE_CHECKING

from gnndelete.datasets.tombstones import keyed
from gnndelete.service.access import Caller, unauthorized
from gnndelete.service.crypto import same

if TYPE_CHECKING:
    from gnndelete.service.lifecycle import Service

COOKIE = "gnndelete_session"

#: Seconds after which one has to log in again.
LASTS = 8 * 3600


class Sessions:
    """Makes and reads cookies.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self._access = service.access
        self._key = keyed(service.keys.tombstones, "sessions of the console").encode()

    def begin(self, api_key: str) -> str:
        """The cookie of whoever shows an API key.

        Raises:
            ServiceError: If the key is not valid.
        """
        content = f"{self._access.caller(api_key).key}.{int(time.time()) + LASTS}.{token_hex(8)}"
        return f"{content}.{keyed(self._key, 'cookie', content)}"

    def caller(self, cookie: str | None) -> Caller:
        """Whose cookie it is.

        Raises:
            ServiceError: If there is none, it has ended, or it was not made here.
        """
        content, _, signature = (cookie or "").rpartition(".")
        if not content or not same(signature, keyed(self._key, "cookie", content)):
            raise unauthorized()
        name, ends, _ = content.split(".")
        if int(ends) < time.time():
            raise unauthorized()
        return self._access.named(name)

    def token(self, cookie: str) -> str:
        """What every post of a session carries: no other site can know it."""
        return keyed(self._key, "token", cookie)
