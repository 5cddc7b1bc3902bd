"""A gateway over two workers that publish what they cache: every prediction is exact, also after a crash."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import openai
import pytest
import zmq

from router.tokenise import find_smollm2
from tests.end_to_end.fleet import MODEL, build_config, client
from tests.end_to_end.processes import GatewayProcess, Process, free_port, gateway, get, simulated_worker, wait_for

POOL = ("--num-gpu-blocks-override", "150", "--max-model-len", "1024")
"""2,384 tokens of cache: a few prompts fill it, so that blocks are evicted all the time."""

MIXED = ["known", "believed: it publishes no events"]

DRAW = random.Random(7)
HEADS = [[DRAW.randrange(1, 250) for _ in range(400)] for _ in range(12)]


def event_flags(ports: tuple[int, int], **more: Any) -> tuple[str, ...]:
    """KV events at these ports, as vLLM is told."""
    endpoints = {"endpoint": f"tcp://*:{ports[0]}", "replay_endpoint": f"tcp://*:{ports[1]}"}
    return ("--kv-events-config", json.dumps({"enable_kv_cache_events": True, **endpoints, **more}))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Iterator[tuple[GatewayProcess, list[Process], int]]:
    """A gateway that reads token ids exactly, before a worker with events (and a replay port) and one without."""
    directory = tmp_path_factory.mktemp("mixed")
    ports = free_port(), free_port()
    flags = event_flags(ports)
    with simulated_worker(directory, *POOL, *flags) as telling, simulated_worker(directory, *POOL) as silent:
        urls = {"w0": telling.url, "w1": silent.url}
        with gateway(directory, build_config(directory, urls, tokenizer=str(find_smollm2()))) as process:
            wait_for_caches(process, MIXED)
            yield process, [telling, silent], ports[1]


def ask(api: openai.OpenAI, *tokens: int) -> str:
    """A completion of token ids; returns the worker."""
    raw = api.completions.with_raw_response.create(model=MODEL, prompt=list(tokens), max_tokens=12, temperature=0)
    return raw.headers["x-homing-backend"]


def ask_many(
    process: GatewayProcess, count: int, draw: random.Random, settle: Callable[[], object] = lambda: None
) -> set[str]:
    """Prompts with heads in common and ends of their own, each after `settle`; returns who answered."""
    api, workers = client(process.url), set()
    for _ in range(count):
        settle()
        tail = [draw.randrange(1, 250) for _ in range(draw.randrange(150))]
        workers.add(ask(api, *draw.choice(HEADS), *tail))
    return workers


def published(replay_port: int) -> int:
    """Batches that a worker has published: it sends what waits before it answers who asks for a replay."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as asker:
        asker.linger = 0
        asker.connect(f"tcp://127.0.0.1:{replay_port}")
        asker.send_multipart([b"", bytes(8)])
        count = 0
        while asker.poll(20_000) and asker.recv_multipart()[-2] != b"\xff" * 8:
            count += 1
        return count


def applied(process: GatewayProcess) -> float:
    """Batches that the gateway has taken in."""
    return sum(metric(process, f'event_batches_total{{outcome="{outcome}"}}') for outcome in ("applied", "replayed"))


def answered(process: GatewayProcess) -> list[tuple[int, int]]:
    """Predicted and reported cached tokens of every request so far, from the log."""
    lines = (json.loads(line) for line in process.log.read_text().splitlines() if '"event":"request"' in line)
    return [(line["predicted_cached_tokens"], line["cached_tokens"]) for line in lines]


def all_answered(process: GatewayProcess, count: int) -> list[tuple[int, int]] | None:
    """The same, once the log has so many: its lines are written some at a time."""
    pairs = answered(process)
    return pairs if len(pairs) == count else None


def cache_of(process: GatewayProcess, worker: str) -> str:
    """What /readyz says the worker's cache is: known, or believed and why."""
    return json.loads(get(f"{process.admin}/readyz")[1])["workers"][worker]["cache"]


def wait_for_caches(process: GatewayProcess, caches: list[str]) -> None:
    """Until the workers' caches are this: whose page does not come within a start's bound is asked again later."""
    wait_for(lambda: [cache_of(process, worker) for worker in ("w0", "w1")] == caches, seconds=30, what=str(caches))


def known_of_candidates(process: GatewayProcess) -> dict[str, bool]:
    """What /explain says of each candidate's cached tokens: known, or believed."""
    body = json.dumps({"model": MODEL, "prompt": HEADS[0]}).encode()
    request = urllib.request.Request(f"{process.admin}/explain?tenant=alpha", data=body)
    with urllib.request.urlopen(request, timeout=20) as answer:
        candidates = json.load(answer)["placement"]["candidates"]
    return {candidate["worker"]: candidate["known"] for candidate in candidates}


def metric(process: GatewayProcess, series: str) -> float:
    text = get(f"{process.admin}/metrics")[1]
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"homing_{series}"))


def predictions(process: GatewayProcess, source: str) -> tuple[float, float]:
    """Of the answers that a prediction was compared with: how many, and how many it was exact for."""

    def at_most(error: str) -> float:
        return metric(process, f'prediction_error_blocks_bucket{{le="{error}",model="{MODEL}",source="{source}"}}')

    return at_most("+Inf"), at_most("0.0") - at_most("-1.0")


def test_every_prediction_is_exact_before_and_after_a_worker_is_killed(tmp_path):
    """40 prompts on caches that evict; kill -9 and a restart on the same ports; 25 more: no block of error in all."""
    ports, others, port = (free_port(), free_port()), (free_port(), free_port()), free_port()
    gone = 0  # batches of the life that ended

    def settle() -> None:
        """The order of an answer and of the news of it, on two connections, is nobody's to promise: wait for both."""
        told = gone + published(ports[1]) + published(others[1])
        wait_for(lambda: applied(process) >= told, seconds=20, what="the events of what was answered")

    def is_empty() -> bool:
        return metric(process, 'backend_known_blocks{backend="w0"}') == 0

    with ExitStack() as stack:
        doomed = stack.enter_context(simulated_worker(tmp_path, *POOL, *event_flags(ports), port=port))
        lasting = stack.enter_context(simulated_worker(tmp_path, *POOL, *event_flags(others)))
        config = build_config(tmp_path, {"w0": doomed.url, "w1": lasting.url}, tokenizer=str(find_smollm2()))
        # What prewarming brings to the restarted worker would be told of between `settle` and the answer.
        process = stack.enter_context(gateway(tmp_path, {**config, "prewarm": {"enabled": False}}))
        wait_for_caches(process, ["known", "known"])  # from the first request on
        draw = random.Random(1)
        assert ask_many(process, 40, draw, settle) == {"w0", "w1"}
        settle()
        assert metric(process, 'event_blocks_total{kind="removed"}') > 0

        gone = published(ports[1])
        doomed.kill()
        with simulated_worker(tmp_path, *POOL, *event_flags(ports), port=port):
            wait_for(is_empty, what="the crash to be noticed")
            wait_for(lambda: metric(process, 'backend_up{backend="w0"}') == 1, what="the worker to be back")
            assert is_empty()
            wait_for_caches(process, ["known", "known"])
            assert ask_many(process, 25, draw, settle) == {"w0", "w1"}

        pairs = wait_for(lambda: all_answered(process, 65), seconds=10, what="the log's last line")
        assert [pair for pair in pairs if pair[0] != pair[1]] == []
        assert sum(reported > 0 for _, reported in pairs) > 10
        assert predictions(process, "known") == (65, 65)


def test_one_worker_may_be_known_and_the_other_believed(mixed):
    """One publishes and one does not: the one's predictions are exact, the other's are belief, both get requests."""
    process, _, replay_port = mixed

    def settle() -> None:
        told = published(replay_port)
        wait_for(lambda: applied(process) >= told, seconds=20, what="the events of what was answered")

    assert ask_many(process, 30, random.Random(2), settle) == {"w0", "w1"}
    assert [cache_of(process, worker) for worker in ("w0", "w1")] == MIXED
    assert known_of_candidates(process) == {"w0": True, "w1": False}
    known, exact = predictions(process, "known")
    assert known == exact > 0
    assert predictions(process, "believed")[0] > 0


@pytest.mark.parametrize("path", ["/kv_event_sources", "/server_info", "/v1/cache/map", "/v1/cache/blocks"])
def test_what_workers_tell_gateways_is_not_told_to_clients(path, mixed):
    """The pages exist at the worker, and not on the public port."""
    process, (worker, _), _ = mixed
    assert get(worker.url + "/kv_event_sources")[0] == 200
    assert get(process.url + path)[0] == 404
    assert get(f"{process.url}//..{path}")[0] in (400, 404)
