"""The forward pass: against transformers on the real model, and against itself in other batches and chunks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.kernels.choose import choose_kernels
from backends.kernels.interface import Kernels
from backends.kernels.reference import ReferenceKernels
from backends.model.gguf_weights import load_gguf
from backends.model.llama import Llama
from backends.model.weights import LlamaWeights
from backends.runner import TorchRunner
from backends.step_tensors import build_step
from backends.types import Batch, ScheduledSequence
from tests.backends.tensor_builders import TINY, build_runner, build_sequence, build_weights, generate, run_chunk

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden" / "smollm2_logits.json").read_text(encoding="utf-8")
)
TOLERANCE = 1e-4
BLOCK_TOKENS = 16
END_OF_ANSWER = 2


@pytest.fixture(scope="module", params=["reference", "best"])
def smollm2(request: pytest.FixtureRequest, smollm2_path: Path) -> TorchRunner:
    """SmolLM2 in float32, on the reference kernels and on the best that this machine has."""
    loaded = load_gguf(smollm2_path, torch.float32)
    kernels = ReferenceKernels() if request.param == "reference" else choose_kernels()
    runner = TorchRunner(Llama(loaded.config, loaded.weights, kernels))
    runner.allocate(64, BLOCK_TOKENS)
    return runner


@torch.inference_mode()
def logits_from(runner: TorchRunner, ids: list[int], first_row: int) -> torch.Tensor:
    """Logits of a whole prompt from `first_row` on."""
    table = list(range(1, len(ids) // BLOCK_TOKENS + 2))
    item = ScheduledSequence(build_sequence(ids, table), 0, len(ids), True)
    step = replace(build_step(Batch([item]), BLOCK_TOKENS), sample_rows=torch.arange(first_row, len(ids)))
    return runner.model.forward(step, runner.cache.layers)


@pytest.mark.parametrize("golden", GOLDEN["logits"], ids=lambda golden: golden["name"])
def test_logits_are_those_of_transformers(smollm2: TorchRunner, golden: dict[str, Any]):
    """The twenty best logits and the normaliser of each stored position, within 1e-4; the best token the same."""
    logits = logits_from(smollm2, golden["ids"], golden["first_position"])
    best_ids = torch.tensor(golden["top_ids"])
    assert (logits.gather(1, best_ids) - torch.tensor(golden["top_logits"])).abs().max() <= TOLERANCE
    assert (logits.logsumexp(-1) - torch.tensor(golden["logsumexp"])).abs().max() <= TOLERANCE
    assert torch.equal(logits.argmax(-1), best_ids[:, 0])


@pytest.mark.parametrize("golden", GOLDEN["answers"], ids=lambda golden: golden["question"])
def test_greedy_answers_are_those_of_transformers(smollm2: TorchRunner, golden: dict[str, Any]):
    """The whole answer, decoded step by step through the paged cache."""
    sequence = build_sequence(golden["ids"], range(1, 20))
    answer = generate(smollm2, sequence, len(golden["answer_ids"]) + 1)
    assert answer == [*golden["answer_ids"], END_OF_ANSWER]


def test_in_bfloat16_the_best_tokens_are_nearly_always_the_same(smollm2_path: Path):
    """Logits within 1 and in the mean within 0.15 of float32's, the best token the same in nine cases of ten."""
    loaded = load_gguf(smollm2_path, torch.bfloat16)
    runner = TorchRunner(Llama(loaded.config, loaded.weights, choose_kernels()))
    runner.allocate(64, BLOCK_TOKENS)
    differences, same = [], []
    for golden in GOLDEN["logits"]:
        logits = logits_from(runner, golden["ids"], golden["first_position"])
        best_ids = torch.tensor(golden["top_ids"])
        differences.append((logits.gather(1, best_ids) - torch.tensor(golden["top_logits"])).abs().flatten())
        same.append(logits.argmax(-1) == best_ids[:, 0])
    assert torch.cat(differences).max() <= 1.0
    assert torch.cat(differences).mean() <= 0.15
    assert torch.cat(same).float().mean() >= 0.9


def test_the_best_logits_are_not_rounded_in_bfloat16():
    """Two tokens of different worth would tie, and the wrong one win: at 25 bfloat16 counts in eighths."""
    weights = build_weights(dtype=torch.bfloat16)
    runner = TorchRunner(Llama(TINY, weights, ReferenceKernels()))
    runner.allocate(8, BLOCK_TOKENS)
    logits = logits_from(runner, list(range(12)), 0)
    assert (logits != logits.bfloat16().float()).float().mean() > 0.9


def test_the_capital_of_france_is_paris():
    """What the golden answers say, so that nobody regenerates them into nonsense."""
    texts = {answer["question"]: answer["text"] for answer in GOLDEN["answers"]}
    assert texts["What is the capital of France?"] == "The capital of France is Paris."
    assert "Red, Blue, and Yellow" in texts["List three primary colours."]


@pytest.mark.parametrize("cuts", [[23], [1, 22], [4, 8, 8, 3], [1] * 23])
def test_chunks_give_the_same_token_as_one_prefill(cuts: list[int]):
    """However a prompt is cut, its next token and what follows are the same."""
    prompt = [(7 * index) % TINY.vocab_size for index in range(23)]
    want = generate(build_runner(), build_sequence(prompt, range(1, 9)), 5)
    runner, sequence, start = build_runner(), build_sequence(prompt, range(1, 9)), 0
    token = None
    for count in cuts:
        token = run_chunk(runner, sequence, start, start + count)
        start += count
    assert token is not None
    assert token.token_id == want[0]


def test_a_cached_prefix_gives_the_same_token_as_a_full_prefill():
    """A second sequence points at the first one's blocks and computes only the rest."""
    runner = build_runner()
    prompt = [(5 * index) % TINY.vocab_size for index in range(16)]
    run_chunk(runner, build_sequence(prompt[:12], [3, 1, 2]), 0, 12)
    shared = run_chunk(runner, build_sequence(prompt, [3, 1, 2, 9]), 12, 16)
    assert shared == run_chunk(runner, build_sequence(prompt, [4, 5, 6, 7]), 0, 16)


def test_sequences_of_one_step_may_share_what_the_step_writes():
    """All keys and values of a layer are written before any is read: a sibling may start behind an unfinished one."""
    runner, alone = build_runner(), build_runner()
    prompt = [(11 * index) % TINY.vocab_size for index in range(8)]
    first, second = build_sequence(prompt[:4], [1]), build_sequence(prompt, [1, 2])
    both = runner.execute(Batch([ScheduledSequence(first, 0, 4, True), ScheduledSequence(second, 4, 4, True)]))
    assert both[1] == run_chunk(alone, build_sequence(prompt, [3, 4]), 0, 8)


def test_neighbours_in_a_batch_change_nothing():
    """Prefill, chunk and decodes together give each sequence what it gets alone."""
    prompts = [[(number * index) % TINY.vocab_size for index in range(5 * number)] for number in (1, 2, 3, 4)]
    tables = [list(range(6 * number + 1, 6 * number + 7)) for number in range(4)]
    alone = [generate(build_runner(), build_sequence(ids, table), 1)[0] for ids, table in zip(prompts, tables)]
    runner = build_runner()
    items = [ScheduledSequence(build_sequence(ids, table), 0, len(ids), True) for ids, table in zip(prompts, tables)]
    assert [token.token_id for token in runner.execute(Batch(items)) if token] == alone


def test_only_rows_that_sample_meet_the_head():
    """A step of which nothing samples gives no logits at all."""
    runner = build_runner()
    step = build_step(Batch([ScheduledSequence(build_sequence([1, 2, 3], [1]), 0, 2, False)]), 4)
    with torch.inference_mode():
        assert runner.model.forward(step, runner.cache.layers).shape == (0, TINY.vocab_size)


@pytest.mark.parametrize("kernels", [ReferenceKernels(), choose_kernels()], ids=["reference", "best"])
@pytest.mark.parametrize("tokens", [1, 5])
def test_head_norms_are_each_head_s_own(kernels: Kernels, tokens: int):
    """Queries and keys by their definition in float64; values are left alone, and the product is not overwritten."""
    generator = torch.Generator().manual_seed(tokens)
    qkv = torch.randn(tokens, TINY.qkv_size, generator=generator)
    norms = (torch.rand(TINY.head_size, generator=generator), torch.rand(TINY.head_size, generator=generator))
    before = qkv.clone()
    got = Llama(TINY, build_weights(), kernels)._with_head_norms(qkv, norms).double()
    heads = before.double().view(tokens, -1, TINY.head_size)
    scaled = heads / (heads.square().mean(-1, keepdim=True) + TINY.norm_epsilon).sqrt()
    scaled[:, : TINY.heads] *= norms[0]
    scaled[:, TINY.heads : -TINY.kv_heads] *= norms[1]
    scaled[:, -TINY.kv_heads :] = heads[:, -TINY.kv_heads :]
    assert torch.equal(qkv, before)
    assert (got.view_as(scaled) - scaled).abs().max() < 1e-6


def test_a_single_normed_key_head_is_a_row_of_its_own():
    """Alone it is a slice of the product with gaps between its rows, which no kernel takes: it is copied first."""
    config = replace(TINY, heads=6, kv_heads=1)
    qkv, norm = torch.randn(5, config.qkv_size), torch.ones(config.head_size)
    weights = build_weights(config)
    plain, best = (Llama(config, weights, kernels) for kernels in (ReferenceKernels(), choose_kernels()))
    want = plain._with_head_norms(qkv, (norm, norm))
    assert (best._with_head_norms(qkv, (norm, norm)) - want).abs().max() < 1e-6


def test_a_model_is_known_by_its_shape_and_its_weights():
    """Cached keys and values of one model must not be taken for another's."""
    weights = build_weights()
    first_layer, second_layer = weights.layers
    values_changed = torch.cat([second_layer.qkv[: -TINY.kv_size], second_layer.qkv[-TINY.kv_size :] + 0.01])
    tuned = replace(weights, layers=(first_layer, replace(second_layer, qkv=values_changed)))
    models = [
        Llama(TINY, weights, ReferenceKernels()),
        Llama(TINY, build_weights(), ReferenceKernels()),
        Llama(TINY, build_weights(seed=1), ReferenceKernels()),
        Llama(replace(TINY, rope_base=500_000.0), weights, ReferenceKernels()),
        Llama(TINY, build_weights(dtype=torch.bfloat16), ReferenceKernels()),
        Llama(TINY, replace(weights, rope_divisors=torch.full((4,), 8.0)), ReferenceKernels()),
        Llama(TINY, tuned, ReferenceKernels()),
    ]
    first, same, *others = [model.identity for model in models]
    assert first == same
    assert len({first, *others}) == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_single_changed_number_makes_another_model(dtype: torch.dtype):
    """Of a large vocabulary, say, one word was trained anew: its keys and values differ wherever it is written."""
    weights = build_weights(replace(TINY, vocab_size=5000), dtype=dtype)
    identity = build_identity(weights)
    for part, row in ((weights.embedding, 4321), (weights.layers[1].mlp_norm, 3)):
        kept = part[row].clone()
        part[row] += 0.5
        assert build_identity(weights) != identity
        part[row] = kept
    assert build_identity(weights) == identity


def build_identity(weights: LlamaWeights) -> str:
    return Llama(replace(TINY, vocab_size=5000), weights, ReferenceKernels()).identity
