"""`homing explain --gateway`: a running gateway says where a request would go, and why, in numbers and in words."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.admin_guard import admin_guard
from gateway.cli import main
from gateway.explain_remote import RemoteExplainer
from tests.gateway.test_app import CHAT, running_with_worker


async def ask(front, *words, tenant="acme"):
    """The command in a thread, as a person would run it beside the gateway."""
    url = f"http://127.0.0.1:{front.gateway.admin_port}"
    return await asyncio.to_thread(main, ["explain", "--gateway", url, "--tenant", tenant, *words])


async def test_a_running_gateway_tells_the_placement_and_why(tmp_path, capsys):
    """The reason in words, the price, and every candidate; nothing is sent to a worker."""
    async with running_with_worker(tmp_path) as (front, worker):
        assert await ask(front, json.dumps(CHAT)) == 0
        assert worker.bodies == []
        told = json.loads(capsys.readouterr().out)
    placement = told["placement"]
    assert placement["why"] == f"home: {placement['worker']} is the prompt's home, and nobody is better"
    assert (placement["homes"], placement["price"], placement["slack_seconds"]) == (1, 1.0, 0.125)
    numbers = {"worker", "cached_tokens", "wait_seconds", "own_seconds", "decode_seconds", "score"}
    assert numbers <= set(placement["candidates"][0])
    assert CHAT["messages"][0]["content"] not in json.dumps(told)


async def test_what_the_gateway_objects_to_is_told(tmp_path, capsys):
    """An unknown tenant, an unknown model: its own words, exit code 1."""
    async with running_with_worker(tmp_path) as (front, _):
        assert await ask(front, json.dumps(CHAT), tenant="nobody") == 1
        assert "Say which tenant asks" in capsys.readouterr().err
        assert await ask(front, json.dumps({**CHAT, "model": "other"})) == 1
        assert "No model" in capsys.readouterr().err


def test_a_gateway_that_is_not_there_is_no_traceback(capsys):
    """The address is named."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        assert main(["explain", "--gateway", url, json.dumps(CHAT)]) == 1
    assert "the gateway at 127.0.0.1 cannot be asked" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["127.0.0.1:9090", "ftp://host:1", "http://", "http://host:1/?x=1"])
def test_an_address_that_is_none_is_misuse(url, capsys):
    """And the right shape is shown."""
    assert main(["explain", "--gateway", url, "{}"]) == 2
    assert "http://127.0.0.1:9090" in capsys.readouterr().err


def test_a_configuration_and_a_gateway_exclude_each_other(tmp_path, capsys):
    """One of the two knows the tenant's rules."""
    assert main(["explain", "--gateway", "http://h:1", "--config", str(tmp_path / "x.yaml"), "{}"]) == 2
    assert "--gateway or --config" in capsys.readouterr().err


async def test_something_else_that_answers_is_not_believed():
    """A port that speaks HTTP and is no gateway."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        told = await asyncio.to_thread(RemoteExplainer(f"http://127.0.0.1:{port}").explain, b"{}")
    assert told == {"error": "what answers at 127.0.0.1 is no gateway's admin port"}


async def test_sampled_decisions_are_logged_without_text(tmp_path):
    """With `log.decision_share` 1 every placement has its line: names, numbers, a hash, and nothing of the prompt."""
    log = {"format": "json", "decision_share": 1.0}
    async with running_with_worker(tmp_path, log=log) as (front, _):
        status, _ = await front.post()
        assert status == 200
    lines = [json.loads(line) for line in front.lines.getvalue().splitlines()]
    (decision,) = [line for line in lines if line["event"] == "placement"]
    (request,) = [line for line in lines if line["event"] == "request"]
    assert decision["request_id"] == request["request_id"]
    assert (decision["tenant"], decision["attempt"], decision["reason"]) == ("acme", 1, "home")
    assert decision["candidates"][0]["worker"] == decision["worker"] == request["backend"]
    assert "question" not in json.dumps(decision)


async def test_the_ports_token_comes_from_the_environment(capsys, monkeypatch):
    """Without it the port's refusal is told; it never stands on a command line, where others can see it."""
    token = "0123456789abcdef" * 2

    async def explain(_request):
        return web.json_response({"placement": {}})

    app = web.Application(middlewares=[admin_guard(token)])
    app.router.add_post("/explain", explain)
    async with TestServer(app) as server:
        words = ["explain", json.dumps(CHAT), "--gateway", str(server.make_url("/")).rstrip("/")]
        assert await asyncio.to_thread(main, words) == 1
        assert "admin_token" in capsys.readouterr().err
        monkeypatch.setenv("HOMING_ADMIN_TOKEN", token)
        assert await asyncio.to_thread(main, words) == 0
