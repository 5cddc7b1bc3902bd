"""The worker's heart: schedule → run → commit → emit, one step at a time. Not thread-safe; owns no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backends.accounts import EngineStats, NoObserver, Observer
from backends.block_pool import BlockPool
from backends.detokenise import Decoder
from backends.engine_config import EngineConfig
from backends.fetching import Fetches
from backends.hashing import BlockHasher
from backends.journal import Journal
from backends.ledger import Ledger
from backends.partitions import UNNAMED, PartitionOccupancy
from backends.prefix_cache import PrefixCache
from backends.request_checks import check_policy, check_token_ids, checked_max_tokens, checked_tokens
from backends.scheduler import Plan, Scheduler
from backends.sequence import Sequence
from backends.siblings import build_siblings
from backends.tiers.interface import NoOffload, Offload
from backends.types import (
    Delta,
    GenerationRequest,
    Outcome,
    PromptScores,
    RequestRefusedError,
    Runner,
    SampledToken,
    StepFailedError,
)

WAIT_SECONDS = 0.002
"""How long a step waits for the tiers when there is nothing else to do; requests may come in meanwhile."""


class Engine:
    """Runs requests on a runner through a paged prefix cache.

    `clock` gives seconds and is the only time there is. Without a tokeniser, deltas carry tokens and no text.
    `journal` hears what becomes of cached blocks, `offload` brings some back. `hasher` is for tests that want a broken
    hash. `cache`, its `pool` and `runner` may be used between two steps, by whoever restores every invariant.
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
        offload: Offload | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.config = config
        self.runner = runner
        self._tokeniser = tokeniser
        self._clock = clock
        self._offload = offload or NoOffload()
        self.pool = BlockPool(
            config.num_blocks,
            eviction=config.eviction,
            partitions=config.partitions,
            pin_quota=config.pin_quota,
            auto_retention=config.auto_retention,
            journal=journal,
        )
        self.cache = PrefixCache(
            self.pool,
            hasher or BlockHasher(config.block_tokens),
            enabled=config.enable_prefix_caching,
            ahead_tokens=config.num_preallocate_tokens,
            spare_blocks=config.watermark_blocks,
        )
        self._scheduler = Scheduler(config, self.cache, Fetches(self.cache, runner, offload))
        self._ledger = Ledger(observer or NoObserver())
        self._live: dict[str, list[Sequence]] = {}
        runner.allocate(config.num_blocks, config.block_tokens)
        self._offload.start()

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._live)

    @property
    def limit_tokens(self) -> int:
        """The longest prompt and answer together: what the model takes and the pool holds."""
        return self._limit_of(UNNAMED)

    def _limit_of(self, partition: str) -> int:
        return min(self.config.max_model_tokens, self.pool.capacity(partition) * self.config.block_tokens)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request; RequestRefusedError when it could never run."""
        if request.request_id in self._live:
            raise RequestRefusedError(f"request id {request.request_id!r} is in use", "request_id")
        if request.partition not in self.config.partitions.names:
            raise RequestRefusedError(f"there is no cache partition {request.partition!r}", "cache_partition")
        tokens = checked_tokens(request.prompt_ids, self.runner.vocab_size)
        max_tokens = checked_max_tokens(request, self._limit_of(request.partition))
        check_token_ids(request.sampling, self.runner.vocab_size)
        check_policy(request.cache)
        siblings = build_siblings(request, tokens, max_tokens, self.config, self._tokeniser)
        self._live[request.request_id] = siblings
        self._scheduler.add(siblings)

    def abort(self, request_id: str) -> bool:
        """End a request at once, in whatever state it is; no further delta comes. False when there is none."""
        siblings = tuple(self._live.get(request_id, ()))
        for sequence in reversed(siblings):  # those who wait for the first one go before it
            self._end(sequence, "abort", self._clock())
        return bool(siblings)

    def step(self) -> list[Delta]:
        """Run one batch; return the news of every answer that got a token. StepFailedError when the runner raised."""
        started = self._clock()
        plan = self._scheduler.schedule(started)
        if not plan.sequences:
            self._idle(plan)
            return []
        outcomes = self._run(plan)
        self._scheduler.commit(plan)
        now = self._clock()
        self._offload.stepped(plan.batch.token_count, now - started)
        return self._emit(plan, outcomes, now)

    def reset_prefix_cache(self, *, external: bool = False, preempt: bool = False) -> bool:
        """Forget everything cached, in the tiers too if `external`; False, and nothing done, while blocks are held.

        With `preempt` those who hold some start anew first.
        """
        if preempt:
            self._ledger.stepped(0, self._scheduler.preempt_all())
        done = self.cache.reset()
        if done and external:
            self._offload.reset()
        return done

    def occupancy(self) -> tuple[PartitionOccupancy, ...]:
        """What each partition of the pool has now."""
        self.pool.expire(self._clock())
        return self.pool.occupancy()

    def stats(self) -> EngineStats:
        """The gauges now and the counters since start."""
        prefix, ledger, waiting = self.cache.statistics, self._ledger, self._scheduler.waiting
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(waiting),
            num_blocks=self.config.num_blocks,
            free_blocks=self.pool.free_blocks_count,
            kv_usage=self.pool.usage,
            prefix_queries=prefix.queries,
            prefix_hits=prefix.hits,
            recent_hit_rate=prefix.recent_hit_rate,
            prompt_tokens=ledger.prompt_tokens,
            cached_prompt_tokens=ledger.cached_prompt_tokens,
            generation_tokens=ledger.generation_tokens,
            preemptions=ledger.preemptions,
            deferred=waiting.deferred_count,
            external_queries=prefix.external_queries,
            external_hits=sum(prefix.external_hits_by_source.values()),
            external_hits_by_source=tuple(sorted(prefix.external_hits_by_source.items())),
            occupancy=self.pool.occupancy(),
        )

    def _idle(self, plan: Plan) -> None:
        """Nothing to compute: who waits has blocks on their way."""
        if plan.preempted:
            self._ledger.stepped(0, plan.preempted)
        self._offload.stepped(0, 0.0)
        if self._live:
            self._offload.wait(WAIT_SECONDS)

    def _run(self, plan: Plan) -> Iterable[Outcome]:
        try:
            outcomes = self.runner.execute(plan.batch)
        except Exception as error:
            self._ledger.stepped(0, plan.preempted)
            raise self._fail(plan) from error
        self._ledger.stepped(plan.batch.token_count, plan.preempted)
        return outcomes

    def _fail(self, plan: Plan) -> StepFailedError:
        """Drop every request of a failed step; nothing of it was registered, so nobody can find half-written blocks."""
        request_ids = tuple(dict.fromkeys(sequence.request.request_id for sequence in plan.sequences))
        for request_id in request_ids:
            for sequence in reversed(tuple(self._live[request_id])):
                self._end(sequence, "error", self._clock())
        return StepFailedError(request_ids)

    def _emit(self, plan: Plan, outcomes: Iterable[Outcome], now: float) -> list[Delta]:
        deltas = []
        for sequence, item, outcome in zip(plan.sequences, plan.batch.items, outcomes, strict=True):
            token = _scored(sequence, item.start_token, outcome) if isinstance(outcome, PromptScores) else outcome
            if token is not None:
                deltas.append(self._extend(sequence, token, now))
            elif sequence.computed_tokens == sequence.limit_tokens:
                deltas.append(self._end_empty(sequence, now))
        return deltas

    def _extend(self, sequence: Sequence, token: SampledToken, now: float) -> Delta:
        sequence.token_ids.append(token.token_id)
        self._ledger.token(sequence, now)
        piece = sequence.answer.push(token.token_id)
        if piece.finish_reason is not None:
            self._end(sequence, piece.finish_reason, now)
        completion_tokens = len(sequence.token_ids) - sequence.prompt_tokens
        scores = sequence.prompt_scores
        return Delta(
            sequence.request.request_id,
            (token.token_id,),
            piece.text,
            piece.finish_reason,
            sequence.prompt_tokens,
            sequence.cached_tokens or 0,
            completion_tokens,
            None if sequence.sampling.logprobs is None else (token,),
            sequence.choice,
            piece.stop_reason,
            tuple(scores) if scores is not None and completion_tokens == 1 else None,
        )

    def _end_empty(self, sequence: Sequence, now: float) -> Delta:
        """The prompt is computed, and nothing more was wanted."""
        self._ledger.prompt(sequence, now)
        self._end(sequence, "length", now)
        scores = sequence.prompt_scores
        return Delta(
            sequence.request.request_id,
            (),
            "",
            "length",
            sequence.prompt_tokens,
            sequence.cached_tokens or 0,
            0,
            choice=sequence.choice,
            prompt_logprobs=None if scores is None else tuple(scores),
        )

    def _end(self, sequence: Sequence, reason: str, now: float) -> None:
        request_id = sequence.request.request_id
        siblings = self._live[request_id]
        siblings.remove(sequence)
        if not siblings:
            del self._live[request_id]
        self._scheduler.drop(sequence)
        self._ledger.finished(sequence, reason, now)

    def check_integrity(self) -> None:
        """Raise AssertionError on any broken invariant of pool, tables, queues or registered blocks."""
        scheduler = self._scheduler
        scheduler.check_integrity()
        live = [sequence for siblings in self._live.values() for sequence in siblings]
        if {id(sequence) for sequence in live} != {id(s) for s in (*scheduler.running, *scheduler.waiting)}:
            raise AssertionError("a sequence is live but not queued, or queued but not live")


def _scored(sequence: Sequence, start_token: int, outcome: PromptScores) -> SampledToken | None:
    """Keep a chunk's prompt logprobs, after a preemption in the place of the same ones; the token it sampled."""
    if sequence.prompt_scores is not None:
        sequence.prompt_scores[start_token : start_token + len(outcome.scores)] = outcome.scores
    return outcome.token
