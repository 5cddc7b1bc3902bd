"""Engine A: one prefill at a time, first come, first served; then each answer decodes at a fixed pace."""

from __future__ import annotations

from router.replay.core import EngineSettings
from router.replay.worker import Host, Job, Warmth, Worker


class PrefillThenDecode(Worker):
    """A worker whose decoding costs nobody anything."""

    def __init__(self, settings: EngineSettings, warmth: Warmth, host: Host) -> None:
        super().__init__(settings, warmth, host)
        self._serving = False
        self._busy_until = 0.0

    def wake(self, now: float) -> None:
        """Take the head of the queue, unless another is being prefilled."""
        if self._serving or not self.queue:
            return
        job, settings = self.queue.popleft(), self.settings
        prompt = job.request.prompt
        self.pending_tokens -= job.estimated_tokens
        job.cached_tokens = self.cached_tokens(prompt)
        uncached = prompt.tokens - job.cached_tokens
        seconds = settings.prefill_fixed_seconds + uncached / settings.prefill_tokens_per_second
        self._serving, self._busy_until = True, now + seconds
        self.busy_seconds += seconds
        self.host.later(self._busy_until, self._begin_answer, job)

    def work_seconds(self, now: float) -> float:
        """The rest of the one prefill, and all of those that wait."""
        settings = self.settings
        rest = max(0.0, self._busy_until - now) if self._serving else 0.0
        fixed = len(self.queue) * settings.prefill_fixed_seconds
        return rest + fixed + self.pending_tokens / settings.prefill_tokens_per_second

    def _begin_answer(self, job: Job, now: float) -> None:
        self._serving = False
        self.prefilled(job, now)
        self.host.later(now + job.request.output_tokens * self.settings.seconds_per_output_token, self.end, job)
        self.wake(now)
