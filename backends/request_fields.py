"""Reading one JSON object field by field, with the errors a pydantic model of vLLM's would give."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from backends.api_errors import InvalidBodyError, invalid
from router.core import Json

LARGEST_INTEGER = (1 << 63) - 1
"""As vLLM bounds seeds. Python cannot write an integer of thousands of digits, and fails only where it has to."""

LARGEST_NUMBER = sys.float_info.max
"""JSON has integers of any size; more than this is no float."""


def decode_object(body: bytes) -> dict[str, Json]:
    """The body as a JSON object; InvalidBodyError for anything else (bad JSON, bad UTF-8, too deep, another type)."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise invalid("json_invalid", "body", "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError):
        # The decoder's own words may quote the body.
        raise invalid("json_invalid", "body", "JSON decode error") from None
    if value is None:
        raise invalid("missing", "body", "Field required")
    if not isinstance(value, dict):
        raise invalid("model_attributes_type", "body", "Input should be a valid dictionary or object")
    return value


class Fields:
    """Typed access to a request's top level. A field that is null counts as absent, as in vLLM."""

    def __init__(self, values: dict[str, Json]) -> None:
        self._values = values

    def value(self, name: str) -> Json:
        """The field as decoded, None when absent."""
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """A string field."""
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(name, "string_type", "a valid string")

    def flag(self, name: str, default: bool) -> bool:
        """A boolean field."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "bool_type", "a valid boolean")

    def integer(self, name: str) -> int | None:
        """An integer field of 64 bits at most; 5.0 counts as 5."""
        value = self._values.get(name)
        if value is None:
            return None
        if not is_number(value) or value != int(value):
            raise self._wrong(name, "int_type", "a valid integer")
        if abs(value) > LARGEST_INTEGER:
            raise self._wrong(name, "int_parsing_size", "an integer of 64 bits at most")
        return int(value)

    def number(self, name: str) -> float | None:
        """A number field."""
        value = self._values.get(name)
        if value is None:
            return None
        if not is_number(value) or abs(value) > LARGEST_NUMBER:
            raise self._wrong(name, "float_type", "a valid number")
        return float(value)

    def sequence(self, name: str) -> list[Json] | None:
        """A list field."""
        value = self._values.get(name)
        if value is None or isinstance(value, list):
            return value
        raise self._wrong(name, "list_type", "a valid list")

    def mapping(self, name: str) -> dict[str, Json] | None:
        """An object field."""
        value = self._values.get(name)
        if value is None or isinstance(value, dict):
            return value
        raise self._wrong(name, "dict_type", "a valid dictionary")

    def texts(self, name: str) -> tuple[str, ...]:
        """A string, or a list of strings."""
        value = self._values.get(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise self._wrong(name, "string_type", "a valid string or a list of strings")

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers."""
        value = self.sequence(name)
        if value is None:
            return ()
        if not are_integers(value):
            raise self._wrong(name, "int_type", "a list of valid integers")
        return tuple(value)

    @staticmethod
    def _wrong(name: str, kind: str, wanted: str) -> InvalidBodyError:
        return invalid(kind, f"body.{name}", f"Input should be {wanted}")


def are_integers(values: Sequence[Json]) -> bool:
    """Whether every item is an integer (a boolean is none)."""
    # set(map(type)) is one pass in C: token-id prompts are long.
    return set(map(type, values)) <= {int}


def is_number(value: Json) -> bool:
    """Whether a value is a number (a boolean is none)."""
    return isinstance(value, int | float) and not isinstance(value, bool)
