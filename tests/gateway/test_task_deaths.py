"""Row D6t: each background task of a gateway dies of a fault of its own in the middle of its work, and comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gateway.limit_settings import TenantLimits
from gateway.supervise import Supervisor, Work
from gateway.tenant_settings import TenantSettings
from tests.end_to_end.redis_server import redis_server
from tests.gateway.builders import key_line
from tests.gateway.limits.gateways import limited_gateway
from tests.gateway.scripted_worker import ordinary, scripted_worker, until

FIRST_LIFE_SECONDS = 0.3
EVERYWHERE = {"probe", "loop watch", "limits", "limits renewal", "replicas", "replicas tick"}


def build_deaths(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """From now on the first life of every supervised task ends soon, wherever it then is; how many of each kind."""
    begin, deaths = Supervisor.start, Counter[str]()

    def start(self: Supervisor, kind: str, work: Work, *, name: str = "") -> asyncio.Task[None]:
        lives = 0

        async def mortal() -> None:
            nonlocal lives
            lives += 1
            deaths[kind] += lives == 1
            async with asyncio.timeout(FIRST_LIFE_SECONDS if lives == 1 else None):
                await work()

        return begin(self, kind, mortal, name=name)

    monkeypatch.setattr(Supervisor, "start", start)
    return deaths


@pytest.mark.row("D6t")
async def test_every_background_task_comes_back_from_the_dead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All die once; then all is as before: probes, the count of a limit in Redis, the other gateway's news."""
    deaths = build_deaths(monkeypatch)
    tenants = {"a": TenantSettings(keys=[key_line("a-key")], limits=TenantLimits(requests_per_minute=60))}
    with redis_server(tmp_path) as redis:
        async with (
            scripted_worker(ordinary) as worker,
            limited_gateway(worker, tenants=tenants, redis_url=redis.url) as one,
            limited_gateway(worker, tenants=tenants, redis_url=redis.url) as other,
        ):
            both = (one, other)
            await until(lambda: deaths.keys() >= EVERYWHERE)
            expected = {kind: deaths[kind] / 2 for kind in EVERYWHERE}

            def all_died() -> bool:
                told = [{kind: each.count("task_restarts_total", task=kind) for kind in EVERYWHERE} for each in both]
                return told == [expected, expected]

            await until(all_died)
            await until(lambda: all(each.gateway.limits.shared.up for each in both))
            asked = [await both[n % 2].ask(key="a-key") for n in range(70)]
            passed = sum(answer.status == 200 for answer in asked)
            assert 60 <= passed <= 64  # what a bucket of 60 refills meanwhile
            assert {answer.status for answer in asked} == {200, 429}
            assert [each.gateway.tasks.dead() for each in both] == [(), ()]
