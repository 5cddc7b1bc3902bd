"""What an operator sees: tenants and not keys, whether affinity pays, and a gateway that answers while it tokenises."""

from __future__ import annotations

import asyncio
import json
import random
import time

from gateway.secrets import key_digest
from tests.gateway.running_gateway import Running, running_gateway
from tests.gateway.scripted_worker import Exchange, answer_json, plain_json, scripted_worker

LONG = 400_000
"""Characters: about a hundred thousand tokens."""


async def exposition(running: Running) -> str:
    """The text that Prometheus gets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.admin_port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return text


async def without_cache(exchange: Exchange) -> None:
    """An answer of a worker whose cache is off."""
    answer = json.loads(answer_json())
    answer["usage"]["prompt_tokens_details"]["cached_tokens"] = 0
    await exchange.send_json(json.dumps(answer).encode())


async def test_metrics_name_tenants_and_nothing_of_a_key():
    """E-09: neither keys, nor their beginnings, nor bare hashes of them, known ones and unknown ones."""
    keys = ("acme-key", "shared-key", "curious-key", "sk-CANARY-91-unknown")
    async with scripted_worker() as worker, running_gateway(worker) as running:
        for key in keys * 3:
            await running.ask(key=key)
        text = await exposition(running)
    assert 'tenant="acme"' in text
    for key in keys:
        assert key[:8] not in text.replace('tenant="curious"', "").replace('tenant="shared"', "")
        assert key_digest(key).hex()[:8] not in text


async def test_counters_tell_affinity_from_hits():
    """E-12: to a worker whose cache is off everything comes home, much is predicted, and nothing is reported."""
    head = [{"role": "system", "content": "Rules of the house, to be kept in mind. " * 60}]
    async with scripted_worker(without_cache) as worker, running_gateway(worker) as running:
        for number in range(6):
            await running.ask(messages=[*head, {"role": "user", "content": f"Question {number}?"}])
        labels = {"tenant": "acme", "model": "m"}
        assert running.count("affinity_placements_total", **labels, outcome="home") == 6
        assert running.count("predicted_cached_tokens_total", **labels) > 0
        assert running.count("cached_tokens_total", **labels) == 0
        assert running.count("prompt_tokens_total", **labels) == 600
        errors = {"model": "m", "source": "believed"}
        assert running.count("prediction_error_blocks_count", **errors) == 6
        assert running.count("prediction_error_blocks_bucket", **errors, le="0.0") == 1  # the first: nothing predicted


async def test_probes_are_answered_while_long_prompts_are_read():
    """G-14: eight long new prompts at once; /livez says that the loop turns, and soon."""
    draw = random.Random(3)
    words = [f"{draw.choice('abcdefgh')}{draw.randrange(10**6)}" for _ in range(LONG // 6)]

    async def probe(running: Running) -> float:
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.admin_port)
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert b" 200 OK" in answer.partition(b"\r\n")[0]
        return time.perf_counter() - began

    async with scripted_worker(plain_json) as worker, running_gateway(worker) as running:
        prompts = [" ".join(draw.sample(words, len(words))) for _ in range(8)]
        asking = [asyncio.create_task(running.ask(path="/v1/completions", prompt=prompt)) for prompt in prompts]
        took = []
        while not all(task.done() for task in asking):
            took.append(await probe(running))
        assert all(task.result().status in (200, 400) for task in asking)
    assert sorted(took)[int(len(took) * 0.9)] < 0.5, took
