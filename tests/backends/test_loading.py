"""Sizes of a worker: from options to an engine's configuration."""

from __future__ import annotations

import pytest
import torch

from backends.arguments import parse_arguments
from backends.loading import SIMULATED_END_ID, Loaded, StartError, load


def loaded(*arguments: str) -> Loaded:
    return load(parse_arguments(["--simulated", *arguments]))


def test_a_simulated_worker_holds_a_million_tokens():
    """More than any test sends, and no memory."""
    worker = loaded()
    assert worker.budget.tokens == 1 << 20
    assert worker.config.max_model_tokens == 32_768
    assert worker.config.eos_ids == {SIMULATED_END_ID}
    assert worker.text.tokeniser.name == "bytes"


def test_a_long_simulated_model_gets_a_cache_that_holds_one_request():
    """Whatever its length."""
    worker = loaded("--max-model-len", "5000000")
    assert worker.budget.tokens >= 5_000_000


def test_the_override_decides_the_cache():
    """vLLM counts block 0, so do we."""
    worker = loaded("--num-gpu-blocks-override", "101", "--max-model-len", "1600")
    assert (worker.config.num_blocks, worker.budget.tokens) == (101, 1600)


def test_a_cache_that_holds_no_request_is_refused_with_the_number_needed():
    """Trap 11: no livelock later."""
    with pytest.raises(StartError, match=r"one request of 1600 tokens needs 101 blocks of 16"):
        loaded("--num-gpu-blocks-override", "100", "--max-model-len", "1600")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    """Before a model is read."""
    with pytest.raises(StartError, match=r"--device cuda: torch .* finds no GPU here; use --device cpu"):
        load(parse_arguments(["--device", "cuda"]))


def test_the_share_of_memory_is_what_the_device_gets_by_itself():
    """Half of a host's; what is asked for goes first."""
    assert loaded().memory_utilization == 0.5
    assert loaded("--gpu-memory-utilization", "0.7").memory_utilization == 0.7


def test_switches_reach_the_engine():
    """Each by its own name."""
    config = loaded(
        *("--block-size", "32", "--max-num-seqs", "4", "--max-num-batched-tokens", "64", "--no-enable-prefix-caching")
    ).config
    assert (config.block_tokens, config.max_sequences, config.max_batched_tokens) == (32, 4, 64)
    assert not config.enable_prefix_caching


def test_many_sequences_widen_the_step():
    """Everybody who runs gets a token in every step."""
    assert loaded("--max-num-seqs", "5000").config.max_batched_tokens == 5000


def test_the_root_of_a_simulated_model_is_its_name():
    """No folder, so that a gateway counts bytes as the worker does."""
    assert loaded("--model", "smollm2").root == "smollm2"


def test_a_step_too_small_for_its_sequences_is_refused_by_the_names_of_the_flags():
    """Not by the names of our own fields."""
    with pytest.raises(StartError, match=r"--max-num-batched-tokens 4 is below --max-num-seqs 256"):
        loaded("--max-num-batched-tokens", "4")
