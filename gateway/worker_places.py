"""Where a worker that is added at run time may be: looked up once, checked, and held to the address that was found.

A name may be made to point somewhere else after it was checked (DNS rebinding); so what is dialled is the address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import Final

from gateway.addresses import WorkerAddress, literal_address
from gateway.errors import InvalidRequest

LOOK_UP_SECONDS: Final = 2.0

METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16"),
    )
)
"""Metadata services of clouds that are not link-local: Alibaba's, Oracle's, Amazon's and Google's by IPv6, Azure's."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


async def settled_address(address: WorkerAddress, networks: Sequence[IpNetwork]) -> WorkerAddress:
    """`address` with its host as an address that may be dialled; `InvalidRequest` when there is none."""
    found = literal_address(address.host)
    candidates = [found] if found is not None else await _look_up(address)
    for candidate in candidates:
        if (why := unfit(candidate, networks)) is not None:
            raise InvalidRequest(f"A worker cannot be at {address.netloc}: {why}.", param="url")
    return address._replace(host=str(candidates[0]))


def unfit(address: IpAddress, networks: Sequence[IpNetwork]) -> str | None:
    """Why no worker may be at an address; None where one may."""
    tunnelled = getattr(address, "sixtofour", None) or getattr(address, "teredo", None)
    if tunnelled is not None:
        return "it is a tunnel to another address"
    if address.is_link_local or address in METADATA:
        return "metadata services are there"
    if address.is_multicast or address.is_unspecified or (address.is_reserved and not address.is_loopback):
        return "nobody can listen there"
    if networks and not any(address in network for network in networks):
        return "it is outside of `listen.worker_networks`"
    return None


async def _look_up(address: WorkerAddress) -> list[IpAddress]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (TimeoutError, OSError, UnicodeError):
        raise InvalidRequest(f"The name {address.host} cannot be looked up.", param="url") from None
    literals = (literal_address(str(place[0])) for *_, place in found)
    return [literal for literal in literals if literal is not None]
