"""Reading one value of a model's description (GGUF metadata, config.json) with an error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.model.config import ModelRefusedError

MOST_CHARACTERS = 200


class Fields:
    """The values under `prefix` in a description; `place` says in errors where it was read. A null counts as absent."""

    def __init__(self, values: Mapping[str, Any], place: str, prefix: str = "") -> None:
        self._values = values
        self._place = place
        self._prefix = prefix

    def get(self, name: str, default: Any = None) -> Any:
        """The value, whatever it is."""
        value = self._values.get(self._prefix + name)
        return default if value is None else value

    def is_null(self, name: str) -> bool:
        """Whether the value is there and says that there is none."""
        return self._values.get(self._prefix + name, ...) is None

    def integer(self, name: str, default: int | None = None) -> int:
        """A positive count."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused(name, "a count was expected")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.refused(name, "a number was expected")
        return float(value)

    def refused(self, name: str, because: str) -> ModelRefusedError:
        """The error that names a value, or the beginning of a long one, and its place."""
        value = repr(self.get(name))[:MOST_CHARACTERS]
        return ModelRefusedError(f"{self._prefix}{name} is {value} in {self._place}: {because}")
