"""The engine's thread: requests in, deltas out, clients that leave, steps that fail, engines that die."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from backends.accounts import EngineStats
from backends.admission import Admission
from backends.api_errors import (
    BadRequestError,
    EngineDeadError,
    GenerationFailedError,
    QueuedTokensOverflowError,
    QueueOverflowError,
    ServerClosingError,
)
from backends.async_engine import AsyncEngine, OpenAnswer
from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.simulated import Timing
from backends.types import Batch, Delta, GenerationRequest, SampledToken, SamplingParams
from router.tokenise import bytes_tokeniser
from tests.backends.server_builders import FailingRunner, Gate


class DyingRunner(FailingRunner):
    """Does what no runner may: it returns fewer results than items."""

    dying = False

    def execute(self, batch: Batch) -> list[SampledToken | None]:
        return [] if self.dying else super().execute(batch)


class Rig:
    """An engine in its thread, and what the test holds of it."""

    def __init__(self, admission: Admission, **changes) -> None:
        self.gate = Gate()
        self.runner = DyingRunner(Timing(fixed_seconds=1.0), self.gate)
        self.stats: list[EngineStats] = []
        sizes = {"num_blocks": 65, "max_model_tokens": 512, "max_sequences": 4, "max_batched_tokens": 64}
        config = EngineConfig(**{**sizes, **changes})
        self.engine = Engine(config, self.runner, bytes_tokeniser(), time.monotonic)
        self.thread = AsyncEngine(self.engine, admission=admission, watch=self.stats.append)

    async def until_stats(self, holds) -> None:
        async with asyncio.timeout(20):
            while not (self.stats and holds(self.stats[-1])):  # noqa: ASYNC110 - it happens in another thread
                await asyncio.sleep(0.005)


@asynccontextmanager
async def running_engine(admission: Admission | None = None, **changes) -> AsyncIterator[Rig]:
    rig = Rig(admission or Admission(), **changes)
    rig.thread.start()
    try:
        yield rig
    finally:
        rig.gate.open()
        await rig.thread.stop()


def build_request(name: str = "a", prompt: bytes = b"hello", **sampling) -> GenerationRequest:
    return GenerationRequest(name, list(prompt), SamplingParams(**{"max_tokens": 4, "temperature": 0.0, **sampling}))


async def collect(answer: OpenAnswer) -> list[Delta]:
    return [delta async for deltas in answer for delta in deltas]


async def ask(rig: Rig, *requests: GenerationRequest) -> list[Delta]:
    async with rig.thread.answer(requests) as answer:
        return await collect(answer)


async def test_a_request_is_answered_to_its_end():
    """All tokens, then the loop ends by itself."""
    async with running_engine() as rig:
        deltas = await ask(rig, build_request(max_tokens=5))
        assert [delta.finish_reason for delta in deltas] == [None] * 4 + ["length"]
        await rig.until_stats(lambda stats: stats.running == 0 and stats.kv_usage == 0.0)
        rig.engine.check_integrity()


async def test_many_requests_get_their_own_answers():
    """Concurrent callers, one engine."""
    async with running_engine() as rig:
        names = [f"r{number}" for number in range(20)]
        answers = await asyncio.gather(*(ask(rig, build_request(name, name.encode() * 9)) for name in names))
        assert [{delta.request_id for delta in deltas} for deltas in answers] == [{name} for name in names]
        assert all(deltas[-1].completion_tokens == 4 for deltas in answers)


async def test_a_batch_ends_when_its_last_answer_ends():
    """Two prompts, two answers each."""
    async with running_engine() as rig:
        requests = [build_request("a", n=2, temperature=1.0), build_request("b", n=2, temperature=1.0, max_tokens=9)]
        deltas = await ask(rig, *requests)
        ends = [(delta.request_id, delta.choice) for delta in deltas if delta.finish_reason]
        assert sorted(ends) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


async def test_a_client_that_leaves_frees_its_blocks():
    """Leaving the context aborts what is unfinished."""
    async with running_engine() as rig:
        async with rig.thread.answer([build_request(max_tokens=400)]) as answer:
            async for _ in answer:
                break
        await rig.until_stats(lambda stats: stats.running == 0 and stats.waiting == 0 and stats.kv_usage == 0.0)


async def test_a_client_that_leaves_before_it_is_taken_leaves_nothing():
    """Cancelled while the engine stands in a long step."""
    async with running_engine() as rig:
        rig.gate.shut()
        first = asyncio.create_task(ask(rig, build_request("a")))
        await rig.gate.holds_a_step()
        second = asyncio.create_task(ask(rig, build_request("b")))
        await asyncio.sleep(0)
        second.cancel()
        with suppress(asyncio.CancelledError):
            await second
        rig.gate.open()
        await first
        await rig.until_stats(lambda stats: stats.running == 0 and stats.waiting == 0)
        assert not rig.engine.has_work


async def test_a_refused_request_is_a_bad_request():
    """The engine's reason, with the field."""
    async with running_engine() as rig:
        with pytest.raises(BadRequestError) as caught:
            await ask(rig, build_request(prompt=b"x" * 600))
        assert caught.value.param == "prompt"
        assert len(await ask(rig, build_request())) == 4


async def test_a_batch_is_taken_whole_or_not_at_all():
    """The good half of a refused batch does not run on."""
    async with running_engine() as rig:
        with pytest.raises(BadRequestError):
            await ask(rig, build_request("a"), build_request("b", b"x" * 600))
        await rig.until_stats(lambda stats: stats.running == 0 and stats.waiting == 0)
        assert not rig.engine.has_work


async def test_too_many_waiting_requests_are_turned_away():
    """vLLM's --max-num-queued-reqs."""
    async with running_engine(Admission(max_queued_requests=1), max_sequences=1) as rig:
        rig.gate.shut()
        taken = [asyncio.create_task(ask(rig, build_request(name, max_tokens=50))) for name in "abc"]
        await rig.gate.holds_a_step()
        rig.gate.open()
        results = await asyncio.gather(*taken, return_exceptions=True)
        assert any(isinstance(result, QueueOverflowError) for result in results)
        assert any(isinstance(result, list) and len(result) == 50 for result in results)


async def test_a_batch_over_the_bounds_is_taken_by_an_idle_engine():
    """Trying again, as a 503 says, would never help it."""
    async with running_engine(Admission(max_queued_requests=2, max_queued_tokens=20), max_sequences=1) as rig:
        deltas = await ask(rig, *(build_request(name) for name in "abcdefgh"))
        assert sum(delta.finish_reason is not None for delta in deltas) == 8


async def test_too_many_waiting_tokens_are_turned_away():
    """vLLM's --max-num-queued-tokens; a single long prompt is no crowd."""
    async with running_engine(Admission(max_queued_tokens=100)) as rig:
        assert len(await ask(rig, build_request(prompt=b"x" * 150))) == 4
        rig.gate.shut()
        taken = [asyncio.create_task(ask(rig, build_request(name, b"y" * 60))) for name in "abc"]
        await rig.gate.holds_a_step()
        rig.gate.open()
        results = await asyncio.gather(*taken, return_exceptions=True)
        assert any(isinstance(result, QueuedTokensOverflowError) for result in results)
        assert any(isinstance(result, list) for result in results)


async def test_a_failed_step_loses_its_requests_and_no_other():
    """The next request is served."""
    async with running_engine() as rig:
        rig.runner.failures = 1
        with pytest.raises(GenerationFailedError):
            await ask(rig, build_request())
        assert rig.thread.alive
        assert len(await ask(rig, build_request("b"))) == 4


async def test_a_dead_engine_answers_everybody_at_once():
    """Those who wait, and those who come later."""
    async with running_engine() as rig:
        rig.gate.shut()
        waiting = [asyncio.create_task(ask(rig, build_request(name, max_tokens=50))) for name in "ab"]
        reset = asyncio.create_task(rig.thread.reset_prefix_cache())
        await rig.gate.holds_a_step()
        rig.runner.dying = True
        rig.gate.open()
        results = await asyncio.wait_for(asyncio.gather(*waiting, reset, return_exceptions=True), 10)
        assert [type(result) for result in results[:2]] == [EngineDeadError] * 2
        assert not rig.thread.alive
        with pytest.raises(EngineDeadError):
            await ask(rig, build_request("c"))
        with pytest.raises(EngineDeadError):
            await rig.thread.reset_prefix_cache()


async def test_stopping_ends_open_answers_with_an_error():
    """Nobody hangs on a worker that shuts down."""
    async with running_engine() as rig:
        rig.gate.shut()
        open_answer = asyncio.create_task(ask(rig, build_request(max_tokens=400)))
        await rig.gate.holds_a_step()
        stopping = asyncio.create_task(rig.thread.stop())
        await asyncio.sleep(0)  # the task asks; the engine hears it when its step is over
        rig.gate.open()
        await stopping
        with pytest.raises(ServerClosingError):
            await open_answer
        with pytest.raises(ServerClosingError):
            await ask(rig, build_request("b"))


async def test_the_cache_is_not_reset_while_blocks_are_in_use():
    """H-09: false while an answer runs, true afterwards."""
    async with running_engine() as rig:
        rig.gate.shut()
        async with rig.thread.answer([build_request(max_tokens=400)]):
            await rig.gate.holds_a_step()
            reset = asyncio.create_task(rig.thread.reset_prefix_cache())
            await asyncio.sleep(0)  # the task asks; the engine hears it when its step is over
            rig.gate.open()
            assert await reset is False
        assert await rig.thread.reset_prefix_cache() is True


async def test_an_order_is_carried_out_by_an_idle_engine():
    """From any thread: it runs in the engine's, and whoever watches hears of the engine after it."""
    async with running_engine() as rig:
        await rig.until_stats(lambda stats: stats.running == 0)
        seen: list[str] = []
        before = len(rig.stats)
        await asyncio.to_thread(rig.thread.order, lambda: seen.append(threading.current_thread().name))
        await rig.until_stats(lambda _: len(rig.stats) > before)
        assert seen == ["engine"]


async def test_an_idle_engine_uses_no_processor_time():
    """Its thread sleeps until something comes."""
    async with running_engine() as rig:
        await ask(rig, build_request())
        before = time.process_time()
        await asyncio.sleep(0.3)
        assert time.process_time() - before < 0.1
