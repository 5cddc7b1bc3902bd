"""Values of a model's description, and the errors that name them."""

from __future__ import annotations

from typing import Any

import pytest

from backends.model.config import ModelRefusedError
from backends.model.fields import Fields


def build_fields(prefix: str = "", **values: Any) -> Fields:
    return Fields({prefix + name: value for name, value in values.items()}, "the file", prefix)


def test_values_are_found_under_their_prefix():
    """As in a GGUF file, whose keys begin with the architecture."""
    fields = build_fields("llama.", layers=4, base=1e4, name="x")
    assert (fields.integer("layers"), fields.number("base"), fields.get("name")) == (4, 1e4, "x")
    assert fields.number("layers") == 4.0


def test_a_null_is_as_good_as_nothing_unless_it_is_asked_for():
    """config.json writes null for what a model leaves to its defaults."""
    fields = build_fields(given=None)
    assert (fields.get("given", 7), fields.integer("given", 7), fields.get("absent")) == (7, 7, None)
    assert (fields.is_null("given"), fields.is_null("absent")) == (True, False)


@pytest.mark.parametrize("value", [None, 0, -1, 1.5, "4", True, [4]])
def test_a_count_is_a_positive_whole_number(value: Any):
    """Anything else is named with its place."""
    with pytest.raises(ModelRefusedError, match=r"^llama\.layers is .* in the file: a count was expected$"):
        build_fields("llama.", layers=value).integer("layers")


@pytest.mark.parametrize("value", [None, 0, -1.0, "4", True, float("nan")])
def test_a_number_is_positive(value: Any):
    """A base of NaN would make every angle NaN."""
    with pytest.raises(ModelRefusedError, match=r"^base is .* in the file: a number was expected$"):
        build_fields(base=value).number("base")


def test_a_long_value_is_shown_by_its_beginning():
    """A quantisation's description may list every layer."""
    message = str(build_fields(quantization={"layers": list(range(1000))}).refused("quantization", "no"))
    assert message.startswith("quantization is {'layers': [0, 1, 2")
    assert message.endswith(" in the file: no")
    assert len(message) < 300
