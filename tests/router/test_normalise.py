"""The fold rules as a library: what they return, where they act, and what they leave alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from router.core import Fold
from router.normalise import DEFAULT, NONE, RULES, fold_messages, fold_prompt, fold_rules, tools_digest_text
from router.normalise.edits import MAX_SPANS_PER_RULE
from tests.router.normalise_builders import BODY, build_call, build_tool, fold_system, folded_text

UUID = "4d25deb3-54f4-4a69-90ac-ff0043892dfc"


def test_every_rule_says_where_it_acts_and_what_it_never_touches() -> None:
    """The table is documentation that the configuration and `explain` show."""
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.acts_on and rule.never_touches and rule.sentence.endswith(".") for rule in RULES)


def test_a_setting_is_default_none_or_names() -> None:
    """Names may come one or many."""
    assert fold_rules("default") == DEFAULT
    assert fold_rules("none") == NONE
    assert fold_rules("clock") == {"clock"}
    assert fold_rules(["clock", "tool_order"]) == {"clock", "tool_order"}


@pytest.mark.parametrize(("wrong", "hint"), [("clok", 'did you mean "clock"'), ("zzz", "the rules are line_ends")])
def test_an_unknown_rule_is_refused_with_the_nearest_name(wrong: str, hint: str) -> None:
    """A typing error in a tenant's configuration must not switch folding off."""
    with pytest.raises(ValueError, match=hint):
        fold_rules([wrong])


def test_what_nothing_folds_in_is_the_very_object_that_was_given() -> None:
    """So that both chains are one computation."""
    messages = [{"role": "system", "content": BODY}, {"role": "user", "content": "It is now 14:05:09."}]
    tools = [{"function": {"name": "alpha"}, "type": "function"}]
    folded = fold_messages(messages, tools, DEFAULT)
    assert (folded.changed, folded.folds) == (False, ())
    assert folded.messages is messages
    assert folded.tools is tools


def test_no_input_is_ever_modified() -> None:
    """What is forwarded is what came."""
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Now: 2025-11-03 14:05\r\nRule one."}]},
        {"role": "assistant", "content": None, "tool_calls": [build_call("abc", '{"b": 1, "a": 2}')]},
        {"role": "tool", "tool_call_id": "abc", "content": "x"},
    ]
    tools = [build_tool("zeta", required=["b", "a"]), build_tool("alpha")]
    before = copy.deepcopy((messages, tools))
    folded = fold_messages(messages, tools, DEFAULT)
    assert folded.changed
    assert (messages, tools) == before


def test_a_fold_tells_its_place_in_the_original_text() -> None:
    """Also when layout before it was folded, and behind characters outside the basic plane."""
    text = "\ufeff🙂 Rule one.\r\n\r\n\r\n\r\nCurrent time: 14:05:09.\r\nDone."
    folds = {fold.rule: text[fold.start : fold.end] for fold in fold_system(text).folds}
    assert folds["clock"] == "14:05:09"
    assert folds["byte_order_mark"] == "\ufeff"
    assert folds["blank_lines"] == "\r\n\r\n"


def test_a_fold_in_a_parts_array_tells_its_part() -> None:
    """Positions are those of the part's own text."""
    parts = [{"type": "text", "text": BODY}, {"type": "text", "text": "Current time: 14:05:09"}]
    folded = fold_messages([{"role": "system", "content": parts}], None, DEFAULT)
    assert folded.folds == (Fold("clock", 0, 14, 22, 1),)
    assert folded.messages[0]["content"] == f"{BODY}\nCurrent time: {{when}}"


def test_many_folds_of_one_rule_are_told_as_one_span() -> None:
    """A thousand line ends would drown the rest of an explanation."""
    text = "a\r\n" * (MAX_SPANS_PER_RULE + 1) + "b"
    folded = fold_system(text)
    assert folded.folds == (Fold("line_ends", 0, 1, len(text) - 1),)


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_text_that_is_the_task_is_never_folded(role: str) -> None:
    """Clocks, ids, line ends and decomposed letters there are the question or its answer."""
    text = f"Current time: 14:05:09\r\nRequest ID: {UUID}\r\nCafe\u0301  \n\n\n\n/tmp/x-8f3a2b"
    messages = [{"role": role, "content": text}]
    assert fold_messages(messages, None, DEFAULT).messages is messages


def test_developer_text_is_system_text() -> None:
    """OpenAI's newer name for the same role."""
    folded = fold_messages([{"role": "developer", "content": "Today is 2025-11-03."}], None, DEFAULT)
    assert folded.messages[0]["content"] == "Today is {when}."


@pytest.mark.parametrize("rule", sorted(rule.name for rule in RULES))
def test_a_rule_that_is_off_folds_nothing(rule: str) -> None:
    """Each rule can be left out alone."""
    text = "\ufeffRule.  \n\n\n\nCafe\u0301\r\nx-client-attribution: a\nNow: 14:05\n"
    text += f"Request ID: {UUID}\nTokens used: 5\n/tmp/x-8f3a2b"
    messages = [
        {"role": "system", "content": text},
        {"role": "assistant", "content": "", "tool_calls": [build_call("abc", '{ "a": 1}')]},
    ]
    tools = [build_tool("zeta", required=["b", "a"]), build_tool("alpha")]
    folds = fold_messages(messages, tools, DEFAULT - {rule}).folds
    assert rule not in {fold.rule for fold in folds}
    assert {fold.rule for fold in folds} == DEFAULT - {rule, "template_date"}


def test_what_stands_behind_a_clock_stays_in_the_key() -> None:
    """A clock ends where its grammar ends."""
    text = "Today is Monday, November 3, 2025, 2:05 PM UTC (Europe/Berlin), 12 items are open, see 4.5.6 of May."
    assert folded_text(text) == "Today is {when}), 12 items are open, see 4.5.6 of May."


def test_a_list_of_times_is_not_read_as_one_clock() -> None:
    """Each slot is filled once."""
    assert folded_text("Current time: 14:05, 15:05, 16:05") == "Current time: {when}, 15:05, 16:05"


def test_a_message_that_is_only_a_client_header_is_as_if_it_were_not_there() -> None:
    """Some clients send their attribution as a system message of its own."""
    header = {"role": "system", "content": "x-anthropic-billing-header: cc_version=9.9.1.a1b; cch=0f1e2;"}
    body = {"role": "system", "content": BODY}
    assert list(fold_messages([header, body], None, DEFAULT).messages) == [body]


def test_a_total_beside_a_counter_is_kept() -> None:
    """A context of another size is another deployment."""
    assert folded_text("Context used: 18231 / 200000 tokens (9%)") == "Context used: {count} / 200000 tokens ({count}%)"


def test_a_name_is_written_into_the_key_text() -> None:
    """Templates leave it out; two speakers must still differ."""
    messages = [{"role": "user", "name": "ana", "content": "Hi"}]
    folded = fold_messages(messages, None, DEFAULT)
    assert folded.changed
    assert "ana" in folded.messages[0]["content"]
    assert fold_messages(messages, None, NONE).messages == folded.messages


def test_a_name_joins_a_parts_array_as_a_part() -> None:
    """The other parts stay what they were."""
    part = {"type": "text", "text": "Hi"}
    folded = fold_messages([{"role": "user", "name": "ana", "content": [part]}], None, DEFAULT)
    assert folded.messages[0]["content"][0] is part


def test_ids_of_calls_become_numbers_and_results_follow_them() -> None:
    """Nine letters and digits, which is what Mistral's templates demand."""
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": [build_call("x"), build_call("y")]},
        {"role": "tool", "tool_call_id": "y", "content": "2"},
        {"role": "tool", "tool_call_id": "x", "content": "1"},
    ]
    folded = fold_messages(messages, None, DEFAULT).messages
    assert [call["id"] for call in folded[0]["tool_calls"]] == ["call00000", "call00001"]
    assert [message["tool_call_id"] for message in folded[1:]] == ["call00001", "call00000"]


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ('{"b": 1, "a": {"d": 2, "c": 3}}', '{"a":{"c":3,"d":2},"b":1}'),
        ('{"a": 3.0, "b": 1e2, "c": 0.5}', '{"a":3,"b":100,"c":0.5}'),
        ('{"a": "caf\\u00e9"}', '{"a":"café"}'),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ('{"required": ["b", "a"]}', '{"required":["b","a"]}'),
        ("[" * 100_000, "[" * 100_000),
        ("no json", "no json"),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
        (None, None),
    ],
)
def test_arguments_of_calls_read_in_canonical_form(given: Any, canonical: Any) -> None:
    """Values never change, and what is not plainly JSON is left alone."""
    messages = [{"role": "assistant", "content": "", "tool_calls": [build_call("call00000", given)]}]
    told = fold_messages(messages, None, DEFAULT).messages[0]["tool_calls"][0]["function"]["arguments"]
    assert told == canonical
    if isinstance(given, dict):
        assert list(told) == ["a", "b"]


def test_the_old_spelling_of_calls_folds_too() -> None:
    """`function_call` came before `tool_calls`."""
    messages = [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{ "a": 1 }'}}]
    assert fold_messages(messages, None, DEFAULT).messages[0]["function_call"]["arguments"] == '{"a":1}'


def test_odd_shapes_pass_untouched() -> None:
    """Whoever parses the request refuses them; the fold rules must not fail on them."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": None},
        {"role": "system", "content": 7},
        {"role": "assistant", "tool_calls": ["x", {"id": 1, "function": "f"}]},
        {"role": "assistant", "tool_calls": "x"},
        {},
    ]
    assert fold_messages(messages, ["tool", 3], DEFAULT).changed is False
    assert fold_messages(messages, None, DEFAULT).messages is messages


def test_tools_are_told_by_their_sorted_names_and_schemas() -> None:
    """Order, key order, spacing and the order of required names do not matter; all else does."""
    one, other = build_tool("alpha", required=["a", "b"]), build_tool("zeta")
    shuffled = {
        "function": {"parameters": {"required": ["b", "a"], "type": "object"}, "name": "alpha"},
        "type": "function",
    }
    assert tools_digest_text([one, other]) == tools_digest_text([other, shuffled])
    assert tools_digest_text([one]) != tools_digest_text([one, other])
    assert tools_digest_text([build_tool(enum=[1, 2])]) != tools_digest_text([build_tool(enum=[2, 1])])
    assert tools_digest_text([]) == tools_digest_text(None) == ""


def test_folds_of_tools_are_told_by_their_place_in_the_list() -> None:
    """They have no text of their own."""
    tools = [build_tool("zeta"), build_tool("alpha", required=["b", "a"])]
    folds = fold_messages([], tools, DEFAULT).folds
    assert folds == (Fold("tool_order", None, 0, 2), Fold("schema_key_order", None, 0, 2))


def test_a_completion_prompt_folds_before_its_first_user_turn() -> None:
    """Behind the marker the same words are the task."""
    prompt = "<|im_start|>system\nNow: 14:05:09<|im_end|>\n<|im_start|>user\nNow: 14:05:09<|im_end|>\n"
    folded = fold_prompt(prompt, "<|im_start|>user\n", DEFAULT)
    assert folded.prompt == prompt.replace("14:05:09", "{when}", 1)
    assert [prompt[fold.start : fold.end] for fold in folded.folds] == ["14:05:09"]
    assert folded.folds[0].message is None


@pytest.mark.parametrize("marker", [None, "<|im_start|>user\n"])
def test_a_completion_prompt_without_a_user_turn_does_not_fold(marker: str | None) -> None:
    """It may be user text from the first letter on."""
    prompt = "Current time: 14:05:09\r\nTranslate this."
    folded = fold_prompt(prompt, marker, DEFAULT)
    assert folded.prompt is prompt
    assert not folded.changed


def test_the_date_that_a_llama_template_writes_folds_in_any_prompt() -> None:
    """The client did not choose it."""
    prompt = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nHi. Today Date: 26 Jul 2024"
    folded = fold_prompt(prompt, None, DEFAULT)
    assert folded.prompt == prompt.replace("26 Jul 2024", "{when}", 1)
    assert fold_prompt(prompt, None, NONE).prompt is prompt


def test_a_system_text_full_of_numbers_is_looked_at_within_a_bound() -> None:
    """A text with hundreds of clocks is data, and costs no more than a page."""
    text = "\n".join(f"Current time: 14:05:{second % 60:02d}" for second in range(500))
    assert folded_text(text).count("{when}") == 64


def test_a_hash_in_a_place_for_data_is_data():
    """`/tmp/run-…` is scratch because of /tmp; `/data/run-…` names the data."""
    assert folded_text("Work in /tmp/run-8f14e45f/out.") == folded_text("Work in /tmp/run-91bc4e07/out.")
    for path in ("/data/run-{}", "/srv/cache-{}", "/data/jobs-{}"):
        one, other = (f"Read {path.format(value)} first." for value in ("8f14e45f", "91bc4e07"))
        assert folded_text(one) != folded_text(other), path
