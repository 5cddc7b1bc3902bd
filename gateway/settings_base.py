"""What every section of the settings is made of: the base of them all, and numbers with their bounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1)]


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping in the file; a field it does not know is an error."""
