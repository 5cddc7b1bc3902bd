"""What this replica still has to tell: news of its own requests, kept until a batch takes it away; nobody waits for it.

The numbers of requests are the replica's own. What is lost on the way is made good by telling afresh: whoever reads
that forgets this replica's requests, and hears again of those still in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.shared.agreement import worker_digest
from gateway.shared.chain_book import ChainBook
from gateway.shared.wire import (
    BLOCKS_PER_PLACEMENT,
    MODELS_PER_BATCH,
    MOST_SECONDS,
    ROOM_BYTES,
    Ended,
    Item,
    Placed,
    Started,
    placed_bytes,
)
from router.core import NEWS_FIRST_TOKEN, NEWS_PLACED, News

BOUND_ITEMS = 8192
"""News that waits while Redis is away; the oldest goes first."""

BOUND_BLOCKS = 500_000
"""Of the chains in it, about 40 MB: a thousand long prompts would else take more than everything else."""

ITEMS_PER_BATCH = 1024


@dataclass(slots=True)
class _Flight:
    """A request of ours in flight; `placed` is what the others must know of it."""

    number: int
    model: str
    news: News
    placed_at: float
    started: bool = False


class _Waiting(NamedTuple):
    """One piece of news; `flight` with its placement, None for the others. `again`: it was told before a loss."""

    number: int
    kind: str
    flight: _Flight | None
    again: bool = False

    @property
    def blocks(self) -> int:
        """How many blocks it keeps."""
        return len(self.flight.news.blocks) if self.flight is not None else 0


class Parcel(NamedTuple):
    """What one batch carries, and the news that it was made of."""

    items: Sequence[Item]
    afresh: bool
    news: Sequence[_Waiting]


class Outbox:
    """Own requests in flight, and a bounded queue of news. `clock` gives monotonic seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        wake: Callable[[], None],
        bound_items: int = BOUND_ITEMS,
        bound_blocks: int = BOUND_BLOCKS,
    ) -> None:
        """`wake` is called whenever there is something to tell."""
        self._clock = clock
        self._wake = wake
        self._bound_items = bound_items
        self._bound_blocks = bound_blocks
        # What is told again is apart: it is bounded by what is in flight, and dropping it would tell it again.
        self._again: deque[_Waiting] = deque()
        self._flights: dict[str, _Flight] = {}
        self._waiting: deque[_Waiting] = deque()
        self._waiting_blocks = 0
        self._numbers = 0
        self._afresh = True
        self.dropped = 0

    def __len__(self) -> int:
        """How much news waits."""
        return len(self._again) + len(self._waiting)

    @property
    def in_flight(self) -> int:
        """How many requests of our own have not ended."""
        return len(self._flights)

    def tell(self, model: str, news: News) -> None:
        """Take in what a router says of its own requests."""
        if news.kind == NEWS_PLACED:
            self._numbers += 1
            flight = self._flights[news.request_id] = _Flight(self._numbers, model, news, self._clock())
            self._add(_Waiting(flight.number, news.kind, flight))
            return
        starts = news.kind == NEWS_FIRST_TOKEN
        known = self._flights.get(news.request_id) if starts else self._flights.pop(news.request_id, None)
        if known is not None:
            known.started = True
            self._add(_Waiting(known.number, news.kind, None))

    def tell_afresh(self) -> None:
        """News was lost, or may have been: the next batch says so, and tells again what is in flight."""
        self._afresh = True

    @property
    def afresh(self) -> bool:
        """Whether the next batch tells afresh."""
        return self._afresh

    def put_back(self, parcel: Parcel) -> None:
        """A batch may not have come through: what it carried is told again, afresh."""
        self._afresh = True
        for news in reversed(parcel.news):
            if not news.again:
                self._waiting.appendleft(news)
                self._waiting_blocks += news.blocks
        self._drop_surplus()

    def take(self, book: ChainBook, digests: Callable[[str], bytes | None]) -> Parcel:
        """The next batch's items, oldest first, at most as many as fit; `digests` gives a model's."""
        afresh = self._afresh
        if afresh:
            self._tell_flights_again()
            self._afresh = False
        items: list[Item] = []
        taken: list[_Waiting] = []
        models: set[bytes] = set()
        room_bytes, now = ROOM_BYTES, self._clock()
        while len(self) and room_bytes > 0 and len(items) < ITEMS_PER_BATCH and len(models) < MODELS_PER_BATCH:
            news = self._next()
            taken.append(news)
            item = _item(news, book, digests, now)
            if isinstance(item, Placed):
                models.add(item.model)
                room_bytes -= placed_bytes(len(item.blocks))
            if item is not None:
                items.append(item)
                room_bytes -= 16
        return Parcel(items, afresh, taken)

    def _next(self) -> _Waiting:
        if self._again:
            return self._again.popleft()
        news = self._waiting.popleft()
        self._waiting_blocks -= news.blocks
        return news

    def _add(self, news: _Waiting) -> None:
        self._waiting.append(news)
        self._waiting_blocks += news.blocks
        self._drop_surplus()
        self._wake()

    def _drop_surplus(self) -> None:
        while len(self._waiting) > self._bound_items or self._waiting_blocks > self._bound_blocks:
            self._waiting_blocks -= self._waiting.popleft().blocks
            self.dropped += 1
            self._afresh = True

    def _tell_flights_again(self) -> None:
        """Put the placements in flight that do not wait anyway before all others; their blocks were told once."""
        waiting = {news.number for news in self._waiting if news.flight is not None}
        again = self._again
        again.clear()
        for flight in self._flights.values():
            if flight.number not in waiting:
                bare = _Flight(flight.number, flight.model, flight.news._replace(blocks=()), flight.placed_at)
                again.append(_Waiting(flight.number, NEWS_PLACED, bare, again=True))
                if flight.started:
                    again.append(_Waiting(flight.number, NEWS_FIRST_TOKEN, None, again=True))


def _item(news: _Waiting, book: ChainBook, digests: Callable[[str], bytes | None], now: float) -> Item | None:
    """What travels; None for a model without a digest yet."""
    if news.flight is None:
        return Started(news.number) if news.kind == NEWS_FIRST_TOKEN else Ended(news.number)
    told, digest = news.flight.news, digests(news.flight.model)
    if digest is None:
        return None
    chain = told.blocks
    known = book.known_blocks(chain)
    return Placed(
        model=digest,
        number=news.number,
        worker=worker_digest(told.worker),
        prefill_seconds=min(MOST_SECONDS, told.prefill_seconds),
        age_seconds=min(MOST_SECONDS, max(0.0, now - news.flight.placed_at)),
        prompt_tokens=min(told.prompt_tokens, 0xFFFFFFFF),
        silent=told.silent,
        known=chain[known - 1] if known else None,
        blocks=chain[known : known + BLOCKS_PER_PLACEMENT],
    )
