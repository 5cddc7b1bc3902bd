"""Events as bytes: golden frames of ours, and the shape of those recorded from vLLM 0.32."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.events.wire import (
    Cleared,
    Encoding,
    Removed,
    Stored,
    encode_batch,
    published_frames,
    replay_frames,
)
from tests.backends.events.consumer import read_event

DATA = Path(__file__).parents[2] / "data"
RECORDED = DATA / "fixtures" / "vllm-0.32"
GOLDEN = json.loads((DATA / "golden" / "kv_events.json").read_text())
TOPIC = b"kv@worker-0@smollm2"


def build_events(whole: bool = False) -> list[Any]:
    """One event of each kind: a salted chain of two blocks, its continuation on another medium, a removal, the end."""

    def name(number: int) -> int | bytes:
        return number.to_bytes(32, "big") if whole else number

    return [
        Stored([name((1 << 64) - 1), name(8)], None, [1, 2, 3, 70_000], 2, None, [["salt-a"], None]),
        Stored([name(9)], name(8), [5, 6], 2, "lora", [["lora"]], "CPU"),
        Removed([name(8), name(9)]),
        Cleared(),
    ]


def frames(name: str) -> list[list[bytes]]:
    """The messages of a recording."""
    lines = (RECORDED / name).read_text().splitlines()
    return [[base64.b64decode(frame) for frame in json.loads(line)["frames_b64"]] for line in lines]


def shape(value: Any) -> Any:
    """A decoded value with its map keys in order, its lists cut to one item of each shape, its leaves as types."""
    if isinstance(value, dict):
        return [(key, value[key] if key == "type" else shape(value[key])) for key in value]
    if isinstance(value, list):
        shapes: list[Any] = []
        for item in map(shape, value):
            if item not in shapes:
                shapes.append(item)
        return sorted(shapes, key=repr)
    return type(value).__name__


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("whole", [False, True])
def test_the_bytes_are_frozen(encoding, whole):
    """A change of these bytes is a change of the wire: both encodings, u64 and whole hashes."""
    payload = encode_batch(1.5, build_events(whole), encoding)
    assert payload.hex() == GOLDEN[f"{encoding.value}, {'whole' if whole else 'u64'} hashes"]


@pytest.mark.parametrize("with_topic", [False, True])
def test_the_replay_frames_are_frozen(with_topic):
    """Both framings, and both ends."""
    told = [replay_frames(TOPIC, 7, b"payload", with_topic=with_topic)]
    told.append(replay_frames(TOPIC, None, b"", with_topic=with_topic))
    expected = GOLDEN["replay, vLLM 0.26 and later" if with_topic else "replay, vLLM 0.25 and earlier"]
    assert [[frame.hex() for frame in message] for message in told] == expected


def test_the_published_frames_are_frozen():
    """Topic, number as eight big-endian bytes, payload."""
    assert [frame.hex() for frame in published_frames(TOPIC, 258, b"payload")] == GOLDEN["published"]


def test_both_encodings_say_the_same():
    """A map's fields are an array's positions."""
    maps, arrays = (
        msgspec.msgpack.decode(encode_batch(1.5, build_events(), encoding))
        for encoding in (Encoding.MAP, Encoding.ARRAY)
    )
    assert maps[0] == arrays[0] == 1.5
    assert maps[2] == arrays[2] == 0
    for one, other in zip(maps[1], arrays[1], strict=True):
        assert [one["type"], *(value for key, value in one.items() if key != "type")] == other
        assert read_event(other)[1].items() <= read_event(one)[1].items()


def test_the_array_is_that_of_older_versions():
    """Decoded as in vLLM 0.20 but for the last field, which 0.21 added."""
    event = Stored([7], None, [1, 2], 2, None, [None])
    batch = msgspec.msgpack.decode(encode_batch(1.0, [event, Cleared()], Encoding.ARRAY))
    stored = ["BlockStored", [7], None, [1, 2], 2, None, "GPU", None, [None], 0, "full_attention"]
    assert batch == [1.0, [stored, ["AllBlocksCleared"]], 0]


@pytest.mark.parametrize("name", ["kv_events_basic.jsonl", "kv_events_eviction.jsonl"])
def test_our_events_have_the_shape_of_recorded_ones(name):
    """Same frames, same names in the same order, same types, event by event: vLLM 0.32's own bytes, encoded anew."""
    for topic, number, payload in frames(name):
        theirs = msgspec.msgpack.decode(payload)
        ours = encode_batch(theirs[0], [again(event) for event in theirs[1]], Encoding.MAP)
        assert ours == payload
        assert published_frames(topic, int.from_bytes(number, "big"), ours) == [topic, number, payload]


def again(event: dict[str, Any]) -> Any:
    """A recorded event as one of ours."""
    if event["type"] == "BlockRemoved":
        return Removed(event["block_hashes"], event["medium"])
    return Stored(
        event["block_hashes"],
        event["parent_block_hash"],
        event["token_ids"],
        event["block_size"],
        event["lora_name"],
        event["extra_keys"],
        event["medium"],
    )


def test_our_replay_has_the_frames_of_the_recorded_one():
    """Every answer and the end mark of vLLM 0.32, byte for byte."""
    *answers, end = frames("kv_replay_from_0.jsonl")
    for empty, topic, number, payload in answers:
        ours = replay_frames(topic, int.from_bytes(number, "big"), payload, with_topic=True)
        assert ours == [empty, topic, number, payload]
    assert replay_frames(TOPIC, None, b"", with_topic=True) == end


def test_events_we_made_ourselves_have_the_recorded_shape():
    """Not only re-encoded ones: what the journal makes of blocks looks like what vLLM made of its own."""
    recorded = [event for message in frames("kv_events_basic.jsonl") for event in msgspec.msgpack.decode(message[2])[1]]
    theirs = {repr(shape(event)) for event in recorded}
    stored = Stored([7, 8], None, [1, 2, 3, 4], 2, None, [["salt-a"], None])
    after = Stored([7, 8], 6, [1, 2, 3, 4], 2, None, [None, None])
    batch = msgspec.msgpack.decode(encode_batch(1.0, [stored, after, Removed([7])], Encoding.MAP))
    assert {repr(shape(event)) for event in batch[1]} <= theirs
