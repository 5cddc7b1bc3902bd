"""What is refused at the door: requests that could never run, before they cost anything."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from backends.retention import CachePolicy, Retention
from backends.types import GenerationRequest, RequestRefusedError, SamplingParams


def checked_tokens(prompt_ids: Sequence[int], vocab_size: int) -> array[int]:
    """The prompt as an array; RequestRefusedError when it is empty or holds an id the model does not know."""
    if not prompt_ids:
        raise RequestRefusedError("the prompt has no tokens", "prompt")
    try:
        tokens = array("I", prompt_ids)
    except OverflowError:
        tokens = array("I", [vocab_size])
    if max(tokens) >= vocab_size:
        raise RequestRefusedError(f"token ids must be 0 to {vocab_size - 1}", "prompt")
    return tokens


def checked_max_tokens(request: GenerationRequest, limit_tokens: int) -> int:
    """The bound on the answer; RequestRefusedError when prompt and answer together exceed `limit_tokens`."""
    prompt, wanted = len(request.prompt_ids), request.sampling.max_tokens
    least = 1 if wanted is None else wanted
    if least < 0:
        raise RequestRefusedError(f"max_tokens must not be negative, but it is {wanted}", "max_tokens")
    if request.sampling.n < 1:
        raise RequestRefusedError(f"n must be at least 1, not {request.sampling.n}", "n")
    if prompt + least > limit_tokens:
        raise RequestRefusedError(
            f"the prompt has {prompt} tokens and {least} are to be generated, together more than the "
            f"{limit_tokens} that fit; shorten the prompt or lower max_tokens",
            "prompt" if prompt >= limit_tokens else "max_tokens",
        )
    return limit_tokens - prompt if wanted is None else wanted


def check_token_ids(sampling: SamplingParams, vocab_size: int) -> None:
    """RequestRefusedError for a rule about a token that the model does not know."""
    named = {
        "logit_bias": [token_id for token_id, _ in sampling.logit_bias],
        "allowed_token_ids": sampling.allowed_token_ids or (),
        "stop_token_ids": sampling.stop_token_ids,
    }
    for field, token_ids in named.items():
        if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
            raise RequestRefusedError(f"{field}: token ids must be 0 to {vocab_size - 1}", field)


def check_policy(policy: CachePolicy) -> None:
    """RequestRefusedError for a pin without an end: it could keep its blocks from everybody for ever."""
    if policy.retention is Retention.PIN and policy.ttl_seconds is None:
        raise RequestRefusedError("a pin needs a time to live", "cache_policy")
