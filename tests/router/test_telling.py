"""What a router tells of its own requests, and that another router which hears it believes the same."""

from __future__ import annotations

from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED, FleetView, News, Prompt, WorkerView
from router.router import Router

FLEET = FleetView((WorkerView("w1"), WorkerView("w2")))
BLOCKS = [bytes([number]) * 16 for number in range(1, 9)]
PROMPT = Prompt(8 * 64, 64, BLOCKS, BLOCKS)


def build_teller() -> tuple[Router, list[News]]:
    told: list[News] = []
    return Router(tell=told.append), told


def test_a_request_is_told_of_three_times():
    """Its placement with the whole chain and the seconds that were believed, its first token, its end."""
    router, told = build_teller()
    placement = router.place(PROMPT, FLEET, 1.0, request_id="a")
    router.first_token("a", 1.1)
    router.finished("a", 1.2)
    assert [news.kind for news in told] == [NEWS_PLACED, NEWS_FIRST_TOKEN, NEWS_ENDED]
    placed = told[0]
    own = next(candidate.own_seconds for candidate in placement.candidates if candidate.worker == placement.worker)
    assert placed == News(NEWS_PLACED, "a", placement.worker, BLOCKS, own, PROMPT.tokens, False)


def test_a_request_that_moves_has_ended_where_it_was_before():
    """A retry elsewhere tells the end of the first placement before the second."""
    router, told = build_teller()
    first = router.place(PROMPT, FLEET, 1.0, request_id="a").worker
    second = router.place(PROMPT, FLEET, 1.1, request_id="a", exclude=frozenset([first or ""])).worker
    assert [news.kind for news in told] == [NEWS_PLACED, NEWS_ENDED, NEWS_PLACED]
    assert [told[0].worker, told[2].worker] == [first, second]
    assert first != second


def test_a_request_that_fails_is_told_to_have_ended():
    """Cancelled is an end like any other."""
    router, told = build_teller()
    router.place(PROMPT, FLEET, 1.0, request_id="a")
    router.cancelled("a", 2.0)
    assert [news.kind for news in told] == [NEWS_PLACED, NEWS_ENDED]


def test_nothing_is_told_when_nobody_could_be_chosen():
    """A request without a worker is in nobody's queue."""
    router, told = build_teller()
    assert router.place(PROMPT, FleetView(()), 1.0, request_id="a").worker is None
    assert told == []


def test_who_hears_of_a_plain_answer_expects_no_first_token():
    """A silent request leaves the listener's virtual queue when its time is up, as it does the teller's."""
    router, told = build_teller()
    worker = router.place(PROMPT, FLEET, 0.0, request_id="a", streams=False).worker
    listener = Router()
    listener.peek(PROMPT, FLEET, 0.0)
    listener.heard(told[0], 0.0)
    soon, late = (
        {each.worker: each.wait_seconds for each in listener.peek(PROMPT, FLEET, now).candidates} for now in (0.0, 60.0)
    )
    assert soon[worker] > 0
    assert late[worker] == 0
    listener.check_integrity()


def test_what_was_heard_is_not_told_again():
    """News goes from one teller to all others, not round and round."""
    router, told = build_teller()
    router.heard(News(NEWS_PLACED, "b", "w1", BLOCKS, 0.5, 512), 0.0)
    assert told == []
