"""What every hostile message is built of: a good request, and ways to say one thing of it differently."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello there"}]}).encode()
CHAT = "/v1/chat/completions"
LENGTH = f"content-length: {len(BODY)}"
CHUNKED = "transfer-encoding: chunked"
ONE_CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
LAST_CHUNK = b"0\r\n\r\n"


class Message(NamedTuple):
    """Bytes of one connection, and how many requests of them are to reach a worker."""

    name: str
    wire: bytes
    requests: int = 0


def request(
    *lines: str,
    body: bytes = BODY,
    target: str = CHAT,
    method: str = "POST",
    version: str = "HTTP/1.1",
    host: str = "a",
) -> bytes:
    """A request with a good key and exactly these lines beside it; no framing of its own."""
    first = [f"{method} {target} {version}", *([f"host: {host}"] if host else []), "authorization: Bearer acme-key"]
    return "\r\n".join([*first, *lines]).encode("latin-1") + b"\r\n\r\n" + body


def good(*lines: str) -> bytes:
    """A good request with these lines more."""
    return request(LENGTH, *lines)


def family(name: str, wires: Iterable[bytes], requests: int = 0) -> list[Message]:
    """Messages of one kind, numbered."""
    return [Message(f"{name} {number}", wire, requests) for number, wire in enumerate(wires)]
