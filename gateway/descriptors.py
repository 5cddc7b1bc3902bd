"""How many files and sockets this process may have open, and how many of them are for clients."""

from __future__ import annotations

import resource
from typing import Final

LEAST_RESERVE: Final = 64
"""Kept for what a process has open anyway, for connections kept to workers, probes, the admin port and logs."""


def raise_limit() -> int:
    """Take as many descriptors as the operator allows (the hard limit); the number, in force from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def room_for_clients() -> int:
    """Descriptors for clients and the requests under way for them: nine tenths of the limit in force."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - max(LEAST_RESERVE, soft // 10))
