"""Options of warm-up and exchange: whether their routes are there, and with whom blocks may be exchanged."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

LEAST_TOKEN_CHARACTERS = 16


class ExchangeOptionsError(Exception):
    """Blocks cannot be exchanged as asked; the message says what to change, and never a token."""


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """`routes`: whether /v1/cache/… is served. Without a `peer_token` no block leaves or comes in."""

    routes: bool = False
    peers: tuple[str, ...] = ()
    peer_token: str | None = None


def add_exchange_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument(
        "--enable-cache-routes",
        action="store_true",
        help="/v1/cache/warm and /v1/cache/map; with --peer-token-file /v1/cache/blocks and /v1/cache/pull too",
    )
    group.add_argument(
        "--peer",
        action="append",
        type=_peer,
        metavar="URL",
        help="a worker to pull blocks from, http://HOST:PORT; may be given several times",
    )
    group.add_argument(
        "--peer-token-file",
        type=Path,
        metavar="PATH",
        help="a secret that all workers which exchange blocks share; blocks hold what prompts said",
    )


def read_exchange_settings(options: argparse.Namespace) -> ExchangeSettings:
    """The settings; ExchangeOptionsError for what does not fit together or cannot be read."""
    peers, path = tuple(options.peer or ()), options.peer_token_file
    if not options.enable_cache_routes:
        if peers or path is not None:
            raise ExchangeOptionsError("--peer and --peer-token-file need --enable-cache-routes")
        return ExchangeSettings()
    if peers and path is None:
        raise ExchangeOptionsError("--peer needs --peer-token-file: blocks are only given to those who know the secret")
    return ExchangeSettings(True, peers, None if path is None else _token(path))


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ExchangeOptionsError(f"--peer-token-file {path}: {error.strerror or error}") from error
    except UnicodeError:
        raise ExchangeOptionsError(f"--peer-token-file {path}: not ASCII text") from None
    if len(token) < LEAST_TOKEN_CHARACTERS or not token.isprintable() or " " in token:
        raise ExchangeOptionsError(
            f"--peer-token-file {path}: give one line of at least {LEAST_TOKEN_CHARACTERS} characters without spaces"
        )
    return token


def _peer(text: str) -> str:
    """A base URL without a slash at the end. What is refused is not repeated: it may hold a password."""
    try:
        url = urlsplit(text)
        whole = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none, half an IPv6 address
        whole = False
    if not whole or url.query or url.fragment or "@" in url.netloc:
        raise argparse.ArgumentTypeError("not a worker's URL, as in http://10.0.0.7:8000; users have no place in it")
    return text.rstrip("/")
