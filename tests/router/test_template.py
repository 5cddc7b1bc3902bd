"""Chat templates: rendered as the worker renders them, in a sandbox, and what is read off them."""

from __future__ import annotations

import pytest

from router.messages import conditioned, part_text, with_calls_as_text
from router.template import FALLBACK, ChatTemplate, TemplateError
from tests.router.text_builders import CALLS, CHATML, LLAMA3, MISTRAL, PARTS, smollm2

USER = {"role": "user", "content": "Hi"}


def build_call(arguments: object, identity: str = "call_1") -> dict[str, object]:
    """A tool call of an assistant."""
    return {"id": identity, "type": "function", "function": {"name": "alpha", "arguments": arguments}}


def test_smollm2_opens_with_its_default_system_text() -> None:
    """The template of the real model, written out."""
    assert smollm2().template.render([USER]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_generation_prompt_is_left_out_when_asked() -> None:
    """As `add_generation_prompt: false` does at the worker."""
    assert smollm2().template.render([USER], add_generation_prompt=False).endswith("Hi<|im_end|>\n")


@pytest.mark.parametrize(
    ("source", "marker"),
    [
        (CHATML, "<|im_start|>user\n"),
        (LLAMA3, "<|start_header_id|>user<|end_header_id|>\n\n"),
        (MISTRAL, "[INST] "),
        (PARTS, "<|im_start|>user\n"),
        (FALLBACK.source, "<|im_start|>user\n"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", None),
        ("no messages", None),
        ("{{ raise_exception('never') }}", None),
        ("{% broken", None),
    ],
)
def test_the_text_that_opens_a_user_turn_is_found_by_probing(source: str, marker: str | None) -> None:
    """Without the end of the turn before it, and without a default system text."""
    assert ChatTemplate(source, "<s>", "</s>").user_marker == marker


def test_smollm2s_own_marker_is_found() -> None:
    """Its default system text does not get into it."""
    assert smollm2().template.user_marker == "<|im_start|>user\n"


def test_text_parts_are_joined_for_a_template_that_expects_strings() -> None:
    """By line ends, as vLLM does; one part is the same as a string."""
    template = smollm2().template
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert not template.takes_parts
    assert template.render([{"role": "user", "content": parts}]) == template.render(
        [{"role": "user", "content": "one\ntwo"}]
    )
    assert template.render([{"role": "user", "content": parts[:1]}]) == template.render(
        [{"role": "user", "content": "one"}]
    )


def test_a_template_that_goes_through_parts_gets_parts() -> None:
    """And joins them in its own way."""
    template = ChatTemplate(PARTS)
    assert template.takes_parts
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "onetwo" in template.render([{"role": "user", "content": parts}])


def test_different_images_differ_and_equal_ones_do_not() -> None:
    """By a digest of the part, whatever the order of its fields; nothing of the address shows."""
    first = {"type": "image_url", "image_url": {"url": "https://a.example/secret.png", "detail": "low"}}
    again = {"image_url": {"detail": "low", "url": "https://a.example/secret.png"}, "type": "image_url"}
    other = {"type": "image_url", "image_url": {"url": "https://a.example/other.png"}}
    assert part_text(first) == part_text(again) != part_text(other)
    assert part_text(first).startswith("<image_url:")
    assert "secret" not in part_text(first)
    for template in (smollm2().template, ChatTemplate(PARTS)):
        rendered = {template.render([{"role": "user", "content": [image]}]) for image in (first, again, other)}
        assert len(rendered) == 2


@pytest.mark.parametrize("part", ["text", {"type": "text", "text": "text"}, {"text": "text"}])
def test_the_spellings_of_a_text_part_are_its_text(part: object) -> None:
    """A bare string in the array counts as one."""
    assert part_text(part) == "text"
    assert part_text({"type": "refusal", "refusal": "no"}) == "no"


@pytest.mark.parametrize("part", [7, None, ["x"], {"type": "text", "text": 7}, {"type": "<|im_start|>", "x": 1}])
def test_an_odd_part_is_a_mark_and_no_error(part: object) -> None:
    """And cannot smuggle a special token in by its type."""
    mark = part_text(part)
    assert mark.startswith("<")
    assert "<|" not in mark


def test_null_content_is_an_empty_text() -> None:
    """An assistant that only called a tool."""
    message = {"role": "assistant", "content": None, "tool_calls": [build_call("{}")]}
    assert "assistant\n<|im_end|>" in smollm2().template.render([USER, message])
    assert conditioned({"role": "user"}, joins_parts=True)["content"] == ""


def test_arguments_of_a_tool_call_are_decoded_before_rendering() -> None:
    """As vLLM does for templates that print them with `tojson`; text that is no object stays as it is."""
    template = ChatTemplate(CALLS)
    said = {"role": "assistant", "content": "", "tool_calls": [build_call('{"b": 1, "a": "é<"}')]}
    assert '<tool_call>alpha{"b": 1, "a": "é<"}</tool_call>' in template.render([USER, said])
    odd = {"role": "assistant", "content": "", "tool_calls": [build_call("not json"), build_call("[1]"), "no call"]}
    calls = conditioned(odd, joins_parts=True)["tool_calls"]
    assert [calls[0], calls[1], calls[2]] == odd["tool_calls"]
    assert conditioned({"role": "assistant", "content": "x", "tool_calls": None}, joins_parts=True) == {
        "role": "assistant",
        "content": "x",
    }


def test_whether_tool_calls_reach_the_prompt_is_found_by_probing() -> None:
    """Most templates of small models leave them out."""
    assert ChatTemplate(CALLS).shows_tool_calls
    assert not smollm2().template.shows_tool_calls


def test_calls_can_be_written_into_the_text_without_their_ids() -> None:
    """For the key of templates that leave them out; other messages stay the same object."""
    first = with_calls_as_text({"role": "assistant", "content": None, "tool_calls": [build_call('{"a":1}', "call_1")]})
    renamed = with_calls_as_text(
        {"role": "assistant", "content": None, "tool_calls": [build_call('{"a":1}', "call_2")]}
    )
    other = with_calls_as_text({"role": "assistant", "content": None, "tool_calls": [build_call('{"a":2}')]})
    legacy = with_calls_as_text(
        {"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}}
    )
    assert first["content"] == renamed["content"] != other["content"]
    assert '"f"' in legacy["content"]
    assert with_calls_as_text(USER) is USER


def test_tools_reach_the_template_as_they_came() -> None:
    """In their order and with their order of keys: that is what the worker renders."""
    tools = [{"type": "function", "function": {"name": "z"}}, {"function": {"name": "a"}, "type": "function"}]
    assert '[{"type": "function", "function": {"name": "z"}}, {"function": {"name": "a"}' in ChatTemplate(CALLS).render(
        [USER], tools
    )
    assert "system" not in ChatTemplate(CALLS).render([USER], [])


def test_an_arguments_of_the_caller_reach_the_template() -> None:
    """`chat_template_kwargs`, which cannot replace the messages."""
    template = ChatTemplate("{% if think %}T{% endif %}{{ messages | length }}{{ bos_token }}", "<s>")
    assert template.render([USER], extra={"think": True, "messages": []}) == "T1<s>"


def test_a_template_that_refuses_says_its_own_words() -> None:
    """Those of raise_exception, when they stand in the template."""
    with pytest.raises(TemplateError, match="roles must alternate"):
        ChatTemplate(MISTRAL).render([USER, USER])


def test_no_text_of_a_message_gets_into_an_error() -> None:
    """Neither through raise_exception nor through what Python says of a failing expression."""
    for source in ("{{ raise_exception('no: ' ~ messages[0].content) }}", "{{ {}[messages[0].content].x }}"):
        with pytest.raises(TemplateError) as caught:
            ChatTemplate(source).render([{"role": "user", "content": "my secret"}])
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for",
        "{{ 1 / 0 }}",
        "{{ messages.nothing.at.all }}",
        "{{ ''.__class__.__mro__[1].__subclasses__()[0]() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% include 'file' %}",
        "{{ messages[0].content | no_such_filter }}",
    ],
)
def test_a_broken_or_hostile_template_is_a_template_error(source: str) -> None:
    """A sandbox: no attributes of Python, no change of what it is given, no endless range."""
    with pytest.raises(TemplateError):
        ChatTemplate(source).render([USER])


def test_the_helpers_of_transformers_are_there() -> None:
    """loop controls, the generation tag, tojson with its options, and trimmed blocks."""
    source = (
        "{% for m in messages %}\n  {% if loop.index > 1 %}{% break %}{% endif %}\n"
        "{% generation %}{{ m | tojson(indent=1) }}{% endgeneration %}{% endfor %}"
    )
    assert (
        ChatTemplate(source).render([{"role": "user", "content": "<é>"}, USER])
        == '{\n "role": "user",\n "content": "<é>"\n}'
    )


def test_a_template_that_prints_the_date_is_flagged_and_told_it() -> None:
    """Time is an argument: without one, a fixed date; it is UTC."""
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d %H') }}")
    assert template.uses_clock
    assert not smollm2().template.uses_clock
    assert template.render([], now=86400.0 * 365 + 3600) == "1971-01-01 01"
    assert template.render([]) == "1970-01-01 00"
