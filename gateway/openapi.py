"""The OpenAPI 3.1 document of the data port, made from its endpoints, their types and the error table."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import msgspec

from gateway import openapi_types as types
from gateway.dialects.anthropic import ANTHROPIC
from gateway.dialects.table import dialect_of
from gateway.errors import TABLE
from gateway.wire import Endpoint

MODELS_PATH: Final = "/v1/models"
MODEL_PATH: Final = f"{MODELS_PATH}/{{model}}"

_ELSEWHERE: Final = frozenset((403, 409, 505))
"""Statuses of the error table that only the admin port gives, or no HTTP/1.1 client sees."""


class Operation(NamedTuple):
    """What one endpoint takes and gives."""

    sentence: str
    asks: type[Any] | None
    answers: type[Any]
    streams: bool = False


OPERATIONS: Final[dict[Endpoint, Operation]] = {
    Endpoint.CHAT: Operation("Go on with a chat.", types.ChatRequest, types.ChatAnswer, streams=True),
    Endpoint.COMPLETIONS: Operation("Go on with a text.", types.CompletionRequest, types.ChatAnswer, streams=True),
    Endpoint.RESPONSES: Operation("Make a response.", types.ResponseRequest, types.ResponseAnswer, streams=True),
    Endpoint.MESSAGES: Operation("Go on with a chat.", types.MessagesRequest, types.MessageAnswer, streams=True),
    Endpoint.EMBEDDINGS: Operation("Embed texts.", types.EmbeddingRequest, types.EmbeddingAnswer),
    Endpoint.COUNT_TOKENS: Operation("Count a chat's tokens.", types.CountRequest, types.CountAnswer),
    Endpoint.TOKENIZE: Operation("Tokenise a text or a chat.", types.TokenizeRequest, types.TokenizeAnswer),
    Endpoint.DETOKENIZE: Operation("Turn tokens into text.", types.DetokenizeRequest, types.DetokenizeAnswer),
}
"""Every endpoint that reaches a worker."""

_LOOKS: Final[dict[str, Operation]] = {
    MODELS_PATH: Operation("List models and adapters.", None, types.ModelList),
    MODEL_PATH: Operation("Show one of them.", None, types.ModelAnswer),
}


def openapi_document() -> dict[str, Any]:
    """The document as plain data."""
    operations = [*OPERATIONS.values(), *_LOOKS.values()]
    kinds: set[type[Any]] = {kind for each in operations for kind in (each.asks, each.answers) if kind is not None}
    kinds |= {types.StreamEvent, types.OpenAiErrorAnswer, types.AnthropicErrorAnswer}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Homing",
            "version": "1",
            "description": "A gateway that sends a request to the worker that already remembers its prompt.",
        },
        "security": [{"bearer": []}, {"apiKey": []}],
        "paths": {
            **{each.value: {"post": _operation(each.name, op, _errors(each))} for each, op in OPERATIONS.items()},
            **{path: _look(path, op) for path, op in _LOOKS.items()},
        },
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def openapi_text() -> str:
    """The document as JSON text."""
    return json.dumps(openapi_document(), indent=1, ensure_ascii=False) + "\n"


def _look(path: str, operation: Operation) -> dict[str, Any]:
    name = "MODEL" if path == MODEL_PATH else "MODELS"
    told = _operation(name, operation, _errors(Endpoint.CHAT))
    if path == MODEL_PATH:
        model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        told["parameters"] = [model]
    return {"get": told}


def _operation(name: str, operation: Operation, errors: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": _reference(operation.answers)}}
    if operation.streams:
        content["text/event-stream"] = {"schema": _reference(types.StreamEvent)}
    well = {"description": "The worker's answer.", "headers": _headers(timed=operation.asks is not None)}
    told: dict[str, Any] = {
        "operationId": name.lower(),
        "summary": operation.sentence,
        "responses": {"200": {**well, "content": content}, **errors},
    }
    if operation.asks is not None:
        body = {"application/json": {"schema": _reference(operation.asks)}}
        told["requestBody"] = {"required": True, "content": body}
    return told


def _headers(*, timed: bool) -> dict[str, Any]:
    """What the head of an answer tells beside its body."""
    if not timed:
        return {}
    names = {
        "x-request-id": "The caller's own id, or one of ours.",
        "openai-processing-ms": "From the request's arrival to this head.",
        "server-timing": "Milliseconds of parse, tokenise, place, upstream.",
    }
    return {name: {"description": told, "schema": {"type": "string"}} for name, told in names.items()}


def _errors(endpoint: Endpoint) -> dict[str, Any]:
    """By status, from the error table; a worker's own refusals have the same shape and any status of 4XX or 5XX."""
    anthropic = dialect_of(endpoint) is ANTHROPIC
    kind = types.AnthropicErrorAnswer if anthropic else types.OpenAiErrorAnswer
    situations: dict[str, list[str]] = {}
    for row in TABLE:
        if row.status not in _ELSEWHERE:
            situations.setdefault(str(row.anthropic.status if anthropic else row.status), []).append(row.situation)
    content = {"application/json": {"schema": _reference(kind)}}
    told = {status: "; ".join(each) for status, each in sorted(situations.items())}
    told |= {"4XX": "The worker refused the request.", "5XX": "The worker failed."}
    return {status: {"description": each, "content": content} for status, each in told.items()}


def _reference(kind: type[Any]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
