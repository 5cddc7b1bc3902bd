"""The whole gateway on real sockets, in front of small real workers: started, asked, and stopped."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from gateway.app import CannotListen, Gateway
from gateway.config import config_for_workers, load_config, load_secrets
from gateway.logs import RequestLog
from gateway.settings import Listen
from tests.gateway.builders import ENVIRON, key_line, running_worker, write_config_data
from tests.gateway.test_probes import free_port, until

FREE_PORTS = {"port": 0, "admin_port": 0}
QUICK = {
    "listen": FREE_PORTS,
    "probes": {"interval_seconds": 0.02, "start_seconds": 2.0},
    "timeouts": {"drain_delay_seconds": 0.05, "drain_seconds": 2.0},
}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "a question " * 100}]}


@dataclass
class Running:
    """A gateway, a client, and what was written of requests."""

    gateway: Gateway
    client: aiohttp.ClientSession
    lines: io.StringIO

    async def post(self, path="/v1/chat/completions", *, key="acme-key", **fields):
        headers = {"authorization": f"Bearer {key}"} if key else {}
        url = f"http://127.0.0.1:{self.gateway.api_port}{path}"
        async with self.client.post(url, json={**CHAT, **fields}, headers=headers) as answer:
            return answer.status, await answer.text()

    async def get(self, path, *, key="acme-key"):
        url = f"http://127.0.0.1:{self.gateway.api_port}{path}"
        async with self.client.get(url, headers={"authorization": f"Bearer {key}"}) as answer:
            return answer.status, await answer.json()

    async def admin(self, path, **more):
        url = f"http://127.0.0.1:{self.gateway.admin_port}{path}"
        async with self.client.request("POST" if "data" in more or "json" in more else "GET", url, **more) as answer:
            return answer.status, await answer.text(), answer.headers

    async def metrics(self) -> str:
        return (await self.admin("/metrics"))[1]


@asynccontextmanager
async def running(config, environ=ENVIRON):
    """A gateway with this configuration."""
    lines = io.StringIO()
    request_log = RequestLog(config.log, lines)
    async with (
        Gateway(config, load_secrets(config, environ), request_log=request_log) as gateway,
        aiohttp.ClientSession() as client,
    ):
        yield Running(gateway, client, lines)


def build_config(folder, *urls, tenants=None, model=None, **sections):
    """Two tenants, one model, these workers."""
    tenants = tenants or {"acme": {"keys": [key_line("acme-key")]}, "globex": {"keys": [key_line("globex-key")]}}
    models = {"m": {"backends": {"static": list(urls)}, **(model or {})}}
    return load_config(
        write_config_data(folder, **{**QUICK, "models": models, "tenants": tenants, **sections}), ENVIRON
    )


@asynccontextmanager
async def running_with_worker(folder, *, worker=None, **more):
    """A gateway in front of one worker."""
    async with running_worker(**(worker or {})) as behind, running(build_config(folder, behind.url, **more)) as front:
        yield front, behind


async def test_a_request_goes_through_and_is_accounted_for(tmp_path):
    """From the key to the bill: the answer, the metrics, the line."""
    async with running_with_worker(tmp_path) as (front, _):
        status, text = await front.post()
        assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, "hello")
        metrics = await front.metrics()
    assert 'homing_requests_total{code="200",model="m",tenant="acme"} 1.0' in metrics
    assert 'homing_cached_tokens_total{model="m",tenant="acme"} 64.0' in metrics
    assert 'homing_affinity_placements_total{model="m",outcome="home",tenant="acme"} 1.0' in metrics
    assert 'homing_place_seconds_count{model="m"} 1.0' in metrics
    assert re.search(r'^homing_build_info\{python="3\.\d+\.\d+\S*",version="\d\S*"\} 1\.0$', metrics, re.MULTILINE)
    line = json.loads(front.lines.getvalue())
    assert (line["tenant"], line["code"], line["prompt_tokens"], line["cached_tokens"]) == ("acme", 200, 100, 64)


async def test_tenants_are_salted_apart_and_always_the_same(tmp_path):
    """D-03, F-02, F-04: what the worker gets as cache_salt."""
    async with running_with_worker(tmp_path) as (front, worker):
        for key in ("acme-key", "acme-key", "globex-key"):
            assert (await front.post(key=key))[0] == 200
        await front.post(cache_salt="mine")
        await front.post("/v1/completions", prompt="text", messages=None)
    first, second, other, narrowed, completion = (body["cache_salt"] for body in worker.bodies)
    assert first == second == completion
    assert len({first, other, narrowed}) == 3
    assert "mine" not in {first, other, narrowed}


@pytest.mark.parametrize("key", [None, "wrong-CANARY-91"])
async def test_no_key_and_a_wrong_key_are_401(tmp_path, key):
    """And nothing of the key is anywhere."""
    async with running_with_worker(tmp_path) as (front, worker):
        status, text = await front.post(key=key)
        metrics = await front.metrics()
    assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_api_key")
    assert worker.bodies == []
    assert "CANARY" not in text + metrics + front.lines.getvalue()


async def test_neither_prompt_nor_key_is_in_log_or_metrics(tmp_path):
    """E-10: a canary through every kind of answer."""
    async with running_with_worker(tmp_path) as (front, _):
        secret = {"messages": [{"role": "user", "content": "prompt-CANARY-7f3a"}]}
        await front.post(**secret)
        await front.post(**secret, model="unknown-CANARY")
        await front.post(**secret, stream="CANARY")
        shown = front.lines.getvalue() + await front.metrics()
    assert "prompt-CANARY" not in shown
    assert "acme-key" not in shown
    assert "unknown-CANARY" not in metric_lines(shown)


def metric_lines(text):
    """The metric lines of a text."""
    return "\n".join(line for line in text.splitlines() if line.startswith("homing_"))


async def test_another_tenants_model_looks_unknown(tmp_path):
    """No oracle: the same 404 for a model that is not there and for one that is not yours."""
    tenants = {"acme": {"keys": [key_line("acme-key")], "models": []}, "globex": {"keys": [key_line("globex-key")]}}
    async with running_with_worker(tmp_path, tenants=tenants) as (front, _):
        foreign = await front.post()
        unknown = await front.post(key="globex-key", model="no-such")
        listed = (await front.get("/v1/models"))[1]["data"]
    assert foreign == unknown
    assert foreign[0] == 404
    assert listed == []


async def test_a_prompt_over_the_tenants_bound_is_refused(tmp_path):
    """Before it reaches a worker."""
    tenants = {"acme": {"keys": [key_line("acme-key")], "max_prompt_tokens": 5}}
    async with running_with_worker(tmp_path, tenants=tenants) as (front, worker):
        status, text = await front.post()
    assert (status, json.loads(text)["error"]["code"]) == (400, "context_length_exceeded")
    assert worker.bodies == []


async def test_a_worker_that_is_down_at_start_is_named_and_the_rest_serves(tmp_path, caplog):
    """In the log and in /readyz."""
    caplog.set_level("INFO", "homing")
    dead = f"http://127.0.0.1:{free_port()}"
    async with running_worker() as worker, running(build_config(tmp_path, worker.url, dead)) as front:
        assert (await front.post())[0] == 200
        status, text, _ = await front.admin("/readyz")
    assert status == 200
    assert list(json.loads(text)["workers_down"].values()) == ["no connection: Connection refused"]
    assert "worker is down" in caplog.text
    assert "1 of 2 up" in [getattr(record, "fields", {}).get("workers") for record in caplog.records]


async def test_with_no_worker_at_all_the_answer_is_503(tmp_path):
    """A configured model whose workers are all down is not unknown."""
    async with running(build_config(tmp_path, f"http://127.0.0.1:{free_port()}")) as front:
        status, text = await front.post()
    assert (status, json.loads(text)["error"]["code"]) == (503, "no_backend")


async def test_models_are_merged_over_workers(tmp_path):
    """D-07, through the front door."""
    one = [{"id": "m", "max_model_len": 4096}, {"id": "lora-a", "parent": "m"}]
    two = [{"id": "m", "max_model_len": 2048}, {"id": "lora-b", "parent": "m"}]
    async with (
        running_worker(models=one) as first,
        running_worker(models=two) as second,
        running(build_config(tmp_path, first.url, second.url)) as front,
    ):
        listed = (await front.get("/v1/models"))[1]["data"]
        assert [(card["id"], card["max_model_len"]) for card in listed] == [
            ("m", 2048),
            ("lora-a", None),
            ("lora-b", None),
        ]
        for _ in range(3):
            assert (await front.post(model="lora-b"))[0] == 200
    assert first.bodies == []
    assert len(second.bodies) == 3


async def test_the_first_try_serves_whatever_the_worker_lists(tmp_path):
    """`homing serve --worker URL`: no file, any key, unsalted."""
    async with running_worker(models=[{"id": "anything"}]) as worker:
        config = config_for_workers([worker.url], Listen(port=0, admin_port=0))
        async with running(config, {}) as front:
            assert (await front.post(key="whatever", model="anything", cache_salt="mine"))[0] == 200
            assert (await front.post(key=None, model="anything"))[0] == 200
            assert (await front.post(model="other"))[0] == 404
    assert worker.bodies[0]["cache_salt"] == "mine"
    assert "cache_salt" not in worker.bodies[1]


async def test_a_model_that_appears_later_is_served(tmp_path):
    """A worker that comes up after the gateway."""
    port = free_port()
    config = config_for_workers([f"http://127.0.0.1:{port}"], Listen(port=0, admin_port=0))
    async with running(config, {}) as front:
        assert (await front.post())[0] == 503
        assert front.gateway.serving.routers == {}
        async with running_worker(port):
            await until(lambda: front.gateway.fleet.workers[0].up)
            assert (await front.post())[0] == 200
            assert (await front.post(model="made-up"))[0] == 404
        assert 'model="m"' in await front.metrics()


async def test_the_workers_key_goes_along_and_the_clients_does_not(tmp_path, monkeypatch):
    """F-11: probes and requests carry the worker's own key."""
    (tmp_path / "wk").write_text("worker-key")
    async with running_worker(api_key="worker-key") as worker:
        backend = {"url": worker.url, "api_key": f"file:{tmp_path / 'wk'}"}
        async with running(build_config(tmp_path, model={"backends": {"static": [backend]}})) as front:
            assert (await front.post())[0] == 200
    assert worker.authorizations == {"Bearer worker-key"}


async def test_what_a_router_believed_of_a_restarted_worker_is_forgotten(tmp_path):
    """Its cache is empty, so nothing is predicted."""
    async with running_with_worker(tmp_path) as (front, worker):
        for _ in range(2):
            await front.post()
        assert (await explained(front))["placement"]["predicted_cached_tokens"] > 0
        worker.metrics = "process_start_time_seconds 2.0\n"
        router = front.gateway.serving.router("m")
        await until(lambda: sum(each.directory_blocks for each in router.stats().workers) == 0)
        assert (await explained(front))["placement"]["predicted_cached_tokens"] == 0


async def explained(front, body=None, tenant="acme"):
    status, text, _ = await front.admin("/explain", json=body or CHAT, headers={"x-homing-tenant": tenant})
    assert status == 200, text
    return json.loads(text)


async def test_explain_shows_keys_and_candidates(tmp_path):
    """The same keys as offline, with every worker's numbers; nothing is sent, nothing is counted."""
    async with running_with_worker(tmp_path) as (front, worker):
        told = await explained(front)
        assert worker.bodies == []
        assert "homing_placements_total{" not in await front.metrics()
    assert {"key", "key_blocks", "exact_blocks", "folded", "tokens", "text_forwarded_unchanged"} <= set(told)
    (candidate,) = told["placement"]["candidates"]
    assert {"worker", "cached_tokens", "wait_seconds", "own_seconds", "score"} <= set(candidate)
    assert told["placement"]["reason"] == "home"


async def test_explain_keys_are_the_tenants(tmp_path):
    """Placement is salted, too: another tenant's home for the same words cannot be predicted."""
    async with running_with_worker(tmp_path) as (front, _):
        acme, globex = await explained(front), await explained(front, tenant="globex")
    assert acme["key"] != globex["key"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/explain", CHAT, 400, None),
        ("/explain?tenant=nobody", CHAT, 400, None),
        ("/explain?tenant=acme", {"model": "m"}, 400, None),
        ("/explain?tenant=acme", {**CHAT, "model": "no-such"}, 404, "model_not_found"),
        ("/explain?tenant=acme", [], 400, None),
    ],
)
async def test_explain_says_what_is_wrong(tmp_path, path, body, status, code):
    """In the shape of the API's errors."""
    async with running_with_worker(tmp_path) as (front, _):
        answered, text, _headers = await front.admin(path, json=body)
    assert answered == status
    assert json.loads(text)["error"]["code"] == code


async def test_a_broken_request_on_the_admin_port_leaves_nothing_in_the_log(tmp_path, caplog, capfd):
    """F-09: aiohttp would quote the head it could not parse."""
    async with running_with_worker(tmp_path) as (front, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", front.gateway.admin_port)
        writer.write(b"GET /metrics HTTP/1.1\r\nauthorization: Bearer CANARY-91\r\nbad header line\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400")
        writer.close()
    assert "CANARY" not in caplog.text + "".join(capfd.readouterr())


async def test_alive_and_ready(tmp_path):
    """What a kubelet asks."""
    async with running_with_worker(tmp_path) as (front, _):
        assert (await front.admin("/livez"))[0] == 200
        status, text, _ = await front.admin("/readyz")
        told = json.loads(text)
    assert (status, told["ready"], told["waiting_for"]) == (200, True, [])
    assert told["models"]["m"] == {"block_tokens": 64, "tokenizer": "bytes", "policy": "homing"}
    assert [worker["state"] for worker in told["workers"].values()] == ["ready"]


async def test_metrics_are_negotiated(tmp_path):
    """Prometheus' own format, or OpenMetrics for who asks."""
    async with running_with_worker(tmp_path) as (front, _):
        _, plain, plain_headers = await front.admin("/metrics")
        openmetrics = "application/openmetrics-text; version=1.0.0"
        _, modern, modern_headers = await front.admin("/metrics", headers={"accept": openmetrics})
    assert plain_headers["content-type"].startswith("text/plain; version=0.0.4")
    assert modern_headers["content-type"].startswith("application/openmetrics-text")
    assert modern.endswith("# EOF\n")
    assert "NaN" not in plain
    assert re.search(r'homing_backend_up\{backend="127.0.0.1:\d+"\} 1.0', plain)


async def test_draining_says_no_and_then_lets_streams_end(tmp_path):
    """/readyz 503 at once; an open request still gets its answer."""
    async with running_with_worker(tmp_path) as (front, _):
        asked = asyncio.create_task(front.post(stream=True))
        draining = asyncio.create_task(front.gateway.drain())
        await until(lambda: front.gateway.readiness.draining)
        status, text, _ = await front.admin("/readyz")
        assert (status, json.loads(text)["waiting_for"]) == (503, ["draining"])
        assert (await asked)[0] == 200
        await draining
        with pytest.raises(aiohttp.ClientConnectorError):
            await front.post()


async def test_a_taken_port_is_an_error_in_words(tmp_path):
    """And what was started is stopped again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with running_worker() as worker:
            for listen in ({"port": port, "admin_port": 0}, {"port": 0, "admin_port": port}):
                config = build_config(tmp_path, worker.url, listen=listen)
                with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}"):
                    async with running(config):
                        pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("probe", "loop watch"))]


async def test_nothing_is_left_after_the_end(tmp_path):
    """Tasks are gone, counts are zero."""
    before = asyncio.all_tasks()
    async with running_with_worker(tmp_path) as (front, _):
        await front.post()
        await front.post(stream=True)
        fleet = front.gateway.fleet
    fleet.check_integrity()
    assert all(worker.in_flight == 0 for worker in fleet.workers)
    assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith(("probe", "load", "loop"))]
