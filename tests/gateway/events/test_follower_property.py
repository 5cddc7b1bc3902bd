"""Any sequence of loss, repetition, reordering and restarts, followed by a whole replay, ends in the worker's state."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.events.follower_pair import Pair

STEPS = st.lists(st.tuples(st.sampled_from("ppppplldrasc"), st.integers(0, 6)), max_size=60)
"""Published and heard, lost on the way, dropped by the worker, a restart, a repetition, three in another order, and
asking unprompted."""


def play(pair: Pair, steps: list[tuple[str, int]], draw: random.Random, *, strays: bool) -> bool:
    """Carry the steps out; whether the worker of the end has dropped a batch. `strays`: old lives are heard again."""
    heard: list[tuple[int, bytes]] = []
    dropped = False
    for what, block in steps:
        if what in "pl":
            heard.append(pair.worker.publish(block))
            pair.hear(*(heard[-1:] if what == "p" else ()))
        elif what == "d":
            dropped = True
            pair.worker.drop(block)
        elif what == "r":
            pair.worker.restart()
            pair.broke, dropped = True, False
            heard = heard if strays else []
        elif what == "a" and heard:
            pair.hear(draw.choice(heard))
        elif what == "s":
            late = [pair.worker.publish(each) for each in range(3)]
            heard += late
            pair.hear(*draw.sample(late, 3))
        elif what == "c":
            pair.catch_up()
    return dropped


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 2**32), st.sampled_from([3, 10_000]))
def test_any_sequence_followed_by_asking_equals_the_workers_own_state(steps, number, keep):
    """Nothing is left but what the worker of the end said.

    With everything kept and nothing dropped by the worker itself: exactly its state. Else the end of its life.
    """
    pair = Pair(keep)
    dropped = play(pair, steps, random.Random(number), strays=False)
    pair.catch_up()
    pair.catch_up()
    life = f"{pair.worker.life}:".encode()
    assert all(payload.startswith(life) for payload in pair.sink.applied)
    numbers = [int(payload.split(b":")[1]) for payload in pair.sink.applied]
    assert numbers == list(range(pair.worker.next - len(numbers), pair.worker.next)) or dropped
    if keep > 3 and not dropped:
        assert pair.sink.held == pair.worker.held
        assert pair.follower.complete


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_any_sequence_with_strays_of_old_lives_ends_right_once_it_is_told_anew(steps, number):
    """A batch of a dead process may have just the number that comes next; the whole state puts that right as well."""
    pair = Pair()
    dropped = play(pair, steps, random.Random(number), strays=True)
    pair.follower.start_over()
    pair.answer()
    assert dropped or pair.sink.held == pair.worker.held
