"""`homing keys mint|hash|revoke`: new API keys, the form in which the configuration holds them, and keys taken back."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

from gateway.cli import CONFIG_VARIABLE, MISUSE, CommandError
from gateway.config_convert import convert
from gateway.config_source import read_yaml
from gateway.keys import end_of
from gateway.revoking import Revoked, UnknownKey, described, digest_of, owners_of, revoke
from gateway.secrets import SecretError, fingerprint, key_digest
from gateway.settings import Config

KEY_BYTES = 32
"""256 bits: no guessing, so a plain SHA-256 is enough to store."""

STANDARD_INPUT = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the three verbs and their options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    mint = verbs.add_parser("mint", help="make a key for a tenant; it is shown once and kept nowhere")
    mint.add_argument("tenant", help="the tenant's name, for the line to paste")
    mint.add_argument("--expires", metavar="WHEN", help="the day on which it ends, or a moment: 2026-12-31T12:00Z")
    hash_ = verbs.add_parser("hash", help="print the sha256:… of a key read from standard input")
    take = verbs.add_parser("revoke", help="put keys on the list that gateways heed within seconds")
    take.add_argument(
        "keys", nargs="+", metavar="KEY", help="sha256:HEX, a fingerprint as logs show it, or - for a key itself"
    )
    place = take.add_mutually_exclusive_group()
    place.add_argument("--config", type=Path, metavar="FILE", help=f"configuration (default: ${CONFIG_VARIABLE})")
    place.add_argument("--into", type=Path, metavar="LIST", help="the list itself, instead of a configuration")
    for verb in (mint, hash_, take):
        verb.add_argument("--json", action="store_true", help="one JSON object instead of words")


def run(arguments: argparse.Namespace) -> int:
    """Mint, hash or revoke."""
    return {"mint": _mint, "hash": _hash, "revoke": _revoke}[arguments.verb](arguments)


def mint_key() -> str:
    """A new key, `hm-` and 43 characters from 256 random bits."""
    return f"hm-{secrets.token_urlsafe(KEY_BYTES)}"


def _mint(arguments: argparse.Namespace) -> int:
    end = ""
    if arguments.expires is not None:
        end = f" expires={_checked_end(arguments.expires)}"
    key = mint_key()
    stored = f"sha256:{key_digest(key).hex()}{end}"
    if arguments.json:
        print(json.dumps({"tenant": arguments.tenant, "key": key, "sha256": stored}))
        return 0
    print(key)
    print(stored)
    print("The first line is the key: hand it over, it is kept nowhere.", file=sys.stderr)
    print(f"The second goes into the configuration: tenants.{arguments.tenant}.keys", file=sys.stderr)
    return 0


def _hash(arguments: argparse.Namespace) -> int:
    digest = key_digest(_key_from_input("homing keys hash < FILE"))
    stored = f"sha256:{digest.hex()}"
    print(json.dumps({"sha256": stored, "fingerprint": fingerprint(digest)}) if arguments.json else stored)
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    config = None if arguments.into is not None else _typed_config(arguments.config)
    file = arguments.into if config is None else _list_of(config)
    owners = {} if config is None else owners_of(config)
    try:
        digests = [_named(each, owners) for each in arguments.keys]
        if config is not None:
            _refuse_unowned(digests, owners)
        revoked = revoke(digests, owners, file, datetime.now(UTC))
    except UnknownKey as error:
        raise CommandError(
            str(error), then="nothing was written; /config on the admin port lists fingerprints"
        ) from None
    except SecretError as error:
        raise CommandError(str(error), then="mend the list first; nothing was written") from None
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror or error}", then="nothing was written") from None
    _tell(revoked, file, as_json=arguments.json)
    return 0


def _tell(revoked: list[Revoked], file: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"file": str(file), "revoked": [described(each) for each in revoked]}))
        return
    for each in revoked:
        was_there = " (was on the list already)" if each.was_there else ""
        print(f"sha256:{each.digest.hex()} {each.tenant or ''}".rstrip() + was_there)
    print(f"Gateways that read {file} refuse them within seconds.", file=sys.stderr)


def _named(word: str, owners: dict[bytes, str]) -> bytes:
    return (
        key_digest(_key_from_input("homing keys revoke - < FILE"))
        if word == STANDARD_INPUT
        else digest_of(word, owners)
    )


def _refuse_unowned(digests: list[bytes], owners: dict[bytes, str]) -> None:
    """A key mistyped must not be thought revoked."""
    for digest in digests:
        if digest not in owners:
            raise UnknownKey(f"no tenant of the configuration has the key {fingerprint(digest)}…")


def _typed_config(given: Path | None) -> Config:
    """The configuration, without a look at its secrets: a mistake elsewhere must not keep a key alive."""
    path = given or os.environ.get(CONFIG_VARIABLE)
    if not path:
        raise CommandError(
            "no configuration and no list", then="homing keys revoke KEY --config FILE, or --into LIST", code=MISUSE
        )
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise CommandError(f"{path} cannot be read", then="name another with --config", code=MISUSE) from None
    return convert(read_yaml(text, str(path)))


def _list_of(config: Config) -> Path:
    if config.revoked_keys is None or not config.revoked_keys.startswith("file:"):
        raise CommandError(
            "the configuration names no list of revoked keys",
            then="add `revoked_keys: file:/etc/homing/revoked`, or take the key out of `tenants`",
            code=MISUSE,
        )
    return Path(config.revoked_keys.removeprefix("file:"))


def _checked_end(when: str) -> str:
    try:
        end_of(when)
    except SecretError as error:
        raise CommandError(str(error), then="homing keys mint TENANT --expires 2026-12-31", code=MISUSE) from None
    return when


def _key_from_input(then: str) -> str:
    key = getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()
    key = key.strip()
    if not key:
        raise CommandError("no key on standard input", then=then, code=MISUSE)
    return key
