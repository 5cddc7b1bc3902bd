"""What `homing explain` and the admin port say of a request's prompt: keys, blocks, folds; never its text."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final

import msgspec

from gateway.errors import InvalidRequest
from gateway.rewrites.body import Applied
from gateway.wire import Call, Endpoint, forward_body, parse_call
from router.core import Fold, Placement, Prompt
from router.reasons import in_words

TEXT_FIELDS: Final = ("messages", "prompt", "tools", "input", "instructions", "system")
"""The fields whose text a model reads."""

_TOLD_OF_A_PLACEMENT: Final = (
    "worker", "reason", "policy", "home", "homes", "predicted_cached_tokens", "predicted_seconds", "price",
    "slack_seconds",
)  # fmt: skip

_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def explain_prompt(prompt: Prompt) -> dict[str, Any]:
    """A prompt in plain values: hashes in hex, folds with their place in the original string (code points).

    `key` is the first key block, which the ring is asked for as long as no popularity is known.
    """
    key_blocks = [block.hex() for block in prompt.key_blocks]
    return {
        "key": key_blocks[0],
        "key_blocks": key_blocks,
        "exact_blocks": [block.hex() for block in prompt.exact_blocks],
        "folded": [_fold(fold) for fold in prompt.folds],
        "tokens": prompt.tokens,
    }


def explain_call(
    call: Call, prompt: Prompt, salt: str | None, received: bytes, applied: Sequence[Applied] = ()
) -> dict[str, Any]:
    """`explain_prompt` of what is forwarded, what was rewritten in it, and whether the text is as it was `received`."""
    forwarded = forward_body(call, salt=salt, ask_usage=call.stream)
    return {
        **explain_prompt(prompt),
        "rewritten": [each._asdict() for each in applied],
        "text_forwarded_unchanged": text_unchanged(received, forwarded),
    }


def explain_placement(placement: Placement) -> dict[str, Any]:
    """Who gets a request and why, in words and in every candidate's numbers; seconds are predictions.

    `price` is α, `slack_seconds` what a home may be worse by (null: without end), `homes` how many the key has.
    """
    told = {name: getattr(placement, name) for name in _TOLD_OF_A_PLACEMENT}
    candidates = [candidate._asdict() for candidate in placement.candidates]
    return {**told, "why": in_words(placement), "key": placement.key.hex(), "candidates": candidates}


def text_unchanged(received: bytes, forwarded: bytes) -> bool:
    """Whether two request bodies hold the same bytes in every field that a model reads."""
    if forwarded is received:
        return True
    before, after = _RAW.decode(received), _RAW.decode(forwarded)
    return all(before.get(name) == after.get(name) for name in TEXT_FIELDS)


def read_request(body: bytes) -> Call:
    """A request of any endpoint with a prompt, told apart by its fields. Raises InvalidRequest as the API would."""
    try:
        names = set(_RAW.decode(body))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        names = {"messages"}  # parse_call says what is wrong
    return parse_call(_endpoint_of(names), body)


def _endpoint_of(names: Set[str]) -> Endpoint:
    """`system` is Anthropic's, `input` of the Responses API; an embedding's input is the same prompt."""
    if "messages" in names:
        return Endpoint.MESSAGES if "system" in names else Endpoint.CHAT
    if "input" in names:
        return Endpoint.RESPONSES
    if "prompt" in names:
        return Endpoint.COMPLETIONS
    raise InvalidRequest("The request has none of `messages`, `prompt` and `input`.")


def _fold(fold: Fold) -> dict[str, Any]:
    told: dict[str, Any] = {"rule": fold.rule, "message": fold.message, "start": fold.start, "end": fold.end}
    return told if fold.part is None else {**told, "part": fold.part}
