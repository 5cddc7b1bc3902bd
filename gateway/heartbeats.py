"""Heartbeats before the first byte of a stream: what keeps load balancers from cutting a request that is still queued.

The first one takes the head along: what goes wrong after it is told in band. Another worker may still be tried, since
not a byte of an answer has been sent.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from gateway.client_answer import ClientAnswer


class Heartbeats:
    """`with Heartbeats(answer, seconds)`: one every `seconds` until the answer's first byte, or the end.

    Not done: heartbeats within a stream whose worker pauses; the idle timeout ends that sooner than load balancers do.
    """

    def __init__(self, answer: ClientAnswer, seconds: float) -> None:
        self._answer = answer
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Heartbeats:
        self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._beat)

    def _beat(self) -> None:
        self._timer = None
        if self._answer.started:
            return
        if not self._answer.stalled:
            self._answer.heartbeat()
        self._wait()
