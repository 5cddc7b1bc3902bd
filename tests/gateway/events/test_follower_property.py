"""Any sequence of loss, repetition, reordering and restarts, followed by a whole replay, ends in the worker's state."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.events.follower_pair import Pair


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ppppplldrasc"), st.integers(0, 6)), max_size=60),
    st.integers(0, 2**32),
    st.sampled_from([3, 10_000]),
)
def test_any_sequence_followed_by_a_catch_up_equals_the_workers_own_state(steps, number, keep):
    """Loss, repeats, orders, restarts, dropped batches: nothing is left but what the worker says, or less.

    With everything kept and nothing dropped by the worker itself: exactly its state. Else a suffix of its life.
    """
    pair, draw = Pair(keep), random.Random(number)
    heard: list[tuple[int, bytes]] = []
    late: list[tuple[int, bytes]] = []
    dropped = False
    for what, block in steps:
        if what in "pl":
            message = pair.worker.publish(block)
            heard.append(message)
            pair.hear(*([message] if what == "p" else []))
        elif what == "d":
            dropped = True
            pair.worker.drop(block)
        elif what == "r":
            pair.worker.restart()
            pair.broke, dropped = True, False
        elif what == "a" and heard:
            pair.hear(draw.choice(heard))
        elif what == "s":
            late = [pair.worker.publish(each) for each in range(3)]
            heard += late
            draw.shuffle(late)
            pair.hear(*late)
        elif what == "c":
            pair.catch_up()
    pair.catch_up()
    pair.catch_up()
    life = f"{pair.worker.life}:".encode()
    assert all(payload.startswith(life) for payload in pair.sink.applied)
    if keep > len(steps) * 3 and not dropped:
        assert pair.sink.held == pair.worker.held
        assert pair.follower.complete
    numbers = [int(payload.split(b":")[1]) for payload in pair.sink.applied]
    assert numbers == list(range(pair.worker.next - len(numbers), pair.worker.next)) or dropped
    assert pair.counts.lost + pair.counts.lives >= pair.sink.cleared - 1
