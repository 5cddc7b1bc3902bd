"""What one request asks for several times over: the prompts of a batch behind its first, and answers to each.

Placement goes by the first prompt alone; limits must know of all of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.wire import Call
from router.core import Json
from router.tokenise import BYTES_PER_TOKEN

MOST_ANSWERS: Final = 16_384
"""Of one prompt: vLLM's own bound. A larger wish is refused by the worker, and must not move anybody's account."""

_REPEATED: Final = ("n", "best_of")
_LONGEST_NUMBER: Final = 20


def other_prompts(call: Call) -> list[str | list[int]]:
    """The prompts of a batch behind its first."""
    if not call.batch:
        return []
    prompts: list[str | list[int]] = msgspec.json.decode(call.raw[call.text_field])
    return prompts[1:]


def most_tokens(prompt: str | list[int]) -> int:
    """As many as it may have: a token of text is a byte or more."""
    return len(prompt) if isinstance(prompt, list) else len(prompt.encode(errors="surrogatepass"))


def about_tokens(prompt: str | list[int]) -> int:
    """As many as it has, or about as many where it is text."""
    return len(prompt) if isinstance(prompt, list) else round(most_tokens(prompt) / BYTES_PER_TOKEN)


def answers_to_each(call: Call) -> int:
    """How many answers to each prompt are made: `n`, or `best_of` where that is more."""
    if call.names is not None and call.names.isdisjoint(_REPEATED):
        return 1
    fields = call.raw
    asked = (msgspec.json.decode(fields[name]) for name in _REPEATED if name in fields)
    return min(MOST_ANSWERS, max([1, *map(_whole, asked)]))


def _whole(given: Json) -> int:
    """A whole number as vLLM reads one, in quotes or with a point, too; 0 for what is none."""
    if type(given) is int:
        return given
    if type(given) is float:
        return int(given) if given.is_integer() else 0
    if type(given) is not str or len(given) > _LONGEST_NUMBER:
        return 0
    try:
        return int(given)
    except ValueError:
        return 0
