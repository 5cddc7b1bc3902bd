"""Quarantine: two workers may die of a prompt, a third never; an outage is nobody's fault."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.quarantine import BLAME_SECONDS, MOST_KNOWN, TRIAL_SECONDS, Quarantine, Verdict

POISON, OTHER = b"poison", b"other"


def kill(quarantine: Quarantine, worker: str, *prompts: bytes, now: float) -> int:
    """A worker breaks these off, and is found dead."""
    for prompt in prompts:
        quarantine.broke(prompt, worker, now)
    return quarantine.died(worker, now + 0.01)


def test_the_second_death_puts_a_prompt_away_for_a_minute() -> None:
    """Row A4."""
    quarantine = Quarantine(60.0)
    assert kill(quarantine, "w1", POISON, now=0.0) == 0
    assert quarantine.verdict(POISON, 0.1) is Verdict.TRY
    assert kill(quarantine, "w2", POISON, now=0.2) == 1
    assert quarantine.verdict(POISON, 0.3) is Verdict.REFUSE
    assert quarantine.verdict(POISON, 60.0) is Verdict.REFUSE
    assert quarantine.verdict(POISON, 60.3) is Verdict.GO
    assert not quarantine.watching


def test_a_broken_connection_is_no_death() -> None:
    """Row A1: a worker that resets and lives makes nobody a suspect, and a refused connection is not even told."""
    quarantine = Quarantine()
    for number in range(50):
        quarantine.broke(POISON, f"w{number % 4}", 0.01 * number)
    assert not quarantine.watching
    assert quarantine.verdict(POISON, 1.0) is Verdict.GO


def test_what_broke_long_before_a_death_is_not_blamed() -> None:
    """It had another cause."""
    quarantine = Quarantine()
    quarantine.broke(POISON, "w1", 0.0)
    quarantine.died("w1", BLAME_SECONDS + 1.0)
    assert not quarantine.watching


def test_only_one_of_a_suspects_requests_is_out_at_a_time() -> None:
    """Several at once must not cost a worker each."""
    quarantine = Quarantine()
    kill(quarantine, "w1", POISON, now=0.0)
    verdicts = [quarantine.verdict(POISON, 0.1) for _ in range(50)]
    assert verdicts == [Verdict.TRY] + [Verdict.WAIT] * 49
    assert quarantine.verdict(OTHER, 0.1) is Verdict.GO
    assert quarantine.verdict(POISON, 0.1 + TRIAL_SECONDS) is Verdict.TRY


def test_a_suspect_that_is_answered_is_cleared() -> None:
    """It was there when a worker died, and that was all."""
    quarantine = Quarantine()
    kill(quarantine, "w1", POISON, OTHER, now=0.0)
    assert quarantine.verdict(POISON, 0.1) is Verdict.TRY
    quarantine.over(POISON, well=True)
    assert quarantine.verdict(POISON, 0.2) is Verdict.GO
    assert quarantine.verdict(OTHER, 0.2) is Verdict.TRY


def test_a_trial_that_ends_otherwise_lets_the_next_one_try() -> None:
    """Its client left."""
    quarantine = Quarantine()
    kill(quarantine, "w1", POISON, now=0.0)
    quarantine.verdict(POISON, 0.1)
    quarantine.over(POISON, well=False)
    assert quarantine.verdict(POISON, 0.2) is Verdict.TRY


def test_an_answer_does_not_clear_what_two_died_of() -> None:
    """One that was under way before."""
    quarantine = Quarantine()
    kill(quarantine, "w1", POISON, now=0.0)
    kill(quarantine, "w2", POISON, now=0.5)
    quarantine.over(POISON, well=True)
    assert quarantine.verdict(POISON, 1.0) is Verdict.REFUSE


def test_an_outage_clears_everybody() -> None:
    """Row A10: all workers crash and come back; nobody's prompt did it."""
    quarantine = Quarantine()
    for number in range(3):
        kill(quarantine, f"w{number}", POISON, OTHER, now=0.3 * number)
    assert quarantine.verdict(POISON, 2.0) is Verdict.GO
    assert quarantine.verdict(OTHER, 2.0) is Verdict.GO


def test_prompts_are_told_apart_by_tenant_model_and_text_and_never_kept() -> None:
    """A digest under a secret of this process."""
    one, another = Quarantine(), Quarantine()
    prints = {
        one.fingerprint("a", "m", b"x"),
        one.fingerprint("b", "m", b"x"),
        one.fingerprint("a", "n", b"x"),
        one.fingerprint("a", "m", b"y"),
        another.fingerprint("a", "m", b"x"),
    }
    assert len(prints) == 5
    assert one.fingerprint("a", "m", b"x") in prints
    assert all(len(each) == 16 for each in prints)


def test_memory_is_bounded() -> None:
    """In prompts and in workers."""
    quarantine = Quarantine()
    for number in range(3 * MOST_KNOWN):
        quarantine.broke(b"%d" % number, "w1", 0.0)
        quarantine.broke(b"x", f"v{number}", 0.0)
    quarantine.broke(b"last", "w1", 0.0)
    quarantine.died("w1", 0.1)
    assert len(quarantine._suspects) <= MOST_KNOWN
    assert len(quarantine._broken) <= MOST_KNOWN
    assert quarantine.verdict(b"last", 0.2) is Verdict.TRY


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["send", "answer", "leave", "wait"]), max_size=120))
def test_one_poison_prompt_costs_at_most_two_workers_a_minute(order) -> None:
    """Whoever sends it, in whatever order: its requests die at once, others are answered."""
    quarantine, now, deaths, workers = Quarantine(60.0), 0.0, [], 0
    for what in order:
        now += 0.1 if what != "wait" else 2.5
        if what != "send":
            continue
        if quarantine.verdict(POISON, now) in (Verdict.GO, Verdict.TRY):
            workers += 1
            deaths.append(now)
            kill(quarantine, f"w{workers}", POISON, now=now)
        assert sum(now - at < 60.0 for at in deaths) <= 2
