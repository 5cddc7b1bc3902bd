"""What the engine counts and times, and tells its observer."""

from __future__ import annotations

from backends.accounts import FinishedRequest, Observer
from backends.sequence import Sequence


class Ledger:
    """Counters in tokens since start; every event goes on to the observer."""

    def __init__(self, observer: Observer) -> None:
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self._observer = observer

    def stepped(self, scheduled_tokens: int, preempted: int) -> None:
        """A step ran."""
        self.preemptions += preempted
        self._observer.stepped(scheduled_tokens, preempted)

    def prompt(self, sequence: Sequence, now: float) -> None:
        """A prompt is computed; it counts once for all answers to it."""
        sequence.times.first_token = sequence.times.last_token = now
        if sequence.choice == 0:
            self.prompt_tokens += sequence.prompt_tokens
            self.cached_prompt_tokens += sequence.cached_tokens or 0

    def token(self, sequence: Sequence, now: float) -> None:
        """A token came; with the first one the prompt counts as done."""
        times = sequence.times
        self.generation_tokens += 1
        if times.last_token is not None:
            self._observer.next_token(sequence.request_id, now - times.last_token)
            times.last_token = now
        else:
            self.prompt(sequence, now)
            self._observer.first_token(sequence.request_id, now - times.arrival)

    def finished(self, sequence: Sequence, reason: str, now: float) -> None:
        """An answer ended; phases it never reached are 0 seconds long."""
        times = sequence.times
        scheduled = now if times.first_scheduled is None else times.first_scheduled
        first = now if times.first_token is None else times.first_token
        last = now if times.last_token is None else times.last_token
        self._observer.finished(
            FinishedRequest(
                request_id=sequence.request_id,
                finish_reason=reason,
                prompt_tokens=sequence.prompt_tokens,
                cached_tokens=sequence.cached_tokens or 0,
                completion_tokens=sequence.completion_tokens,
                max_tokens=sequence.max_tokens,
                n=sequence.sampling.n,
                preemptions=sequence.preemptions,
                queue_seconds=scheduled - times.arrival,
                prefill_seconds=first - scheduled,
                decode_seconds=last - first,
                e2e_seconds=now - times.arrival,
            )
        )
