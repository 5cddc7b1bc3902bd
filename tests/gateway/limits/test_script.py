"""The script in a real Redis: the same verdicts as the arithmetic, and sound whatever its key holds."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.allowance import BUDGET, CONCURRENCY, REQUESTS, TOKENS, Allowance, Refusal, Terms
from gateway.limits.script import LEASE_SECONDS, SCRIPT, Reply, Settled, arguments, read_reply, tenant_key
from tests.end_to_end.redis_server import RedisServer, redis_server

KEY = tenant_key("t", "acme")
NOTHING = Settled()


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


def run(redis: RedisServer, terms: Terms, *costs: float, held: int = 0, settled=NOTHING, gateway="g1") -> Reply:
    """One call of the script over a plain socket."""
    words = ("EVAL", SCRIPT, "1", KEY, *arguments(gateway, held, terms, settled, costs))
    return read_reply(integers(redis.command(*words)), len(costs))


def integers(raw: bytes) -> list[int]:
    """The numbers of a flat array as Redis sends it."""
    assert raw.startswith(b"*"), raw
    return [int(line[1:]) for line in raw.split(b"\r\n")[1:-1]]


def test_the_same_verdicts_as_the_arithmetic(redis):
    """Random requests and endings, in one gateway: limits that refill slowly enough for time to play no part."""
    dice = random.Random(5)
    for _ in range(12):
        redis.command("FLUSHALL")
        terms = Terms(
            dice.randint(1, 12), dice.randint(50, 900), dice.randint(1, 6), dice.randint(200, 3000), 3e6, True
        )
        model, under_way, settled = Allowance(terms, 0.0), [], Settled()
        for _ in range(25):
            costs = [float(dice.randint(1, 120)) for _ in range(dice.randint(0, 3))]
            if under_way and dice.random() < 0.5:
                reserved, used = under_way.pop(), float(dice.randint(0, 200))
                model.settle(reserved, used, 0.0)
                settled = Settled(used - reserved, used - reserved)
            held = model.held
            reply = run(redis, terms, *costs, held=held, settled=settled)
            settled = Settled()
            limits = [refusal and refusal.limit for refusal in reply.verdicts]
            expected = []
            for cost in costs:
                refusal = model.take(cost, 0.0)
                expected.append(refusal and refusal.limit)
                if refusal is None:
                    under_way.append(cost)
            assert limits == expected
            assert reply.budget_used == pytest.approx(model.budget_used, abs=1)
            assert reply.tokens_level == pytest.approx(model.tokens.level, abs=60)


def test_gateways_share_slots_and_a_silent_one_loses_its_own(redis):
    """Each says its whole count; what another said counts until its lease ends."""
    redis.command("FLUSHALL")
    terms = Terms(concurrency=3)
    assert run(redis, terms, 1, 1, gateway="g1").verdicts == (None, None)
    second = run(redis, terms, 1, 1, gateway="g2")
    assert second.verdicts == (None, Refusal(CONCURRENCY, 1.0))
    assert second.others_held == 2
    expired = b"2:%d" % 1000
    redis.command("HSET", KEY, "g:g1", expired)
    assert run(redis, terms, 1, 1, held=1, gateway="g2").verdicts == (None, None)
    assert b"g:g1" not in redis.command("HKEYS", KEY)


def test_a_gateway_that_holds_nothing_leaves_no_trace_of_itself(redis):
    """Its field is gone, and the key goes by itself."""
    redis.command("FLUSHALL")
    run(redis, Terms(requests=5), 1)
    assert b"g:g1" in redis.command("HKEYS", KEY)
    run(redis, Terms(requests=5), held=0)
    assert b"g:" not in redis.command("HKEYS", KEY)
    assert 0 < int(redis.command("PTTL", KEY)[1:]) <= 120_000


def test_after_a_flush_every_gateway_says_again_what_it_holds(redis):
    """No count is lost for longer than until its gateway speaks next, and none is ever below zero."""
    redis.command("FLUSHALL")
    run(redis, Terms(concurrency=9), 1, 1, gateway="g1")
    redis.command("FLUSHALL")
    run(redis, Terms(concurrency=9), held=2, gateway="g1")
    assert run(redis, Terms(concurrency=9), gateway="g2").others_held == 2
    run(redis, Terms(concurrency=9), held=0, gateway="g1")
    assert run(redis, Terms(concurrency=9), gateway="g2").others_held == 0


def test_a_budget_outlives_the_key_of_a_quiet_tenant(redis):
    """The key lives as long as the period."""
    redis.command("FLUSHALL")
    terms = Terms(budget=100, budget_seconds=3600.0, budget_refuses=True)
    first = run(redis, terms, 120)
    assert (first.budget_used, round(first.budget_seconds)) == (120, 3600)
    assert int(redis.command("PTTL", KEY)[1:]) > 3_500_000
    refusal = run(redis, terms, 1).verdicts[0]
    assert refusal is not None
    assert (refusal.limit, round(refusal.wait_seconds)) == (BUDGET, 3600)
    assert run(redis, terms._replace(budget_refuses=False), 1).verdicts == (None,)


HOSTILE = ["nan", "inf", "-inf", "1e400", "9" * 400, "x", "", "0x10", "-5", "1e18", "7:7", "99:99999999999999"]


@pytest.mark.parametrize("value", HOSTILE)
def test_whatever_its_fields_hold_it_answers(redis, value):
    """C12: who can write to Redis can mislead it, within bounds, and breaks nothing."""
    redis.command("FLUSHALL")
    terms = Terms(requests=10, tokens=100, concurrency=4, budget=1000, budget_seconds=60.0, budget_refuses=True)
    for name in ("r", "r@", "t", "t@", "b", "b@", "g:other", "unknown"):
        redis.command("HSET", KEY, name, value)
    reply = run(redis, terms, 1)
    assert reply.others_held >= 0
    assert reply.requests_level <= 10
    assert reply.tokens_level <= 100
    assert 0 <= reply.budget_seconds <= 60


@pytest.mark.parametrize("words", [("SET", KEY, "x"), ("LPUSH", KEY, "x"), ("SADD", KEY, "x")])
def test_a_key_of_another_kind_is_made_anew(redis, words):
    """WRONGTYPE would else keep the tenant's limits away for good."""
    redis.command("FLUSHALL")
    redis.command(*words)
    assert run(redis, Terms(requests=3), 1, 1).verdicts == (None, None)


def test_a_clock_that_was_ahead_gives_no_credit(redis):
    """After a fail-over to a Redis whose clock is behind: times in the future read as now."""
    redis.command("FLUSHALL")
    redis.command("HSET", KEY, "r", "0", "r@", "99999999999999")
    assert run(redis, Terms(requests=3), 1).verdicts[0] == Refusal(REQUESTS, pytest.approx(20.0, abs=0.1))


def test_levels_refill_by_redis_clock(redis):
    """A level from a second ago has a sixtieth more."""
    redis.command("FLUSHALL")
    seconds, micros = (int(part) for part in redis.command("TIME").split(b"\r\n")[2:5:2])
    ago = seconds * 1000 + micros // 1000 - 6000
    redis.command("HSET", KEY, "t", "-500", "t@", str(ago))
    reply = run(redis, Terms(tokens=6000), 50, 200)
    assert reply.verdicts[0] is None
    assert reply.verdicts[1] is not None
    assert reply.verdicts[1].limit == TOKENS


junk = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.binary(), st.lists(st.integers(), max_size=9))


@given(st.one_of(junk, st.lists(st.one_of(st.integers(), junk), max_size=12)), st.integers(0, 3))
def test_any_answer_is_a_reply_or_a_value_error(answer: Any, asked: int):
    """Nothing else comes of reading what may be no Redis at all."""
    try:
        reply = read_reply(answer, asked)
    except ValueError:
        return
    assert len(reply.verdicts) == asked
    assert reply.others_held >= 0


def test_no_name_is_in_the_key():
    """A digest stands for the tenant; the braces keep its fields together in a cluster."""
    key = tenant_key("homing", "acme")
    assert key.startswith("homing:limits:{")
    assert "acme" not in key
    assert key != tenant_key("homing", "acme2")


def test_a_lease_is_ten_seconds():
    """C10: slots of a killed gateway are back within twelve."""
    assert LEASE_SECONDS == 10.0
