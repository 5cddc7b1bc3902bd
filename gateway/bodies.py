"""Reading a request's body: bounded in bytes and in time, whatever encoding it comes in."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol

from aiohttp.web import RequestPayloadError

from gateway.client_request import ClientRequest
from gateway.errors import InvalidRequest, RequestTimeout, RequestTooLarge, UnsupportedEncoding
from gateway.sips import SIP_BYTES, sipping

if sys.version_info >= (3, 14):  # pragma: no cover
    from compression import zstd
else:
    from backports import zstd

BODY_SECONDS: Final = 30.0
LEAST_BYTES_PER_SECOND: Final = 1024
"""A body may take BODY_SECONDS, and longer only while it comes at least this fast on average."""

LINGER_SECONDS: Final = 1.0
"""How long a client that was answered before it had sent its body is left to see the answer."""

_NEAR_LIMIT_BYTES: Final = 1024 * 1024
"""So close to the limit a chunked body is read in small steps; more than what a loop and aiohttp take in unasked."""

_STEP_BYTES: Final = 256 * 1024
"""Most that one call of a decoder puts out; between calls the loop serves others."""

_ZSTD_WINDOW_LOG: Final = 23
"""8 MiB, what RFC 8878 wants every decoder to support; more would let a small body claim much memory."""


async def read_body(request: ClientRequest, limit_bytes: int, *, seconds: float = BODY_SECONDS) -> bytes:
    """The decoded body.

    Raises `RequestTooLarge` past `limit_bytes` (as sent or decoded), `UnsupportedEncoding`, `RequestTimeout` when it
    comes too slowly, `InvalidRequest` when it is cut or does not decode.
    """
    encoding = _encoding(request)
    if request.content.is_eof():
        body = _all_here(request)
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes)
        if encoding == "identity":
            return body
        pieces = _pieces_of(body)
    else:
        check_declared(request, limit_bytes)
        pieces = _pieces(request, limit_bytes, seconds)
    if encoding != "identity":
        pieces = _decoded(pieces, encoding)
    return await _joined(pieces, limit_bytes)


def check_declared(request: ClientRequest, limit_bytes: int) -> str:
    """The encoding of the body, which is not read yet; raises what its head alone is reason for."""
    encoding = _encoding(request)
    if (request.content_length or 0) > limit_bytes:
        raise _too_large(limit_bytes)
    return encoding


async def let_rest_pass(request: ClientRequest, most_bytes: int) -> None:
    """Give a client that was answered before its body was read a moment to see the answer.

    Reads the body on, up to `most_bytes` of it from its beginning, and takes nothing more in. A close with bytes
    unread would be a reset, which may overtake the answer. Behind a body that broke its framing nothing can be read:
    its client is told by our end of the stream that this was all.
    """
    content = request.content
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(LINGER_SECONDS):
            with contextlib.suppress(RequestPayloadError):
                while not content.is_eof() and content.total_bytes < most_bytes - _STEP_BYTES:
                    await content.readany()
            if not content.is_eof() and request.transport is not None:
                if content.exception() is None:
                    request.transport.pause_reading()
                else:
                    request.transport.write_eof()
                    request.protocol._pause_reading_for_buffer()  # which looks whether the client has left
                await asyncio.sleep(LINGER_SECONDS)


def _encoding(request: ClientRequest) -> str:
    if b"content-encoding" not in request.field_names:
        return "identity"
    values = request.headers.getall("Content-Encoding", ())
    encoding = ",".join(values).strip().lower() or "identity"
    if encoding not in ("identity", *_DECODERS):
        raise UnsupportedEncoding("Content-Encoding must be one of gzip, deflate, zstd or identity, and not stacked.")
    return encoding


async def _joined(pieces: AsyncIterator[bytes], limit_bytes: int) -> bytes:
    kept: list[bytes] = []
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        kept.append(piece)
    return kept[0] if len(kept) == 1 else b"".join(kept)


def _too_large(limit_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"The body is larger than {limit_bytes} bytes, decoded; that is the limit here.")


def _all_here(request: ClientRequest) -> bytes:
    try:
        return request.content.read_nowait()
    except RequestPayloadError:
        raise _cut() from None


def _cut() -> InvalidRequest:
    return InvalidRequest("The body is cut short or its framing is broken.")


async def _pieces_of(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _pieces(request: ClientRequest, limit_bytes: int, seconds: float) -> AsyncIterator[bytes]:
    """The body as sent, while it comes fast enough."""
    deadline = asyncio.get_running_loop().time() + seconds
    received = 0
    with ExitStack() as stack:
        sips = request.content_length is not None
        while True:
            if not sips and received > limit_bytes - _NEAR_LIMIT_BYTES:
                sips = True
                stack.enter_context(_sipping(request))
            piece = await _next_piece(request, deadline + received / LEAST_BYTES_PER_SECOND)
            if not piece:
                return
            received += len(piece)
            yield piece


@contextmanager
def _sipping(request: ClientRequest) -> Iterator[None]:
    """Take little in at a time, so that little is read in vain when the limit is passed."""
    content = request.content
    high_water, content._high_water = content._high_water, SIP_BYTES
    with sipping(request.transport):
        yield
    content._high_water = high_water


async def _next_piece(request: ClientRequest, deadline: float) -> bytes:
    try:
        async with asyncio.timeout_at(deadline):
            return await request.content.readany()
    except TimeoutError:
        raise RequestTimeout("The body came too slowly.") from None
    except RequestPayloadError:
        raise _cut() from None


async def _decoded(pieces: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    decoder: Decoder | None = None
    async for piece in pieces:
        decoder = decoder or _DECODERS[encoding](piece)
        try:
            for output in decoder.steps(piece):
                yield output
                await asyncio.sleep(0)
        except (zlib.error, zstd.ZstdError, EOFError):
            raise _garbled(encoding) from None
    if decoder is None or not decoder.ended:
        raise _garbled(encoding)


def _garbled(encoding: str) -> InvalidRequest:
    return InvalidRequest(f"The body is not one complete {encoding} stream.")


class Decoder(Protocol):
    """Decodes a stream piece by piece, in bounded steps."""

    @property
    def ended(self) -> bool:
        """Whether exactly one stream was read to its end, with nothing behind it."""
        ...

    def steps(self, data: bytes) -> Iterator[bytes]:
        """What `data` decodes to, at most `_STEP_BYTES` at a time."""
        ...


class _Zlib:
    def __init__(self, window_bits: int) -> None:
        self._decoder = zlib.decompressobj(window_bits)

    @property
    def ended(self) -> bool:
        return self._decoder.eof and not self._decoder.unused_data

    def steps(self, data: bytes) -> Iterator[bytes]:
        if self._decoder.eof:
            raise EOFError
        while True:
            output = self._decoder.decompress(data, _STEP_BYTES)
            yield output
            data = self._decoder.unconsumed_tail
            # A full step may have left output inside even where no input is left.
            if not data and len(output) < _STEP_BYTES:
                return


class _Zstd:
    def __init__(self) -> None:
        options = {int(zstd.DecompressionParameter.window_log_max): _ZSTD_WINDOW_LOG}
        self._decoder = zstd.ZstdDecompressor(options=options)

    @property
    def ended(self) -> bool:
        return self._decoder.eof and not self._decoder.unused_data

    def steps(self, data: bytes) -> Iterator[bytes]:
        yield self._decoder.decompress(data, _STEP_BYTES)
        while not self._decoder.eof and not self._decoder.needs_input:
            yield self._decoder.decompress(b"", _STEP_BYTES)


def _gzip(_first: bytes) -> Decoder:
    return _Zlib(16 + zlib.MAX_WBITS)


def _deflate(first: bytes) -> Decoder:
    """RFC 9110 means the zlib format; many clients send bare deflate, which hardly ever begins like a zlib header."""
    wrapped = len(first) >= 2 and first[0] & 0x0F == 8 and int.from_bytes(first[:2], "big") % 31 == 0
    return _Zlib(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


def _zstd(_first: bytes) -> Decoder:
    return _Zstd()


_DECODERS: Final[dict[str, Callable[[bytes], Decoder]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
