"""Sampling fields of a request: vLLM's ranges and words, and an honest no to what this worker cannot do."""

from __future__ import annotations

from math import inf

from backends.api_errors import BadRequestError, with_parameter
from backends.request_fields import Fields, is_number
from backends.types import SamplingParams
from router.core import Json

MAX_LOGPROBS = 20
"""vLLM's default for --max-logprobs."""

WHOLE_VOCABULARY = 1 << 31
"""How many alternatives `logprobs: -1` asks for: all of them, where --max-logprobs has no bound."""

MAX_ANSWERS = 128
"""The most answers (`n`) of one prompt, as OpenAI."""

LARGEST_BIAS = 100.0
"""A `logit_bias` beyond it counts as this much, as in vLLM."""

TEXT_ONLY = "this worker has no structured output; the model answers with whatever text it likes"
NO_CALLS = "this worker shows tools to the model but cannot make it call one; with tool_choice auto it may, in its text"

UNSUPPORTED: dict[str, tuple[Json, ...]] = {
    "suffix": ("",),
    "best_of": (1,),
    "use_beam_search": (False,),
    "prompt_embeds": (),
    "bad_words": ([],),
    "logits_processors": ([],),
    "repetition_detection": (),
    "thinking_token_budget": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "truncate_prompt_tokens": (),
    "continue_final_message": (False,),
    "chat_template": (),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
}
"""Fields that would change the answer and that this worker does not carry out: name → values that change nothing.

With `tool_choice` "auto" tools are shown to the model, and whatever it says comes back as text."""

REASONS = {
    **dict.fromkeys(("response_format", "structured_outputs"), TEXT_ONLY),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), TEXT_ONLY),
    **dict.fromkeys(("tool_choice", "functions", "function_call"), NO_CALLS),
}
"""Why, where it is not plain."""


def refuse_unsupported(fields: Fields) -> None:
    """BadRequestError for a field of `UNSUPPORTED` with a value that would have an effect."""
    for name, harmless in UNSUPPORTED.items():
        value = fields.value(name)
        if value is not None and value not in harmless:
            why = f" ({REASONS[name]})" if name in REASONS else ""
            raise BadRequestError(f"{name} is not supported by this worker{why}; leave it out.", param=name)


def read_sampling(
    fields: Fields,
    max_tokens: int | None,
    logprobs: int | None,
    *,
    max_logprobs: int | None = MAX_LOGPROBS,
    least_tokens: int = 1,
) -> SamplingParams:
    """The sampling part of a request; BadRequestError for a value out of its range.

    `max_logprobs` bounds the alternatives to a token that may be asked for; None is no bound. `least_tokens` is the
    shortest answer that may be asked for.
    """
    temperature = _number(fields, "temperature", 1.0)
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=_number(fields, "top_p", 1.0),
        top_k=max(0, _top_k(fields)),
        seed=fields.integer("seed"),
        stop=fields.texts("stop"),
        ignore_eos=fields.flag("ignore_eos", False),
        logprobs=_alternatives("logprobs", logprobs, max_logprobs),
        n=_integer(fields, "n", 1),
        min_p=_number(fields, "min_p", 0.0),
        stop_token_ids=_once_each(fields.integers("stop_token_ids")),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
        min_tokens=_integer(fields, "min_tokens", 0),
        presence_penalty=_number(fields, "presence_penalty", 0.0),
        frequency_penalty=_number(fields, "frequency_penalty", 0.0),
        repetition_penalty=_number(fields, "repetition_penalty", 1.0),
        logit_bias=_bias(fields),
        prompt_logprobs=_alternatives("prompt_logprobs", fields.integer("prompt_logprobs"), max_logprobs),
        allowed_token_ids=_allowed(fields),
        include_stop_str_in_output=fields.flag("include_stop_str_in_output", False),
    )
    if max_tokens is not None and max_tokens < least_tokens:
        raise _out_of_range("max_tokens", f"must be at least {least_tokens}", max_tokens)
    _check(sampling)
    return sampling


def _check(sampling: SamplingParams) -> None:
    for name, lowest, highest in (("min_p", 0, 1), ("presence_penalty", -2, 2), ("frequency_penalty", -2, 2)):
        value = getattr(sampling, name)
        if not lowest <= value <= highest:
            raise _out_of_range(name, f"must be in [{lowest}, {highest}]", value)
    if not 0 <= sampling.temperature < inf:
        raise _out_of_range("temperature", "must be non-negative", sampling.temperature)
    if not 0 < sampling.top_p <= 1:
        raise _out_of_range("top_p", "must be in (0, 1]", sampling.top_p)
    if not 0 < sampling.repetition_penalty < inf:
        raise _out_of_range("repetition_penalty", "must be greater than zero", sampling.repetition_penalty)
    if not 1 <= sampling.n <= MAX_ANSWERS:
        raise _out_of_range("n", f"must be between 1 and {MAX_ANSWERS}", sampling.n)
    if sampling.n > 1 and sampling.temperature == 0:
        raise _out_of_range("n", "must be 1 when using greedy sampling", sampling.n)
    if "" in sampling.stop:
        raise with_parameter("stop cannot contain an empty string.", "stop")
    _check_min_tokens(sampling)


def _check_min_tokens(sampling: SamplingParams) -> None:
    if sampling.min_tokens < 0:
        raise _out_of_range("min_tokens", "must be greater than or equal to 0", sampling.min_tokens)
    if sampling.max_tokens is not None and sampling.min_tokens > sampling.max_tokens:
        rule = f"must be less than or equal to max_tokens={sampling.max_tokens}"
        raise _out_of_range("min_tokens", rule, sampling.min_tokens)


def _alternatives(name: str, wanted: int | None, most: int | None) -> int | None:
    """How many alternatives to tell of each token: as asked, -1 being all."""
    if wanted is None or (most is None and wanted >= 0):
        return wanted
    if most is None and wanted == -1:
        return WHOLE_VOCABULARY
    if most is None:
        raise _out_of_range(name, "must be -1 (all), or at least 0", wanted)
    if not 0 <= wanted <= most:
        raise _out_of_range(name, f"must be between 0 and {most}", wanted)
    return wanted


def _bias(fields: Fields) -> tuple[tuple[int, float], ...]:
    """`logit_bias`: token ids, which JSON writes as texts, to numbers."""
    given = fields.mapping("logit_bias") or {}
    try:
        # float() takes booleans and texts too; isdigit() keeps " 7 " and "1_0" out.
        pairs = [(int(token), float(bias)) for token, bias in given.items() if token.isdigit() and is_number(bias)]
    except (ValueError, OverflowError):
        pairs = []
    if len(pairs) != len(given):
        raise BadRequestError("logit_bias maps token ids to numbers from -100 to 100.", param="logit_bias")
    return tuple((token, max(-LARGEST_BIAS, min(LARGEST_BIAS, bias))) for token, bias in pairs)


def _allowed(fields: Fields) -> tuple[int, ...] | None:
    if fields.value("allowed_token_ids") is None:
        return None
    token_ids = fields.integers("allowed_token_ids")
    if not token_ids:
        raise with_parameter("allowed_token_ids is not None and empty!", "allowed_token_ids")
    return _once_each(token_ids)


def _once_each(token_ids: tuple[int, ...]) -> tuple[int, ...]:
    """No more than a vocabulary of them, once they are known to be of it: they are gone through in every step."""
    return tuple(dict.fromkeys(token_ids))


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
