"""`homing keys mint|hash`: new API keys, and the form in which the configuration holds them."""

from __future__ import annotations

import argparse
import getpass
import json
import secrets
import sys

from gateway.cli import MISUSE, CommandError
from gateway.secrets import fingerprint, key_digest

KEY_BYTES = 32
"""256 bits: no guessing, so a plain SHA-256 is enough to store."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the two verbs and their options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    mint = verbs.add_parser("mint", help="make a key for a tenant; it is shown once and kept nowhere")
    mint.add_argument("tenant", help="the tenant's name, for the line to paste")
    mint.add_argument("--json", action="store_true", help="one JSON object instead of words")
    hash_ = verbs.add_parser("hash", help="print the sha256:… of a key read from standard input")
    hash_.add_argument("--json", action="store_true", help="one JSON object instead of the bare line")


def run(arguments: argparse.Namespace) -> int:
    """Mint or hash."""
    return _mint(arguments) if arguments.verb == "mint" else _hash(arguments)


def mint_key() -> str:
    """A new key, `hm-` and 43 characters from 256 random bits."""
    return f"hm-{secrets.token_urlsafe(KEY_BYTES)}"


def _mint(arguments: argparse.Namespace) -> int:
    key = mint_key()
    stored = f"sha256:{key_digest(key).hex()}"
    if arguments.json:
        print(json.dumps({"tenant": arguments.tenant, "key": key, "sha256": stored}))
        return 0
    print(key)
    print(stored)
    print("The first line is the key: hand it over, it is kept nowhere.", file=sys.stderr)
    print(f"The second goes into the configuration: tenants.{arguments.tenant}.keys", file=sys.stderr)
    return 0


def _hash(arguments: argparse.Namespace) -> int:
    key = getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()
    key = key.strip()
    if not key:
        raise CommandError("no key on standard input", then="homing keys hash < FILE", code=MISUSE)
    digest = key_digest(key)
    stored = f"sha256:{digest.hex()}"
    print(json.dumps({"sha256": stored, "fingerprint": fingerprint(digest)}) if arguments.json else stored)
    return 0
