"""Can one tenant tell from times what another one asked? Samples through a gateway, and two distributions compared.

    make isolation        python -m tests.faults.isolation [--samples 250] [--json FILE]

Starts a gateway over the bundled worker with SmolLM2 on the CPU. Each round asks four things in a random order: a
prompt that the other tenant has asked before, two that nobody has, and one that this tenant has asked itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.end_to_end.processes import gateway, worker
from tests.faults.client import KEYS, Answer, Client, new_nonce
from tests.faults.stage import merged, tenant_of

CROSS_P = 0.01
OWN_P = 1e-6
ENOUGH_SAMPLES = 100
FEW_SAMPLES_CROSS_P = 1e-4
"""Of fewer samples, which every run of the tests takes: a bar of 0.01 would fail one run in fifty by chance alone."""

WORDS_OF_PROMPT = 120
"""About 200 tokens of SmolLM2's; with the template less than 256."""

HEADERS_THAT_DIFFER = ("x-request-id", "date", "content-length", "openai-processing-ms", "server-timing")
Ask = Callable[[Client, str], Awaitable[Answer]]


def ks_statistic(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest distance between two empirical distributions."""
    ranked_one, ranked_other = sorted(one), sorted(other)
    largest, i, j = 0.0, 0, 0
    while i < len(ranked_one) and j < len(ranked_other):
        value = min(ranked_one[i], ranked_other[j])
        while i < len(ranked_one) and ranked_one[i] <= value:
            i += 1
        while j < len(ranked_other) and ranked_other[j] <= value:
            j += 1
        largest = max(largest, abs(i / len(ranked_one) - j / len(ranked_other)))
    return largest


def ks_p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """How likely samples of one distribution differ as much: Kolmogorov's series with Stephens' correction."""
    root = math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    x = (root + 0.12 + 0.11 / root) * ks_statistic(one, other)
    if x < 0.2:
        return 1.0
    total = 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))
    return min(1.0, max(0.0, total))


@dataclass
class Samples:
    """Times to first token, and what else an asker could tell by. `others`: of prompts that the other tenant asked.

    `told_*` are the milliseconds that the answer's own head gives for the gateway's stages before the worker's.
    """

    others: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    fresh_again: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    told_others: list[float] = field(default_factory=list)
    told_fresh: list[float] = field(default_factory=list)
    others_cached_tokens: int = 0
    fresh_cached_tokens: int = 0
    headers: set[tuple[tuple[str, str], ...]] = field(default_factory=set)

    @property
    def cross_p(self) -> float:
        return ks_p_value(self.others, self.fresh)

    @property
    def told_p(self) -> float:
        return ks_p_value(self.told_others, self.told_fresh) if self.told_others else 1.0

    @property
    def own_p(self) -> float:
        return ks_p_value(self.own, self.fresh_again)

    @property
    def cross_bar(self) -> float:
        return CROSS_P if len(self.others) >= ENOUGH_SAMPLES else FEW_SAMPLES_CROSS_P

    @property
    def met(self) -> bool:
        # A template's head is in everybody's prompts, the fresh ones' too.
        quiet = self.others_cached_tokens == self.fresh_cached_tokens and len(self.headers) == 1
        return min(self.cross_p, self.told_p) >= self.cross_bar and self.own_p < OWN_P and quiet

    def told(self) -> str:
        """The figures in a line."""
        samples = f"{len(self.others)} + {len(self.fresh)} samples"
        return (
            f"across tenants p = {self.cross_p:.3f}, by the head's own times {self.told_p:.3f} "
            f"(bar ≥ {self.cross_bar}); "
            f"within one p = {self.own_p:.1e} (bar < {OWN_P:g}); {samples}, {len(self.headers)} set of headers; "
            f"told as cached {self.others_cached_tokens} tokens of others', {self.fresh_cached_tokens} of fresh prompts"
        )


def text_of(number: int, rng: random.Random) -> str:
    """A prompt that begins like no other."""
    return " ".join([f"{number}-{rng.getrandbits(32):x}", *(rng.choice(WORDS) for _ in range(WORDS_OF_PROMPT))])


WORDS = (
    "river",
    "stones",
    "under",
    "bridge",
    "where",
    "waited",
    "rain",
    "lantern",
    "harvest",
    "winter",
    "market",
    "road",
)


async def sample(victim: Client, asker: Client, ask: Ask, rounds: int, seed: int = 1) -> Samples:
    """So many rounds. The asker's own prompt of a round was asked by it at the round's beginning."""
    found, rng = Samples(), random.Random(seed)
    for number in range(rounds):
        others, own = text_of(4 * number, rng), text_of(4 * number + 1, rng)
        await ask(victim, others)
        await ask(asker, own)
        asked = [(found.others, others), (found.own, own)]
        asked += [(found.fresh, text_of(4 * number + 2, rng)), (found.fresh_again, text_of(4 * number + 3, rng))]
        rng.shuffle(asked)
        for times, text in asked:
            answer = await ask(asker, text)
            assert answer.ok or (answer.status == 200 and answer.done), str(answer)
            times.append(answer.ttft)
            found.headers.add(visible_headers(answer))
            if times is found.others:
                found.others_cached_tokens += cached_tokens(answer)
                found.told_others += stage_times(answer)
            elif times is found.fresh:
                found.fresh_cached_tokens += cached_tokens(answer)
                found.told_fresh += stage_times(answer)
    return found


def stage_times(answer: Answer) -> list[float]:
    """What the head tells of the work on the prompt; empty where it tells nothing."""
    stages = dict(part.strip().split(";dur=") for part in answer.fields.get("server-timing", "").split(",") if part)
    return [float(stages["tokenise"])] if "tokenise" in stages else []


def visible_headers(answer: Answer) -> tuple[tuple[str, str], ...]:
    """Names, and values where they are not each request's own."""
    return tuple(
        (name, "" if name in HEADERS_THAT_DIFFER or "remaining" in name or "reset" in name or "ms" in name else value)
        for name, value in sorted(answer.fields.items())
    )


def cached_tokens(answer: Answer) -> int:
    """What the usage says of the cache; 0 where there is none."""
    for line in answer.body.splitlines():
        if b'"cached_tokens"' in line:
            told = json.loads(line.removeprefix(b"data: "))["usage"]["prompt_tokens_details"]
            return int((told or {}).get("cached_tokens") or 0)
    return 0


async def ask_for_one_token(client: Client, text: str) -> Answer:
    """A stream of one token, with its usage."""
    return await client.ask(
        stream=True, text=text, nonce=new_nonce(), max_tokens=1, temperature=0, stream_options={"include_usage": True}
    )


async def ask_real(client: Client, text: str) -> Answer:
    """The same for a worker that takes no unknown fields; pauses, so that no work overlaps."""
    message = {"role": "user", "content": text}
    body = {"model": "smollm2", "messages": [message], "max_tokens": 1, "temperature": 0, "stream": True}
    answer = await client.ask(
        stream=True, body=json.dumps({**body, "stream_options": {"include_usage": True}}).encode()
    )
    await asyncio.sleep(0.002)
    return answer


def real(samples: int) -> Samples:
    """Through a gateway and the bundled worker on the CPU."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="homing-isolation-")))
        served = stack.enter_context(worker(directory, "--max-model-len", "512"))
        salt = directory / "salt"
        salt.write_text(random.SystemRandom().randbytes(32).hex())
        config = {
            "salt_secrets": {"k1": f"file:{salt}"},
            "models": {"smollm2": {"backends": {"static": [served.url]}}},
            "tenants": {name: merged(tenant_of(key), {"models": ["smollm2"]}) for name, key in KEYS.items()},
            "prewarm": {"enabled": False},
        }
        process = stack.enter_context(gateway(directory, config))
        port = int(process.url.rpartition(":")[2])
        return asyncio.run(_warm_and_sample(port, samples))


async def _warm_and_sample(port: int, samples: int) -> Samples:
    victim, asker = Client(port, "alpha"), Client(port, "beta")
    await sample(victim, asker, ask_real, 5, seed=2)
    return await sample(victim, asker, ask_real, samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=250, help="of each kind")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    found = real(options.samples)
    print(("ok    " if found.met else "MISS  ") + found.told())
    if options.json:
        figures = {"cross_p": found.cross_p, "own_p": found.own_p, "samples": len(found.fresh), "met": found.met}
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(0 if found.met else 1)


if __name__ == "__main__":
    main()
