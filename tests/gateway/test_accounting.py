"""A bill is opened first, closed last, and exactly once, however its request ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from gateway.accounting import Accounts, Bill
from gateway.errors import NoBackend
from gateway.logs import RequestLine
from gateway.metrics import Metrics
from gateway.tenants import Tenant
from gateway.wire import Call, Endpoint, Usage
from router.core import FleetView, Prompt, PromptSource, WorkerView
from router.router import Router
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import scripted_worker, until

USAGE = Usage(prompt_tokens=128, completion_tokens=5, cached_tokens=64)


@dataclass
class Books:
    """Accounts over real metrics and a real router, and a clock that is set by hand."""

    now: float = 100.0
    lines: list[RequestLine] = field(default_factory=list)
    learned: list[tuple[str, Prompt, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self.metrics.know(tenants=["acme"], models=["m"])
        self.router = Router()
        self.accounts = Accounts(self.metrics, lambda: self.now, self.lines.append, self._learn)

    def _learn(self, model: str, prompt: Prompt, tokens: int) -> None:
        self.learned.append((model, prompt, tokens))

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"homing_{name}", labels) or 0.0

    def place(self, bill: Bill) -> None:
        """Take a bill as far as a worker."""
        bill.tenant = Tenant("acme")
        bill.asked(build_call())
        bill.prompt = build_prompt()
        fleet = FleetView((WorkerView("w1"),))
        bill.placed(self.router.place(bill.prompt, fleet, self.now, request_id=bill.request_id), self.router)


def build_call(**more: object) -> Call:
    fields = {
        "endpoint": Endpoint.CHAT,
        "model": "m",
        "source": PromptSource(prompt="x"),
        "stream": True,
        "include_usage": False,
        "body": b"{}",
    }
    return Call(**{**fields, **more})  # type: ignore[arg-type]


def build_prompt() -> Prompt:
    blocks = [bytes([n]) * 16 for n in range(2)]
    return Prompt(tokens=128, block_tokens=64, exact_blocks=blocks, key_blocks=blocks)


def test_a_good_answer_is_booked_once() -> None:
    """Requests, time, tokens, the router, the log, the byte scale."""
    books = Books()
    with books.accounts.open("r1") as bill:
        assert books.accounts.open_bills == 1
        books.place(bill)
        assert books.count("requests_in_flight", model="m") == 1
        books.now += 0.5
        bill.first_token(books.now)
        books.now += 0.25
        bill.more_tokens(books.now)
        bill.answered(200, USAGE)
    assert books.accounts.open_bills == books.count("requests_in_flight", model="m") == 0
    assert books.count("requests_total", tenant="acme", model="m", code="200") == 1
    assert books.count("request_duration_seconds_sum", tenant="acme", model="m") == 0.75
    assert books.count("time_to_first_token_seconds_sum", tenant="acme", model="m", placement="home") == 0.5
    assert books.count("inter_token_latency_seconds_sum", model="m") == 0.25
    assert books.count("prompt_tokens_total", tenant="acme", model="m") == 128
    assert books.count("cached_tokens_total", tenant="acme", model="m") == 64
    assert books.count("completion_tokens_total", tenant="acme", model="m") == 5
    assert books.count("affinity_placements_total", tenant="acme", model="m", outcome="home") == 1
    assert books.count("prediction_error_blocks_bucket", model="m", source="believed", le="-4.0") == 0
    assert books.count("prediction_error_blocks_bucket", model="m", source="believed", le="-1.0") == 1
    assert (books.router.stats().in_flight, books.learned[0][2]) == (0, 128)
    line = books.lines[0]
    assert (line.code, line.total_ms, line.ttft_ms, line.backend, line.cached_tokens) == (200, 750.0, 500.0, "w1", 64)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lambda: NoBackend("none"), "503"),
        (asyncio.CancelledError, "499"),
        (lambda: RuntimeError("CANARY"), "500"),
    ],
)
def test_a_request_that_fails_is_booked_as_such(error: Callable[[], BaseException], code: str) -> None:
    """The router hears that nothing is to be learned; no tokens are counted; the error goes on."""
    books = Books()

    def fail() -> None:
        with books.accounts.open("r1") as bill:
            books.place(bill)
            raise error()

    with pytest.raises(type(error())):
        fail()
    assert books.count("requests_total", tenant="acme", model="m", code=code) == 1
    assert books.router.stats().in_flight == books.count("requests_in_flight", model="m") == 0
    assert books.count("prompt_tokens_total", tenant="acme", model="m") == 0
    assert "CANARY" not in str(books.lines[0])


def test_a_request_that_never_came_to_a_worker_is_booked_too() -> None:
    """Unreadable ones count under `other`, whatever they asked for."""
    books = Books()
    with pytest.raises(NoBackend), books.accounts.open("r1"):
        raise NoBackend("none")
    assert books.count("requests_total", tenant="other", model="other", code="503") == 1


def test_a_stream_that_broke_counts_as_a_fault_and_teaches_nothing() -> None:
    """Its head said 200."""
    books = Books()
    with books.accounts.open("r1") as bill:
        books.place(bill)
        bill.broke(502, "upstream_error")
    assert books.count("requests_total", tenant="acme", model="m", code="502") == 1
    assert (books.learned, books.lines[0].error) == ([], "upstream_error")


def test_a_batch_teaches_no_scale() -> None:
    """Its usage counts every prompt, the router saw the first."""
    books = Books()
    with books.accounts.open("r1") as bill:
        books.place(bill)
        bill.call = build_call(batch=True)
        bill.answered(200, USAGE)
    assert books.learned == []


def test_a_second_try_does_not_count_the_gateways_own_time_again() -> None:
    """`overhead_seconds{stage="place"}` is once a request; placements count each."""
    books = Books()
    with books.accounts.open("r1") as bill:
        books.place(bill)
        assert bill.prompt is not None
        books.now += 9.0
        again = books.router.place(bill.prompt, FleetView((WorkerView("w2"),)), books.now, request_id="r1")
        bill.placed(again, books.router)
        bill.answered(200, None)
    assert books.count("overhead_seconds_count", stage="place") == 1
    assert (bill.tries, books.lines[0].backend) == (2, "w2")
    assert books.router.stats().in_flight == 0


async def test_the_log_knows_a_request_by_the_id_that_its_caller_knows() -> None:
    """The one that was echoed, so that a complaint finds its line."""
    lines: list[RequestLine] = []
    async with scripted_worker() as worker, running_gateway(worker) as running:
        running.gateway.server._proxy._accounts.write_line = lines.append
        await running.ask(headers={"x-request-id": "req-of-theirs"})
        minted = (await running.ask()).fields["x-request-id"]
        await until(lambda: len(lines) == 2)
        assert [line.request_id for line in lines] == ["req-of-theirs", minted]
