"""Every set of kernels that runs on this machine, for tests that all of them must pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from backends.kernels.cpu import CpuKernels
from backends.kernels.instruction_sets import INSTRUCTION_SETS
from backends.kernels.interface import Kernels
from backends.kernels.reference import ReferenceKernels


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build_cpu_kernels(instruction_set: str | None = None, *, parts: int | None = None) -> CpuKernels:
    """The C++ kernels for one instruction set, the best if not given; skips the test where they cannot be had."""
    try:
        return CpuKernels(instruction_set, parts=parts)
    except OSError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["reference", *(each.name for each in INSTRUCTION_SETS)])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """One implementation after the other; without a compiler, or on a lesser machine, those that there are."""
    return ReferenceKernels() if request.param == "reference" else build_cpu_kernels(request.param)
