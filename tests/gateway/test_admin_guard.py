"""The admin port asks for its token, where it has one, before it says anything about what exists."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from gateway.admin_guard import OPEN_PATHS, admin_guard
from gateway.config import ConfigError, load_config, load_secrets
from tests.gateway.reloading import build_data, gateway_from, replace_data
from tests.gateway.scripted_worker import scripted_worker

TOKEN = "0123456789abcdef" * 4
PATHS = ("/explain", "/workers", "/config", "/livez", "/readyz", "/metrics", "/nothing")


async def page(_request: web.Request) -> web.Response:
    return web.Response()


async def asked(token: str | None, path: str, *authorization: str) -> int:
    """The status of one request to a port with every path but the last."""
    app = web.Application(middlewares=[admin_guard(token)])
    for known in PATHS[:-1]:
        app.router.add_get(known, page)
    headers = [("authorization", value) for value in authorization]
    async with TestServer(app) as server, ClientSession() as session:
        async with session.get(server.make_url(path), headers=headers) as answer:
            return answer.status


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.row("G3t", smoke=True)
async def test_without_the_token_only_probes_and_scrapes_are_answered(path):
    """What exists and what does not look the same."""
    wrong = (), ("Bearer x",), (TOKEN,), (f"bearer {TOKEN}",), (f"Bearer {TOKEN}",) * 2, (f"Bearer {TOKEN}é",)
    for authorization in wrong:
        assert await asked(TOKEN, path, *authorization) == (200 if path in OPEN_PATHS else 401)


@pytest.mark.parametrize("path", PATHS)
async def test_with_the_token_everything_is_answered(path):
    """And what does not exist is said to not exist."""
    assert await asked(TOKEN, path, f"Bearer {TOKEN}") == (404 if path == "/nothing" else 200)


@pytest.mark.parametrize(
    "target",
    [
        "/livez/../workers",
        "/metrics/..%2Fworkers",
        "/metrics/",
        "/livez;x",
        "/readyz%3Fx",
        "//livez/../workers",
        "/%6Civez",
    ],
)
async def test_what_only_begins_like_an_open_path_asks_for_the_token(target):
    """As it stands in the request line: what a server makes of dots and escapes is no way past the guard."""
    app = web.Application(middlewares=[admin_guard(TOKEN)])
    for known in PATHS[:-1]:
        app.router.add_get(known, page)
    async with TestServer(app) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.read(), 5)
        writer.close()
    assert head.startswith(b"HTTP/1.1 401 ")


async def test_the_port_of_a_running_gateway_asks_for_its_token(path, tmp_path):
    """G3: to look and to change; what was refused has changed nothing."""
    (tmp_path / "token").write_text(TOKEN)
    listen = {"port": 0, "admin_port": 0, "admin_changes": True, "admin_token": f"file:{tmp_path / 'token'}"}
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port, listen=listen))
        async with gateway_from(path) as running, ClientSession() as session:
            admin = f"http://127.0.0.1:{running.gateway.admin_port}"
            for headers, status in (({}, 401), ({"authorization": f"Bearer {TOKEN}"}, 200)):
                for page in ("/workers", "/config"):
                    async with session.get(admin + page, headers=headers) as answer:
                        assert answer.status == status, page
            async with session.delete(f"{admin}/workers/w1") as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (401, "admin_token_needed")
            assert [each.name for each in running.gateway.fleet.workers] == ["w1"]
            async with session.get(f"{admin}/metrics") as answer:
                assert answer.status == 200


async def test_a_port_without_a_token_asks_for_none():
    """As on loopback."""
    assert await asked(None, "/workers") == 200


def build_file(directory, listen: str):
    path = directory / "homing.yaml"
    path.write_text(f"""
listen: {{{listen}}}
models: {{m: {{backends: {{static: ["http://127.0.0.1:8000"]}}}}}}
tenants: {{acme: {{open: true, isolation: shared}}}}
""")
    return path


@pytest.mark.parametrize(
    ("listen", "environ", "what"),
    [
        ("admin_token: env:TOKEN", {}, "TOKEN is not set"),
        ("admin_token: env:TOKEN", {"TOKEN": "short"}, "at least 32"),
        ("admin_token: env:TOKEN", {"TOKEN": "é" * 40}, "printable ASCII"),
        ("admin_token: env:TOKEN", {"TOKEN": "changeme" * 8}, "from an example"),
        (f"admin_token: {TOKEN}", {}, "never itself"),
        ("admin_host: 0.0.0.0, admin_changes: true", {}, "could add workers"),
        ("worker_networks: [10.0.0.0/99]", {}, "is no network"),
        ("worker_networks: [10.0.0.1/8]", {}, "is no network"),
    ],
)
def test_an_unsafe_port_is_refused_at_the_start(tmp_path, listen, environ, what):
    """G1: with the place and the fix, and nothing of the token."""
    with pytest.raises(ConfigError) as caught:
        load_config(build_file(tmp_path, listen), environ)
    said = str(caught.value)
    assert what in said
    assert "$.listen" in said
    assert not any(value in said for value in (*environ.values(), TOKEN))


def test_a_good_token_is_a_secret(tmp_path):
    """Read once, shown nowhere."""
    environ = {"TOKEN": TOKEN}
    config = load_config(
        build_file(tmp_path, "admin_host: 0.0.0.0, admin_changes: true, admin_token: env:TOKEN"), environ
    )
    secrets = load_secrets(config, environ)
    assert secrets.admin_token == TOKEN
    assert TOKEN not in repr(secrets)
    assert TOKEN not in repr(config)
