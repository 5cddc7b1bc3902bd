"""A worker joins a running gateway: what it is sent, when it is not, and that nobody else notices."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import msgspec
import pytest

from gateway.settings import Prewarm
from tests.gateway.builders import build_backend
from tests.gateway.running_gateway import Running, running_gateway
from tests.gateway.scripted_worker import ScriptedWorker, ordinary, scripted_worker, silent, until

PROMPTS = 12


@asynccontextmanager
async def joined(joiner: ScriptedWorker, prompts: int = PROMPTS, *, key: str = "acme-key", **settings: object):
    """A gateway with one worker, which has answered some prompts before `joiner` joined it as `new`."""
    async with scripted_worker() as old:
        async with running_gateway(old, probe_seconds=0.05, prewarm=Prewarm(**settings)) as running:
            await ask_all(running, prompts, key=key)
            running.gateway.fleet.add(build_backend("new", port=joiner.port))
            await until(lambda: running.gateway.fleet.worker("new").up)
            yield running


async def ask_all(running: Running, prompts: int = PROMPTS, **fields: object) -> None:
    for number in range(prompts):
        answer = await running.ask(messages=[{"role": "user", "content": f"CANARY {number} " * 60}], **fields)
        assert answer.status == 200


def ended(running: Running, name: str = "new") -> bool:
    told = running.gateway.prewarmer.describe(name)
    return told is not None and told["ended"]


async def test_a_joiner_is_sent_what_it_is_now_home_to_and_nothing_else():
    """One token each, not streamed, with the tenant's salt; every one of them a prompt whose home it is."""
    async with scripted_worker() as joiner, joined(joiner) as running:
        await until(lambda: ended(running))
        warmed = [exchange.asked for exchange in joiner.exchanges if exchange.head.startswith(b"POST /v1/chat")]
        assert 0 < len(warmed) < PROMPTS
        assert all(body["max_tokens"] == 1 and not body.get("stream") and body["cache_salt"] for body in warmed)
        joiner.exchanges.clear()
        await ask_all(running)
        assert sorted(exchange.asked["messages"][0]["content"] for exchange in joiner.exchanges) == sorted(
            body["messages"][0]["content"] for body in warmed
        )
        await until(running.settled)


async def test_no_tenant_is_charged_and_no_metric_takes_it_for_a_request():
    """Requests, placements and tokens are those of the clients; prewarming has its own figures."""
    async with scripted_worker() as joiner, joined(joiner) as running:
        await until(lambda: ended(running))
        assert running.count("requests_total", tenant="acme", model="m", code="200") == PROMPTS
        assert running.count("placements_total", model="m", reason="home") == PROMPTS
        assert running.count("prompt_tokens_total", tenant="acme", model="m") == 100 * PROMPTS
        brought = running.count("prewarmed_prompts_total", how="computed")
        assert brought == running.gateway.prewarmer.describe("new")["prompts"] > 0
        assert running.count("prewarmed_tokens_total", how="computed") > 0
        assert running.count("prewarm_seconds_total") > 0
        running.gateway.metrics.refresh()
        assert running.count("prewarm_kept_prompts") == PROMPTS
        assert running.count("prewarm_kept_bytes") > 0


async def test_nothing_of_a_prompt_is_said_anywhere(caplog):
    """Not when it goes well, not when the worker refuses it, not when it breaks."""
    caplog.set_level("DEBUG")
    for script in (ordinary, refuse, broken):
        async with scripted_worker(script) as joiner, joined(joiner) as running:
            await until(lambda: ended(running))
            told = str(running.gateway.prewarmer.describe("new"))
            shown = [str(vars(record)) for record in caplog.records]
            assert "CANARY" not in told + "".join(shown)


async def refuse(exchange):
    await exchange.send_json(b'{"error":{"message":"CANARY"}}', status="400 Bad Request")


async def broken(exchange):
    exchange.reset()


@pytest.mark.parametrize(("script", "reason", "most"), [(refuse, "refused", 2 * PROMPTS), (broken, "failed", 3)])
async def test_a_worker_that_does_not_take_it_is_left_alone(script, reason, most):
    """What it refuses is passed over; after three failures nothing more is tried. It stays in the fleet."""
    async with scripted_worker(script) as joiner, joined(joiner, 2 * PROMPTS) as running:
        await until(lambda: ended(running))
        sent = [exchange for exchange in joiner.exchanges if exchange.head.startswith(b"POST")]
        assert 0 < len(sent) <= most + 1, "and one question whether it pulls"
        assert running.count("prewarm_skipped_total", reason=reason) > 0
        assert running.gateway.fleet.worker("new").up
        assert running.gateway.prewarmer.describe("new")["prompts"] == 0


async def test_a_prompt_is_kept_with_what_its_home_depends_on_and_only_while_the_gateway_runs():
    """The session as the caller named it, the tenant; when the gateway has ended, nothing."""
    async with scripted_worker() as worker:
        async with running_gateway(worker, policy="session") as running:
            await ask_all(running, 1, session_id="s1")
            (kept,) = running.gateway.prewarmer.store
            assert (kept.session, kept.tenant, kept.policy, kept.model) == ("s1", "acme", None, "m")
        assert len(running.gateway.prewarmer.store) == 0


async def test_prompts_grow_too_old_also_when_nobody_asks():
    """They are kept for so long after they were last asked, not until the next request."""
    async with scripted_worker() as worker, running_gateway(worker, prewarm=Prewarm(store_seconds=0.4)) as running:
        await ask_all(running, 1)
        assert len(running.gateway.prewarmer.store) == 1
        await until(lambda: len(running.gateway.prewarmer.store) == 0)


@pytest.mark.parametrize("how", ["off", "tenant off", "batch", "image", "nothing asked"])
async def test_what_may_not_be_kept_is_not(how):
    """The global switch, the tenant's, batches, of which placement knows the first prompt only, and images."""
    async with scripted_worker() as joiner, scripted_worker() as old:
        settings = Prewarm(enabled=how != "off")
        async with running_gateway(old, probe_seconds=0.05, prewarm=settings) as running:
            if how == "tenant off":
                await ask_all(running, key="private-key")
            elif how == "batch":
                text = ["CANARY " * 60, "other"]
                assert (await running.ask(path="/v1/completions", prompt=text, messages=None)).status == 200
            elif how == "image":
                part = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/CANARY.png"}}
                parts = [{"type": "text", "text": "CANARY " * 60}, part]
                assert (await running.ask(messages=[{"role": "user", "content": parts}])).status == 200
            elif how == "off":
                await ask_all(running)
            assert len(running.gateway.prewarmer.store) == 0
            running.gateway.fleet.add(build_backend("new", port=joiner.port))
            await until(lambda: running.gateway.fleet.worker("new").up)
            assert running.gateway.prewarmer.describe("new") is None
            assert joiner.exchanges == []


async def test_a_budget_of_nothing_sends_nothing():
    """And says why."""
    async with scripted_worker() as joiner, joined(joiner, budget_seconds=0) as running:
        await until(lambda: ended(running))
        assert running.count("prewarm_skipped_total", reason="budget") > 0
        assert not [exchange for exchange in joiner.exchanges if exchange.head.startswith(b"POST /v1/chat")]


async def test_behind_a_queue_nothing_is_sent_until_the_deadline():
    """The worker says that others wait: prewarming waits behind them, and gives up in the end."""
    async with scripted_worker(waiting=3) as joiner, joined(joiner, deadline_seconds=1.0) as running:
        await until(lambda: ended(running))
        assert not [exchange for exchange in joiner.exchanges if exchange.head.startswith(b"POST /v1/chat")]
        assert running.count("prewarm_skipped_total", reason="deadline") > 0


async def test_when_the_queue_is_gone_it_goes_on():
    """Within a probe or two."""
    async with scripted_worker(waiting=3) as joiner, joined(joiner) as running:
        await asyncio.sleep(0.6)
        assert not ended(running)
        joiner.waiting = 0
        await until(lambda: ended(running))
        assert running.gateway.prewarmer.describe("new")["prompts"] > 0


async def test_a_real_request_does_not_wait_for_a_long_warm_up():
    """A prompt that would take seconds is broken off within a fifth of one when somebody waits behind it."""
    async with scripted_worker() as joiner:
        joiner.scripts = [not_found, silent, after(lambda: warming.client_gone_at is not None)]
        async with joined(joiner) as running:
            router = running.gateway.serving.router("m")
            for _ in range(40):  # slow workers: a prompt of 700 bytes takes seconds
                teach(router, "w1", seconds=4.0)
                teach(router, "new", seconds=4.0)
            await until(lambda: joiner.live == 1)
            warming = joiner.exchanges[-1]
            asked = time.monotonic()
            await ask_until_at(running, joiner)
            assert warming.client_gone_at - asked < 1.0
            await until(lambda: ended(running))
            await until(running.settled)


def after(condition):
    """An ordinary answer, when the condition has come true: as of a worker that prefills one prompt at a time."""

    async def script(exchange):
        await until(condition)
        await ordinary(exchange)

    return script


async def not_found(exchange):
    await exchange.send_json(b"{}", status="404 Not Found")


def teach(router, worker, *, seconds):
    """Let the router learn that a prompt of 400 tokens takes so long at this worker."""
    router._members.state(worker).rates.prefill.observe(400, seconds)
    router._members.settle_rates()


async def ask_until_at(running, worker):
    """New prompts until one was sent to this worker."""
    before = len(worker.exchanges)
    for number in range(200):
        await running.ask(messages=[{"role": "user", "content": f"real {number} " * 5}])
        if len(worker.exchanges) > before:
            return
    raise AssertionError("no request went to the joiner")


async def test_a_worker_that_leaves_ends_its_warm_up():
    """And what is under way at it is dropped; no count is left behind."""
    async with scripted_worker() as joiner:
        joiner.scripts = [not_found, silent]
        async with joined(joiner) as running:
            await until(lambda: joiner.live == 1)
            running.gateway.fleet.remove("new")
            await until(lambda: joiner.live == 0)
            await until(lambda: not running.gateway.prewarmer.busy)
            assert running.gateway.prewarmer.describe("new") is None
            running.gateway.serving.router("m").check_integrity()


async def test_a_worker_that_still_loads_is_nobodys_home_and_gets_nothing():
    """G-06: Running is not ready. It joins when it lists its models, and is warmed then."""
    async with scripted_worker(models=()) as joiner, scripted_worker() as old:
        async with running_gateway(old, probe_seconds=0.05) as running:
            await ask_all(running)
            running.gateway.fleet.add(build_backend("new", port=joiner.port))
            await until(lambda: running.gateway.fleet.worker("new").cards is not None)
            await ask_all(running)
            assert running.count("placements_total", model="m", reason="home") == 2 * PROMPTS
            assert joiner.exchanges == []
            joiner.models = ("m",)
            await until(lambda: ended(running))
            assert joiner.exchanges


async def test_what_a_leaver_holds_goes_to_its_new_homes():
    """Drained, it is asked for nothing more; the other is sent each prompt that only the leaver held."""
    async with scripted_worker() as first, scripted_worker() as second:
        async with running_gateway(first, second, probe_seconds=0.05) as running:
            await ask_all(running)
            at_first = {exchange.asked["messages"][0]["content"] for exchange in first.exchanges}
            second.exchanges.clear()
            running.gateway.fleet.drain("w1")
            await until(lambda: ended(running, "w1"))
            moved = {e.asked["messages"][0]["content"] for e in second.exchanges if b"/v1/chat" in e.head}
            assert moved == at_first != set()
            assert running.gateway.prewarmer.describe("w1")["why"] == "leave"


async def test_a_drain_that_is_taken_back_stops_the_move():
    """Nothing more is sent for it; the worker is home to its own again."""
    async with scripted_worker() as first, scripted_worker() as second:
        async with running_gateway(first, second, probe_seconds=0.05) as running:
            await ask_all(running)
            second.exchanges.clear()
            running.gateway.fleet.drain("w1")
            running.gateway.fleet.resume("w1")
            await until(lambda: ended(running, "w1"))
            assert running.gateway.prewarmer.describe("w1")["why"] == "join"
            assert second.exchanges == []


@pytest.mark.parametrize("change", [{"prewarm": False}, {"isolation": "shared"}, None])
async def test_prompts_of_a_tenant_that_a_reload_changes_are_not_kept(change):
    """Gone, no longer willing, or with other company in its cache; everybody else's stay."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        await ask_all(running, 2)
        prewarmer, gateway = running.gateway.prewarmer, running.gateway
        settings = dict(gateway.config.tenants)
        prewarmer.pin(gateway.serving, gateway.tenants.named, settings)
        assert len(prewarmer.store) == 2
        acme = settings.pop("acme")
        if change is not None:
            settings["acme"] = msgspec.structs.replace(acme, **change)
        prewarmer.pin(gateway.serving, gateway.tenants.named, settings)
        assert len(prewarmer.store) == 0
        prewarmer.store.check_integrity()
