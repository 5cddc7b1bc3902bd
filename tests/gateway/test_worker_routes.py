"""/workers on the admin port: seen always, changed only where the configuration says so."""

from __future__ import annotations

import json

import pytest

from tests.gateway.builders import running_worker
from tests.gateway.test_app import build_config, running
from tests.gateway.test_probes import until

CHANGES = {"port": 0, "admin_port": 0, "admin_changes": True}


async def change(front, method, path, body=None):
    """Status and decoded body."""
    url = f"http://127.0.0.1:{front.gateway.admin_port}{path}"
    async with front.client.request(method, url, json=body) as answer:
        return answer.status, json.loads(await answer.text())


async def shown(front):
    """GET /workers by name."""
    return {worker["name"]: worker for worker in (await change(front, "GET", "/workers"))[1]["workers"]}


async def test_without_leave_nothing_can_be_changed(tmp_path):
    """Off by default: 403 with the setting's name; looking is always allowed."""
    async with running_worker() as worker, running(build_config(tmp_path, worker.url)) as front:
        name = next(iter(await shown(front)))
        for method, path in (
            ("POST", "/workers"), ("POST", f"/workers/{name}/drain"), ("DELETE", f"/workers/{name}/drain"),
            ("DELETE", f"/workers/{name}"),
        ):  # fmt: skip
            status, body = await change(front, method, path, {"url": "http://127.0.0.1:1"})
            assert (status, body["error"]["code"]) == (403, "changes_off")
            assert "listen.admin_changes" in body["error"]["message"]
        assert (await shown(front))[name]["draining"] is False
        assert (await front.post())[0] == 200


async def test_a_worker_is_added_serves_is_drained_and_removed(tmp_path):
    """The whole life over the port; requests go on throughout, and the last good worker gets them."""
    async with running_worker() as old, running_worker() as new:
        async with running(build_config(tmp_path, old.url, listen=CHANGES)) as front:
            status, body = await change(front, "POST", "/workers", {"url": new.url, "name": "new/one"})
            assert (status, body["workers"][0]["state"]) == (201, "unknown")
            await until(lambda: front.gateway.fleet.worker("new/one").up)
            (first,) = (name for name in await shown(front) if name != "new/one")
            assert (await change(front, "POST", f"/workers/{first}/drain"))[0] == 202
            for _ in range(5):
                assert (await front.post())[0] == 200
            assert (len(old.bodies), len(new.bodies)) == (0, 5)
            status, body = await change(front, "DELETE", f"/workers/{first}/drain")
            assert (status, body["draining"]) == (200, False)
            status, body = await change(front, "DELETE", "/workers/new%2Fone")
            assert (status, body["name"]) == (200, "new/one")
            assert list(await shown(front)) == [first]
            assert (await front.post())[0] == 200
            assert len(old.bodies) == 1


async def test_a_page_in_a_browser_changes_nothing(tmp_path):
    """The port asks for no key, and any site may send a form to an address on this machine."""
    async with running_worker() as worker, running(build_config(tmp_path, worker.url, listen=CHANGES)) as front:
        url, body = f"http://127.0.0.1:{front.gateway.admin_port}/workers", '{"url": "http://10.0.0.9:80"}'
        for headers in ({"Origin": "https://evil.example"}, {"origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            async with front.client.post(url, data=body, headers={"Content-Type": "text/plain", **headers}) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (403, "changes_off")
        assert len(await shown(front)) == 1


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("POST", "/workers/nobody/drain", 404, "no_such_worker"), ("DELETE", "/workers/nobody", 404, "no_such_worker"),
     ("DELETE", "/workers/nobody/drain", 404, "no_such_worker")],
)  # fmt: skip
async def test_errors_teach(tmp_path, method, path, status, code):
    """OpenAI's shape, as everywhere."""
    async with running_worker() as worker, running(build_config(tmp_path, worker.url, listen=CHANGES)) as front:
        told, body = await change(front, method, path)
        assert (told, body["error"]["code"]) == (status, code)
        told, body = await change(front, "POST", "/workers", {"url": worker.url})
        assert (told, body["error"]["code"]) == (409, "worker_exists")
