"""Log lines: what they look like, who is sampled, and what is never in them."""

from __future__ import annotations

import io
import json
import logging

import pytest

from gateway.logs import UNFLUSHED_LINES, RequestLine, RequestLog, json_line, set_up, tear_down, text_line
from gateway.settings import Log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def build_line(**more) -> RequestLine:
    return RequestLine(**{"request_id": "r1", "tenant": "acme", "model": "m", "code": 200, "total_ms": 1.5, **more})


def build_log(stream=None, chance=0.5, **settings) -> RequestLog:
    return RequestLog(Log(**settings), stream or io.StringIO(), clock=lambda: 0.5, chance=lambda: chance)


@pytest.fixture
def logged():
    """What is logged under `homing`, as a stream."""
    stream = io.StringIO()
    handler = set_up(Log(level="debug"), stream)
    yield stream
    tear_down(handler)


def test_a_line_is_json_with_its_fields(logged):
    """One object a line."""
    logging.getLogger("homing.fleet").warning("worker is down", extra={"fields": {"worker": "w1"}})
    line = json.loads(logged.getvalue())
    assert (line["level"], line["event"], line["worker"]) == ("warning", "worker is down", "w1")
    assert line["ts"].endswith("Z")


def test_a_fault_of_our_own_keeps_its_traceback_on_one_line(logged):
    """JSON lines stay one line each."""
    try:
        int("inside")
    except ValueError:
        logging.getLogger("homing.x").exception("it failed")
    (line,) = logged.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_a_terminal_gets_words():
    """key=value, quoted where it must be."""
    assert text_line(0.25, "info", "worker up", {"worker": "w1", "because": 'a "b" c'}) == (
        '1970-01-01T00:00:00.250Z info    worker up worker=w1 because="a \\"b\\" c"'
    )
    assert text_line(0.0, "error", "x", {"exception": "Trace\nback"}).endswith("x\nTrace\nback")


def test_a_line_end_in_a_value_cannot_forge_a_line():
    """What clients name themselves may hold anything."""
    assert "\n" not in text_line(0.0, "info", "request", {"model": "m\nfake line"})
    assert "\n" not in json_line(0.0, "info", "request", {"model": "m\nfake line"})
    assert "\x1b" not in text_line(0.0, "info", "request", {"model": "\x1b[31m"})


def test_the_shape_follows_the_setting_and_the_terminal():
    """auto: words for people, JSON for machines."""
    for stream, shape, starts in (
        (Terminal(), "auto", "1970"),
        (io.StringIO(), "auto", "{"),
        (Terminal(), "json", "{"),
        (io.StringIO(), "text", "1970"),
    ):
        log = build_log(stream, format=shape)
        log._lines.append((0.0, "info", "request", build_line()))
        log.flush()
        assert stream.getvalue().startswith(starts)


async def test_lines_are_written_together():
    """A request does not wait for a write; the batch comes when it is full."""
    stream = io.StringIO()
    log = build_log(stream)
    for _ in range(UNFLUSHED_LINES - 1):
        log.write(build_line())
    assert stream.getvalue() == ""
    log.write(build_line())
    assert stream.getvalue().count("\n") == UNFLUSHED_LINES


async def test_what_is_not_known_is_left_out():
    """No nulls in a line of a refused request."""
    stream = io.StringIO()
    log = build_log(stream)
    log.write(build_line(code=401))
    log.flush()
    assert json.loads(stream.getvalue()) == {
        "ts": "1970-01-01T00:00:00.500Z",
        "level": "info",
        "event": "request",
        "request_id": "r1",
        "tenant": "acme",
        "model": "m",
        "code": 401,
        "total_ms": 1.5,
    }


async def test_good_answers_are_sampled_and_bad_ones_are_not():
    """One in a hundred of the good ones; every failure."""
    stream = io.StringIO()
    log = build_log(stream, chance=0.5, request_share=0.01)
    for code in (200, 404, 503):
        log.write(build_line(code=code))
    log.flush()
    assert [json.loads(line)["code"] for line in stream.getvalue().splitlines()] == [404, 503]


async def test_quiet_levels_write_no_line_for_good_answers():
    """level: warning means it."""
    stream = io.StringIO()
    log = build_log(stream, level="warning")
    log.write(build_line())
    log.flush()
    assert stream.getvalue() == ""


def test_the_level_is_obeyed():
    """And taking the handler off ends it."""
    stream = io.StringIO()
    handler = set_up(Log(level="error"), stream)
    logging.getLogger("homing.x").warning("unheard")
    logging.getLogger("homing.x").error("heard")
    tear_down(handler)
    logging.getLogger("homing.x").error("unheard, too")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["heard"]


async def test_decisions_are_told_only_where_asked_for():
    """None by default, the share that is set otherwise; who is not asked need not even number the candidates."""
    stream = io.StringIO()
    fields = {"request_id": "r1", "candidates": [{"worker": "w1", "score": 0.5}]}
    for settings, chance, lines in (({}, 0.0, 0), ({"decision_share": 0.5}, 0.6, 0), ({"decision_share": 0.5}, 0.4, 1)):
        log = build_log(stream, chance=chance, format="json", **settings)
        if log.wants_decision():
            log.decided(fields)
        log.flush()
        assert len(stream.getvalue().splitlines()) == lines
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["candidates"][0]["worker"]) == ("placement", "info", "w1")
    quiet = build_log(stream, chance=0.0, level="warning", decision_share=1.0)
    assert not quiet.wants_decision()
