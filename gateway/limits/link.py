"""A connection to Redis for several commands at once: bounded in time, never retried, cut when anything goes wrong.

Only one task may use it at a time, so that no answer is ever read by somebody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from types import TracebackType
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

CALL_SECONDS: Final = 0.05
"""A request waits for this one."""

_LOOKS: Final = 2
"""The time is over when so many timers in a row found no answer. A loop that was late itself looks once more after it
has read what came meanwhile, and so does not take its own lateness for Redis'."""

Command = tuple[str | bytes | int, ...]


class LinkError(Exception):
    """Redis did not do what it was asked; the words hold nothing of the URL."""


class LimitsLink:
    """`async with` gives an unconnected link, which connects at its first call."""

    def __init__(self, url: str, call_seconds: float = CALL_SECONDS) -> None:
        """`call_seconds` bounds a call, connecting included."""
        self._call_seconds = call_seconds
        self._pool = ConnectionPool.from_url(
            url, socket_timeout=None, socket_connect_timeout=None, retry=Retry(NoBackoff(), 0), protocol=2
        )
        self._connection = self._unconnected()

    async def __aenter__(self) -> LimitsLink:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    async def cut(self) -> None:
        """Close the connection without a word; the next call has one of its own, whoever still reads from this one."""
        gone, self._connection = self._connection, self._unconnected()
        await gone.disconnect(nowait=True)

    async def call(self, commands: Sequence[Command], seconds: float | None = None) -> list[Any]:
        """The answers in the order asked; an error of one command stands in its place. Raises `LinkError`.

        `seconds` is for calls that no request waits for; they may take a little longer.
        """
        look_seconds = (seconds or self._call_seconds) / _LOOKS
        exchange = asyncio.ensure_future(_exchange(self._connection, commands))
        try:
            for _ in range(_LOOKS):
                await asyncio.wait((exchange,), timeout=look_seconds)
                if exchange.done():
                    return exchange.result()
        except Exception as error:  # noqa: BLE001 - what is not Redis, or no host's name, makes redis-py raise anything
            raise LinkError(type(error).__name__) from None
        finally:
            if not exchange.done() or exchange.exception() is not None:
                exchange.cancel()
                await self.cut()
        raise LinkError("no answer in time")

    def _unconnected(self) -> AbstractConnection:
        return self._pool.make_connection()  # type: ignore[no-any-return,no-untyped-call]


async def _exchange(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    await connection.send_packed_command(connection.pack_commands(commands))
    return [await _answer(connection) for _ in commands]


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(disable_decoding=True, timeout=inf)
    except ResponseError as error:
        return error
