"""Where a worker listens: one parser for every URL of a worker, strict about what a worker's URL may hold."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

_WRITTEN = re.compile(r"[!-~]*")
"""A URL goes into request lines as it stands: no space, no control character, nothing beyond ASCII."""


class WorkerAddress(NamedTuple):
    """Host (no brackets), port, and the path before `/v1` ('' or '/prefix', never with a slash at its end)."""

    host: str
    port: int
    base_path: str = ""

    @property
    def netloc(self) -> str:
        """`host:port`, an IPv6 host in brackets: what stands in a Host header and serves as a default name."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as a URL, without a slash at its end."""
        return f"http://{self.netloc}{self.base_path}"


def parse_worker_url(url: str) -> WorkerAddress:
    """Read `http://HOST[:PORT][/PREFIX]`; a final `/v1` is dropped, since every request path brings its own.

    Raises ValueError, with the fix, for anything else: another scheme, credentials, a query, a bad port, or a
    link-local host (the metadata services of clouds live there).
    """
    if not _WRITTEN.fullmatch(url):
        raise ValueError("a worker's URL is written in ASCII without spaces, anything else as %XX")
    parts = urlsplit(url)
    # Said first and not quoted: what stands there may be a password or a key.
    if "@" in url:
        raise ValueError("a worker's URL carries no user or password: use api_key: file:… or env:…")
    if parts.query or parts.fragment:
        raise ValueError("a worker's URL has no query and no fragment: a key goes into api_key: file:… or env:…")
    if parts.scheme != "http":
        raise ValueError(f"a worker's URL starts with http:// (Homing speaks plain HTTP to workers), got {url!r}")
    host = parts.hostname
    if not host:
        raise ValueError(f"a worker's URL names a host: http://HOST:PORT, got {url!r}")
    if _is_link_local(host):
        raise ValueError(f"{host} is a link-local address, where no worker lives but metadata services do")
    return WorkerAddress(host, _port(url, parts.port if _port_is_sane(parts.netloc) else 0), _base_path(parts.path))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _port_is_sane(netloc: str) -> bool:
    tail = netloc.rpartition("]")[2] if "]" in netloc else netloc
    port = tail.partition(":")[2]
    return not port or (port.isdecimal() and len(port) <= 5 and int(port) < 65536)


def _port(url: str, port: int | None) -> int:
    if port is None:
        return 80
    if port == 0:
        raise ValueError(f"a port is a number from 1 to 65535, got {url!r}")
    return port


def _base_path(path: str) -> str:
    return path.rstrip("/").removesuffix("/v1").rstrip("/")


def literal_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that `host` spells, however a resolver would read it; None for a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            # Resolvers take 2852039166, 0xa9fe.0xa9fe and 0251.254.169.254 for addresses, too.
            address = ipaddress.ip_address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_link_local(host: str) -> bool:
    address = literal_address(host)
    return address is not None and address.is_link_local
