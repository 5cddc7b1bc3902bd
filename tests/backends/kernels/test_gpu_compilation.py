"""The Triton kernels compile for GPUs: what the interpreter takes is not always Triton."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def shared_bytes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Shared memory of each kernel, compiled in a process of its own: this one may only interpret."""
    folder = tmp_path_factory.mktemp("triton")
    changes = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("gpu_compilation.py"))],
        env={**os.environ, **changes}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: int(size) for name, size in (line.split() for line in done.stdout.splitlines())}


def test_every_kernel_compiles(shared_bytes: dict[str, int]):
    """Attention for decode and prefill on a large and a small GPU, joining of segments, the small operations."""
    small = {"join_segments", "add_rms_norm", "rotate_and_store", "gated_silu"}
    assert set(shared_bytes) == {"hopper-decode", "hopper-prefill", "ada-decode", "ada-prefill"} | small


def test_tiles_fit_the_shared_memory(shared_bytes: dict[str, int]):
    """Of the GPU that they were planned for; a decode leaves room for the others of its multiprocessor."""
    assert shared_bytes["hopper-prefill"] <= 227 << 10
    assert shared_bytes["ada-prefill"] <= 99 << 10
    assert 4 * shared_bytes["hopper-decode"] <= 227 << 10
    assert 2 * shared_bytes["ada-decode"] <= 99 << 10
