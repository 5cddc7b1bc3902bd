"""The few header fields of a client's request that mean something here, read with suspicion."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import HttpVersion11

from gateway.client_request import ClientRequest
from gateway.errors import InvalidRequest

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_SESSION: Final = re.compile(r"[!-~]{1,256}")
_TRACE_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACE_STATE: Final = re.compile(r"[ -~]{1,512}")


_ONCE: Final = frozenset((
    b"host", b"authorization", b"x-api-key", b"content-type", b"content-encoding", b"content-length",
    b"transfer-encoding", b"expect", b"x-request-id", b"x-session-id", b"x-homing-debug", b"traceparent",
    b"x-request-timeout",
))  # fmt: skip
"""Fields that mean something here; of two, others on the way might go by the other one."""


def refuse_doubtful(request: ClientRequest) -> None:
    """Raise `InvalidRequest` for a head that two readers could take for two different things."""
    told = request.field_names
    if request.underscored:
        raise InvalidRequest("A header field's name has `_` in it, which some take for `-`: leave it out.")
    if len(set(told)) != len(told):
        for name in sorted(_ONCE):
            if told.count(name) > 1:
                raise InvalidRequest(f"`{name.decode()}` is given more than once.", param=name.decode())
    if b"transfer-encoding" in told:
        _check_chunked(request)


def _check_chunked(request: ClientRequest) -> None:
    if request.version < HttpVersion11 or request.headers["transfer-encoding"].strip().lower() != "chunked":
        raise InvalidRequest("`transfer-encoding` must be chunked, and HTTP/1.1 spoken.", param="transfer-encoding")


def switches_protocol(request: ClientRequest) -> bool:
    """Whether another protocol is asked for, which is not spoken here: what follows may be meant in it."""
    return b"upgrade" in request.field_names or request.method == "CONNECT"


def request_id_of(request: ClientRequest) -> str | None:
    """The caller's own request id, if it is fit to be echoed."""
    given = request.headers["x-request-id"] if b"x-request-id" in request.field_names else None
    return given if given is not None and _REQUEST_ID.fullmatch(given) else None


def session_of(request: ClientRequest) -> str | None:
    """`x-session-id`, which asks for the placement of an earlier request of the same session."""
    given = request.headers["x-session-id"] if b"x-session-id" in request.field_names else None
    if given and not _SESSION.fullmatch(given):
        raise InvalidRequest("`x-session-id` must be 1 to 256 visible ASCII characters.", param="x-session-id")
    return given or None


def forwarded_lines(request: ClientRequest, request_id: str) -> bytes:
    """The header lines a worker gets: the id that we gave the request, and its trace, nothing else."""
    lines = f"x-request-id: {request_id}\r\n"
    parent = request.headers["traceparent"] if b"traceparent" in request.field_names else None
    if parent is not None and _TRACE_PARENT.fullmatch(parent):
        lines += f"traceparent: {parent}\r\n"
        state = request.headers.get("tracestate")
        if state is not None and _TRACE_STATE.fullmatch(state):
            lines += f"tracestate: {state}\r\n"
    return lines.encode("ascii")


def wants_debug(request: ClientRequest) -> bool:
    """Whether the caller asks which worker answered and why."""
    return b"x-homing-debug" in request.field_names and request.headers["x-homing-debug"] == "1"


def expects_continue(request: ClientRequest) -> bool:
    """Whether the client waits for a go-ahead before it sends its body."""
    if b"expect" not in request.field_names or request.version < HttpVersion11:
        return False
    return request.headers["expect"].lower() == "100-continue"
