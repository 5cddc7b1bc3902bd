"""Row D7: /readyz says no when no worker takes a request, and only then."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from urllib.error import HTTPError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.acceptance import RED_AFTER_SECONDS, Acceptance
from tests.gateway.limits.gateways import limited_gateway
from tests.gateway.running_gateway import build_request, running_gateway
from tests.gateway.scripted_worker import ordinary, reset_at_once, scripted_worker, silent, stream_then, until


def build_refusing(*times: float) -> Acceptance:
    acceptance = Acceptance()
    for now in times:
        acceptance.refused(now)
    return acceptance


def test_ten_seconds_without_an_answer_are_red() -> None:
    """Not before, and not without traffic."""
    assert not build_refusing().fails(100.0)
    assert not build_refusing(0.0, 5.0, 9.0).fails(9.9)
    assert build_refusing(0.0, 5.0, 9.0).fails(10.0)
    assert not build_refusing(0.0, 5.0, 9.0).fails(19.1 + RED_AFTER_SECONDS)


def test_one_answer_makes_it_green() -> None:
    """And ten seconds must pass again."""
    acceptance = build_refusing(0.0, 9.0)
    acceptance.accepted()
    assert not acceptance.fails(10.0)
    acceptance.refused(11.0)
    assert not acceptance.fails(20.0)
    assert build_refusing(0.0, 100.0, 105.0).fails(109.0) is False


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 20.0)), max_size=40))
def test_red_means_only_refusals_for_ten_seconds(events) -> None:
    """Against the whole history."""
    acceptance, now, refusals = Acceptance(), 0.0, []
    for accepted, wait in events:
        now += wait
        if accepted:
            acceptance.accepted()
            refusals.clear()
        else:
            acceptance.refused(now)
            refusals.append(now)
        if acceptance.fails(now):
            assert refusals
            assert now - refusals[0] >= RED_AFTER_SECONDS
            assert now - refusals[-1] <= RED_AFTER_SECONDS


def get(port: int, path: str) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())


async def test_readyz_is_red_while_no_worker_takes_a_request() -> None:
    """All hang, or reset; green again with the first answer. /livez stays: nothing is wrong with the gateway."""
    async with scripted_worker(reset_at_once) as worker, running_gateway(worker, first_byte=0.2) as running:
        port = running.gateway.admin_port
        assert (await running.ask()).status == 502
        acceptance = running.gateway.attempts.retries.acceptance
        assert acceptance.refused_since is not None
        acceptance.refused_since -= RED_AFTER_SECONDS
        status, body = await asyncio.to_thread(get, port, "/readyz")
        assert (status, body["waiting_for"]) == (503, ["a worker that takes requests"])
        assert (await asyncio.to_thread(get, port, "/livez"))[0] == 200
        worker.script = silent
        assert (await running.ask(stream=True)).status == 504
        worker.scripts = [ordinary]
        assert (await running.ask()).status == 200
        assert (await asyncio.to_thread(get, port, "/readyz"))[0] == 200


async def test_livez_is_red_while_a_task_stays_dead() -> None:
    """Row D6: a prober that cannot live is named, and green again when it can."""
    async with scripted_worker() as worker, running_gateway(worker, probe_seconds=0.05) as running:
        gateway, port = running.gateway, running.gateway.admin_port
        look = gateway.probes._prober.look

        async def fails(*_: object, **__: object) -> None:
            raise ValueError

        gateway.probes._prober.look = fails  # type: ignore[method-assign,assignment]
        await until(lambda: running.count("task_restarts_total", task="probe") >= 1)
        gateway.tasks._down_since["probe w1"] = time.monotonic() - 5.0
        status, body = await asyncio.to_thread(get, port, "/livez")
        assert (status, body["dead_tasks"]) == (503, ["probe w1"])
        gateway.probes._prober.look = look  # type: ignore[method-assign]
        await until(lambda: not gateway.tasks.dead(), 15.0)
        assert (await asyncio.to_thread(get, port, "/livez"))[0] == 200
        assert (await running.ask()).status == 200


@pytest.mark.parametrize("moves", [True, False])
async def test_a_full_fleet_at_work_is_no_fault(moves: bool) -> None:
    """Row D7: under load a gateway that said it is not ready would be sent nothing while room comes free; one whose
    workers are full of what they hang on says so."""
    script = stream_then(2, silent) if moves else silent
    async with scripted_worker(script) as worker, limited_gateway(worker, room=1, queue_seconds=0) as running:
        stream = asyncio.create_task(running.send(build_request(key="a-key", stream=True)))
        await until(lambda: len(worker.exchanges) == 1)
        attempts = running.gateway.attempts
        await until(lambda: attempts._upstream.moves(0.0) is moves)
        assert (await running.send(build_request(key="a-key"))).status == 503
        assert (attempts.retries.acceptance.refused_since is None) is moves
        stream.cancel()
        await until(running.settled)
