"""What a request cost. Its bill is opened before anything else happens and closed after everything, exactly once."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final

from gateway.account_book import Book, Books
from gateway.errors import GatewayError
from gateway.explain import explain_placement
from gateway.logs import Fields, RequestLine, RequestLog
from gateway.metrics import Metrics
from gateway.tenants import Tenant
from gateway.wire import Call, Usage
from router.core import Placement, Prompt
from router.router import Router

CLIENT_GONE: Final = 499
"""nginx's number for a caller that left; never sent, only counted."""

BROKEN_STREAM: Final = 502
"""What an answer counts as that broke off after its head, whatever status the head said."""

_FAULT: Final = 500


class Accounts:
    """Opens bills and books them: metrics, and a line in the log. `clock` gives monotonic seconds."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float],
        write_line: Callable[[RequestLine], None] | None = None,
        learn: Callable[[str, Prompt, int], None] | None = None,
        record: Callable[[Bill, float], None] | None = None,
        decisions: RequestLog | None = None,
    ) -> None:
        """`learn` is told model, prompt and the worker's count of its tokens, after each answer that has one.

        `record` gets each bill when it is closed, and the time; `decisions` the placements that it wants.
        """
        self.metrics = metrics
        self.books = Books(metrics)
        self.clock = clock
        self.write_line = write_line
        self.learn = learn
        self.record = record
        self.decisions = decisions
        self.open_bills = 0

    def rewritten(self, tenant: str, rules: Iterable[str]) -> None:
        """Rules that changed something in one request's prompt."""
        for rule in rules:
            self.metrics.rewrites_total.labels(tenant, rule).inc()

    def open(self, request_id: str) -> Bill:
        """A new bill, to be used with `with`."""
        return Bill(self, request_id)


class Bill:
    """One request's account, a context manager around its whole life.

    Times are monotonic seconds. `request_id` is ours and unique; `shown_id` is what caller and log know the request
    by, perhaps the caller's own; workers hear `request_id`. `output_events` are the events of a stream that had output
    in them: tokens, or little less. `status` is what the caller was told, or would have been. What is not known yet is
    None or empty; metrics count an empty tenant or model as `other`.
    """

    __slots__ = (
        "_accounts",
        "_book",
        "_last_event_at",
        "_router",
        "call",
        "error",
        "explained",
        "finished_well",
        "marked_at",
        "opened_at",
        "output_events",
        "placement",
        "prompt",
        "request_id",
        "shown_id",
        "spans",
        "status",
        "tenant",
        "tries",
        "ttft_seconds",
        "usage",
    )

    def __init__(self, accounts: Accounts, request_id: str) -> None:
        self._accounts = accounts
        self._router: Router | None = None
        self._book: Book | None = None
        self._last_event_at: float | None = None
        self.opened_at = self.marked_at = accounts.clock()
        self.spans: dict[str, float] = {}
        """Seconds that each stage took so far; `marked_at` is when the last one ended."""
        self.request_id = self.shown_id = request_id
        self.status = 0
        self.finished_well = self.explained = False
        self.error: str | None = None
        self.tenant: Tenant | None = None
        self.call: Call | None = None
        self.prompt: Prompt | None = None
        self.placement: Placement | None = None
        self.tries = self.output_events = 0
        self.ttft_seconds: float | None = None
        self.usage: Usage | None = None

    def __enter__(self) -> Bill:
        self._accounts.open_bills += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.finished_well = False
            self.status, self.error = _blame(error)
        try:
            self._settle(self._accounts.clock())
        finally:
            self._accounts.open_bills -= 1

    # In the order of a request's life

    def stage(self, name: str) -> None:
        """The stage `name` ends here; what the gateway took for it is counted with the bill."""
        now = self._accounts.clock()
        self.spans[name] = now - self.marked_at
        self.marked_at = now

    def resume(self) -> None:
        """A stage begins here: what passed since the last one was not the gateway's own time."""
        self.marked_at = self._accounts.clock()

    def asked(self, call: Call) -> None:
        """The request is readable and its model is known: it counts as in flight."""
        self.call = call
        self._book = self._accounts.books.of(self.tenant_name, call.model)
        self._book.in_flight.inc()

    def to_explain(self) -> bool:
        """Whether the numbers of the next placement will be told, and so are to be had."""
        decisions = self._accounts.decisions
        self.explained = decisions is not None and decisions.wants_decision()
        return self.explained

    def placed(self, placement: Placement, router: Router) -> None:
        """A worker was chosen; `router` must be told how it ends."""
        if self.tries == 0:
            self.stage("place")
        self.tries += 1
        self.placement = placement
        self._router = router
        if self._book is not None:
            self._book.placements[placement.reason].inc()
        if self.explained and self._accounts.decisions is not None:
            self._accounts.decisions.decided(self._decision(placement))

    def first_token(self, now: float) -> None:
        """The first output reached the gateway."""
        self._last_event_at = now
        self.ttft_seconds = now - self.opened_at
        if self._router is not None:
            self._router.first_token(self.request_id, now)
        if self.placement is not None and self._book is not None:
            self._book.first_token[self.placement.reason].observe(self.ttft_seconds)

    def more_tokens(self, now: float) -> None:
        """Another piece of output reached the gateway, after the first."""
        book, last_event_at = self._book, self._last_event_at
        if last_event_at is not None and book is not None:
            # As `observe` does, without the call: this is for each event.
            histogram, seconds = book.between_tokens, now - last_event_at
            histogram.total += seconds
            histogram.counts[bisect_left(histogram.bounds, seconds)] += 1
        self._last_event_at = now

    def answered(self, status: int, usage: Usage | None) -> None:
        """The worker's answer has passed, whole."""
        self.status = status
        self.usage = usage
        self.finished_well = status < 400

    def broke(self, status: int, error: str) -> None:
        """The answer ended otherwise, and the caller was told in whatever way was left."""
        self.status = status
        self.error = error

    @property
    def model(self) -> str:
        """The model as a metric label."""
        return self.call.model if self.call is not None else ""

    @property
    def tenant_name(self) -> str:
        """The tenant as a metric label."""
        return self.tenant.name if self.tenant is not None else ""

    # Closing

    def _settle(self, now: float) -> None:
        accounts, book = self._accounts, self._book
        if book is not None:
            book.in_flight.dec()
        else:
            book = accounts.books.of(self.tenant_name, self.model)
        self._tell_router(book, now)
        accounts.books.overhead(self.spans)
        book.ended(self.status, now - self.opened_at)
        if self.finished_well:
            self._count_tokens(book)
        if accounts.write_line is not None:
            accounts.write_line(self._line(now))
        if accounts.record is not None:
            accounts.record(self, now)

    def _tell_router(self, book: Book, now: float) -> None:
        router, usage = self._router, self.usage
        if router is None:
            return
        if not self.finished_well:
            router.cancelled(self.request_id, now)
            return
        off = router.finished(
            self.request_id,
            now,
            reported_cached_tokens=usage.cached_tokens if usage is not None else None,
            prompt_tokens=usage.prompt_tokens if usage is not None else None,
            output_tokens=usage.completion_tokens if usage is not None else None,
        )
        if off is not None:
            book.prediction_error[off.known].observe(off.error_blocks)

    def _count_tokens(self, book: Book) -> None:
        accounts, placement, usage = self._accounts, self.placement, self.usage
        call, prompt = self.call, self.prompt
        # What touches no cache has no home, and no tokens to place by.
        if placement is not None and prompt is not None and prompt.tokens:
            book.affinity[placement.at_home].inc()
            book.predicted_cached_tokens.inc(placement.predicted_cached_tokens)
        if usage is None:
            return
        book.used(usage)
        if accounts.learn is not None and prompt is not None and call is not None and not call.batch:
            accounts.learn(call.model, prompt, usage.prompt_tokens)

    def _decision(self, placement: Placement) -> Fields:
        names = {"request_id": self.shown_id, "tenant": self.tenant_name, "model": self.model}
        return {**names, "attempt": self.tries, **explain_placement(placement)}

    def _line(self, now: float) -> RequestLine:
        usage, placement = self.usage, self.placement
        return RequestLine(
            request_id=self.shown_id,
            tenant=self.tenant_name,
            model=self.model,
            code=self.status,
            total_ms=_milliseconds(now - self.opened_at),
            worker_request_id=self.request_id if self.tries and self.shown_id != self.request_id else None,
            key_fp=(self.tenant.key_fingerprint or None) if self.tenant is not None else None,
            backend=placement.worker if placement is not None else None,
            reason=placement.reason if placement is not None else None,
            attempts=self.tries or None,
            predicted_cached_tokens=placement.predicted_cached_tokens if placement is not None else None,
            prompt_tokens=usage.prompt_tokens if usage is not None else None,
            cached_tokens=usage.cached_tokens if usage is not None else None,
            completion_tokens=usage.completion_tokens if usage is not None else None,
            ttft_ms=_milliseconds(self.ttft_seconds) if self.ttft_seconds is not None else None,
            error=self.error,
        )


def _blame(error: BaseException) -> tuple[int, str]:
    if isinstance(error, GatewayError):
        return error.status, error.code or error.type
    if isinstance(error, asyncio.CancelledError):
        return CLIENT_GONE, "client_gone"
    return _FAULT, "internal_error"


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)
