"""Every exchange recorded from vLLM 0.32, sent to this worker: what differs is in a table with its reason, or fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.backends.server_builders import FIXTURES, RunningWorker, events, running_worker

EXCHANGES: list[dict[str, Any]] = json.loads((FIXTURES / "exchanges.json").read_text(encoding="utf-8"))
NAMES = [exchange["name"] for exchange in EXCHANGES]

EVERYWHERE = {
    "headers.vary": "vLLM's CORS middleware; a browser does not talk to a worker, a gateway does",
}
"""What differs in every answer: place → reason."""

CACHE_FIELDS = "ours: what of `vllm_xargs` about its cache a worker understands, for gateways"

DIFFERENT: dict[str, dict[str, str]] = {
    "models": {"body.data[].cache_fields": CACHE_FIELDS, "body.data[].cache_fields[]": CACHE_FIELDS},
    "responses": {"status": "the Responses API is refused: 400 and an error object that says what to use instead"},
    "server_info": {"status": "a worker with KV events tells of them here too, where SGLang's routers look"},
    "messages": {"status": "the Messages API is refused: 400 and an error object that says what to use instead"},
}
"""Exchange → place → reason. Of an answer with another status nothing else is compared; a refusal must be an error."""

PASSING_HEADERS = {"date", "content-length", "connection", "server"}
"""Headers of one connection, or of one program."""


def kinds(value: Any, place: str = "body") -> dict[str, set[str]]:
    """Every place in a JSON value → the types found there; the items of a list share one place."""
    found: dict[str, set[str]] = {}

    def look(value: Any, place: str) -> None:
        name = {bool: "flag", int: "number", float: "number", str: "text", type(None): "null"}.get(type(value))
        found.setdefault(place, set()).add(name or type(value).__name__)
        if isinstance(value, dict):
            for key, item in value.items():
                look(item, f"{place}.{key}")
        elif isinstance(value, list):
            for item in value:
                look(item, f"{place}[]")

    look(value, place)
    return found


def described(status: int, headers: dict[str, str], body: str) -> dict[str, object]:
    """What a client can tell of an answer without reading its words: place → what is there."""
    places: dict[str, object] = {"status": status}
    for name, value in headers.items():
        if name.lower() not in PASSING_HEADERS:
            places[f"headers.{name.lower()}"] = value
    if "event-stream" in headers.get("content-type", ""):
        places["events"] = len(events(body))
        for number, event in enumerate(events(body)):
            places |= kinds(event, f"event {number}")
    elif body:
        places |= kinds(json.loads(body))
    else:
        places["body"] = "empty"
    return places


def differences(theirs: dict[str, object], mine: dict[str, object]) -> set[str]:
    """The places at which two answers differ; only the status where that differs."""
    if theirs["status"] != mine["status"]:
        return {"status"}
    return {place for place in theirs.keys() | mine.keys() if theirs.get(place) != mine.get(place)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningWorker]:
    """A worker started as the recorded vLLM was."""
    sockets: Path = tmp_path_factory.mktemp("kv")
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"ipc://{sockets}/ev.ipc",
        "replay_endpoint": f"ipc://{sockets}/rp.ipc",
        "topic": "kv@worker-0@smollm2",
    }
    arguments = ("--max-model-len", "4096", "--block-size", "32", "--kv-events-config", json.dumps(config))
    async with running_worker(*arguments) as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("exchange", EXCHANGES, ids=NAMES)
async def test_an_answer_differs_from_vllms_only_where_the_table_says(running: RunningWorker, exchange: dict[str, Any]):
    """Status, headers, keys, types, events; a row of the table that is true no more fails too."""
    request = running.client.request(exchange["method"], exchange["path"], json=exchange.get("request"))
    async with request as response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        body = await response.text()
        mine = described(response.status, headers, body)
    theirs = described(exchange["status"], exchange["headers"], exchange["body"])
    known = set(DIFFERENT.get(exchange["name"], ()))
    found = differences(theirs, mine)
    assert found == (known if "status" in found else known | set(EVERYWHERE))
    if "status" in found and mine["status"] != 200:
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


def test_the_table_speaks_of_recorded_exchanges():
    """And gives a reason for each."""
    assert set(DIFFERENT) <= set(NAMES)
    assert all(reason for rows in (EVERYWHERE, *DIFFERENT.values()) for reason in rows.values())


def test_a_difference_is_seen_wherever_it_is():
    """The comparison itself: a key more, another type, another header, an event less."""
    theirs = described(200, {"content-type": "application/json", "date": "x"}, '{"a": [{"b": 1}, {"b": null}]}')
    assert theirs["body.a[].b"] == {"number", "null"}
    for status, headers, body, place in (
        (200, {"content-type": "application/json"}, '{"a": [{"b": 1}, {"b": null}], "c": 1}', "body.c"),
        (200, {"content-type": "application/json"}, '{"a": [{"b": 1}]}', "body.a[].b"),
        (200, {"content-type": "text/plain"}, '{"a": [{"b": 1}, {"b": null}]}', "headers.content-type"),
        (404, {"content-type": "application/json"}, "{}", "status"),
    ):
        assert place in differences(theirs, described(status, headers, body))
    stream = {"content-type": "text/event-stream"}
    two, one = 'data: {"a": 1}\n\ndata: [DONE]\n\n', "data: [DONE]\n\n"
    assert "events" in differences(described(200, stream, two), described(200, stream, one))
