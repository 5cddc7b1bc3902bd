"""A worker that answers every request with an error is left alone, and tried until it does not."""

from __future__ import annotations

from gateway.ejection import ERRORS_TO_EJECT, Standing
from tests.gateway.running_gateway import Running, running_gateway
from tests.gateway.scripted_worker import Exchange, ordinary, scripted_worker, until


async def failing(exchange: Exchange) -> None:
    await exchange.send_json(b'{"error": {"message": "CUDA error"}}', status="500 Internal Server Error")


async def unimplemented(exchange: Exchange) -> None:
    await exchange.send_json(b'{"error": {"message": "no"}}', status="501 Not Implemented")


async def ask_many(running: Running, count: int) -> list[int]:
    """Statuses of prompts that have nothing in common."""
    return [
        (await running.ask(messages=[{"role": "user", "content": f"{number} is the number. " * 40}])).status
        for number in range(count)
    ]


async def test_errors_in_a_row_eject_and_a_good_trial_brings_back():
    """No more than so many callers see its errors; what it answers is passed on as it is, and never tried elsewhere."""
    async with scripted_worker(failing) as bad, scripted_worker() as good, scripted_worker() as other:
        async with running_gateway(bad, good, other, probe_seconds=0.05) as running:
            statuses = await ask_many(running, 40)
            assert statuses.count(500) == ERRORS_TO_EJECT
            assert statuses[-10:] == [200] * 10
            assert running.count("backend_ejections_total", reason="erred") == 1
            bad.script = ordinary
            await until(lambda: running.gateway.fleet.worker("w1").up)
            assert set(await ask_many(running, 12)) == {200}


async def test_a_worker_that_lacks_something_is_not_broken():
    """501 says that it cannot do this; others of its requests may be fine."""
    async with scripted_worker(unimplemented) as worker, running_gateway(worker) as running:
        assert set(await ask_many(running, 2 * ERRORS_TO_EJECT)) == {501}
        assert running.gateway.fleet.worker("w1").up


def test_a_good_answer_between_errors_clears_them():
    """One caller's bad requests eject nobody who answers others."""
    standing = Standing()
    for now in range(10 * ERRORS_TO_EJECT):
        assert not standing.erred(float(now))
        if now % (ERRORS_TO_EJECT - 1) == 0:
            standing.answered(float(now))
    standing.answered(100.0)
    assert [standing.erred(100.0) for _ in range(ERRORS_TO_EJECT)] == [False] * (ERRORS_TO_EJECT - 1) + [True]
    assert standing.out
