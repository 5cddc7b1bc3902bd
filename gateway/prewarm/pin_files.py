"""Pinned prompts on disk: a request body in a file, read as the API would read it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from gateway.wire import Call, Endpoint, parse_call

MOST_BYTES: Final = 4 * 2**20

_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class PinError(ValueError):
    """A file that cannot be read or is no request; the message quotes nothing of it."""


def read_pin(path: Path) -> Call:
    """The request in a file: of the chat endpoint if it has `messages`. Raises `PinError`, or `InvalidRequest` as the
    API would."""
    try:
        with path.open("rb") as file:
            body = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise PinError(f"cannot read {path}: {error.strerror or error}") from None
    if len(body) > MOST_BYTES:
        raise PinError(f"{path} is larger than {MOST_BYTES} bytes")
    try:
        chat = "messages" in _RAW.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise PinError(f"{path} is not a JSON object") from None
    return parse_call(Endpoint.CHAT if chat else Endpoint.COMPLETIONS, body.strip())
