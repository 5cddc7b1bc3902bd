"""The answers to one prompt as sequences: what each has of its own, and what ends it."""

from __future__ import annotations

from array import array
from dataclasses import replace

from backends.answer import Answer
from backends.detokenise import Decoder
from backends.engine_config import EngineConfig
from backends.sequence import Sequence
from backends.types import GenerationRequest


def build_siblings(
    request: GenerationRequest, tokens: array[int], max_tokens: int, config: EngineConfig, tokeniser: Decoder | None
) -> list[Sequence]:
    """One sequence for each of the request's `n` answers."""
    return [_sequence(request, tokens, max_tokens, config, tokeniser, choice) for choice in range(request.sampling.n)]


def _sequence(
    request: GenerationRequest,
    tokens: array[int],
    max_tokens: int,
    config: EngineConfig,
    tokeniser: Decoder | None,
    choice: int,
) -> Sequence:
    sampling = request.sampling
    if choice and sampling.seed is not None:
        sampling = replace(sampling, seed=sampling.seed + choice)
    eos_ids = frozenset() if sampling.ignore_eos else config.eos_ids
    answer = Answer(
        tokeniser,
        end_ids=eos_ids,
        stops=sampling.stop,
        max_tokens=max_tokens,
        stop_ids=sampling.stop_token_ids,
        hidden_ids=config.special_ids if sampling.skip_special_tokens else frozenset(),
        min_tokens=sampling.min_tokens,
        shows_stop=sampling.include_stop_str_in_output,
    )
    return Sequence(
        request,
        tokens[:],
        request_id=f"{request.request_id}/{choice}" if sampling.n > 1 else request.request_id,
        sampling=sampling,
        max_tokens=max_tokens,
        answer=answer,
        choice=choice,
        end_ids=eos_ids | frozenset(sampling.stop_token_ids),
    )
