"""Secrets by reference: read from files and the environment, never written in the configuration itself."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

SALT_LABEL = b"homing-salt/v1"
SALTS_KEPT = 4096
"""Salts that are remembered: a trust group asks again and again."""

LEAST_SALT_SECRET_BYTES = 32
LEAST_DISTINCT_BYTES = 8
EXAMPLE_MARKS = (b"example", b"changeme", b"change-me", b"change_me", b"replace-me", b"insecure", b"xxxxxxxx")


class SecretError(ValueError):
    """A secret that is missing, unreadable or of no use; the message quotes the reference, never the secret."""


def read_secret(reference: str, environ: Mapping[str, str]) -> bytes:
    """The bytes behind `file:PATH` or `env:NAME`, without a final line end; `SecretError` if there are none."""
    kind, _, place = reference.partition(":")
    if kind == "file" and place:
        found = read_file(place)
    elif kind == "env" and place:
        if place not in environ:
            raise SecretError(f"the environment variable {place} is not set")
        found = environ[place].encode(errors="surrogateescape")
    else:
        # What stands there may be the secret itself: do not repeat it.
        raise SecretError("a secret is given as file:PATH or env:NAME, never itself")
    found = found.rstrip(b"\r\n")
    if not found:
        raise SecretError(f"{reference} is empty")
    return found


def check_salt_secret(secret: bytes) -> None:
    """Refuse a secret that is short, repetitive or copied from an example (`SecretError`)."""
    if len(secret) < LEAST_SALT_SECRET_BYTES:
        raise SecretError(
            f"the secret has {len(secret)} bytes, at least {LEAST_SALT_SECRET_BYTES} random ones are needed"
        )
    if len(set(secret)) < LEAST_DISTINCT_BYTES or any(mark in secret.lower() for mark in EXAMPLE_MARKS):
        raise SecretError("the secret is not random: it repeats itself or comes from an example")


@lru_cache(SALTS_KEPT)
def derive_salt(secret: bytes, *, group: str, model: str, sub: bytes = b"") -> str:
    """The cache salt of a trust group for a model: 43 characters of `A-Za-z0-9_-`.

    HMAC-SHA256 over the label and the length-prefixed fields, so that no two different triples give one message.
    `sub` narrows within the group: the client's own salt, the user.
    """
    fields = (group.encode(errors="surrogatepass"), model.encode(errors="surrogatepass"), sub)
    message = SALT_LABEL + b"".join(map(length_prefixed, fields))
    return urlsafe_b64encode(hmac.digest(secret, message, "sha256")).rstrip(b"=").decode()


def length_prefixed(field: bytes) -> bytes:
    """The field behind its length in four bytes, most significant first."""
    return len(field).to_bytes(4, "big") + field


def key_digest(key: str) -> bytes:
    """SHA-256 of an API key: what is stored and compared instead of the key."""
    return sha256(key.encode(errors="surrogateescape")).digest()


def fingerprint(digest: bytes) -> str:
    """Twelve hex digits that tell keys apart in logs; the first ones of the `sha256:` in the configuration."""
    return digest.hex()[:12]


def read_file(place: str) -> bytes:
    """The file's bytes; `SecretError` with its path and the system's reason where there are none."""
    try:
        return Path(place).read_bytes()
    except OSError as error:
        raise SecretError(f"cannot read {place}: {error.strerror or error}") from None
