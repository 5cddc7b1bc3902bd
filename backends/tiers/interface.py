"""What the scheduler may ask of the tiers: bring blocks back, and say how far that is. It never waits for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from backends.hashing import BlockKey


class FetchState(Enum):
    """vLLM's lookup states: nothing worth bringing, on its way, here."""

    MISS = "miss"
    PENDING = "pending"
    HIT = "hit"


class Fetched(NamedTuple):
    """How a fetch stands. With HIT, `payloads` has the verified K/V of the first blocks asked for, in chain order.

    A payload is what `Runner.read_blocks` gave for that block, byte for byte. `source` names the slowest tier that
    took part ("host", "disk", "redis").
    """

    state: FetchState
    payloads: Sequence[bytes | memoryview] = ()
    source: str = "host"


MISS = Fetched(FetchState.MISS)
PENDING = Fetched(FetchState.PENDING)


class Offload(Protocol):
    """The tiers together. Engine thread only; nothing here blocks on a disk or a network, except `start` and `wait`.

    The engine calls `start` once its runner has memory, `stepped` after each step, `wait` when a step had nothing to
    compute because everybody who waits has a fetch on its way. What never `brings` anything is not asked.
    """

    @property
    def brings(self) -> bool:
        """Whether a fetch may ever bring something."""

    def start(self) -> None:
        """The runner's memory is there: open the tiers, take stock of what they hold. ValueError for what cannot be."""

    def fetch(self, request_id: str, keys: Sequence[BlockKey]) -> Fetched:
        """Start bringing the longest beginning of `keys` that the tiers hold, or say how that stands.

        `keys` are the blocks of one request, in chain order, from the first one that the pool lacks. The first call
        for a request starts the fetch, the later ones (with the same first key) ask after it. A fetch that would take
        longer than computing the blocks, that failed, or that read something broken, is a MISS, for good; one that
        hangs ends with what has come by then. With another first key the fetch starts anew.
        """

    def forget(self, request_id: str) -> None:
        """The request was admitted or is gone: what was brought for it may go."""

    def seen(self, keys: Sequence[BlockKey]) -> None:
        """An admitted request found these in the pool: what is asked for again and again is worth keeping."""

    def stepped(self, computed_tokens: int, seconds: float) -> None:
        """A step is over; what computing costs is measured by it. Told in order, also when nothing was computed."""

    def wait(self, timeout_seconds: float) -> None:
        """Return when a fetch got on, at the latest after `timeout_seconds`; only for when nothing else is to do."""

    def reset(self) -> None:
        """Forget everything in every tier, and what is on its way."""

    def close(self) -> None:
        """Write what still waits to be written, for a few seconds at most, and end the threads."""


class NoOffload:
    """No tiers: everything is a miss."""

    brings = False

    def start(self) -> None:
        """Nothing."""

    def fetch(self, request_id: str, keys: Sequence[BlockKey]) -> Fetched:  # noqa: ARG002 - the protocol's
        """A miss."""
        return MISS

    def forget(self, request_id: str) -> None:
        """Nothing."""

    def seen(self, keys: Sequence[BlockKey]) -> None:
        """Nothing."""

    def stepped(self, computed_tokens: int, seconds: float) -> None:
        """Nothing."""

    def wait(self, timeout_seconds: float) -> None:
        """Nothing to wait for."""

    def reset(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


NO_OFFLOAD = NoOffload()
