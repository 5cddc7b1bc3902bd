"""Prompts to token ids: templates, special tokens, long texts, unknown ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.api_errors import BadRequestError
from backends.hashing import unpack
from backends.prompt_ids import THREAD_FROM_CHARACTERS, PromptReader
from router.core import PromptSource
from router.template import ChatTemplate
from router.tokenise import LoadedModelText, bytes_text, pack


def build_reader(text: LoadedModelText | None = None, **changes) -> PromptReader:
    return PromptReader(text or bytes_text("test"), **{"max_model_tokens": 100, "vocab_size": 300, **changes})


async def test_a_text_is_tokenised_behind_the_tokenisers_own_prefix():
    """A BOS where the model has one; none when asked for none."""
    reader = build_reader(replace(bytes_text("test"), prompt_prefix=pack([257])))
    source = PromptSource(prompt="ab")
    assert list(await reader.ids(source)) == [257, 97, 98]
    assert list(await reader.ids(source, add_special_tokens=False)) == [97, 98]


async def test_a_chat_brings_its_special_tokens_in_its_template():
    """No prefix twice (trap 16), unless that is asked for."""
    text = replace(bytes_text("test"), template=ChatTemplate("{{ messages[0].content }}"), prompt_prefix=pack([257]))
    source = PromptSource(messages=[{"role": "user", "content": "ab"}])
    assert list(await build_reader(text).ids(source)) == [97, 98]
    assert list(await build_reader(text).ids(source, add_special_tokens=True)) == [257, 97, 98]


async def test_token_ids_are_taken_as_they_are():
    """Up to the vocabulary's end."""
    reader = build_reader()
    assert list(await reader.ids(PromptSource(prompt=[0, 299]))) == [0, 299]
    for bad in ([300], [1, -1], [1 << 70]):
        with pytest.raises(BadRequestError, match=r"Token id -?\d+ is out of vocabulary"):
            await reader.ids(PromptSource(prompt=bad))


async def test_a_long_text_is_tokenised_elsewhere_with_the_same_result():
    """In a thread, so that short requests are not held up."""
    text = "word " * THREAD_FROM_CHARACTERS
    assert list(await build_reader().ids(PromptSource(prompt=text))) == list(text.encode())


async def test_a_template_that_refuses_is_a_bad_request_without_the_words():
    """Its own reason, never the prompt."""
    text = replace(bytes_text("test"), template=ChatTemplate("{{ raise_exception('no system role') }}"))
    with pytest.raises(BadRequestError, match="no system role") as caught:
        await build_reader(text).ids(PromptSource(messages=[{"role": "system", "content": "secret"}]))
    assert caught.value.param == "messages"
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "fits"),
    [(60, 40, True), (60, 41, False), (99, None, True), (100, None, False), (101, 1, False)],
)
async def test_prompt_and_answer_must_fit_the_model(tokens: int, max_tokens: int | None, fits: bool):
    """H-18: to the last token, and one token of answer at least."""
    source = PromptSource(prompt=[1] * tokens)
    if fits:
        assert len(await build_reader().read(source, max_tokens)) == tokens
    else:
        with pytest.raises(BadRequestError, match=f"maximum context length is 100 tokens.*{tokens} input tokens"):
            await build_reader().read(source, max_tokens)


def test_packed_ids_unpack():
    """Little-endian, four bytes each."""
    assert list(unpack(pack([1, 256, 1 << 31]))) == [1, 256, 1 << 31]
