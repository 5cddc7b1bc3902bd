"""What tests of the worker's core are built from: small engines, and a runner whose K/V slots can be read back."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence as Items
from hashlib import sha256
from zlib import crc32

from backends.accounts import FinishedRequest
from backends.answer import Answer
from backends.block_pool import BlockPool
from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.hashing import BlockHasher
from backends.prefix_cache import PrefixCache
from backends.sequence import Sequence
from backends.types import (
    Batch,
    Delta,
    GenerationRequest,
    Outcome,
    PromptScores,
    SampledToken,
    SamplingParams,
    ScheduledSequence,
)

VOCAB_SIZE = 97
NOTHING_WRITTEN = -1


class SlotRunner:
    """A runner whose next token depends on every slot that the block table points at.

    As in a real model, the value in a slot depends on the token and on all slots before it. So a wrong table, a block
    taken away too early, or a hit with foreign content changes the output; reading an unwritten slot fails.
    """

    vocab_size = VOCAB_SIZE

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, int, int]]] = []
        self.fail_next = False

    def allocate(self, num_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.slots = [[NOTHING_WRITTEN] * block_tokens for _ in range(num_blocks)]

    def execute(self, batch: Batch) -> list[Outcome]:
        self.batches.append([(item.sequence.request_id, item.start_token, item.token_count) for item in batch.items])
        for source, target in batch.copies:
            self.slots[target] = self.slots[source].copy()
        sampled = [self._compute(item) for item in batch.items]
        if self.fail_next:
            self.fail_next = False
            raise RuntimeError("the runner was told to fail")
        return sampled

    def read_blocks(self, block_ids: Items[int]) -> list[bytes]:
        return [array("q", self.slots[block_id]).tobytes() for block_id in block_ids]

    def write_blocks(self, block_ids: Items[int], payloads: Items[bytes]) -> None:
        for block_id, payload in zip(block_ids, payloads, strict=True):
            if len(payload) != 8 * self.block_tokens:
                raise ValueError("a payload of another length")
            self.slots[block_id] = array("q", bytes(payload)).tolist()

    kv_digest = "0" * 12

    def _compute(self, item: ScheduledSequence) -> Outcome:
        assert 0 not in item.block_ids, "block 0 is nobody's"
        assert item.token_count > 0, "without a token there are no logits"
        value = self._read(item.block_ids, item.start_token - 1) if item.start_token else 0
        for position, token in enumerate(item.token_ids, item.start_token):
            value = mixed(value, token)
            self.slots[item.block_ids[position // self.block_tokens]][position % self.block_tokens] = value
        token = None
        if item.samples:
            token = SampledToken(token_after([self._read(item.block_ids, p) for p in range(item.end_token)]))
        if not item.scored_rows:
            return token
        first = item.start_token + 1
        scored = item.sequence.token_ids[first : first + item.scored_rows]
        return PromptScores(tuple(SampledToken(token_id, -1.0) for token_id in scored), token)

    def _read(self, block_ids: Items[int], position: int) -> int:
        value = self.slots[block_ids[position // self.block_tokens]][position % self.block_tokens]
        assert value != NOTHING_WRITTEN, "read a slot before it was written"
        return value


def mixed(value: int, token: int) -> int:
    """The content of the slot after one of content `value`."""
    return (value * 6364136223846793005 + token + 1442695040888963407) % (1 << 63)


def token_after(values: list[int]) -> int:
    """What is sampled after slots of this content."""
    return crc32(array("Q", values).tobytes()) % VOCAB_SIZE


def expected_output(prompt: Items[int], tokens: int) -> list[int]:
    """What SlotRunner must answer, found without blocks, cache or engine."""
    values: list[int] = []
    for token in prompt:
        values.append(mixed(values[-1] if values else 0, token))
    output: list[int] = []
    while len(output) < tokens:
        output.append(token_after(values))
        values.append(mixed(values[-1], output[-1]))
    return output


class ManualClock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Notes:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.first: list[tuple[str, float]] = []
        self.next: list[tuple[str, float]] = []
        self.ends: list[FinishedRequest] = []
        self.steps: list[tuple[int, int]] = []

    def first_token(self, request_id: str, seconds: float) -> None:
        self.first.append((request_id, seconds))

    def next_token(self, request_id: str, seconds: float) -> None:
        self.next.append((request_id, seconds))

    def finished(self, request: FinishedRequest) -> None:
        self.ends.append(request)

    def stepped(self, scheduled_tokens: int, preempted: int) -> None:
        self.steps.append((scheduled_tokens, preempted))


def short_digest(bits: int):
    """SHA-256 cut to so few bits that different blocks collide all the time."""

    def digest(data: bytes) -> bytes:
        return bytes([sha256(data).digest()[0] % (1 << bits)])

    return digest


def build_config(**changes) -> EngineConfig:
    settings = {"num_blocks": 65, "max_model_tokens": 200, "block_tokens": 4, "max_sequences": 8}
    settings["max_batched_tokens"] = 64
    return EngineConfig(**{**settings, **changes})


def build_engine(runner=None, tokeniser=None, clock=None, bits: int | None = None, **changes) -> Engine:
    """An engine of `EngineConfig` changes; `observer`, `journal` and `offload` go to the engine itself."""
    listeners = {name: changes.pop(name) for name in ("observer", "journal", "offload") if name in changes}
    config = build_config(**changes)
    hasher = None if bits is None else BlockHasher(config.block_tokens, short_digest(bits))
    return Engine(config, runner or SlotRunner(), tokeniser, clock or ManualClock(), hasher=hasher, **listeners)


def build_request(request_id: str = "a", prompt: Items[int] = (1, 2, 3), **settings) -> GenerationRequest:
    where = {name: settings.pop(name) for name in tuple(settings) if name in GenerationRequest.__slots__}
    return GenerationRequest(request_id, prompt, SamplingParams(**{"max_tokens": 4, **settings}), **where)


def build_sequence(prompt: Items[int], request_id: str = "a", **where) -> Sequence:
    request = GenerationRequest(request_id, prompt, **where)
    answer = Answer(None, end_ids=frozenset(), stops=(), max_tokens=10_000)
    tokens = array("I", prompt)
    return Sequence(request, tokens, request_id=request_id, sampling=request.sampling, max_tokens=10_000, answer=answer)


def build_cache(
    num_blocks: int = 17, block_tokens: int = 4, bits: int | None = None, pool=None, **settings
) -> PrefixCache:
    """A cache over a new pool; `pool` are the pool's own settings."""
    hasher = BlockHasher(block_tokens, None if bits is None else short_digest(bits))
    return PrefixCache(BlockPool(num_blocks, **(pool or {})), hasher, **settings)


def build_prompt(tokens: int, seed: int = 0) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(VOCAB_SIZE) for _ in range(tokens)]


def build_computed(cache: PrefixCache, prompt: Items[int], request_id: str = "a", **where) -> Sequence:
    """A sequence that was admitted with what hits, and computed to the end of its prompt."""
    sequence = build_sequence(prompt, request_id, **where)
    assert cache.admit(sequence, cache.lookup(sequence), len(prompt), spare_blocks=0)
    sequence.computed_tokens = len(prompt)
    cache.commit(sequence)
    return sequence


def run_to_end(engine: Engine, most_steps: int = 10_000) -> list[Delta]:
    """Step until there is no work, checking the engine after each step; AssertionError when it never ends."""
    deltas: list[Delta] = []
    for _ in range(most_steps):
        if not engine.has_work:
            return deltas
        deltas += engine.step()
        engine.check_integrity()
    raise AssertionError(f"still at work after {most_steps} steps")


def outputs(deltas: list[Delta]) -> dict[str, list[int]]:
    """The tokens of each request's first answer."""
    found: dict[str, list[int]] = {}
    for delta in deltas:
        if delta.choice == 0:
            found.setdefault(delta.request_id, []).extend(delta.token_ids)
    return found


def answer(engine: Engine, request_id: str, prompt: Items[int], **settings) -> Delta:
    """Run one request alone to its end; its last delta."""
    engine.add(build_request(request_id, prompt, **settings))
    return run_to_end(engine)[-1]
