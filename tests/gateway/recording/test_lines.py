"""Lines of a recording: they read back as what was served, and tell nothing that can be joined with anything else."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.recording.lines import LineWriter, Served
from router.core import Prompt
from router.replay.trace_lines import read_lines
from router.replay.trace_recorded import load_recording
from router.replay.traces import load_trace
from tests.gateway.recording.recording_builders import (
    SALT,
    build_chain,
    build_served,
    recorded_trace,
    write_recording,
)
from tests.router.replay.trace_builders import SYNTHETIC, published_trace


def told(writer: LineWriter, served: Served) -> dict:
    return json.loads(writer.line(served))


def hashes(served: Served, salt: bytes = SALT) -> list[str]:
    """The names that a file of its own gives to a request's blocks."""
    return list(told(LineWriter(salt, 1.0), served)["exact"])


def test_a_line_says_times_lengths_and_who_served_it():
    """And nothing of the tenant, the adapter or the key."""
    line = told(LineWriter(SALT, 1.0), build_served(build_chain(1, 2), asked_model="lora", at_seconds=1.23456789))
    blocks = line.pop("exact")
    assert line == {
        "at": 1.2346, "model": "m", "worker": "w1", "code": 200, "tokens": 133, "output": 7, "ttft": 0.25,
        "total": 1.5, "cached": 64, "block_tokens": 64, "after": "",
    }  # fmt: skip
    assert [len(block) for block in blocks] == [16, 16]


def test_what_is_not_known_is_null():
    """A worker that reports no usage, an answer that was not streamed."""
    line = told(LineWriter(SALT, 1.0), build_served([], [b"k" * 16], output_tokens=None, ttft_seconds=None))
    assert (line["output"], line["ttft"], line["exact"]) == (None, None, [])


def test_a_turn_costs_what_is_new_in_it():
    """The beginning is named by its last block."""
    writer = LineWriter(SALT, 1.0)
    first = told(writer, build_served(build_chain(1, 2, 3)))
    second = told(writer, build_served(build_chain(1, 2, 3, 4)))
    again = told(writer, build_served(build_chain(1, 2)))
    assert (second["after"], len(second["exact"])) == (first["exact"][-1], 1)
    assert (again["after"], again["exact"]) == (first["exact"][1], [])


def test_the_key_is_listed_only_where_it_differs():
    """Mostly it is the exact chain and a last partial block."""
    writer, blocks = LineWriter(SALT, 1.0), build_chain(1, 2)
    assert "key" not in told(writer, build_served(blocks, list(blocks)))
    line = told(writer, build_served(blocks, [*blocks, b"tail" * 4]))
    assert (line["key_after"], len(line["key"])) == (line["after"], 1)
    folded = told(writer, build_served(blocks, build_chain(7, 8)))
    assert (folded["key_after"], len(folded["key"])) == ("", 2)


def test_equal_prompts_have_nothing_in_common_over_files_tenants_and_models():
    """Not one block; within a tenant's model and file all of them."""
    blocks = build_chain(1, 2, 3)
    own = hashes(build_served(blocks))
    assert own == hashes(build_served(blocks))
    others = [
        hashes(build_served(blocks), salt=os.urandom(32)),
        hashes(build_served(blocks, tenant="other")),
        hashes(build_served(blocks, asked_model="lora")),
        # Names that look the same when they are put together.
        hashes(build_served(blocks, tenant="acmem", asked_model="")),
    ]
    assert len({*own, *(block for each in others for block in each)}) == 15


def test_no_raw_hash_stands_in_a_line_and_none_can_be_made_without_the_salt():
    """Not as it is on the wire, nor in a part, nor hashed without a key."""
    blocks = build_chain(1, 2, 3)
    line = LineWriter(SALT, 1.0).line(build_served(blocks, [*blocks, b"tail" * 4])).decode()
    for raw in (*blocks, b"tail" * 4):
        assert raw.hex() not in line
        assert raw[:8].hex() not in line
        assert blake2b(raw, digest_size=8).hexdigest() not in line
    assert SALT.hex() not in line


def test_a_block_that_is_forgotten_is_listed_again(tmp_path: Path):
    """A bound on what is remembered makes lines longer, not wrong."""
    served = [build_served(build_chain(*range(number % 7, number % 7 + 5))) for number in range(40)]
    writer = LineWriter(SALT, 1.0, remembered_blocks=6)
    path = tmp_path / "r.jsonl"
    path.write_bytes(writer.head(0.0) + b"".join(map(writer.line, served)))
    assert len(writer._young) + len(writer._old) <= 2 * (3 + 6)
    read = load_recording(path).trace.requests
    assert [[request.prompt.exact_blocks for request in read].index(one.prompt.exact_blocks) for one in read] == [
        number % 7 for number in range(40)
    ]


def test_after_lines_were_lost_nothing_refers_to_them(tmp_path: Path):
    """Else a full disk would make the rest of the file useless."""
    writer = LineWriter(SALT, 1.0)
    lost = writer.line(build_served(build_chain(1, 2, 3)))
    writer.forget()
    kept = writer.line(build_served(build_chain(1, 2, 3, 4)))
    path = tmp_path / "r.jsonl"
    path.write_bytes(writer.head(0.0) + kept)
    assert len(lost) < len(kept)
    assert len(load_trace(path).requests[0].prompt.exact_blocks) == 4


chains = st.lists(st.integers(0, 3), max_size=6).map(tuple)


@given(st.lists(st.tuples(chains, chains, st.sampled_from(["acme", "other"])), min_size=1, max_size=12))
def test_any_chains_read_back_as_equal_where_they_were_equal(tmp_path_factory, asked):
    """Exact and key chains over two tenants: the same beginnings, the same lengths."""
    served = [
        build_served(
            build_chain(*exact), [*build_chain(*key), bytes([number]) * 16], tenant=tenant, at_seconds=float(number)
        )
        for number, (exact, key, tenant) in enumerate(asked)
    ]
    read = load_recording(write_recording(tmp_path_factory.mktemp("r") / "r.jsonl", served)).trace.requests
    names: dict[tuple[str, bytes], bytes] = {}
    for was, (_, _, tenant), now in zip(served, asked, read, strict=True):
        for before, after in ((was.prompt.exact_blocks, now.prompt.exact_blocks),
                              (was.prompt.key_blocks, now.prompt.key_blocks)):  # fmt: skip
            assert len(before) == len(after)
            for raw, name in zip(before, after):
                assert names.setdefault((tenant, raw), name) is name
    assert len(set(names.values())) == len(names)


def test_a_published_trace_goes_through_unharmed(tmp_path: Path):
    """Recorded and read, the synthetic trace has its equal beginnings, lengths and times."""
    trace = published_trace(SYNTHETIC)
    recording = load_recording(recorded_trace(trace, tmp_path / "r.jsonl"))
    names: dict[bytes, bytes] = {}
    for was, now in zip(trace.requests, recording.trace.requests, strict=True):
        assert abs(was.at_seconds - trace.requests[0].at_seconds - now.at_seconds) < 2e-4
        assert (was.prompt.tokens, was.output_tokens) == (now.prompt.tokens, now.output_tokens)
        assert len(was.prompt.exact_blocks) == len(now.prompt.exact_blocks)
        assert now.prompt.key_blocks is now.prompt.exact_blocks
        for raw, name in zip(was.prompt.exact_blocks, now.prompt.exact_blocks):
            assert names.setdefault(raw, name) is name
    assert len(set(names.values())) == len(names)
    assert (recording.model, recording.sample, recording.at_seconds) == ("m", 1.0, 1e9)


def test_the_head_tells_the_version_and_the_sample(tmp_path: Path):
    """What a replay needs to know of the whole file."""
    head = next(read_lines(write_recording(tmp_path / "r.jsonl", [build_served([], [b"k" * 16])], sample=0.25)))
    assert head.row == {"homing_recording": 1, "at": 1000.0, "sample": 0.25}


def test_a_prompt_without_a_full_block_still_has_its_key(tmp_path: Path):
    """Short prompts have a home, too."""
    served = build_served(prompt=Prompt(9, 64, [], [b"k" * 16]), key=b"k" * 16, key_blocks=[b"k" * 16])
    prompt = load_trace(write_recording(tmp_path / "r.jsonl", [served])).requests[0].prompt
    assert (prompt.exact_blocks, len(prompt.key_blocks)) == ([], 1)
