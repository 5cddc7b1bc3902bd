"""The order in a line: shares by weight, nobody starves, homes are preferred a little and never for long."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.fair_queue import LOOK_AHEAD, MOST_OVERTAKEN, FairQueue, Ticket


def nowhere(_worker: str) -> bool:
    return False


def build_queue(*tickets: tuple[str, float, float]) -> FairQueue[Ticket]:
    queue: FairQueue[Ticket] = FairQueue()
    for tenant, weight, tokens in tickets:
        queue.join(Ticket(tenant, weight, tokens))
    return queue


def order(queue: FairQueue[Ticket]) -> str:
    return "".join(queue.pop(nowhere).tenant for _ in range(len(queue)))


def test_one_tenant_is_served_in_order():
    """First come, first served."""
    queue: FairQueue[Ticket] = FairQueue()
    tickets = [Ticket("a", 1.0, 10.0 * n) for n in range(1, 6)]
    for ticket in tickets:
        queue.join(ticket)
    assert [queue.pop(nowhere) for _ in tickets] == tickets


def test_who_asks_little_does_not_wait_behind_who_asks_much():
    """F-18: one request of B behind a hundred of A is the second to go."""
    queue = build_queue(*[("a", 1.0, 100.0)] * 100, ("b", 1.0, 100.0))
    assert order(queue).startswith("ab")


def test_shares_follow_the_weights():
    """Three to one, in tokens: of the first 40 of equal size, 30 and 10."""
    queue = build_queue(*[("a", 3.0, 50.0)] * 60, *[("b", 1.0, 50.0)] * 60)
    served = Counter(order(queue)[:40])
    assert abs(served["a"] - 30) <= 1


def test_it_is_tokens_that_are_shared_and_not_requests():
    """B's prompts are four times as long: A gets four requests for one of B's."""
    queue = build_queue(*[("a", 1.0, 100.0)] * 80, *[("b", 1.0, 400.0)] * 80)
    served = Counter(order(queue)[:50])
    assert abs(served["a"] - 40) <= 1


def test_nobody_starves():
    """A tenant of the least weight behind endless others: its turn comes."""
    queue = build_queue(*[("high", 4000.0, 100.0)] * 10, ("low", 0.25, 1.0), ("low", 0.25, 1.0))
    for number in count():
        if queue.pop(nowhere).tenant == "low" and not any(each.tenant == "low" for each in queue):
            break
        queue.join(Ticket("high", 4000.0, 100.0))
        assert number < 1000


def test_a_tenant_that_was_away_gets_no_credit_for_it():
    """It begins at the present, not in the past: no burst of its own before everybody else's."""
    queue = build_queue(*[("a", 1.0, 10.0)] * 20)
    for _ in range(10):
        queue.pop(nowhere)
    for _ in range(10):
        queue.join(Ticket("b", 1.0, 10.0))
    assert Counter(order(queue)[:10]) == {"a": 5, "b": 5}


def test_an_empty_line_forgets_the_past():
    """Who was served much yesterday waits no longer for it today."""
    queue = build_queue(*[("a", 1.0, 1000.0)] * 5)
    order(queue)
    queue.join(Ticket("a", 1.0, 1.0))
    queue.join(Ticket("b", 1.0, 1.0))
    assert order(queue) == "ab"


def test_who_leaves_does_not_pay():
    """Abandoned requests put the tenant's next one no further back."""
    queue = build_queue(("a", 1.0, 10.0), ("b", 1.0, 10.0), ("b", 1.0, 10.0))
    gone = [Ticket("a", 1.0, 500.0) for _ in range(5)]
    for ticket in gone:
        queue.join(ticket)
    assert all(queue.leave(ticket) for ticket in gone)
    assert not queue.leave(gone[0])
    queue.join(Ticket("a", 1.0, 10.0))
    assert order(queue) == "abba"


def test_leaving_wipes_out_no_debt():
    """Who was served a long prompt and lets another go is where he would be without the other."""
    queue = build_queue(("a", 1.0, 1000.0), ("b", 1.0, 10.0), ("b", 1.0, 10.0))
    queue.pop(nowhere)
    gone = Ticket("a", 1.0, 10.0)
    queue.join(gone)
    queue.leave(gone)
    queue.join(Ticket("a", 1.0, 10.0))
    assert order(queue) == "bba"


def test_who_finds_no_room_after_all_keeps_his_place():
    """A woken request that is refused goes back to where it was."""
    queue = build_queue(("a", 1.0, 10.0), ("b", 1.0, 10.0), ("a", 1.0, 10.0))
    first = queue.pop(nowhere)
    queue.rejoin(first)
    assert queue.pop(nowhere) is first


def test_one_at_home_where_there_is_room_goes_before_one_that_is_not():
    """Within the first few, and only so often past the same one."""
    queue: FairQueue[Ticket] = FairQueue()
    stranger = Ticket("a", 1.0, 10.0, homes=("w1",))
    queue.join(stranger)
    for _ in range(10):
        queue.join(Ticket("b", 1.0, 0.001, homes=("w2",)))
    served = [queue.pop(lambda worker: worker == "w2") for _ in range(MOST_OVERTAKEN + 1)]
    assert [each is stranger for each in served] == [False] * MOST_OVERTAKEN + [True]


def test_who_comes_stands_before_those_that_many_were_let_past():
    """E14: that others went first for their homes puts a newcomer no further back."""
    queue: FairQueue[Ticket] = FairQueue()
    for number in range(8):
        queue.join(Ticket("a", 1.0, 10.0, homes=("w1",) if number < 7 else ("w2",)))
    assert queue.pop(lambda worker: worker == "w2").number == 8
    queue.join(Ticket("b", 1.0, 10.0))
    assert "b" in order(queue)[:2]


def test_room_is_never_kept_free():
    """Nobody of the next few is at home where there is room: the head goes all the same."""
    queue: FairQueue[Ticket] = FairQueue()
    for number in range(LOOK_AHEAD + 2):
        queue.join(Ticket("a", 1.0, 10.0, homes=("w2",) if number == LOOK_AHEAD else ("w1",)))
    assert queue.pop(lambda worker: worker == "w2").number == 1


def test_the_last_is_of_who_has_most_waiting():
    """The one to go when the line is too long."""
    queue = build_queue(*[("a", 1.0, 10.0)] * 9, ("b", 1.0, 10.0))
    assert queue.last.tenant == "a"
    assert queue.over_share("a")
    assert not queue.over_share("b")


def test_alone_nobody_is_over_its_share():
    """There is nobody to take from."""
    assert not build_queue(*[("a", 1.0, 10.0)] * 9).over_share("a")
    assert not build_queue().over_share("a")


def test_a_share_counts_weights():
    """Nine to three with weights of three to one is fair."""
    queue = build_queue(*[("a", 3.0, 10.0)] * 9, *[("b", 1.0, 10.0)] * 3)
    assert not queue.over_share("a")
    assert not queue.over_share("b")


requests = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.booleans()), min_size=1, max_size=120)


@given(requests, st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)))
def test_no_backlogged_tenant_falls_behind_by_more_than_a_few_requests(sequence, weights):
    """The paper's bound: between two that always wait, served tokens over weight differ by at most a request each."""
    weight = dict(zip("abc", map(float, weights), strict=True))
    queue: FairQueue[Ticket] = FairQueue()
    for tenant, tokens, _ in sequence:
        queue.join(Ticket(tenant, weight[tenant], float(tokens)))
    largest = {t: max((tokens for tenant, tokens, _ in sequence if tenant == t), default=0) / weight[t] for t in "abc"}
    served = dict.fromkeys("abc", 0.0)
    while len(queue):
        waiting = {each.tenant for each in queue}
        ticket = queue.pop(nowhere)
        served[ticket.tenant] += ticket.tokens / ticket.weight
        if not {each.tenant for each in queue} >= waiting:
            break  # somebody has no more: the comparison ends here
        for one in waiting:
            for other in waiting:
                assert served[one] - served[other] <= largest[one] + largest[other] + 1e-6


@given(requests)
def test_every_ticket_comes_out_once_or_leaves(sequence):
    """Joins, turns and departures in any order lose nobody."""
    queue: FairQueue[Ticket] = FairQueue()
    inside, outside = [], []
    for tenant, tokens, turn in sequence:
        ticket = Ticket(tenant, 1.0, float(tokens))
        queue.join(ticket)
        inside.append(ticket)
        if turn:
            gone = queue.pop(nowhere)
            outside.append(gone)
            inside.remove(gone)
        elif tokens % 3 == 0:
            gone = inside.pop(tokens % len(inside))
            assert queue.leave(gone)
            outside.append(gone)
        assert len(queue) == len(inside)
        starts = [each.start for each in queue]
        assert starts == sorted(starts)
    assert len(outside) + len(inside) == len(sequence)
