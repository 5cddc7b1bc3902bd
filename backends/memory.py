"""How many KV blocks fit: `--gpu-memory-utilization` turned into a number of blocks, of a GPU's memory or a host's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

HOST_CAP_BYTES = 4 << 30
"""Most that the cache takes on a host by itself: its memory is shared with everyone, a GPU's is not."""

DEFAULT_UTILIZATION = {"cpu": 0.5, "cuda": 0.9}
"""A worker has its GPU to itself, and needs the last tenth for the tensors of a step."""

MEMINFO = Path("/proc/meminfo")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


class KvBudget(NamedTuple):
    """The cache's size and why: `num_blocks` counts block 0, which holds nothing."""

    num_blocks: int
    block_bytes: int
    block_tokens: int

    @property
    def size_bytes(self) -> int:
        """Memory of all blocks."""
        return self.num_blocks * self.block_bytes

    @property
    def tokens(self) -> int:
        """Tokens that fit."""
        return (self.num_blocks - 1) * self.block_tokens

    def sentence(self, max_model_tokens: int) -> str:
        """For the start-up line."""
        requests = self.tokens / max_model_tokens
        return (
            f"KV cache: {self.num_blocks - 1} blocks of {self.block_tokens} tokens = {self.tokens:,} tokens"
            f" ({self.size_bytes / 2**20:,.0f} MiB); {requests:.1f} requests of {max_model_tokens:,} tokens fit"
        )


class DeviceMemory(NamedTuple):
    """`total_bytes` may be shared out, of which `used_bytes` are taken, by weights too; a cache has `most_bytes`."""

    total_bytes: int
    used_bytes: int
    most_bytes: int


def plan_kv(
    *,
    utilization: float,
    weight_bytes: int,
    block_bytes: int,
    block_tokens: int,
    max_model_tokens: int,
    device: str = "cpu",
) -> KvBudget:
    """The budget for `utilization` (0..1) of the device's memory, less what is taken of it, weights included.

    A host's memory is what this process may have; a GPU's is all it has. ValueError when not even one sequence of
    `max_model_tokens` fits; it names the flags to change.
    """
    if not 0.0 < utilization <= 1.0:
        raise ValueError(f"--gpu-memory-utilization {utilization} must be above 0 and at most 1")
    memory = host_memory(weight_bytes) if device == "cpu" else gpu_memory()
    usable_bytes = int(utilization * memory.total_bytes) - memory.used_bytes
    num_blocks = min(usable_bytes, memory.most_bytes) // block_bytes
    needed = blocks_for(max_model_tokens, block_tokens)
    if num_blocks < needed:
        raise ValueError(
            f"the KV cache would have {max(num_blocks, 0)} blocks, one sequence of {max_model_tokens} tokens needs"
            f" {needed}: lower --max-model-len, or raise --gpu-memory-utilization or --num-gpu-blocks-override"
        )
    return KvBudget(num_blocks, block_bytes, block_tokens)


def host_memory(weight_bytes: int) -> DeviceMemory:
    """What this process may still take and what its weights took; the cache's part of it is capped."""
    return DeviceMemory(available_bytes() + weight_bytes, weight_bytes, HOST_CAP_BYTES)


def gpu_memory() -> DeviceMemory:
    """The GPU that torch uses, as its driver sees it: others' memory counts as taken."""
    import torch

    torch.cuda.empty_cache()  # what loading left over
    free, total = torch.cuda.mem_get_info()
    return DeviceMemory(total, total - free, total)


def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that a pool needs for one sequence of `tokens`, block 0 counted."""
    return -(-tokens // block_tokens) + 1


def available_bytes() -> int:
    """Memory that this process may still take: what the host has free, or less under a container's limit."""
    free = _meminfo_available()
    limit, used = _number(CGROUP_LIMIT), _number(CGROUP_USED)
    return free if limit is None or used is None else min(free, max(limit - used, 0))


def _meminfo_available() -> int:
    """Linux says what is available; elsewhere all physical memory has to do."""
    if MEMINFO.exists():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _number(path: Path) -> int | None:
    """The number in a cgroup file; None when there is no such file or no limit (`max`)."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
