"""The fold memo: the same foldings as without it, for less, and never across tenants."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fold_memo import SHORTEST_CHARACTERS, FoldMemo
from router.normalise import fold_messages, fold_rules

DEFAULT, NONE = fold_rules("default"), fold_rules("none")
CASES = Path(__file__).parents[1] / "data" / "cases" / "prefix-breakers.jsonl"
LONG = " ".join(f"Rule {number}: keep answers short and name the source." for number in range(40))
CLOCK = f"It is now Monday, 03 November 2025 14:05:09 UTC.\r\n{LONG}"


def system(text: Any, **more: Any) -> dict[str, Any]:
    """A system message."""
    return {"role": "system", "content": text, **more}


def called(identity: str) -> list[dict[str, Any]]:
    """A tool call and its result."""
    call = {"id": identity, "type": "function", "function": {"name": "f", "arguments": '{"b":1,"a":2}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "content": "done"},
    ]


def texts() -> list[str]:
    """The system texts of the public cases, made long enough to be remembered, and some of our own."""
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    cases = [f"{row['text_a']}\n{LONG}" for row in rows if row["role"] == "system"]
    return [*cases, LONG, CLOCK, "short", "", f"x-anthropic-billing-header: cc_version=9.9.1; cch=0f1e2;{' ' * 300}"]


MESSAGES = st.lists(
    st.one_of(
        st.sampled_from(texts()).map(system),
        st.sampled_from(texts()).map(lambda text: {"role": "developer", "content": text}),
        st.sampled_from([system([{"type": "text", "text": CLOCK}]), system(CLOCK, name="n"), system(None)]),
        st.sampled_from([{"role": "user", "content": CLOCK}, {"role": "user", "content": "Hi", "name": "ana"}]),
        st.sampled_from([*called("call_1"), *called("call_2")]),
    ),
    max_size=6,
)


@given(MESSAGES, st.sampled_from([DEFAULT, NONE]))
def test_the_memo_gives_what_folding_gives(messages: list[dict[str, Any]], rules: Any) -> None:
    """At the first time and at the second, whatever stands behind the opening."""
    memo, expected = FoldMemo(), fold_messages(messages, None, rules)
    for _ in range(2):
        folded = memo.messages(b"s", messages, rules)
        assert list(folded.messages) == list(expected.messages)
        assert (folded.folds, folded.changed) == (expected.folds, expected.changed)
        assert (folded.messages is messages) == (not folded.changed)


def test_tools_have_a_digest_of_what_rules_leave_different() -> None:
    """Their order and the order of schema keys are folded, and told once more from memory."""
    zeta, alpha = ({"function": {"name": name, "parameters": {}}, "type": "function"} for name in ("z", "a"))
    memo = FoldMemo()
    for _ in range(2):
        one, other, fewer = (memo.tools(b"s", tools, DEFAULT) for tools in ([zeta, alpha], [alpha, zeta], [alpha]))
        assert one.digest == other.digest != fewer.digest
        assert [fold.rule for fold in one.folds] == ["tool_order"]
        assert other.folds == ()
    assert len(memo) == 3
    assert memo.tools(b"s", None, DEFAULT) == memo.tools(b"s", [], DEFAULT) == ((), b"")


def test_a_text_is_folded_once_for_each_tenant_and_set_of_rules() -> None:
    """What another tenant asked does not show in the time it takes."""
    memo = FoldMemo()
    for seed, rules in ((b"a", DEFAULT), (b"a", DEFAULT), (b"b", DEFAULT), (b"a", NONE)):
        memo.messages(seed, [system(CLOCK), {"role": "user", "content": "Hi"}], rules)
    assert len(memo) == 3
    assert memo.held_characters == 3 * len(CLOCK)


def test_a_remembered_text_costs_little() -> None:
    """CPU time, best of several: far less than reading it again."""
    dense = " ".join(
        f"at {hour}:{minute:02d} on 2025-11-{day:02d}"
        for hour in range(24)
        for minute in (1, 5)
        for day in range(1, 20)
    )
    messages, memo = [system(dense)], FoldMemo()
    memo.messages(b"s", messages, DEFAULT)
    again = min(_seconds(lambda: memo.messages(b"s", messages, DEFAULT)) for _ in range(5))
    anew = min(_seconds(lambda: fold_messages(messages, None, DEFAULT)) for _ in range(5))
    assert again < anew / 5


@pytest.mark.parametrize("text", ["x" * (SHORTEST_CHARACTERS - 1), [{"type": "text", "text": CLOCK}], None])
def test_short_texts_and_parts_are_not_remembered(text: Any) -> None:
    """They cost less than the look-up, or are too rare."""
    memo = FoldMemo()
    memo.messages(b"s", [system(text)], DEFAULT)
    assert len(memo) == 0


def test_the_oldest_texts_are_forgotten() -> None:
    """Within the bound, and never to a negative size."""
    memo = FoldMemo(bound_characters=3 * len(LONG) + 30)
    for number in range(10):
        memo.messages(b"s", [system(f"{number} {LONG}")], DEFAULT)
        assert memo.held_characters <= memo.bound_characters
    assert len(memo) == 3
    tiny = FoldMemo(bound_characters=10)
    tiny.messages(b"s", [system(LONG)], DEFAULT)
    assert (len(tiny), tiny.held_characters) == (0, 0)


def _seconds(work: Any) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
