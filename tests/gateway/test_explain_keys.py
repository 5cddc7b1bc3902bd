"""/explain for a tenant whose keys are kept apart: the hashes of the key that is named, or a word."""

from __future__ import annotations

import aiohttp

from gateway.secrets import fingerprint, key_digest
from tests.gateway.builders import key_line
from tests.gateway.reloading import build_data, gateway_from, replace_data
from tests.gateway.running_gateway import MESSAGES, Running
from tests.gateway.scripted_worker import scripted_worker

APART = {"acme": {"keys": [key_line("one"), key_line("two")], "isolation": "key"}}


async def explained(running: Running, query: str) -> tuple[int, dict]:
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{running.gateway.admin_port}/explain?{query}"
        async with session.post(url, json={"model": "m", "messages": MESSAGES}) as answer:
            return answer.status, await answer.json()


async def test_hashes_are_those_of_the_key_that_is_named(tmp_path):
    """By its fingerprint, as logs and /config show it; never by the key."""
    path = tmp_path / "homing.yaml"
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port, tenants=APART))
        async with gateway_from(path) as running:
            prints = [fingerprint(key_digest(key)) for key in ("one", "two")]
            one, two = [(await explained(running, f"tenant=acme&key={each}"))[1] for each in prints]
            _, nobodys = await explained(running, "tenant=acme")
            assert "caveat" not in one
            assert "caveat" not in two
            assert "fingerprint" in nobodys["caveat"]
            for told in (one, two, nobodys):
                del told["placement"]
            assert len({str({**told, "caveat": ""}) for told in (one, two, nobodys)}) == 3
            status, refusal = await explained(running, "tenant=acme&key=one")
            assert (status, refusal["error"]["param"]) == (400, "key")
