"""What a loop does not say of a client's socket, and what it does not set there."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import sys
from typing import Final

MOST_UNSENT_BYTES: Final = 128 * 1024
"""Of an answer in the kernel, beside what is on its way; the rest stays at the worker."""

_NOT_SENT_LOW_WATER: Final = 25
"""TCP_NOTSENT_LOWAT, which `socket` has no name for before Python 3.12."""

_LEFT: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def keep_little_unsent(transport: asyncio.Transport) -> None:
    """A kernel takes megabytes for a client that does not read, which count as the process's own in a container."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, _NOT_SENT_LOW_WATER, MOST_UNSENT_BYTES)


def has_left(transport: asyncio.Transport) -> bool:
    """Whether the other side has closed, told without reading."""
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):
        poll.register(transport.get_extra_info("socket").fileno(), _LEFT)
        return bool(poll.poll(0))
    return True
