"""A configuration changed while requests come: taken whole or not at all, and always with a reason."""

from __future__ import annotations

import asyncio
import logging

from gateway.reload import APPLIED, REFUSED, UNCHANGED
from tests.gateway.builders import key_line
from tests.gateway.reloading import (
    TWO_TENANTS,
    admin_page,
    build_data,
    gateway_from,
    replace_data,
    replace_file,
    status_with,
)
from tests.gateway.running_gateway import Running
from tests.gateway.scripted_worker import Exchange, event, scripted_worker, until


def result_counts(running: Running) -> dict[str, float]:
    return {result: running.count("config_reloads_total", result=result) for result in (APPLIED, REFUSED, UNCHANGED)}


async def test_a_changed_file_is_taken_by_itself(path):
    """H2: a tenant that comes is let in, one that goes is refused, and nobody restarts anything."""
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port))
        async with gateway_from(path) as running:
            assert await status_with(running, "globex-key") == 401
            replace_data(path, build_data(worker.port, tenants={"globex": {"keys": [key_line("globex-key")]}}))
            await until(lambda: running.count("config_reloads_total", result=APPLIED) == 1)
            assert await status_with(running, "globex-key") == 200
            assert await status_with(running, "acme-key") == 401
            assert running.gateway.config.tenants.keys() == {"globex"}


async def test_a_bad_file_changes_nothing_and_says_why(path, caplog):
    """H1: file, line and place in the log and in /config, a gauge at 0, and /readyz stays green."""
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port))
        async with gateway_from(path) as running:
            before = (await admin_page(running, "/config"))[1]
            good = path.read_text()
            replace_file(path, good.replace('"keys"', '"kees"'))
            line = good[: good.index('"keys"')].count("\n") + 1
            with caplog.at_level(logging.ERROR, "homing.reload"):
                await until(lambda: running.gateway.reloader.refusal is not None)
            reason = f"{path}:{line}: $.tenants.acme.kees: unknown field `kees`; did you mean `keys`?"
            told = [record.fields["because"] for record in caplog.records if record.name == "homing.reload"]
            assert told == [reason]
            page = (await admin_page(running, "/config"))[1]
            assert page["refused"]["reasons"] == [reason]
            assert page["digest"] == before["digest"]
            assert running.count("config_last_reload_successful") == 0
            taken_at = running.count("config_last_reload_success_timestamp_seconds")
            assert await status_with(running, "acme-key") == 200
            status, told = await admin_page(running, "/readyz")
            assert (status, told["degraded"]) == (200, ["configuration"])
            replace_file(path, good)
            await until(lambda: running.gateway.reloader.refusal is None)
            assert running.count("config_last_reload_successful") == 1
            assert running.count("config_last_reload_success_timestamp_seconds") > taken_at > 1e9
            assert (await admin_page(running, "/readyz"))[1]["degraded"] == []


async def test_what_needs_a_restart_is_refused_with_all_the_rest(path):
    """Half of a configuration is none: the new tenant waits for the restart too, and the reason names every place."""
    replace_data(path, build_data())
    more = {"probes": {"interval_seconds": 9}, "listen": {"port": 0, "admin_port": 0, "admin_changes": True}}
    data = build_data(8001)
    replace_data(path, data)
    async with gateway_from(path) as running:
        data["models"]["m"]["tokenizer"] = str(path.parent)
        replace_data(path, {**data, **more, "tenants": TWO_TENANTS})
        assert await running.gateway.reloader.reload() == REFUSED
        reasons = running.gateway.reloader.refusal.reasons
        assert [reason.split(": ")[1] for reason in reasons] == [
            "$.listen.admin_changes", "$.models.m.tokenizer", "$.probes.interval_seconds", "$.probes.start_seconds",
        ]  # fmt: skip
        assert all("needs a restart" in reason for reason in reasons)
        assert running.gateway.tenants.names == ("acme",)


async def test_a_removed_tenants_requests_end_as_they_began(path):
    """It is refused from now on; what it was promised before is kept."""
    go_on = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event("one"))
        await go_on.wait()
        await exchange.chunk(event("two"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    async with scripted_worker(slow) as worker:
        replace_data(path, build_data(worker.port, tenants=TWO_TENANTS))
        async with gateway_from(path) as running:
            asking = asyncio.create_task(running.ask(key="globex-key", stream=True))
            await until(lambda: worker.live == 1)
            replace_data(path, build_data(worker.port))
            assert await running.gateway.reloader.reload() == APPLIED
            assert await status_with(running, "globex-key") == 401
            go_on.set()
            answer = await asking
            assert (answer.status, answer.whole) == (200, True)
            assert answer.body.endswith(b"data: [DONE]\n\n")
            await until(running.settled)


async def test_the_file_is_tried_again_when_what_it_lacked_may_be_there(path, tmp_path):
    """A Secret that is mounted later; the same refusal is told once."""
    replace_data(path, build_data(8001))
    async with gateway_from(path) as running:
        reloader = running.gateway.reloader
        late = tmp_path / "late"
        replace_data(path, build_data(8001, tenants={"acme": {"keys": [f"file:{late}"]}}))
        assert await reloader.reload() == REFUSED
        assert await reloader.reload(again=True) == REFUSED
        assert result_counts(running)[REFUSED] == 1
        late.write_text(key_line("late-key"))
        assert await reloader.reload(again=True) == APPLIED


async def test_a_room_that_fails_leaves_the_configuration_before(path):
    """Whole or not at all, by our own faults too."""
    replace_data(path, build_data(8001))
    async with gateway_from(path) as running:
        reloader = running.gateway.reloader
        seen = []

        def broken(config, secrets):
            seen.append(tuple(config.tenants))
            if "globex" in config.tenants:
                raise RuntimeError("CANARY")

        reloader.on_reload(broken)
        replace_data(path, build_data(8001, tenants=TWO_TENANTS))
        assert await reloader.reload() == REFUSED
        assert seen == [("acme", "globex"), ("acme",)]
        assert running.gateway.tenants.names == ("acme",)
        assert running.gateway.config.tenants.keys() == {"acme"}
        assert "RuntimeError" in reloader.refusal.reasons[0]
        assert "CANARY" not in reloader.refusal.reasons[0]


async def test_an_untouched_file_is_no_news(path):
    """SIGHUP, or an editor that saves without a change."""
    replace_data(path, build_data(8001))
    async with gateway_from(path) as running:
        running.gateway.reloader.ask()
        await until(lambda: running.gateway.reloader.counts[UNCHANGED] == 1)
        assert result_counts(running) == {APPLIED: 0, REFUSED: 0, UNCHANGED: 1}
