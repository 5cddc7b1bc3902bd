"""The periodic line: vLLM's form, to the letter."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from dataclasses import MISSING

from backends.accounts import EngineStats
from backends.log_line import Pulse, Sample, log_line

VLLM_FORM = re.compile(
    r"Engine 000: Avg prompt throughput: \d+\.\d tokens/s, Avg generation throughput: \d+\.\d tokens/s, "
    r"Running: \d+ reqs, Waiting: \d+ reqs, GPU KV cache usage: \d+\.\d%, Prefix cache hit rate: \d+\.\d%"
)


def build_stats(**changes) -> EngineStats:
    required = [name for name, field in EngineStats.__dataclass_fields__.items() if field.default is MISSING]
    return EngineStats(**{**dict.fromkeys(required, 0), **changes})


def test_the_line_has_vllms_form_and_the_right_numbers():
    """Rates over the time between the samples; cached tokens are no prompt throughput."""
    now = build_stats(
        running=1,
        prompt_tokens=112,
        cached_prompt_tokens=100,
        generation_tokens=34,
        kv_usage=0.023,
        recent_hit_rate=0.456,
    )
    line = log_line(Sample(build_stats(), 0.0), Sample(now, 10.0))
    assert line is not None
    assert VLLM_FORM.fullmatch(line)
    assert line == (
        "Engine 000: Avg prompt throughput: 1.2 tokens/s, Avg generation throughput: 3.4 tokens/s, "
        "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 2.3%, Prefix cache hit rate: 45.6%"
    )


def test_nothing_is_logged_while_nothing_happens():
    """An idle worker is silent, also one that was busy before."""
    idle = build_stats(prompt_tokens=100, generation_tokens=50, recent_hit_rate=0.5)
    assert log_line(Sample(idle, 0.0), Sample(idle, 10.0)) is None


def test_a_request_that_waits_is_something():
    """A stuck worker is not silent."""
    assert log_line(Sample(build_stats(), 0.0), Sample(build_stats(waiting=3), 10.0))


def test_a_pulse_tells_the_time_since_it_last_spoke():
    """Not since the start."""
    pulse = Pulse()
    seen: list[EngineStats] = []
    watch = pulse.beside(seen.append)
    assert pulse.line(0.0) is None
    for seconds, tokens in ((0.0, 0), (10.0, 100), (20.0, 300)):
        watch(build_stats(generation_tokens=tokens))
        line = pulse.line(seconds)
    assert line is not None
    assert "Avg generation throughput: 20.0 tokens/s" in line
    assert len(seen) == 3


async def test_a_pulse_beats_until_it_is_stopped(caplog):
    """The line reaches the log."""
    pulse = Pulse()
    watch = pulse.beside(lambda stats: None)
    watch(build_stats())
    with caplog.at_level(logging.INFO, logger="homing.worker"):
        beating = asyncio.create_task(pulse.beat(iter(range(1000)).__next__, interval_seconds=0.0))
        while not caplog.messages:
            watch(build_stats(running=1))
            await asyncio.sleep(0)
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
    assert VLLM_FORM.fullmatch(caplog.messages[0])
