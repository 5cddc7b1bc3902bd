"""What replicas cost each other: bytes of news per request, and microseconds of CPU to tell and to hear it.

    python -m bench.news [--requests N] [--rounds N]

The conversation trace in routing blocks of 64 tokens. Each request is a placement, a first token and an end. Twice:
every piece of news in a batch of its own, as on a quiet fleet, and gathered in batches of 16 pieces, as on a busy one.
Redis and its client are not in it: they take about 0.1 ms of CPU a batch, whatever is in it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from xxhash import xxh3_128_digest

from gateway.metrics import Metrics
from gateway.shared.agreement import worker_digest
from gateway.shared.link import Entry
from gateway.shared.outbox import Outbox
from gateway.shared.peers import KnownWorker
from gateway.shared.stream import Stream
from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED, FleetView, News, Prompt, WorkerView
from router.directory import Directory
from router.replay.core import TraceRequest
from router.replay.traces import load_trace
from router.router import Router

TRACE = Path(__file__).parent / "data" / "mooncake_conversation.jsonl.gz"
BLOCK_TOKENS = 64
DIGEST = b"digest-m"
WORKERS = tuple(f"vllm-{number}.vllm:8000" for number in range(8))
FLEET = FleetView(tuple(WorkerView(name, cache_blocks=32_000) for name in WORKERS))


class Cost(NamedTuple):
    """Per request: bytes sent, CPU seconds of the one who tells and of one who hears, and the directory's part."""

    request_bytes: float
    tell_seconds: float
    hear_seconds: float
    directory_seconds: float


class Replica:
    """A router that tells and hears; what it heard is applied by `Router.heard`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        metrics = Metrics(CollectorRegistry())
        self.outbox = Outbox(clock, asyncio.Event().set)
        self.router = Router(tell=lambda news: self.outbox.tell("m", news))
        known = {worker_digest(name): KnownWorker(name, None) for name in WORKERS}
        self.router.peek(Prompt(1, BLOCK_TOKENS, (), ()), FLEET, 0.0)
        self.stream = Stream(
            self.outbox,
            metrics,
            seal=b"k" * 32,
            stream_bytes=32 * 2**20,
            digest_of=lambda _: DIGEST,
            router_of=lambda _: self.router,
            worker_of=known.get,
            clock=clock,
        )


def fine_prompt(request: TraceRequest, memo: dict[tuple[bytes, int], bytes]) -> Prompt:
    """The request's prompt in blocks of 64 tokens; a block of the trace holds several."""
    prompt = request.prompt
    parts = prompt.block_tokens // BLOCK_TOKENS
    blocks: list[bytes] = []
    for block in prompt.exact_blocks:
        for part in range(parts):
            key = (block, part)
            if key not in memo:
                memo[key] = xxh3_128_digest(block + bytes([part]))
            blocks.append(memo[key])
    return Prompt(prompt.tokens, BLOCK_TOKENS, blocks[: prompt.tokens // BLOCK_TOKENS], prompt.key_blocks)


def measure(prompts: Sequence[Prompt], pieces_per_batch: int) -> Cost:
    """Everything of every request, told by one replica and heard by another."""
    now, news = [0.0], list[News]()
    for number, prompt in enumerate(prompts):
        worker, request_id = WORKERS[number % len(WORKERS)], str(number)
        news.append(News(NEWS_PLACED, request_id, worker, prompt.exact_blocks, 0.5, prompt.tokens))
        news += [News(kind, request_id, "", (), 0.0) for kind in (NEWS_FIRST_TOKEN, NEWS_ENDED)]
    teller, listener = Replica(lambda: now[0]), Replica(lambda: now[0])
    began = time.process_time()
    values = _told(teller, news, pieces_per_batch)
    told = time.process_time()
    for number, value in enumerate(values):
        listener.stream.hear(Entry(b"%d-0" % number, value), late=False)
    heard = time.process_time()
    directories = {name: Directory(32_000) for name in WORKERS}
    for number, prompt in enumerate(prompts):
        directories[WORKERS[number % len(WORKERS)]].insert(prompt.exact_blocks)
    count, ended = len(prompts), time.process_time()
    return Cost(sum(map(len, values)) / count, (told - began) / count, (heard - told) / count, (ended - heard) / count)


def _told(teller: Replica, news: Sequence[News], pieces_per_batch: int) -> list[bytes]:
    """The batches, each heard by who told it before the next is made, as the stream's echo."""
    values: list[bytes] = []
    for start in range(0, len(news), pieces_per_batch):
        for piece in news[start : start + pieces_per_batch]:
            teller.outbox.tell("m", piece)
        parcel = teller.stream.parcel()
        values.append(teller.stream.batch(parcel))
        teller.stream.sent(parcel, values[-1])
        teller.stream.hear(Entry(b"%d-0" % start, values[-1]), late=False)
    return values


def main() -> None:
    """Print what it costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=12031)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    memo: dict[tuple[bytes, int], bytes] = {}
    prompts = [fine_prompt(request, memo) for request in load_trace(TRACE).requests[: options.requests]]
    blocks = statistics.mean(len(prompt.exact_blocks) for prompt in prompts)
    gc.freeze()  # the prompts are the bench's own, and would be looked through again and again
    print(f"{len(prompts)} requests of {blocks:.0f} blocks on average")
    for name, pieces in (("one piece a batch", 1), ("16 pieces a batch", 16)):
        rounds = [measure(prompts, pieces) for _ in range(options.rounds)]
        cost = Cost(*(min(figures) for figures in zip(*rounds, strict=True)))
        print(
            f"{name}: {cost.request_bytes:.0f} bytes a request; CPU a request: tell {cost.tell_seconds * 1e6:.0f} us, "
            f"its own echo included; hear {cost.hear_seconds * 1e6:.0f} us, of which the directory "
            f"{cost.directory_seconds * 1e6:.0f} us"
        )


if __name__ == "__main__":
    main()
