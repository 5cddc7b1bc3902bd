"""A client on raw sockets that keeps everything a caller could see: status, bytes, when they came, and how it ended."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.modes import MODEL

CANARY_PROMPT = "CANARY-PROMPT-7f3a91"
CANARY_KEY = "sk-CANARY-KEY-91d2"
KEYS = {"alpha": f"{CANARY_KEY}-alpha-0123456789", "beta": f"{CANARY_KEY}-beta-0123456789"}
ANSWER_SECONDS = 60.0
_numbers = itertools.count(1)


def new_nonce() -> str:
    """A mark that no other request of any process has."""
    return f"n{os.getpid()}-{next(_numbers)}"


def body_of(nonce: str, *, stream: bool, text: str | None = None, words: int = 16, **fields: Any) -> bytes:
    """A chat request; a canary is in every prompt, and each prompt is another unless `text` says otherwise."""
    content = text if text is not None else f"{nonce} {CANARY_PROMPT} " + "please answer " * (words // 2)
    asked = {"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": stream, "nonce": nonce}
    return json.dumps({**asked, **fields}).encode()


@dataclass
class Answer:
    """What came back. `trouble` says how it broke, where it did: refused, broke, late."""

    nonce: str
    stream: bool
    began: float
    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    first_at: float | None = None
    ended: float = 0.0
    trouble: str | None = None

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def ttft(self) -> float:
        return (self.first_at or self.ended) - self.began

    @property
    def done(self) -> bool:
        return b"data: [DONE]" in self.body

    @property
    def error(self) -> dict[str, Any] | None:
        """The error in the body: of a plain answer, or the last event's."""
        text = self.body.rstrip().rpartition(b"\n\n")[2].removeprefix(b"data: ")
        with suppress(ValueError):
            found = json.loads(text)
            return found.get("error") if isinstance(found, dict) else None
        return None

    @property
    def ok(self) -> bool:
        """A complete answer, and the answer to this very request."""
        whole = self.status == 200 and self.trouble is None and self.error is None
        return whole and (self.done or not self.stream) and self.nonce.encode() in self.body

    def __str__(self) -> str:
        return f"{self.status} {self.trouble or ''} {(self.error or {}).get('code')} after {self.seconds:.2f} s"


@dataclass
class Client:
    """Keeps connections as clients do. A kept one that breaks before a byte came back is tried once more, afresh."""

    port: int
    tenant: str = "alpha"
    seconds: float = ANSWER_SECONDS
    errors_file: Path | None = None
    stale: int = 0
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def ask(
        self,
        *,
        stream: bool = False,
        body: bytes | None = None,
        nonce: str | None = None,
        headers: str = "",
        on_bytes: Callable[[Answer], None] | None = None,
        **fields: Any,
    ) -> Answer:
        """One request to its end, whatever that is; never raises for what the other side does."""
        nonce = nonce or new_nonce()
        body = body_of(nonce, stream=stream, **fields) if body is None else body
        answer = Answer(nonce, stream, time.monotonic())
        try:
            async with asyncio.timeout(self.seconds):
                await self._exchange(answer, self.head(len(body), headers) + body, on_bytes)
        except TimeoutError:
            answer.trouble = "late"
        except ConnectionRefusedError:
            answer.trouble = "refused"
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            answer.trouble = f"broke ({type(error).__name__})"
        answer.ended = time.monotonic()
        if answer.status != 200 and self.errors_file is not None:
            with self.errors_file.open("ab") as sink:
                sink.write(answer.body + b"\n")
        return answer

    def head(self, length: int, headers: str = "") -> bytes:
        """A request's head, with the tenant's key."""
        key = KEYS.get(self.tenant, self.tenant)
        return (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n"
        ).encode("latin-1")

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def close(self) -> None:
        """Close what is kept."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    def _kept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A kept connection that is not known to be closed: uvloop raises RuntimeError on a write to one."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not writer.transport.is_closing():
                return reader, writer
            self.stale += 1
        return None

    async def _exchange(self, answer: Answer, sent: bytes, on_bytes: Callable[[Answer], None] | None) -> None:
        while True:
            kept = self._kept()
            reader, writer = kept or await self.open()
            try:
                writer.write(sent)
                await self._read(answer, reader, on_bytes)
            except (OSError, asyncio.IncompleteReadError):
                writer.close()
                if kept is None or answer.status:
                    raise
                self.stale += 1
                continue
            except BaseException:
                writer.close()
                raise
            if answer.fields.get("connection", "").lower() == "close":
                writer.close()
            else:
                self._idle.append((reader, writer))
            return

    async def _read(
        self, answer: Answer, reader: asyncio.StreamReader, on_bytes: Callable[[Answer], None] | None
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        answer.status = int(first.split(" ", 2)[1])
        pairs = (line.partition(":") for line in lines if line)
        answer.fields = {name.lower(): value.strip() for name, _, value in pairs}
        if answer.fields.get("transfer-encoding") != "chunked":
            answer.body = await reader.readexactly(int(answer.fields.get("content-length", "0")))
            answer.first_at = time.monotonic()
            return
        while size := int(await reader.readuntil(b"\r\n"), 16):
            answer.body += (await reader.readexactly(size + 2))[:-2]
            answer.first_at = answer.first_at or time.monotonic()
            if on_bytes is not None:
                on_bytes(answer)
        await reader.readexactly(2)


async def load(
    clients: Client | Sequence[Client], count: int, *, at_once: int = 32, stream: bool | None = None, **fields: Any
) -> list[Answer]:
    """So many requests, so many at a time, in turn over the clients; every second one a stream unless said."""
    clients = [clients] if isinstance(clients, Client) else clients
    numbers = itertools.count()
    answers: list[Answer] = []

    async def one_after_another() -> None:
        while (number := next(numbers)) < count:
            streams = number % 2 == 0 if stream is None else stream
            answers.append(await clients[number % len(clients)].ask(stream=streams, **fields))

    await asyncio.gather(*(one_after_another() for _ in range(min(at_once, count))))
    return answers


async def load_while(
    client: Client,
    running: Callable[[], bool],
    *,
    at_once: int = 8,
    fresh: Callable[[], dict[str, Any]] = dict,
    **fields: Any,
) -> list[Answer]:
    """Requests, so many at a time, for as long as `running` says; `fresh` makes more fields for each."""
    answers: list[Answer] = []

    async def one_after_another() -> None:
        while running():
            answers.append(await client.ask(**fields, **fresh()))

    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    return answers


async def leave(client: Client, when: Awaitable[Any], *, stream: bool, abort: bool, nonce: str) -> float:
    """Ask, wait for `when`, leave by a close or a reset; the moment of leaving."""
    body = body_of(nonce, stream=stream)
    _, writer = await client.open()
    writer.write(client.head(len(body)) + body)
    await when
    if abort:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
    return time.monotonic()


def failed(answers: Sequence[Answer]) -> list[Answer]:
    """Those that are no complete answer."""
    return [answer for answer in answers if not answer.ok]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which such a share lies; nan of nothing."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else float("nan")
