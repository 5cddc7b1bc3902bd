"""Log lines: JSON, or key=value on a terminal; one line a request, written in batches. Never a prompt, never a key."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TextIO

import msgspec

from gateway.settings import Log

FLUSH_SECONDS = 0.2
"""Request lines are written together this often: one write for many requests."""

UNFLUSHED_LINES = 256

Fields = Mapping[str, Any]


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is told of one request. Tokens are the worker's own counts, times are milliseconds. `worker_request_id` is
    what workers know it by, where that is not what its caller does."""

    request_id: str
    tenant: str
    model: str
    code: int
    total_ms: float
    worker_request_id: str | None = None
    key_fp: str | None = None
    backend: str | None = None
    reason: str | None = None
    attempts: int | None = None
    predicted_cached_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_ms: float | None = None
    error: str | None = None


class Lines(logging.Formatter):
    """One line a record; `extra={"fields": {...}}` adds named values. `as_json` chooses the shape."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._render = json_line if as_json else text_line

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; a traceback follows only where a fault of our own is logged with one."""
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return self._render(record.created, record.levelname.lower(), record.getMessage(), fields)


def json_line(at_seconds: float, level: str, event: str, fields: Fields | RequestLine) -> str:
    """`{"ts": …, "level": …, "event": …, …}`; `at_seconds` is Unix time."""
    if isinstance(fields, RequestLine):
        told = msgspec.json.encode(fields).decode()
        return f'{{"ts":"{_timestamp(at_seconds)}","level":"{level}","event":"{event}",{told[1:]}'
    line = {"ts": _timestamp(at_seconds), "level": level, "event": event, **fields}
    return msgspec.json.encode(line, enc_hook=str).decode()


def text_line(at_seconds: float, level: str, event: str, fields: Fields | RequestLine) -> str:
    """`TIME LEVEL event key=value …`, values with spaces in quotes."""
    values: Fields = msgspec.to_builtins(fields) if isinstance(fields, RequestLine) else fields
    told = "".join(f" {name}={_shown(value)}" for name, value in values.items() if name != "exception")
    trace = f"\n{values['exception']}" if "exception" in values else ""
    return f"{_timestamp(at_seconds)} {level:<7} {event}{told}{trace}"


def tell_fault(log: logging.Logger, error: BaseException, circumstances: str) -> None:
    """Log a fault of our own and where it was, but not its words: they may quote what somebody sent."""
    log.error("%s %s\n%s", type(error).__name__, circumstances, "".join(traceback.format_tb(error.__traceback__)))


def set_up(settings: Log, stream: TextIO) -> logging.Handler:
    """Send everything logged under `homing` to `stream`; returns the handler, to be taken off with `tear_down`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines(as_json=writes_json(settings, stream)))
    logger = logging.getLogger("homing")
    logger.addHandler(handler)
    logger.setLevel(settings.level.upper())
    logger.propagate = False
    return handler


def tear_down(handler: logging.Handler) -> None:
    """Undo `set_up`."""
    logger = logging.getLogger("homing")
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def writes_json(settings: Log, stream: TextIO) -> bool:
    """Whether lines are JSON: always, never, or (auto) unless somebody watches on a terminal."""
    return settings.format == "json" or (settings.format == "auto" and not stream.isatty())


class RequestLog:
    """Lines about requests, collected and written together so that a request does not wait for a write.

    Answers below 400 are sampled by `request_share`; everything else always gets its line.
    """

    def __init__(
        self,
        settings: Log,
        stream: TextIO,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`clock` gives Unix time in seconds, `chance` numbers from 0 to 1."""
        self.configure(settings)
        self._render = json_line if writes_json(settings, stream) else text_line
        self._stream = stream
        self._clock = clock
        self._chance = chance
        self._lines: list[tuple[float, str, str, RequestLine | Fields]] = []
        self._timer: asyncio.TimerHandle | None = None

    def configure(self, settings: Log) -> None:
        """Take in level and shares anew; the format stays."""
        told = settings.level in ("debug", "info")
        self._share = settings.request_share if told else 0.0
        self._decision_share = settings.decision_share if told else 0.0

    def write(self, line: RequestLine) -> None:
        """Take in a line; it is written within FLUSH_SECONDS. Call from the event loop."""
        if line.code < 400 and self._share < 1.0 and self._chance() >= self._share:
            return
        self._add("info" if line.code < 500 else "warning", "request", line)

    def wants_decision(self) -> bool:
        """Whether a line is to tell how the next request is placed: by chance, to be asked once before each."""
        return bool(self._decision_share) and self._chance() < self._decision_share

    def decided(self, fields: Fields) -> None:
        """A request was placed, of which a line is wanted."""
        self._add("info", "placement", fields)

    def _add(self, level: str, event: str, fields: RequestLine | Fields) -> None:
        self._lines.append((self._clock(), level, event, fields))
        if len(self._lines) >= UNFLUSHED_LINES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what is waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        if lines:
            self._stream.write("".join(self._rendered(*line) + "\n" for line in lines))
            self._stream.flush()

    def _rendered(self, at_seconds: float, level: str, event: str, fields: RequestLine | Fields) -> str:
        return self._render(at_seconds, level, event, fields)


def _timestamp(at_seconds: float) -> str:
    return f"{_second(int(at_seconds))}.{int(at_seconds % 1 * 1000):03d}Z"


@lru_cache(8)
def _second(whole_seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole_seconds))


def _shown(value: Any) -> str:
    text = str(value)
    plain = text and not any(character.isspace() or character in '"=' for character in text)
    return text if plain and text.isprintable() else msgspec.json.encode(text).decode()
