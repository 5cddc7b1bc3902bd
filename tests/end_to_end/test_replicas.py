"""Gateways as processes on one Redis: killed, restarted and joined while requests go on (groups C and G)."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.end_to_end.fleet import MODEL, ask, build_config, cached, chat, client
from tests.end_to_end.processes import GatewayProcess, gateway, get, simulated_worker, wait_for
from tests.end_to_end.redis_server import RedisServer, redis_server

SYSTEM = "Answer in one word. " * 40
FORGOTTEN_SECONDS = 8.0


@dataclass
class Group:
    """Two workers, a Redis, and gateways that are started and ended by the tests."""

    directory: Path
    config: dict[str, Any]
    redis: RedisServer
    stack: ExitStack
    gateways: list[GatewayProcess] = field(default_factory=list)

    def start(self) -> GatewayProcess:
        started = self.stack.enter_context(gateway(self.directory, self.config))
        self.gateways.append(started)
        return started


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Iterator[Group]:
    directory = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(directory))
        # 2,000 tokens a second: a long prompt is in flight for seconds.
        slow = ("--simulated-prefill-tokens-per-second", "2000")
        workers = {f"w{number}": stack.enter_context(simulated_worker(directory, *slow)).url for number in (1, 2)}
        config = {**build_config(directory, workers), "redis": {"url": redis.url}}
        group = Group(directory, config, redis, stack)
        for _ in range(3):
            group.start()
        yield group


def series(process: GatewayProcess, name: str) -> float:
    """The sum of a metric's series."""
    found = re.findall(rf"^homing_{name}(?:{{[^}}]*}})? (\S+)$", get(process.admin + "/metrics")[1], re.MULTILINE)
    return sum(map(float, found))


def turns(number: int, count: int) -> list[dict[str, str]]:
    said = [f"{'question' if turn % 2 == 0 else 'answer'} {number} {turn} " * 8 for turn in range(2 * count - 1)]
    return chat(f"Case {number}. {SYSTEM}", *said)


def candidates(process: GatewayProcess, messages: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What this gateway believes of each worker, for a prompt."""
    body = json.dumps({"model": MODEL, "messages": messages}).encode()
    request = urllib.request.Request(process.admin + "/explain?tenant=alpha", data=body)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return list(json.load(answer)["placement"]["candidates"])


def busy(process: GatewayProcess) -> bool:
    """Whether this gateway believes that any worker has a request, whoever sent it."""
    return any(each["decode_seconds"] > 0 for each in candidates(process, chat("hello", "x")))


def believes(process: GatewayProcess, worker: str, messages: list[dict[str, str]]) -> bool:
    """Whether this gateway has heard that the worker has most of a prompt in its cache."""
    cached_tokens = {each["worker"]: each["cached_tokens"] for each in candidates(process, messages)}
    return cached_tokens[worker] > 64 and cached_tokens[worker] == max(cached_tokens.values())


def test_g11_a_restarted_gateway_places_as_before(group):
    """G-11: the first request after readiness goes where the conversation was; /readyz waits for probes and news."""
    first = {}
    for number in range(4):
        _, first[number] = ask(client(group.gateways[number % 2].url), turns(number, 1))
    group.gateways[2].kill()
    restarted = group.start()
    assert json.loads(get(restarted.admin + "/readyz")[1])["waiting_for"] == []
    for number in range(4):
        answer, worker = ask(client(restarted.url), turns(number, 2))
        assert worker == first[number]
        assert cached(answer) > 0
    group.gateways.remove(group.gateways[2])


def test_a_gateway_that_is_killed_leaves_nothing_in_the_others_queues(group):
    """kill -9 with requests open: after some seconds nobody counts them any more."""
    victim = group.start()
    others = group.gateways[:2]
    for number, each in enumerate(others):  # who has seen no answer yet expects none to take any time
        ask(client(each.url), turns(300 + number, 1))
    wait_for(lambda: not any(map(busy, others)), seconds=20)
    long = "tell me all " * 1000

    def ask_and_lose() -> None:
        with pytest.raises(openai.APIConnectionError):
            ask(client(victim.url), chat(long, "now"))

    asking = threading.Thread(target=ask_and_lose)
    asking.start()
    wait_for(lambda: all(map(busy, others)), seconds=20, what="news of the request")
    victim.kill()
    asking.join()
    group.gateways.remove(victim)
    wait_for(
        lambda: not any(map(busy, others)),
        seconds=FORGOTTEN_SECONDS,
        what="the dead gateway's request to be forgotten",
    )
    wait_for(lambda: all(series(each, "replicas_heard") == len(group.gateways) - 1 for each in others), seconds=10)


def test_no_request_fails_while_redis_is_killed_and_comes_back(group):
    """Traffic through all gateways all along: 0 errors, then all joined again and of one mind."""
    stop, failures, answered = threading.Event(), [], []

    def traffic(index: int) -> None:
        number = 0
        while not stop.is_set():
            try:
                answered.append(ask(client(group.gateways[index].url), turns(100 + number % 5, 1 + number // 5 % 3)))
            except Exception as error:
                failures.append(repr(error))
            number += 1

    threads = [threading.Thread(target=traffic, args=(index,)) for index in range(len(group.gateways))]
    for thread in threads:
        thread.start()
    group.redis.kill()
    wait_for(lambda: all(degraded(each) == ["redis"] for each in group.gateways), seconds=10)
    group.redis.start()
    wait_for(lambda: all(degraded(each) == [] for each in group.gateways), seconds=5, what="all to be joined again")
    wait_for(lambda: len(answered) > 10 or failures)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    _, worker = ask(client(group.gateways[0].url), turns(200, 1))
    wait_for(lambda: believes(group.gateways[1], worker, turns(200, 2)), seconds=20, what="the news of it")
    wait_for(lambda: not any(map(busy, group.gateways)), seconds=20, what="all news to be heard")
    answer, again = ask(client(group.gateways[1].url), turns(200, 2))
    assert again == worker
    assert cached(answer) > 0


def degraded(process: GatewayProcess) -> list[str]:
    status, text = get(process.admin + "/readyz")
    assert status == 200
    return list(json.loads(text)["degraded"])
