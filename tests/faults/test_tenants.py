"""Rows G7, G8, G10 and G11: what one tenant can learn of another, and what strangers can do to the metrics."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from tests.faults.attempts import read_attempts
from tests.faults.client import Answer, Client, load, new_nonce
from tests.faults.isolation import ask_for_one_token, ks_p_value, sample
from tests.faults.stage import Stage, tenant_of


def test_the_comparison_of_distributions_is_the_textbooks() -> None:
    """Against published critical values: D for p = 0.01 of 250 + 250 is about 1.63 / √125."""
    ordered = [float(number) for number in range(250)]
    shifted = [number + 36.4 for number in ordered]  # a distance of 0.146
    assert 0.005 < ks_p_value(ordered, shifted) < 0.02
    assert ks_p_value(ordered, ordered) == 1.0
    assert ks_p_value(ordered, [number + 1000 for number in ordered]) < 1e-50
    rng = random.Random(3)
    low = sum(
        ks_p_value([rng.random() for _ in range(100)], [rng.random() for _ in range(100)]) < 0.1 for _ in range(400)
    )
    assert 15 <= low <= 70


@pytest.mark.row("G8", smoke=True, seconds=180)
async def test_times_tell_no_tenant_what_another_asked(stage: Stage) -> None:
    """Two workers with caches by salt, whose hits are much quicker: the asker's own prompts show it, others' do not."""
    await stage.start_workers(2, cache=True, first_seconds=0.02, hit_seconds=0.004, jitter=0.5)
    gateway = await stage.gateway()
    rounds = stage.row.size(250, 25)
    found = await sample(stage.client(gateway, "alpha"), stage.client(gateway, "beta"), ask_for_one_token, rounds)
    stage.row.holds(found.told(), found.met)


@pytest.mark.row("G10", seconds=400)
async def test_no_answer_is_mixed_up_with_anothers(stage: Stage) -> None:
    """Twenty tenants at once while workers reset, stall and answer garbage: each answer has its own mark alone."""
    workers = await stage.start_workers(4)
    keys = {f"t{number}": f"sk-CANARY-KEY-91d2-{number:02d}-0123456789" for number in range(20)}
    gateway = await stage.gateway(tenants={name: tenant_of(key) for name, key in keys.items()})
    each = stage.row.size(1000, 15)
    clients = [stage.client(gateway, key) for key in keys.values()]
    over = False

    async def trouble() -> None:
        turn = 0
        while not over:
            for mode in ("rst0", "rst", "fin", "garbage", "ok"):
                turn += 1
                await workers[turn % 4].set(mode=mode, share=0.2)
                await asyncio.sleep(0.2)

    troubling = asyncio.create_task(trouble())
    answers: list[Answer] = []
    for found in await asyncio.gather(*(load(client, each, at_once=2) for client in clients)):
        answers += found
    over = True
    await troubling
    mixed = [answer for answer in answers if answer.status == 200 and others_marks(answer)]
    salts = {run.nonce: run.salt for run in read_attempts(stage.directory)}
    by_tenant = [{salts[a.nonce] for a in answers if a.nonce in salts}]
    wrong = sum(not answer.ok for answer in answers)
    stage.row.holds(
        f"{len(mixed)} mixed of {len(answers)} ({wrong} told as errors), {len(by_tenant[0])} salts of 20 tenants",
        not mixed and len(by_tenant[0]) == 20 and None not in by_tenant[0],
    )


def others_marks(answer: Answer) -> bool:
    """Whether the body has a mark of some other request."""
    marks = {word.strip('",}') for word in answer.body.decode(errors="replace").split() if word.startswith("n")}
    return any(mark.count("-") == 1 and mark[1:].replace("-", "").isdigit() and mark != answer.nonce for mark in marks)


@pytest.mark.row("G7")
async def test_every_attempt_carries_its_tenants_own_salt(stage: Stage) -> None:
    """On retries, after a restart of workers, with Redis away, and whatever salt the caller sends."""
    workers = await stage.start_workers(3)
    await workers[0].set(mode="rst0", share=0.5)
    gateway = await stage.gateway(redis={"url": "redis://127.0.0.1:1/0", "start_seconds": 0.1})
    count, salts = stage.row.size(600, 40), {}
    for tenant in ("alpha", "beta"):
        client = stage.client(gateway, tenant)
        for fields in ({}, {"cache_salt": None}):
            answers = await load(client, count // 2, at_once=8, **fields)
            found = {run.nonce: run.salt for run in read_attempts(stage.directory)}
            salts.setdefault(tenant, set()).update(found[a.nonce] for a in answers if a.nonce in found)
    narrowed = await load(stage.client(gateway), 10, cache_salt="mine")
    found = {run.nonce: run.salt for run in read_attempts(stage.directory)}
    own = {found[answer.nonce] for answer in narrowed if answer.nonce in found}
    apart = salts["alpha"].isdisjoint(salts["beta"]) and own.isdisjoint(salts["alpha"] | salts["beta"])
    stage.row.holds(
        f"{len(salts['alpha'])} + {len(salts['beta'])} salts of two tenants, {2 * count} requests; {len(own)} narrowed",
        len(salts["alpha"]) == len(salts["beta"]) == len(own) == 1 and apart and None not in own and "mine" not in own,
    )


@pytest.mark.row("G11", smoke=True, seconds=600)
async def test_strangers_names_make_no_series(stage: Stage) -> None:
    """Models, tenants' keys, paths, methods and sessions that are new each time: as many series as before."""
    await stage.start_workers(2)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    strangers = [stage.client(gateway, f"sk-nobody-{number}") for number in range(4)]
    await hostile(client, strangers, range(40))
    before = series(await gateway.metrics())
    count = stage.row.size(100_000, 400)
    lanes = 16
    await asyncio.gather(
        *(hostile(client, strangers, range(1000 + lane, 1000 + count, lanes)) for lane in range(lanes))
    )
    after = series(await gateway.metrics())
    new = after - before
    stage.row.holds(f"{len(new)} new series of {count} hostile names, {len(after)} in all", not new)


def series(page: str) -> set[str]:
    """Names with labels, without values."""
    return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}


async def hostile(client: Client, strangers: list[Client], numbers: range) -> None:
    for number in numbers:
        kind, name = number % 4, f"x{number}-{'é' * (number % 7)}\\n"
        if kind == 0:
            body = json.dumps({"model": name, "messages": [{"role": "user", "content": "hi"}]}).encode()
            await client.ask(body=body, headers=f"x-session-id: s{number}\r\nuser-agent: u{number}\r\n")
        elif kind == 1:
            strangers[number // 4 % len(strangers)].tenant = f"sk-{name.encode().hex()}"
            await strangers[number // 4 % len(strangers)].ask(body=b"{}")
        else:
            verb, path = ("POST", f"/v1/x{number}") if kind == 2 else (f"M{number}", "/v1/chat/completions")
            await raw(client, verb, path)


async def raw(client: Client, verb: str, path: str) -> None:
    """One request of another method or path, on a connection of its own."""
    reader, writer = await client.open()
    writer.write(f"{verb} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-nonce: {new_nonce()}\r\n\r\n".encode())
    await reader.read()
    writer.close()
