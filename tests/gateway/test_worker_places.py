"""SSRF: a worker that is added at run time cannot be a metadata service, however it is written."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket

import pytest

from gateway.addresses import literal_address, parse_worker_url
from gateway.errors import InvalidRequest
from gateway.fleet import Fleet
from gateway.membership import Membership
from gateway.worker_places import settled_address, unfit
from gateway.worker_state import ServingFacts

PRIVATE = [ipaddress.ip_network("10.0.0.0/8")]
FORBIDDEN = [
    "http://169.254.169.254", "http://169.254.169.254:80/latest", "http://2852039166", "http://0xa9fea9fe",
    "http://0xa9.0xfe.0xa9.0xfe", "http://0251.0376.0251.0376", "http://169.254.43518", "http://169.16689662",
    "http://[::ffff:169.254.169.254]", "http://[::ffff:a9fe:a9fe]", "http://[fe80::1]", "http://[fe80::1%25eth0]",
    "http://100.100.100.200", "http://192.0.0.192", "http://[fd00:ec2::254]", "http://0.0.0.0", "http://[::]",
    "http://224.0.0.1", "http://[ff02::1]", "http://255.255.255.255", "http://240.0.0.1", "http://0",
    "https://10.0.0.1", "ftp://10.0.0.1", "file:///etc/passwd", "gopher://10.0.0.1", "http://user@10.0.0.1",
    "http://10.0.0.1@169.254.169.254", "http://10.0.0.1?x=1", "http://10.0.0.1#@169.254.169.254", "http://",
    "http:///v1", "http://10.0.0.1:0", "http://10.0.0.1:65536", "http://10.0.0.1:+80", "//10.0.0.1", "10.0.0.1:80",
    "http://10.0.0.1 :80", "http://10.0.0.1\r\nX: y", "http://10.0.0.1\\@169.254.169.254",
]  # fmt: skip
OUTSIDE = ["http://127.0.0.1", "http://8.8.8.8", "http://192.168.1.1", "http://[::1]", "http://11.0.0.1:8000"]


def build_membership(*networks: str) -> Membership:
    return Membership(Fleet({"m": ServingFacts()}), ("m",), {}, networks=networks)


async def add(membership: Membership, url: str) -> None:
    await membership.add(json.dumps({"url": url}).encode())


@pytest.mark.parametrize("url", FORBIDDEN)
@pytest.mark.row("G9", smoke=True)
async def test_no_spelling_of_a_forbidden_place_is_taken_in(url):
    """F-06, and nobody is dialled: nothing joins the fleet, so nothing is ever probed."""
    membership = build_membership()
    with pytest.raises(InvalidRequest) as caught:
        await add(membership, url)
    assert caught.value.param == "url"
    assert membership.workers == ()


@pytest.mark.parametrize("url", OUTSIDE)
async def test_with_networks_only_what_is_in_them_is_taken_in(url):
    """Loopback is a place like any other then."""
    membership = build_membership("10.0.0.0/8", "fd00::/8")
    with pytest.raises(InvalidRequest, match=r"outside of `listen\.worker_networks`"):
        await add(membership, url)
    await add(membership, "http://10.1.2.3:8000")
    await add(membership, "http://[fd00::7]:8000/v1")
    assert [worker.backend.address.host for worker in membership.workers] == ["10.1.2.3", "fd00::7"]


async def test_a_name_is_looked_up_once_and_its_address_dialled_from_then_on(monkeypatch):
    """DNS rebinding: what the name means later is of no matter; the worker keeps it as its own name."""
    answers = iter(["10.0.0.9", "169.254.169.254"])
    resolve_names(monkeypatch, lambda: [next(answers)])
    membership = build_membership("10.0.0.0/8")
    await add(membership, "http://gpu-0.workers:8000")
    worker = membership.workers[0]
    address = worker.backend.address
    assert (worker.name, address.host, address.port) == ("gpu-0.workers:8000", "10.0.0.9", 8000)


async def test_a_name_with_one_bad_address_among_good_ones_is_refused(monkeypatch):
    """Which of them would be dialled is the resolver's choice."""
    resolve_names(monkeypatch, lambda: ["10.0.0.9", "169.254.169.254"])
    with pytest.raises(InvalidRequest, match="metadata services"):
        await add(build_membership(), "http://gpu-0.workers:8000")


async def test_a_name_that_means_nothing_is_said(monkeypatch):
    """And nothing hangs on a resolver."""

    def fail() -> list[str]:
        raise socket.gaierror

    resolve_names(monkeypatch, fail)
    with pytest.raises(InvalidRequest, match="cannot be looked up"):
        await settled_address(parse_worker_url("http://gpu-0.workers"), PRIVATE)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "192.168.0.1", "8.8.8.8", "fd00::1", "::1"])
def test_ordinary_addresses_are_fit(host):
    """Without networks an operator may put a worker anywhere."""
    assert unfit(ipaddress.ip_address(host), []) is None


@pytest.mark.parametrize(
    "host", ["168.63.129.16", "fd20:ce::254", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:5601:5601"]
)
def test_metadata_services_of_other_names_and_tunnels_to_them_are_not(host):
    """Azure's and Google's; 6to4 and Teredo hold an IPv4 address."""
    assert unfit(ipaddress.ip_address(host), []) is not None


@pytest.mark.parametrize(
    ("host", "address"),
    [("2130706433", "127.0.0.1"), ("0x7f.1", "127.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("gpu-0", None)],
)
def test_an_address_is_read_as_a_resolver_would(host, address):
    """Decimal, hexadecimal, octal, short and mapped forms."""
    assert literal_address(host) == (ipaddress.ip_address(address) if address else None)


def resolve_names(monkeypatch, answers) -> None:
    """Names mean what `answers` says at each look-up."""

    async def look_up(host, port, **_more):
        del host
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port)) for address in answers()]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
