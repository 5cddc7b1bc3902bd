"""From the command line to an engine that can start: the model or its simulation, its length, its cache."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from backends.block_size import resolve_block_size
from backends.engine_config import EngineConfig
from backends.hashing import unpack
from backends.memory import DEFAULT_UTILIZATION, KvBudget, blocks_for, plan_kv
from backends.partitions import Partitions
from backends.simulated import SimulatedRunner, Timing
from backends.types import Runner
from router.template import TemplateError
from router.tokenise import LoadedModelText, TokeniserError, bytes_text

SIMULATED_VOCABULARY = 1 << 20
"""A simulated model knows the token ids of any real one, so that recorded prompts can be replayed."""

SIMULATED_END_ID = 256
"""No byte, so it never stands in a text."""

SIMULATED_MODEL_TOKENS = 32_768
SIMULATED_CACHE_TOKENS = 1 << 20
SIMULATED_STEP_TOKENS = 2048
MODEL_STEP_TOKENS = {"cpu": 512, "cuda": 2048}
"""A step holds up everybody who is decoding: 512 tokens for half a second on two cores, a GPU for far less."""


class StartError(Exception):
    """The worker cannot start as asked; the message says what to change."""


class Loaded(NamedTuple):
    """A runner with its text side, and the sizes it runs with. `root` is where the model came from.

    `memory_utilization` is the share of memory that the cache was planned for, with the weights.
    """

    runner: Runner
    text: LoadedModelText
    root: str
    config: EngineConfig
    budget: KvBudget
    memory_utilization: float


def load(options: argparse.Namespace) -> Loaded:
    """What the options ask for; StartError when it cannot be had."""
    try:
        block_tokens = resolve_block_size(options.block_size, options.request_profile)
        options = argparse.Namespace(**{**vars(options), "block_size": block_tokens})
        return _simulated(options) if options.simulated else _model(options)
    except ModuleNotFoundError as error:
        raise StartError(f"{error.name} is missing: pip install 'homing[worker]', or try --simulated") from error
    except (ValueError, OSError, TokeniserError, TemplateError) as error:
        raise StartError(str(error)) from error


def _simulated(options: argparse.Namespace) -> Loaded:
    timing = Timing(
        prefill_tokens_per_second=options.simulated_prefill_tokens_per_second,
        fixed_seconds=options.simulated_fixed_seconds or 0.0,
        seconds_per_token=options.simulated_seconds_per_token or 0.0,
    )
    runner = SimulatedRunner(timing, time.sleep, vocab_size=SIMULATED_VOCABULARY, end_id=SIMULATED_END_ID)
    length = options.max_model_len or SIMULATED_MODEL_TOKENS
    blocks = max(SIMULATED_CACHE_TOKENS // options.block_size + 1, blocks_for(length, options.block_size))
    budget = _budget(options, length, lambda: KvBudget(blocks, 0, options.block_size))
    config = _config(options, length, budget, SIMULATED_STEP_TOKENS)
    config = replace(config, eos_ids=frozenset({SIMULATED_END_ID}))
    utilization = options.gpu_memory_utilization or DEFAULT_UTILIZATION["cpu"]
    return Loaded(runner, bytes_text("the worker is simulated"), options.model, config, budget, utilization)


def _model(options: argparse.Namespace) -> Loaded:
    # The only place that leads to torch: importing it takes seconds, and a simulated worker does without.
    from backends.model.dtypes import choose_device
    from backends.model_loading import find_model, load_model

    device = choose_device(options.device)
    utilization = options.gpu_memory_utilization or DEFAULT_UTILIZATION[device]
    root = str(find_model(options.model))
    runner, text = load_model(options.model, dtype=options.dtype, device=device, threads=options.threads)
    length = options.max_model_len or runner.context_tokens
    if length > runner.context_tokens:
        raise StartError(f"--max-model-len {length} is more than the {runner.context_tokens} the model was trained for")
    if runner.window_tokens is not None and length > runner.window_tokens:
        raise StartError(
            f"the model's sliding-window attention over {runner.window_tokens} tokens is not computed here: give "
            f"--max-model-len {runner.window_tokens} or less, at which it has no effect"
        )
    block_bytes = runner.block_bytes(options.block_size)

    def by_memory() -> KvBudget:
        return plan_kv(
            utilization=utilization,
            weight_bytes=runner.weight_bytes,
            block_bytes=block_bytes,
            block_tokens=options.block_size,
            max_model_tokens=length,
            device=device,
        )

    budget = _budget(options, length, by_memory)._replace(block_bytes=block_bytes)
    config = _config(options, length, budget, MODEL_STEP_TOKENS[device])
    config = replace(config, eos_ids=frozenset(text.eos_ids), special_ids=special_ids(text))
    return Loaded(runner, text, root, config, budget, utilization)


def _budget(options: argparse.Namespace, length: int, by_memory: Callable[[], KvBudget]) -> KvBudget:
    """The cache's size: as asked, else by memory; it must hold one request of full length."""
    if options.num_gpu_blocks_override is None:
        return by_memory()
    needed = blocks_for(length, options.block_size)
    if options.num_gpu_blocks_override < needed:
        raise StartError(
            f"--num-gpu-blocks-override {options.num_gpu_blocks_override} is too small: one request of {length} tokens "
            f"needs {needed} blocks of {options.block_size} (one of them is never used); lower --max-model-len"
        )
    return KvBudget(options.num_gpu_blocks_override, 0, options.block_size)


def special_ids(text: LoadedModelText) -> frozenset[int]:
    """The ids of a model's special tokens."""
    encoded = [unpack(text.tokeniser.encode(token)) for token in text.tokeniser.special]
    return frozenset(ids[0] for ids in encoded if len(ids) == 1)


def _config(options: argparse.Namespace, length: int, budget: KvBudget, step_tokens: int) -> EngineConfig:
    step = options.max_num_batched_tokens or max(step_tokens, options.max_num_seqs)
    if step < options.max_num_seqs:
        raise StartError(
            f"--max-num-batched-tokens {step} is below --max-num-seqs {options.max_num_seqs}: some running sequences "
            "would get no token; lower --max-num-seqs"
        )
    return EngineConfig(
        num_blocks=budget.num_blocks,
        max_model_tokens=length,
        block_tokens=options.block_size,
        max_sequences=options.max_num_seqs,
        max_batched_tokens=step,
        enable_prefix_caching=options.enable_prefix_caching,
        share_in_flight=options.share_in_flight,
        watermark_blocks=options.watermark_blocks,
        num_preallocate_tokens=options.num_preallocate_tokens,
        scheduling_policy=options.scheduling_policy,
        long_prefill_token_threshold=options.long_prefill_token_threshold,
        eviction=options.eviction_policy,
        partitions=Partitions.parse(options.cache_partition or ()),
        pin_quota=options.pin_quota,
        auto_retention=options.auto_retention,
    )
