"""The bench of one request's path: every step has a figure, nothing hops, and a missed bar is told."""

from __future__ import annotations

from itertools import accumulate
from operator import eq, mul

import pytest

from bench import request_path


def test_a_small_run_measures_every_step_and_nothing_leaves_the_thread() -> None:
    """With the memo warm a request waits for nobody."""
    row = request_path.seen_microseconds(workers=2, kibibytes=1, rounds=2)
    assert set(row) == {*request_path.STEPS, "hops"}
    assert row["hops"] == 0
    assert all(row[step] < 10_000 for step in request_path.STEPS)


def test_unseen_text_is_told_in_its_parts() -> None:
    """What is prepared is tokenised, folded and hashed, and some more."""
    row = request_path.unseen_microseconds(kibibytes=1, rounds=1)
    assert set(row) == {"prepare", "tokenise", "fold", "hash", "rest"}
    assert row["prepare"] > row["tokenise"] > 0


def test_bodies_share_their_heads_and_nothing_else() -> None:
    """As the load generator's do: a head each for eight groups, a text of their own."""
    one, alike, other = (request_path.body_of(1, head, tail) for head, tail in ((1, 1), (1, 9), (2, 2)))
    common = [sum(accumulate(map(eq, one, another), mul)) for another in (alike, other)]
    assert common[0] > 600 > 200 > common[1]


@pytest.mark.parametrize(("cost", "hops", "code"), [(1.0, 0.0, 0), (50.0, 0.0, 1), (1.0, 0.5, 1)])
def test_check_fails_where_a_bar_is_missed(
    cost: float, hops: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --check the exit code says so."""
    row = {**dict.fromkeys(request_path.STEPS, cost), "hops": hops}
    unseen = dict.fromkeys(("prepare", "tokenise", "fold", "hash", "rest"), 1.0)
    monkeypatch.setattr(request_path, "seen_microseconds", lambda *_: dict(row))
    monkeypatch.setattr(request_path, "unseen_microseconds", lambda *_: dict(unseen))
    monkeypatch.setattr(request_path, "gap_milliseconds", lambda *_: 1.0)
    monkeypatch.setattr("sys.argv", ["request_path.py", "--check"])
    assert request_path.main() == code
    assert ("all bars are met" in capsys.readouterr().out) == (code == 0)
