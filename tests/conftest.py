"""Settings of every test run."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Triton decides when it is first imported whether kernels run in its interpreter, and any library may import it. Every
# process of the tests, an xdist worker too, loads this file before anything else of them.
os.environ.setdefault("TRITON_INTERPRET", "1")
# The tests are about what a CPU computes, on a host with a GPU as well: bench/gpu_kernels.py is the check of a GPU.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

settings.register_profile("homing", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("homing")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(id, smoke, seconds): shows a row of tests/faults.yml")
