"""The timing model in place of tensors: the time of a step, and the same words every time."""

from __future__ import annotations

import pytest

from backends.simulated import TEXT, SimulatedRunner, Timing
from tests.backends.core_builders import ManualClock, build_engine, build_prompt, build_request, outputs, run_to_end
from tests.backends.test_detokenise import Bytes


def build_simulated(timing: Timing | None = None, clock: ManualClock | None = None, engine=None, **settings):
    clock = clock or ManualClock()
    return build_engine(SimulatedRunner(timing or Timing(), clock.sleep, **settings), Bytes(), clock, **(engine or {}))


def test_a_step_takes_its_fixed_time_its_prefill_and_its_tokens():
    """Each part by itself, and all together."""
    timing = Timing(prefill_tokens_per_second=1000, fixed_seconds=0.25, seconds_per_token=0.125)
    assert timing.step_seconds(500, 2) == 0.25 + 0.5 + 0.25
    assert Timing().step_seconds(500, 2) == 0.0


def test_cached_tokens_take_no_time():
    """The second equal prompt waits for its last block only."""
    clock = ManualClock()
    engine = build_simulated(Timing(prefill_tokens_per_second=1), clock)
    engine.add(build_request("a", [1] * 17, max_tokens=1))
    run_to_end(engine)
    assert clock.now == 17.0
    engine.add(build_request("b", [1] * 17, max_tokens=1))
    run_to_end(engine)
    assert clock.now == 18.0


def test_decoding_costs_the_time_per_token():
    """The first token comes with the prefill, the others one step each."""
    clock = ManualClock()
    engine = build_simulated(Timing(fixed_seconds=1.0, seconds_per_token=0.5), clock)
    engine.add(build_request("a", [1] * 5, max_tokens=4))
    run_to_end(engine)
    assert clock.now == 4 * 1.5


def test_the_answer_is_printable_text():
    """A person at a terminal can read it."""
    engine = build_simulated()
    engine.add(build_request("a", [1] * len(TEXT[:120]), max_tokens=60))
    text = "".join(delta.text for delta in run_to_end(engine))
    assert text.isprintable()
    assert text in TEXT * 2


def test_answers_are_the_same_each_time_and_differ_between_prompts():
    """Whatever is cached, chunked or preempted."""

    def run(**engine):
        simulated = build_simulated(engine=engine)
        for seed, name in enumerate("abcd"):
            simulated.add(build_request(name, build_prompt(9 + seed, seed), max_tokens=20))
        return outputs(run_to_end(simulated)), simulated.stats().preemptions

    plain, none = run()
    squeezed, some = run(num_blocks=12, max_batched_tokens=8)
    assert plain == squeezed
    assert (none, some > 0) == (0, True)
    assert len({tuple(tokens) for tokens in plain.values()}) == 4


def test_an_answer_may_end_by_itself():
    """With an end id the model stops after its answer, as real ones do."""
    engine = build_simulated(engine={"eos_ids": frozenset({0})}, end_id=0, answer_tokens=5)
    engine.add(build_request("a", [1] * 5, max_tokens=None))
    deltas = run_to_end(engine)
    assert (deltas[-1].finish_reason, deltas[-1].completion_tokens) == ("stop", 6)
    assert len("".join(delta.text for delta in deltas)) == 5


def test_an_answer_that_ignores_its_end_goes_on_in_words():
    """A load generator that asks for 300 tokens gets 300 tokens of text."""
    engine = build_simulated(engine={"eos_ids": frozenset({0})}, end_id=0, answer_tokens=5)
    engine.add(build_request("a", [1] * 5, max_tokens=20, ignore_eos=True))
    assert len("".join(delta.text for delta in run_to_end(engine))) == 20


def test_a_text_beyond_the_vocabulary_is_refused():
    """Its ids could not be decoded."""
    for text in (b"", [300]):
        with pytest.raises(ValueError, match="text_ids"):
            SimulatedRunner(Timing(), lambda seconds: None, text_ids=text)
