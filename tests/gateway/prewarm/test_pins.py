"""Pinned prompts are held where they are to be held, without anybody asking for them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest

from gateway.errors import InvalidRequest
from gateway.prewarm import pin_files
from gateway.prewarm.pin_files import PinError, read_pin
from gateway.tenant_settings import PinnedPrompt
from tests.gateway.running_gateway import Running, build_tenants, running_gateway
from tests.gateway.scripted_worker import Exchange, ordinary, scripted_worker, silent, until

SYSTEM = "Rules of the house, CANARY, to be kept in mind at all times. " * 20
BODY = {"model": "m", "messages": [{"role": "system", "content": SYSTEM}]}


def build_pin(directory, replicas: int = 1, **fields) -> PinnedPrompt:
    path = directory / "prompt.json"
    path.write_text(json.dumps({**BODY, **fields}))
    return PinnedPrompt(name="house-rules", file=str(path), replicas=replicas)


def pinned_by(name: str, pin: PinnedPrompt):
    """The tenants of a running gateway, one of whom pins a prompt."""
    tenants = build_tenants()
    return {**tenants, name: msgspec.structs.replace(tenants[name], pinned=[pin])}


@asynccontextmanager
async def pinning(pin: PinnedPrompt, *workers, tenant: str = "acme"):
    """A gateway that has looked after the pin once; yields it and whoever was sent what."""
    async with running_gateway(*workers) as running:
        gateway = running.gateway
        gateway.prewarmer.pin(gateway.serving, gateway.tenants.named, pinned_by(tenant, pin))
        await gateway.prewarmer.pins.round()
        yield running


def sent(*workers) -> list[Exchange]:
    return [exchange for worker in workers for exchange in worker.exchanges]


async def refusing(exchange: Exchange) -> None:
    await exchange.send_json(b'{"error": {"message": "CANARY"}}', status="400 Bad Request")


def held_ratio(running: Running, tenant: str = "acme") -> float:
    return running.count("pinned_prompts_held_ratio", tenant=tenant)


@pytest.mark.parametrize("replicas", [1, 2, 5])
async def test_a_pin_is_sent_to_as_many_workers_as_are_to_hold_it(tmp_path, replicas):
    """Once each, as a request of its tenant for one token, and not again while they are believed to hold it."""
    async with scripted_worker() as a, scripted_worker() as b, scripted_worker() as c:
        async with pinning(build_pin(tmp_path, replicas), a, b, c) as running:
            asked = [exchange.asked for exchange in sent(a, b, c)]
            assert len(asked) == min(replicas, 3)
            assert all(body["messages"] == BODY["messages"] and body["max_tokens"] == 1 for body in asked)
            assert all(body["cache_salt"] for body in asked)
            await running.gateway.prewarmer.pins.round()
            assert len(sent(a, b, c)) == len(asked)
            assert held_ratio(running) == 1.0


async def test_a_request_that_begins_with_it_goes_where_it_is_held(tmp_path):
    """The pin is where the prompt's home is, and known to be there."""
    async with scripted_worker() as a, scripted_worker() as b:
        async with pinning(build_pin(tmp_path), a, b) as running:
            holder = a if a.exchanges else b
            answer = await running.ask(messages=[*BODY["messages"], {"role": "user", "content": "Hello?"}])
            assert answer.status == 200
            assert len(holder.exchanges) == 2
            assert holder.exchanges[1].asked["cache_salt"] == holder.exchanges[0].asked["cache_salt"]


async def test_a_worker_that_comes_back_empty_is_sent_it_again(tmp_path):
    """What was believed of it is forgotten with its restart."""
    async with scripted_worker() as a:
        async with pinning(build_pin(tmp_path), a) as running:
            for router in running.gateway.serving.routers.values():
                router.forget("w1")
            await running.gateway.prewarmer.pins.round()
            assert len(a.exchanges) == 2


async def test_the_tenants_rewrites_and_share_are_the_pins_too(tmp_path):
    """It must be the very prefix of what its requests are forwarded as."""
    dated = "You help.\nCurrent date: 2026-11-30\nBe brief.\n" + SYSTEM
    pin = build_pin(tmp_path, messages=[{"role": "system", "content": dated}])
    async with scripted_worker() as a:
        async with pinning(pin, a, tenant="rewritten"):
            assert a.exchanges[0].asked["messages"][0]["content"].endswith("Current date: 2026-11-30")
    async with scripted_worker() as a:
        async with pinning(build_pin(tmp_path), a, tenant="support"):
            assert a.exchanges[0].asked["vllm_xargs"] == {"cache_partition": "support"}


async def test_real_requests_come_first(tmp_path):
    """While some wait at the worker nothing is sent; the next round does it."""
    async with scripted_worker() as a:
        a.waiting = 3
        async with pinning(build_pin(tmp_path), a) as running:
            assert sent(a) == []
            assert held_ratio(running) == 0.0
            a.waiting = 0
            await until(lambda: not running.gateway.fleet.worker("w1").figures.waiting)
            await running.gateway.prewarmer.pins.round()
            assert len(sent(a)) == 1


async def test_a_worker_that_refuses_it_is_named_and_the_prompt_is_not(tmp_path, caplog):
    """Nothing of a prompt in any log."""
    async with scripted_worker(refusing) as a:
        async with pinning(build_pin(tmp_path), a) as running:
            assert held_ratio(running) == 0.0
    assert "a pinned prompt was not taken" in caplog.text
    assert "CANARY" not in str([vars(record) for record in caplog.records])


async def test_a_file_that_went_away_is_said_and_tried_again(tmp_path, caplog):
    """Others' pins are looked after all the same."""
    pin = build_pin(tmp_path)
    (tmp_path / "prompt.json").unlink()
    async with scripted_worker(ordinary) as a:
        async with pinning(pin, a) as running:
            assert "a pinned prompt cannot be made ready" in caplog.text
            build_pin(tmp_path)
            await running.gateway.prewarmer.pins.round()
            assert len(a.exchanges) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "\ufeff{}"])
def test_what_is_no_request_is_refused_by_its_path(tmp_path, text):
    """And nothing of it is quoted."""
    path = tmp_path / "prompt.json"
    path.write_text(text)
    with pytest.raises(PinError, match="is not a JSON object"):
        read_pin(path)


def test_a_request_that_the_api_would_refuse_is_refused_with_its_words(tmp_path):
    """It names the field."""
    path = tmp_path / "prompt.json"
    path.write_text('{"model": "m", "messages": []}')
    with pytest.raises(InvalidRequest, match="messages"):
        read_pin(path)


def test_a_file_that_is_too_large_or_not_there_is_refused(tmp_path, monkeypatch):
    """With the reason."""
    with pytest.raises(PinError, match="No such file"):
        read_pin(tmp_path / "nothing.json")
    monkeypatch.setattr(pin_files, "MOST_BYTES", 10)
    build_pin(tmp_path)
    with pytest.raises(PinError, match="larger than 10 bytes"):
        read_pin(tmp_path / "prompt.json")


async def test_a_pin_too_short_to_be_cached_keeps_nobody_elses_waiting(tmp_path):
    """There is nothing to hold of it; the pins of the next tenant are looked after all the same."""
    (tmp_path / "short").mkdir()
    short = build_pin(tmp_path / "short", messages=[{"role": "user", "content": "hi"}])
    async with scripted_worker() as a, running_gateway(a) as running:
        gateway = running.gateway
        settings = {**pinned_by("acme", short), "support": pinned_by("support", build_pin(tmp_path))["support"]}
        gateway.prewarmer.pin(gateway.serving, gateway.tenants.named, settings)
        for _ in range(3):
            await gateway.prewarmer.pins.round()
        assert [len(exchange.asked["messages"][0]["content"]) for exchange in sent(a)] == [len(SYSTEM)]
        assert held_ratio(running, "support") == 1.0


async def test_what_a_round_began_before_a_reload_is_not_kept_after_it(tmp_path):
    """A pin that was being made ready with the old file, salt and rewrites is made ready anew."""
    (tmp_path / "new").mkdir()
    old, new = build_pin(tmp_path), build_pin(tmp_path / "new", model="m", temperature=0.5)
    async with scripted_worker() as a, running_gateway(a) as running:
        gateway = running.gateway
        gateway.prewarmer.pin(gateway.serving, gateway.tenants.named, pinned_by("acme", old))
        round_before = asyncio.create_task(gateway.prewarmer.pins.round())
        await asyncio.sleep(0)  # it reads the file in a thread
        gateway.prewarmer.pin(gateway.serving, gateway.tenants.named, pinned_by("acme", new))
        await round_before
        for router in gateway.serving.routers.values():
            router.forget("w1")
        await gateway.prewarmer.pins.round()
        assert sent(a)[-1].asked["temperature"] == 0.5


async def test_a_worker_that_hangs_does_not_keep_others_from_their_pins(tmp_path):
    """It is given up after `prewarm.deadline_seconds`, and not asked at all once it leaves."""
    async with scripted_worker(silent) as hung, scripted_worker() as well, running_gateway(hung, well) as running:
        gateway = running.gateway
        gateway.prewarmer.pin(gateway.serving, gateway.tenants.named, pinned_by("acme", build_pin(tmp_path, 2)))
        pins = gateway.prewarmer.pins
        settings = msgspec.structs.replace(pins._tools.settings, deadline_seconds=0.2)
        pins._tools = pins._tools._replace(settings=settings)
        async with asyncio.timeout(5):
            await pins.round()
        assert (len(hung.exchanges), len(well.exchanges)) == (1, 1)
        assert held_ratio(running) == 0.5
        (pin,) = pins._pins.values()
        leaving = gateway.fleet.worker("w1")
        gateway.fleet.drain("w1")
        assert not await pins._hold(pin, leaving)
        assert len(hung.exchanges) == 1
        await until(running.settled)
