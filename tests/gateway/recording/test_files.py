"""Files of a recording: owner only, whole after each write, bounded in number, never somebody else's."""

from __future__ import annotations

import gzip
import os
import resource
import signal
from pathlib import Path

import pytest

from gateway.recording.files import RecordFile, is_recording
from tests.gateway.recording.recording_builders import build_served, write_recording


def write_new(path: Path, data: bytes, files: int = 3) -> RecordFile:
    file = RecordFile(path, files)
    file.write(data)
    file.close()
    return file


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_writes_follow_each_other_and_only_the_owner_reads_them(tmp_path, name):
    """Packed where the name says so; every write can be read at once."""
    file = RecordFile(tmp_path / name, 3)
    file.write(b"one\n")
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "rb") as read:
        assert read.read() == b"one\n"
    file.write(b"two\n")
    file.close()
    with opened(tmp_path / name, "rb") as read:
        assert read.read() == b"one\ntwo\n"
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / name).stat().st_size == file.written_bytes


def test_older_files_move_on_and_the_oldest_goes(tmp_path):
    """PATH, PATH.1, PATH.2."""
    path = tmp_path / "r.jsonl"
    for number in range(5):
        write_new(path, b"%d" % number)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "r.jsonl": "4", "r.jsonl.1": "3", "r.jsonl.2": "2",
    }  # fmt: skip


def test_trying_again_moves_nothing_twice(tmp_path, monkeypatch):
    """No room for a new file, and another try every half second: older recordings stay."""
    path = tmp_path / "r.jsonl"
    for number in range(3):
        write_new(path, b"%d" % number)

    def no_room(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", no_room)
        for _ in range(5):
            with pytest.raises(OSError, match="No space"):
                RecordFile(path, 3)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"r.jsonl.1": "2", "r.jsonl.2": "1"}


def test_one_file_is_written_anew(tmp_path):
    """`files: 1` keeps nothing older."""
    path = tmp_path / "r.jsonl"
    write_new(path, b"old", files=1)
    write_new(path, b"new", files=1)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["new"]


def test_a_link_is_moved_away_and_never_followed(tmp_path):
    """Wherever it leads, if anywhere."""
    path, target = tmp_path / "r.jsonl", tmp_path / "elsewhere"
    path.symlink_to(target)
    write_new(path, b"ours")
    assert not target.exists()
    assert path.read_text() == "ours"
    assert (tmp_path / "r.jsonl.1").is_symlink()


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    """Half a line would spoil all that follow."""
    path = tmp_path / "r.jsonl"
    file = RecordFile(path, 3)
    file.write(b"one\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
        with pytest.raises(OSError, match="too large"):
            file.write(b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"one\n"
    file.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    file.close()


def test_a_recording_is_known_by_its_first_line(tmp_path):
    """Packed or not; an empty file may become one, nothing else may."""
    recording = write_recording(tmp_path / "r.jsonl", [build_served([], [b"k" * 16])])
    assert is_recording(recording)
    packed = tmp_path / "r.gz"
    packed.write_bytes(gzip.compress(recording.read_bytes()))
    assert is_recording(packed)
    empty = tmp_path / "empty"
    empty.touch()
    assert is_recording(empty)
    for number, data in enumerate((b"precious\n", b"{}\n", b"[1]\n", b"\x1f\x8bnot", packed.read_bytes()[:30])):
        other = tmp_path / str(number)
        other.write_bytes(data)
        assert not is_recording(other), data
    assert not is_recording(Path(os.devnull))
    assert not is_recording(tmp_path)
