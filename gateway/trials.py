"""What the data plane says of a worker between requests: whether it hangs, and a request of our own that tries it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.fleet import Fleet
from gateway.metrics import Metrics
from gateway.upstream import Upstream
from gateway.upstream_connection import Connection, UpstreamFault
from gateway.worker_state import Worker

TRIAL_TOKENS: Final = 4
TRIAL_PATH: Final = "/v1/completions"
TRIAL_FIELD: Final = "x-homing-trial"
"""Marks a trial for whoever counts what a worker is asked."""

SUSPECT_SHARE: Final = 0.25
"""Of the time that a first byte may take: a worker whose data plane is silent for so long, while others answer, is
tried."""

_BAD_FROM: Final = 500
_OVERLOADED: Final = 429


class Trials:
    """Tries workers, one request at a time each, and measures how long they have been silent.

    A trial asks for four streamed tokens and is good when its answer ends in time (`trial_seconds`), be it a refusal:
    what does not do completions answers 404, and answers.
    """

    def __init__(
        self,
        fleet: Fleet,
        upstream: Upstream,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        trial_seconds: float,
        first_byte_seconds: float,
    ) -> None:
        self._fleet = fleet
        self._upstream = upstream
        self._metrics = metrics
        self._clock = clock
        self._trial_seconds = trial_seconds
        self._suspect_seconds = max(trial_seconds, SUSPECT_SHARE * first_byte_seconds)

    async def good(self, worker: Worker) -> bool:
        """Whether the worker answers a small request now."""
        try:
            async with asyncio.timeout(self._trial_seconds):
                good = await self._ask(worker)
        except (UpstreamFault, TimeoutError):
            good = False
        self._metrics.trials_total.labels("good" if good else "bad").inc()
        return good

    def hangs(self, worker: Worker) -> bool:
        """Whether a second silent probe in a row means that it hangs: nothing has come of what it was asked either.

        A worker at full load misses probes too, but goes on sending. One silent probe may be our own doing.
        """
        return worker.silent_probes > 0 and worker.in_flight > 0 and self._quiet_seconds(worker) >= self._trial_seconds

    def suspect(self, worker: Worker) -> bool:
        """Whether it takes requests and answers none, though its probes are good and others answer."""
        if not worker.in_flight or self._quiet_seconds(worker) < self._suspect_seconds:
            return False
        since = self._clock() - self._suspect_seconds
        return any(other.heard_at > since for other in self._fleet.workers if other is not worker)

    def _quiet_seconds(self, worker: Worker) -> float:
        """Since when streams wait for a first byte, and none of any answer has come; 0 when none waits."""
        now, waiting, heard = self._clock(), None, worker.heard_at
        for connection in self._upstream.busy_at(worker.backend.address):
            if connection.answered:
                heard = max(heard, connection.last_byte_at)
            elif connection.streams and (waiting is None or connection.last_byte_at < waiting):
                waiting = connection.last_byte_at
        return 0.0 if waiting is None else max(0.0, now - max(waiting, heard))

    async def _ask(self, worker: Worker) -> bool:
        head, body = trial_request(worker)
        connection = await self._upstream.attempt(worker.backend.address, head, body)
        try:
            await _to_its_end(connection)
            status = connection.answered_head.status
            return connection.fault is None and status < _BAD_FROM and status != _OVERLOADED
        finally:
            self._upstream.release(connection)


def trial_request(worker: Worker) -> tuple[bytes, bytes]:
    """Head and body of a request for four tokens of the first model that the worker lists."""
    address = worker.backend.address
    model = next((card.id for card in worker.cards or ()), "")
    body = msgspec.json.encode({"model": model, "prompt": "1", "max_tokens": TRIAL_TOKENS, "stream": True})
    key = f"authorization: Bearer {worker.api_key}\r\n" if worker.api_key else ""
    head = (
        f"POST {address.base_path}{TRIAL_PATH} HTTP/1.1\r\nhost: {address.netloc}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{TRIAL_FIELD}: 1\r\n{key}\r\n"
    )
    return head.encode("latin-1"), body


async def _to_its_end(connection: Connection) -> None:
    connection.attach(lambda _: None)
    while not (connection.complete or connection.fault):
        await connection.wait()
