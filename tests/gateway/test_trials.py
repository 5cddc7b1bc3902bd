"""Trials: what a good one is, when a worker hangs, and when it is suspect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from gateway.fleet import Fleet
from gateway.metrics import Metrics
from gateway.trials import Trials, trial_request
from gateway.upstream import Timeouts, Upstream
from gateway.worker_state import ServingFacts, Worker
from tests.gateway.builders import build_backend, build_healthy
from tests.gateway.scripted_worker import (
    Exchange,
    Script,
    ScriptedWorker,
    close_at_once,
    ordinary,
    plain_json,
    raw,
    reset_at_once,
    scripted_worker,
    silent,
    stream_then,
    until,
)

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}"


class Rig:
    """Trials of a worker at a socket and of another that there is not."""

    def __init__(self, worker: ScriptedWorker, upstream: Upstream) -> None:
        self.now = asyncio.get_running_loop().time
        self.skew = 0.0
        self.upstream = upstream
        self.fleet = Fleet({"m": ServingFacts()})
        for name, port in (("w1", worker.port), ("w2", 1)):
            self.fleet.add(build_backend(name, port=port, api_key="wk"))
            self.fleet.probed(name, build_healthy(), now=0.0)
        self.metrics = Metrics(CollectorRegistry())
        self.trials = Trials(
            self.fleet,
            upstream,
            self.metrics,
            lambda: self.now() + self.skew,
            trial_seconds=0.3,
            first_byte_seconds=8.0,
        )

    @property
    def worker(self) -> Worker:
        return self.fleet.worker("w1")

    @asynccontextmanager
    async def asked(self, *, streams: bool = True) -> AsyncIterator[None]:
        """While a request is at the worker, unanswered."""
        head, body = trial_request(self.worker)
        target = self.worker.backend.address
        before = len(self.upstream.busy_at(target))
        task = asyncio.create_task(self.upstream.attempt(target, head, body, streams=streams))
        async with self.fleet.lease("w1"):
            await until(lambda: len(self.upstream.busy_at(target)) > before)
            yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def build_rig(script: Script = ordinary) -> AsyncIterator[tuple[Rig, ScriptedWorker]]:
    async with scripted_worker(script) as worker:
        upstream = Upstream(Timeouts(1.0, 8.0, 8.0, 8.0))
        try:
            yield Rig(worker, upstream), worker
        finally:
            upstream.close()


@pytest.mark.parametrize(
    ("script", "good"),
    [
        (ordinary, True),
        (plain_json, True),
        (raw(NOT_FOUND), True),
        (raw(BROKEN), False),
        (raw(BUSY), False),
        (raw(b"nonsense\r\n\r\n"), False),
        (reset_at_once, False),
        (close_at_once, False),
        (silent, False),
        (stream_then(3, silent), False),
        (stream_then(3, reset_at_once), False),
    ],
)
async def test_a_trial_is_good_when_its_answer_ends(script: Script, good: bool) -> None:
    """A refusal is an answer too: what does not do completions may do embeddings."""
    async with build_rig(script) as (rig, _):
        assert await rig.trials.good(rig.worker) is good
        assert rig.upstream.busy_count == 0
        outcome = {"outcome": "good" if good else "bad"}
        assert rig.metrics.registry.get_sample_value("homing_trials_total", outcome) == 1


async def test_nobody_there_is_a_bad_trial() -> None:
    """Refused."""
    async with build_rig() as (rig, _):
        assert not await rig.trials.good(rig.fleet.worker("w2"))


async def test_a_trial_asks_for_little_and_says_what_it_is() -> None:
    """Four streamed tokens of a model that the worker lists, with the worker's key and no tenant's anything."""
    async with build_rig() as (rig, worker):
        await rig.trials.good(rig.worker)
        (trial,) = worker.trials
        assert not worker.exchanges
        assert json.loads(trial.body) == {"model": "m", "prompt": "1", "max_tokens": 4, "stream": True}
        assert trial.field("authorization") == "Bearer wk"
        assert trial.head.startswith(b"POST /v1/completions HTTP/1.1\r\n")


async def test_a_worker_hangs_when_probes_and_streams_are_silent() -> None:
    """Row A5: both, and for as long as a probe may take; one silent probe may be our own doing."""
    async with build_rig(silent) as (rig, _):
        assert not rig.trials.hangs(rig.worker), "it was asked for nothing"
        async with rig.asked():
            rig.worker.silent_probes = 1
            assert not rig.trials.hangs(rig.worker), "it was asked just now"
            rig.skew = 1.0
            assert rig.trials.hangs(rig.worker)
            rig.worker.silent_probes = 0
            assert not rig.trials.hangs(rig.worker)
            rig.worker.silent_probes, rig.worker.heard_at = 1, rig.now() + 0.9
            assert not rig.trials.hangs(rig.worker), "another stream of it moves"


async def test_an_answer_that_comes_whole_may_take_its_time() -> None:
    """Nothing is expected of it before its end."""
    async with build_rig(silent) as (rig, _):
        async with rig.asked(streams=False):
            rig.skew, rig.worker.silent_probes = 5.0, 1
            assert not rig.trials.hangs(rig.worker)
            assert not rig.trials.suspect(rig.worker)


async def test_a_worker_is_suspect_when_others_answer_and_it_does_not() -> None:
    """Row A5 behind good probes: a quarter of the time that a first byte may take."""
    async with build_rig(silent) as (rig, _):
        async with rig.asked():
            rig.skew = 1.9
            rig.fleet.worker("w2").heard_at = rig.now() + rig.skew
            assert not rig.trials.suspect(rig.worker)
            rig.skew = 2.1
            assert rig.trials.suspect(rig.worker)
            rig.fleet.worker("w2").heard_at = 0.0
            assert not rig.trials.suspect(rig.worker), "all are slow"


async def test_a_stream_that_moves_is_heard() -> None:
    """Bytes of one stream speak for the worker, whatever others wait for."""
    moving = asyncio.Event()

    async def drip(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"data: {}\n\n")
        moving.set()
        await exchange.client_gone()

    async with build_rig(drip) as (rig, worker):
        target = rig.worker.backend.address
        head, body = trial_request(rig.worker)
        connection = await rig.upstream.attempt(target, head, body)
        worker.script = silent
        async with rig.asked():
            rig.skew, rig.worker.silent_probes = 1.0, 1
            connection.last_byte_at = rig.now() + 0.9
            assert not rig.trials.hangs(rig.worker)
            connection.last_byte_at -= 5.0
            assert rig.trials.hangs(rig.worker)
        rig.upstream.release(connection)
