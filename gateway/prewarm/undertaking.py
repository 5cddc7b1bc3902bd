"""One worker's warm-up, or the moving of what a leaving worker holds: prompt after prompt, behind real requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any, Final, NamedTuple

from gateway.fleet import Fleet, Lease, UnknownWorker
from gateway.metrics import Metrics
from gateway.prewarm.budget import Budget
from gateway.prewarm.plan import LOOKS_AT_ONCE, NO_GAIN, Gain, Plan, joiner_gain, leaver_gain
from gateway.prewarm.sender import How, Sender, SendError
from gateway.prewarm.store import KeptPrompt, PromptStore
from gateway.settings import Prewarm
from gateway.worker_state import State, Worker
from router.router import Router

POLL_SECONDS: Final = 0.05
"""Between two looks at a worker's queue: what a request that comes meanwhile may have to wait before it is noticed."""

LEAST_TO_YIELD_SECONDS: Final = 0.25
"""What is nearer to its end than this is let end; breaking it off would cost more than it saves. What is later than
its estimate by more is near no end that anybody knows."""

RING_SECONDS: Final = 0.4
"""A change of the fleet has reached the ring by then: twice what routers gather changes for."""

MOST_FAULTS: Final = 3
"""So many failures at a worker end its warm-up."""

MOST_TRIES: Final = 3
"""How often a prompt is begun that others' requests interrupt."""


class Kind(Enum):
    """Why a worker's prompts are looked after."""

    JOIN = "join"
    RESTART = "restart"
    """It joined again and has lost what it held."""
    LEAVE = "leave"


class Tools(NamedTuple):
    """What all undertakings share. `routers` gives the router of a model, `clock` monotonic seconds; `replicas` tells
    how many gateways warm the same worker, each with the prompts that it has seen, within its part of the budget."""

    store: PromptStore
    fleet: Fleet
    routers: Callable[[str], Router]
    sender: Sender
    metrics: Metrics
    settings: Prewarm
    clock: Callable[[], float]
    replicas: Callable[[], int]


class Undertaking:
    """Runs once, to its end or until it is cancelled. The counts are prompts, tokens that workers lacked, seconds."""

    def __init__(self, tools: Tools, worker: Worker, kind: Kind) -> None:
        settings = tools.settings
        self._tools = tools
        self._worker = worker
        self.kind = kind
        self._budget = Budget(
            settings.budget_seconds / max(1, tools.replicas()), tools.clock() + settings.deadline_seconds
        )
        self._plan: Plan | None = None
        self._ids = map(f"prewarm-{worker.name}-{id(self):x}-{{}}".format, itertools.count(1))
        self._sent: set[str] = set()
        self._faults = 0
        self._tries: dict[bytes, int] = {}
        self._left_prompts = 0
        self.ended = False
        self.prompts = 0
        self.tokens = 0

    def describe(self) -> dict[str, Any]:
        """Plain data for /workers."""
        return {
            "why": self.kind.value,
            "ended": self.ended,
            "prompts": self.prompts,
            "tokens": self.tokens,
            "prefill_seconds": round(self._budget.spent_seconds, 3),
            "left_prompts": len(self._plan) if self._plan is not None else self._left_prompts,
        }

    async def run(self) -> None:
        """Look at every kept prompt, then give what is worth it, the most valuable first."""
        try:
            await self._work_through()
        finally:
            self.end()

    def end(self) -> None:
        """Nothing is done after this. What was not done is counted, and no prompt is held any more."""
        self.ended = True
        if self._plan is not None:
            self._left_prompts = len(self._plan)
            if self._left_prompts:
                self._skipped(self._why_ended(), self._left_prompts)
            self._plan = None

    async def _work_through(self) -> None:
        for kept in itertools.islice(self._tools.store, 1):
            self._homes_of(kept)  # asked at once, so that the ring is made new in time
        await asyncio.sleep(RING_SECONDS)
        found = [pair async for pair in self._survey()]
        self._plan = Plan(found, self._gain, self._tools.clock())
        async with asyncio.TaskGroup() as together:
            for _ in range(self._tools.settings.concurrency):
                together.create_task(self._give_all(self._plan))

    async def _survey(self) -> AsyncIterator[tuple[KeptPrompt, Gain]]:
        for number, kept in enumerate(self._tools.store):
            if (gain := self._gain(kept)).tokens > 0:
                yield kept, gain
            if number % LOOKS_AT_ONCE == LOOKS_AT_ONCE - 1:
                await asyncio.sleep(0)

    async def _give_all(self, plan: Plan) -> None:
        while self._faults < MOST_FAULTS and (step := await plan.next()) is not None:
            kept, gain = step
            target = self._target(kept)
            if target is None:
                self._skipped("gone")
            elif not await self._quiet(kept, target):
                self._skipped(self._why_ended())
                return
            else:
                await self._give(plan, kept, gain, target)
            await asyncio.sleep(0)

    # Who gains what

    def _gain(self, kept: KeptPrompt) -> Gain:
        warming, leaving = self._tools.routers(kept.model).warming, self.kind is Kind.LEAVE
        if leaving and not warming.held_tokens(kept.prompt, self._worker.name):
            return NO_GAIN  # of most prompts: the cheapest look first
        target = self._target(kept)
        if target is None or not self._tools.store.holds(kept):
            return NO_GAIN
        held = warming.holdings(kept.prompt)
        others = [worker for worker in self._tools.fleet.workers if worker.state is State.READY]
        if leaving:
            stay = {worker.name for worker in others if not worker.draining}
            return leaver_gain(held, self._worker.name, target.name, stay)
        peers = {worker.name for worker in others if worker is not target}
        return joiner_gain(held, target.name, peers, kept, lost=self.kind is Kind.RESTART)

    def _target(self, kept: KeptPrompt) -> Worker | None:
        """A home of the prompt: the worker that joined, or the first that takes the place of the one that leaves."""
        for name in self._homes_of(kept):
            try:
                home = self._tools.fleet.worker(name)
            except UnknownWorker:
                continue
            fits = (home is self._worker) == (self.kind is not Kind.LEAVE)
            if fits and home.up and home.serves(kept.model):
                return home
        return None

    def _homes_of(self, kept: KeptPrompt) -> tuple[str, ...]:
        tools = self._tools
        return tools.routers(kept.model).homes_of(
            kept.prompt,
            tools.fleet.view(kept.model),
            tools.clock(),
            tenant=kept.tenant,
            policy=kept.policy,
            session=kept.session,
        )

    # Behind real requests

    async def _quiet(self, kept: KeptPrompt, target: Worker) -> bool:
        """Wait until nobody waits at the worker; False when the deadline comes first, or the worker's end."""
        while self._others_wait(kept, target) or not self._has_room(kept, target):
            if self._tools.clock() >= self._budget.deadline or not target.up:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return self._tools.clock() < self._budget.deadline

    def _others_wait(self, kept: KeptPrompt, target: Worker) -> bool:
        waiting = self._tools.routers(kept.model).warming.waiting(target.name, self._sent)
        return bool(waiting or (target.figures and target.figures.waiting))

    def _has_room(self, kept: KeptPrompt, target: Worker) -> bool:
        """Whether a request that comes meanwhile finds room as well."""
        view = target.view(kept.model, self._tools.fleet.facts(kept.model))
        return view.admissible and (view.max_in_flight is None or view.in_flight + 1 < view.max_in_flight)

    async def _watched(
        self, sending: Coroutine[Any, Any, None], kept: KeptPrompt, target: Worker, until: float
    ) -> bool:
        """Let it end; or give it up, and with it the worker's work, when a real request waits behind it for long."""
        clock, task = self._tools.clock, asyncio.create_task(sending)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=POLL_SECONDS)
                behind = abs(until - clock()) > LEAST_TO_YIELD_SECONDS and self._others_wait(kept, target)
                if not task.done() and (behind or clock() >= self._budget.deadline):
                    return False
            task.result()
            return True
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, SendError):
                await task

    # Giving

    async def _give(self, plan: Plan, kept: KeptPrompt, gain: Gain, target: Worker) -> None:
        try:
            async with self._lease(target):
                if await self._pulled(kept, gain, target):
                    self._given(kept, gain, target, How.PULLED)
                else:
                    await self._compute(plan, kept, gain, target)
        except UnknownWorker:
            self._skipped("gone")
        except SendError as error:
            self._faults += not error.refused
            self._skipped("refused" if error.refused else "failed")

    def _lease(self, target: Worker) -> Lease:
        """UnknownWorker also when another worker has taken the name: it listens elsewhere."""
        lease = self._tools.fleet.lease(target.name)
        if lease.worker is not target:
            raise UnknownWorker(target.name)
        return lease

    async def _pulled(self, kept: KeptPrompt, gain: Gain, target: Worker) -> bool:
        source = next((worker for worker in self._tools.fleet.workers if worker.name == gain.source), None)
        if source is None or source.state is not State.READY or not self._tools.sender.may_pull(target, source):
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._budget.deadline - self._tools.clock()):
                return await self._tools.sender.pull(kept, target, source)
        return False

    async def _compute(self, plan: Plan, kept: KeptPrompt, gain: Gain, target: Worker) -> None:
        tools, warming = self._tools, self._tools.routers(kept.model).warming
        now, seconds = tools.clock(), warming.seconds(kept.prompt, target.name)
        if not self._budget.allows(seconds, now):
            self._skipped(self._budget.why_not(now))
            return
        self._spend(seconds)
        request_id = next(self._ids)
        self._sent.add(request_id)
        warming.begin(request_id, kept.prompt, target.name, now)
        try:
            whole = await self._watched(tools.sender.compute(kept, target), kept, target, now + seconds)
        finally:
            warming.end(request_id, tools.clock())
            self._sent.discard(request_id)
            # A worker that is slower than it was thought to be has given more.
            self._spend(max(0.0, tools.clock() - now - seconds))
        if whole:
            self._given(kept, gain, target, How.COMPUTED)
        else:
            self._interrupted(plan, kept)

    def _spend(self, seconds: float) -> None:
        self._budget.spend(seconds)
        self._tools.metrics.prewarm_seconds_total.labels().inc(seconds)

    def _given(self, kept: KeptPrompt, gain: Gain, target: Worker, how: How) -> None:
        self._lease(target)  # nothing is believed of a worker that left meanwhile
        metrics = self._tools.metrics
        self._tools.routers(kept.model).warming.believe(next(self._ids), kept.prompt, target.name, self._tools.clock())
        self.prompts += 1
        self.tokens += gain.tokens
        metrics.prewarmed_prompts_total.labels(how.value).inc()
        metrics.prewarmed_tokens_total.labels(how.value).inc(gain.tokens)

    def _interrupted(self, plan: Plan, kept: KeptPrompt) -> None:
        name = kept.prompt.exact_blocks[-1]
        tries = self._tries[name] = self._tries.get(name, 0) + 1
        if tries < MOST_TRIES:
            plan.again(kept)
        else:
            self._skipped("yielded")

    def _skipped(self, reason: str, prompts: int = 1) -> None:
        self._tools.metrics.prewarm_skipped_total.labels(reason).inc(prompts)

    def _why_ended(self) -> str:
        if self._tools.clock() >= self._budget.deadline:
            return "deadline"
        return "failed" if self._faults >= MOST_FAULTS else "gone"
