"""Placing a request and trying workers until one answers: when another may be asked, and when never again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from gateway.acceptance import RED_AFTER_SECONDS
from gateway.accounting import Bill
from gateway.addresses import WorkerAddress
from gateway.answer_lines import debug_lines, timing_lines
from gateway.cache_wishes import CacheWishes, with_wishes
from gateway.client_answer import ClientAnswer
from gateway.deadlines import remaining_line
from gateway.errors import GatewayError, NoBackend, UpstreamFailed, UpstreamTimedOut
from gateway.events.retelling import asking_to_tell_again
from gateway.fault_settings import Faults
from gateway.fleet import Fleet
from gateway.limits.line import FULL, Line
from gateway.metrics import Metrics
from gateway.relay import gateway_error, relay
from gateway.retries import Retries
from gateway.tenants import Tenant
from gateway.upstream import Upstream
from gateway.upstream_connection import Cause, Connection, UpstreamFault
from gateway.wire import Call, Endpoint
from gateway.worker_state import Outcome, Worker
from router.core import Placement, Prompt
from router.router import Router

MOST_EXECUTIONS: Final = 2
"""Workers that may have begun the request: one that dies of it takes at most one other along."""

STALLED_READER_SECONDS: Final = 60.0
"""How long a client may leave what was sent to it unread before it is given up."""

UNCACHED_POLICY: Final = "least_loaded"
"""For what no cache helps with, such as /tokenize."""

_OVERLOADED: Final = frozenset((429, 503))
_ERRED: Final = 500
_NOT_THERE: Final = 501

_OUTCOMES: Final = {Cause.REFUSED: Outcome.REFUSED, Cause.SILENT: Outcome.SILENT}


@dataclass(slots=True)
class Job:
    """One request on its way to a worker, and what was tried so far."""

    call: Call
    tenant: Tenant
    prompt: Prompt
    router: Router
    session: str | None
    fields: bytes
    """Header lines for the worker that come from the client, each ended by CRLF."""
    body: bytes
    strip_usage: bool
    debug: bool
    deadline: float | None = None
    """When its caller waits no longer, by the loop's clock."""
    wishes: CacheWishes | None = None
    attempts: int = 0
    executions: int = 0
    excluded: set[str] = field(default_factory=set)
    retry_reason: str = ""
    last_error: GatewayError | None = None
    fingerprint: bytes | None = None
    tries_prompt: bool = False
    """Whether others with its prompt wait for it to end: a worker has died of such a one."""


class _UnderSuspicion(Exception):
    """It is the request's turn, and another with its prompt is being tried."""


class Attempts:
    """Tries workers for jobs."""

    def __init__(
        self,
        fleet: Fleet,
        upstream: Upstream,
        metrics: Metrics,
        clock: Callable[[], float],
        stalled_reader_seconds: float = STALLED_READER_SECONDS,
        faults: Faults | None = None,
        line: Line | None = None,
    ) -> None:
        """In `line` requests wait while every worker is full; without one they are refused."""
        self.retries = Retries(fleet, upstream, metrics, clock, faults or Faults())
        self._fleet = fleet
        self._upstream = upstream
        self._metrics = metrics
        self._clock = clock
        self._stalled_reader_seconds = stalled_reader_seconds
        self._line = line
        if line is not None:
            upstream.on_close(line.close)

    @property
    def fail(self) -> bool:
        """Whether no worker has taken a request for a while, though there were some."""
        return self.retries.acceptance.fails(self._clock())

    async def run(self, job: Job, answer: ClientAnswer, bill: Bill) -> None:
        """Place, lease, forward, relay; on to another worker only while not a byte of an answer was sent.

        Raises `GatewayError` when the caller is still to be told how it ended.
        """
        if self.retries.watching:
            await self.retries.let_in(job)
        try:
            await self._until_answered(job, answer, bill)
        except (UpstreamFailed, UpstreamTimedOut, NoBackend) as error:
            if not (isinstance(error, NoBackend) and self._at_work(job)):
                self.retries.acceptance.refused(self._clock())
            raise
        finally:
            if job.tries_prompt:
                self.retries.over(job, well=bill.finished_well)

    async def _until_answered(self, job: Job, answer: ClientAnswer, bill: Bill) -> None:
        while True:
            worker_name = await self._placed(job, bill)
            try:
                async with self._fleet.lease(worker_name) as lease:
                    if await self._try(job, lease.worker, answer, bill):
                        return
            finally:
                if self._line is not None:
                    self._line.freed()
            await self.retries.back_off(job)

    def _at_work(self, job: Job) -> bool:
        """Whether the workers are full, and something comes of what they do: that is load, and no fault."""
        full = any(view.inadmissible_because == FULL for view in self._fleet.view(job.call.model).workers)
        return full and self._upstream.moves(self._clock() - RED_AFTER_SECONDS)

    async def _placed(self, job: Job, bill: Bill) -> str:
        """As `_place`, after a time in the line where others wait already, or where every worker is full."""
        line = self._line
        if line is None or not line.must_wait(job):
            try:
                return self._place(job, bill)
            except GatewayError:
                if line is None or not line.can_wait(job):
                    raise

        def place() -> str:
            bill.resume()
            return self._place(job, bill)

        def place_if_let_in() -> str:
            if self.retries.watching and not self.retries.lets_in(job):
                raise _UnderSuspicion
            return place()

        try:
            return await line.wait(job, place_if_let_in)
        except _UnderSuspicion:  # a worker died of its prompt while it stood there
            await self.retries.let_in(job)
            return await line.wait(job, place)

    def _place(self, job: Job, bill: Bill) -> str:
        """A worker that was not tried yet; raises the last attempt's error, or `NoBackend`, when there is none."""
        view, began = self._fleet.view(job.call.model), self._clock()
        placement = job.router.place(
            job.prompt,
            view,
            began,
            request_id=bill.request_id,
            tenant=job.tenant.name,
            policy=job.tenant.policy if job.call.endpoint.caches else UNCACHED_POLICY,
            session=job.session,
            max_tokens=job.call.max_tokens,
            exclude=frozenset(job.excluded),
            streams=job.call.stream,
            numbered=bill.to_explain(),
        )
        self._metrics.place_seconds.labels(job.call.model).observe(self._clock() - began)
        if placement.worker is None:
            raise job.last_error or NoBackend(f"No worker for `{job.call.model}` can take a request now.")
        if job.attempts:
            self._metrics.upstream_retries_total.labels(job.retry_reason).inc()
        else:
            self.retries.began(began)
        job.attempts += 1
        bill.placed(placement, job.router)
        return placement.worker

    async def _try(self, job: Job, worker: Worker, answer: ClientAnswer, bill: Bill) -> bool:
        """One attempt. False asks for another worker; `GatewayError` ends the request."""
        body = _body_for(job, worker, bill.placement)
        head = request_head(job, worker, len(body))
        try:
            connection = await self._upstream.attempt(worker.backend.address, head, body, streams=job.call.stream)
        except UpstreamFault as fault:
            self._report(worker, fault)
            if fault.cause is Cause.BROKE:
                await self.retries.look_into(job, worker)
            self._go_on_after(job, worker, fault)
            return False
        try:
            return await self._relay(job, worker, connection, answer, bill)
        finally:
            self._upstream.release(connection)

    async def _relay(self, job: Job, worker: Worker, connection: Connection, answer: ClientAnswer, bill: Bill) -> bool:
        head = connection.answered_head
        if head.status in _OVERLOADED:
            self.retries.overloaded(worker, head.field(b"retry-after"))
            if self.retries.another(job, worker):
                job.retry_reason = "overloaded"
                return False
        elif self.retries.acceptance.refused_since is not None:
            self.retries.acceptance.accepted()
        worker.heard_at = connection.last_byte_at
        answer.fields += timing_lines(bill, self._clock())
        if job.debug and bill.placement is not None:
            answer.fields += debug_lines(bill.placement, job.prompt)
        try:
            await relay(connection, answer, bill, strip=job.strip_usage, stalled_seconds=self._stalled_reader_seconds)
        finally:
            worker.heard_at = connection.last_byte_at
            self._report(worker, connection.fault, head.status)
            if connection.fault is not None and connection.fault.cause is Cause.BROKE:
                self.retries.look_into_soon(job, worker)
        return True

    def _go_on_after(self, job: Job, worker: Worker, fault: UpstreamFault) -> None:
        """Take note of a failed attempt; raises when it was the last."""
        error = gateway_error(fault)
        job.executions += fault.cause is not Cause.REFUSED
        # A worker that stayed silent has used up the caller's patience, and may still be at work on it.
        if job.executions >= MOST_EXECUTIONS or fault.cause in (Cause.SILENT, Cause.SHUTDOWN, Cause.FILES):
            raise error
        if not self.retries.another(job, worker, may_wait=self._line is not None and self._line.open):
            raise error
        job.retry_reason = fault.cause.value
        job.last_error = error

    def _report(self, worker: Worker, fault: UpstreamFault | None, status: int = 0) -> None:
        if fault is None:
            erred = status >= _ERRED and status not in _OVERLOADED and status != _NOT_THERE
            self._fleet.report(worker, Outcome.ERRED if erred else Outcome.ANSWERED)
        elif fault.cause not in (Cause.SHUTDOWN, Cause.CLIENT, Cause.FILES):
            self._fleet.report(worker, _OUTCOMES.get(fault.cause, Outcome.BROKE))


def _body_for(job: Job, worker: Worker, placement: Placement | None) -> bytes:
    """The job's body, with wishes for those who understand them; a worker whose events began unheard is asked to tell
    what it holds of the prompt."""
    body = job.body if job.wishes is None else with_wishes(job.body, job.wishes, worker.cache_fields)
    if worker.lacks is None or placement is None or not worker.lacks(job.prompt, placement.predicted_cached_tokens):
        return body
    return asking_to_tell_again(body)


def request_head(job: Job, worker: Worker, body_bytes: int) -> bytes:
    """The head of the request to a worker: nothing of the client's own head but what `job.fields` has."""
    call = job.call
    head = _head_begun(call.endpoint, worker.backend.address, call.stream, worker.api_key)
    fields = job.fields if job.deadline is None else job.fields + remaining_line(job.deadline)
    return b"%b%d\r\n%b\r\n" % (head, body_bytes, fields)


@lru_cache(1024)
def _head_begun(endpoint: Endpoint, address: WorkerAddress, streams: bool, api_key: str | None) -> bytes:
    key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
    accepts = "text/event-stream" if streams else "application/json"
    return (
        f"POST {address.base_path}{endpoint.path} HTTP/1.1\r\n"
        f"host: {address.netloc}\r\n"
        f"accept: {accepts}\r\n"
        "accept-encoding: identity\r\n"
        f"content-type: application/json\r\n"
        f"{key}content-length: "
    ).encode("latin-1")
