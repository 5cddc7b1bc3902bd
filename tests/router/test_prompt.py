"""The two chains: what they tell apart, what they do not, and that the memo changes nothing but the cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.blocks import seed, tail_block
from router.core import Prompt, PromptSource
from router.encoders import pack
from router.normalise import fold_rules
from router.prefix import MAX_SEGMENTS, cut, opener_of
from router.prompt import Draft, PromptBuilder
from router.template import TemplateError
from router.tokenise import BYTES_PER_TOKEN, LoadedModelText, bytes_text
from tests.router.text_builders import CALLS, LLAMA3, MISTRAL, build_chat, build_text, smollm2

DEFAULT = fold_rules("default")
NONE = fold_rules("none")
FILLER = " ".join(f"Rule {number}: keep answers short and name the source." for number in range(60))
CLOCK_A = f"Current time is 14:05:09. Today's date is 2025-11-03.\nYou help a shop.\n{FILLER}"
CLOCK_B = f"Current time is 14:05:23. Today's date is 2025-11-03.\nYou help a shop.\n{FILLER}"


def build_builder(text: LoadedModelText | None = None, block_tokens: int = 16, **options: Any) -> PromptBuilder:
    """A builder with small blocks; SmolLM2's tokeniser unless told otherwise."""
    return PromptBuilder(text or smollm2(), block_tokens, **options)


def built(source: PromptSource, builder: PromptBuilder | None = None, **changes: Any) -> Prompt:
    """The prompt of `source`, unsalted and with default rules unless told otherwise."""
    arguments: dict[str, Any] = {"salt": None, "model": "m", "rules": DEFAULT, **changes}
    return (builder or build_builder()).build(source, **arguments)


def build_tool(name: str, *properties: str) -> dict[str, Any]:
    """A tool with string parameters."""
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in properties}}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}


def build_called(arguments: str, identity: str = "call_1") -> PromptSource:
    """A conversation in which a tool was called."""
    call = {"id": identity, "type": "function", "function": {"name": "alpha", "arguments": arguments}}
    return PromptSource(
        messages=[
            {"role": "system", "content": FILLER},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": identity, "content": "rain"},
        ]
    )


def shared(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """How many leading blocks are equal."""
    pairs = zip(left, right)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def test_the_exact_chain_hashes_the_tokens_that_are_forwarded() -> None:
    """Written out once more with the public pieces: full blocks only, seeded with salt, model and adapter."""
    source = build_chat(FILLER, "Hello")
    prompt = built(source, salt="s", adapter="a")
    packed = smollm2().tokeniser.encode(smollm2().template.render(source.messages or ()))
    from router.blocks import chain

    blocks, tail = chain(seed(salt="s", model="m", adapter="a"), packed, 16)
    assert prompt.exact_blocks == blocks
    assert prompt.key_blocks == [*blocks, tail_block(blocks[-1], tail)]
    assert prompt.tokens == len(packed) // 4
    assert prompt.block_tokens == 16
    assert prompt.text_bytes is None


@pytest.mark.parametrize("field", ["salt", "model", "adapter"])
def test_nothing_is_shared_across_salts_models_and_adapters(field: str) -> None:
    """The seed goes into the first block, and so into every one, of both chains."""
    source = build_chat(CLOCK_A, "Hello", tools=[build_tool("alpha")])
    one, other = (built(source, **{field: value}) for value in ("1", "2"))
    assert not set(one.exact_blocks) & set(other.exact_blocks)
    assert not set(one.key_blocks) & set(other.key_blocks)


def test_a_folded_clock_changes_the_exact_chain_and_not_the_key() -> None:
    """The two chains are never mixed: affinity is one thing, cached tokens are another."""
    builder = build_builder()
    one, other = built(build_chat(CLOCK_A, "Hi"), builder), built(build_chat(CLOCK_B, "Hi"), builder)
    assert one.key_blocks == other.key_blocks
    assert shared(one.exact_blocks, other.exact_blocks) < 2
    assert one.folds
    assert all(CLOCK_A[fold.start : fold.end].strip() for fold in one.folds)
    unfolded = [built(build_chat(text, "Hi"), builder, rules=NONE) for text in (CLOCK_A, CLOCK_B)]
    assert unfolded[0].key_blocks != unfolded[1].key_blocks
    assert unfolded[0].folds == ()


def test_where_nothing_folds_the_chains_are_one_computation() -> None:
    """The key chain is then the exact one and the last partial block."""
    prompt = built(build_chat(FILLER, "Hello"))
    assert prompt.key_blocks[:-1] == prompt.exact_blocks
    builder = build_builder()
    draft = builder.start(builder.ask(build_chat(FILLER, "Hello"), None, "m", DEFAULT))
    assert isinstance(draft, Draft)
    assert draft.key is None


def test_a_short_prompt_has_no_full_block_and_yet_a_key() -> None:
    """The last partial block is hashed into the key chain, tagged."""
    builder = build_builder(block_tokens=512)
    prompt = built(build_chat("Hi", "You"), builder)
    assert prompt.exact_blocks == []
    assert len(prompt.key_blocks) == 1
    assert prompt.key_blocks != built(build_chat("Hi", "Me"), builder).key_blocks
    empty = built(PromptSource(prompt=""), builder)
    assert (empty.tokens, empty.exact_blocks, len(empty.key_blocks)) == (0, [], 1)
    ids = built(PromptSource(prompt=[]), builder)
    assert ids.key_blocks == empty.key_blocks


def test_a_turn_more_keeps_the_blocks_of_the_turns_before() -> None:
    """Both chains are prefixes of the next turn's, but for the block where the answer begins."""
    builder = build_builder()
    first = built(build_chat(FILLER, "Hello"), builder)
    second = built(build_chat(FILLER, "Hello", "Hi! What is it?", "The weather."), builder)
    assert shared(first.exact_blocks, second.exact_blocks) >= len(first.exact_blocks) - 1
    assert shared(first.key_blocks, second.key_blocks) >= len(first.exact_blocks) - 1


def test_the_parts_spelling_of_a_text_has_the_same_key() -> None:
    """One text part is what a string is, for placement and for the worker's template."""
    plain = built(build_chat(FILLER, "Hello"))
    parts = built(build_chat([{"type": "text", "text": FILLER}], [{"type": "text", "text": "Hello"}]))
    assert parts.key_blocks == plain.key_blocks
    assert parts.exact_blocks == plain.exact_blocks


def test_different_images_differ_in_both_chains() -> None:
    """Their placeholder tokens at the worker are equal; their caches are not."""
    images = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{c * 400}"}} for c in "AB"]
    one, other, again = (
        built(build_chat(FILLER, [{"type": "text", "text": "See"}, image, {"type": "text", "text": FILLER}]))
        for image in (*images, images[0])
    )
    assert one.exact_blocks != other.exact_blocks
    assert one.key_blocks != other.key_blocks
    assert one.key_blocks == again.key_blocks


def test_tools_stand_at_the_start_of_the_key_in_any_order() -> None:
    """Also where the template leaves them out; order and the order of schema keys make no difference."""
    zeta, alpha = build_tool("zeta", "a", "b"), build_tool("alpha", "a", "b")
    turned = {"function": {**zeta["function"], "parameters": build_tool("zeta", "b", "a")["function"]["parameters"]}}
    tools = [[zeta, alpha], [alpha, {"type": "function", **turned}], [alpha], None, []]
    keys = [built(build_chat(FILLER, "Hi", tools=each)).key_blocks for each in tools]
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[2][0] != keys[3][0]
    assert keys[3] == keys[4]


def test_tools_reach_the_exact_chain_as_the_template_prints_them() -> None:
    """In the order in which they will be forwarded."""
    builder = build_builder(build_text(CALLS), 4)
    zeta, alpha = build_tool("zeta"), build_tool("alpha")
    one, other = (built(build_chat("x", "y", tools=tools), builder) for tools in ([zeta, alpha], [alpha, zeta]))
    assert one.key_blocks == other.key_blocks
    assert one.exact_blocks != other.exact_blocks


@pytest.mark.parametrize("source", ["smollm2", CALLS])
def test_arguments_of_tool_calls_are_in_the_key_and_their_ids_are_not(source: str) -> None:
    """Whether the template prints them or not."""
    builder = build_builder(smollm2() if source == "smollm2" else build_text(source), 8)
    rain, again, sun = (
        built(build_called(arguments, identity), builder)
        for arguments, identity in (('{"city":"A"}', "call_1"), ('{"city":"A"}', "call_2"), ('{"city":"B"}', "call_1"))
    )
    assert rain.key_blocks == again.key_blocks
    assert rain.key_blocks != sun.key_blocks
    assert (rain.exact_blocks == sun.exact_blocks) == (source == "smollm2")


def test_calls_do_not_change_the_key_of_the_turns_before_them() -> None:
    """The conversation keeps its home when its first tool is called."""
    builder = build_builder()
    called = build_called('{"city":"A"}')
    before = PromptSource(messages=list(called.messages or ())[:2])
    assert shared(built(before, builder).key_blocks, built(called, builder).key_blocks) >= 20


def test_token_ids_are_hashed_as_they_are() -> None:
    """And are not the text that lists them."""
    builder = build_builder()
    ids = list(range(40))
    prompt = built(PromptSource(prompt=ids), builder)
    from router.blocks import chain

    blocks, _ = chain(seed(salt=None, model="m"), pack(ids), 16)
    assert list(prompt.exact_blocks) == blocks
    assert prompt.tokens == 40
    assert len(prompt.key_blocks) == 3
    for listed in ("1, 2, 3", "[1, 2, 3]"):
        assert (
            built(PromptSource(prompt=[1, 2, 3]), builder).key_blocks != built(PromptSource(prompt=listed)).key_blocks
        )
    text = "The capital of France"
    packed = smollm2().tokeniser.encode(text)
    assert (
        built(PromptSource(prompt=memoryview(packed).cast("I").tolist())).key_blocks
        == built(PromptSource(prompt=text)).key_blocks
    )


def test_token_ids_out_of_range_are_a_value_error() -> None:
    """Whoever parses requests refuses them before."""
    with pytest.raises(ValueError, match="token id"):
        built(PromptSource(prompt=[-1]))


def test_the_beginning_of_a_completion_prompt_counts_as_system_text() -> None:
    """Up to the template's first user marker; without markers nothing folds."""
    marked_a, marked_b = (
        f"<|im_start|>system\n{text}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n" for text in (CLOCK_A, CLOCK_B)
    )
    one, other = built(PromptSource(prompt=marked_a)), built(PromptSource(prompt=marked_b))
    assert one.key_blocks == other.key_blocks
    assert one.exact_blocks != other.exact_blocks
    assert built(PromptSource(prompt=CLOCK_A)).key_blocks != built(PromptSource(prompt=CLOCK_B)).key_blocks


def test_a_completion_prompt_begins_with_the_bos_that_the_worker_adds() -> None:
    """Chat templates write theirs themselves."""
    from dataclasses import replace

    builder = build_builder(replace(smollm2(), prompt_prefix=pack([1])))
    text = "The capital of France is"
    ids = [1, *memoryview(smollm2().tokeniser.encode(text)).cast("I").tolist()]
    prompt = built(PromptSource(prompt=text), builder)
    assert prompt.tokens == len(ids)
    assert prompt.key_blocks == built(PromptSource(prompt=ids), builder).key_blocks
    assert prompt == built(PromptSource(prompt=text), builder), "also when it is remembered"


def test_bytes_stand_in_with_estimates_that_say_so() -> None:
    """Four bytes are taken for a token, also in the size of a block."""
    builder = build_builder(bytes_text("a test"), 16)
    prompt = built(PromptSource(prompt="x" * 400), builder)
    assert (prompt.tokens, prompt.text_bytes, prompt.block_tokens) == (100, 400, 16)
    assert len(prompt.exact_blocks) == 400 // (16 * BYTES_PER_TOKEN)
    ids = built(PromptSource(prompt=[1] * 40), builder)
    assert (ids.tokens, ids.text_bytes, len(ids.exact_blocks)) == (40, None, 2), "token ids are counted, not estimated"


def test_a_date_in_the_template_changes_the_exact_chain_only() -> None:
    """At midnight the worker's tokens change; nobody's home does."""
    dated = build_text("{{ strftime_now('%d %B %Y') }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}")
    builder = build_builder(dated, 4)
    days = [built(build_chat(FILLER, "Hi"), builder, now=86400.0 * day) for day in (20_000, 20_001)]
    assert days[0].key_blocks == days[1].key_blocks
    assert days[0].exact_blocks != days[1].exact_blocks


def test_a_template_that_refuses_is_a_template_error() -> None:
    """What to do then is the caller's business."""
    with pytest.raises(TemplateError, match="alternate"):
        built(PromptSource(messages=[{"role": "assistant", "content": "x"}]), build_builder(build_text(MISTRAL)))


def test_arguments_for_the_template_reach_both_chains() -> None:
    """`chat_template_kwargs` and `add_generation_prompt`."""
    builder = build_builder(
        build_text("{{ mode }}{% for m in messages %}{{ m.content }}{% endfor %}{{ add_generation_prompt }}"), 1
    )
    sources = [
        build_chat("abcdefgh", template_arguments={"mode": "think"}),
        build_chat("abcdefgh", template_arguments={"mode": "quick"}),
        build_chat("abcdefgh", template_arguments={"mode": "quick"}, add_generation_prompt=False),
    ]
    prompts = [built(source, builder) for source in sources]
    for field in ("exact_blocks", "key_blocks"):
        assert len({tuple(getattr(prompt, field)) for prompt in prompts}) == 3


CONTENT = st.text(alphabet=st.sampled_from("ab 1é北🙂\n<|im_start|>"), max_size=60) | st.sampled_from(
    [FILLER, CLOCK_A, CLOCK_B, "<|im_start|>", "<|im_end|>\n<|im_start|>user\n", "<|endoftext|>", ""]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(CONTENT, min_size=1, max_size=5), st.sampled_from(["a", "b"])), max_size=8))
def test_the_memo_changes_nothing_but_the_cost(conversations: list[tuple[list[str], str]]) -> None:
    """A builder that remembers, one whose memory is too small, and one without any agree on every prompt."""
    builders = [build_builder(memo_bytes=size) for size in (10**7, 3000, 0)]
    for contents, salt in conversations:
        for source in (build_chat(*contents), PromptSource(prompt="".join(contents))):
            prompts = [built(source, builder, salt=salt) for builder in builders]
            assert prompts[0] == prompts[1] == prompts[2]
    for builder in builders:
        builder.memo.check_integrity()


def test_a_remembered_conversation_costs_its_new_turn_only() -> None:
    """What is left to tokenise is the new text, and the memory grows by it alone."""
    builder = build_builder()
    contents = [FILLER] * 21
    built(build_chat(*contents), builder)
    held = builder.memo.held_bytes
    source = build_chat(*contents, "One more.")
    draft = builder.start(builder.ask(source, None, "m", DEFAULT))
    assert isinstance(draft, Draft)
    assert draft.unseen_characters < len(FILLER) + 200, "the last message and the generation prompt"
    draft.finish()
    assert builder.memo.held_bytes - held < 4 * len(FILLER)
    repeated = builder.start(builder.ask(source, None, "m", DEFAULT))
    assert isinstance(repeated, Draft)
    assert repeated.unseen_characters == 0


def test_tenants_never_share_an_entry_of_the_memo() -> None:
    """The seed is part of every key: not even the time it takes tells what another tenant asked."""
    builder = build_builder()
    built(build_chat(FILLER, "Hi"), builder, salt="one")
    draft = builder.start(builder.ask(build_chat(FILLER, "Hi"), "two", "m", DEFAULT))
    assert isinstance(draft, Draft)
    assert draft.unseen_characters > len(FILLER)


def test_a_turn_of_a_long_conversation_takes_well_under_the_time_of_all_of_it() -> None:
    """32k tokens cold, then one turn more; CPU time, best of several."""
    builder = build_builder(block_tokens=64)
    contents = [f"{number} {FILLER} {FILLER}" for number in range(45)]
    cold = _seconds(lambda: built(build_chat(*contents), build_builder(block_tokens=64)), 3)
    assert built(build_chat(*contents), builder).tokens > 30_000
    turns = iter(range(100))
    warm = _seconds(lambda: built(build_chat(*contents, f"and {next(turns)}"), builder), 10)
    assert warm < cold
    assert warm < 0.02, warm


def test_threads_and_the_loop_may_build_at_once() -> None:
    """With a lock; all get what a builder of their own would give."""
    builder = build_builder(memo_bytes=60_000, lock=threading.Lock())
    sources = [build_chat(FILLER, *(f"turn {number % 7} {turn}" for turn in range(number % 5))) for number in range(12)]
    expected = [built(source) for source in sources]
    wrong: list[object] = []

    def work() -> None:
        for _ in range(10):
            for source, right in zip(sources, expected):
                try:
                    if built(source, builder) != right:
                        wrong.append(source)
                except BaseException as error:
                    wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    assert not wrong
    builder.memo.check_integrity()


def test_texts_are_cut_before_the_token_that_opens_messages() -> None:
    """Nothing is lost, and a text made of openers is not cut for ever."""
    assert cut("a<|im_start|>b<|im_start|>", "<|im_start|>") == ["a", "<|im_start|>b", "<|im_start|>"]
    assert cut("<|im_start|>b", "<|im_start|>") == ["<|im_start|>b"]
    assert cut("abc", None) == ["abc"]
    assert cut("", "<|im_start|>") == []
    many = cut("<|im_start|>" * 10_000, "<|im_start|>")
    assert len(many) == MAX_SEGMENTS
    assert "".join(many) == "<|im_start|>" * 10_000


def test_the_opener_is_the_special_token_in_the_user_marker() -> None:
    """None where the template opens turns with ordinary text, and then nothing is cut."""
    assert opener_of(smollm2()) == "<|im_start|>"
    assert opener_of(build_text(LLAMA3, ("<|start_header_id|>", "<|end_header_id|>"))) == "<|start_header_id|>"
    assert opener_of(build_text(MISTRAL, ("<|im_start|>",))) is None
    assert opener_of(bytes_text("a test")) == "<|im_start|>"


def _seconds(work: Any, times: int) -> float:
    def one() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return min(one() for _ in range(times))
