"""Workers, models and numbers change while requests come; who stays keeps what is known of him."""

from __future__ import annotations

import asyncio
import io
import itertools
import json

from gateway.fleet import Change, ChangeKind
from gateway.logs import RequestLog
from gateway.reload import APPLIED, REFUSED
from gateway.settings import Log
from tests.gateway.reloading import (
    QUICK,
    TWO_TENANTS,
    build_data,
    gateway_from,
    on_the_ring,
    prompt,
    replace_data,
    status_with,
)
from tests.gateway.scripted_worker import scripted_worker, until


async def test_workers_come_go_and_change_weight(path):
    """The new one is asked, the old one is let go, the one that stays keeps what it is known for."""
    async with scripted_worker() as first, scripted_worker() as second, scripted_worker() as third:
        data = build_data(first.port, second.port)
        replace_data(path, data)
        async with gateway_from(path) as running:
            fleet = running.gateway.fleet
            assert await status_with(running, "acme-key") == 200
            staying = fleet.worker("w1")
            static = data["models"]["m"]["backends"]["static"]
            static[0]["weight"] = 3
            static[1] = {"url": third.url, "name": "w3"}
            replace_data(path, data)
            assert await running.gateway.reloader.reload() == APPLIED
            assert [worker.name for worker in fleet.workers] == ["w1", "w3"]
            assert fleet.worker("w1") is staying
            assert staying.backend.weight == 3
            await until(lambda: fleet.worker("w3").up)
            async with asyncio.timeout(10):
                for number in itertools.count():
                    assert await status_with(running, "acme-key", messages=prompt(number)) == 200
                    if third.exchanges:
                        break
            assert not second.exchanges or len(second.exchanges) == 1


async def test_prompts_of_workers_that_stay_keep_their_home(path):
    """A third worker takes a third of the prompts; the others go where their cache is."""
    async with scripted_worker() as first, scripted_worker() as second, scripted_worker() as third:
        ring = {"m": {**build_data(first.port, second.port)["models"]["m"], "policy": "ring"}}
        replace_data(path, build_data(models=ring, prewarm={"enabled": False}))
        async with gateway_from(path) as running:

            async def owners() -> list[str]:
                """Which worker gets each of thirty prompts."""
                found = []
                for number in range(30):
                    counts = [len(each.exchanges) for each in (first, second, third)]
                    assert await status_with(running, "acme-key", messages=prompt(number)) == 200
                    now = [len(each.exchanges) for each in (first, second, third)]
                    found.append("".join(str(after - before) for before, after in zip(counts, now, strict=True)))
                return found

            before = await owners()
            ring["m"]["backends"]["static"].append({"url": third.url, "name": "w3"})
            replace_data(path, build_data(models=ring, prewarm={"enabled": False}))
            assert await running.gateway.reloader.reload() == APPLIED
            await until(lambda: running.gateway.fleet.worker("w3").up)
            await on_the_ring(running, 3)
            moved = [now for then, now in zip(before, await owners(), strict=True) if then != now]
            assert set(moved) == {"001"}
            assert 1 <= len(moved) <= 20


async def test_a_model_comes_with_its_workers_and_goes(path):
    """From 404 to 200 and back."""
    async with scripted_worker() as worker, scripted_worker(models=("n",)) as other:
        one = build_data(worker.port)
        two = build_data(worker.port)
        two["models"]["n"] = {"backends": {"static": [{"url": other.url, "name": "n1"}]}, "policy": "ring"}
        replace_data(path, one)
        async with gateway_from(path) as running:
            assert await status_with(running, "acme-key", model="n") == 404
            replace_data(path, two)
            assert await running.gateway.reloader.reload() == APPLIED
            await until(lambda: running.gateway.fleet.worker("n1").up)
            assert await status_with(running, "acme-key", model="n") == 200
            assert running.gateway.serving.router("n").settings.policy == "ring"
            assert running.count("requests_total", tenant="acme", model="n", code="200") == 1
            replace_data(path, one)
            assert await running.gateway.reloader.reload() == APPLIED
            assert await status_with(running, "acme-key", model="n") == 404


async def test_a_models_tokeniser_is_tried_before_the_model_is_offered(path, tmp_path):
    """A folder without a tokeniser in it exists, which is all that the file's check knows."""
    (tmp_path / "empty").mkdir()
    replace_data(path, build_data(8001))
    async with gateway_from(path) as running:
        data = build_data(8001)
        data["models"]["n"] = {"backends": {"static": ["http://127.0.0.1:8002"]}, "tokenizer": str(tmp_path / "empty")}
        replace_data(path, data)
        assert await running.gateway.reloader.reload() == REFUSED
        assert "$.models.n.tokenizer" in running.gateway.reloader.refusal.reasons[0]


async def test_numbers_change_for_the_next_request(path):
    """Policy, a tenant's own policy, timeouts, the bound on bodies, what is logged."""
    lines = io.StringIO()
    request_log = RequestLog(Log(format="json"), lines)
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port))
        async with gateway_from(path, request_log) as running:
            assert await status_with(running, "acme-key") == 200
            router = running.gateway.serving.router("m")
            data = build_data(worker.port, limits={"body_bytes": 50}, timeouts={**QUICK, "drain_seconds": 7})
            data["models"]["m"]["policy"] = {"name": "homing", "ring_slack_seconds": 0.3}
            data["tenants"]["acme"]["policy"] = {"name": "ring", "ring_patience_seconds": 0.01}
            data["log"] = {"request_share": 0.0}
            replace_data(path, data)
            assert await running.gateway.reloader.reload() == APPLIED
            assert running.gateway.serving.router("m") is router
            assert router.settings.ring_slack_seconds == 0.3
            assert running.gateway.tenants.named("acme").policy == "tenant:acme"
            assert await status_with(running, "acme-key") == 413
            replace_data(path, {**data, "limits": {"body_bytes": 5000}})
            assert await running.gateway.reloader.reload() == APPLIED
            assert await status_with(running, "acme-key") == 200
            assert running.gateway.config.timeouts.drain_seconds == 7
            request_log.flush()
            codes = [json.loads(line)["code"] for line in lines.getvalue().splitlines() if '"request"' in line]
            assert codes == [200, 413]


async def test_a_worker_added_by_hand_stays_and_keeps_its_name(path):
    """The file does not know of it; a file that wants its name is refused, with what to do."""
    async with scripted_worker() as worker, scripted_worker() as by_hand:
        data = build_data(worker.port)
        replace_data(path, data)
        async with gateway_from(path) as running:
            membership = running.gateway._membership
            await membership.add(json.dumps({"url": by_hand.url, "name": "mine"}).encode())
            replace_data(path, {**data, "tenants": TWO_TENANTS})
            assert await running.gateway.reloader.reload() == APPLIED
            assert [each.name for each in running.gateway.fleet.workers] == ["w1", "mine"]
            for taken in ({"url": "http://127.0.0.1:9", "name": "mine"}, {"url": by_hand.url, "name": "w2"}):
                data["models"]["m"]["backends"]["static"][1:] = [taken]
                replace_data(path, data)
                assert await running.gateway.reloader.reload() == REFUSED
                assert "added by hand" in running.gateway.reloader.refusal.reasons[0]


async def test_what_a_tenant_has_used_is_not_given_back(path):
    """Of its limits only the numbers change; one that a change does not touch goes on where it was."""
    async with scripted_worker() as worker:
        data = build_data(worker.port)
        data["tenants"]["acme"]["limits"] = {"requests_per_minute": 2}
        replace_data(path, data)
        async with gateway_from(path) as running:
            assert [await status_with(running, "acme-key") for _ in range(3)] == [200, 200, 429]
            data["log"] = {"level": "warning"}
            replace_data(path, data)
            assert await running.gateway.reloader.reload() == APPLIED
            assert await status_with(running, "acme-key") == 429
            del data["tenants"]["acme"]["limits"]
            replace_data(path, data)
            assert await running.gateway.reloader.reload() == APPLIED
            assert await status_with(running, "acme-key") == 200


async def test_a_pinned_prompt_comes_with_its_tenant(path, tmp_path):
    """Whoever looks after pins hears of the new ones."""
    (tmp_path / "pin.json").write_text(
        json.dumps({"model": "m", "messages": [{"role": "system", "content": "Be kind."}]})
    )
    async with scripted_worker() as worker:
        data = build_data(worker.port)
        replace_data(path, data)
        async with gateway_from(path) as running:
            data["tenants"]["acme"]["pinned"] = [{"name": "kind", "file": str(tmp_path / "pin.json")}]
            replace_data(path, data)
            assert await running.gateway.reloader.reload() == APPLIED
            assert running.gateway.config.tenants["acme"].pinned[0].name == "kind"
            assert running.gateway.prewarmer.pins._settings["acme"].pinned[0].name == "kind"


async def test_a_move_that_fails_half_way_is_taken_back(path):
    """The worker that had left is there again, the one that had come is not; nobody is refused."""
    async with scripted_worker() as first, scripted_worker() as second:
        replace_data(path, build_data(first.port))
        async with gateway_from(path) as running:
            fleet = running.gateway.fleet
            data = build_data(second.port)
            data["models"]["m"]["backends"]["static"][0]["name"] = "w2"

            def fail(change: Change) -> None:
                if change.kind is ChangeKind.JOINED and change.worker.name == "w2":
                    raise RuntimeError

            fleet.on_change(fail)
            replace_data(path, data)
            assert await running.gateway.reloader.reload() == REFUSED
            assert [worker.name for worker in fleet.workers] == ["w1"]
            await until(lambda: fleet.worker("w1").up)
            assert await status_with(running, "acme-key") == 200
            fleet.check_integrity()
