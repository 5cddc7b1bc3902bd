"""Engine A by hand: when first tokens come, what is found cached, and how busy the workers were."""

from __future__ import annotations

import pytest

from router.replay.simulate import replay
from tests.router.replay.replay_builders import Ask, Scripted, build_settings, build_trace


def test_prefills_go_one_after_the_other_while_answers_decode():
    """0.5 s and a second per 1,000 tokens each; the second waits for the first's prefill, not for its answer."""
    trace = build_trace(Ask(0.0, "a.b.c.d.e"), Ask(0.2, "x.y"))
    first, second = replay(trace, Scripted(), build_settings()).outcomes
    assert (first.ttft_seconds, first.total_seconds) == pytest.approx((1.0, 2.0))
    assert second.ttft_seconds == pytest.approx(1.0 - 0.2 + 0.7)
    assert second.total_seconds == pytest.approx(second.ttft_seconds + 1.0)


def test_workers_do_not_wait_for_each_other():
    """Two at once on two workers."""
    trace = build_trace(Ask(0.0, "a.b.c.d.e"), Ask(0.0, "x.y"))
    first, second = replay(trace, Scripted([0, 1]), build_settings()).outcomes
    assert (first.ttft_seconds, second.ttft_seconds) == pytest.approx((1.0, 0.7))
    assert (first.worker, second.worker) == (0, 1)


def test_what_an_earlier_prefill_computed_is_found():
    """Also while its answer still decodes; not what is only queued ahead on another worker."""
    trace = build_trace(Ask(0.0, "a.b.c", output_tokens=1000), Ask(1.0, "a.b.x"), Ask(2.0, "a.b.x"))
    outcomes = replay(trace, Scripted([0, 0, 1]), build_settings()).outcomes
    assert [one.cached_tokens for one in outcomes] == [0, 200, 0]
    assert outcomes[1].ttft_seconds == pytest.approx(0.6)


def test_what_is_looked_up_when_the_prefill_begins_counts():
    """A twin that comes while the first is being prefilled finds its blocks."""
    trace = build_trace(Ask(0.0, "a.b.c"), Ask(0.1, "a.b.c.d"))
    assert replay(trace, Scripted(), build_settings()).outcomes[1].cached_tokens == 300


def test_one_token_at_least_is_computed():
    """A prompt that is held whole, and one without blocks."""
    trace = build_trace(Ask(0.0, "a.b"), Ask(5.0, "a.b"), Ask(9.0, "", tokens=40), Ask(10.0, "", tokens=1))
    outcomes = replay(trace, Scripted(), build_settings()).outcomes
    assert [one.cached_tokens for one in outcomes] == [0, 199, 0, 0]
    assert outcomes[1].ttft_seconds == pytest.approx(0.501)


def test_busy_seconds_are_those_of_the_prefills():
    """By worker; decoding costs nothing here."""
    trace = build_trace(Ask(0.0, "a.b"), Ask(0.0, "x"), Ask(0.0, "y", output_tokens=1))
    replayed = replay(trace, Scripted([0, 1, 0]), build_settings())
    assert replayed.busy_seconds == pytest.approx([0.7 + 0.6, 0.6])
    assert replayed.end_seconds == pytest.approx(1.7)


def test_the_work_ahead_is_what_is_left_of_one_and_all_that_wait():
    """At 0.4 s of a prefill of 1 s, with 0.6 s waiting whose first block is coming anyway."""
    trace = build_trace(Ask(0.0, "a.b.c.d.e"), Ask(0.2, "a.x"), Ask(0.4, "y"))
    chooser = Scripted()
    replay(trace, chooser, build_settings())
    assert [work for _, _, work in chooser.seen] == [[0.0, 0.0], pytest.approx([0.8, 0.0]), pytest.approx([1.2, 0.0])]
