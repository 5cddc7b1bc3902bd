"""Who waits, whose time is up and who gives way, told without a socket or a clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.connections import Bounds, Connections

WIDE = Bounds(connections=1000, descriptors=10_000, head_seconds=10.0, write_seconds=60.0)


def connected(*names: str, bounds: Bounds = WIDE) -> Connections[str]:
    """These, each a second after the other."""
    connections: Connections[str] = Connections(bounds)
    for second, name in enumerate(names):
        assert connections.opened(name, float(second)) is None
    return connections


def answered(connections: Connections[str], name: str) -> None:
    assert connections.asked(name) is None
    connections.rested(name)


def test_a_head_has_its_time_from_the_connections_beginning() -> None:
    """And is told once."""
    connections = connected("a", "b")
    assert connections.next_deadline() == 10.0
    assert connections.overdue(9.9) == ([], [])
    assert connections.overdue(10.0) == (["a"], [])
    assert connections.overdue(12.0) == (["b"], [])
    assert connections.overdue(99.0) == ([], [])
    assert connections.next_deadline() is None


def test_many_whose_time_is_up_are_told_in_turns() -> None:
    """A thousand slow clients that came together must not stall the others when they go."""
    connections = connected(*map(str, range(100)))
    told = [connections.overdue(999.0).heads for _ in range(5)]
    assert [len(some) for some in told] == [32, 32, 32, 4, 0]
    assert [name for some in told for name in some] == list(map(str, range(100)))


def test_a_later_head_has_its_time_from_its_first_byte() -> None:
    """More bytes give it no more time; the whole head ends it."""
    connections = connected("a")
    answered(connections, "a")
    assert connections.next_deadline() is None
    connections.head_began("a", 100.0)
    connections.head_began("a", 105.0)
    assert connections.next_deadline() == 110.0
    connections.asked("a")
    assert connections.overdue(999.0) == ([], [])


def test_over_the_cap_the_one_that_idles_longest_gives_way() -> None:
    """Row E4: idle since its last answer, or since it came."""
    connections = connected("a", "b", "c", bounds=WIDE._replace(connections=3))
    answered(connections, "a")
    assert connections.opened("d", 5.0) == "b"
    connections.gone("b")
    connections.asked("c")
    assert connections.opened("e", 6.0) == "a"


def test_over_the_cap_nobody_at_work_gives_way() -> None:
    """Then it is the newcomer itself."""
    connections = connected("a", "b", bounds=WIDE._replace(connections=2))
    connections.asked("a")
    connections.asked("b")
    assert connections.opened("c", 5.0) == "c"


def test_a_request_under_way_takes_two_descriptors() -> None:
    """Row E10: one of them is the worker's; somebody who idles makes room for it."""
    connections = connected("a", "b", "c", "d", bounds=WIDE._replace(descriptors=5))
    assert connections.asked("d") is None
    assert connections.asked("c") == "a"
    connections.gone("a")
    assert connections.asked("b") is None
    assert connections.opened("e", 9.0) == "e"


def test_a_close_that_nobody_takes_has_its_time() -> None:
    """From the first close on, however often it is closed."""
    connections = connected("a")
    connections.closing("a", 20.0)
    connections.closing("a", 30.0)
    assert connections.next_deadline() == 80.0
    assert connections.overdue(80.0) == ([], ["a"])


def test_what_is_gone_is_waited_for_no_more() -> None:
    """Whatever it was doing; and nothing can bring it back."""
    connections = connected("a", "b")
    connections.closing("a", 1.0)
    for name in ("a", "b"):
        connections.gone(name)
        connections.rested(name)
        connections.closing(name, 2.0)
    assert (connections.open, connections.idle, connections.next_deadline()) == (0, 0, None)


STEPS = st.lists(st.tuples(st.sampled_from(["open", "head", "ask", "rest", "close", "gone"]), st.integers(0, 7)))


@given(STEPS)
def test_any_order_of_happenings_keeps_the_books(steps: list[tuple[str, int]]) -> None:
    """Nobody is waited for who is not there, and the number never passes the cap by more than the one newcomer."""
    connections: Connections[int] = Connections(WIDE._replace(connections=4))
    there: set[int] = set()
    for now, (what, who) in enumerate(steps):
        if what == "open" and who not in there:
            there.add(who)
            leaving = connections.opened(who, now)
            if leaving is not None:
                connections.gone(leaving)
                there.discard(leaving)
        elif who in there and what == "gone":
            connections.gone(who)
            there.discard(who)
        elif who in there:
            step = {"head": connections.head_began, "close": connections.closing}.get(what)
            if step is not None:
                step(who, now)
            elif what != "open":
                {"ask": connections.asked, "rest": connections.rested}[what](who)
        connections.overdue(now - 10.0)
        connections.check_integrity()
        assert connections.open == len(there) <= 4
