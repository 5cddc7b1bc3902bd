"""What the router knows of one worker: its directory, its virtual queue, its rates and the requests it is serving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.belief import Belief, Report, Verdict
from router.core import News, WorkerView
from router.directory import Directory
from router.knowledge import Either, Holds, Knowledge
from router.learning import RELEARN_EVERY
from router.rates import WorkerRates
from router.virtual_queue import VirtualQueue
from router.whole_answers import WholeAnswer, WholeAnswers

_LEAST_SECONDS = 1e-3
_FULL = 0.9
"""A directory filled so far says what does not fit; eviction takes whole ends of chains."""

_FARTHEST_RATIO = 4.0
"""How wrong one wait may make a prefill look."""


_MOST_TIMES_OUR_COUNT = 4
_SLACK_TOKENS = 256
"""A worker's count of a prompt may differ from ours by what a template or an image adds, not by more."""


@dataclass(slots=True)
class InFlight:
    """One request between placement and end.

    `decode_context_tokens` is the worker's context when the first token came. `remote` requests were placed by
    another replica; `counted` says that `prompt_tokens` were counted by the model's own tokeniser, not estimated;
    `silent` ones answer all at once, so that nobody sees when their prefill ended. `known` says that
    its cached tokens were predicted from the worker's events, `answered` that it ended well. `alone` says that
    nobody was waiting at the worker when it was placed, so that its time to first token is its own prefill and nothing
    else; `predicted_seconds` is what that time was expected to be, waiting included, of which `prefill_seconds` were
    its own. `serial` counts the requests that this worker got before it.
    """

    worker: str
    tenant: str
    prompt_tokens: int
    block_tokens: int
    predicted_cached_tokens: int
    prefill_seconds: float
    predicted_seconds: float
    placed_at: float
    alone: bool
    counted: bool = True
    remote: bool = False
    silent: bool = False
    known: bool = False
    answered: bool = False
    first_token_at: float | None = None
    decode_context_tokens: int = 0
    serial: int = 0

    def believes(self, prompt_tokens: int | None) -> bool:
        """Whether a worker's count of the prompt may be right. Nothing is learned from one that counts a hundred times
        the tokens: it would look a hundred times as fast, and draw everything."""
        if not prompt_tokens or not self.counted:
            return True
        ours = self.prompt_tokens
        low, high = (ours, prompt_tokens) if ours < prompt_tokens else (prompt_tokens, ours)
        return high <= _MOST_TIMES_OUR_COUNT * low + _SLACK_TOKENS


def heard_flight(news: News, now: float) -> InFlight:
    """A request that another replica placed; of its prompt only the length and the prefill time are known."""
    seconds = news.prefill_seconds
    return InFlight(
        news.worker,
        "",
        news.prompt_tokens,
        1,
        0,
        seconds,
        seconds,
        now,
        alone=False,
        remote=True,
        silent=news.silent,
    )


class WorkerState:
    """Everything believed about one worker; `context_tokens` is over the `requests` in flight there.

    `holds` is what placement goes by: the directory, or `knowledge` where it is trusted (`known`), or both where it is
    sound and no more.
    """

    __slots__ = (
        "_entered", "_queued_since_alone", "_whole_since_streamed", "belief", "context_tokens", "directory", "holds",
        "knowledge", "known", "name", "queue", "rates", "requests", "whole",
    )  # fmt: skip

    def __init__(self, name: str, knowledge: Knowledge | None = None) -> None:
        self.name = name
        self.belief = Belief()
        self.directory = Directory(self.belief.bound_blocks)
        self.queue = VirtualQueue()
        self.rates = WorkerRates()
        self.whole = WholeAnswers()
        self._queued_since_alone = 0
        self._whole_since_streamed = 0
        self._entered = 0
        self.requests = 0
        self.context_tokens = 0
        self.follow(knowledge)

    def follow(self, knowledge: Knowledge | None) -> None:
        """Take in what is known of the worker, or that it is trusted, or not, from now on."""
        self.knowledge = knowledge
        self.known = knowledge is not None and knowledge.trusted
        self.holds: Holds = self.directory
        if knowledge is not None and knowledge.trusted:
            self.holds = knowledge
        elif knowledge is not None and knowledge.sound:
            self.holds = Either(knowledge, self.directory)

    def expect(self, request_id: str, chain: Sequence[bytes], now: float) -> None:
        """The worker will hold `chain`, for this request. Belief is kept beside knowledge: a stream may fall silent."""
        self.directory.insert(chain, now)
        if self.knowledge is not None:
            self.knowledge.sent(request_id, chain)

    def configure(self, view: WorkerView) -> bool:
        """Take over what the worker is said to be, where that has changed; what was learned stays otherwise.

        True if its rates start anew.
        """
        if view.cache_blocks != self.belief.told_blocks:
            self.belief = Belief(view.cache_blocks)
            self.directory.resize(self.belief.bound_blocks)
        if not self.rates.configured_as(view.prefill_tokens_per_second, view.prefill_fixed_seconds):
            self.rates.configure(view.prefill_tokens_per_second, view.prefill_fixed_seconds)
            return True
        return False

    def enter(self, request_id: str, flight: InFlight, now: float) -> None:
        """A request was sent here."""
        self.queue.push(request_id, flight.prefill_seconds, now, silent=flight.silent)
        self.requests += 1
        self._entered += 1
        flight.serial = self._entered
        self.context_tokens += flight.prompt_tokens

    def leave(self, request_id: str, flight: InFlight, now: float) -> None:
        """A request ended here, however it ended."""
        self.queue.remove(request_id, now)
        self.requests -= 1
        self.context_tokens -= flight.prompt_tokens
        if self.knowledge is not None:
            prefilled = flight.answered or flight.first_token_at is not None
            self.knowledge.left(request_id, now, prefilled=prefilled)

    def learn_prefill(self, flight: InFlight, cached_tokens: int | None, scale: float = 1.0) -> bool:
        """Learn from an ended request's time to first token; True if this worker's own line was fitted again.

        Rates are of the worker's tokens, of which the router counts `scale` for one: an estimate of a prompt's length
        may be several times off until it has been compared, and what is learned by it would be so for much longer.
        Requests that found nobody waiting tell; others only where those are rare. A worker believed too fast is
        always busy and would never be corrected: there, what came of the whole wait stands for what came of each
        prefill in it.
        """
        if flight.first_token_at is None:
            return False
        self._whole_since_streamed = 0
        seconds = flight.first_token_at - flight.placed_at
        if flight.alone:
            self._queued_since_alone = 0
            cached = flight.predicted_cached_tokens if cached_tokens is None else cached_tokens
            return self.rates.prefill.observe(max(1, flight.prompt_tokens - cached) / scale, seconds)
        self._queued_since_alone += 1
        if self._queued_since_alone <= RELEARN_EVERY:
            return False
        ratio = seconds / max(flight.predicted_seconds, _LEAST_SECONDS)
        ratio = min(_FARTHEST_RATIO, max(1 / _FARTHEST_RATIO, ratio))
        predicted_uncached = max(1, flight.prompt_tokens - flight.predicted_cached_tokens)
        return self.rates.prefill.observe(predicted_uncached / scale, flight.prefill_seconds * ratio)

    def learn_whole(
        self, flight: InFlight, now: float, cached_tokens: int | None, scale: float, output_tokens: int
    ) -> bool:
        """Learn from an answer that came all at once, as `learn_prefill` does from others.

        Only where hardly anybody streams, whose first tokens say it better; and only if the worker was empty when the
        request came and got nothing else before its end.
        """
        self._whole_since_streamed += 1
        undisturbed = flight.alone and flight.serial == self._entered and output_tokens > 0
        if self._whole_since_streamed <= RELEARN_EVERY or not undisturbed:
            return False
        cached = flight.predicted_cached_tokens if cached_tokens is None else cached_tokens
        uncached = max(1, flight.prompt_tokens - cached) / scale
        seconds = self.whole.prefill_seconds(WholeAnswer(now - flight.placed_at, uncached, output_tokens - 1))
        return seconds is not None and self.rates.prefill.observe(uncached, seconds)

    def correct(self, report: Report) -> None:
        """Let the worker's word on what it had cached correct the belief."""
        directory = self.directory
        verdict = self.belief.learn(report, full=len(directory) >= _FULL * directory.bound_blocks)
        if verdict is Verdict.KEEP:
            return
        if verdict is Verdict.CLEAR:
            directory.clear()
        directory.resize(self.belief.bound_blocks)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the parts are sound and no count is negative."""
        self.directory.check_integrity()
        self.queue.check_integrity()
        if self.requests < 0 or self.context_tokens < 0:
            raise AssertionError(f"worker {self.name!r} has fewer than no requests in flight")
