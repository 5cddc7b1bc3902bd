"""An error in each dialect: status, body, and the event that ends a stream."""

from __future__ import annotations

import json

import pytest

from gateway.dialects.anthropic import ANTHROPIC
from gateway.dialects.core import worker_message
from gateway.dialects.openai import OPENAI
from gateway.dialects.responses import RESPONSES
from gateway.dialects.table import dialect_of
from gateway.errors import (
    TABLE,
    GatewayError,
    GatewayShutdown,
    InvalidApiKey,
    InvalidRequest,
    ModelNotFound,
    NoBackend,
    RequestTooLarge,
    UpstreamFailed,
)
from gateway.wire import Endpoint


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("m"), 400, "invalid_request_error"),
        (InvalidApiKey("m"), 401, "authentication_error"),
        (ModelNotFound("m"), 404, "not_found_error"),
        (RequestTooLarge("m"), 413, "request_too_large"),
        (NoBackend("m"), 529, "overloaded_error"),
        (UpstreamFailed("m"), 502, "api_error"),
        (GatewayError("m"), 500, "api_error"),
    ],
)
def test_anthropics_callers_are_told_in_its_types(error: GatewayError, status: int, kind: str) -> None:
    """The mapping of the error table; the request's id is in the body."""
    assert ANTHROPIC.error_status(error) == status
    assert json.loads(ANTHROPIC.error_body(error, "r1")) == {
        "type": "error",
        "error": {"type": kind, "message": "m"},
        "request_id": "r1",
    }


def test_every_error_of_the_table_has_an_anthropic_type() -> None:
    """None is forgotten, and only overload changes its status."""
    for row in TABLE:
        assert row.anthropic.type.endswith(("_error", "_large"))
        assert row.anthropic.status == (529 if row.status == 503 else row.status)


@pytest.mark.parametrize("error", [UpstreamFailed("m"), GatewayShutdown("m"), NoBackend("m")])
def test_in_band_anthropics_callers_hear_of_an_api_error(error: GatewayError) -> None:
    """`event: error`, whatever the fault was."""
    name, data = ANTHROPIC.in_band_event(error, "r1").decode().removesuffix("\n\n").split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"] == {"type": "api_error", "message": "m"}


def test_in_band_the_responses_api_has_its_fields_at_the_top_and_in_error() -> None:
    """The API's own shape, and the one that openai-python raises for."""
    name, data = RESPONSES.in_band_event(UpstreamFailed("m"), "r1").decode().removesuffix("\n\n").split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert (name, told["type"], told["code"], told["message"]) == ("event: error", "error", "upstream_error", "m")
    assert told["error"] == {"type": "server_error", "code": "upstream_error", "message": "m", "param": None}


def test_a_workers_own_error_is_rephrased_for_anthropics_callers_only() -> None:
    """vLLM's framework answers in OpenAI's shape, its handlers with types of their own."""
    body = b'{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}'
    assert OPENAI.rephrased(400, body, "r") is None
    assert RESPONSES.rephrased(400, body, "r") is None
    rephrased = ANTHROPIC.rephrased(400, body, "r")
    assert rephrased is not None
    assert rephrased[0] == 400
    assert json.loads(rephrased[1])["error"] == {"type": "invalid_request_error", "message": "too long"}
    assert (ANTHROPIC.rephrased(503, b"busy", "r") or (0,))[0] == 529


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"m"}}', "m"),
        (b'{"error":"m"}', "m"),
        (b'{"error":{"message":5}}', None),
        (b'{"detail":"Not Found"}', None),
        (b"<html>", None),
        (b"\xff", None),
    ],
)
def test_a_workers_message_is_found_where_there_is_one(body: bytes, message: str | None) -> None:
    """In the two shapes that are seen."""
    assert worker_message(body) == message


def test_heartbeats_are_events_that_clients_pass_over() -> None:
    """A comment, or Anthropic's ping."""
    assert OPENAI.heartbeat.startswith(b":")
    assert ANTHROPIC.heartbeat == b'event: ping\ndata: {"type": "ping"}\n\n'
    assert ANTHROPIC.id_lines("r1") == b"x-request-id: r1\r\nrequest-id: r1\r\n"


def test_each_endpoint_has_its_dialect() -> None:
    """OpenAI's, but for two APIs."""
    others = {each: dialect_of(each) for each in Endpoint if dialect_of(each) is not OPENAI}
    assert others == {
        Endpoint.RESPONSES: RESPONSES,
        Endpoint.MESSAGES: ANTHROPIC,
        Endpoint.COUNT_TOKENS: ANTHROPIC,
    }
