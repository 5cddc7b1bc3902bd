"""Whatever is sent, as many requests reach the worker as the gateway counts, and everybody is closed in the end."""

from __future__ import annotations

import logging
import os

import pytest

from tests.gateway.hostile import framing, heads
from tests.gateway.hostile.arena import NO_WORKER, arena
from tests.gateway.hostile.mutations import mutated
from tests.gateway.scripted_worker import until

MESSAGES = [*framing.MESSAGES, *heads.MESSAGES]
GOOD = [message.wire for message in MESSAGES if message.requests]
BAD = [message.wire for message in MESSAGES if not message.requests and len(message.wire) < 4000]
MUTATED = int(os.environ.get("HOSTILE_MESSAGES", "600"))
SEED = int(os.environ.get("HOSTILE_SEED", "5"))
PATIENT = {"header_seconds": 2.0, "keep_alive_seconds": 2.0, "body_seconds": 2.0}


def test_there_are_at_least_two_hundred_and_none_twice() -> None:
    """Row F1."""
    assert len({message.wire for message in MESSAGES}) >= 200
    assert len({message.name for message in MESSAGES}) == len(MESSAGES)


def test_mutations_are_the_same_every_time() -> None:
    """A seed names them."""
    assert list(mutated(GOOD, BAD, 50, 1)) == list(mutated(GOOD, BAD, 50, 1)) != list(mutated(GOOD, BAD, 50, 2))


@pytest.mark.row("F1h", smoke=True)
async def test_every_hostile_message_is_as_many_requests_as_it_should_be(caplog: pytest.LogCaptureFixture) -> None:
    """Case F-12, rows F1, F4 and F6: none smuggled, none doubled, nobody left waiting."""
    caplog.set_level(logging.DEBUG)
    async with arena(**PATIENT) as here:
        answered = await here.fight(message.wire for message in MESSAGES)
        await until(here.running.settled)
        wrong = {
            message.name: (message.requests, statuses, message.wire[:300])
            for message, statuses in zip(MESSAGES, answered, strict=True)
            if statuses.count(200) != message.requests or not set(statuses) <= {*ALLOWED, NO_WORKER}
        }
        assert not wrong, "\n".join(map(repr, wrong.items()))
        assert here.faults == []
        seen, counted, recorded = here.served()
        assert seen == counted == recorded == sum(message.requests for message in MESSAGES)
        here.check_worker()
        assert "acme-key" not in caplog.text
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


ALLOWED = {200, 400, 404, 405, 408, 413, 415, 431, 505}


@pytest.mark.timeout(600)
@pytest.mark.row("F1", smoke=True)
async def test_mutated_messages_are_counted_as_the_worker_sees_them(caplog: pytest.LogCaptureFixture) -> None:
    """Row F1: requests counted by the gateway = requests seen by the worker; no crash, no hang, no 5xx of ours."""
    async with arena() as here:
        await here.fight(mutated(GOOD, BAD, MUTATED, SEED))
        await until(here.running.settled)
        seen, counted, recorded = here.served()
        print(f"{MUTATED} messages, {recorded} requests reached the worker, answers: {dict(here.statuses)}")
        assert here.faults == []
        assert seen == counted == recorded
        assert recorded > MUTATED / 40
        assert set(here.statuses) <= {*ALLOWED, NO_WORKER, 401}
        here.check_worker()
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        await until(lambda: here.running.gateway.server.connections.open == 0)
