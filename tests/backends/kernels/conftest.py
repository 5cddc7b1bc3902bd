"""Every set of kernels that runs on this machine, for tests that all of them must pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from backends.kernels.cpu import CpuKernels
from backends.kernels.interface import Kernels
from backends.kernels.reference import ReferenceKernels


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["reference", "cpu"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """One implementation after the other; without a compiler the reference alone."""
    if request.param == "reference":
        return ReferenceKernels()
    try:
        return CpuKernels()
    except OSError as error:
        pytest.skip(str(error))
