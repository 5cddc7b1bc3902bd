"""Whether a request may go to a worker, or to another: quarantine, the retry budget, back-off, and who is well."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.acceptance import Acceptance
from gateway.errors import Quarantined
from gateway.fault_settings import Faults
from gateway.fleet import Change, ChangeKind, Fleet
from gateway.limits.line import FULL
from gateway.metrics import Metrics
from gateway.quarantine import TRIAL_SECONDS, Fingerprint, Quarantine, Verdict
from gateway.retry_budget import RetryBudget, back_off_seconds
from gateway.upstream import Upstream
from gateway.worker_state import Outcome, State, Worker

if TYPE_CHECKING:
    from gateway.attempts import Job

LOOK_AGAIN_SECONDS: Final = 0.02
"""Between two looks of a request that waits for another with its prompt."""

SPARED_SECONDS: Final = 1.0
"""How long a worker is passed over that said it was overloaded, and not for how long."""

_DEATHS: Final = frozenset((Outcome.REFUSED.value, "probe"))


class Retries:
    """What attempts have taught. Costs a healthy request one count."""

    def __init__(
        self, fleet: Fleet, upstream: Upstream, metrics: Metrics, clock: Callable[[], float], settings: Faults
    ) -> None:
        self.acceptance = Acceptance()
        self.most_attempts = settings.attempts
        self._fleet = fleet
        self._upstream = upstream
        self._metrics = metrics
        self._clock = clock
        self._budget = RetryBudget(settings.retry_share)
        self._quarantine = Quarantine(settings.quarantine_seconds)
        self._looking: set[asyncio.Task[None]] = set()
        self._quarantines = settings.quarantine_seconds > 0
        fleet.on_change(self._fleet_changed)

    # Before an attempt

    def began(self, now: float) -> None:
        """A request is about to go to its first worker."""
        self._budget.request(now)

    @property
    def watching(self) -> bool:
        """Whether `let_in` must be asked."""
        return self._quarantine.watching

    async def let_in(self, job: Job) -> None:
        """Wait while another request with a suspect's prompt tries it; raises `Quarantined` when that is known to end
        workers."""
        prompt, give_up_at = self._fingerprint(job), self._clock() + TRIAL_SECONDS
        while (now := self._clock()) < give_up_at:
            verdict = self._quarantine.verdict(prompt, now)
            if verdict is Verdict.REFUSE:
                self._metrics.quarantined_requests_total.labels(job.tenant.name).inc()
                raise Quarantined("Workers failed while they had this prompt; it is not given to others for now.")
            if verdict is not Verdict.WAIT:
                job.tries_prompt = verdict is Verdict.TRY
                return
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    def lets_in(self, job: Job) -> bool:
        """Whether it may go at this moment, as for `let_in`."""
        if not job.tries_prompt:
            verdict = self._quarantine.verdict(self._fingerprint(job), self._clock())
            job.tries_prompt = verdict is Verdict.TRY
            return verdict in (Verdict.GO, Verdict.TRY)
        return True

    async def back_off(self, job: Job) -> None:
        """Before another attempt: a worker that broke a connection may have taken others along."""
        if job.retry_reason in ("broke", "malformed"):
            # Not cryptography: only so that retries spread out.
            await asyncio.sleep(back_off_seconds(job.attempts, random.random()))  # noqa: S311
        if self._quarantine.watching:
            if job.tries_prompt:  # it would wait for itself
                job.tries_prompt = False
                self.over(job, well=False)
            await self.let_in(job)

    # After one

    def over(self, job: Job, *, well: bool) -> None:
        """A request that tried a suspect's prompt has ended."""
        self._quarantine.over(self._fingerprint(job), well=well)

    async def look_into(self, job: Job, worker: Worker) -> None:
        """A worker that had the request broke off: is it dead? Then its prompt is a suspect, and the worker is down."""
        if not self._quarantines:
            return
        if job.tries_prompt:
            job.tries_prompt = False
            self.over(job, well=False)
        self._quarantine.broke(self._fingerprint(job), worker.name, self._clock())
        if worker.state is not State.DOWN:
            if not await self._upstream.listens(worker.backend.address):
                self._fleet.report(worker, Outcome.REFUSED)
        elif worker.gone_since_ready:
            self._died(worker)

    def look_into_soon(self, job: Job, worker: Worker) -> None:
        """The same for a request that has ended, and whose client may be gone: nobody waits for it."""
        task = asyncio.create_task(self.look_into(job, worker), name="look into a break")
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    def another(self, job: Job, worker: Worker, *, may_wait: bool = False) -> bool:
        """Whether the request may go on to a worker other than this: one that is well is asked in any case. Where all
        others are full it may with `may_wait`, which says that it can wait for them."""
        job.excluded.add(worker.name)
        left = [view for view in self._fleet.view(job.call.model).workers if view.name not in job.excluded]
        others = [view.name for view in left if view.admissible]
        if may_wait and not others:
            others = [view.name for view in left if view.inadmissible_because == FULL]
        if job.attempts >= self.most_attempts or not others:
            return False
        now = self._clock()
        unwell = {name for name in others if not self._fleet.worker(name).standing.well(now)}
        if len(unwell) < len(others):
            job.excluded |= unwell
            self._budget.made(now)
            return True
        if self._budget.grant(now):
            return True
        self._metrics.retries_denied_total.labels().inc()
        return False

    def overloaded(self, worker: Worker, retry_after: bytes | None) -> None:
        """The worker has too much to do, and may have said for how long."""
        seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else SPARED_SECONDS
        self._fleet.recovery.spare(worker, seconds)

    def _fingerprint(self, job: Job) -> Fingerprint:
        if job.fingerprint is None:
            end = job.prompt.key_blocks[-1] if job.prompt.key_blocks else job.body
            job.fingerprint = self._quarantine.fingerprint(job.tenant.name, job.call.model, end)
        return job.fingerprint

    def _fleet_changed(self, change: Change) -> None:
        dead = change.kind is ChangeKind.DOWN and change.reason in _DEATHS
        if dead or change.kind is ChangeKind.RESTARTED:
            self._died(change.worker)

    def _died(self, worker: Worker) -> None:
        quarantined = self._quarantine.died(worker.name, self._clock())
        self._metrics.quarantined_prompts_total.labels().inc(quarantined)
