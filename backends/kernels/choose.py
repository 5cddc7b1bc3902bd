"""Which kernels run: Triton's on a GPU, C++ where it can be built, else the reference, and then it says so once."""

from __future__ import annotations

import logging

import torch

from backends.kernels.cpu import CpuKernels
from backends.kernels.interface import Kernels
from backends.kernels.reference import ReferenceKernels

logger = logging.getLogger(__name__)


def choose_kernels(device: str = "cpu") -> Kernels:
    """The fastest kernels that this machine has for tensors on `device`."""
    if device != "cpu":
        return _gpu_kernels(device)
    try:
        return CpuKernels()
    except OSError as error:
        logger.warning("CPU kernels are not available, running plain torch, several times slower: %s", error)
        return ReferenceKernels()


def _gpu_kernels(device: str) -> Kernels:
    # Triton is an optional dependency, and slow to import.
    try:
        from backends.kernels.triton_paged import TritonKernels
    except ImportError:
        logger.warning("Triton is not installed, running plain torch on the GPU, many times slower: pip install triton")
        return ReferenceKernels()
    return TritonKernels(torch.device(device))
