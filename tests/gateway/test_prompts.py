"""Prompts: the right tokeniser for every model, and an event loop that is never kept waiting."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.model_prompts import ModelPrompts, Seeding, characters_within, tokenizer_source
from gateway.prompts import LARGE_CHARACTERS, Prompts, source_characters
from router.core import PromptSource
from router.normalise import fold_rules
from router.prompt import PromptBuilder
from router.template import ChatTemplate
from router.tokenise import LoadedModelText, TokeniserError, bytes_text, find_smollm2
from tests.router.text_builders import MISTRAL, build_chat, build_text, smollm2

RULES = fold_rules("default")


@pytest.fixture
def prompts() -> Iterator[Prompts]:
    """SmolLM2 as `m`, and a model of bytes as `b`."""
    made = Prompts()
    made.register("m", find_smollm2(), 64)
    made.register("b", None, 64)
    yield made
    made.close()


def text_of(words: int, seed: int = 0) -> str:
    """Text that no other seed has."""
    return " ".join(f"word{(number * 7919 + seed) % 99_991}" for number in range(words))


async def prepare(prompts: Prompts, source: PromptSource, model: str = "m", **changes: Any) -> Any:
    """`prepare` with default rules and no salt."""
    return await prompts.prepare(model, source, **{"salt": None, "rules": RULES, **changes})


async def test_a_prepared_prompt_is_what_the_router_builds(prompts: Prompts) -> None:
    """Inline, in the thread, and in the thread from the start: the way makes no difference."""
    for words in (10, 30_000, 80_000):
        source = build_chat(text_of(words), "Hi")
        expected = PromptBuilder(smollm2(), 64).build(source, salt="s", model="m", rules=RULES)
        assert await prepare(prompts, source, salt="s") == expected


async def test_the_salt_and_the_adapter_reach_the_seed(prompts: Prompts) -> None:
    """Three seeds, three chains."""
    source = build_chat(text_of(200), "Hi")
    made = [await prepare(prompts, source, **more) for more in ({}, {"salt": "s"}, {"adapter": "a"})]
    assert len({prompt.exact_blocks[0] for prompt in made}) == 3


async def test_the_loop_goes_on_while_a_long_prompt_is_prepared(prompts: Prompts) -> None:
    """A heartbeat every millisecond keeps beating while a megabyte of new text is tokenised."""
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.001)
            beats += 1

    beating = asyncio.create_task(heart())
    sources = [build_chat(text_of(100_000, seed), "Hi") for seed in range(3)]
    try:
        await asyncio.gather(*(prepare(prompts, source) for source in sources))
    finally:
        beating.cancel()
    assert beats >= 10


async def test_long_new_text_goes_to_a_thread_and_known_text_does_not(
    prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time, only the new turn is tokenised, and that at once."""
    entry, _ = prompts._models["m"]
    prompts._models["m"] = entry, 2000
    hops: list[object] = []
    in_thread = prompts._in_thread

    async def watched(work: Any) -> Any:
        hops.append(work)
        return await in_thread(work)

    monkeypatch.setattr(prompts, "_in_thread", watched)
    text = text_of(1000)
    await prepare(prompts, build_chat(text, "Hi"))
    assert len(hops) == 1
    await prepare(prompts, build_chat(text, "Hi", "Hello", "How are you?"))
    await prepare(prompts, build_chat("short", "Hi"))
    assert len(hops) == 1
    await prepare(prompts, build_chat("x" * (LARGE_CHARACTERS + 1), "Hi"))
    assert len(hops) == 2


async def test_the_inline_allowance_is_measured_on_this_machine() -> None:
    """A tokeniser that takes a millisecond for anything gets less than the bytes tokeniser."""

    class Slow:
        name, digest, special, cuts, vocabulary_size = "slow", "", frozenset[str](), frozenset[str](), 1

        def encode(self, text: str) -> bytes:
            time.sleep(0.005)
            return b""

        def decode(self, ids: Any) -> str:
            return ""

        def token_count(self, text: str) -> int:
            return 0

    slow = LoadedModelText(Slow(), ChatTemplate(""))
    assert 0 < characters_within(slow, 0.002) < characters_within(bytes_text("a test"), 0.002)


async def test_a_model_without_a_tokeniser_is_warned_of_once_and_scaled_by_reports(
    prompts: Prompts, caplog: pytest.LogCaptureFixture
) -> None:
    """Counts begin at four bytes a token and follow what the worker says."""
    with caplog.at_level(logging.WARNING, "homing.prompts"):
        prompts.register("c", None, 64)
        source = PromptSource(prompt="x" * 4000)
        first = await prepare(prompts, source, "c")
        assert (first.tokens, first.block_tokens, first.text_bytes) == (1000, 64, 4000)
        for _ in range(20):
            prompts.observe("c", first, 2000)
        second = await prepare(prompts, source, "c")
    assert [record.getMessage()[:14] for record in caplog.records] == ["counting bytes"]
    assert (second.tokens, second.block_tokens) == (2000, 128)
    assert second.exact_blocks == first.exact_blocks, "the hashes stay: only their count in tokens is learned"
    assert second.tokens - second.block_tokens < len(second.exact_blocks) * second.block_tokens <= second.tokens


async def test_counted_prompts_teach_nothing(prompts: Prompts) -> None:
    """Neither those of a real tokeniser nor token ids."""
    ids = await prepare(prompts, PromptSource(prompt=[1] * 5000), "b")
    assert (ids.tokens, ids.block_tokens) == (5000, 64)
    for model, prompt in (("b", ids), ("m", await prepare(prompts, PromptSource(prompt=text_of(500))))):
        prompts.observe(model, prompt, 17)
        assert prompts.of(model).scale.reports == 0


async def test_a_model_that_was_never_registered_is_a_key_error(prompts: Prompts) -> None:
    """Whoever serves registers first."""
    assert prompts.knows("m")
    assert not prompts.knows("other")
    assert prompts.of("m").text is smollm2() or prompts.of("m").text.digest == smollm2().digest
    with pytest.raises(KeyError):
        await prepare(prompts, build_chat("a", "b"), "other")


async def test_messages_that_the_template_refuses_are_placed_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Whether they are wrong is the worker's to say; the same ones still have one key, and the log has no text."""
    made = ModelPrompts(build_text(MISTRAL), 16)
    source = PromptSource(messages=[{"role": "assistant", "content": "my secret " * 30}])
    with caplog.at_level(logging.WARNING, "homing.prompts"):
        one, again = (made.build(source, Seeding(None, "m", RULES)) for _ in range(2))
    assert one.key_blocks == again.key_blocks
    assert len(caplog.records) == 1
    assert "secret" not in str(vars(caplog.records[0]))


async def test_cancelling_a_request_does_not_stop_the_others(prompts: Prompts) -> None:
    """Its thread ends by itself."""
    tasks = [asyncio.create_task(prepare(prompts, build_chat(text_of(60_000, seed), "Hi"))) for seed in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(result.tokens > 60_000 for result in results[1:])  # type: ignore[union-attr]


def test_the_tokeniser_comes_from_the_configuration_first(tmp_path: Path) -> None:
    """Then from the worker's own folder if it is on this machine, else from nowhere."""
    assert tokenizer_source("/models/a", str(tmp_path)) == Path("/models/a")
    assert tokenizer_source("file:/models/a", None) == Path("/models/a")
    assert tokenizer_source(None, str(tmp_path)) == tmp_path
    assert tokenizer_source(None, "meta-llama/Llama-3.1-8B") is None
    assert tokenizer_source(None, None) is None


def test_a_tokeniser_that_cannot_be_read_is_a_warning_or_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker's odd folder must not stop the gateway; a configured one that is wrong must be told."""
    made = Prompts()
    with caplog.at_level(logging.WARNING, "homing.prompts"):
        text = made.register("m", tmp_path, 64)
    assert text.tokeniser.name == "bytes"
    assert "tokenizer.json" in str(text.stands_in_because)
    assert str(tmp_path) in str(vars(caplog.records[0])["fields"])
    with pytest.raises(TokeniserError, match=r"tokenizer\.json"):
        made.register("m", tmp_path, 64, required=True)
    made.close()


def test_the_size_of_a_request_is_guessed_from_all_its_texts() -> None:
    """Strings, parts, images by their address, tools by a flat sum, token ids one by one."""
    parts = [{"type": "text", "text": "x" * 100}, {"type": "image_url", "image_url": {"url": "y" * 200}}, "z" * 50]
    source = PromptSource(messages=[{"role": "user", "content": parts}, {"role": "assistant", "content": None}])
    assert 350 <= source_characters(source) <= 400
    assert source_characters(PromptSource(prompt="abc")) == 3
    assert source_characters(PromptSource(prompt=[1, 2])) == 2
    assert source_characters(build_chat("a", tools=[{}, {}])) > 1000


def test_several_threads_may_build_with_one_model() -> None:
    """The lock is the gateway's, so the router stays free of threads."""
    made = ModelPrompts(smollm2(), 64, 100_000)
    sources = [build_chat(text_of(200), *(str(turn) for turn in range(number))) for number in range(8)]
    expected = [ModelPrompts(smollm2(), 64).build(source, Seeding(None, "m", RULES)) for source in sources]
    results: list[list[Any]] = [[] for _ in range(4)]

    def work(place: int) -> None:
        for _ in range(10):
            results[place] = [made.build(source, Seeding(None, "m", RULES)) for source in sources]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
