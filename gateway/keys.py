"""API keys as they are kept: digests with an end, in the configuration, a file or a folder; and those revoked.

One entry is `sha256:HEX`, in a file also a key itself; ` expires=2026-12-31` may follow.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from gateway.secrets import EXAMPLE_MARKS, SecretError, key_digest, read_file

LEAST_KEY_CHARACTERS = 20
"""A plain SHA-256 protects a key at rest only when nobody can try all keys."""

KNOWN_WORDS = (
    "", "example", "changeme", "change-me", "secret", "password", "test", "key", "api-key", "apikey", "token", "homing",
    "admin", "demo", "dummy", "none", "EMPTY", "sk-1234", "sk-test", "sk-example", "your-api-key", "YOUR_API_KEY",
)  # fmt: skip
KNOWN_DIGESTS = frozenset(sha256(word.encode()).digest() for word in KNOWN_WORDS)
"""What stands in examples everywhere; anybody would try these first."""

_FIRST_MOMENT, _LAST_MOMENT = 0.0, 253_402_300_800.0
"""1970 and 10000, in Unix seconds: beyond, a moment cannot be shown in every zone."""

_DIGEST = re.compile(r"(?i:sha256):([0-9a-fA-F]{64})")
_MEANT_AS_DIGEST = re.compile(r"sha-?256\W", re.IGNORECASE)
_VISIBLE = re.compile(r"[!-~]+")
_ENDS = re.compile(r"(?P<entry>.*?)\s+expires=(?P<when>\S*)", re.DOTALL)


class ApiKey(NamedTuple):
    """A key by its SHA-256 digest; `expires_at` is Unix time in seconds, None for never."""

    digest: bytes
    expires_at: float | None = None


def read_keys(entry: str) -> Iterator[ApiKey]:
    """The keys behind one entry of `keys`: `sha256:HEX`, or `file:PATH` with an entry or a key on each line.

    PATH may be a folder as Kubernetes mounts a Secret: each file in it counts, hidden ones do not. Empty lines and
    lines that begin with `#` count for nothing. What the entry says of its end holds for those of its keys that say
    nothing themselves. `SecretError` says what is wrong and quotes no key.
    """
    entry, expires_at = split_end(entry)
    kind, _, place = entry.partition(":")
    if kind.lower() == "sha256":
        yield ApiKey(read_digest(entry), expires_at)
    elif kind != "file" or not place:
        raise SecretError("a key is given as sha256:HEX or file:PATH, never itself; `homing keys hash` makes the first")
    else:
        for key in _keys_at(Path(place)):
            yield key if key.expires_at is not None else ApiKey(key.digest, expires_at)


def split_end(entry: str) -> tuple[str, float | None]:
    """`ENTRY expires=WHEN` as the entry and Unix time; `SecretError` for a time that is none."""
    match = _ENDS.fullmatch(entry)
    return (entry, None) if match is None else (match["entry"], end_of(match["when"]))


def end_of(when: str) -> float:
    """Unix time of the end of a day (`2026-12-31`, UTC) or of a moment with its zone (`2026-12-31T12:00Z`)."""
    try:
        if len(when) == len("2026-12-31"):
            return datetime.combine(date.fromisoformat(when) + timedelta(days=1), time(), UTC).timestamp()
        moment = datetime.fromisoformat(when)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None or not _FIRST_MOMENT <= moment.timestamp() < _LAST_MOMENT:
        raise SecretError("expires= is followed by a day (2026-12-31) or by a moment with its zone (2026-12-31T12:00Z)")
    return moment.timestamp()


def read_digest(entry: str) -> bytes:
    """The digest in `sha256:HEX`; `SecretError` where it is none, or that of a key that stands in examples."""
    match = _DIGEST.fullmatch(entry)
    if match is None:
        raise SecretError("sha256: is followed by 64 hex digits, as `homing keys hash` prints them")
    digest = bytes.fromhex(match[1])
    if digest in KNOWN_DIGESTS:
        raise SecretError("this key stands in examples; `homing keys mint TENANT` makes one that nobody knows")
    return digest


def read_revoked(reference: str) -> frozenset[bytes]:
    """The digests in the list of revoked keys, `file:PATH`: `sha256:HEX` at the beginning of each line.

    What follows on the line is a remark. `SecretError` where the list cannot be read or a line is none.
    """
    kind, _, place = reference.partition(":")
    if kind != "file" or not place:
        raise SecretError("the list of revoked keys is given as file:PATH")
    return frozenset(_revoked(place))


def readable_revoked(reference: str) -> frozenset[bytes]:
    """The digests in those lines of the list that are none of its mistakes; empty where there is nothing to read."""
    try:
        lines = list(_lines(reference.removeprefix("file:")))
    except SecretError:
        return frozenset()
    matches = (_DIGEST.fullmatch(line.split()[0]) for _, line in lines)
    return frozenset(bytes.fromhex(match[1]) for match in matches if match is not None)


def _revoked(place: str) -> Iterator[bytes]:
    for number, line in _lines(place):
        match = _DIGEST.fullmatch(line.split()[0])
        if match is None:
            raise SecretError(f"{place}:{number}: a revoked key is written sha256:HEX, with 64 hex digits")
        yield bytes.fromhex(match[1])


def _keys_at(path: Path) -> Iterator[ApiKey]:
    files = [path]
    if path.is_dir():
        files = key_files(path)
    keys = [key for file in files for key in _keys_in(str(file))]
    if not keys:
        raise SecretError(f"{path} holds no key")
    yield from keys


def key_files(folder: Path) -> list[Path]:
    """The files of a folder that count, by name; `..data` and what else is hidden is Kubernetes' own."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file())
    except OSError as error:
        raise SecretError(f"cannot read {folder}: {error.strerror or error}") from None


def _keys_in(place: str) -> Iterator[ApiKey]:
    for number, line in _lines(place):
        try:
            yield _key(line)
        except SecretError as error:
            raise SecretError(f"{place}:{number}: {error}") from None


def _key(line: str) -> ApiKey:
    entry, expires_at = split_end(line)
    if _MEANT_AS_DIGEST.match(entry):
        return ApiKey(read_digest(entry), expires_at)
    if len(entry) < LEAST_KEY_CHARACTERS:
        raise SecretError(f"a key has at least {LEAST_KEY_CHARACTERS} characters; `homing keys mint TENANT` makes one")
    if not _VISIBLE.fullmatch(entry):
        raise SecretError("a key is visible ASCII characters without spaces, alone on its line; remarks begin a line")
    if any(mark in entry.lower().encode(errors="surrogateescape") for mark in EXAMPLE_MARKS):
        raise SecretError("this key comes from an example; `homing keys mint TENANT` makes one that nobody knows")
    return ApiKey(key_digest(entry), expires_at)


def _lines(place: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers from 1; a mark of the byte order before them says nothing."""
    text = read_file(place).removeprefix(BOM_UTF8).decode(errors="surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            yield number, line.strip()
