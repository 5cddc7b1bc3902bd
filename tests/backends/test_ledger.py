"""The engine's counters and times, and what its observer hears."""

from __future__ import annotations

import pytest

from backends.accounts import NoObserver, Observer
from backends.ledger import Ledger
from tests.backends.core_builders import Notes, build_sequence


def build_ledger() -> tuple[Ledger, Notes]:
    notes = Notes()
    return Ledger(notes), notes


def test_the_first_token_counts_the_prompt_and_later_ones_only_themselves():
    """A prompt counts as done when its first token comes, with the part of it that was not computed."""
    ledger, notes = build_ledger()
    sequence = build_sequence([1] * 9, arrival_seconds=1.0)
    sequence.cached_tokens = 8
    for now in (3.0, 3.5, 4.5):
        ledger.token(sequence, now)
    assert (ledger.prompt_tokens, ledger.cached_prompt_tokens, ledger.generation_tokens) == (9, 8, 3)
    assert notes.first == [("a", 2.0)]
    assert notes.next == [("a", 0.5), ("a", 1.0)]


def test_preemptions_add_up_over_steps():
    """And each step is told on, with its size."""
    ledger, notes = build_ledger()
    ledger.stepped(64, 0)
    ledger.stepped(8, 2)
    ledger.stepped(8, 1)
    assert ledger.preemptions == 3
    assert notes.steps == [(64, 0), (8, 2), (8, 1)]


@pytest.mark.parametrize(
    ("first_scheduled", "first_token", "last_token", "phases"),
    [
        (None, None, None, (9.0, 0.0, 0.0)),
        (4.0, None, None, (3.0, 6.0, 0.0)),
        (4.0, 6.0, 9.0, (3.0, 2.0, 3.0)),
    ],
)
def test_phases_never_reached_take_no_time(first_scheduled, first_token, last_token, phases):
    """Aborted in the queue, in its prefill, while decoding; arrived at 1 s, ended at 10 s."""
    ledger, notes = build_ledger()
    sequence = build_sequence([1], arrival_seconds=1.0)
    sequence.times.first_scheduled = first_scheduled
    sequence.times.first_token = first_token
    sequence.times.last_token = last_token
    ledger.finished(sequence, "abort", 10.0)
    (end,) = notes.ends
    assert (end.queue_seconds, end.prefill_seconds, end.decode_seconds) == phases
    assert end.e2e_seconds == 9.0
    assert end.finish_reason == "abort"


def test_nobody_has_to_listen():
    """The observer that observes nothing can hear everything."""
    silent: Observer = NoObserver()
    ledger, sequence = Ledger(silent), build_sequence([1])
    ledger.stepped(1, 0)
    ledger.token(sequence, 1.0)
    ledger.token(sequence, 2.0)
    ledger.finished(sequence, "stop", 2.0)
    assert ledger.generation_tokens == 2
