"""Reading JSON field by field, with pydantic's kinds of errors."""

from __future__ import annotations

from typing import Any

import pytest

from backends.api_errors import InvalidBodyError
from backends.request_fields import Fields, are_integers, decode_object

READERS = {
    "text": lambda fields: fields.text("x"),
    "flag": lambda fields: fields.flag("x", False),
    "integer": lambda fields: fields.integer("x"),
    "number": lambda fields: fields.number("x"),
    "sequence": lambda fields: fields.sequence("x"),
    "mapping": lambda fields: fields.mapping("x"),
    "texts": lambda fields: fields.texts("x"),
    "integers": lambda fields: fields.integers("x"),
}


@pytest.mark.parametrize(
    ("reader", "value", "read"),
    [
        ("text", "a", "a"),
        ("flag", True, True),
        ("integer", 5, 5),
        ("integer", 5.0, 5),
        ("number", 5, 5.0),
        ("number", 0.5, 0.5),
        ("sequence", [1, "a"], [1, "a"]),
        ("mapping", {"a": 1}, {"a": 1}),
        ("texts", "a", ("a",)),
        ("texts", ["a", "b"], ("a", "b")),
        ("integers", [1, 2], (1, 2)),
    ],
)
def test_a_good_value_is_read_as_its_type(reader: str, value: Any, read: Any):
    """And a whole float is an integer, as in pydantic."""
    assert READERS[reader](Fields({"x": value})) == read


@pytest.mark.parametrize(
    ("reader", "value", "kind"),
    [
        ("text", 7, "string_type"),
        ("flag", "true", "bool_type"),
        ("integer", 5.5, "int_type"),
        ("integer", True, "int_type"),
        ("integer", "5", "int_type"),
        ("integer", 1 << 63, "int_parsing_size"),
        ("integer", -1e300, "int_parsing_size"),
        ("number", "0.5", "float_type"),
        ("number", False, "float_type"),
        ("sequence", {}, "list_type"),
        ("mapping", [], "dict_type"),
        ("texts", [1], "string_type"),
        ("integers", [1.5], "int_type"),
        ("integers", [True], "int_type"),
        ("integers", "12", "list_type"),
    ],
)
def test_a_wrong_value_is_named_by_place_and_kind(reader: str, value: Any, kind: str):
    """`body.x`, and what it should be; never what it is."""
    with pytest.raises(InvalidBodyError) as caught:
        READERS[reader](Fields({"x": value}))
    assert caught.value.param == "body.x"
    assert caught.value.message.startswith(f"1 validation error:\n  {{'type': '{kind}', 'loc': 'body.x', 'msg': 'Input")


@pytest.mark.parametrize("values", [{}, {"x": None}])
@pytest.mark.parametrize("reader", list(READERS))
def test_null_is_as_good_as_nothing(reader: str, values: dict[str, Any]):
    """Clients send their optional fields as null."""
    assert not READERS[reader](Fields(values))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "json_invalid"),
        (b"{", "json_invalid"),
        (b'{"a": "\xff"}', "json_invalid"),
        (b'{"a": "\\ud800"}', "json_invalid"),
        (b'{"a": NaN}', "json_invalid"),
        (b"[" * 100_000, "json_invalid"),
        (b"null", "missing"),
        (b"[]", "model_attributes_type"),
        (b'"x"', "model_attributes_type"),
    ],
)
def test_a_body_that_is_no_object_is_refused_by_kind(body: bytes, kind: str):
    """Broken JSON, broken UTF-8, too deep, or something else than an object."""
    with pytest.raises(InvalidBodyError, match=f"'type': '{kind}'"):
        decode_object(body)


def test_an_object_is_decoded():
    """Whitespace and nesting included."""
    assert decode_object(b' {"a": [1, {"b": null}]} ') == {"a": [1, {"b": None}]}


def test_booleans_are_no_integers():
    """Though Python thinks so."""
    assert are_integers([1, 2])
    assert are_integers([])
    assert not are_integers([1, True])
    assert not are_integers([1, "a"])
