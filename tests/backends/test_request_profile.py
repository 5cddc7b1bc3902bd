"""The request profile: what is recorded of a load, and that nothing of its text is."""

from __future__ import annotations

import json
import random

import pytest

from backends.hashing import pack
from backends.request_profile import (
    HEADER,
    MOST_REQUESTS,
    Beginnings,
    ProfiledRequest,
    ProfileError,
    RequestRecorder,
    read_profile,
)
from tests.backends.core_builders import build_cache, build_computed, build_prompt, build_sequence

ROOT = b"no salt"
PROMPT = build_prompt(100)


def build_file(tmp_path, *lines: str):
    path = tmp_path / "profile.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def recorded(tmp_path, *prompts: list[int], root: bytes = ROOT) -> list[ProfiledRequest]:
    path = tmp_path / "recorded.jsonl"
    recorder = RequestRecorder(path)
    for prompt in prompts:
        recorder.record(root, pack(prompt))
    recorder.close()
    return read_profile(path)


def test_a_first_prompt_reuses_nothing_and_a_second_all_whole_grains(tmp_path):
    """Reuse is told in multiples of eight tokens."""
    assert recorded(tmp_path, PROMPT, PROMPT) == [ProfiledRequest(100, 0), ProfiledRequest(100, 96)]


@pytest.mark.parametrize("shared", [0, 7, 8, 40, 63])
def test_reuse_ends_where_prompts_part(tmp_path, shared):
    """The longest beginning that any earlier prompt had, rounded down."""
    other = PROMPT[:shared] + [token + 1 for token in PROMPT[shared:]]
    assert recorded(tmp_path, PROMPT, other)[1] == ProfiledRequest(100, shared // 8 * 8)


def test_the_best_of_several_earlier_prompts_counts(tmp_path):
    """Whichever shares most."""
    prompts = [PROMPT[:16] + [7] * 50, PROMPT[:64] + [9] * 50, PROMPT]
    assert recorded(tmp_path, *prompts)[2] == ProfiledRequest(100, 64)


def test_another_salt_shares_nothing():
    """Tenants with different salts cannot hit each other's blocks."""
    beginnings = Beginnings()
    assert beginnings.add(b"one", pack(PROMPT)) == 0
    assert beginnings.add(b"two", pack(PROMPT)) == 0
    assert beginnings.add(b"two", pack(PROMPT)) == 96


def test_what_is_remembered_is_bounded_and_the_longest_unused_goes():
    """A hundred prompts that come once, and one that comes always: it is remembered, among no more than ten grains."""
    beginnings = Beginnings(most=10)
    generator = random.Random(5)
    for _ in range(100):
        beginnings.add(ROOT, pack(PROMPT[:16]))
        beginnings.add(ROOT, pack(generator.randrange(1000) for _ in range(16)))
        assert len(beginnings._seen) <= 10
    assert beginnings.add(ROOT, pack(PROMPT[:16])) == 16


def test_the_file_holds_lengths_only(tmp_path):
    """No token, no hash of one, no salt."""
    path = tmp_path / "profile.jsonl"
    recorder = RequestRecorder(path)
    recorder.record(b"secret salt", pack([424242] * 20))
    recorder.close()
    header, line = path.read_text().splitlines()
    assert json.loads(header) == HEADER
    assert json.loads(line) == {"prompt_tokens": 20, "reused_tokens": 0}


def test_lines_are_there_while_the_worker_runs(tmp_path):
    """A worker that is killed leaves what it recorded."""
    path = tmp_path / "profile.jsonl"
    recorder = RequestRecorder(path)
    recorder.record(ROOT, pack(PROMPT))
    assert len(read_profile(path)) == 1
    recorder.close()


def test_a_record_ends_when_it_is_complete(tmp_path, monkeypatch):
    """The file has a bound."""
    monkeypatch.setattr("backends.request_profile.MOST_REQUESTS", 3)
    assert len(recorded(tmp_path, *[PROMPT] * 5)) == 3


def test_a_full_disk_ends_the_record_and_nothing_else(tmp_path, caplog):
    """Serving goes on; one line says so."""
    recorder = RequestRecorder(tmp_path / "profile.jsonl")

    class Full:
        def write(self, text):
            raise OSError("No space left on device")

    recorder._file.close()
    recorder._file = Full()
    for _ in range(3):
        recorder.record(ROOT, pack(PROMPT))
    assert [record.message for record in caplog.records] == ["The request profile ends here: No space left on device"]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "has no requests: record some with --record-request-profile"),
        ([json.dumps(HEADER)], "has no requests"),
        (["text"], "line 1: no JSON"),
        (['{"prompt_tokens": 1, "reused_tokens": 0}'], "line 1: no request profile of this version"),
        ([json.dumps(HEADER), "[1, 2]"], "line 2: not exactly the fields prompt_tokens, reused_tokens"),
        ([json.dumps(HEADER), '{"prompt_tokens": 1}'], "line 2: not exactly the fields"),
        ([json.dumps(HEADER), '{"prompt_tokens": 1, "reused_tokens": 2}'], "line 2: lengths in tokens"),
        ([json.dumps(HEADER), '{"prompt_tokens": 1.5, "reused_tokens": 0}'], "line 2: lengths in tokens"),
        ([json.dumps(HEADER), '{"prompt_tokens": true, "reused_tokens": 0}'], "line 2: lengths in tokens"),
        ([json.dumps(HEADER), '{"prompt_tokens": -1, "reused_tokens": -1}'], "line 2: lengths in tokens"),
    ],
)
def test_a_file_that_is_no_profile_is_told_where_and_why(tmp_path, lines, complaint):
    """The file, the line, and what is wrong there."""
    with pytest.raises(ProfileError, match=complaint):
        read_profile(build_file(tmp_path, *lines))


def test_a_file_without_end_is_refused(tmp_path):
    """Longer than any record can be."""
    line = json.dumps(ProfiledRequest(8, 0)._asdict())
    path = build_file(tmp_path, json.dumps(HEADER), *[line] * (MOST_REQUESTS + 1))
    with pytest.raises(ProfileError, match="longer than any recorded profile"):
        read_profile(path)


def test_the_cache_records_first_admissions_only(tmp_path):
    """Neither one after a preemption, nor one that reads no cache, is news about the load."""
    path, cache = tmp_path / "profile.jsonl", build_cache(num_blocks=40)
    cache.profile = RequestRecorder(path)
    first = build_computed(cache, PROMPT)
    cache.release(first)
    assert cache.admit(first, cache.lookup(first), len(PROMPT), spare_blocks=0)
    cache.release(first)
    second = build_sequence([*PROMPT[:50], 1, 2, 3], "b")
    assert cache.admit(second, cache.lookup(second), 53, spare_blocks=0)
    cache.profile.close()
    assert read_profile(path) == [ProfiledRequest(100, 0), ProfiledRequest(53, 48)]
