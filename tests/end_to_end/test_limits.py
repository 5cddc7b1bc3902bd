"""Limits over gateway processes on one Redis: exact, and right again after a gateway was killed (C9, C10, D3)."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gateway.limits.script import tenant_key
from gateway.settings import Redis
from tests.end_to_end.fleet import KEYS, MODEL, build_config
from tests.end_to_end.processes import GatewayProcess, gateway, get, simulated_worker, wait_for
from tests.end_to_end.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.skipif(not os.environ.get("HOMING_TEST_LIMITS"), reason="make limits runs it")

Result = TypeVar("Result")

SLOTS = 12
SLOTS_BACK_SECONDS = 12.0


@dataclass
class Group:
    """A worker, a Redis, and gateways with a tenant of twelve slots and one of sixty requests a minute."""

    redis: RedisServer
    gateways: list[GatewayProcess]
    stack: ExitStack
    directory: Path
    config: dict[str, Any]


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Iterator[Group]:
    directory = tmp_path_factory.mktemp("limits")
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(directory))
        slow = ("--simulated-seconds-per-token", "0.05", "--max-num-seqs", "256")
        worker = stack.enter_context(simulated_worker(directory, *slow)).url
        config = {**build_config(directory, {"w1": worker}), "redis": {"url": redis.url}}
        config["tenants"]["alpha"]["limits"] = {"concurrency": SLOTS}
        config["tenants"]["beta"]["limits"] = {"requests_per_minute": 60}
        gateways = [stack.enter_context(gateway(directory, config)) for _ in range(3)]
        yield Group(redis, gateways, stack, directory, config)


def ask(process: GatewayProcess, tenant: str, tokens: int) -> int:
    """The status of one request; 0 where the gateway was gone."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "ignore_eos": True}
    request = urllib.request.Request(
        process.url + "/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {KEYS[tenant]}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def says(group: Group) -> str:
    """What the gateways' logs tell of Redis, for a failure's message."""
    lines = [line for each in group.gateways for line in each.log.read_text().splitlines() if "imits" in line]
    return "\n".join(lines[-20:])


def ask_all(gateways: list[GatewayProcess], tenant: str, count: int, tokens: int) -> list[int]:
    with ThreadPoolExecutor(count) as pool:
        asked = [pool.submit(ask, gateways[n % len(gateways)], tenant, tokens) for n in range(count)]
        return [each.result() for each in asked]


def failed_calls(gateways: list[GatewayProcess]) -> list[str]:
    """How many calls to Redis each gateway gave up, as its page says."""
    pages = [get(each.admin + "/metrics")[1] for each in gateways]
    return re.findall(r"^homing_redis_errors_total .*", "\n".join(pages), re.MULTILINE)


def while_redis_answers(gateways: list[GatewayProcess], work: Callable[[], Result]) -> Result:
    """What comes of `work` when Redis answers all through it: who waited 50 ms in vain decides by itself, as told."""
    for _ in range(10):
        before = failed_calls(gateways)
        result = work()
        if failed_calls(gateways) == before:
            return result
    raise AssertionError("Redis did not answer in time, ten times over")


def slots_in_redis(group: Group) -> int:
    """The slots of alpha that gateways said to Redis they hold."""
    told = group.redis.command("HGETALL", tenant_key(Redis(url="").name, "alpha"))
    return sum(map(int, re.findall(rb"\n(\d+):\d{13}\r", told)))


@pytest.mark.row("C9", smoke=True)
def test_slots_are_exact_over_processes(group):
    """Thirty-six at once over three gateways, each a second long: twelve pass."""
    got = while_redis_answers(group.gateways, lambda: ask_all(group.gateways, "alpha", 36, 40))
    print(f"{got.count(200)} of 36 passed")
    assert got.count(200) == SLOTS, says(group)
    assert got.count(429) == 36 - SLOTS


def test_a_rate_is_exact_over_processes(group):
    """A hundred at once: sixty, what refilled meanwhile, and one more for each gateway at the most."""

    def ask_hundred() -> tuple[list[int], float]:
        group.redis.command("FLUSHALL")
        began = time.monotonic()
        return ask_all(group.gateways, "beta", 100, 1), time.monotonic() - began

    got, seconds = while_redis_answers(group.gateways, ask_hundred)
    most = 60 + seconds + len(group.gateways)
    print(f"{got.count(200)} of 100 passed, {most:.0f} at the most")
    assert 60 <= got.count(200) <= most
    assert set(got) == {200, 429}


@pytest.mark.row("C10", smoke=True)
def test_the_slots_of_a_killed_gateway_come_back(group):
    """C10, D3: kill -9 with all slots open; the others fail nobody, and the slots are free within twelve seconds."""
    others = group.gateways
    with gateway(group.directory, group.config) as victim:
        lost: list[int] = []
        threads = [threading.Thread(target=lambda: lost.append(ask(victim, "alpha", 2000))) for _ in range(SLOTS)]
        wait_for(lambda: slots_in_redis(group) == 0, seconds=20, what="the slots of the tests before")
        for thread in threads:
            thread.start()
        wait_for(lambda: slots_in_redis(group) == SLOTS, seconds=20, what="all slots taken")
        assert while_redis_answers(others, lambda: ask(others[0], "alpha", 1)) == 429
        victim.kill()
    killed = time.monotonic()
    for thread in threads:
        thread.join()
    assert set(lost) == {0}
    wait_for(lambda: ask(others[1], "alpha", 1) == 200, seconds=SLOTS_BACK_SECONDS + 1, what="the slots")
    took = time.monotonic() - killed
    print(f"slots back after {took:.1f} s")
    assert took <= SLOTS_BACK_SECONDS
    got = while_redis_answers(others, lambda: ask_all(others, "alpha", 30, 40))
    assert got.count(200) == SLOTS
