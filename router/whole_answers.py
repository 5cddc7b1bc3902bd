"""What an answer that came all at once says of its prefill: its time, less what its output tokens took.

Nobody sees the first token of such an answer. Where the worker had nothing else to do from its beginning to its end,
its time is a fixed cost, so much for each uncached token and so much for each output token. The two slopes are found
together, each from what the other leaves, which tells them apart as long as long prompts do not always have long
answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from router.learning import RELEARN_EVERY, WINDOW_OBSERVATIONS, middle

PER_TOKEN_HIGH_SECONDS = 1.0
LEAST_OUTPUT_SPREAD = 8.0
LEAST_PROMPT_SPREAD = 128.0
"""Tokens by which two answers must differ to say something about a slope."""

_ROUNDS = 6
_MOST_DECODING = 0.75
"""An answer that spent more than this part of its time on decoding says too little about its prefill."""

_LEAST_ANSWERS = 16


class WholeAnswer(NamedTuple):
    """One answer of a worker that served nothing else meanwhile; output tokens after the first."""

    total_seconds: float
    uncached_tokens: float
    later_tokens: int


class WholeAnswers:
    """Learns one worker's seconds per output token from a window of answers, and takes them off."""

    __slots__ = ("_answers", "_observed", "seconds_per_token")

    def __init__(self) -> None:
        self._answers: deque[WholeAnswer] = deque(maxlen=2 * WINDOW_OBSERVATIONS)
        self._observed = 0
        self.seconds_per_token: float | None = None

    def prefill_seconds(self, answer: WholeAnswer) -> float | None:
        """How long the prefill took; None where that cannot be told from the decoding."""
        self._answers.append(answer)
        self._observed += 1
        if self._observed % RELEARN_EVERY == 0 and self._observed >= _LEAST_ANSWERS:
            self._fit()
        if not answer.later_tokens:
            return answer.total_seconds
        if self.seconds_per_token is None:
            return None
        decoding = self.seconds_per_token * answer.later_tokens
        return answer.total_seconds - decoding if decoding <= _MOST_DECODING * answer.total_seconds else None

    def _fit(self) -> None:
        answers, per_output, per_uncached = self._answers, self.seconds_per_token or 0.0, 0.0
        outputs = [float(one.later_tokens) for one in answers]
        uncached = [one.uncached_tokens for one in answers]
        for _ in range(_ROUNDS):
            rest = [one.total_seconds - per_output * one.later_tokens for one in answers]
            slope = _slope(uncached, rest, LEAST_PROMPT_SPREAD)
            per_uncached = max(0.0, slope or 0.0)
            rest = [one.total_seconds - per_uncached * one.uncached_tokens for one in answers]
            slope = _slope(outputs, rest, LEAST_OUTPUT_SPREAD)
            if slope is None:
                return
            per_output = min(PER_TOKEN_HIGH_SECONDS, max(0.0, slope))
        self.seconds_per_token = per_output


def _slope(xs: Sequence[float], ys: Sequence[float], least_spread: float) -> float | None:
    """The median over pairs of a low x with a high x each; None where the xs are too alike."""
    ordered = sorted(zip(xs, ys, strict=True))
    half = len(ordered) // 2
    pairs = zip(ordered[:half], ordered[-half:], strict=True)
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 - x1 >= least_spread]
    return middle(slopes) if len(slopes) * 2 >= half else None
