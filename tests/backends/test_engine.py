"""The engine: what a caller sees of a request's life."""

from __future__ import annotations

import pytest

from backends.simulated import SimulatedRunner, Timing
from backends.types import StepFailedError
from tests.backends.core_builders import (
    ManualClock,
    Notes,
    SlotRunner,
    answer,
    build_engine,
    build_prompt,
    build_request,
    expected_output,
    outputs,
    run_to_end,
)
from tests.backends.test_detokenise import Bytes


def build_speaking_engine(text: bytes, **settings):
    """An engine whose answers are `text`, byte by byte, whatever is asked."""
    runner = SimulatedRunner(Timing(), lambda seconds: None, text_ids=text)
    return build_engine(runner, Bytes(), **settings)


def spoken(engine, **settings) -> tuple[str, str | None, str | None]:
    """Text, finish reason and stop reason of an answer to a prompt as long as the text (so it starts at its start)."""
    engine.add(build_request("a", [1] * len(engine.runner._text_ids), **settings))
    deltas = run_to_end(engine)
    return "".join(delta.text for delta in deltas), deltas[-1].finish_reason, deltas[-1].stop_reason


def test_an_answer_is_told_token_by_token():
    """One delta a step, counts that grow, and one last delta with the reason."""
    engine, prompt = build_engine(), build_prompt(10)
    engine.add(build_request("a", prompt, max_tokens=3))
    deltas = run_to_end(engine)
    assert outputs(deltas) == {"a": expected_output(prompt, 3)}
    assert [delta.completion_tokens for delta in deltas] == [1, 2, 3]
    assert [delta.finish_reason for delta in deltas] == [None, None, "length"]
    assert {(delta.prompt_tokens, delta.cached_tokens) for delta in deltas} == {(10, 0)}
    assert not engine.has_work


def test_a_step_without_work_does_nothing():
    """No batch reaches the runner."""
    runner = SlotRunner()
    assert build_engine(runner).step() == []
    assert runner.batches == []


def test_the_second_equal_prompt_reports_its_cached_tokens():
    """Twelve of thirteen, computed never again; its next turn hits the answer too."""
    engine, prompt = build_engine(), build_prompt(13)
    first = answer(engine, "a", prompt, max_tokens=4)
    assert (first.cached_tokens, first.completion_tokens) == (0, 4)
    assert answer(engine, "b", prompt).cached_tokens == 12
    turn = prompt + expected_output(prompt, 4)
    assert answer(engine, "c", [*turn, 5]).cached_tokens == 16


def test_two_equal_prompts_in_one_step_share_nothing():
    """Case H-03: neither may read what the other has not computed yet; both answers are right."""
    engine, prompt = build_engine(share_in_flight=False), build_prompt(13)
    engine.add(build_request("a", prompt))
    engine.add(build_request("b", prompt))
    deltas = run_to_end(engine)
    assert outputs(deltas) == dict.fromkeys("ab", expected_output(prompt, 4))
    assert {delta.cached_tokens for delta in deltas} == {0}


def test_an_abort_in_mid_prefill_leaves_what_was_computed_and_no_half_block():
    """Case H-03: two chunks of eight tokens are four blocks; the next request hits exactly these."""
    engine, prompt = build_engine(max_batched_tokens=8, max_sequences=2), build_prompt(30)
    engine.add(build_request("a", prompt))
    engine.step()
    engine.step()
    assert engine.abort("a")
    engine.check_integrity()
    last = answer(engine, "b", prompt, max_tokens=2)
    assert last.cached_tokens == 16
    assert last.completion_tokens == 2


def test_an_aborted_request_gives_no_more_deltas():
    """Trap 10: aborting twice, or somebody unknown, is False and harmless."""
    engine = build_engine()
    engine.add(build_request("a"))
    engine.add(build_request("b"))
    engine.step()
    assert engine.abort("a")
    assert not engine.abort("a")
    assert not engine.abort("nobody")
    assert {delta.request_id for delta in run_to_end(engine)} == {"b"}


def test_another_salt_or_adapter_hits_nothing():
    """Cases F-01, F-03, H-06: the same tenant hits, another one computes everything."""
    engine, prompt = build_engine(), build_prompt(13)
    for _ in range(2):
        own = answer(engine, "a", prompt, cache_salt="a")
    assert own.cached_tokens == 12
    assert answer(engine, "b", prompt, cache_salt="b").cached_tokens == 0
    assert answer(engine, "b", prompt).cached_tokens == 0
    assert answer(engine, "b", prompt, cache_salt="a", adapter="x@v1").cached_tokens == 0
    assert answer(engine, "b", prompt, cache_salt="a", adapter="x@v2").cached_tokens == 0
    assert answer(engine, "b", prompt, cache_salt="a", adapter="x@v1").cached_tokens == 12


def test_sampling_parameters_never_enter_the_key():
    """Trap 17: another temperature, seed or stop string hits all the same."""
    engine, prompt = build_engine(), build_prompt(13)
    answer(engine, "a", prompt, temperature=0.0)
    assert answer(engine, "b", prompt, temperature=2.0, seed=7, top_k=3, logprobs=1, max_tokens=9).cached_tokens == 12


def test_the_same_salt_a_hundred_times_hits_almost_always():
    """Case F-04, trap 1: one salt per tenant, and the hit rate is what the prompts allow."""
    engine, prompt = build_engine(), build_prompt(160)
    for number in range(100):
        answer(engine, f"{number}", prompt, cache_salt="tenant", max_tokens=1)
    assert engine.stats().recent_hit_rate > 0.95


def test_a_reset_is_refused_during_an_answer():
    """Case H-09: False and nothing cleared; afterwards True and the next prompt is cold."""
    engine, prompt = build_engine(), build_prompt(13)
    engine.add(build_request("a", prompt))
    engine.step()
    assert not engine.reset_prefix_cache()
    run_to_end(engine)
    assert answer(engine, "b", prompt).cached_tokens == 12
    assert engine.reset_prefix_cache()
    assert answer(engine, "c", prompt).cached_tokens == 0


def test_a_preempted_answer_goes_on_where_it_was():
    """Trap 11: outputs as if alone, tokens told once, the cached count that of the first admission."""
    notes = Notes()
    engine = build_engine(num_blocks=12, observer=notes)
    prompts = {name: build_prompt(9, seed) for seed, name in enumerate("abcd")}
    for name, prompt in prompts.items():
        engine.add(build_request(name, prompt, max_tokens=20))
    deltas = run_to_end(engine)
    assert outputs(deltas) == {name: expected_output(prompt, 20) for name, prompt in prompts.items()}
    assert {delta.cached_tokens for delta in deltas} == {0}
    assert engine.stats().preemptions == sum(end.preemptions for end in notes.ends) > 0
    assert (engine.stats().prefix_queries, engine.stats().prefix_hits) == (36, 0)


def test_a_failed_step_loses_its_requests_and_nothing_else():
    """Trap 12: nothing of it can be found; who was not in it goes on, and the cache is sound."""
    runner, prompt = SlotRunner(), build_prompt(13)
    engine = build_engine(runner, max_sequences=1, max_batched_tokens=64)
    engine.add(build_request("a", prompt))
    engine.add(build_request("b", prompt))
    runner.fail_next = True
    with pytest.raises(StepFailedError) as failure:
        engine.step()
    assert failure.value.request_ids == ("a",)
    engine.check_integrity()
    deltas = run_to_end(engine)
    assert outputs(deltas) == {"b": expected_output(prompt, 4)}
    assert deltas[0].cached_tokens == 0


def test_siblings_are_told_apart_and_end_one_by_one():
    """n = 3: three answers under one id, each complete, with seeds of their own."""
    engine, prompt = build_engine(), build_prompt(9)
    engine.add(build_request("a", prompt, n=3, seed=5, max_tokens=2))
    seeds = [sequence.sampling.seed for sequence in engine._scheduler.waiting]
    deltas = run_to_end(engine)
    assert seeds == [5, 6, 7]
    assert {delta.request_id for delta in deltas} == {"a"}
    ends = [delta.choice for delta in deltas if delta.finish_reason == "length"]
    assert sorted(ends) == [0, 1, 2]


def test_an_abort_ends_all_siblings():
    """The caller knows one id."""
    engine = build_engine()
    engine.add(build_request("a", n=3))
    engine.step()
    assert engine.abort("a")
    assert not engine.has_work
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1


def test_a_stop_string_across_tokens_ends_the_answer():
    """Trap 20: the text ends before it, and says which one it was."""
    assert spoken(build_speaking_engine(b"to the END of days"), stop=("END",), max_tokens=50) == (
        "to the ",
        "stop",
        "END",
    )


def test_a_character_of_several_tokens_is_never_shown_in_halves():
    """Trap 20: three tokens of text '中' are two empty deltas and the character."""
    engine = build_speaking_engine("中é".encode())
    engine.add(build_request("a", [1] * 5, max_tokens=5))
    assert [delta.text for delta in run_to_end(engine)] == ["", "", "中", "", "é"]


def test_an_end_token_ends_the_answer_unless_it_is_ignored():
    """Trap 20: the end token counts as a token and has no text."""
    engine = build_speaking_engine(b"ab\0cd", eos_ids=frozenset({0}))
    assert spoken(engine, max_tokens=5) == ("ab", "stop", None)
    engine = build_speaking_engine(b"ab\0cd", eos_ids=frozenset({0}))
    assert spoken(engine, max_tokens=5, ignore_eos=True) == ("ab\0cd", "length", None)


def test_special_tokens_are_no_text_unless_they_are_asked_for():
    """As vLLM's skip_special_tokens: they count as tokens all the same."""
    engine = build_speaking_engine(b"ab\0cd", special_ids=frozenset({0}))
    assert spoken(engine, max_tokens=5) == ("abcd", "length", None)
    engine = build_speaking_engine(b"ab\0cd", special_ids=frozenset({0}))
    assert spoken(engine, max_tokens=5, skip_special_tokens=False) == ("ab\0cd", "length", None)


def test_logprobs_come_with_their_tokens_only_when_asked():
    """One entry per token."""
    engine = build_speaking_engine(b"ab")
    engine.add(build_request("a", [1, 1], max_tokens=2, logprobs=1))
    assert [delta.logprobs[0].token_id for delta in run_to_end(engine)] == list(b"ab")
    assert answer(engine, "b", [1, 1]).logprobs is None


def test_the_statistics_tell_what_the_log_line_needs():
    """Gauges now, counters since start, the hit rate of the recent requests."""
    engine, prompt = build_engine(num_blocks=17), build_prompt(13)
    answer(engine, "a", prompt, max_tokens=2)
    engine.add(build_request("b", prompt, max_tokens=2))
    engine.add(build_request("c", prompt, max_tokens=2))
    assert engine.stats().waiting == 2
    engine.step()
    stats = engine.stats()
    assert (stats.running, stats.waiting) == (2, 0)
    assert (stats.free_blocks, stats.kv_usage) == (11, pytest.approx(5 / 16))
    assert (stats.prefix_queries, stats.prefix_hits) == (39, 24)
    assert stats.recent_hit_rate == pytest.approx(24 / 39)
    assert (stats.prompt_tokens, stats.cached_prompt_tokens, stats.generation_tokens) == (39, 24, 4)


def test_with_the_cache_off_nothing_is_counted_and_nothing_hits():
    """The rate is 0, and answers are the same."""
    engine, prompt = build_engine(enable_prefix_caching=False), build_prompt(13)
    answer(engine, "a", prompt)
    assert answer(engine, "b", prompt).cached_tokens == 0
    assert engine.stats().prefix_queries == 0


def test_times_are_told_to_the_observer():
    """TTFT from arrival, ITL between tokens, and one account at the end; all on the injected clock."""
    clock, notes = ManualClock(), Notes()
    runner = SimulatedRunner(Timing(fixed_seconds=2.0), clock.sleep, vocab_size=256)
    engine = build_engine(runner, clock=clock, observer=notes, max_batched_tokens=8)
    clock.now = 10.0
    engine.add(build_request("a", build_prompt(16), max_tokens=3, arrival_seconds=9.0))
    run_to_end(engine)
    assert notes.first == [("a", 5.0)]
    assert notes.next == [("a", 2.0), ("a", 2.0)]
    assert notes.steps == [(8, 0), (8, 0), (1, 0), (1, 0)]
    (end,) = notes.ends
    assert (end.queue_seconds, end.prefill_seconds, end.decode_seconds) == (1.0, 4.0, 4.0)
    assert (end.inference_seconds, end.e2e_seconds) == (8.0, 9.0)
    assert (end.finish_reason, end.prompt_tokens, end.completion_tokens, end.max_tokens) == ("length", 16, 3, 3)


def test_an_aborted_request_has_an_account_too():
    """One that never ran spent all its time in the queue."""
    clock, notes = ManualClock(), Notes()
    engine = build_engine(clock=clock, observer=notes)
    engine.add(build_request("a"))
    clock.now = 3.0
    engine.abort("a")
    (end,) = notes.ends
    assert (end.finish_reason, end.queue_seconds, end.prefill_seconds, end.e2e_seconds) == ("abort", 3.0, 0.0, 3.0)


def test_the_check_finds_a_sequence_that_nobody_will_run():
    """Live but neither running nor waiting: its caller would wait for ever."""
    engine = build_engine()
    engine.add(build_request("a"))
    waiting = engine._scheduler.waiting
    waiting.remove(next(waiting.ready))
    with pytest.raises(AssertionError, match="live but not queued"):
        engine.check_integrity()
