"""The error table: what each situation says to its caller."""

from __future__ import annotations

import json

import pytest

from gateway import errors
from gateway.errors import TABLE, GatewayError, Row

EXPECTED = {
    "InvalidRequest": (400, "invalid_request_error", None),
    "ContextLengthExceeded": (400, "invalid_request_error", "context_length_exceeded"),
    "InvalidApiKey": (401, "invalid_request_error", "invalid_api_key"),
    "ModelNotFound": (404, "invalid_request_error", "model_not_found"),
    "MethodNotAllowed": (405, "invalid_request_error", None),
    "RequestTimeout": (408, "invalid_request_error", None),
    "RequestTooLarge": (413, "invalid_request_error", "request_too_large"),
    "UnsupportedEncoding": (415, "invalid_request_error", None),
    "NoBackend": (503, "server_error", "no_backend"),
    "UpstreamFailed": (502, "server_error", "upstream_error"),
    "UpstreamTimedOut": (504, "server_error", "upstream_timeout"),
    "GatewayShutdown": (503, "server_error", "gateway_shutdown"),
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items())
def test_each_situation_has_its_status_type_and_code(name: str, expected: tuple[int, str, str | None]) -> None:
    """As the API promises it."""
    kind = getattr(errors, name)
    assert (kind.status, kind.type, kind.code) == expected


def test_an_error_is_told_in_the_openai_shape() -> None:
    """Four fields, always."""
    body = json.loads(errors.InvalidRequest("`x` is wrong.", param="x").openai_body())
    assert body == {"error": {"message": "`x` is wrong.", "type": "invalid_request_error", "param": "x", "code": None}}


def test_a_stream_is_told_by_one_event() -> None:
    """Ended like any other event, so that the caller's parser sees it."""
    event = errors.UpstreamFailed("It broke.").in_band_event()
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    error = json.loads(event.removeprefix(b"data: "))["error"]
    assert error == {"message": "It broke.", "type": "server_error", "code": "upstream_error"}


def test_what_cannot_get_better_is_not_tried_again() -> None:
    """openai-python obeys `x-should-retry` above everything else."""
    final_types = ("invalid_request_error", "insufficient_quota")
    final_codes = ("quarantined", "isolation_unavailable", "deadline_passed")
    for row in TABLE:
        final = row.type in final_types or row.code in final_codes
        assert (("x-should-retry", "false") in row.retry_hint) == final


def test_what_gets_better_says_when() -> None:
    """And an error's own headers come on top."""
    assert ("retry-after", "1") in errors.NoBackend("none").headers
    limited = errors.UpstreamFailed("slow down", headers=(("retry-after", "7"),))
    assert limited.headers == (("retry-after", "7"),)


def test_the_table_holds_every_class_once() -> None:
    """The docs are generated from it."""

    def family(kind: type[GatewayError]) -> list[type[GatewayError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in family(child))]

    kinds = [kind for kind in family(GatewayError) if kind.__module__ == "gateway.errors"]
    assert len(TABLE) == len(kinds) == len({kind.situation for kind in kinds})
    assert all(isinstance(row, Row) and row.situation for row in TABLE)
