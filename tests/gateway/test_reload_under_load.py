"""Configurations follow each other while requests come: none fails. `make reloads` runs the long form."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from gateway.reload import APPLIED
from tests.gateway.builders import key_line
from tests.gateway.reloading import build_data, gateway_from, replace_data, status_with
from tests.gateway.running_gateway import Running
from tests.gateway.scripted_worker import ScriptedWorker, scripted_worker, until

RELOADS = int(os.environ.get("HOMING_TEST_RELOADS", "6"))
REQUESTS = int(os.environ.get("HOMING_TEST_REQUESTS", "150"))
CALLERS = 4
REFUSED_WITHIN_SECONDS = 1.0 if "HOMING_TEST_RELOADS" in os.environ else 5.0


async def load(running: Running, requests: int, failures: list[int]) -> None:
    for number in range(requests):
        answer = await running.ask(key="acme-key", stream=bool(number % 2))
        if answer.status != 200 or not answer.whole:
            failures.append(answer.status)


def varied(number: int, first: ScriptedWorker, second: ScriptedWorker) -> dict:
    """The configuration of one round: the first worker and `acme` stay, all else changes."""
    data = build_data(first.port, *([second.port] if number % 2 else []))
    data["models"]["m"]["backends"]["static"][0]["weight"] = 1 + number % 3
    data["models"]["m"]["policy"] = ("homing", "ring", "least_loaded")[number % 3]
    data["tenants"][f"t{number}"] = {"keys": [key_line(f"key-{number}")]}
    data["tenants"]["acme"]["policy"] = {"name": "homing", "ring_slack_seconds": number % 5}
    return data


async def test_no_request_fails_while_configurations_follow_each_other(tmp_path: Path):
    """H2: tenants, weights, workers and policies change at each; requests in flight end at workers that leave."""
    path = tmp_path / "homing.yaml"
    async with scripted_worker() as first, scripted_worker() as second:
        replace_data(path, build_data(first.port, second.port))
        async with gateway_from(path) as running:
            failures: list[int] = []
            loads = [asyncio.create_task(load(running, REQUESTS // CALLERS, failures)) for _ in range(CALLERS)]
            rounds = 0
            while rounds < RELOADS or not all(task.done() for task in loads):
                rounds += 1
                replace_data(path, varied(rounds, first, second))
                await running.gateway.reloader.reload()
                assert f"t{rounds}" in running.gateway.tenants.names
                running.gateway.fleet.check_integrity()
            await asyncio.gather(*loads)
            print(f"reloads under load: {rounds} taken, {len(failures)} of {REQUESTS} requests failed")
            assert failures == []
            assert running.gateway.reloader.counts[APPLIED] >= RELOADS
            await until(running.settled)


async def test_a_removed_tenant_is_soon_refused(tmp_path: Path):
    """H2: from the moment the file is in place, without anybody's asking; within 1 s in the long form."""
    path = tmp_path / "homing.yaml"
    async with scripted_worker() as worker:
        data = build_data(worker.port)
        replace_data(path, {**data, "tenants": {**data["tenants"], "gone": {"keys": [key_line("gone-key")]}}})
        async with gateway_from(path) as running:
            assert await status_with(running, "gone-key") == 200
            replace_data(path, data)
            began = time.monotonic()
            while await status_with(running, "gone-key") == 200:
                assert time.monotonic() - began < REFUSED_WITHIN_SECONDS
                await asyncio.sleep(0.01)
            print(f"a removed tenant was refused after {time.monotonic() - began:.2f} s")
            assert await status_with(running, "acme-key") == 200
