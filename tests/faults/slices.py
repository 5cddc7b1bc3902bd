"""What a fault costs in time: slices of the same load with the fault and without, in turn within the minute."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.client import Answer, Client, failed, quantile

ROUNDS = 7
SLICE_SECONDS = 3.0
CALLERS = 100
PAUSE_SECONDS = 0.4


async def visit(clients: Sequence[Client], seconds: float = SLICE_SECONDS, callers: int = CALLERS) -> list[Answer]:
    """A hundred callers over these clients who ask, pause and ask again: some 250 requests a second, which queue
    nowhere. Every second one is a stream. They begin spread over a pause, so that they do not come in waves.
    """
    over, answers = time.monotonic() + seconds, []

    async def one(number: int) -> None:
        client = clients[number % len(clients)]
        await asyncio.sleep(PAUSE_SECONDS * number / callers)
        while time.monotonic() < over:
            answers.append(await client.ask(stream=number // len(clients) % 2 == 0))
            await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.gather(*(one(number) for number in range(callers)))
    return answers


@dataclass
class Slices:
    """The answers of each round: without the fault, then with it."""

    calm: list[list[Answer]] = field(default_factory=list)
    hit: list[list[Answer]] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """p99 with the fault, in multiples of the same round's without it. A p99 is the sixth or so from the top of a
        slice: what else the machine does in a moment decides one of them, and the median of seven hardly.
        """
        return [_p99(hit) / _p99(calm) for calm, hit in zip(self.calm, self.hit, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios())

    @property
    def errors(self) -> int:
        return sum(len(failed(answers)) for answers in (*self.calm, *self.hit))

    def __len__(self) -> int:
        return sum(map(len, (*self.calm, *self.hit)))

    def __str__(self) -> str:
        ratios, calm_ms = self.ratios(), 1000 * statistics.median(map(_p99, self.calm))
        spread = f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} slices; {calm_ms:.0f} ms without"
        return f"{self.errors} errors of {len(self)}, p99 {self.ratio:.2f} x ({spread})"


def _p99(answers: Sequence[Answer]) -> float:
    return quantile([answer.seconds for answer in answers], 0.99)
