"""Which kernels run here: the C++ ones where they can be built, else the reference, and then it says so once."""

from __future__ import annotations

import logging

from backends.kernels.cpu import CpuKernels
from backends.kernels.interface import Kernels
from backends.kernels.reference import ReferenceKernels

logger = logging.getLogger(__name__)


def choose_kernels() -> Kernels:
    """The fastest kernels that this machine can run."""
    try:
        return CpuKernels()
    except OSError as error:
        logger.warning("CPU kernels are not available, running plain torch, several times slower: %s", error)
        return ReferenceKernels()
