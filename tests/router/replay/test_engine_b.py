"""Engine B by hand, and against a plain model that steps one step at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.replay.engine_b import Stretch
from router.replay.simulate import replay
from tests.router.replay.plain_models import plain_engine_b
from tests.router.replay.replay_builders import Ask, Scripted, build_settings, build_trace

ASKS = st.builds(
    Ask,
    at_seconds=st.integers(0, 300).map(lambda tenths: tenths / 10),
    name=st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map(".".join),
    tokens=st.none(),
    output_tokens=st.integers(1, 30),
    session=st.none(),
    think_seconds=st.just(0.0),
)


def run(*asks: Ask, **changes: object):
    """One worker of engine B; its outcomes and busy seconds."""
    replayed = replay(build_trace(*asks), Scripted(), build_settings(kind="B", workers=1, **changes))
    return replayed.outcomes, replayed.busy_seconds[0]


def test_a_prefill_is_cut_into_steps_and_then_decodes():
    """250 tokens at 100 a step: 0.35 + 0.35 + 0.30 s; then two steps over 250 and 251 tokens of context."""
    (one,), busy = run(Ask(0.0, "a.b", tokens=250, output_tokens=3))
    assert one.ttft_seconds == pytest.approx(1.0)
    assert one.total_seconds == pytest.approx(1.0 + 0.25 + 0.250 + 0.25 + 0.251)
    assert busy == pytest.approx(one.total_seconds)


def test_decoding_takes_its_token_of_the_budget_and_slows_the_prefill_down():
    """While one decodes over 100 tokens, another's prefill of 198 tokens has 99 a step."""
    (first, second), _ = run(Ask(0.0, "a", output_tokens=4), Ask(0.1, "x.y", tokens=198, output_tokens=1))
    assert first.ttft_seconds == pytest.approx(0.35)
    steps = (0.25 + 0.099 + 0.100) + (0.25 + 0.099 + 0.101)
    assert second.ttft_seconds == pytest.approx(0.35 + steps - 0.1)
    assert second.total_seconds == second.ttft_seconds
    assert first.total_seconds == pytest.approx(0.35 + steps + 0.25 + 0.102)


def test_two_short_prefills_share_a_step():
    """60 and 30 tokens that wait for the same step."""
    outcomes, _ = run(Ask(0.0, "a", output_tokens=1), Ask(0.1, "", tokens=60), Ask(0.2, "", tokens=30))
    assert outcomes[1].ttft_seconds == pytest.approx(0.35 + 0.25 + 0.09 - 0.1)
    assert outcomes[2].ttft_seconds == pytest.approx(0.35 + 0.25 + 0.09 - 0.2)


def test_who_comes_in_a_long_decode_begins_with_the_next_step():
    """Steps over one sequence end at 0.35, 0.70, 1.051, 1.403, … s; one that comes at 0.9 s begins at 1.051 s."""
    (first, second), _ = run(Ask(0.0, "a", output_tokens=50), Ask(0.9, "x", tokens=99, output_tokens=1))
    assert second.ttft_seconds == pytest.approx(1.051 + 0.25 + 0.099 + 0.102 - 0.9)
    assert first.total_seconds == pytest.approx(0.35 + 49 * 0.25 + sum(range(100, 149)) * 0.001 + 0.099)


def test_a_full_worker_lets_nobody_begin():
    """One sequence at a time: the second's prefill waits for the first's end."""
    (first, second), _ = run(Ask(0.0, "a", output_tokens=3), Ask(0.1, "b", output_tokens=1), most_sequences=1)
    assert second.ttft_seconds == pytest.approx(first.total_seconds - 0.1 + 0.35)


def test_a_context_that_has_no_room_waits():
    """Four blocks: a prompt of two and its answer's one leave no room for another such."""
    asks = (Ask(0.0, "a.b", output_tokens=3), Ask(0.1, "x.y", output_tokens=1))
    (first, second), _ = run(*asks, cache_blocks=4)
    assert second.ttft_seconds == pytest.approx(first.total_seconds - 0.1 + 0.7)
    (_, roomy), _ = run(*asks, cache_blocks=5)
    assert roomy.ttft_seconds == pytest.approx(0.7 + (0.25 + 0.099 + 0.2) + (0.25 + 0.099 + 0.201) + 0.252 - 0.1)


def test_an_empty_prompt_takes_a_step_too():
    """No token at all, or one."""
    (first, second), _ = run(Ask(0.0, "", tokens=0, output_tokens=1), Ask(1.0, "", tokens=1, output_tokens=1))
    assert [first.ttft_seconds, second.ttft_seconds] == pytest.approx([0.251, 0.251])


def test_a_lone_request_is_served_even_where_it_does_not_fit():
    """A prompt of three blocks in a cache of two."""
    (one,), _ = run(Ask(0.0, "a.b.c", output_tokens=2), cache_blocks=2)
    assert one.total_seconds > one.ttft_seconds > 0


def apart(asks: list[Ask]) -> list[Ask]:
    """In order, and at times that no step of another's ends at: who is seen just then is nobody's business."""
    return [ask._replace(at_seconds=ask.at_seconds + n * 0.001372917) for n, ask in enumerate(sorted(asks))]


@settings(max_examples=150)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=12),
    cache_blocks=st.integers(2, 12),
    most_sequences=st.integers(1, 5),
    step_tokens=st.sampled_from([7, 64, 250]),
    growth=st.sampled_from([0.0, 1e-7, 1e-3]),
)
def test_long_stretches_are_many_small_steps(asks, cache_blocks, most_sequences, step_tokens, growth):
    """First tokens, ends, cached tokens and busy seconds are those of the plain model."""
    trace = build_trace(*apart(asks))
    engine = build_settings(
        kind="B",
        workers=1,
        cache_blocks=cache_blocks,
        most_sequences=most_sequences,
        step_tokens=step_tokens,
        seconds_per_context_token=growth,
    )
    replayed = replay(trace, Scripted(), engine)
    plain, busy = plain_engine_b(trace, engine)
    for one, (first, last, cached) in zip(replayed.outcomes, plain, strict=True):
        assert one.cached_tokens == cached
        assert one.sent_at_seconds + one.ttft_seconds == pytest.approx(first)
        assert one.sent_at_seconds + one.total_seconds == pytest.approx(last)
    assert replayed.busy_seconds[0] == pytest.approx(busy)


@given(
    first=st.floats(0.001, 1.0),
    growth=st.one_of(st.just(0.0), st.floats(1e-9, 0.1)),
    elapsed=st.floats(0.0, 1e4),
)
def test_the_step_under_way_is_found(first, growth, elapsed):
    """It is the first that ends no earlier than the time asked about (but for the last digits)."""
    stretch = Stretch(first, growth)
    steps = stretch.steps_until(elapsed)
    assert stretch.seconds(steps) >= elapsed
    assert steps == 1 or stretch.seconds(steps - 1) <= elapsed * (1 + 1e-9)
