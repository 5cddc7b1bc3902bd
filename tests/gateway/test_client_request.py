"""A client's request as plain attributes: the same as aiohttp's own, whichever part of it is asked for."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.http import HttpRequestParser, RawRequestMessage, StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web import BaseRequest, RequestHandler, Server

from gateway.client_request import ClientRequest

HEAD = b"POST /v1/x?y HTTP/1.1\r\nHost: a\r\nX-Request-ID: r\r\ncontent-LENGTH: 0\r\n\r\n"


def build_message(protocol: RequestHandler, head: bytes) -> RawRequestMessage:
    parser = HttpRequestParser(protocol, asyncio.get_running_loop(), 2**16)
    ((message, _),), _, _ = parser.feed_data(head)
    return message


async def build_both(head: bytes = HEAD) -> tuple[ClientRequest, BaseRequest]:
    async def nobody(_request: BaseRequest) -> None:
        raise AssertionError

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    protocol = RequestHandler(Server(nobody), loop=loop)
    message = build_message(protocol, head)
    theirs = BaseRequest(message, EMPTY_PAYLOAD, protocol, StreamWriter(protocol, loop), task, loop)
    return ClientRequest(message, EMPTY_PAYLOAD, protocol, task, loop), theirs


@pytest.mark.parametrize(
    "name",
    [
        "content", "content_length", "content_type", "headers", "keep_alive", "method", "path", "protocol",
        "raw_headers", "raw_path", "rel_url", "transport", "version",
    ],
)  # fmt: skip
async def test_it_says_what_aiohttps_own_says(name: str) -> None:
    """What the gateway reads, and what aiohttp reads of it when it answers itself."""
    ours, theirs = await build_both()
    assert getattr(ours, name) == getattr(theirs, name)


CLOSING = HEAD.replace(b"Host: a", b"Host: a\r\nconnection: close")


@pytest.mark.parametrize("head", [HEAD.replace(b"1.1", b"1.0"), CLOSING])
async def test_who_is_to_be_told_goodbye_is_told(head: bytes) -> None:
    """HTTP/1.0 and `connection: close` end the connection."""
    ours, theirs = await build_both(head)
    assert ours.keep_alive is theirs.keep_alive is False


async def test_the_names_of_its_fields_are_in_lower_case_and_in_order() -> None:
    """One look at them tells which of the fields that mean something are there."""
    ours, _ = await build_both()
    assert ours.field_names == [b"host", b"x-request-id", b"content-length"]
    assert not ours.underscored


async def test_a_name_with_an_underscore_is_noticed() -> None:
    """In a name, not in a value."""
    assert (await build_both(HEAD.replace(b"X-Request-ID", b"X_Request-ID")))[0].underscored
    assert not (await build_both(HEAD.replace(b": r", b": r_r")))[0].underscored


async def test_the_writer_is_made_once_and_for_who_asks() -> None:
    """It waits for clients that read slowly."""
    ours, _ = await build_both()
    assert ours.writer is ours.writer
    assert ours.writer.output_size == 0
