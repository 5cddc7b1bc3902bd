"""Whole prompts that come again: what tells two of them apart, what keeps them, and that they are what they were."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core import Prompt, PromptSource
from router.normalise import fold_rules
from router.prompt import PromptBuilder
from router.seen_prompts import Seen, SeenPrompts, source_digest
from tests.router.text_builders import LLAMA3, build_chat, build_text, smollm2

RULES = fold_rules("default")
SYSTEM, USER = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}


def build_builder(**options: Any) -> PromptBuilder:
    """A builder with SmolLM2's tokeniser and small blocks."""
    return PromptBuilder(smollm2(), 16, **options)


def build_seen(blocks: int) -> Seen:
    """A kept prompt of so many blocks, its chains equal."""
    chain = [number.to_bytes(16, "little") for number in range(blocks)]
    return Seen(Prompt(blocks * 16, 16, chain, chain), (b"end",))


def chat(*messages: dict[str, Any], **fields: Any) -> PromptSource:
    """A chat request of these messages."""
    return PromptSource(messages=messages, **fields)


UNLIKE = (
    chat(USER),
    chat(SYSTEM, USER),
    chat(USER, SYSTEM),
    chat({"content": "Hi", "role": "user"}),
    chat({"role": "user", "content": "Hi", "name": "ann"}),
    chat({"role": "user", "content": None}),
    chat({"role": "user", "content": ""}),
    chat({"role": "user", "content": [{"type": "text", "text": "Hi"}]}),
    chat({"role": "user"}),
    chat({"role": "use", "content": "rHi"}),
    chat({"role": "user2 ", "content": "Hi"}),
    chat({"role": "", "content": "userHi"}),
    chat(USER, add_generation_prompt=False),
    chat(USER, tools=[{"type": "function"}]),
    chat(USER, template_arguments={"documents": []}),
    chat(USER, template_arguments={"enable_thinking": True}),
    chat(USER, template_arguments={"enable_thinking": 1}),
    PromptSource(prompt="Hi"),
    PromptSource(prompt="chat+4 user2 Hi"),
    PromptSource(prompt=""),
    chat(),
)


def test_whatever_differs_in_a_request_differs_in_its_digest() -> None:
    """Roles, texts, the order of both, the spelling of a message, tools and arguments."""
    digests = [source_digest(source) for source in UNLIKE]
    assert None not in digests
    assert len(set(digests)) == len(UNLIKE)


def test_equal_requests_have_one_digest_whoever_holds_their_strings() -> None:
    """Interning and shared objects do not show."""
    shared = "x" * 40
    again = [{"role": "user", "content": None, "a": "".join(["x"] * 40), "b": "".join(["x"] * 40)}]
    assert source_digest(chat({"role": "user", "content": None, "a": shared, "b": shared})) == source_digest(
        chat(*again)
    )


def test_token_ids_and_values_that_are_no_json_have_none() -> None:
    """They are made anew each time."""
    assert source_digest(PromptSource(prompt=[1, 2, 3])) is None
    assert source_digest(chat({"role": "user", "content": object()})) is None


TEXT = st.text(alphabet=st.sampled_from(["a", "1", " ", "*", "é", "\ud800", "2"]), max_size=6)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4), st.lists(st.tuples(TEXT, TEXT), max_size=4))
@settings(max_examples=300, deadline=None)
def test_no_text_imitates_the_border_between_two_messages(one: Any, other: Any) -> None:
    """Digests are equal only for equal messages, whatever their texts are made of."""
    first, second = (chat(*[{"role": role, "content": text} for role, text in each]) for each in (one, other))
    assert (source_digest(first) == source_digest(second)) == (one == other)


def test_the_bound_holds_and_the_least_recently_used_goes_first() -> None:
    """Sizes are told by the blocks; finding one makes it new."""
    one = build_seen(100)
    memo = SeenPrompts(3 * one.size_bytes)
    for key in "abc":
        memo.keep(key, one)
    assert memo.find("a") is one
    memo.keep("d", one)
    assert [memo.find(key) is not None for key in "abcd"] == [True, False, True, True]
    memo.keep("d", one)
    assert memo.held_bytes == 3 * one.size_bytes == memo.bound_bytes
    memo.keep("large", build_seen(1000))
    assert (len(memo), memo.held_bytes) == (0, 0)


def test_chains_that_differ_weigh_more() -> None:
    """A folded prompt has blocks of its own."""
    alike = build_seen(50)
    assert Seen(alike.prompt, (b"end", b"other")).size_bytes > alike.size_bytes


def test_a_prompt_that_comes_again_is_the_very_same() -> None:
    """Nothing is folded, rendered, or looked at again, until something differs: salt, model, adapter, rules."""
    builder = build_builder()
    source, again = build_chat("You help.", "Hi"), build_chat("You help.", "Hi")
    first = builder.build(source, salt="s", model="m", rules=RULES)
    assert builder.build(again, salt="s", model="m", rules=RULES) is first
    for other in ({"salt": "t"}, {"model": "n"}, {"adapter": "a"}, {"rules": fold_rules("none")}):
        arguments: dict[str, Any] = {"salt": "s", "model": "m", "rules": RULES, **other}
        assert builder.known(builder.ask(source, **arguments)) is None
        assert builder.build(source, **arguments) == build_builder().build(source, **arguments)


def test_a_conversation_whose_last_turn_is_repeated_stays_remembered() -> None:
    """A hit counts as a use of what the next turn will begin with."""
    builder = build_builder(memo_bytes=40_000)
    kept = build_chat("Kept.", "Hello.")
    builder.build(kept, salt=None, model="m", rules=RULES)
    for number in range(200):
        builder.build(build_chat("Other.", f"Question {number}?"), salt=None, model="m", rules=RULES)
        builder.build(kept, salt=None, model="m", rules=RULES)
    asked = builder.ask(build_chat("Kept.", "Hello.", "Yes?", "More."), None, "m", RULES)
    draft = builder.start(asked)
    assert not isinstance(draft, Prompt)
    assert draft.unseen_characters < len("<|im_start|>user\nMore.<|im_end|>\n<|im_start|>assistant\n") + 60


def test_a_template_that_prints_the_time_is_told_whole_minutes() -> None:
    """Within one minute a prompt is the same; in the next it is made anew."""
    text = build_text(LLAMA3.replace("{{ bos_token }}", "{{ strftime_now('%H:%M:%S') }}"))
    builder = PromptBuilder(text, 16)
    at = [builder.build(build_chat("Hi"), salt=None, model="m", rules=RULES, now=now) for now in (61.0, 119.0, 120.0)]
    assert at[0] is at[1]
    assert at[0] is not at[2]
    assert at[0].exact_blocks != at[2].exact_blocks


@pytest.mark.parametrize("prompt", ["Once upon a time", "<|im_start|>user\nHi"])
def test_completion_prompts_are_remembered_too(prompt: str) -> None:
    """Text, not token ids."""
    builder = build_builder()
    first, again = (builder.build(PromptSource(prompt=prompt), salt=None, model="m", rules=RULES) for _ in range(2))
    assert first is again
    ids = [builder.build(PromptSource(prompt=[1, 2]), salt=None, model="m", rules=RULES) for _ in range(2)]
    assert ids[0] == ids[1]
    assert ids[0] is not ids[1]


def test_threads_may_ask_for_the_same_at_once() -> None:
    """With a lock, the sizes add up afterwards."""
    memo, one = SeenPrompts(10 * build_seen(4).size_bytes, threading.Lock()), build_seen(4)

    def work(start: int) -> None:
        for number in range(start, start + 500):
            memo.keep(number % 37, one)
            memo.find(number % 31)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 11, 23)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memo.held_bytes == len(memo) * one.size_bytes <= memo.bound_bytes
