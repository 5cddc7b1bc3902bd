"""Reading a connection in small steps, for as long as no more than a little may be read too much."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

SIP_BYTES: Final = 16 * 1024
"""Most that is read at once; loops read 256 KiB otherwise."""


@contextmanager
def sipping(transport: asyncio.Transport | None) -> Iterator[None]:
    """Read the connection in sips until the block ends. Nothing happens where it is gone."""
    if transport is None or transport.is_closing():
        yield
        return
    protocol = cast(asyncio.Protocol, transport.get_protocol())
    _switch(transport, _Sips(protocol))
    try:
        yield
    finally:
        _switch(transport, protocol)


def _switch(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    """Loops take note of a protocol's kind of reading when they begin to read."""
    if transport.is_closing():
        return
    reading = transport.is_reading()
    if reading:
        transport.pause_reading()
    transport.set_protocol(protocol)
    if reading:
        transport.resume_reading()


class _Sips(asyncio.BufferedProtocol):
    """Stands before another protocol and hands it what comes, little by little."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._buffer = bytearray(SIP_BYTES)

    def get_buffer(self, _size_hint: int) -> bytearray:
        """Where the loop reads into."""
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        """So much was read."""
        self._protocol.data_received(bytes(memoryview(self._buffer)[:size]))

    def eof_received(self) -> bool | None:
        """The other side ended."""
        return self._protocol.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is no more."""
        self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        """The other side reads too slowly."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._protocol.resume_writing()
