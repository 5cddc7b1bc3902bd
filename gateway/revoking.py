"""Taking keys back: which key is meant, and its line in the list of revoked keys."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gateway.keys import read_digest, read_keys, read_revoked
from gateway.secrets import SecretError, fingerprint
from gateway.settings import Config

LEAST_FINGERPRINT = 8
"""Hex digits that name a key, as logs show them; fewer could mean another one tomorrow."""


class UnknownKey(ValueError):
    """No key, or more than one, is what was named."""


class Revoked(NamedTuple):
    """A key that is on the list now; `tenant` is None where the configuration does not know it."""

    digest: bytes
    tenant: str | None
    was_there: bool


def owners_of(config: Config) -> dict[bytes, str]:
    """Whose key each digest is, as far as keys can be read: a mistake elsewhere must not keep a key alive."""
    owners: dict[bytes, str] = {}
    for name, tenant in config.tenants.items():
        for entry in tenant.keys:
            owners.update(dict.fromkeys(_readable(entry), name))
    return owners


def digest_of(named: str, owners: Mapping[bytes, str]) -> bytes:
    """The key that `sha256:HEX`, or the beginning of HEX as logs show it, names; `UnknownKey` when it is not one."""
    if named.startswith("sha256:") and len(named) == len("sha256:") + 64:
        try:
            return read_digest(named)
        except SecretError as error:
            raise UnknownKey(str(error)) from None
    digits = named.removeprefix("sha256:").lower()
    if len(digits) < LEAST_FINGERPRINT or not all(digit in "0123456789abcdef" for digit in digits):
        raise UnknownKey(
            f"a key is named by sha256:HEX or {LEAST_FINGERPRINT} or more hex digits of its fingerprint, never itself"
        )
    found = [digest for digest in owners if digest.hex().startswith(digits)]
    if len(found) != 1:
        raise UnknownKey(f"{len(found) or 'no'} keys of the configuration begin with {digits}")
    return found[0]


def revoke(digests: Iterable[bytes], owners: Mapping[bytes, str], file: Path, now: datetime) -> list[Revoked]:
    """Add keys to the list, each once; it is made if it is not there. OSError where it cannot be written, and
    `SecretError` where it cannot be read.
    """
    there = read_revoked(f"file:{file}") if file.exists() else frozenset()
    result = [Revoked(digest, owners.get(digest), digest in there) for digest in dict.fromkeys(digests)]
    lines = "".join(_line(each, now) for each in result if not each.was_there)
    if lines:
        _append(file, lines.encode())
    return result


def _readable(entry: str) -> Iterator[bytes]:
    try:
        yield from [key.digest for key in read_keys(entry)]
    except SecretError:
        return


def _line(revoked: Revoked, now: datetime) -> str:
    whose = " ".join((revoked.tenant or "").split())
    when = now.astimezone(UTC).isoformat(timespec="seconds")
    return f"sha256:{revoked.digest.hex()} revoked {when} {whose}".rstrip() + "\n"


def _append(file: Path, lines: bytes) -> None:
    """In one write behind what is there, and on the disk before anybody is told; no line is joined to another."""
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        size = os.fstat(handle).st_size
        joined = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, b"\n" + lines if joined else lines)
        os.fsync(handle)
    finally:
        os.close(handle)


def described(revoked: Revoked) -> dict[str, str | bool | None]:
    """As `--json` shows it."""
    return {
        "sha256": f"sha256:{revoked.digest.hex()}",
        "fingerprint": fingerprint(revoked.digest),
        "tenant": revoked.tenant,
        "was_there": revoked.was_there,
    }
