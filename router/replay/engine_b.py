"""Engine B: continuous batching with chunked prefill; every step decodes one token of each running sequence.

Steps in which nothing is prefilled differ only in a context that grows by one token a sequence: a stretch of them, up
to the next answer's end, is one event of the replay. A request that comes meanwhile cuts the stretch after the step
that it came in.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import ceil, sqrt
from typing import NamedTuple

from router.replay.core import EngineSettings
from router.replay.worker import Host, Job, Warmth, Worker


class Stretch(NamedTuple):
    """Steps without prefill, one after the other: the first takes `first_seconds`, each next one `growth` longer."""

    first_seconds: float
    growth_seconds: float

    def seconds(self, steps: int) -> float:
        """How long so many steps take."""
        return steps * self.first_seconds + self.growth_seconds * (steps * (steps - 1) / 2)

    def steps_until(self, elapsed_seconds: float) -> int:
        """How many steps there are to the end of the one that is under way after so long, at least 1."""
        half, line = self.growth_seconds / 2, self.first_seconds - self.growth_seconds / 2
        if not half:
            return max(1, ceil(elapsed_seconds / line))
        steps = max(1, ceil((sqrt(line * line + 4 * half * elapsed_seconds) - line) / (2 * half)))
        # The root is inexact in its last digits; the step must not end before the time asked about.
        return steps + 1 if self.seconds(steps) < elapsed_seconds else steps


class ContinuousBatching(Worker):
    """A worker whose prefills and decodes share its steps."""

    def __init__(self, settings: EngineSettings, warmth: Warmth, host: Host) -> None:
        super().__init__(settings, warmth, host)
        self._prefilling: list[Job] = []
        self._running = 0
        self._context_tokens = 0
        self._ends: list[tuple[int, int, Job]] = []
        self._order = count()
        self._steps_done = 0
        self._busy = False
        # The steps under way: since when, how many of them, and the number of the plan, which tells a stale event.
        self._began = 0.0
        self._steps = 0
        self._plan = 0
        self._stretch: Stretch | None = None
        self._through: list[Job] = []

    def wake(self, now: float) -> None:
        """Begin to step, or cut a stretch short: whoever waits first may be admitted after the step under way."""
        if not self._busy:
            self._step(now)
        elif self._stretch is not None and len(self.queue) == 1:
            steps = self._stretch.steps_until(now - self._began)
            if steps < self._steps:
                self._run(steps, self._stretch.seconds(steps))

    def work_seconds(self, now: float) -> float:  # noqa: ARG002
        """Prefill of those that wait, and the rest of those that have begun."""
        return self.pending_tokens / self.settings.prefill_tokens_per_second

    def check_integrity(self) -> None:
        """Raise AssertionError unless what runs, waits and is prefilled makes up what is in flight."""
        super().check_integrity()
        if self.in_flight != len(self.queue) + len(self._prefilling) + self._running:
            raise AssertionError("a request in flight neither waits nor runs")
        if len(self._ends) != self._running or (not self._running and self._context_tokens):
            raise AssertionError("a context without its sequence")

    def _step(self, now: float) -> None:
        """Plan the next step: chunks of prefill first come, first served, in what decoding leaves of the budget."""
        settings = self.settings
        self._began, self._stretch = now, None
        prefill_tokens, self._through = self._fill(settings.step_tokens - self._running)
        self._busy = bool(prefill_tokens or self._running)
        if not self._busy:
            return
        seconds = settings.step_fixed_seconds + self._context_tokens * settings.seconds_per_context_token
        if prefill_tokens:
            self._run(1, seconds + prefill_tokens / settings.prefill_tokens_per_second)
            return
        self._stretch = Stretch(seconds, self._running * settings.seconds_per_context_token)
        # Over a shared cache, others may make room for who waits: look again after every step.
        alone = not (self.queue and self.warmth.shared)
        steps = self._ends[0][0] - self._steps_done if alone else 1
        self._run(steps, self._stretch.seconds(steps))

    def _run(self, steps: int, seconds: float) -> None:
        self._steps = steps
        self._plan += 1
        self.host.later(self._began + seconds, self._stepped, self._plan)

    def _fill(self, budget_tokens: int) -> tuple[int, list[Job]]:
        """Share a step's budget out; returns the tokens it prefills, and who will be through with their prefill."""
        left, done, turn = budget_tokens, [], 0
        while left > 0:
            if turn == len(self._prefilling) and not self._admit():
                break
            job = self._prefilling[turn]
            chunk = min(left, job.estimated_tokens)
            job.estimated_tokens -= chunk
            self.pending_tokens -= chunk
            left -= chunk
            if not job.estimated_tokens:
                done.append(job)
            turn += 1
        return budget_tokens - left, done

    def _admit(self) -> bool:
        """Let the head of the queue begin, if there is a place and room for its context; a lone one always may."""
        sequences = self._running + len(self._prefilling)
        if not self.queue or sequences >= self.settings.most_sequences:
            return False
        job, cache = self.queue[0], self.warmth.cache
        prompt = job.request.prompt
        if sequences:
            answer_blocks = ceil(job.request.output_tokens / prompt.block_tokens)
            begun = sum([len(other.request.prompt.exact_blocks) for other in self._prefilling])
            needed = answer_blocks + cache.unpinned(prompt.exact_blocks)
            if cache.pinned_blocks + begun + needed > cache.capacity_blocks:
                return False
        self.queue.popleft()
        job.cached_tokens = self.cached_tokens(prompt)
        uncached = max(1, prompt.tokens - job.cached_tokens)
        self.pending_tokens += uncached - job.estimated_tokens
        job.estimated_tokens = uncached
        self._prefilling.append(job)
        return True

    def _stepped(self, plan: int, now: float) -> None:
        """The steps under way are over: answers end, others begin, and it goes on."""
        if plan != self._plan:
            return
        self.busy_seconds += now - self._began
        self._steps_done += self._steps
        self._context_tokens += self._steps * self._running
        while self._ends and self._ends[0][0] <= self._steps_done:
            _, _, job = heappop(self._ends)
            self._running -= 1
            # Each step but the one of the first token has added a token to the prompt's.
            self._context_tokens -= job.request.prompt.tokens + max(0, job.request.output_tokens - 1)
            self.end(job, now)
        for job in self._through:
            self._prefilling.remove(job)
            self._begin_answer(job, now)
        self._step(now)

    def _begin_answer(self, job: Job, now: float) -> None:
        self.prefilled(job, now)
        further_tokens = job.request.output_tokens - 1
        if further_tokens <= 0:
            self.end(job, now)
            return
        self._running += 1
        self._context_tokens += job.request.prompt.tokens
        heappush(self._ends, (self._steps_done + further_tokens, next(self._order), job))
