"""Events of worker processes: followed through kill -9 and restart, equal from process to process, told over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.backends.events.consumer import Picture, Subscriber
from tests.backends.server_builders import recorded, running_worker, until
from tests.backends.worker_process import WorkerProcess, worker_process

SMALL = ("--block-size", "4", "--num-gpu-blocks-override", "65", "--max-model-len", "200")
FREE = "tcp://127.0.0.1:*"
REQUESTS = int(os.environ.get("FOLLOWED_REQUESTS", "400"))
"""`make follow` has ten thousand."""


def events_config(endpoint: str = FREE, replay_endpoint: str | None = FREE, **changes: Any) -> tuple[str, str]:
    settings = {"enable_kv_cache_events": True, "endpoint": endpoint, "replay_endpoint": replay_endpoint, **changes}
    return "--kv-events-config", json.dumps(settings)


@asynccontextmanager
async def worker_with_events(folder: Path, *arguments: str, **environment: str) -> AsyncIterator[WorkerProcess]:
    """A simulated worker process whose events come out of files in `folder`."""
    config = events_config(f"ipc://{folder}/events", f"ipc://{folder}/replay")
    async with worker_process(
        "--simulated", *SMALL, *config, "--enable-cache-routes", *arguments, **environment
    ) as worker:
        yield worker


async def load(client: aiohttp.ClientSession, url: str, requests: int, generator: random.Random) -> None:
    """Random prompts with shared heads, eight at a time; a worker that dies meanwhile ends it."""

    async def one() -> None:
        prompt = [generator.randrange(4)] * generator.randint(1, 40) + [generator.randrange(50)] * 9
        body = {"prompt": prompt, "max_tokens": generator.randint(1, 5), "ignore_eos": True}
        if generator.random() < 0.3:
            body["cache_salt"] = "tenant"
        async with client.post(f"{url}/v1/completions", json=body) as response:
            assert response.status == 200

    for _ in range(requests // 8):
        await asyncio.gather(*(one() for _ in range(8)))


async def truth(client: aiohttp.ClientSession, url: str) -> set[int]:
    """The low 64 bits of the names of everything cached, as the worker itself says."""
    async with client.get(f"{url}/v1/cache/map", params={"hashes": "true", "top": "0"}) as response:
        return {int(name[-16:], 16) for name in (await response.json())["hashes"]}


async def agreed(client: aiohttp.ClientSession, url: str, subscriber: Subscriber) -> None:
    """Wait until the consumer's picture is the truth."""

    async def same() -> bool:
        if not subscriber.poll():
            subscriber.catch_up()
        return subscriber.picture.hashes == await truth(client, url)

    await until(same, "the consumer never had the worker's blocks")


async def test_a_consumer_follows_a_worker_through_a_kill_and_a_restart(tmp_path):
    """Numbers start at 0 again: a new epoch, in which nothing of the old picture is believed."""
    generator = random.Random(5)
    subscriber = Subscriber(f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay", Picture())
    try:
        async with aiohttp.ClientSession() as client:
            async with worker_with_events(tmp_path) as worker:
                await load(client, worker.url, REQUESTS * 3 // 4, generator)
                await agreed(client, worker.url, subscriber)
                assert len(subscriber.picture.hashes) > 30
                assert await worker.end(signal.SIGKILL) == -signal.SIGKILL
            async with worker_with_events(tmp_path) as worker:
                await load(client, worker.url, REQUESTS // 4, generator)
                await agreed(client, worker.url, subscriber)
                assert subscriber.follower.epochs == 2
                async with client.post(f"{worker.url}/v1/completions", json={"prompt": [77] * 20}) as response:
                    assert response.status == 200
                await agreed(client, worker.url, subscriber)
    finally:
        subscriber.close()


async def test_processes_name_the_same_blocks_alike(tmp_path):
    """Case H-08, trap 4: PYTHONHASHSEED random, 0 and 1, with and without a salt."""

    async def names(seed: str) -> set[int]:
        folder = tmp_path / seed
        folder.mkdir()
        async with worker_with_events(folder, PYTHONHASHSEED=seed) as worker, aiohttp.ClientSession() as client:
            for salt in ({}, {"cache_salt": "tenant"}):
                body = {"prompt": list(range(1, 22)), "max_tokens": 1, **salt}
                async with client.post(f"{worker.url}/v1/completions", json=body) as response:
                    assert response.status == 200
            return await truth(client, worker.url)

    found = await asyncio.gather(*map(names, ("random", "0", "1")))
    assert len(found[0]) == 10
    assert found[0] == found[1] == found[2]


async def test_events_are_out_before_the_answer(tmp_path):
    """Who has an answer finds its blocks with the replay socket at once."""
    async with running_worker(*events_config(), *SMALL) as worker:
        worker.worker.events.start()
        config = worker.worker.events.config
        subscriber = Subscriber(config.endpoint, config.replay_endpoint, Picture())
        try:
            for number in range(20):
                prompt = [number + 1] * 13
                await worker.complete(prompt, max_tokens=1)
                subscriber.catch_up()
                assert subscriber.picture.cached_tokens(prompt) == 12
        finally:
            subscriber.close()
            worker.worker.events.stop()


async def test_a_reset_reaches_the_consumer(tmp_path):
    """Case H-09: AllBlocksCleared, and the next same prompt finds nothing."""
    async with running_worker(*events_config(), *SMALL, "--enable-dev-routes") as worker:
        worker.worker.events.start()
        config = worker.worker.events.config
        subscriber = Subscriber(config.endpoint, config.replay_endpoint, Picture())
        try:
            await worker.complete([1] * 13, max_tokens=1)
            subscriber.catch_up()
            assert subscriber.picture.hashes
            assert await worker.post("/reset_prefix_cache", None) == (200, {"success": True})

            async def emptied() -> bool:
                subscriber.catch_up()
                return not subscriber.picture.hashes

            await until(emptied, "the consumer never heard of the reset")
            answer = await worker.complete([1] * 13, max_tokens=1)
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        finally:
            subscriber.close()
            worker.worker.events.stop()


@pytest.mark.parametrize(("mode", "told"), [("full", True), ("incremental", False), (None, False)])
async def test_a_router_that_came_late_may_have_reused_blocks_told_again(mode, told):
    """vLLM's kv_cache_report_mode: "full" repeats what the prompt finds cached."""
    async with running_worker(*events_config(), *SMALL) as worker:
        await worker.complete([1] * 13, max_tokens=1, cache_salt="s")
        heard: list[Any] = []
        worker.worker.events._events._publish = heard.extend
        extra = {} if mode is None else {"vllm_xargs": {"kv_cache_report_mode": mode}}
        await worker.complete([1] * 13, max_tokens=1, cache_salt="s", **extra)
        assert [(len(event.block_hashes), event.extra_keys[0]) for event in heard] == ([(3, ["s"])] if told else [])


async def test_an_unknown_report_mode_is_refused():
    """400 that names it."""
    async with running_worker(*SMALL) as worker:
        body = {"prompt": [1], "vllm_xargs": {"kv_cache_report_mode": "some"}}
        status, answer = await worker.post("/v1/completions", body)
        assert (status, answer["error"]["param"]) == (400, "vllm_xargs.kv_cache_report_mode")


async def test_the_sources_are_told_as_vllm_tells_them():
    """The fields of vLLM 0.32, in its order, with the ports that were taken; nothing where nothing is published."""
    theirs = json.loads(recorded("kv_event_sources")["body"])
    async with running_worker(*events_config(topic="kv@a@b"), *SMALL) as worker:
        worker.worker.events.start()
        async with worker.client.get("/kv_event_sources") as response:
            ours = await response.json()
        worker.worker.events.stop()
    assert list(ours) == list(theirs) == ["0"]
    assert list(ours["0"]) == list(theirs["0"])
    assert "*" not in ours["0"]["endpoint"] + ours["0"]["replay_endpoint"]
    async with running_worker(*SMALL) as worker, worker.client.get("/kv_event_sources") as response:
        assert await response.json() == {}


async def test_server_info_tells_them_as_sglang_does():
    """Host, ports, topic, block size: a router puts the worker's own host in place of a wildcard."""
    config = events_config("tcp://*:5999", "tcp://*:6999", topic="kv")
    async with running_worker(*config, *SMALL) as worker, worker.client.get("/server_info") as response:
        assert (await response.json())["kv_events"] == {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": 5999,
            "topic": "kv",
            "block_size": 4,
            "dp_size": 1,
            "replay_endpoint_port_base": 6999,
        }
    async with running_worker("--enable-dev-routes", *SMALL) as worker, worker.client.get("/server_info") as response:
        assert (await response.json())["kv_events"] is None


async def test_nothing_is_published_without_a_prefix_cache():
    """There are no findable blocks to tell of."""
    async with running_worker(*events_config(), *SMALL, "--no-enable-prefix-caching") as worker:
        assert worker.worker.events.config is None


async def test_a_taken_endpoint_ends_the_start_with_a_sentence():
    """Exit status 2, and the endpoint's name."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = events_config(FREE, f"tcp://127.0.0.1:{port}")
        with pytest.raises(AssertionError, match=f"cannot bind tcp://127.0.0.1:{port}"):
            async with worker_process("--simulated", *SMALL, *config):
                pass
