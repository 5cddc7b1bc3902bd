"""Whether bringing blocks beats computing them: what both cost, measured as they happen."""

from __future__ import annotations

from collections.abc import Callable

WEIGHT = 0.2
"""Of the newest measurement in a moving average."""

FEWEST_PREFILL_TOKENS = 128
"""A step of fewer tokens is mostly decoding, which says nothing about prefill."""

START_PREFILL_TOKENS_PER_SECOND = 500.0
START_BYTES_PER_SECOND = 200e6
START_WAIT_SECONDS = 0.002
"""What is believed before anything was measured: that bringing is worth a try."""

EXPLORE_SECONDS = 5.0
EXPLORE_BLOCKS = 4
"""A place that was found too slow is tried again that often, with so few blocks, else it could never recover."""


class Rates:
    """What computing costs: the prefill rate of the steps so far."""

    def __init__(self) -> None:
        self.prefill_tokens_per_second = START_PREFILL_TOKENS_PER_SECOND
        self._measured = False

    def stepped(self, computed_tokens: int, seconds: float) -> None:
        """A step took so long. Steps without much prefill are no measurement."""
        if computed_tokens < FEWEST_PREFILL_TOKENS or seconds <= 0.0:
            return
        rate = computed_tokens / seconds
        weight = WEIGHT if self._measured else 1.0
        self.prefill_tokens_per_second += weight * (rate - self.prefill_tokens_per_second)
        self._measured = True

    def compute_seconds(self, tokens: int) -> float:
        """What computing so many tokens would take."""
        return tokens / self.prefill_tokens_per_second


class Transfer:
    """What bringing costs from one place: the wait before the first byte, then so many bytes a second.

    Measured in the thread that brings, read in the engine's; a torn pair of floats does no harm.
    """

    def __init__(self) -> None:
        self.wait_seconds = START_WAIT_SECONDS
        self.bytes_per_second = START_BYTES_PER_SECOND

    def waited(self, seconds: float) -> None:
        """So long from the order to its begin."""
        self.wait_seconds += WEIGHT * (seconds - self.wait_seconds)

    def hung(self, seconds: float) -> None:
        """So long after the order nothing had come: the wait is that long at least. Told by the engine's thread."""
        self.wait_seconds = max(self.wait_seconds, seconds)

    def brought(self, size_bytes: int, seconds: float) -> None:
        """So many bytes came within so long."""
        # Averaged as time per byte: one very fast transfer must not outweigh many slow ones.
        per_byte = 1.0 / self.bytes_per_second
        self.bytes_per_second = 1.0 / (per_byte + WEIGHT * (max(seconds, 1e-9) / size_bytes - per_byte))

    def seconds(self, size_bytes: int) -> float:
        """What so many bytes would take."""
        return self.wait_seconds + size_bytes / self.bytes_per_second


class Worth:
    """The rule for one place: how many blocks to bring from there."""

    def __init__(self, rates: Rates, transfer: Transfer, clock: Callable[[], float]) -> None:
        self._rates = rates
        self._transfer = transfer
        self._clock = clock
        self._explore_from = float("-inf")

    def blocks(self, count: int, *, block_bytes: int, block_tokens: int) -> int:
        """All `count` blocks where that beats computing them, else none, or now and then a few to measure anew."""
        bring, compute = self._transfer.seconds(count * block_bytes), self._rates.compute_seconds(count * block_tokens)
        now = self._clock()
        if bring < compute:
            self._explore_from = now + EXPLORE_SECONDS
            return count
        if now < self._explore_from:
            return 0
        self._explore_from = now + EXPLORE_SECONDS
        return min(count, EXPLORE_BLOCKS)
