"""The OpenAPI document is current, says what the server has, and what it calls necessary is."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from gateway.cli import main
from gateway.errors import InvalidRequest
from gateway.openapi import MODEL_PATH, MODELS_PATH, OPERATIONS, openapi_document, openapi_text
from gateway.wire import Endpoint, parse_call
from tests.gateway.dialect_worker import EMBEDDINGS, recorded

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = {
    Endpoint.CHAT: {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    Endpoint.COMPLETIONS: {"model": "m", "prompt": "x"},
    Endpoint.RESPONSES: {"model": "m", "input": "x"},
    Endpoint.MESSAGES: {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
    Endpoint.EMBEDDINGS: {"model": "m", "input": ["x"]},
    Endpoint.COUNT_TOKENS: {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    Endpoint.TOKENIZE: {"model": "m", "prompt": "x"},
    Endpoint.DETOKENIZE: {"model": "m", "tokens": [1]},
}


def schema_of(kind: type) -> Draft202012Validator:
    """A validator of one of the document's components."""
    reference = f"#/components/schemas/{kind.__name__}"
    return Draft202012Validator({**openapi_document(), "$ref": reference})


def test_the_document_in_docs_is_current() -> None:
    """`make docs` writes it anew."""
    assert (DOCS / "openapi.json").read_text(encoding="utf-8") == openapi_text()


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """`homing openapi`."""
    assert main(["openapi"]) == 0
    assert json.loads(capsys.readouterr().out) == openapi_document()


def test_every_endpoint_is_in_it_and_nothing_else() -> None:
    """What the server routes is what the document tells."""
    assert set(OPERATIONS) == set(Endpoint)
    assert set(openapi_document()["paths"]) == {each.value for each in Endpoint} | {MODELS_PATH, MODEL_PATH}


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    """No tool stumbles over it."""
    document = openapi_document()
    schemas = document["components"]["schemas"]
    for part in openapi_text().split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_what_the_document_calls_necessary_is_necessary(endpoint: Endpoint) -> None:
    """The example is good by the document and by the reader; without a necessary field it is neither.

    `max_tokens` of the Messages API is for the worker to miss.
    """
    kind = OPERATIONS[endpoint].asks
    assert kind is not None
    example = EXAMPLES[endpoint]
    schema_of(kind).validate(example)
    parse_call(endpoint, json.dumps(example).encode())
    for name in set(example) - {"max_tokens"}:
        less = {key: value for key, value in example.items() if key != name}
        assert not schema_of(kind).is_valid(less)
        with pytest.raises(InvalidRequest):
            parse_call(endpoint, json.dumps(less).encode())


@pytest.mark.parametrize(
    ("endpoint", "answer"),
    [
        (Endpoint.CHAT, recorded("chat")),
        (Endpoint.COMPLETIONS, recorded("completions_batch")),
        (Endpoint.RESPONSES, recorded("responses")),
        (Endpoint.MESSAGES, recorded("messages")),
        (Endpoint.EMBEDDINGS, EMBEDDINGS),
        (Endpoint.TOKENIZE, recorded("tokenize")),
        (Endpoint.DETOKENIZE, recorded("detokenize")),
    ],
)
def test_what_vllm_answers_is_as_the_document_says(endpoint: Endpoint, answer: bytes) -> None:
    """Recorded answers of vLLM 0.32."""
    schema_of(OPERATIONS[endpoint].answers).validate(msgspec.json.decode(answer))


def test_errors_have_their_statuses_from_the_table() -> None:
    """529 for Anthropic's callers, 503 for the others; nothing of the admin port."""
    paths = openapi_document()["paths"]
    assert "529" in paths["/v1/messages"]["post"]["responses"]
    assert "503" not in paths["/v1/messages"]["post"]["responses"]
    assert {"400", "401", "404", "405", "408", "413", "415", "503"} <= set(paths["/tokenize"]["post"]["responses"])
    assert "409" not in paths["/tokenize"]["post"]["responses"]
