"""Sane defaults for the tests of replicas: news, batches, chains, and replicas that share a stream without Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from gateway.metrics import Metrics
from gateway.shared.agreement import worker_digest
from gateway.shared.chain_book import ChainBook
from gateway.shared.link import Entry
from gateway.shared.outbox import Outbox
from gateway.shared.peers import Heard, KnownWorker, Peers
from gateway.shared.stream import Stream
from gateway.shared.wire import Batch, Placed
from router.blocks import chain, seed
from router.core import FleetView, Prompt, WorkerView
from router.router import Router
from router.settings import RouterSettings

KEY = b"k" * 32
MODEL = b"model-m-"
WORKERS = ("w1", "w2", "w3")
FLEET = FleetView(tuple(WorkerView(name, cache_blocks=10_000) for name in WORKERS))
BLOCK_TOKENS = 64
NOW = Heard(at=1000.0, age_seconds=0.0)


def build_chain(*tokens: int) -> list[bytes]:
    """The exact chain of a prompt whose n-th block is full of the n-th number."""
    packed = b"".join(number.to_bytes(4, "little") * BLOCK_TOKENS for number in tokens)
    return chain(seed(salt="s", model="m"), packed, BLOCK_TOKENS).blocks


def build_prompt(*tokens: int) -> Prompt:
    blocks = build_chain(*tokens)
    return Prompt(len(blocks) * BLOCK_TOKENS + 1, BLOCK_TOKENS, blocks, blocks)


def build_placed(number: int = 1, *, worker: str = "w1", blocks: Sequence[bytes] = (), **more: Any) -> Placed:
    facts = {"age_seconds": 0.0, "prompt_tokens": 1000, "silent": False, "known": None, "model": MODEL, **more}
    facts.setdefault("prefill_seconds", 0.5)
    return Placed(number=number, worker=worker_digest(worker), blocks=blocks, **facts)


def build_batch(*items: Any, replica: bytes = b"replica1", sequence: int = 1, epoch: int = 0, **more: Any) -> Batch:
    return Batch(replica, sequence, epoch, items, **more)


def build_metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def value_of(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"homing_{name}", labels) or 0.0


def waits(router: Router, now: float) -> dict[str, float]:
    """What a newcomer would wait at each worker."""
    found = router.peek(Prompt(1, 64, (), ()), FLEET, now)
    return {each.worker: each.wait_seconds for each in found.candidates}


def cached_blocks(router: Router, worker: str, *tokens: int) -> int:
    """How many blocks of a prompt the router believes a worker to have."""
    found = router.peek(build_prompt(*tokens), FLEET, 0.0)
    return next(each.cached_tokens for each in found.candidates if each.worker == worker) // BLOCK_TOKENS


@dataclass
class Listener:
    """A router that hears batches."""

    router: Router = field(default_factory=Router)
    metrics: Metrics = field(default_factory=build_metrics)
    book: ChainBook = field(default_factory=lambda: ChainBook(10_000))
    started_at: float | None = None

    def __post_init__(self) -> None:
        known = {worker_digest(name): name for name in WORKERS}
        self.router.peek(build_prompt(1), FLEET, 0.0)
        self.peers = Peers(
            b"listener",
            self.book,
            self.metrics,
            lambda digest: self.router if digest == MODEL else None,
            lambda digest: KnownWorker(known[digest], self.started_at) if digest in known else None,
        )

    def hear(self, batch: Batch, heard: Heard = NOW, now: float = 0.0) -> None:
        self.peers.hear(batch, heard, now)
        self.router.check_integrity()
        self.peers.check_integrity()


class Replica:
    """A whole replica but for Redis: a router, an outbox, and its view of a stream that is a list."""

    def __init__(
        self,
        shared: list[bytes],
        *,
        key: bytes = KEY,
        stream_bytes: int = 2**20,
        settings: RouterSettings | None = None,
    ) -> None:
        self.shared = shared
        self.now = 0.0
        self.metrics = build_metrics()
        self.outbox = Outbox(lambda: self.now, asyncio.Event().set)
        self.router = Router(settings, lambda news: self.outbox.tell("m", news))
        self.router.peek(build_prompt(1), FLEET, 0.0)
        known = {worker_digest(name): KnownWorker(name, None) for name in WORKERS}
        self.stream = Stream(
            self.outbox,
            self.metrics,
            seal=key,
            stream_bytes=stream_bytes,
            digest_of=lambda _: MODEL,
            router_of=lambda digest: self.router if digest == MODEL else None,
            worker_of=known.get,
            clock=lambda: self.now,
        )
        self.read = 0

    def place(self, request_id: str, *tokens: int, **more: Any) -> str:
        worker = self.router.place(build_prompt(*tokens), FLEET, self.now, request_id=request_id, **more).worker
        assert worker is not None
        return worker

    def publish(self, *, lost: bool = False) -> int:
        """Everything that waits goes out, or gets lost on the way; returns how many bytes it were."""
        size = 0
        while len(self.outbox) or self.outbox.afresh:
            parcel = self.stream.parcel()
            value = self.stream.batch(parcel)
            if lost:
                self.outbox.put_back(parcel)
                return 0
            self.shared.append(value)
            self.stream.sent(parcel, value)
            size += len(value)
        return size

    def listen(self, *, late: bool = False) -> None:
        """Hear what is new in the stream."""
        for number, value in enumerate(self.shared[self.read :], self.read + 1):
            self.stream.hear(Entry(b"%d-0" % number, value), late=late)
        self.read = len(self.shared)
        self.router.check_integrity()
        self.stream.check_integrity()

    def count(self, name: str, **labels: str) -> float:
        return value_of(self.metrics, name, **labels)
