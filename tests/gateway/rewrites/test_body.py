"""Whole bodies: what a rule is about changes, every other value keeps its bytes and its place."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.rewrites.body import rewrite_body
from gateway.rewrites.rules import parse_rewrites

SYSTEM_RULES = ["line_ends", "client_attribution", "clock_last", "tool_order"]
CODE_RULES = ["code_comments:python", "code_blank_lines:python"]
EVERY = parse_rewrites([*SYSTEM_RULES, *CODE_RULES])
RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
DATED = "You help.\r\nCurrent date: 2026-11-30\r\nBe brief."


def rewritten(body: bytes | dict, *rules: str) -> tuple[dict, set[str]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = rewrite_body(data, parse_rewrites(rules) if rules else EVERY)
    return json.loads(found.body), {applied.rule for applied in found.applied}


def test_where_nothing_applies_the_very_bytes_are_forwarded():
    """No copy, no re-encoding."""
    body = b'{ "model":"m" ,"messages":[{"role":"user","content":"x-acme-billing: 1\\r\\n# no"}], "seed": 1e3}'
    assert rewrite_body(body, EVERY).body is body
    assert rewrite_body(body, EVERY).applied == ()


def test_system_text_is_rewritten_and_no_other_text():
    """A user's line ends and clocks are the user's own."""
    user = {"role": "user", "content": DATED}
    messages = [{"role": "system", "content": DATED, "name": "a"}, user, {"role": "assistant", "content": DATED}]
    after, rules = rewritten({"messages": messages})
    assert after["messages"][0] == {
        "role": "system", "content": "You help.\nBe brief.\nCurrent date: 2026-11-30", "name": "a"
    }  # fmt: skip
    assert after["messages"][1:] == messages[1:]
    assert rules == {"line_ends", "clock_last"}


def test_every_other_byte_of_a_rewritten_body_is_the_callers():
    """Spelling of numbers and escapes, unknown fields, the order of fields."""
    user = b'{"content":"caf\\u00e9","role":"user", "n":1.0}'
    body = (
        b'{"seed":18446744073709551615,"messages":[{"role":"developer","content":"a\\r\\nb"},'
        + user
        + b'],"x":{"y":1e2}}'
    )
    after = RAW.decode(rewrite_body(body, EVERY).body)
    assert list(after) == ["seed", "messages", "x"]
    assert (bytes(after["seed"]), bytes(after["x"])) == (b"18446744073709551615", b'{"y":1e2}')
    assert bytes(after["messages"]).endswith(user + b"]")


def test_parts_are_rewritten_one_by_one_and_a_message_of_nothing_but_a_clients_line_goes():
    """As agents send it: the billing line is a part or a message of its own."""
    billing = {"type": "text", "text": "x-anthropic-billing-header: cch=0f3a1;"}
    agent = {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "system", "content": [billing, agent]}, {"role": "system", "content": billing["text"]},
                {"role": "user", "content": "hi"}]  # fmt: skip
    after, rules = rewritten({"messages": messages})
    assert after["messages"] == [{"role": "system", "content": [agent]}, messages[2]]
    assert rules == {"client_attribution"}


def test_system_text_of_the_other_dialects_is_rewritten_too():
    """`system` of Messages, `instructions` and developer items of Responses."""
    after, _ = rewritten({"system": [{"type": "text", "text": DATED}], "messages": [{"role": "user", "content": "a"}]})
    assert after["system"][0]["text"] == "You help.\nBe brief.\nCurrent date: 2026-11-30"
    after, _ = rewritten({"instructions": DATED, "input": [{"role": "developer", "content": "a\r\nb"}]})
    assert after == {
        "instructions": "You help.\nBe brief.\nCurrent date: 2026-11-30",
        "input": [{"role": "developer", "content": "a\nb"}],
    }


def test_tools_are_sorted_by_name_and_keep_their_bytes():
    """A caller that lists its tools in another order each time has one prefix again."""
    b, a = b'{"type":"function","function":{"name":"b","x":1.0}}', b'{"type":"function", "function":{"name":"a"}}'
    found = rewrite_body(b'{"tools":[' + b + b"," + a + b"]}", EVERY)
    assert found.body == b'{"tools":[' + a + b"," + b + b"]}"
    assert [applied.rule for applied in found.applied] == ["tool_order"]


def test_tools_with_a_breakpoint_keep_their_order():
    """What stands before a `cache_control` is what the caller wants cached."""
    body = b'{"tools":[{"name":"b","cache_control":{"type":"ephemeral"}},{"name":"a"}]}'
    assert rewrite_body(body, EVERY).body is body


def test_code_is_cleaned_in_completion_prompts_only():
    """A text or a batch of texts; token ids are nobody's to clean."""
    code, cleaned = "# a\nx = 1\n\ny = 2\nz", "x = 1\ny = 2\nz"
    assert rewritten({"prompt": code, "suffix": "# b\n"})[0] == {"prompt": cleaned, "suffix": "# b\n"}
    assert rewritten({"prompt": [code, "plain"]})[0] == {"prompt": [cleaned, "plain"]}
    assert rewritten({"prompt": [1, 2]})[0] == {"prompt": [1, 2]}
    messages = [{"role": "system", "content": code}]
    assert rewritten({"messages": messages})[0] == {"messages": messages}


def test_only_what_is_switched_on_is_done():
    """Each rule by itself does its own."""
    body = {"messages": [{"role": "system", "content": DATED}], "tools": [{"name": "b"}, {"name": "a"}]}
    after, rules = rewritten(body, "tool_order")
    assert after["messages"] == body["messages"]
    assert rules == {"tool_order"}


NAMES = st.sampled_from(["role", "content", "text", "type", "name"])
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["messages", "input", "system", "instructions", "tools", "prompt", "x"]), JSONS))
def test_whatever_a_body_holds_it_is_not_broken(body):
    """Odd shapes are for the worker to refuse: they pass as they are, and a second pass changes nothing."""
    once = rewrite_body(json.dumps(body).encode(), EVERY)
    assert json.loads(once.body).keys() == body.keys()
    assert json.loads(once.body).get("x") == body.get("x")
    again = rewrite_body(once.body, EVERY)
    assert json.loads(again.body) == json.loads(once.body)
