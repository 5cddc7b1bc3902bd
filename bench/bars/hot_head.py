"""Decode-heavy traffic with one hot head: every prompt begins the same, answers are long, prompts short."""

from __future__ import annotations

from random import Random

from router.core import Prompt
from router.replay.block_names import BlockNames
from router.replay.core import Trace, TraceRequest

REQUESTS = 6000
REQUESTS_PER_SECOND = 40.0
HEAD_BLOCKS = 2
BLOCK_TOKENS = 512
MOST_TOKENS_SHORT = 400
MEAN_OUTPUT_TOKENS = 400
OUTPUT_SIGMA = 0.6
SEED = 3


def hot_head(requests: int = REQUESTS) -> Trace:
    """Poisson arrivals; two common blocks and an own one, which up to 400 tokens are missing of; lognormal answers."""
    random, names = Random(SEED), BlockNames()
    head = [names[number] for number in range(HEAD_BLOCKS)]
    made, now = [], 0.0
    for number in range(requests):
        now += random.expovariate(REQUESTS_PER_SECOND)
        random.randrange(1)  # the head's number, of one
        tokens = (HEAD_BLOCKS + 1) * BLOCK_TOKENS - random.randint(1, MOST_TOKENS_SHORT)
        output_tokens = max(1, int(random.lognormvariate(0.0, OUTPUT_SIGMA) * MEAN_OUTPUT_TOKENS))
        chain = [*head, names[HEAD_BLOCKS + number]]
        prompt = Prompt(tokens=tokens, block_tokens=BLOCK_TOKENS, exact_blocks=chain, key_blocks=chain)
        made.append(TraceRequest(number, now, output_tokens, number, 0.0, prompt))
    return Trace("hot_head", BLOCK_TOKENS, made)
