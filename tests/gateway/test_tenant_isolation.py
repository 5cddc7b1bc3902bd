"""Twenty tenants at once, with retries and reloads between: nobody's answer and nobody's salt is another's."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from gateway.reload import APPLIED
from gateway.secrets import derive_salt, key_digest, length_prefixed
from tests.gateway.builders import SALT_SECRET, key_line
from tests.gateway.reloading import build_data, gateway_from, replace_data
from tests.gateway.running_gateway import Running, build_request
from tests.gateway.scripted_worker import Exchange, scripted_worker

SECRET = SALT_SECRET.encode()
KINDS = ("tenant", "group:one", "group:two", "key", "user")
TENANTS = {f"t{number}": KINDS[number % len(KINDS)] for number in range(20)}
REQUESTS_EACH = 12
COIN = random.Random(11)
SPELLINGS = (b'"cache_salt"', b'"cache\\u005fsalt"', b'"\\u0063ache_salt"')


def key_of(tenant: str) -> str:
    return f"{tenant}-key"


def salt_of(tenant: str, client_salt: str | None, user: str) -> str:
    """What the worker must be sent, written down apart from the code under test."""
    kind = TENANTS[tenant]
    group = {
        "tenant": f"tenant:{tenant}",
        "key": f"key:{tenant}:{key_digest(key_of(tenant)).hex()}",
        "user": f"user:{tenant}",
    }.get(kind, kind)
    sub = (client_salt or "").encode()
    sub = length_prefixed(user.encode()) + sub if kind == "user" else sub
    return derive_salt(SECRET, group=group, model="m", sub=sub)


async def echo(exchange: Exchange) -> None:
    """Answers with the request's own mark, or breaks: one time in eight, so that a retry mostly helps."""
    if COIN.random() < 1 / 8:
        exchange.reset()
        return
    mark = exchange.asked["messages"][0]["content"]
    choice = {"index": 0, "message": {"role": "assistant", "content": mark}, "finish_reason": "stop"}
    await exchange.send_json(json.dumps({"id": "1", "choices": [choice]}).encode())


def build_body(mark: str, user: str, spelling: bytes, client_salt: str | None) -> bytes:
    fields = {"model": "m", "messages": [{"role": "user", "content": mark}], "user": user}
    body = json.dumps(fields).encode()
    salt = json.dumps(client_salt).encode()
    return body if client_salt is None else body[:-1] + b", " + spelling + b": " + salt + b"}"


async def ask_as(running: Running, tenant: str, seen: dict[str, str], failures: list[str]) -> None:
    chance = random.Random(tenant)
    for number in range(REQUESTS_EACH):
        mark, user = f"{tenant}/{number}", chance.choice(("ann", "bob"))
        client_salt = chance.choice((None, "mine", salt_of("t0", None, "ann"), "tenant:t0"))
        seen[mark] = salt_of(tenant, client_salt, user)
        body = build_body(mark, user, SPELLINGS[number % 3], client_salt)
        answer = await running.send(build_request(key=key_of(tenant), body=body))
        if answer.status != 200 or answer.json["choices"][0]["message"]["content"] != mark:
            failures.append(f"{mark}: {answer.status}")


async def test_no_answer_and_no_salt_is_anothers(tmp_path: Path):
    """G7, G10: every attempt of every request, retries and requests around a reload included (the long form: `make
    faults`)."""
    path = tmp_path / "homing.yaml"
    tenants = {name: {"keys": [key_line(key_of(name))], "isolation": kind} for name, kind in TENANTS.items()}
    async with scripted_worker(echo) as first, scripted_worker(echo) as second:
        data = build_data(first.port, second.port, tenants=tenants)
        replace_data(path, data)
        async with gateway_from(path) as running:
            expected: dict[str, str] = {}
            failures: list[str] = []
            asking = [asyncio.create_task(ask_as(running, name, expected, failures)) for name in TENANTS]
            rounds = 0
            while not all(task.done() for task in asking):
                rounds += 1
                comes = {"keys": [key_line(f"new-{rounds}")], "isolation": KINDS[rounds % len(KINDS)]}
                replace_data(path, {**data, "tenants": {**tenants, "new": comes}})
                assert await running.gateway.reloader.reload() == APPLIED
                await asyncio.wait(asking, timeout=0.2)
            await asyncio.gather(*asking)
            attempts = [(each.asked["messages"][0]["content"], each.asked["cache_salt"])
                        for worker in (first, second) for each in worker.exchanges]  # fmt: skip
    wrong = [mark for mark, salt in attempts if salt != expected[mark]]
    assert wrong == []
    assert all(failure.endswith((": 502", ": 503")) for failure in failures), failures
    assert len(failures) < len(TENANTS) * REQUESTS_EACH / 3
    assert len(attempts) > len(TENANTS) * REQUESTS_EACH
    assert {mark for mark, _ in attempts} == set(expected)


def test_groups_share_and_nobody_else_does():
    """Of the twenty, those of a group have one salt; all others have their own, for each user where it is by user."""
    salts = {name: {salt_of(name, None, user) for user in ("ann", "bob")} for name in TENANTS}
    one = set.union(*(salts[name] for name, kind in TENANTS.items() if kind == "group:one"))
    assert len(one) == 1
    alone = [salt for name, kind in TENANTS.items() if not kind.startswith("group") for salt in salts[name]]
    assert len(alone) == len(set(alone)) == 4 + 4 + 2 * 4
    assert not one & set(alone)


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_salt_that_stands_twice_is_refused(spelling, tmp_path: Path):
    """Which of the two a worker would take is its own business: nobody gets to choose."""
    path = tmp_path / "homing.yaml"
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port))
        async with gateway_from(path) as running:
            body = build_body("x", "ann", spelling, "a")[:-1] + b', "cache_salt": "b"}'
            answer = await running.send(build_request(key="acme-key", body=body))
            assert (answer.status, answer.error["param"]) == (400, "cache_salt")
            assert worker.exchanges == []
