"""Row E15: requests whose callers say how long they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.faults.attempts import attempts_of, by_nonce
from tests.faults.client import Answer, Client, quantile
from tests.faults.stage import GatewayProcess, Stage, until

PATIENCE_SECONDS = 0.3
LATE_MS = 100.0


async def ask(client: Client, count: int) -> list[Answer]:
    """So many requests of so much patience, ten at a time, streams and not."""
    line, answers = f"x-request-timeout: {PATIENCE_SECONDS}\r\n", list[Answer]()
    for _ in range(count // 10):
        answers += await asyncio.gather(*(client.ask(stream=n % 2 == 0, headers=line) for n in range(10)))
    return answers


async def show(stage: Stage, gateway: GatewayProcess, phase: str, answers: Sequence[Answer]) -> bool:
    """How late the work at workers stopped, and that everybody was told, after how much more than his patience."""

    async def nothing_open() -> bool:
        return await gateway.metric("homing_requests_in_flight") == 0

    await until(nothing_open, seconds=5)
    tries = by_nonce(run for worker in stage.workers for run in attempts_of(_lines(stage, worker.name)))
    late = [1000 * (run.ended - a.began - PATIENCE_SECONDS) for a in answers for run in tries.get(a.nonce, [])]
    told = sum(
        (answer.error or {}).get("code") == "deadline_passed" or answer.trouble is not None for answer in answers
    )
    longest = 1000 * (max(answer.seconds for answer in answers) - PATIENCE_SECONDS)
    sent = f"work stops {quantile(late, 0.99):.0f} ms after it (p99)" if late else "0 sent to a worker"
    stage.row.note(f"{phase}: {told} of {len(answers)} told {longest:.0f} ms after it at most, {sent}")
    return told == len(answers) and longest <= LATE_MS and (not late or quantile(late, 0.99) <= LATE_MS)


def _lines(stage: Stage, name: str) -> list[dict]:
    return [line for line in stage.attempts() if line["worker"] == name]


@pytest.mark.row("E15", seconds=180)
async def test_work_stops_when_its_callers_patience_is_over(stage: Stage) -> None:
    """Before the first byte, in mid-stream, and in the queue, where it is never sent; workers hear what is left."""
    workers = await stage.start_workers(2, mode="hang")
    gateway = await stage.gateway(timeouts={"first_byte_seconds": 20}, models={"m": {"max_in_flight": 5}})
    client = stage.client(gateway)
    met = await show(stage, gateway, "before the first byte", await ask(client, 200))
    for worker in workers:
        await worker.set(mode="ok", tokens=200, gap_seconds=0.02)
    met &= await show(stage, gateway, "mid-answer", await ask(client, 200))
    heard = [float(line["timeout"]) for line in stage.attempts() if line.get("timeout")]
    filling = [asyncio.create_task(client.ask(stream=True)) for _ in range(10)]

    async def full() -> bool:
        return sum([(await worker.state())["live"] for worker in workers]) == len(filling)

    await until(full)
    met &= await show(stage, gateway, "queued", waiting := await ask(client, 40))
    await asyncio.gather(*filling)
    sent = {line.get("nonce") for line in stage.attempts()} & {answer.nonce for answer in waiting}
    good = len(heard) == 400 and all(0 < seconds <= PATIENCE_SECONDS for seconds in heard)
    stage.row.holds(f"{len(heard)} of 400 workers' requests say what is left", met and good and not sent)
