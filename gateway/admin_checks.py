"""Checks of where the gateway listens, and of who may do what on the admin port."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from gateway.addresses import is_loopback
from gateway.mistakes import Mistake
from gateway.secrets import EXAMPLE_MARKS, SecretError, read_secret
from gateway.settings import Listen

LEAST_TOKEN_BYTES: Final = 32


class HoldsToken(Protocol):
    """Where the token is put."""

    admin_token: str | None


def admin_mistakes(listen: Listen, environ: Mapping[str, str], secrets: HoldsToken) -> Iterator[Mistake]:
    """What is wrong with `listen`; puts the admin port's token into `secrets`."""
    if listen.port and listen.port == listen.admin_port:
        yield Mistake(("listen", "admin_port"), f"port {listen.port} is the API's already", "choose another")
    yield from _networks(listen)
    if listen.admin_token is not None:
        yield from _token(listen.admin_token, environ, secrets)
    elif listen.admin_changes and not is_loopback(listen.admin_host):
        what = f"whoever reaches {listen.admin_host} could add workers, and be sent prompts"
        yield Mistake(("listen", "admin_changes"), what, "set `admin_token: file:PATH`, or listen on 127.0.0.1")


def _networks(listen: Listen) -> Iterator[Mistake]:
    for index, network in enumerate(listen.worker_networks):
        try:
            ipaddress.ip_network(network)
        except ValueError:
            yield Mistake(("listen", "worker_networks", index), f"`{network}` is no network", "write 10.0.0.0/8")


def _token(reference: str, environ: Mapping[str, str], secrets: HoldsToken) -> Iterator[Mistake]:
    place = ("listen", "admin_token")
    hint = "make one with `openssl rand -hex 32`"
    try:
        token = read_secret(reference, environ)
    except SecretError as error:
        yield Mistake(place, str(error), hint)
        return
    if len(token) < LEAST_TOKEN_BYTES or not token.isascii() or not token.decode("ascii").isprintable():
        yield Mistake(place, f"the token needs at least {LEAST_TOKEN_BYTES} printable ASCII characters", hint)
    elif any(mark in token.lower() for mark in EXAMPLE_MARKS):
        yield Mistake(place, "the token comes from an example", hint)
    else:
        secrets.admin_token = token.decode("ascii")
