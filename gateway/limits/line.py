"""Where requests wait when every worker of their model is full: each with a deadline, woken when there is room.

A line for each model and its adapters. While anybody waits, who comes later waits behind him, so nobody snatches the
room that another is woken for. Who is woken places himself by the ordinary policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

from gateway.errors import GatewayError, GatewayShutdown, NoBackend, RateLimited
from gateway.fleet import Fleet
from gateway.limits.fair_queue import FairQueue, Ticket
from gateway.metrics import Metrics
from gateway.tenants import Tenant
from gateway.wire import Call
from router.core import Prompt
from router.router import Router

LENGTH: Final = 2
"""Most who wait, in multiples of what the fleet has room for."""

TICK_SECONDS: Final = 0.05
"""Between two looks for deadlines, and for room that nobody told of: a worker that came, a bound that was raised."""

LAST_FACTOR: Final = 1 / 64
"""The weight of who has spent his budget and is to be served last."""

HELD: Final = 256
"""Most who wait for a first worker to come."""

LATE, LONG = "it was not this request's turn in time", "as many wait as may"

FULL: Final = "full"
"""What `WorkerView.inadmissible_because` says of a worker that only lacks room."""

_AGAIN: Final = (("retry-after", "1"), ("retry-after-ms", "1000"))


class Waiting(Protocol):
    """What the line needs of a job."""

    call: Call
    tenant: Tenant
    prompt: Prompt
    router: Router
    session: str | None
    excluded: set[str]


class Patience(Protocol):
    """How long one may wait: for room, and for a first worker where there is none. 0 for not at all."""

    @property
    def queue_seconds(self) -> float:
        """While every worker is full."""
        ...

    @property
    def hold_seconds(self) -> float:
        """While no worker is up."""
        ...


@dataclass(slots=True, eq=False)
class _Place(Ticket):
    """A ticket with who waits for its turn, until when (monotonic seconds)."""

    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    deadline: float = inf


@dataclass(slots=True)
class _Lane:
    """The line of one model; `woken` have their turn and no worker yet."""

    model: str
    queue: FairQueue[_Place] = field(default_factory=FairQueue)
    woken: int = 0


class Line:
    """All lines of a gateway. `patience` is how long one may wait, as it is configured at the moment;
    `last_in_line` says of a tenant that everybody else goes first."""

    def __init__(
        self,
        fleet: Fleet,
        metrics: Metrics,
        clock: Callable[[], float],
        patience: Callable[[], Patience],
        last_in_line: Callable[[Tenant], bool] = lambda _: False,
    ) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._clock = clock
        self._patience = patience
        self._last_in_line = last_in_line
        self._lanes: dict[str, _Lane] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False

    def must_wait(self, job: Waiting) -> bool:
        """Whether others wait already."""
        return bool(self._lanes) and self._fleet.base_model(job.call.model) in self._lanes

    @property
    def open(self) -> bool:
        """Whether one may wait for room at all."""
        return self._patience().queue_seconds > 0

    def can_wait(self, job: Waiting) -> bool:
        """Whether it is only room that is missing, or a first worker, which the request itself may bring about."""
        workers = self._fleet.view(job.call.model).workers
        if any(w.inadmissible_because == FULL and w.name not in job.excluded for w in workers):
            return self.open
        return self._patience().hold_seconds > 0 and not job.excluded and not any(w.admissible for w in workers)

    async def wait(self, job: Waiting, place: Callable[[], str]) -> str:
        """Stand in the line, and place oneself by `place` when it is one's turn; returns the worker's name.

        Raises `RateLimited` or `NoBackend` when the line is too long or the time is over, and what `place` raises.
        """
        base = self._fleet.base_model(job.call.model)
        began = self._clock()
        ticket = self._ticket(job, began)
        lane = self._lanes.setdefault(base, _Lane(base))
        gauge = self._metrics.queued_requests.labels(job.call.model)
        gauge.inc()
        try:
            lane.queue.join(ticket)
            self._shorten(lane)
            self._wake(lane)
            self._arm()
            while (name := await self._turn(lane, job, ticket, place)) is None:
                ticket.turn = asyncio.get_running_loop().create_future()
                self._wake(lane)  # what this one cannot use is another's
                lane.queue.rejoin(ticket)
        except BaseException:
            lane.queue.leave(ticket)
            self._wake(lane)  # what this one had is another's
            raise
        else:
            return name
        finally:
            gauge.dec()
            self._metrics.queue_seconds.labels(job.call.model).observe(self._clock() - began)
            self._close(lane)

    def close(self) -> None:
        """The gateway leaves: whoever waits is told so, and who comes from now on."""
        self._leaving = True
        for lane in tuple(self._lanes.values()):
            self._dismiss(lane)

    def freed(self) -> None:
        """A worker has room for one more, or may have."""
        for lane in tuple(self._lanes.values()) if self._lanes else ():
            self._wake(lane)

    @property
    def waiting(self) -> int:
        """Requests in all lines."""
        return sum(len(lane.queue) + lane.woken for lane in self._lanes.values())

    async def _turn(self, lane: _Lane, job: Waiting, ticket: _Place, place: Callable[[], str]) -> str | None:
        """Wait, then place; None when another took the room, or it is at workers that this one cannot go to."""
        turn = ticket.turn
        try:
            await turn
            if self._clock() >= ticket.deadline:
                raise self._sent_away(lane, ticket, LATE)
            try:
                return place()
            except GatewayError:
                if self._room(job.call.model).keys() - job.excluded or not self.can_wait(job):
                    raise
                return None
        finally:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                lane.woken -= 1

    def _ticket(self, job: Waiting, now: float) -> _Place:
        tenant, view, patience = job.tenant, self._fleet.view(job.call.model), self._patience()
        full = any(worker.inadmissible_because in (None, FULL) for worker in view.workers)
        homes = job.router.homes_of(
            job.prompt, view, now, tenant=tenant.name, policy=tenant.policy, session=job.session
        )
        return _Place(
            tenant=tenant.name,
            weight=tenant.weight * (LAST_FACTOR if self._last_in_line(tenant) else 1.0),
            tokens=max(1, job.prompt.tokens),
            homes=homes,
            deadline=now + (patience.queue_seconds if full else patience.hold_seconds),
        )

    def _wake(self, lane: _Lane) -> None:
        """Give a turn to as many as there is room for."""
        room, now = self._room(lane.model), self._clock()
        if not room and self._nobody_left(lane):
            self._dismiss(lane)
        left = sum(room.values()) - lane.woken
        while left >= 1 and len(lane.queue):
            ticket = lane.queue.pop(lambda home: room.get(home, 0) >= 1)
            if ticket.turn.done():  # its caller has just left
                continue
            if ticket.deadline <= now:
                ticket.turn.set_exception(self._sent_away(lane, ticket, LATE))
                continue
            for home in ticket.homes:
                if room.get(home, 0) >= 1:
                    room[home] -= 1
                    break
            left -= 1
            lane.woken += 1
            ticket.turn.set_result(None)

    def _room(self, model: str) -> dict[str, float]:
        """How many more requests each worker takes that takes any."""
        workers = self._fleet.view(model).workers
        return {
            worker.name: inf if worker.max_in_flight is None else worker.max_in_flight - worker.in_flight
            for worker in workers
            if worker.admissible
        }

    def _nobody_left(self, lane: _Lane) -> bool:
        """Whether there is no worker that could have room, and none is waited for."""
        workers = self._fleet.view(lane.model).workers
        held = self._patience().hold_seconds > 0 and not self._leaving
        return not held and not any(w.inadmissible_because in (None, FULL) for w in workers)

    def _dismiss(self, lane: _Lane) -> None:
        """Tell everybody at once what they would only learn at their deadlines."""
        for ticket in tuple(lane.queue):
            lane.queue.leave(ticket)
            if not ticket.turn.done():
                leaves = GatewayShutdown("The gateway is shutting down; try again.")
                ticket.turn.set_exception(leaves if self._leaving else NoBackend(f"No worker of `{lane.model}` is up."))

    def _shorten(self, lane: _Lane) -> None:
        """Send away who is furthest from being served while too many wait."""
        workers = self._fleet.view(lane.model).workers
        bounds = [w.max_in_flight or 0 for w in workers if w.inadmissible_because in (None, FULL)]
        while len(lane.queue) > (LENGTH * max(1, sum(bounds)) if bounds else HELD):
            self._drop(lane, lane.queue.last, LONG)

    def _expire(self, lane: _Lane) -> None:
        now = self._clock()
        for ticket in [ticket for ticket in lane.queue if ticket.deadline <= now]:
            self._drop(lane, ticket, LATE)

    def _drop(self, lane: _Lane, ticket: _Place, because: str) -> None:
        error = self._sent_away(lane, ticket, because)
        lane.queue.leave(ticket)
        if not ticket.turn.done():
            ticket.turn.set_exception(error)

    def _sent_away(self, lane: _Lane, ticket: _Place, because: str) -> GatewayError:
        over = lane.queue.over_share(ticket.tenant)
        self._metrics.limit_rejections_total.labels(ticket.tenant, "share" if over else "queue", "true").inc()
        if over:
            what = f"Every worker of `{lane.model}` is full, and this key has more than its share waiting."
            return RateLimited(what, headers=_AGAIN)
        if any(worker.inadmissible_because in (None, FULL) for worker in self._fleet.view(lane.model).workers):
            return NoBackend(f"Every worker of `{lane.model}` is full, and {because}.")
        return NoBackend(f"No worker of `{lane.model}` is up, and {because}.")

    def _close(self, lane: _Lane) -> None:
        if not len(lane.queue) and not lane.woken:
            self._lanes.pop(lane.model, None)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for lane in tuple(self._lanes.values()):
            self._expire(lane)
            self._wake(lane)
        if self._lanes:
            self._arm()
