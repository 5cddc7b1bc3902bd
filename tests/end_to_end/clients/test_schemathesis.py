"""schemathesis over our own OpenAPI document, against a real gateway: no 5xx, and no answer that breaks its schema."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.openapi import openapi_document
from tests.end_to_end.clients.conftest import KEY, Running
from tests.end_to_end.clients.model_server import MODEL

EXAMPLES = int(os.environ.get("HOMING_TEST_EXAMPLES", "4"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
OPERATIONS = {
    each.ok().label: each.ok() for each in schemathesis.openapi.from_dict(openapi_document()).get_all_operations()
}
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", list(OPERATIONS))
def test_answers_are_as_the_document_says(running: Running, label: str, mode: GenerationMode) -> None:
    """Bodies by the document and against it, for a model that there is and for others, with a key and without."""
    operation = OPERATIONS[label]
    if mode is GenerationMode.NEGATIVE and label.startswith("GET"):
        pytest.skip("nothing but a path is read")

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode), st.booleans(), st.integers(0, 9))
    def ask(case: Any, knows: bool, keyed: int) -> None:
        if knows and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = MODEL
        headers = {"authorization": f"Bearer {KEY}"} if keyed else {"authorization": "Bearer nobody"}
        case.call_and_validate(base_url=running.url, headers=headers, checks=CHECKS)

    ask()
    assert "Traceback" not in running.gateway.log.read_text()


def test_the_document_is_plain_json() -> None:
    """What is tested here is what `homing openapi` prints."""
    assert json.loads(json.dumps(openapi_document())) == openapi_document()
