"""Asking a worker to tell again what a request finds cached: for a stream whose beginning nobody repeats any more.

What was stored before is never told again by itself, and what is stored behind it cannot be placed. vLLM (from 0.29)
and our worker tell a request's reused blocks anew when it says so in `vllm_xargs`; others have no use for the key.
"""

from __future__ import annotations

from typing import Final

import msgspec

FIELD: Final = "vllm_xargs"
MODE: Final = "kv_cache_report_mode"
FULL: Final = msgspec.Raw(b'"full"')

_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def asking_to_tell_again(body: bytes) -> bytes:
    """`body` with mode `full`; every other value keeps its bytes. A mode that is there already is left."""
    fields = _RAW.decode(body)
    given = fields.get(FIELD)
    extra = {} if given is None or bytes(given) == b"null" else _RAW.decode(given)
    if MODE in extra:
        return body
    fields[FIELD] = msgspec.Raw(msgspec.json.encode({**extra, MODE: FULL}))
    return msgspec.json.encode(fields)
