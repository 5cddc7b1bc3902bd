"""Knowledge in place of belief: what is on its way, what is never shown, ranks, and the router that goes by it."""

from __future__ import annotations

import pytest

from router.core import Prompt
from router.knowledge import Knowledge
from tests.router.event_builders import MODEL, SIZE, build_removed, build_stored, own_chain
from tests.router.placement_builders import build_fleet, build_router, fresh_id

FLEET = build_fleet(1)
WORKER = "worker-0"


def build_knowledge(*events: object, **more: float) -> Knowledge:
    knowledge = Knowledge(MODEL, SIZE, **more)
    knowledge.apply(events)
    return knowledge


def test_a_request_counts_from_its_placement_until_its_blocks_are_shown():
    """On its way, then told, then evicted: from the telling on, the events alone decide."""
    knowledge = build_knowledge()
    knowledge.sent("r1", own_chain(1, 2))
    assert knowledge.match(own_chain(1, 2, 3)) == 2
    knowledge.apply([build_stored(1, 2)])
    assert (knowledge.pending, knowledge.shown) == (0, 1)
    knowledge.apply([build_removed((1, 2), (1,))])
    assert knowledge.match(own_chain(1, 2, 3)) == 0
    knowledge.left("r1", 5.0, prefilled=True)
    knowledge.check_integrity()
    assert knowledge.not_shown == 0


def test_a_part_that_is_told_does_not_end_the_waiting():
    """A prefill in chunks: the beginning is told while the rest is still computed."""
    knowledge = build_knowledge()
    knowledge.sent("r1", own_chain(1, 2, 3))
    knowledge.apply([build_stored(1, 2)])
    assert (knowledge.match(own_chain(1, 2, 3)), knowledge.pending) == (3, 1)


def test_a_prompt_that_is_held_whole_is_not_waited_for():
    """Nothing will be told of it."""
    knowledge = build_knowledge(build_stored(1, 2))
    knowledge.sent("r1", own_chain(1, 2))
    knowledge.sent("r2", [])
    assert knowledge.pending == 0


def test_a_request_that_ended_unshown_is_let_go_after_a_while():
    """The worker fell silent, or reads the prompt otherwise: counted, since somebody should know."""
    knowledge = build_knowledge(shown_within_seconds=5.0)
    knowledge.sent("r1", own_chain(1))
    knowledge.left("r1", 10.0, prefilled=True)
    knowledge.expire(15.0)
    assert (knowledge.match(own_chain(1)), knowledge.not_shown) == (1, 0)
    knowledge.expire(15.1)
    assert (knowledge.match(own_chain(1)), knowledge.not_shown) == (0, 1)
    knowledge.check_integrity()


def test_a_request_that_was_never_prefilled_is_let_go_at_once():
    """Refused, or cancelled while it waited: its blocks will not come, and that says nothing of the stream."""
    knowledge = build_knowledge()
    knowledge.sent("r1", own_chain(1))
    knowledge.left("r1", 1.0, prefilled=False)
    knowledge.left("unknown", 1.0, prefilled=True)
    assert (knowledge.match(own_chain(1)), knowledge.pending, knowledge.not_shown) == (0, 0, 0)


def test_a_request_that_is_sent_again_waits_anew():
    """A retry under the same id at the same worker: the first one's end does not end the second's waiting."""
    knowledge = build_knowledge(shown_within_seconds=5.0)
    knowledge.sent("r1", own_chain(1))
    knowledge.left("r1", 0.0, prefilled=True)
    knowledge.sent("r1", own_chain(1, 2))
    knowledge.expire(100.0)
    knowledge.check_integrity()
    assert (knowledge.pending, knowledge.not_shown) == (1, 0)


def test_a_worker_of_several_ranks_holds_what_any_of_them_holds():
    """The worker chooses the rank: its word is the best of theirs, and clearing one leaves the others."""
    knowledge = build_knowledge(build_stored(1))
    knowledge.apply([build_stored(1, 2)], rank=1)
    assert (knowledge.match(own_chain(1, 2)), len(knowledge)) == (2, 3)
    knowledge.clear(1)
    assert knowledge.match(own_chain(1, 2)) == 1
    knowledge.sent("r1", own_chain(5))
    knowledge.apply([build_stored(5)], rank=1)
    assert knowledge.shown == 1


def prompt_of(chain):
    """A prompt of these blocks and one token more."""
    return Prompt(len(chain) * SIZE + 1, SIZE, chain, chain)


def place(router, chain, request_id):
    return router.place(prompt_of(chain), FLEET, 1.0, request_id=request_id)


def test_the_router_goes_by_knowledge_while_it_is_trusted_and_by_belief_otherwise():
    """The directory is kept all the while; candidates say which of the two was asked."""
    router, knowledge = build_router(), build_knowledge()
    router.follow(WORKER, knowledge)
    believed = place(router, own_chain(1, 2), "r1")
    router.finished("r1", 2.0, reported_cached_tokens=0)
    knowledge.apply([build_stored(1, 2), build_removed((1, 2))])
    knowledge.trusted = True
    router.follow(WORKER, knowledge)
    known = place(router, own_chain(1, 2), "r2")
    knowledge.trusted = False
    router.follow(WORKER, knowledge)
    again = place(router, own_chain(1, 2), "r3")
    assert [each.candidates[0].known for each in (believed, known, again)] == [False, True, False]
    assert [each.predicted_cached_tokens for each in (believed, known, again)] == [0, SIZE, 2 * SIZE]
    router.follow(WORKER, None)
    assert not place(router, own_chain(1, 2), "r4").candidates[0].known
    router.check_integrity()


def test_errors_are_told_apart_and_known_ones_teach_belief_nothing():
    """A small cache behind a trusted stream does not shrink what the directory believes."""
    router, knowledge = build_router(), build_knowledge()
    knowledge.trusted = True
    router.follow(WORKER, knowledge)
    place(router, own_chain(*range(40)), "r0")
    before = router.stats().workers[0].directory_bound_blocks
    for number in range(20):
        place(router, own_chain(*range(40)), f"r{number + 1}")
        error = router.finished(f"r{number + 1}", 2.0, reported_cached_tokens=0)
        assert error.known
    stats = router.stats().workers[0]
    assert stats.directory_bound_blocks == before
    assert stats.known
    assert stats.known_blocks == 0


@pytest.mark.parametrize("answered", [True, False])
def test_an_answer_that_comes_at_once_was_prefilled_too(answered):
    """Nobody sees the first token of an answer that is no stream: its good end says that its blocks were computed."""
    router, knowledge = build_router(), build_knowledge()
    router.follow(WORKER, knowledge)
    place(router, own_chain(1), "r1")
    if answered:
        router.finished("r1", 2.0)
    else:
        router.cancelled("r1", 2.0)
    assert knowledge.pending == answered


def test_a_worker_that_is_forgotten_must_be_followed_anew():
    """What restarted has neither belief nor knowledge; unfollowing one that is not there makes nothing."""
    router, knowledge = build_router(), build_knowledge(build_stored(1))
    knowledge.trusted = True
    router.follow(WORKER, knowledge)
    router.forget(WORKER)
    router.follow(WORKER, None)
    assert router.stats().workers == ()
    assert place(router, own_chain(1), fresh_id()).predicted_cached_tokens == 0


def test_workers_of_one_model_may_be_known_and_believed_side_by_side():
    """One tells what it holds, the other is only believed: each candidate says which."""
    router, knowledge = build_router(), build_knowledge(build_stored(1, 2))
    knowledge.trusted = True
    router.follow("worker-1", knowledge)
    placement = router.place(prompt_of(own_chain(1, 2)), build_fleet(2), 1.0, request_id="r1")
    assert [(each.cached_tokens, each.known) for each in placement.candidates] == [(0, False), (2 * SIZE, True)]


def test_what_is_known_for_sure_is_added_to_belief_where_there_may_be_more():
    """A stream joined late: its picture is sound and not whole, so the longer of the two prefixes counts."""
    router, knowledge = build_router(), build_knowledge(build_stored(1, 2, 3))
    knowledge.sound = True
    router.follow(WORKER, knowledge)
    first = place(router, own_chain(1, 2, 3, 4), "r1")
    router.finished("r1", 2.0)
    knowledge.expire(100.0)
    knowledge.apply([build_removed((1, 2, 3), (1, 2), (1,))])
    second = place(router, own_chain(1, 2, 3, 4), "r2")
    assert [each.predicted_cached_tokens for each in (first, second)] == [3 * SIZE, 4 * SIZE]
    assert not second.candidates[0].known
