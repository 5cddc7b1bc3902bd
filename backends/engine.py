"""The worker's heart: schedule → run → commit → emit, one step at a time. Not thread-safe; owns no thread."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace

from backends.accounts import EngineStats, NoObserver, Observer
from backends.answer import Answer
from backends.block_pool import BlockPool
from backends.detokenise import Decoder
from backends.hashing import BlockHasher
from backends.ledger import Ledger
from backends.prefix_cache import PrefixCache
from backends.request_checks import check_token_ids, checked_max_tokens, checked_tokens
from backends.scheduler import Plan, Scheduler
from backends.sequence import Sequence
from backends.types import (
    Delta,
    EngineConfig,
    GenerationRequest,
    RequestRefusedError,
    Runner,
    SampledToken,
    StepFailedError,
)


class Engine:
    """Runs requests on a runner through a paged prefix cache.

    `clock` gives seconds and is the only time there is. Without a tokeniser, deltas carry tokens and no text.
    `hasher` is for tests that want a broken hash.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        tokeniser: Decoder | None,
        clock: Callable[[], float],
        *,
        observer: Observer | None = None,
        hasher: BlockHasher | None = None,
    ) -> None:
        self.config = config
        self._runner = runner
        self._tokeniser = tokeniser
        self._clock = clock
        self._pool = BlockPool(config.num_blocks)
        hasher = hasher or BlockHasher(config.block_tokens)
        self._cache = PrefixCache(self._pool, hasher, enabled=config.enable_prefix_caching)
        self._scheduler = Scheduler(config, self._cache)
        self._ledger = Ledger(observer or NoObserver())
        self._live: dict[str, list[Sequence]] = {}
        runner.allocate(config.num_blocks, config.block_tokens)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._live)

    @property
    def limit_tokens(self) -> int:
        """The longest prompt and answer together: what the model takes and the pool holds."""
        return min(self.config.max_model_tokens, self._pool.usable_blocks * self.config.block_tokens)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request; RequestRefusedError when it could never run."""
        if request.request_id in self._live:
            raise RequestRefusedError(f"request id {request.request_id!r} is in use", "request_id")
        tokens = checked_tokens(request.prompt_ids, self._runner.vocab_size)
        max_tokens = checked_max_tokens(request, self.limit_tokens)
        check_token_ids(request.sampling, self._runner.vocab_size)
        siblings = [self._sequence(request, tokens, max_tokens, choice) for choice in range(request.sampling.n)]
        self._live[request.request_id] = siblings
        for sequence in siblings:
            self._scheduler.add(sequence)

    def abort(self, request_id: str) -> bool:
        """End a request at once, in whatever state it is; no further delta comes. False when there is none."""
        siblings = tuple(self._live.get(request_id, ()))
        for sequence in siblings:
            self._end(sequence, "abort", self._clock())
        return bool(siblings)

    def step(self) -> list[Delta]:
        """Run one batch; return the news of every answer that got a token. StepFailedError when the runner raised."""
        plan = self._scheduler.schedule(self._clock())
        sampled = self._run(plan)
        self._scheduler.commit(plan)
        return self._emit(plan, sampled)

    def reset_prefix_cache(self) -> bool:
        """Forget everything cached; False, and nothing done, while any sequence holds blocks."""
        return self._cache.reset()

    def stats(self) -> EngineStats:
        """The gauges now and the counters since start."""
        prefix, ledger = self._cache.statistics, self._ledger
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            num_blocks=self.config.num_blocks,
            free_blocks=self._pool.free_blocks_count,
            kv_usage=self._pool.usage,
            prefix_queries=prefix.queries,
            prefix_hits=prefix.hits,
            recent_hit_rate=prefix.recent_hit_rate,
            prompt_tokens=ledger.prompt_tokens,
            cached_prompt_tokens=ledger.cached_prompt_tokens,
            generation_tokens=ledger.generation_tokens,
            preemptions=ledger.preemptions,
        )

    def _run(self, plan: Plan) -> list[SampledToken | None]:
        if not plan.sequences:
            return []
        try:
            sampled = self._runner.execute(plan.batch)
        except Exception as error:
            raise self._fail(plan) from error
        self._ledger.stepped(plan.batch.token_count, plan.preempted)
        return sampled

    def _fail(self, plan: Plan) -> StepFailedError:
        """Drop every request of a failed step; nothing of it was registered, so nobody can find half-written blocks."""
        request_ids = tuple(dict.fromkeys(sequence.request.request_id for sequence in plan.sequences))
        for request_id in request_ids:
            for sequence in tuple(self._live[request_id]):
                self._end(sequence, "error", self._clock())
        return StepFailedError(request_ids)

    def _emit(self, plan: Plan, sampled: Iterable[SampledToken | None]) -> list[Delta]:
        now = self._clock()
        pairs = zip(plan.sequences, sampled, strict=True)
        return [self._extend(sequence, token, now) for sequence, token in pairs if token is not None]

    def _extend(self, sequence: Sequence, token: SampledToken, now: float) -> Delta:
        sequence.token_ids.append(token.token_id)
        self._ledger.token(sequence, now)
        piece = sequence.answer.push(token.token_id)
        if piece.finish_reason is not None:
            self._end(sequence, piece.finish_reason, now)
        return Delta(
            sequence.request.request_id,
            (token.token_id,),
            piece.text,
            piece.finish_reason,
            sequence.prompt_tokens,
            sequence.cached_tokens or 0,
            sequence.completion_tokens,
            None if sequence.sampling.logprobs is None else (token,),
            sequence.choice,
            piece.stop_reason,
        )

    def _end(self, sequence: Sequence, reason: str, now: float) -> None:
        request_id = sequence.request.request_id
        siblings = self._live[request_id]
        siblings.remove(sequence)
        if not siblings:
            del self._live[request_id]
        self._scheduler.drop(sequence)
        self._ledger.finished(sequence, reason, now)

    def _sequence(self, request: GenerationRequest, tokens: array[int], max_tokens: int, choice: int) -> Sequence:
        sampling = request.sampling
        if choice and sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + choice)
        end_ids = frozenset() if sampling.ignore_eos else self.config.eos_ids
        return Sequence(
            request,
            tokens[:],
            request_id=f"{request.request_id}/{choice}" if sampling.n > 1 else request.request_id,
            sampling=sampling,
            max_tokens=max_tokens,
            answer=Answer(
                self._tokeniser,
                end_ids=end_ids,
                stops=sampling.stop,
                max_tokens=max_tokens,
                stop_ids=sampling.stop_token_ids,
                hidden_ids=self.config.special_ids if sampling.skip_special_tokens else frozenset(),
                min_tokens=sampling.min_tokens,
                shows_stop=sampling.include_stop_str_in_output,
            ),
            choice=choice,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError on any broken invariant of pool, tables, queues or registered blocks."""
        scheduler = self._scheduler
        self._pool.check_integrity([sequence.block_ids for sequence in scheduler.running])
        live = [sequence for siblings in self._live.values() for sequence in siblings]
        if {id(sequence) for sequence in live} != {id(s) for s in (*scheduler.running, *scheduler.waiting)}:
            raise AssertionError("a sequence is live but not queued, or queued but not live")
        for sequence in live:
            self._cache.check_integrity(sequence)
