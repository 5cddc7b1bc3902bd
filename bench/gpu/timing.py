"""How long attention takes on a GPU, and how long it must: the same device's copy bandwidth and matrix peak.

A call is captured in a CUDA graph, so that Python's time is not in it, and replayed with a cold L2 cache: before each
replay a buffer several times its size is read (written, it would have to be saved to memory in the time measured). All
figures are medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch

from backends.kernels.triton_paged import TritonKernels
from backends.kernels.triton_plan import MOST_SEGMENTS
from bench.gpu.cases import Case, Model, build_case

DECODES = ((1, 8192), (1, 32_768), (8, 2048), (8, 8192), (32, 4096), (64, 2048), (64, 8192), (256, 1024))
"""Sequences, and tokens that each has."""

PREFILLS = ((512, 512), (2048, 2048), (4096, 4096), (16_384, 16_384), (64, 2048), (512, 8704))
"""New tokens of one sequence, and all of its tokens."""

SPLITS = (1, 2, 4, 8, MOST_SEGMENTS)
FLUSH_BYTES = 512 << 20
COPY_BYTES = 1 << 30
MATRIX_SIZE = 8192


class Bounds(NamedTuple):
    """What this device does in the same run: bytes read and written, floating-point operations, both per second."""

    bandwidth: float
    peak: float


class Row(NamedTuple):
    """One shape: its time, the work that it cannot do without, and how near to the device's bound that comes."""

    model: str
    shape: str
    advice: str
    seconds: float
    work: float
    bound: float

    @property
    def share(self) -> float:
        """Of the bound, 0 to 1."""
        return self.work / self.seconds / self.bound


class Timer:
    """Times a call as said at the top of this file, `repeats` times."""

    device = "cuda"

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._buffer = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")

    def seconds(self, call: Callable[[], object]) -> float:
        """The median."""
        call()  # compiles, and allocates what stays
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return median(self._once(graph) for _ in range(self._repeats))

    def _once(self, graph: torch.cuda.CUDAGraph) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._buffer.sum()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def measure_bounds(timer: Timer, dtype: torch.dtype) -> Bounds:
    """A large copy, which reads and writes; a large product of square matrices."""
    source, target = (torch.empty(COPY_BYTES, dtype=torch.int8, device="cuda") for _ in range(2))
    copying = timer.seconds(lambda: target.copy_(source))
    left, right = (torch.randn(MATRIX_SIZE, MATRIX_SIZE, device="cuda").to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    multiplying = timer.seconds(lambda: torch.mm(left, right, out=product))
    return Bounds(2 * COPY_BYTES / copying, 2 * MATRIX_SIZE**3 / multiplying)


def measure_decode(timer: Timer, model: Model, sequences: int, tokens: int, dtype: torch.dtype, bounds: Bounds) -> Row:
    """Against the bandwidth: keys and values are read once, queries too, results written."""
    case = build_case(model, [1] * sequences, [tokens] * sequences, dtype, timer.device)
    seconds, by_split = _by_rule_and_by_split(timer, case)
    cache = 2 * model.kv_heads * model.head_size * dtype.itemsize * sequences * tokens
    ends = 2 * model.heads * model.head_size * dtype.itemsize * sequences
    name = f"decode {sequences} x {tokens} ({cache / 2**20:.0f} MiB)"
    return Row(model.name, name, _advice(seconds, by_split), seconds, cache + ends, bounds.bandwidth)


def measure_prefill(timer: Timer, model: Model, new: int, total: int, dtype: torch.dtype, bounds: Bounds) -> Row:
    """Against the matrix peak: two products for every pair of a new token and a token that it sees."""
    case = build_case(model, [new], [total], dtype, timer.device)
    seconds, by_split = _by_rule_and_by_split(timer, case)
    pairs = new * (total - new + (new + 1) / 2)
    work = 4 * model.heads * model.head_size * pairs
    return Row(model.name, f"prefill {new} of {total}", _advice(seconds, by_split), seconds, work, bounds.peak)


def _by_rule_and_by_split(timer: Timer, case: Case) -> tuple[float, dict[int, float]]:
    seconds = [_attention_seconds(timer, case, segments) for segments in (None, *SPLITS)]
    return seconds[0], dict(zip(SPLITS, seconds[1:]))


def _attention_seconds(timer: Timer, case: Case, segments: int | None) -> float:
    kernels = TritonKernels(torch.device(timer.device), segments)
    return timer.seconds(lambda: kernels.paged_attention(case.query, case.cache, case.step))


def _advice(seconds: float, by_split: dict[int, float]) -> str:
    """How the rule's number of segments compares with the best fixed one."""
    best = min(by_split, key=by_split.__getitem__)
    return f"best fixed split {best}: {by_split[best] / seconds:.2f} of the rule's time"


def measure_all(timer: Timer, models: Sequence[Model], dtype: torch.dtype, bounds: Bounds) -> list[Row]:
    """Every decode and every prefill of every model."""
    decodes = [measure_decode(timer, model, *shape, dtype, bounds) for model in models for shape in DECODES]
    prefills = [measure_prefill(timer, model, *shape, dtype, bounds) for model in models for shape in PREFILLS]
    return decodes + prefills
