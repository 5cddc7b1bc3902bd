"""Compiles the Triton kernels for GPUs that need not be there; run as a program, without Triton's interpreter.

The interpreter is plain Python and takes what the compiler refuses. Prints a line `name shared-memory-bytes` for each.
"""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from backends.kernels import triton_attention as attention
from backends.kernels import triton_operations as operations
from backends.kernels.triton_plan import MOST_SEGMENTS, AttentionShape, DeviceSize, plan_attention

HOPPER = GPUTarget("cuda", 90, 32), DeviceSize(multiprocessors=132, shared_bytes=227 << 10)
ADA = GPUTarget("cuda", 89, 32), DeviceSize(multiprocessors=128, shared_bytes=99 << 10)
QWEN = {"heads": 28, "kv_heads": 4, "head_size": 128, "item_bytes": 2}
DECODE, PREFILL = AttentionShape(2, 2, 8192, **QWEN), AttentionShape(2048, 1, 2048, **QWEN)
TYPES = {
    "parts": "*fp32", "maxima": "*fp32", "sums": "*fp32", "residual": "*fp32", "cosines": "*fp32", "sines": "*fp32",
    "block_tables": "*i32", "sequence_tokens": "*i32", "query_starts": "*i32", "slots": "*i64",
    "scale": "fp32", "epsilon": "fp32",
    "sequences": "i32", "table_stride": "i32", "block_stride": "i32", "slot_stride": "i32", "segments": "i32",
}  # fmt: skip
"""Of the parameters that are not tensors of the model's own dtype."""


def compile_kernel(kernel: Any, target: GPUTarget, constants: dict[str, int], **options: int) -> int:
    """Shared memory of the compiled kernel, in bytes."""
    names = [parameter.name for parameter in kernel.params]
    signature = {name: "constexpr" if name in constants else TYPES.get(name, "*bf16") for name in names}
    aligned = {
        (place,): [["tt.divisibility", 16]] for place, name in enumerate(names) if signature[name].startswith("*")
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=target, options=options).metadata.shared


def compile_attention(shape: AttentionShape, target: GPUTarget, size: DeviceSize) -> int:
    plan = plan_attention(shape, size)
    constants = {
        "heads": shape.heads, "group": shape.group, "head_size": shape.head_size, "padded_head": shape.padded_head,
        "block_tokens": 16, "query_tokens": plan.query_tokens, "tile_rows": plan.tile_rows,
        "tile_tokens": plan.tile_tokens, "splits": plan.segments > 1,
    }  # fmt: skip
    return compile_kernel(attention.attend, target, constants, num_warps=plan.warps, num_stages=plan.stages)


def main() -> None:
    for name, (target, size) in {"hopper": HOPPER, "ada": ADA}.items():
        for step, shape in {"decode": DECODE, "prefill": PREFILL}.items():
            print(f"{name}-{step}", compile_attention(shape, target, size))
    heads = {"heads": 28, "padded_heads": 32, "kv_heads": 4, "padded_kv_heads": 4}
    halves = {"half": 64, "padded_half": 64, "padded_kv_width": 512}
    joined = {"head_size": 80, "padded_head": 128, "most_segments": MOST_SEGMENTS}
    norm = {"width": 3584, "padded_width": 4096, "adds": True}
    for kernel, constants in (
        (attention.join_segments, joined),
        (operations.add_rms_norm, norm),
        (operations.rotate_and_store, heads | halves),
        (operations.gated_silu, {"width": 18944, "tile": 1024}),
    ):
        print(kernel.fn.__name__, compile_kernel(kernel, HOPPER[0], constants))


if __name__ == "__main__":
    main()
