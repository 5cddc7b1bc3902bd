"""Where the time goes when a prompt's text was never seen: tokenising, folding, hashing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.model_prompts import ModelPrompts, Seeding, load_model_text
from router.blocks import chain, seed
from router.core import PromptSource
from router.normalise import fold_messages, fold_rules
from router.tokenise import find_smollm2

BLOCK_TOKENS = 64


def split(paths: Sequence[Path]) -> dict[str, float]:
    """µs of CPU for one of these bodies, by part, each taken alone; `prepare` is all of it as the gateway does it."""
    text = load_model_text("dummy", find_smollm2(), required=True)
    prompts = ModelPrompts(text, BLOCK_TOKENS)
    seeding = Seeding("salt", "dummy", fold_rules("default"))
    chats = [json.loads(path.read_bytes())["messages"] for path in paths]
    texts = ["\n".join(message["content"] for message in messages) for messages in chats]
    tokens = [text.tokeniser.encode(each) for each in texts]
    parent = seed(salt="salt", model="dummy")
    return {
        "tokenise": _mean_us(text.tokeniser.encode, texts),
        "fold": _mean_us(lambda messages: fold_messages(messages, None, seeding.rules), chats),
        "hash": _mean_us(lambda packed: chain(parent, packed, BLOCK_TOKENS), tokens),
        "prepare": _mean_us(lambda messages: prompts.build(PromptSource(messages=messages), seeding), chats),
    }


def _mean_us(work: Callable[..., object], given: Sequence[object]) -> float:
    began = time.process_time()
    for each in given:
        work(each)
    return (time.process_time() - began) / len(given) * 1e6
