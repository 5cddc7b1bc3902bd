"""The two connections to Redis, one to add news and one to read it: bounded in time, never retried, cut when cancelled.

redis-py's client would retry and wait for seconds; its connections alone do neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

CALL_SECONDS: Final = 0.25
"""A call that Redis answers at once, connecting included. No request waits for it, and a gateway whose CPU is short
must not take its own lateness for Redis'.
"""

PAGE_SECONDS: Final = 1.0
"""A page of news, which may be long; nobody waits for it but the reader."""

ENTRIES_PER_PAGE: Final = 64
FIELD: Final = b"n"

_Meaning = TypeVar("_Meaning")


class LinkError(Exception):
    """Redis did not do what it was asked; the words say what happened and hold nothing of the URL."""


class Entry(NamedTuple):
    """One entry of the stream; `value` is None where it is not one of ours."""

    id: bytes
    value: bytes | None

    @property
    def at(self) -> float:
        """When it was added: epoch seconds by Redis' clock."""
        return id_seconds(self.id)


def id_seconds(entry_id: bytes) -> float:
    """The time in an entry's id (`milliseconds-number`), epoch seconds."""
    return int(entry_id.partition(b"-")[0]) / 1e3


class Link:
    """One stream of one Redis; `async with` gives an unconnected link, which connects at its first call."""

    def __init__(self, url: str, stream: str) -> None:
        self._pool = ConnectionPool.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=CALL_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._stream = stream
        self._writer: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        self._reader: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Link:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    async def cut(self) -> None:
        """Close both connections without a word; the next call connects anew."""
        for connection in (self._writer, self._reader):
            await connection.disconnect(nowait=True)

    async def add(self, value: bytes, keep_entries: int) -> None:
        """Append a batch, and let the stream forget what is older than about `keep_entries` entries."""
        await self._call(self._writer, "XADD", self._stream, "MAXLEN", "~", keep_entries, "*", FIELD, value)

    async def read(self, after: bytes, wait_seconds: float, most_entries: int = ENTRIES_PER_PAGE) -> list[Entry]:
        """The next entries after an id, the oldest first; waits for one at most so long."""
        block = ("BLOCK", round(wait_seconds * 1e3)) if wait_seconds else ()
        command = ("XREAD", "COUNT", most_entries, *block, "STREAMS", self._stream, after)
        answer = await self._call(self._reader, *command, seconds=wait_seconds + PAGE_SECONDS)
        return _understood(_entries, answer)

    async def time(self) -> float:
        """Redis' clock: epoch seconds."""
        return _understood(_seconds, await self._call(self._reader, "TIME"))

    async def tend(self, expire_seconds: int) -> int:
        """Let the stream live so much longer; returns how many entries it has."""
        await self._call(self._writer, "EXPIRE", self._stream, expire_seconds)
        return _understood(int, await self._call(self._writer, "XLEN", self._stream))

    async def _call(self, connection: AbstractConnection, *command: Any, seconds: float = CALL_SECONDS) -> Any:
        """One command and its answer, connecting included. Whatever goes wrong cuts the connection.

        So no later call reads this one's answer. The time limit is ours: redis-py, given one, would return None and
        leave the answer to the next call, and its own limit on sending may swallow a cancellation.
        """
        try:
            async with asyncio.timeout(seconds):
                await connection.send_command(*command)
                return await connection.read_response(disable_decoding=True, timeout=inf)
        except ResponseError as error:
            raise LinkError(f"Redis says {str(error).split(' ', 1)[0][:40]}") from None
        except TimeoutError:
            await connection.disconnect(nowait=True)
            raise LinkError("no answer in time") from None
        except Exception as error:  # noqa: BLE001 - what is not Redis, or no host's name, makes redis-py raise anything
            await connection.disconnect(nowait=True)
            raise LinkError(type(error).__name__) from None
        except asyncio.CancelledError:
            await connection.disconnect(nowait=True)
            raise


def _understood(read: Callable[[Any], _Meaning], answer: Any) -> _Meaning:
    try:
        return read(answer)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise LinkError("an answer that is none of Redis'") from None


def _seconds(answer: Any) -> float:
    if not isinstance(answer, list):  # text can be unpacked too
        raise TypeError
    seconds, micros = answer
    return int(seconds) + int(micros) / 1e6


def _entries(answer: Any) -> list[Entry]:
    """The entries in an answer to XREAD of one stream: [[stream, [[id, [field, value, …]], …]]], or nothing."""
    entries = [Entry(one, _value(fields)) for one, fields in answer[0][1]] if answer else []
    for entry in entries:
        entry.at  # noqa: B018  (reading it checks it)
    return entries


def _value(fields: Sequence[Any] | None) -> bytes | None:
    if fields is not None and len(fields) == 2 and fields[0] == FIELD:
        return fields[1] if isinstance(fields[1], bytes) else None
    return None
