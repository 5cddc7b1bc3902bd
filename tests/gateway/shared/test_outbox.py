"""The outbox: news in order, bounded, and told afresh after anything was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway.shared.chain_book import ChainBook
from gateway.shared.outbox import ITEMS_PER_BATCH, Outbox, Parcel
from gateway.shared.wire import BATCH_BYTES, Ended, Placed, Started, pack, unpack
from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED, News
from tests.gateway.shared.builders import KEY, MODEL, build_batch, build_chain


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def build_outbox(**more: Any) -> Outbox:
    return Outbox(Clock(), lambda: None, **more)


def take(outbox: Outbox, book: ChainBook | None = None) -> Parcel:
    return outbox.take(book or ChainBook(1000), lambda model: MODEL if model == "m" else None)


def place(outbox: Outbox, request_id: str, blocks: Sequence[bytes] = (), model: str = "m") -> None:
    outbox.tell(model, News(NEWS_PLACED, request_id, "w1", blocks, 0.5, 640))


def end(outbox: Outbox, request_id: str) -> None:
    outbox.tell("m", News(NEWS_ENDED, request_id, "", (), 0.0))


def kinds(parcel: Parcel) -> list[str]:
    return [f"{type(item).__name__} {item.number}" for item in parcel.items]


def test_a_request_travels_as_three_items_of_one_number():
    """Placement, first token, end; the names of requests and workers stay here."""
    outbox = build_outbox()
    place(outbox, "a", build_chain(1, 2))
    outbox.tell("m", News(NEWS_FIRST_TOKEN, "a", "", (), 0.0))
    end(outbox, "a")
    parcel = take(outbox)
    assert kinds(parcel) == ["Placed 1", "Started 1", "Ended 1"]
    assert parcel.items[0].blocks == build_chain(1, 2)
    assert len(outbox) == outbox.in_flight == 0


def test_only_new_blocks_travel():
    """What the book has is referred to."""
    outbox, book, chain = build_outbox(), ChainBook(1000), build_chain(1, 2, 3)
    book.hear(None, chain[:2])
    place(outbox, "a", chain)
    item = take(outbox, book).items[0]
    assert isinstance(item, Placed)
    assert (item.known, item.blocks) == (chain[1], chain[2:])


def test_an_unknown_request_says_nothing():
    """An end that comes twice, or of a request placed before anybody listened."""
    outbox = build_outbox()
    end(outbox, "?")
    assert len(outbox) == 0


def test_the_first_batch_is_told_afresh_and_the_next_is_not():
    """A replica that starts has no past; later only a loss makes it start again."""
    outbox = build_outbox()
    assert take(outbox).afresh
    assert not take(outbox).afresh


def test_after_a_loss_what_is_in_flight_is_told_again():
    """Without its blocks, which were told; and what has ended meanwhile is not told."""
    outbox = build_outbox()
    for name in "abc":
        place(outbox, name, build_chain(1))
    outbox.tell("m", News(NEWS_FIRST_TOKEN, "b", "", (), 0.0))
    take(outbox)
    end(outbox, "c")
    outbox.tell_afresh()
    place(outbox, "d", build_chain(2))
    parcel = take(outbox)
    assert parcel.afresh
    assert kinds(parcel) == ["Placed 1", "Placed 2", "Started 2", "Ended 3", "Placed 4"]
    assert [len(item.blocks) for item in parcel.items if isinstance(item, Placed)] == [0, 0, 1]


def test_a_batch_that_failed_is_told_again_with_its_blocks():
    """Nothing of it is missing, nothing is there twice, and the order stays."""
    outbox = build_outbox()
    place(outbox, "a", build_chain(1))
    lost = take(outbox)
    place(outbox, "b")
    outbox.put_back(lost)
    parcel = take(outbox)
    assert parcel.afresh
    assert kinds(parcel) == ["Placed 1", "Placed 2"]
    assert parcel.items[0].blocks == build_chain(1)


def test_what_waits_too_long_is_dropped_the_oldest_first():
    """Redis may be away for days: the bound holds, drops are counted, and the next batch is afresh."""
    outbox = build_outbox(bound_items=4)
    take(outbox)
    for number in range(10):
        place(outbox, str(number))
        end(outbox, str(number))
    place(outbox, "live")
    assert len(outbox) == 4
    assert outbox.dropped == 17
    parcel = take(outbox)
    assert parcel.afresh
    assert kinds(parcel) == ["Ended 9", "Placed 10", "Ended 10", "Placed 11"]


def test_a_request_whose_news_was_dropped_is_told_of_when_it_is_still_in_flight():
    """Afresh means all that is in flight, whether its news was dropped or not."""
    outbox = build_outbox(bound_items=2)
    place(outbox, "long")
    for number in range(5):
        place(outbox, str(number))
        end(outbox, str(number))
    assert kinds(take(outbox))[0] == "Placed 1"


def test_a_batch_is_bounded_and_the_rest_follows():
    """No value is longer than readers take, whatever waits."""
    outbox, chain = build_outbox(), build_chain(*range(1500))
    for number in range(40):
        place(outbox, str(number), chain)
    for number in range(3000):
        place(outbox, f"short {number}")
    numbers = []
    while len(outbox):
        parcel = take(outbox)
        assert len(parcel.items) <= ITEMS_PER_BATCH
        assert len(pack(build_batch(*parcel.items), KEY)) <= BATCH_BYTES
        numbers += [item.number for item in parcel.items]
    assert numbers == list(range(1, 3041))


def test_age_is_told():
    """What waited while Redis was away arrives with its age."""
    clock = Clock()
    outbox = Outbox(clock, lambda: None)
    place(outbox, "a")
    clock.now = 20.0
    item = take(outbox).items[0]
    assert isinstance(item, Placed)
    assert item.age_seconds == 20.0


def test_a_model_nobody_has_read_yet_is_not_told_of():
    """Without a digest nobody could know what its blocks mean; its ends are harmless."""
    outbox = build_outbox()
    place(outbox, "a", model="unread")
    end(outbox, "a")
    assert [type(item) for item in take(outbox).items] == [Ended]


def test_every_piece_of_news_wakes_who_publishes():
    """Once for each; the loop gathers them."""
    event = asyncio.Event()
    outbox = Outbox(Clock(), event.set)
    assert not event.is_set()
    place(outbox, "a")
    assert event.is_set()


def test_started_travels_once_for_each_first_token():
    """Nothing else makes one."""
    outbox = build_outbox()
    place(outbox, "a")
    outbox.tell("m", News(NEWS_FIRST_TOKEN, "a", "", (), 0.0))
    assert [type(item) for item in take(outbox).items] == [Placed, Started]


def test_more_requests_in_flight_than_may_wait_are_all_told_again_though_news_goes_on():
    """What is told again is not dropped for being much, which would tell it again from the start, without end."""
    outbox = build_outbox(bound_items=2 * ITEMS_PER_BATCH)
    for number in range(5 * ITEMS_PER_BATCH):
        place(outbox, str(number))
        take(outbox)
    outbox.tell_afresh()
    told, afresh = set(), []
    while outbox.afresh or len(outbox):
        parcel = take(outbox)
        afresh.append(parcel.afresh)
        told |= {item.number for item in parcel.items}
        if len(afresh) < 10:
            place(outbox, f"new {len(afresh)}")
    assert told == set(range(1, 5 * ITEMS_PER_BATCH + 10))
    assert afresh == [True] + [False] * (len(afresh) - 1)
    assert outbox.dropped == 0


def test_a_batch_told_again_that_failed_is_told_once():
    """What was told again is put together anew; nothing of it waits beside."""
    outbox = build_outbox()
    place(outbox, "a", build_chain(1))
    place(outbox, "b", build_chain(2))
    take(outbox)
    outbox.tell_afresh()
    for _ in range(3):
        outbox.put_back(take(outbox))
    end(outbox, "a")
    assert kinds(take(outbox)) == ["Placed 2", "Ended 1"]


def test_the_blocks_that_wait_are_bounded_too():
    """Long prompts while Redis is away: their chains are most of the memory."""
    outbox = build_outbox(bound_blocks=10)
    for number in range(6):
        place(outbox, str(number), build_chain(*range(4)))
    assert len(outbox) == 2
    assert outbox.dropped == 4
    take(outbox)
    for number in range(6, 8):
        place(outbox, str(number), build_chain(*range(4)))
    assert outbox.dropped == 4


def test_the_longest_prompt_goes_out_in_parts_that_readers_take():
    """A million tokens in blocks of 16: as much as one value holds, and the rest with the next placement behind it."""
    outbox, book = build_outbox(), ChainBook(100_000)
    chain = [number.to_bytes(16, "little") for number in range(62_500)]
    heard: list[bytes] | None = []
    for turn in range(8):
        place(outbox, str(turn), chain)
        parcel = take(outbox, book)
        assert len(pack(build_batch(*parcel.items), KEY)) <= BATCH_BYTES
        item = parcel.items[0]
        assert isinstance(item, Placed)
        heard = book.hear(item.known, item.blocks)
    assert heard == chain


def test_a_batch_names_no_more_models_than_it_can_count():
    """A fleet of hundreds of models; one byte counts those of a batch."""
    outbox = build_outbox()
    for number in range(600):
        outbox.tell(f"m{number}", News(NEWS_PLACED, str(number), "w1", (), 0.5, 640))
    told = 0
    while len(outbox):
        parcel = outbox.take(ChainBook(10), lambda model: model.encode().ljust(8))
        told += len(unpack(pack(build_batch(*parcel.items), KEY), KEY).items)
    assert told == 600


def test_a_prefill_that_nobody_can_believe_does_not_cost_the_batch():
    """A rate learned wrong may predict ages; readers refuse what is beyond all reason."""
    outbox = build_outbox()
    for seconds in (float("inf"), 1e39, float("nan")):
        outbox.tell("m", News(NEWS_PLACED, str(seconds), "w1", (), seconds, 640))
    assert len(unpack(pack(build_batch(*take(outbox).items), KEY), KEY).items) == 3
