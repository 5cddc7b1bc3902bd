"""What a tier tells and counts."""

from __future__ import annotations

import threading

from backends.tiers.interface import MISS, NoOffload
from backends.tiers.tier import NoTierJournal, TierCounters, TierNews, TierStats
from tests.backends.tiers.builders import TierNotes, build_keys


def test_news_are_told_in_order_and_once():
    """From whatever thread they come."""
    news, notes, (first, second) = TierNews(), TierNotes(), build_keys(2)
    news.stored(first, "CPU")
    other = threading.Thread(target=lambda: news.stored(second, "STORAGE"))
    other.start()
    other.join()
    news.removed(first, "CPU")
    news.cleared("STORAGE")
    news.tell(notes)
    news.tell(notes)
    assert notes.told == [
        ("stored", first.digest, "CPU"),
        ("stored", second.digest, "STORAGE"),
        ("removed", first.digest, "CPU"),
        ("cleared", b"", "STORAGE"),
    ]


def test_nobody_needs_to_listen():
    """The news go nowhere, and do not pile up."""
    news = TierNews()
    news.stored(build_keys(1)[0], "CPU")
    news.cleared("CPU")
    news.tell(NoTierJournal())
    news.removed(build_keys(1)[0], "CPU")
    news.tell(NoTierJournal())
    assert not news._news


def test_the_first_untold_news_call():
    """Once until they are told, from whatever thread, and at once for what came before anybody asked for calls."""
    news, calls, (first, second) = TierNews(), [], build_keys(2)
    news.stored(first, "CPU")
    news.call(lambda: calls.append(threading.get_ident()))
    assert calls == [threading.get_ident()]
    news.stored(second, "CPU")
    assert len(calls) == 1
    news.tell(NoTierJournal())
    other = threading.Thread(target=lambda: [news.cleared("CPU"), news.cleared("STORAGE")])
    other.start()
    other.join()
    assert len(calls) == 2
    assert calls[1] != threading.get_ident()


def test_no_news_stay_untold_when_all_come_from_another_thread():
    """Whatever falls between a look and the next: as many as came are told, with nothing but the calls to go by."""
    news, notes, wake = TierNews(), TierNotes(), threading.Semaphore(0)
    news.call(wake.release)
    writer = threading.Thread(target=lambda: [news.cleared("STORAGE") for _ in range(2000)])
    writer.start()
    while len(notes.told) < 2000:
        assert wake.acquire(timeout=20)
        news.tell(notes)
    writer.join()


def test_usage_is_a_share_of_the_limit():
    """0 where there is none."""
    assert TierStats("host", "CPU", 1, 50, 200, TierCounters()).usage == 0.25
    assert TierStats("redis", "STORAGE", 0, 0, None, TierCounters()).usage == 0.0


def test_without_tiers_everything_is_a_miss():
    """And every call is nothing."""
    offload = NoOffload()
    offload.start()
    assert offload.fetch("a", build_keys(1)) is MISS
    offload.forget("a")
    offload.seen(build_keys(1))
    offload.stepped(1, 1.0)
    offload.wait(60.0)
    offload.reset()
    offload.close()
