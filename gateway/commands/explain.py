"""`homing explain`: how a request is keyed and folded, and with --gateway where it would go; one JSON object each."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from gateway.cli import MISUSE, PROBLEMS, WELL, CommandError
from gateway.config import Config, load_config, load_secrets
from gateway.explain_remote import RemoteExplainer
from gateway.explain_requests import Explainer
from gateway.rewrites.rules import Rewrites, parse_rewrites
from gateway.tenants import Tenant, Tenants

READ_AHEAD_LINES = 32
"""Lines read before the answer of the first of them is printed."""

Told = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    parser.add_argument("request", nargs="?", metavar="REQUEST", help="a file, - for standard input, or JSON")
    parser.add_argument("--jsonl", action="store_true", help="read requests from standard input, one a line")
    parser.add_argument("--config", type=Path, metavar="FILE", help="take tokenizers, fold rules and salts from here")
    parser.add_argument(
        "--gateway",
        metavar="URL",
        help="ask a running gateway's admin port (its token in HOMING_ADMIN_TOKEN), which also tells the placement",
    )
    parser.add_argument(
        "--rewrite",
        action="append",
        metavar="RULE",
        help="try this rewrite of the prompt in place of the tenant's own (docs/rewrites.md); may be given often",
    )
    parser.add_argument("--tenant", metavar="NAME", help="whose rules and salt; needed where there are several")


def run(arguments: argparse.Namespace) -> int:
    """Explain one request, or one a line; 1 when any of them was no request."""
    if arguments.jsonl == (arguments.request is not None):
        raise CommandError("give either REQUEST or --jsonl", then="homing explain --help", code=MISUSE)
    explain = _asked(arguments) if arguments.gateway else _explainer(arguments).explain
    if arguments.jsonl:
        return _explain_lines(sys.stdin.buffer, explain)
    told = explain(_request_bytes(arguments.request))
    if "error" in told:
        raise CommandError(told["error"])
    print(json.dumps(told))
    return WELL


def _asked(arguments: argparse.Namespace) -> Callable[[bytes], Told]:
    if arguments.config is not None or arguments.rewrite:
        raise CommandError(
            "give --gateway or --config (with which --rewrite goes)", then="homing explain --help", code=MISUSE
        )
    try:
        token = os.environ.get("HOMING_ADMIN_TOKEN")
        return RemoteExplainer(arguments.gateway, arguments.tenant, token).explain
    except ValueError as error:
        raise CommandError(str(error), then="homing explain --help", code=MISUSE) from None


def _explainer(arguments: argparse.Namespace) -> Explainer:
    rewrites = _rewrites(arguments.rewrite)
    if arguments.config is None:
        if arguments.tenant is not None:
            raise CommandError(
                "--tenant needs --config FILE or --gateway URL", then="homing explain --help", code=MISUSE
            )
        return Explainer(rewrites=rewrites)
    config = load_config(arguments.config, os.environ)
    return Explainer(config, _tenant(config, arguments.tenant), rewrites)


def _rewrites(names: list[str] | None) -> Rewrites | None:
    try:
        return parse_rewrites(names) if names else None
    except ValueError as error:
        raise CommandError(str(error), then="docs/rewrites.md lists them", code=MISUSE) from None


def _tenant(config: Config, name: str | None) -> Tenant:
    secrets = load_secrets(config, os.environ)
    tenants = Tenants(
        config.tenants, secrets.digests, secrets.salt_key, expiries=secrets.expiries, revoked=secrets.revoked
    )
    if name is None and len(tenants.names) == 1:
        name = tenants.names[0]
    tenant = tenants.named(name) if name is not None else None
    if tenant is None:
        what = "the configuration has several tenants" if name is None else f"no tenant is named {name!r}"
        raise CommandError(what, then=f"name one: --tenant {'|'.join(tenants.names)}", code=MISUSE)
    return tenant


def _request_bytes(request: str) -> bytes:
    """REQUEST: JSON itself, standard input, or a file."""
    if request.lstrip().startswith("{"):
        return request.encode(errors="surrogateescape")
    if request == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(request).read_bytes()
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise CommandError(f"{request}: {reason}", then="REQUEST is a file, - or JSON", code=MISUSE) from None


class _Printer:
    """Prints answers in the order of their lines, each as soon as it is there."""

    def __init__(self) -> None:
        self.bad_lines = 0
        self.stopped = False
        self.room = BoundedSemaphore(READ_AHEAD_LINES)

    def show(self, answer: Future[Told]) -> None:
        """Wait for `answer` and print it; a reader that has gone stops everything."""
        try:
            told = answer.result()
            self.bad_lines += "error" in told
            if not self.stopped:
                print(json.dumps(told), flush=True)
        except BrokenPipeError:
            self.stopped = True
        finally:
            self.room.release()


def _explain_lines(lines: Iterable[bytes], explain: Callable[[bytes], Told]) -> int:
    """Tokenising releases the GIL, so threads use every core; one more prints."""
    printer = _Printer()
    with ThreadPoolExecutor(1) as printing, ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as working:
        for line in lines:
            printer.room.acquire()
            if printer.stopped:
                break
            printing.submit(printer.show, working.submit(explain, line))
    if printer.stopped:
        raise BrokenPipeError
    return PROBLEMS if printer.bad_lines else WELL
