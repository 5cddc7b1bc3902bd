"""Both encodings, both kinds of hashes, every engine's fields, and whatever else may come in a payload."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.events.decode import BadBatch, Decoder
from router.cache_events import CPU, DISK, GPU, Cleared, Removed, Stored
from router.encoders import pack
from tests.gateway.events.followed import as_array, as_arrays, recorded

RECORDINGS = ("kv_events_basic.jsonl", "kv_events_eviction.jsonl", "kv_replay_from_0.jsonl")


def encode(*events: object, timestamp: object = 1.5, rest: tuple = (0,)) -> bytes:
    return msgspec.msgpack.encode([timestamp, list(events), *rest])


def decode(*events: object, **more: object) -> list:
    return list(Decoder().decode(encode(*events, **more)).events)


def build_event(**fields: object) -> dict:
    """A BlockStored of one block of two tokens, as a map."""
    return {"type": "BlockStored", "block_hashes": [7], "parent_block_hash": None, "token_ids": [1, 2],
            "block_size": 2, **fields}  # fmt: skip


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_vllm_recorded_reads_the_same_in_both_encodings(name):
    """Every batch of the recordings: maps as they came, arrays as an older version would have sent them."""
    for _, payload in recorded(name):
        batch = Decoder().decode(payload)
        assert batch.events
        assert batch.timestamp > 1e9
        assert Decoder().decode(as_arrays(payload)) == batch


def test_a_recorded_event_has_its_tokens_salt_and_parent():
    """The first batches of the recording with salts: a plain chat, and the same under a salt."""
    (plain,), (salted,) = (Decoder().decode(payload).events for _, payload in recorded("kv_events_basic.jsonl")[:2])
    assert (len(plain.block_hashes), len(plain.tokens), plain.block_tokens, plain.parent) == (24, 4 * 768, 32, None)
    assert plain.tokens == salted.tokens
    assert (plain.extra_keys[0], salted.extra_keys[0]) == (None, ["salt-a"])


def test_the_oldest_arrays_end_early():
    """vLLM 0.8.5: five fields after the name, no medium, and a batch of two elements."""
    events = decode(["BlockStored", [7], 6, [1, 2], 2, None], ["BlockRemoved", [7]], ["AllBlocksCleared"], rest=())
    assert events == [Stored([7], 6, pack([1, 2]), 2), Removed([7], GPU), Cleared()]


def test_hashes_may_be_numbers_of_either_sign_or_bytes():
    """u64 of vLLM, signed of SGLang, 32 raw bytes: opaque, and kept as they are."""
    for name in (2**64 - 1, -(2**63), b"\x01" * 32):
        (event,) = decode(build_event(block_hashes=[name], parent_block_hash=name))
        assert (event.block_hashes, event.parent) == ([name], name)


def test_fields_positions_and_kinds_that_are_not_known_are_passed_over():
    """A later version says more than we read."""
    long_array = [*as_array(build_event(group_idx=0, kv_cache_spec_kind="full_attention")), 5, "new", {"more": 1}]
    events = decode(build_event(session_id="s", ownership="x"), long_array, {"type": "BlockMoved"}, ["Else", 1])
    assert [type(event) for event in events] == [Stored, Stored]


def test_media_are_told_apart_and_foreign_ones_are_passed_over():
    """Memory of the GPU, of the host, disks; SGLang's EXTERNAL and remote blocks are not the worker's own."""
    names = (None, "GPU", "CPU", "CPU_PINNED", "STORAGE", "DISK", "EXTERNAL")
    assert [event.medium for event in decode(*[build_event(medium=name) for name in names])] == [
        GPU, GPU, CPU, CPU, DISK, DISK,
    ]  # fmt: skip
    assert decode(build_event(locality="REMOTE")) == []


def test_layers_that_keep_less_than_the_whole_are_passed_over():
    """A sliding window's group: its stores, and from then on its removals, in later batches too."""
    decoder = Decoder()
    window = build_event(group_idx=1, kv_cache_spec_kind="sliding_window")
    removed = {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU", "group_idx": 1}
    assert decoder.decode(encode(removed)).events == [Removed([7])]
    assert [len(decoder.decode(encode(*events)).events) for events in ((window,), (removed, build_event()))] == [0, 1]


def test_sglangs_salt_and_adapters_names():
    """SGLang gives the salt by name; an adapter without a name is nobody's that a request could ask for."""
    (salted,) = decode(build_event(cache_salt="s", lora_name="lora", session_id="x"))
    assert (salted.salt, salted.adapter) == ("s", "lora")
    (numbered,) = decode(build_event(lora_id=3))
    assert numbered.adapter == "\x003"


def test_a_tier_may_tell_hashes_without_tokens():
    """vLLM's offloading connector does."""
    (event,) = decode(build_event(token_ids=[], medium="CPU", block_size=48))
    assert event == Stored([7], None, b"", 48, (), None, None, CPU)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc1", b"\x93\x01", msgspec.msgpack.encode({"events": []}), msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, {}]), encode("text"), encode([]), encode(build_event(block_hashes=None)),
        encode(build_event(block_hashes=["x"])), encode(build_event(block_size=0)), encode(build_event(block_size="2")),
        encode(build_event(token_ids=[1])), encode(build_event(token_ids=[1, "2"])),
        encode(build_event(token_ids=[1, -2])), encode(build_event(token_ids="ab")),
        encode(build_event(parent_block_hash=[1])), encode(build_event(extra_keys=[None, None])),
        encode(build_event(extra_keys=["salt"])), encode({"type": "BlockRemoved"}),
    ],
)  # fmt: skip
def test_a_payload_that_is_no_batch_is_said_to_be_none(payload):
    """One kind of error, and it quotes nothing of what came."""
    with pytest.raises(BadBatch) as caught:
        Decoder().decode(payload)
    assert "salt" not in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(payload):
    """Anything is a batch or a BadBatch."""
    with suppress(BadBatch):
        Decoder().decode(payload)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(build_event(medium=1, lora_name=1, extra_keys=1, group_idx=1, locality=1))), VALUES)
def test_no_value_of_a_field_breaks_the_decoder(field, value):
    """Whatever stands where a field should be."""
    with suppress(BadBatch):
        Decoder().decode(encode(build_event(**{field: value})))
