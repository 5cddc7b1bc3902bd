"""What may happen to a worker that others must hear of, and who hears it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from gateway.worker_state import Worker


class UnknownWorker(KeyError):
    """A worker that is not, or no longer, in the fleet."""


class ChangeKind(Enum):
    """What may happen to a worker that others must hear of."""

    JOINED = "joined"
    LEFT = "left"
    UP = "up"
    DOWN = "down"
    DRAINING = "draining"
    RESUMED = "resumed"
    RESTARTED = "restarted"
    MODELS = "models"


class Change(NamedTuple):
    """One thing that happened to one worker, with a reason where there is one."""

    kind: ChangeKind
    worker: Worker
    reason: str = ""


Listener = Callable[[Change], None]
