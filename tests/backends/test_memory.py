"""From `--gpu-memory-utilization` to a number of blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backends import memory
from backends.memory import DEFAULT_UTILIZATION, HOST_CAP_BYTES, KvBudget, available_bytes, blocks_for, plan_kv

GIB = 1 << 30


def set_host(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, free_bytes: int, limit: str = "max", used_bytes: int = 0
) -> None:
    """A host with `free_bytes` available, in a container with `limit`."""
    (folder / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {free_bytes // 1024} kB\n")
    (folder / "max").write_text(f"{limit}\n")
    (folder / "current").write_text(f"{used_bytes}\n")
    monkeypatch.setattr(memory, "MEMINFO", folder / "meminfo")
    monkeypatch.setattr(memory, "CGROUP_LIMIT", folder / "max")
    monkeypatch.setattr(memory, "CGROUP_USED", folder / "current")


def plan(utilization: float, *, weight_bytes: int = 0, max_model_tokens: int = 1024, device: str = "cpu") -> KvBudget:
    return plan_kv(
        utilization=utilization,
        weight_bytes=weight_bytes,
        block_bytes=1 << 20,
        block_tokens=16,
        max_model_tokens=max_model_tokens,
        device=device,
    )


def test_the_cache_takes_its_share_of_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Half of 2 GiB is 1,024 blocks of 1 MiB."""
    set_host(tmp_path, monkeypatch, free_bytes=2 * GIB)
    assert plan(0.5).num_blocks == 1024


def test_weights_already_loaded_count_as_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Half of (2 GiB free + 1 GiB of weights) less the weights is 0.5 GiB."""
    set_host(tmp_path, monkeypatch, free_bytes=2 * GIB)
    assert plan(0.5, weight_bytes=GIB).num_blocks == 512


def test_a_large_host_is_not_taken_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Host memory is shared: the cache is capped."""
    set_host(tmp_path, monkeypatch, free_bytes=500 * GIB)
    assert plan(0.9).size_bytes == HOST_CAP_BYTES


def test_a_container_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What the container may still take, where that is less than the host has."""
    set_host(tmp_path, monkeypatch, free_bytes=8 * GIB, limit=str(3 * GIB), used_bytes=GIB)
    assert available_bytes() == 2 * GIB
    assert plan(0.5).num_blocks == 1024


def test_a_container_over_its_limit_has_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Never a negative number."""
    set_host(tmp_path, monkeypatch, free_bytes=8 * GIB, limit=str(GIB), used_bytes=2 * GIB)
    assert available_bytes() == 0


def test_no_limit_and_no_cgroup_are_the_host_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`max` and a missing file mean: no limit."""
    set_host(tmp_path, monkeypatch, free_bytes=8 * GIB)
    assert available_bytes() == 8 * GIB
    monkeypatch.setattr(memory, "CGROUP_LIMIT", tmp_path / "absent")
    assert available_bytes() == 8 * GIB


def test_this_machine_has_memory():
    """The real files are readable, or the system says how much there is."""
    assert available_bytes() > 1 << 20


def test_a_gpu_s_share_is_of_all_its_memory(monkeypatch: pytest.MonkeyPatch):
    """Nine tenths of 10 GiB, less the 3 GiB that weights and other processes have; no cap, as nobody else needs it."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7 * GIB, 10 * GIB))
    budget = plan(DEFAULT_UTILIZATION["cuda"], weight_bytes=2 * GIB, device="cuda")
    assert budget.num_blocks == 6 * 1024
    assert budget.size_bytes > HOST_CAP_BYTES


def test_a_gpu_that_others_fill_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Half of it is more than what is free."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB, 10 * GIB))
    with pytest.raises(ValueError, match="would have 0 blocks"):
        plan(0.5, device="cuda")


@pytest.mark.parametrize("utilization", [0.0, -0.1, 1.01])
def test_a_share_outside_0_to_1_is_refused(utilization: float):
    """The flag is named."""
    with pytest.raises(ValueError, match="--gpu-memory-utilization"):
        plan(utilization)


def test_a_cache_too_small_for_one_sequence_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With the three flags that help."""
    set_host(tmp_path, monkeypatch, free_bytes=GIB // 16)
    with pytest.raises(
        ValueError, match=r"32 blocks.*1024 tokens needs 65.*--max-model-len.*--num-gpu-blocks-override"
    ):
        plan(0.5)
    assert plan(0.5, max_model_tokens=496).num_blocks == 32


def test_block_0_is_counted_but_holds_nothing():
    """17 tokens need two blocks and block 0."""
    assert [blocks_for(tokens, 16) for tokens in (1, 16, 17)] == [2, 2, 3]
    assert KvBudget(3, 1 << 20, 16).tokens == 32


def test_the_start_up_line_says_what_fits():
    """Blocks, tokens, memory and requests of full length."""
    assert KvBudget(1025, 1 << 20, 16).sentence(8192) == (
        "KV cache: 1024 blocks of 16 tokens = 16,384 tokens (1,025 MiB); 2.0 requests of 8,192 tokens fit"
    )
