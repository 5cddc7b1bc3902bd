"""Kernels in Triton, for any GPU that Triton supports: the launches. The device code is in the rooms beside this one.

With TRITON_INTERPRET=1 in the environment before Triton is imported they run on the CPU, slowly, for tests. That
interpreter computes bfloat16 wrongly without saying so, so that here it is refused.
"""

from __future__ import annotations

from math import e, log2

import torch
import triton
from torch import Tensor

from backends.kernels import triton_operations as operations
from backends.kernels.interface import LayerCache, Rotation, StepContext
from backends.kernels.triton_attention import attend, join_segments
from backends.kernels.triton_plan import (
    MOST_SEGMENTS,
    AttentionPlan,
    AttentionShape,
    DeviceSize,
    plan_attention,
    power_of_two,
)

INTERPRETED = not isinstance(attend, triton.JITFunction)
"""Whether this process runs kernels in Triton's interpreter."""

INTERPRETED_SIZE = DeviceSize(multiprocessors=1, shared_bytes=0)
SILU_TILE = 1024


class TritonKernels:
    """The operations of a step on a GPU, for float32, float16 and bfloat16.

    Grids depend on the shapes of a step alone and nothing is read back, so that a step can be captured in a CUDA graph.
    `segments` fixes into how many parts contexts are split (1 to 16); else `triton_plan` decides.
    """

    name = "triton"

    def __init__(self, device: torch.device, segments: int | None = None) -> None:
        self._size = INTERPRETED_SIZE if INTERPRETED else device_size(device)
        self._segments = segments
        self._scratch = torch.empty(0)

    def add_rms_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """See `Kernels.add_rms_norm`."""
        _check(residual, weight, *(() if update is None else (update,)))
        rows, width = residual.shape
        out = torch.empty(rows, width, dtype=weight.dtype, device=residual.device)
        added, adds = (residual, False) if update is None else (update, True)
        operations.add_rms_norm[(rows,)](residual, added, weight, out, epsilon, width, power_of_two(width), adds)
        return out

    def rotate_and_store(self, qkv: Tensor, rotation: Rotation, cache: LayerCache, slots: Tensor) -> Tensor:
        """See `Kernels.rotate_and_store`. A slot of -1 is padding: its token's keys and values are written nowhere."""
        _check(qkv, *rotation, *cache, slots)
        kv_heads, head_size = cache.keys.shape[-2:]
        heads, half = qkv.shape[1] // head_size - 2 * kv_heads, head_size // 2
        query = torch.empty(qkv.shape[0], heads, head_size, dtype=qkv.dtype, device=qkv.device)
        sizes = (heads, power_of_two(heads), kv_heads, power_of_two(kv_heads), half, power_of_two(half))
        operations.rotate_and_store[(qkv.shape[0],)](
            qkv, *rotation, slots, query, *cache, *sizes, power_of_two(kv_heads * head_size)
        )
        return query

    def paged_attention(self, query: Tensor, cache: LayerCache, step: StepContext) -> Tensor:
        """See `Kernels.paged_attention`."""
        query = query.contiguous()
        _check(query, *cache, step.block_tables, step.sequence_tokens, step.query_starts)
        block_tokens, kv_heads, head_size = cache.keys.shape[1:]
        rows, heads = query.shape[:2]
        shape = AttentionShape(rows, len(step.spans), step.longest_tokens, heads, kv_heads, head_size, query.itemsize)
        plan = plan_attention(shape, self._size, self._segments)
        out = torch.empty_like(query)
        scratch = self._segment_buffers(out, shape.padded_head, plan)
        attend[(plan.query_blocks, kv_heads, plan.segments)](
            out, *scratch, query, *cache, step.block_tables, step.sequence_tokens, step.query_starts,
            head_size**-0.5 * log2(e), len(step.spans), step.block_tables.stride(0), *cache.keys.stride()[:2],
            plan.segments, heads, shape.group, head_size, shape.padded_head, block_tokens, plan.query_tokens,
            plan.tile_rows, plan.tile_tokens, plan.segments > 1, num_warps=plan.warps, num_stages=plan.stages,
        )  # fmt: skip
        if plan.segments > 1:
            sizes = (plan.segments, head_size, shape.padded_head, MOST_SEGMENTS)
            join_segments[(rows * heads,)](out, *scratch, *sizes, num_warps=1)
        return out.flatten(1)

    def gated_silu(self, gate_up: Tensor) -> Tensor:
        """See `Kernels.gated_silu`."""
        _check(gate_up)
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
        tile = min(power_of_two(width), SILU_TILE)
        operations.gated_silu[(rows, triton.cdiv(width, tile))](gate_up, out, width, tile)
        return out

    def _segment_buffers(self, out: Tensor, padded_head: int, plan: AttentionPlan) -> tuple[Tensor, Tensor, Tensor]:
        """Room for the parts, maxima and sums of a split call; the same memory in every call. Unsplit: `out`.

        The first split makes room for the largest one that `triton_plan` can choose, which is never more programs than
        fill the device; only a number of segments fixed from outside can ask for more.
        """
        if plan.segments == 1:
            return out, out, out
        parts = out.shape[0] * out.shape[1] * plan.segments
        needed = parts * (padded_head + 2)
        if self._scratch.numel() < needed:
            largest = self._size.programs * plan.tile_rows * (padded_head + 2)
            self._scratch = torch.empty(max(needed, largest), dtype=torch.float32, device=out.device)
        first, second = parts * padded_head, parts * (padded_head + 1)
        return self._scratch[:first], self._scratch[first:second], self._scratch[second:needed]


def device_size(device: torch.device) -> DeviceSize:
    """The GPU's multiprocessors and shared memory; 64 KiB where this torch does not know (ROCm)."""
    properties = torch.cuda.get_device_properties(device)
    shared_bytes = getattr(properties, "shared_memory_per_block_optin", 64 << 10)
    return DeviceSize(properties.multi_processor_count, shared_bytes)


def _check(*tensors: Tensor) -> None:
    """The kernels count on elements that lie end to end."""
    for tensor in tensors:
        if not tensor.is_contiguous():
            raise ValueError(f"a kernel was given a tensor of shape {tuple(tensor.shape)} that is not contiguous")
        if INTERPRETED and tensor.dtype == torch.bfloat16:
            raise ValueError("Triton's interpreter computes bfloat16 wrongly: use float32 or float16 with it")
