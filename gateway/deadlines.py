"""A caller's own deadline: read from its head, told to workers as what is left of it, and the end of the work at it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Final

from gateway.accounting import BROKEN_STREAM, Bill
from gateway.client_answer import ClientAnswer
from gateway.client_request import ClientRequest
from gateway.errors import DeadlinePassed, InvalidRequest

FIELD: Final = "x-request-timeout"
LEAST_SECONDS: Final = 0.001
_NAME: Final = FIELD.encode()
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")


def deadline_of(request: ClientRequest) -> float | None:
    """When the caller waits no longer, by the loop's clock: `x-request-timeout` seconds from now. None where it says
    nothing; raises `InvalidRequest` for what is no time.
    """
    if _NAME not in request.field_names:
        return None
    given = request.headers[FIELD]
    if not _SECONDS.fullmatch(given) or float(given) < LEAST_SECONDS:
        raise InvalidRequest(f"`{FIELD}` must be seconds, such as 30 or 2.5, and {LEAST_SECONDS} or more.", param=FIELD)
    return asyncio.get_running_loop().time() + float(given)


def remaining_line(deadline: float) -> bytes:
    """The header line that tells a worker what is left."""
    left = max(LEAST_SECONDS, deadline - asyncio.get_running_loop().time())
    return b"%b: %.3f\r\n" % (_NAME, left)


async def in_time(work: Awaitable[None], deadline: float, answer: ClientAnswer, bill: Bill) -> None:
    """Do it until the deadline; what is not done then is cancelled, at a worker as if its client had left. Raises
    `DeadlinePassed` when the caller is still to be told.
    """
    try:
        async with asyncio.timeout_at(deadline) as limit:
            await work
    except TimeoutError:
        if not limit.expired():
            raise
        _tell(answer, bill, DeadlinePassed(f"The request was given `{FIELD}` to be answered in, and that is over."))


def _tell(answer: ClientAnswer, bill: Bill, error: DeadlinePassed) -> None:
    """In band where a stream is under way; a cut answer never looks complete."""
    if not answer.started and not answer.head_sent:
        raise error
    bill.broke(BROKEN_STREAM, error.code or error.type)
    if answer.chunked and bill.call is not None and bill.call.stream:
        answer.in_band(error)
    else:
        answer.abort()
