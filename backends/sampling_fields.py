"""Sampling fields of a request: vLLM's ranges and words, and an honest no to what this worker cannot do."""

from __future__ import annotations

from backends.api_errors import BadRequestError, with_parameter
from backends.request_fields import Fields
from backends.types import SamplingParams
from router.core import Json

MAX_LOGPROBS = 20
"""vLLM's default for --max-logprobs."""

MAX_ANSWERS = 128
"""The most answers (`n`) of one prompt, as OpenAI."""

UNSUPPORTED: dict[str, tuple[Json, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "use_beam_search": (False,),
    "prompt_logprobs": (),
    "prompt_embeds": (),
    "min_tokens": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "truncate_prompt_tokens": (),
    "continue_final_message": (False,),
    "chat_template": (),
    "include_stop_str_in_output": (False,),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "tool_choice": ("none", "auto"),
}
"""Fields that would change the answer and that this worker does not carry out: name → values that change nothing.

With `tool_choice` "auto" tools are shown to the model, and whatever it says comes back as text."""


def refuse_unsupported(fields: Fields) -> None:
    """BadRequestError for a field of `UNSUPPORTED` with a value that would have an effect."""
    for name, harmless in UNSUPPORTED.items():
        value = fields.value(name)
        if value is not None and value not in harmless:
            raise BadRequestError(f"{name} is not supported by this worker; leave it out.", param=name)


def read_sampling(fields: Fields, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    """The sampling part of a request; BadRequestError for a value out of its range."""
    temperature = _number(fields, "temperature", 1.0)
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=_number(fields, "top_p", 1.0),
        top_k=max(0, _top_k(fields)),
        seed=fields.integer("seed"),
        stop=fields.texts("stop"),
        ignore_eos=fields.flag("ignore_eos", False),
        logprobs=logprobs,
        n=_integer(fields, "n", 1),
        min_p=_number(fields, "min_p", 0.0),
        stop_token_ids=fields.integers("stop_token_ids"),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
    )
    _check(sampling)
    return sampling


def _check(sampling: SamplingParams) -> None:
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise _out_of_range("max_tokens", "must be at least 1", sampling.max_tokens)
    if not sampling.temperature >= 0:
        raise _out_of_range("temperature", "must be non-negative", sampling.temperature)
    if not 0 < sampling.top_p <= 1:
        raise _out_of_range("top_p", "must be in (0, 1]", sampling.top_p)
    if not 0 <= sampling.min_p <= 1:
        raise _out_of_range("min_p", "must be in [0, 1]", sampling.min_p)
    if not 1 <= sampling.n <= MAX_ANSWERS:
        raise _out_of_range("n", f"must be between 1 and {MAX_ANSWERS}", sampling.n)
    if sampling.n > 1 and sampling.temperature == 0:
        raise _out_of_range("n", "must be 1 when using greedy sampling", sampling.n)
    if sampling.logprobs is not None and not 0 <= sampling.logprobs <= MAX_LOGPROBS:
        raise _out_of_range("logprobs", f"must be between 0 and {MAX_LOGPROBS}", sampling.logprobs)
    if "" in sampling.stop:
        raise with_parameter("stop cannot contain an empty string.", "stop")


def _top_k(fields: Fields) -> int:
    top_k = _integer(fields, "top_k", 0)
    if top_k < -1:
        raise _out_of_range("top_k", "must be 0 (disable), or at least 1", top_k)
    return top_k


def _number(fields: Fields, name: str, default: float) -> float:
    value = fields.number(name)
    return default if value is None else value


def _integer(fields: Fields, name: str, default: int) -> int:
    value = fields.integer(name)
    return default if value is None else value


def _out_of_range(name: str, rule: str, value: float) -> BadRequestError:
    return with_parameter(f"{name} {rule}, got {value}.", name, value)
