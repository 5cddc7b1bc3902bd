"""/v1/models: read from real engines, merged over workers."""

from __future__ import annotations

import json

import msgspec
import pytest

from gateway.model_cards import ModelCard, merge_cards, parse_cards
from tests.gateway.builders import FIXTURES, build_cards


def recorded(engine):
    exchanges = json.loads((FIXTURES / engine / "exchanges.json").read_text())
    return next(each["body"] for each in exchanges if each["name"] == "models").encode()


def test_a_real_vllm_card():
    """The recorded answer of vLLM 0.32."""
    (card,) = parse_cards(recorded("vllm-0.32"))
    assert (card.id, card.root, card.parent, card.max_model_len) == ("smollm2", "/models/smollm2", None, 4096)


def test_a_real_llama_cpp_card():
    """llama.cpp keeps its context length elsewhere."""
    (card,) = parse_cards(recorded("llama.cpp"))
    assert (card.id, card.max_model_len, card.owned_by) == ("smollm2", 2048, "llamacpp")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": [{}]}', b'{"data": [{"id": 3}]}', b"<html>"])
def test_something_else_is_an_error(body):
    """A page that is no list of models is told apart from an empty list."""
    with pytest.raises(msgspec.DecodeError):
        parse_cards(body)


def test_each_model_once_in_a_stable_order_with_the_least_length():
    """D-07: W1 serves {m, lora-a}, W2 serves {m, lora-b}."""
    first = build_cards("m", max_model_len=4096, lora_a="m")
    second = build_cards("m", max_model_len=2048, lora_b="m")
    merged = merge_cards([first, second])
    assert [(card.id, card.parent, card.max_model_len) for card in merged] == [
        ("m", None, 2048),
        ("lora-a", "m", None),
        ("lora-b", "m", None),
    ]


def test_a_length_that_only_one_gives_is_taken():
    """A worker that says nothing does not hide what another says."""
    merged = merge_cards([build_cards("m", max_model_len=None), build_cards("m", max_model_len=100)])
    assert [card.max_model_len for card in merged] == [100]


def test_tenants_do_not_see_where_the_model_lies():
    """The worker's folder is the operator's business; an adapter names its base."""
    assert ModelCard(id="m", root="/models/secret-project").public()["root"] == "m"
    assert ModelCard(id="lora-a", root="/x", parent="m").public() == {
        "id": "lora-a",
        "object": "model",
        "created": 0,
        "owned_by": "homing",
        "root": "m",
        "parent": "m",
        "max_model_len": None,
    }
