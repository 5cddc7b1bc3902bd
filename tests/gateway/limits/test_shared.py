"""Gateways that count together in a real Redis: exact while it is there, and nobody waits while it is not."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from gateway.limits.allowance import CONCURRENCY, REQUESTS, TOKENS
from gateway.limits.link import LimitsLink, LinkError
from gateway.limits.shared import FAILURES_TO_AWAY, MOST_QUESTIONS, Away
from tests.end_to_end.redis_server import redis_server
from tests.gateway.limits.builders import build_tenant
from tests.gateway.limits.redis_counts import build_question, counting
from tests.gateway.scripted_worker import until
from tests.gateway.shared.test_link import scripted


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(server):
    server.command("FLUSHALL")
    return server


async def test_a_concurrency_limit_is_exact_over_gateways(redis):
    """C9: three gateways, a limit of 20, two thousand requests that come and go: 20 at a time and never one more."""
    tenant, dice = build_tenant(concurrency=20), random.Random(3)
    now, most, passed = 0, 0, 0

    async def one(gateway, account) -> None:
        nonlocal now, most, passed
        if await gateway.ask(account) is not None:
            return
        now, passed = now + 1, passed + 1
        most = max(most, now)
        await asyncio.sleep(dice.random() * 0.004)
        now -= 1
        gateway.end(account)

    async with counting(redis.url, 3) as gateways:
        accounts = [each.account(tenant) for each in gateways]
        for _ in range(20):
            await asyncio.gather(*(one(gateways[n % 3], accounts[n % 3]) for n in range(100)))
        assert most == 20
        assert passed >= 400
        assert sum(account.allowance.held for account in accounts) == 0
        assert sum(each.failures for each in gateways) == 0


async def test_a_rate_is_exact_over_gateways(redis):
    """C9: at most what the bucket held and what refilled, and one more for each gateway."""
    tenant, passed, began = build_tenant(requests_per_minute=600), 0, time.monotonic()

    async def ask(gateway, account) -> int:
        if await gateway.ask(account) is not None:
            return 0
        gateway.end(account)
        return 1

    async with counting(redis.url, 3) as gateways:
        accounts = [each.account(tenant) for each in gateways]
        for _ in range(15):
            passed += sum(await asyncio.gather(*(ask(gateways[n % 3], accounts[n % 3]) for n in range(90))))
        seconds = time.monotonic() - began
        assert 600 <= passed <= 600 + seconds * 10 + 3


async def test_tokens_are_settled_for_everybody(redis):
    """What one gateway gives back, another may take."""
    tenant = build_tenant(tokens_per_minute=1000)
    async with counting(redis.url, 2) as (one, other):
        mine, theirs = one.account(tenant), other.account(tenant)
        assert await one.ask(mine, 900.0) is None
        refusal = await other.ask(theirs, 500.0)
        assert refusal is not None
        assert refusal.limit == TOKENS
        one.end(mine, 900.0, 10.0)
        assert await one.ask(mine, 1.0) is None  # by now Redis has been told
        assert await other.ask(theirs, 500.0) is None


async def test_one_that_ends_makes_room_for_the_same_callers_next(redis):
    """A client with one slot may ask again at once: what ended is said before what is asked."""
    async with counting(redis.url) as (gateway,):
        account = gateway.account(build_tenant(concurrency=1))
        for _ in range(50):
            assert await gateway.ask(account) is None
            gateway.end(account)


async def test_what_is_asked_together_goes_out_together(redis):
    """A thousand requests at once are some round trips, and no call of the script is endless."""
    calls = []
    async with counting(redis.url) as (gateway,):
        account = gateway.account(build_tenant(requests_per_minute=5000))
        call = gateway.shared._link.call
        gateway.shared._link.call = lambda commands: calls.append(len(commands)) or call(commands)
        answers = await asyncio.gather(*(gateway.ask(account) for _ in range(1000)))
        assert answers == [None] * 1000
        assert account.allowance.held == 1000
        assert len(calls) <= 2 + 1000 // MOST_QUESTIONS + 1


async def test_a_cancelled_request_gives_back_what_it_got(redis):
    """C11: cancelled at random moments, nothing leaks, and no answer is anybody else's."""
    dice, account_total = random.Random(11), 0
    async with counting(redis.url) as (gateway,):
        loose = gateway.account(build_tenant("loose", concurrency=10_000))
        tight = gateway.account(build_tenant("tight", requests_per_minute=1))
        await gateway.ask(tight)
        for _ in range(150):
            questions = [(account, build_question()) for account in (loose, tight) for _ in range(4)]
            tasks = [asyncio.create_task(gateway.shared.ask(*each)) for each in questions]
            for _ in range(dice.randrange(5)):
                await asyncio.sleep(0)
            for task in tasks:
                if dice.random() < 0.5:
                    task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for (account, question), answer in zip(questions, answers, strict=True):
                if isinstance(answer, asyncio.CancelledError):
                    if question.taken:  # the answer was there already: whoever asked settles it
                        gateway.end(account)
                elif account is loose:
                    assert answer is None
                    account_total += 1
                    gateway.end(account)
                else:
                    assert answer.limit == REQUESTS
        await gateway.ask(loose)
        gateway.end(loose)
        assert loose.allowance.held == 0
        assert account_total > 100
        assert gateway.failures == 0


async def test_a_gateway_that_dies_gives_its_slots_back_by_the_end_of_its_lease(redis, monkeypatch):
    """C10, with a shorter lease: what nobody renews is free again, what is renewed is not."""
    monkeypatch.setattr("gateway.limits.script.LEASE_SECONDS", 0.8)
    monkeypatch.setattr("gateway.limits.shared.RENEW_SECONDS", 0.2)
    tenant = build_tenant(concurrency=2)
    async with counting(redis.url, 3) as (dead, alive, asks):
        theirs, mine, account = dead.account(tenant), alive.account(tenant), asks.account(tenant)
        assert await dead.ask(theirs) is None
        assert await alive.ask(mine) is None
        for task in dead.shared._tasks:
            task.cancel()
        refusal = await asks.ask(account)
        assert refusal is not None
        assert refusal.limit == CONCURRENCY
        began = time.monotonic()
        while await asks.ask(account) is not None:
            assert time.monotonic() - began < 5
            await asyncio.sleep(0.05)
        assert await asks.ask(account) is not None  # the one that lives still has its own


async def test_flushes_cost_nobody_an_error(redis):
    """C6: FLUSHALL and SCRIPT FLUSH under load; slots are counted again within a renewal."""
    tenant = build_tenant(concurrency=8)
    async with counting(redis.url, 2) as (one, other):
        mine, theirs = one.account(tenant), other.account(tenant)
        for _ in range(5):
            assert await one.ask(mine) is None
        redis.command("SCRIPT", "FLUSH")
        assert await other.ask(theirs) is None
        redis.command("FLUSHALL")
        one.shared.tell(mine)  # as the renewal does
        assert await one.ask(mine) is None
        assert [await other.ask(theirs) is None for _ in range(3)] == [True, False, False]
        assert one.failures == other.failures == 0


async def test_while_redis_is_frozen_nobody_waits_long_and_then_nobody_waits(redis):
    """C3: three calls of 50 ms at the most, then none; back within seconds of the thaw."""
    tenant = build_tenant(concurrency=100)
    async with counting(redis.url, seconds=0.05) as (gateway,):
        account = gateway.account(tenant)
        await gateway.ask(account)
        redis.freeze()
        try:
            slow = 0
            for _ in range(30):
                began = time.monotonic()
                with pytest.raises(Away):
                    await gateway.ask(account)
                slow += time.monotonic() - began > 0.02
            assert slow <= FAILURES_TO_AWAY
            assert not gateway.shared.up
        finally:
            redis.thaw()
        await until(lambda: gateway.shared.up, seconds=10)
        assert await gateway.ask(account) is None


async def test_a_redis_that_may_not_be_written_is_away(redis):
    """C7: a replica that answers PING and refuses to count; nobody waits for it again and again."""
    async with counting(redis.url) as (gateway,):
        account = gateway.account(build_tenant(concurrency=5))
        assert await gateway.ask(account) is None
        redis.command("REPLICAOF", "127.0.0.1", "1")
        try:
            await until(lambda: b"role:slave" in redis.command("INFO", "replication"))
            for _ in range(FAILURES_TO_AWAY):
                with pytest.raises(Away):
                    await gateway.ask(account)
            await asyncio.sleep(1.3)
            assert not gateway.shared.up
        finally:
            redis.command("REPLICAOF", "NO", "ONE")
        await until(lambda: gateway.shared.up, seconds=10)


@pytest.mark.parametrize(
    "answer", [b"-OOM no\r\n", b"+OK\r\n", b":5\r\n", b"*1\r\n:1\r\n", b"!junk\r\n", b"$3\r\nabc\r\n"]
)
async def test_whatever_answers_it_is_away_and_nobody_fails(answer):
    """C12: something that is no Redis is as good as none."""
    async with scripted(answer, greets=True) as url, counting(url, seconds=0.05) as (gateway,):
        account = gateway.account(build_tenant(concurrency=5))
        for _ in range(4):
            with pytest.raises(Away):
                await gateway.ask(account)
        assert not gateway.shared.up
        assert account.allowance.held == 0


async def test_nobody_there_costs_no_time():
    """A refused connection: away from the start, and a request in time is one that does not ask."""
    async with counting("redis://127.0.0.1:1/0", seconds=0.05) as (gateway,):
        account = gateway.account(build_tenant(concurrency=5))
        for _ in range(FAILURES_TO_AWAY + 1):
            with pytest.raises(Away):
                await gateway.ask(account)
        assert gateway.failures == 1


async def test_an_error_of_ours_leaves_nobody_waiting(redis, caplog, monkeypatch):
    """The task that talks goes on whatever happens in it."""
    async with counting(redis.url) as (gateway,):
        account = gateway.account(build_tenant(concurrency=5))
        monkeypatch.setattr("gateway.limits.shared.read_reply", lambda *_: 1 / 0)
        with pytest.raises(Away):
            await asyncio.wait_for(gateway.ask(account), 5)
        monkeypatch.undo()
        assert await gateway.ask(account) is None
        assert "ZeroDivisionError while counting limits" in caplog.text
        assert "division" not in caplog.text


async def test_an_error_of_ours_while_redis_is_away_is_not_the_last_word(redis, monkeypatch):
    """A probe that fails for a reason nobody thought of is followed by another."""
    monkeypatch.setattr("gateway.limits.shared.PROBE_SECONDS", 0.01)
    async with counting(redis.url) as (gateway,):
        gateway.shared.up = False
        monkeypatch.setattr("gateway.limits.shared.arguments", lambda *_: 1 / 0)
        gateway.shared.tell(gateway.account(build_tenant(concurrency=5)))
        await until(lambda: gateway.failures >= 3)
        monkeypatch.undo()
        await until(lambda: gateway.shared.up)


async def test_what_is_held_is_still_said_after_an_error_of_ours(redis, monkeypatch):
    """The task that renews leases is begun again when it dies."""
    monkeypatch.setattr("gateway.limits.shared.RENEW_SECONDS", 0.01)
    async with counting(redis.url) as (gateway,):
        account = gateway.account(build_tenant(concurrency=5))
        assert await gateway.ask(account) is None
        account.allowance.held = 1
        gateway.shared._remember(account)
        said, dies = [], [True]

        def tell(account):
            if dies:
                raise ValueError(dies.pop())
            said.append(account.tenant)

        monkeypatch.setattr(gateway.shared, "tell", tell)
        await until(lambda: len(said) >= 2)


async def test_a_gateway_that_stops_says_what_ended(redis):
    """Its slots are free at once, not only after the lease."""
    tenant = build_tenant(concurrency=1)
    async with counting(redis.url) as (other,):
        async with counting(redis.url) as (leaves,):
            account = leaves.account(tenant)
            assert await leaves.ask(account) is None
            leaves.end(account)
        assert await other.ask(other.account(tenant)) is None


async def test_how_many_gateways_there_are_is_remembered(redis):
    """While nobody can know, the last number stands."""
    async with counting(redis.url, others=2) as (gateway,):
        assert await gateway.ask(gateway.account(build_tenant(concurrency=1))) is None
        assert gateway.shared.replicas == 3
        gateway.shared._others = lambda: None
        await gateway.ask(gateway.account(build_tenant(concurrency=1)))
        assert gateway.shared.replicas == 3


async def test_the_link_cuts_what_it_gave_up(redis):
    """A late answer is nobody's: the next call has a connection of its own."""
    async with LimitsLink(redis.url, 0.2) as link:
        assert await link.call([("ECHO", "one"), ("ECHO", "two")]) == [b"one", b"two"]
        redis.freeze()
        with pytest.raises(LinkError, match="no answer in time"):
            await link.call([("ECHO", "late")])
        redis.thaw()
        for number in range(20):
            assert await link.call([("ECHO", str(number))]) == [str(number).encode()]
