"""The replay as a whole: every request is served once, in the order of things, whatever the fleet does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.choosers import build_chooser
from router.replay.core import Churn
from router.replay.simulate import replay
from tests.router.replay.replay_builders import Ask, Scripted, build_settings, build_trace

ASKS = st.builds(
    Ask,
    at_seconds=st.integers(0, 40).map(lambda tenths: tenths / 10),
    name=st.lists(st.sampled_from("abc"), max_size=4).map(".".join),
    tokens=st.none(),
    output_tokens=st.integers(1, 12),
    session=st.integers(0, 4),
    think_seconds=st.sampled_from([0.0, 0.7]),
)


@given(
    asks=st.lists(ASKS, max_size=15),
    kind=st.sampled_from("AB"),
    workers=st.integers(1, 3),
    shared=st.booleans(),
    closed=st.booleans(),
)
def test_every_request_is_served_once(asks, kind, workers, shared, closed):
    """Each is chosen for, begun and ended once and in that order; nothing is left in flight; caches stay sound."""
    trace = build_trace(*sorted(asks), closed_loop=closed)
    chooser = Scripted([number % workers for number in range(5)])
    settings = build_settings(kind=kind, workers=workers, cache_blocks=5)
    replayed = replay(trace, chooser, settings, shared_cache=shared)
    assert [one.number for one in replayed.outcomes] == list(range(len(asks)))
    for one in replayed.outcomes:
        mine = [(what, when) for what, number, when in chooser.heard if number == one.number]
        assert [what for what, _ in mine] == ["choose", "first_token", "finished"]
        times = [one.sent_at_seconds + after for after in (0.0, one.ttft_seconds, one.total_seconds)]
        assert [when for _, when in mine] == pytest.approx(times)
        assert one.worker == one.number % 5 % workers
        assert 0 <= one.cached_tokens <= max(0, trace.requests[one.number].prompt.tokens - 1)
    assert len(replayed.busy_seconds) == workers
    assert all(seconds <= replayed.end_seconds + 1e-9 for seconds in replayed.busy_seconds)


@given(asks=st.lists(ASKS, min_size=1, max_size=15))
def test_busy_seconds_are_the_sum_of_all_prefills(asks):
    """In engine A: so much for each, and for each token that was not cached."""
    trace = build_trace(*sorted(asks))
    replayed = replay(trace, Scripted([0, 1]), build_settings(cache_blocks=5))
    uncached = [trace.requests[one.number].prompt.tokens - one.cached_tokens for one in replayed.outcomes]
    assert sum(replayed.busy_seconds) == pytest.approx(0.5 * len(asks) + sum(uncached) / 1000)


@pytest.mark.parametrize("name", ["homing", "least_loaded", "oracle", "ideal", "round_robin"])
@pytest.mark.parametrize("kind", ["A", "B"])
def test_the_same_seed_gives_the_same_replay(name, kind):
    """Outcome for outcome."""
    trace = build_trace(*[Ask(number / 3, "abc"[number % 3] + ".x.y"[: number % 5]) for number in range(60)])
    settings = build_settings(kind=kind)
    first, again = (replay(trace, build_chooser(name, settings, seed=3), settings) for _ in range(2))
    assert first == again


def test_a_session_waits_for_its_answer_and_thinks():
    """The second call comes 2 s after the first's end, whatever its own time says; another session does not wait."""
    trace = build_trace(
        Ask(1.0, "a", session=7),
        Ask(1.1, "a.b", session=7, think_seconds=2.0),
        Ask(1.2, "x", session=8),
        closed_loop=True,
    )
    first, second, other = replay(trace, Scripted([0, 0, 1]), build_settings()).outcomes
    assert second.sent_at_seconds == pytest.approx(1.0 + first.total_seconds + 2.0)
    assert other.sent_at_seconds == 1.2


def test_an_open_loop_does_not_wait():
    """The same sessions, sent at their own times."""
    trace = build_trace(Ask(1.0, "a", session=7), Ask(1.1, "a.b", session=7, think_seconds=2.0))
    assert [one.sent_at_seconds for one in replay(trace, Scripted(), build_settings()).outcomes] == [1.0, 1.1]


@pytest.mark.parametrize(("scale", "sent"), [(0.0, [0.0, 0.0]), (0.5, [0.5, 1.5]), (2.0, [2.0, 6.0])])
def test_times_of_arrival_can_be_stretched(scale, sent):
    """0 sends all at once."""
    trace = build_trace(Ask(1.0, "a"), Ask(3.0, "b"))
    replayed = replay(trace, Scripted(), build_settings(), time_scale=scale)
    assert [one.sent_at_seconds for one in replayed.outcomes] == sent


def test_a_shared_cache_is_of_the_size_of_all():
    """What one worker computed another finds; three workers hold three times the blocks of one."""
    asks = [Ask(5.0 * number, name) for number, name in enumerate(["a.b", "x.y", "z.w", "a.b"])]
    settings = build_settings(workers=3, cache_blocks=2)
    shared = replay(build_trace(*asks), Scripted([0, 1, 2]), settings, shared_cache=True)
    assert [one.cached_tokens for one in shared.outcomes] == [0, 0, 0, 199]
    apart = replay(build_trace(*asks[:3], asks[0]._replace(at_seconds=20.0)), Scripted([0, 1, 1]), settings)
    assert [one.cached_tokens for one in apart.outcomes] == [0, 0, 0, 199]


@pytest.mark.parametrize("kind", ["A", "B"])
def test_a_worker_that_leaves_ends_what_it_has(kind):
    """It gets nothing new; its busy seconds still count; when it is back it is empty."""
    trace = build_trace(Ask(0.0, "a.b", output_tokens=100), Ask(2.0, "a.b"), Ask(4.0, "a.b"), Ask(6.0, "a.b"))
    chooser = Scripted([1, 0, 1, 1])
    churn = [Churn(1.0, 1, joins=False), Churn(3.0, 1, joins=True)]
    replayed = replay(trace, chooser, build_settings(kind=kind), churn=churn)
    assert [present for present, _, _ in chooser.seen] == [(0, 1), (0,), (0, 1), (0, 1)]
    assert [one.worker for one in replayed.outcomes] == [1, 0, 1, 1]
    assert [one.cached_tokens for one in replayed.outcomes] == [0, 0, 0, 199]
    assert replayed.outcomes[0].total_seconds > 5
    assert [what[:2] for what in chooser.heard if what[0] in ("joined", "left")] == [("left", 1), ("joined", 1)]


def test_a_new_worker_comes_empty_with_a_number_of_its_own():
    """Its busy seconds are the last of the list."""
    trace = build_trace(Ask(0.0, "a.b"), Ask(5.0, "a.b"))
    replayed = replay(trace, Scripted([0, 2]), build_settings(), churn=[Churn(1.0, 2, joins=True)])
    assert [one.cached_tokens for one in replayed.outcomes] == [0, 0]
    assert replayed.busy_seconds == pytest.approx([0.7, 0.0, 0.7])


@pytest.mark.parametrize(
    ("churn", "complaint"),
    [
        (Churn(0.0, 0, joins=True), "worker 0 cannot join"),
        (Churn(0.0, 5, joins=False), "worker 5 cannot leave"),
    ],
)
def test_churn_that_does_not_add_up_is_refused(churn, complaint):
    """Who is there cannot join, who is not cannot leave."""
    with pytest.raises(ValueError, match=complaint):
        replay(build_trace(Ask(1.0, "a")), Scripted(), build_settings(), churn=[churn])


def test_a_choice_of_nobody_is_refused():
    """A chooser that names a worker which is not there is wrong."""
    with pytest.raises(ValueError, match="request 0 was given to worker 7"):
        replay(build_trace(Ask(1.0, "a")), Scripted(7), build_settings())


def test_nothing_comes_of_nothing():
    """A trace without requests."""
    assert replay(build_trace(), Scripted(), build_settings()) == ([], [0.0, 0.0], 0.0)


class Watching(Scripted):
    """Looks every second."""

    probe_seconds = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[float, int]] = []

    def probed(self, now, truth) -> None:
        self.looks.append((now, truth.waiting(0)))


def test_a_prober_looks_as_long_as_anything_happens():
    """Three prefills of 0.6 s from 0.5 s on: at 1 s two wait, at 2 s nobody; the last answer ends at 3.3 s."""
    trace = build_trace(*[Ask(0.5, name) for name in "abc"])
    chooser = Watching()
    replay(trace, chooser, build_settings())
    assert chooser.looks == [(0.0, 0), (1.0, 2), (2.0, 0), (3.0, 0), (4.0, 0)]
