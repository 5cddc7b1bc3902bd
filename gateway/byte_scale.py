"""How many bytes a token has, learned from what workers report, for models whose tokeniser is not at hand."""

from __future__ import annotations

import math

from router.tokenise import BYTES_PER_TOKEN

FEWEST_BYTES, MOST_BYTES = 1.0, 16.0
"""No tokeniser in use is outside; what is, came from images or from a mistake."""

SHORTEST_BYTES = 256
"""Below this the worker's own template weighs more than the text."""

GAIN_FLOOR = 0.05
TRUSTED_AFTER = 8
LARGEST_STEP = 0.3
"""Once TRUSTED_AFTER reports are in, one report moves the ratio as if it were off by e^0.3 at most."""


class ByteScale:
    """A running ratio in which one odd report counts little."""

    def __init__(self) -> None:
        self.bytes_per_token = float(BYTES_PER_TOKEN)
        self.reports = 0

    def observe(self, text_bytes: int, prompt_tokens: int) -> None:
        """A worker counted `prompt_tokens` where we counted `text_bytes`."""
        if text_bytes < SHORTEST_BYTES or prompt_tokens <= 0:
            return
        seen = min(MOST_BYTES, max(FEWEST_BYTES, text_bytes / prompt_tokens))
        off = math.log(seen / self.bytes_per_token)
        if self.reports >= TRUSTED_AFTER:
            off = min(LARGEST_STEP, max(-LARGEST_STEP, off))
        self.reports += 1
        self.bytes_per_token *= math.exp(off * max(GAIN_FLOOR, 1 / self.reports))

    def tokens(self, text_bytes: int) -> int:
        """About how many tokens `text_bytes` are; at least 1."""
        return max(1, round(text_bytes / self.bytes_per_token))
