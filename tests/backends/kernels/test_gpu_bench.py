"""The bench of the GPU kernels, as far as it goes without a GPU: its definition, its rule, its refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from backends.kernels.interface import LayerCache
from backends.kernels.reference import ReferenceKernels
from bench.gpu.cases import SMOLLM, Case, attention_by_definition, build_case

ROOT = Path(__file__).parents[3]

checks = pytest.importorskip("bench.gpu.checks", reason="triton is not installed")
timing = pytest.importorskip("bench.gpu.timing", reason="triton is not installed")


class OneMillisecond:
    """A timer on the CPU to which every call takes a millisecond."""

    device = "cpu"

    def seconds(self, call: Callable[[], object]) -> float:
        call()
        return 1e-3


def build_small_case() -> Case:
    return build_case(SMOLLM, [1, 5], [40, 18], torch.float32, "cpu")


def test_its_definition_is_the_reference_s():
    """Over the same poisoned cache."""
    case = build_small_case()
    got = ReferenceKernels().paged_attention(case.query, case.cache, case.step)
    assert case.cache.keys.isnan().any()
    assert (got - attention_by_definition(case, torch.float64)).abs().max() <= 2e-6


def test_a_kernel_that_is_right_passes():
    """One model's attention, the rule's split and a fixed one."""
    results = list(checks._check_attention(SMOLLM, torch.float32, "cpu", short=True))
    assert len(results) == 4
    assert all(result.passed for result in results)


@pytest.mark.parametrize("wrong", [float("nan"), 1e-4])
def test_a_kernel_that_is_wrong_fails(wrong: float):
    """By one NaN, or by more than float32's rounding in one number."""
    case = build_small_case()
    truth, plain = attention_by_definition(case, torch.float64), attention_by_definition(case, torch.float32)
    got = plain.clone()
    assert checks.compare("right", got, plain, truth).passed
    got[0, 0] += wrong
    assert not checks.compare("wrong", got, plain, truth).passed


def test_the_plain_run_sees_what_the_cache_holds():
    """A changed value changes it, so that it is no constant that everything agrees with."""
    case = build_small_case()
    changed = LayerCache(case.cache.keys, case.cache.values * 2)
    assert not torch.allclose(
        attention_by_definition(case, torch.float32),
        attention_by_definition(case._replace(cache=changed), torch.float32),
    )


def test_a_decode_is_measured_against_the_bandwidth():
    """Keys and values of 20 tokens, the query and the result of one: each read or written once."""
    bounds = timing.Bounds(bandwidth=1e9, peak=1e12)
    row = timing.measure_decode(OneMillisecond(), SMOLLM, 1, 20, torch.float32, bounds)
    assert row.work == 20 * 2 * 3 * 64 * 4 + 2 * 9 * 64 * 4
    assert row.share == pytest.approx(row.work / 1e-3 / 1e9)


def test_a_prefill_is_measured_against_the_matrix_peak():
    """Two products of 64 numbers for each of nine heads and each pair: 3 tokens over 2 cached ones see 3, 4 and 5."""
    bounds = timing.Bounds(bandwidth=1e9, peak=1e12)
    row = timing.measure_prefill(OneMillisecond(), SMOLLM, 3, 5, torch.float32, bounds)
    assert row.work == (3 + 4 + 5) * 9 * 64 * 2 * 2
    assert row.share == pytest.approx(row.work / 1e-3 / 1e12)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_exits_2():
    """One line, with what can be done."""
    done = subprocess.run(
        [sys.executable, "bench/gpu_kernels.py"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == (
        "no GPU here, nothing was measured; --interpret checks small shapes in Triton's interpreter\n"
    )
