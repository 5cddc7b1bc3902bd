"""The driver behind a balancer's rules: whom it asks next, what it counts as cut, what as failed; and the figures."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from bench.live.drills import AFTER_SECONDS, Run, Timing, figures_of, misses
from bench.live.drive import Answer, Driver, Load
from bench.live.figures import between, figures, hit_rate, spread, table
from bench.live.head_to_head import REPLAY, bars, report
from bench.live.processes import free_ports
from bench.live.texts import Planned

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"usage": null}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}}\n\n'
END = USAGE + b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


WHOLE = HEAD + chunk(EVENT) + chunk(END) + b"0\r\n\r\n"


@asynccontextmanager
async def server(*answers: bytes):
    """Gives these answers one after the other, the last one for ever, and closes after each; its port."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def one_answer(*ports: int) -> Answer:
    (answer,) = await Driver(Load([Planned(0, 0.0, 0, 0.0, b"{}")], ports, 1.0)).run()
    return answer


async def test_a_whole_answer_is_read_to_its_usage():
    """Which may stand in any event."""
    async with server(WHOLE) as port:
        answer = await one_answer(port)
    assert (answer.error, answer.prompt_tokens, answer.cached_tokens, answer.resent) == (None, 10, 4, 0)


async def test_a_target_that_refuses_is_followed_by_the_next():
    """Nothing was begun, so nothing is cut."""
    (closed,) = free_ports(1)
    async with server(WHOLE) as port:
        answer = await one_answer(port, closed)
    assert (answer.error, answer.resent, answer.broken) == (None, 1, 0)


async def test_one_that_breaks_before_a_byte_is_followed_too_and_counted():
    """As a balancer retries."""
    async with server(b"") as broken, server(WHOLE) as port:
        answer = await one_answer(port, broken)
    assert (answer.error, answer.resent, answer.broken) == (None, 1, 1)


async def test_an_answer_that_has_begun_is_cut():
    """Nobody may send it again: the caller has read a part of it."""
    async with server(HEAD + chunk(EVENT)) as port:
        answer = await one_answer(port)
    assert answer.error == "the connection broke"
    assert (answer.resent, answer.broken) == (0, 1)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno", "HTTP 503"),
        (HEAD + chunk(EVENT) + b"0\r\n\r\n", "the answer ended early"),
        (b"what?\r\n\r\n", "no HTTP"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error(sent, error):
    """And says which."""
    async with server(sent) as port:
        assert (await one_answer(port)).error == error


def build_answer(number: int, sent_at: float = 0.0, cached: int = 50, **more) -> Answer:
    facts = {"lateness": 0.0, "ttft": 1.0, "total": 2.0, "prompt_tokens": 100, "target": 0, "resent": 0, "broken": 0}
    return Answer(
        number=number, sent_at=sent_at, cached_tokens=cached, error=more.pop("error", None), **{**facts, **more}
    )


def test_figures_are_over_good_answers_and_workers_counts():
    """Errors are counted, not averaged."""
    stats = {"requests": 2, "prompt_tokens": 200, "cached_tokens": 50, "busy_seconds": 3.0, "late_seconds": 0.02}
    found = figures([build_answer(0), build_answer(1, error="HTTP 503", ttft=90.0)], [stats], 20.0)
    assert (found["errors"], found["ttft_s"]["mean"], found["token_hit_rate"]) == (1, 1.0, 0.25)
    assert found["worker_late_s_mean"] == pytest.approx(0.2)
    assert "HTTP 503" in found["error_kinds"]
    assert spread([]) == {"mean": 0.0, "p50": 0.0, "p90": 0.0, "p99": 0.0}
    assert "25.0%" in table({"one": found})


def test_windows_are_by_the_time_of_sending():
    """From the start, without the end."""
    answers = [build_answer(n, sent_at=float(n), cached=10 * n) for n in range(4)]
    assert [answer.number for answer in between(answers, 1.0, 3.0)] == [1, 2]
    assert hit_rate(between(answers, 1.0, 3.0)) == 0.15


def build_row(mean: float, errors: int = 0, late: float = 0.0) -> dict:
    ttft = {"mean": mean, "p50": mean, "p90": mean, "p99": mean}
    balance = {"busy_max_over_mean": 1.0, "requests_max_over_mean": 1.0, "token_hit_rate": 0.3}
    return {"ttft_s": ttft, **balance, "errors": errors, "driver_late_s": {"mean": late, "p99": late}}


def test_a_missed_bar_fails_the_comparison(capsys):
    """Each by itself; a router that did not come up fails it too."""
    names = ["homing", "sglang-router"]
    rows = {REPLAY: build_row(1.5), "homing": build_row(1.6), "sglang-router": build_row(4.6)}
    assert report({"conversation": rows}, names) == 0
    assert report({"conversation": {**rows, "homing": build_row(1.8)}}, names) == 1
    assert report({"conversation": {**rows, "homing": build_row(1.6, errors=1)}}, names) == 1
    assert report({"conversation": {**rows, "sglang-router": build_row(3.0)}}, names) == 1
    assert report({"conversation": rows}, [*names, "smg"]) == 1
    assert "MISSED  smg did not come up" in capsys.readouterr().out
    three = {"homing, 3 replicas": build_row(2.0)}
    assert [what for what, found, most in bars({**rows, **three}) if found > most] == ["3 replicas / one"]


def test_a_late_driver_is_told(capsys):
    """Its figures say more about the machine."""
    report({"conversation": {REPLAY: build_row(1.5), "homing": build_row(1.6, late=2.0)}}, ["homing"])
    assert "LATE" in capsys.readouterr().out


def test_a_drill_is_compared_request_by_request():
    """The trace's own ups and downs are not the drill's."""
    timing = Timing(begins=100.0, before=100.0)
    calm = Run([build_answer(n, float(n), cached=60 if n < 100 else 20) for n in range(500)], 100.0, {})
    same = figures_of(Run(calm.answers, 110.0, {}), calm, timing)
    assert same["lost_points"] == 0
    worse = [answer._replace(cached_tokens=15) if answer.sent_at > 110 else answer for answer in calm.answers]
    lost = figures_of(Run(worse, 110.0, {}), calm, timing)
    assert lost["lost_points"] == pytest.approx(5)
    assert lost["windows"]["after"]["requests"] == AFTER_SECONDS
    owed = figures_of(Run(worse, 110.0, {}), calm, timing, owed=-0.04)
    assert (owed["lost_points"], owed["owed_to_size_points"]) == (pytest.approx(1), -4)
    assert misses({"drill": owed}) == []
    assert misses({"drill": lost}) == ["drill: 5.0 points of hit rate are still lost"]


def test_cut_answers_are_no_failures_and_failures_are_misses():
    """An open answer of a killed gateway is lost, and said to be."""
    calm = Run([build_answer(0, 350.0)], 300.0, {})
    answers = [
        build_answer(0, 350.0),
        build_answer(1, error="the connection broke", broken=1),
        build_answer(2, error="HTTP 503"),
    ]
    found = figures_of(Run(answers, 300.0, {}), calm, Timing())
    assert (found["cut_in_flight"], found["failed"]) == (1, 1)
    assert misses({"drill": found}) == ["drill: 1 requests failed (['HTTP 503'])"]
