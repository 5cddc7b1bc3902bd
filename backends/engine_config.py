"""The engine's sizes and switches."""

from __future__ import annotations

from dataclasses import dataclass

from backends.partitions import NO_PARTITIONS, Partitions

SCHEDULING_POLICIES = ("fcfs", "priority")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes and switches of the engine; all lengths in tokens.

    `num_blocks` counts block 0, which holds nothing. `watermark_blocks` stay free when a waiting request is admitted
    beside running ones, so that these need not be preempted at once. A token of `eos_ids` ends an answer; those of
    `special_ids` are no text.

    With `share_in_flight` a waiting request whose next block a running one is computing waits for it.
    `num_preallocate_tokens` is how far ahead of its need a running sequence takes blocks while they are plenty.
    `scheduling_policy` is "fcfs" or "priority" (the lowest `priority` first, then by arrival). A step computes at most
    `long_prefill_token_threshold` tokens of one prompt; 0 sets no bound. `eviction`, `partitions`, `pin_quota` (a
    share, 0..1) and `auto_retention` are the block pool's.
    """

    num_blocks: int
    max_model_tokens: int
    block_tokens: int = 16
    max_sequences: int = 256
    max_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    watermark_blocks: int = 0
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    share_in_flight: bool = True
    num_preallocate_tokens: int = 0
    scheduling_policy: str = "fcfs"
    long_prefill_token_threshold: int = 0
    eviction: str = "lru"
    partitions: Partitions = NO_PARTITIONS
    pin_quota: float = 0.25
    auto_retention: bool = False

    def __post_init__(self) -> None:
        """ValueError for sizes with which nothing could ever run."""
        if self.scheduling_policy not in SCHEDULING_POLICIES:
            raise ValueError(f"scheduling_policy is {self.scheduling_policy!r}, not one of {SCHEDULING_POLICIES}")
        if self.num_preallocate_tokens < 0 or self.long_prefill_token_threshold < 0:
            raise ValueError("num_preallocate_tokens and long_prefill_token_threshold must not be negative")
        if self.num_blocks < 2 or self.block_tokens < 1 or self.max_model_tokens < 2 or self.max_sequences < 1:
            raise ValueError(f"nothing fits into {self}")
        if self.max_batched_tokens < self.max_sequences:
            raise ValueError(
                f"max_batched_tokens ({self.max_batched_tokens}) is below max_sequences ({self.max_sequences}): "
                "some running sequences would get no token"
            )
