"""Probes, against a real worker on a socket: what they find, what they send, and how they go on."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from gateway.addresses import parse_worker_url
from gateway.fleet import ChangeKind, Fleet
from gateway.probes import Prober, Probes
from gateway.settings import Probes as ProbeSettings
from gateway.worker_state import Backend, ServingFacts, State, Worker
from tests.gateway.builders import FIXTURES, running_worker

QUICK = ProbeSettings(interval_seconds=0.02, timeout_seconds=1.0, start_seconds=2.0)


def build_backend_at(url: str, name: str = "w1", **more) -> Backend:
    return Backend(name=name, address=parse_worker_url(url), models=frozenset({"m"}), **more)


async def look(worker_or_url, *, cards=True, timeout_seconds=1.0, **more):
    """One round at a worker."""
    url = worker_or_url if isinstance(worker_or_url, str) else worker_or_url.url
    async with Prober(timeout_seconds) as prober:
        return await prober.look(Worker(build_backend_at(url, **more)), cards=cards)


@asynccontextmanager
async def probed_fleet(*urls, settings=QUICK):
    """A fleet under the eyes of probes, and the changes it told."""
    fleet = Fleet({"m": ServingFacts()})
    heard = []
    fleet.on_change(lambda change: heard.append((change.kind, change.worker.name)))
    for number, url in enumerate(urls):
        fleet.add(build_backend_at(url, name=f"w{number}"))
    async with Probes(fleet, settings) as probes:
        yield fleet, probes, heard


async def until(condition, seconds=5.0):
    """Wait for a condition that events bring about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what these tests wait for has no event
            await asyncio.sleep(0.005)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_healthy_worker_shows_its_models_and_figures():
    """One round: health, metrics, models."""
    async with running_worker(metrics=(FIXTURES / "vllm-0.32" / "metrics_after.txt").read_text()) as worker:
        result = await look(worker)
    assert result.trouble is None
    assert [card.id for card in result.cards] == ["m"]
    assert result.figures.cache_blocks == 1456


async def test_models_are_asked_for_only_when_wanted():
    """They change rarely."""
    async with running_worker() as worker:
        result = await look(worker, cards=False)
        assert result.cards is None
        assert ("GET", "/v1/models") not in worker.asked


async def test_nobody_there_is_refused():
    """The clearest of signs."""
    result = await look(f"http://127.0.0.1:{free_port()}")
    assert (result.refused, result.trouble) == (True, "no connection: Connection refused")


async def test_an_unhealthy_worker_is_in_trouble():
    """vLLM says 503 when its engine is dead, llama.cpp while it loads."""
    async with running_worker(health=503) as worker:
        assert (await look(worker)).trouble == "answers 503 to /health"


async def test_a_worker_without_metrics_is_healthy_all_the_same():
    """E-01: what nobody tells is unknown, and routing goes on."""
    async with running_worker(redirect_metrics_to="/elsewhere") as worker:
        result = await look(worker)
    assert (result.trouble, result.figures) == (None, None)


@pytest.mark.parametrize("models", ["nonsense", [{"name": "m"}]])
async def test_a_list_that_is_none_is_told(models):
    """Something else answers on that port."""
    async with running_worker(models=models) as worker:
        assert "something else than a list of models" in (await look(worker)).trouble


async def test_the_workers_key_is_sent_on_every_probe():
    """F-11: workers that ask for a key get theirs."""
    async with running_worker(api_key="wk") as worker:
        result = await look(worker, api_key="wk")
        assert result.trouble is None
        assert worker.authorizations == {"Bearer wk"}


async def test_a_missing_key_says_which_setting():
    """401 is a configuration mistake."""
    async with running_worker(api_key="wk") as worker:
        assert (await look(worker)).trouble == "answers 401 to /v1/models: give its key as api_key"


async def test_metrics_may_move_to_a_slash_on_the_same_worker():
    """Some versions answer 307 to /metrics/."""
    async with running_worker(redirect_metrics_to="/metrics/") as worker:
        assert (await look(worker)).figures.waiting == 0.0


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/metrics/", "//127.0.0.2/metrics", "/v1/models", "ftp://x/metrics"]
)
async def test_metrics_may_not_move_anywhere_else(place):
    """F-06: a redirect does not send the gateway around the network."""
    async with running_worker(redirect_metrics_to=place) as worker:
        result = await look(worker, cards=False)
        assert result.figures is None
        assert {path for _, path in worker.asked} == {"/health", "/metrics"}


async def test_redirects_of_health_and_models_are_not_followed():
    """They are no answers of a worker."""
    async with running_worker(health=307) as worker:
        assert (await look(worker)).trouble == "answers 307 to /health"


async def test_something_that_does_not_speak_http_is_in_trouble():
    """A port of another service."""

    async def greet(reader, writer):
        writer.write(b"220 smtp ready\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        result = await look(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert result.trouble.startswith("no proper answer")


async def test_silence_is_told_from_refusal():
    """A worker that accepts and says nothing may just be busy."""
    held = []

    async def keep(reader, writer):
        held.append(writer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep, "127.0.0.1", 0) as server:
        result = await look(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_seconds=0.1)
        for writer in held:
            writer.close()
    assert (result.silent, result.trouble) == (True, "no answer within 0.1 s")


async def test_the_first_round_ends_when_all_were_looked_at():
    """One up, one down: the gateway starts with the rest."""
    async with (
        running_worker() as worker,
        probed_fleet(worker.url, f"http://127.0.0.1:{free_port()}") as (fleet, probes, _),
    ):
        assert await probes.first_round()
        assert [each.state for each in fleet.workers] == [State.READY, State.DOWN]
        assert probes.not_looked_at == ()


async def test_the_first_round_does_not_wait_for_ever():
    """A worker behind a dead firewall does not keep the gateway from starting."""

    async def keep(reader, writer):
        await reader.read()
        writer.close()

    settings = ProbeSettings(interval_seconds=1.0, timeout_seconds=5.0, start_seconds=0.05)
    async with await asyncio.start_server(keep, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with probed_fleet(url, settings=settings) as (_, probes, _heard):
            assert not await probes.first_round()
            assert probes.not_looked_at == ("w0",)


async def test_a_worker_that_falls_and_rises_is_noticed():
    """Down while nobody listens; up again, and restarted, when somebody does."""
    port = free_port()
    async with probed_fleet(f"http://127.0.0.1:{port}") as (fleet, probes, heard):
        await probes.first_round()
        async with running_worker(port):
            await until(lambda: fleet.worker("w0").up)
        await until(lambda: not fleet.worker("w0").up)
        async with running_worker(port, metrics="process_start_time_seconds 2\n"):
            await until(lambda: fleet.worker("w0").up)
    kinds = [kind for kind, _ in heard]
    assert kinds[-2:] == [ChangeKind.RESTARTED, ChangeKind.UP]


async def test_a_restart_between_two_probes_is_noticed():
    """No probe failed, yet another process answers."""
    async with running_worker() as worker, probed_fleet(worker.url) as (_, probes, heard):
        await probes.first_round()
        worker.metrics = "process_start_time_seconds 2.0\n"
        await until(lambda: (ChangeKind.RESTARTED, "w0") in heard)


async def test_a_new_adapter_is_noticed():
    """D-09: within a refresh."""
    async with running_worker() as worker, probed_fleet(worker.url) as (fleet, probes, _):
        await probes.first_round()
        worker.models = [*worker.models, {"id": "lora-a", "parent": "m"}]
        await until(lambda: fleet.knows("lora-a"))


async def test_workers_that_come_and_go_are_watched_and_left_alone():
    """Discovery changes the fleet while probes run."""
    async with running_worker() as first, running_worker() as second, probed_fleet(first.url) as (fleet, probes, _):
        await probes.first_round()
        fleet.add(build_backend_at(second.url, name="late"))
        await until(lambda: fleet.worker("late").up)
        fleet.remove("late")
        await until(lambda: not any(task.get_name() == "probe late" for task in asyncio.all_tasks()))
        asked = len(second.asked)
        await until(lambda: len(first.asked) > 12)
        assert len(second.asked) - asked <= 1


async def test_nothing_runs_after_the_end():
    """Tasks and sockets are gone."""
    async with running_worker() as worker, probed_fleet(worker.url) as (_, probes, _heard):
        await probes.first_round()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("probe")]
