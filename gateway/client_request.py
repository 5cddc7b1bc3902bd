"""One request of a client: aiohttp's, but with attributes in place of properties, and without what few need."""

from __future__ import annotations

import asyncio

from aiohttp import HttpVersion
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.streams import StreamReader
from aiohttp.web import BaseRequest, RequestHandler
from multidict import CIMultiDictProxy


class ClientRequest(BaseRequest):
    """aiohttp's request to those parts of aiohttp that ask; `field_names` are its header fields', in lower case, and
    `underscored` says that one of them has a `_` in it.

    Most requests have none of the fields that are looked for: one look at the names is enough for all.
    """

    __slots__ = (
        "_made_writer", "content", "field_names", "headers", "keep_alive", "method", "protocol", "raw_headers",
        "raw_path", "underscored", "version",
    )  # fmt: skip

    ATTRS = BaseRequest.ATTRS | frozenset(__slots__)

    _client_max_size = _client_max_fields = 2**20

    content: StreamReader
    headers: CIMultiDictProxy[str]
    keep_alive: bool
    method: str
    protocol: RequestHandler
    raw_headers: tuple[tuple[bytes, bytes], ...]
    raw_path: str
    version: HttpVersion

    def __init__(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        task: asyncio.Task[None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._message = message
        self._payload = self.content = payload
        self._protocol = self.protocol = protocol
        self._headers = self.headers = message.headers
        self._method = self.method = message.method
        self._version = self.version = message.version
        self._rel_url = message.url
        self._task = task
        self._loop = loop
        self._cache = {}
        self._state = {}
        self._made_writer: StreamWriter | None = None
        self.raw_headers = message.raw_headers
        self.raw_path = message.path
        self.keep_alive = not message.should_close
        names = b"\n".join([name for name, _ in message.raw_headers]).lower()
        self.field_names = names.split(b"\n")
        self.underscored = b"_" in names

    @property
    def _payload_writer(self) -> StreamWriter:  # type: ignore[override]
        """aiohttp's writer of the answer, which only waits for clients here."""
        if self._made_writer is None:
            self._made_writer = StreamWriter(self.protocol, self._loop)
        return self._made_writer
