"""The consumer against a real worker's record: events alone tell what each prompt will hit."""

from __future__ import annotations

import json

import msgspec
import pytest

from backends.hashing import unpack
from router.tokenise import find_smollm2, load_tokeniser
from tests.backends.events.consumer import Follower, Picture
from tests.backends.events.test_wire import RECORDED, frames


@pytest.mark.parametrize("counts_copies", [False, True])
def test_the_consumer_predicts_what_vllm_reported(counts_copies):
    """24 prompts on a pool that evicts: every `reported_cached_tokens`, from the events before it.

    A prompt that does not hit all of its whole blocks computes and stores some, so exactly one batch follows it; the
    others fill no block with their three tokens of output and are followed by none.
    """
    path = find_smollm2()
    assert path is not None
    encode = load_tokeniser(path).tokeniser.encode
    picture = Picture(counts_copies=counts_copies)
    follower = Follower(picture)
    batches = iter(frames("kv_events_eviction.jsonl"))
    for line in (RECORDED / "eviction_requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        tokens = unpack(encode(request["prompt"])).tolist()
        assert picture.cached_tokens(tokens) == request["reported_cached_tokens"]
        if request["reported_cached_tokens"] < len(tokens) // 32 * 32:
            _, number, payload = next(batches)
            follower.hear(int.from_bytes(number, "big"), payload, None)
    assert next(batches, None) is None


def test_salts_are_told_apart():
    """The same chat under two salts: only the salted prompt finds the salted blocks."""
    picture = Picture()
    follower = Follower(picture)
    for _, number, payload in frames("kv_events_basic.jsonl")[:2]:
        follower.hear(int.from_bytes(number, "big"), payload, None)

    stored = [msgspec.msgpack.decode(message[2])[1][0] for message in frames("kv_events_basic.jsonl")[:2]]
    tokens = [*stored[0]["token_ids"], 0]
    assert stored[0]["token_ids"] == stored[1]["token_ids"]
    assert [picture.cached_tokens(tokens, salt) for salt in (None, "salt-a", "salt-b")] == [768, 768, 0]
