"""Keys and what is done with them: signatures, encrypted ids, tombstones, and digests of API keys."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gnndelete.errors import RunError

_NONCE = 12


def canonical(value: Any) -> bytes:
    """A value as canonical JSON (RFC 8785): the same bytes on every machine.

    >>> canonical({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return rfc8785.dumps(value)


def digest(value: Any) -> str:
    """The SHA-256 digest of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


class Signer:
    """Signs by Ed25519.

    Args:
        pem: The private key.
    """

    def __init__(self, pem: bytes) -> None:
        key = serialization.load_pem_private_key(pem, None)
        if not isinstance(key, Ed25519PrivateKey):
            raise RunError("the signing key is no Ed25519 key", "restore keys/signing.pem from a backup")
        self._key = key
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        #: the public key, as receipts carry it
        self.public = raw.hex()

    @staticmethod
    def generate() -> bytes:
        """A new private key."""
        return Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def sign(self, content: bytes) -> str:
        """The signature of some bytes."""
        return self._key.sign(content).hex()


def public_pem(public: str) -> bytes:
    """A public key as a PEM file."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_public_pem(pem: bytes) -> str:
    """The public key in a PEM file."""
    key = serialization.load_pem_public_key(pem)
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("it is no Ed25519 key")
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()


def is_signed(content: bytes, signature: str, public: str) -> bool:
    """Whether a signature is that of a key."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Sealed:
    """A content under a key of its own, and that key under the master key. Without the wrapped key nobody can read it."""

    wrapped: bytes
    content: bytes


class Safe:
    """Encrypts with a key per request, which is kept encrypted by a master key.

    Args:
        masters: The master keys by their number; the highest one encrypts.
    """

    def __init__(self, masters: dict[int, bytes]) -> None:
        self.masters = masters
        self.newest = max(masters)

    def seal(self, value: Any, name: str) -> Sealed:
        """Encrypt a value under a new key."""
        key = AESGCM.generate_key(256)
        return Sealed(self._wrap(key, name), _encrypt(key, canonical(value), name))

    def open(self, sealed: Sealed, name: str) -> Any:
        """The value of `seal`."""
        return json.loads(_decrypt(self._unwrap(sealed.wrapped, name), sealed.content, name))

    def rewrap(self, wrapped: bytes, name: str) -> bytes:
        """The same key under the newest master key."""
        return self._wrap(self._unwrap(wrapped, name), name)

    def _wrap(self, key: bytes, name: str) -> bytes:
        return self.newest.to_bytes(4, "big") + _encrypt(self.masters[self.newest], key, name)

    def _unwrap(self, wrapped: bytes, name: str) -> bytes:
        number = int.from_bytes(wrapped[:4], "big")
        if number not in self.masters:
            raise RunError(f"the master key number {number} is gone", "restore keys/master.json from a backup")
        return _decrypt(self.masters[number], wrapped[4:], name)


def _encrypt(key: bytes, content: bytes, name: str) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, content, name.encode())


def _decrypt(key: bytes, content: bytes, name: str) -> bytes:
    try:
        return AESGCM(key).decrypt(content[:_NONCE], content[_NONCE:], name.encode())
    except InvalidTag:
        raise RunError(
            "encrypted ids were changed, or belong to another key", "restore the database and keys/ together"
        ) from None


def salted(salt: str, content: bytes) -> str:
    """A commitment to some bytes, which nobody can open without the salt."""
    return hashlib.sha256(bytes.fromhex(salt) + content).hexdigest()


def new_salt() -> str:
    """A random salt."""
    return secrets.token_hex(32)


def new_api_key() -> tuple[str, str, str]:
    """A new API key: its name, the key as it is shown once, and the digest that is kept."""
    name, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    whole = f"gd_{name}_{secret}"
    return name, whole, api_key_digest(whole)


def api_key_digest(key: str) -> str:
    """The digest of an API key; the key is random, so that a plain digest gives nothing away."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def api_key_name(key: str) -> str:
    """The part of an API key by which it is found; empty where it has another form."""
    parts = key.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "gd" else ""


def same(one: str, other: str) -> bool:
    """Whether two digests are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)


def joined_digest(digests: Iterable[str]) -> str:
    """One digest of several."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
