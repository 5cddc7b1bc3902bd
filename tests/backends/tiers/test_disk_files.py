"""The disk tier's files: written whole or not at all, found again, and nobody else's touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.tiers.disk_files import BlockFiles
from tests.backends.tiers.builders import DIGEST, build_chain


def build_files(root: Path, model: str = "smollm2") -> BlockFiles:
    files = BlockFiles(root, model, DIGEST)
    files.folder.mkdir(parents=True)
    return files


def test_where_a_block_is(tmp_path: Path):
    """vLLM's layout: model and config, three digits, two digits, the whole name."""
    name = bytes.fromhex("abcde" + "0" * 59)
    path = build_files(tmp_path).path(name)
    assert path.relative_to(tmp_path).as_posix() == f"smollm2_{DIGEST}/abc/de/abcde{'0' * 59}.kv"


@pytest.mark.parametrize("model", ["../../etc/passwd", "a/b", "ü b", ".hidden", "", "..", "a\0b"])
def test_no_model_name_leads_out_of_the_root(tmp_path: Path, model: str):
    """Whatever does not fit into a file name becomes a dash."""
    folder = BlockFiles(tmp_path, model, DIGEST).folder
    assert folder.parent == tmp_path
    assert folder.resolve().parent == tmp_path.resolve()
    assert not folder.name.startswith(".")


def test_a_file_is_written_in_parts_and_read_whole(tmp_path: Path):
    """And a use is noted in its time."""
    files, name = build_files(tmp_path), build_chain(1)[0].name
    files.write(name, b"head", memoryview(b"body"))
    assert files.read(name, 8) == b"headbody"
    os.utime(files.path(name), (1, 1))
    files.used(name)
    (found,) = files.scan()
    assert (found.name, found.size_bytes) == (name, 8)
    assert found.used_seconds > 1


def test_a_file_that_grew_is_not_read_without_end(tmp_path: Path):
    """One byte too many tells enough."""
    files, name = build_files(tmp_path), build_chain(1)[0].name
    files.write(name, b"x" * 1000)
    assert len(files.read(name, 10)) == 11


def test_a_write_that_fails_leaves_nothing(tmp_path: Path):
    """Neither a file nor a temporary one."""
    files, name = build_files(tmp_path), build_chain(1)[0].name
    with pytest.raises(TypeError):
        files.write(name, b"head", "no bytes")  # type: ignore[arg-type]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_temporary_files_of_dead_processes_are_swept(tmp_path: Path):
    """Also our own number: it was another process before. What somebody is writing now stays."""
    files, name = build_files(tmp_path), build_chain(1)[0].name
    folder = files.path(name).parent
    folder.mkdir(parents=True)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process_id in (dead.pid, os.getpid(), os.getppid()):
        (folder / f"{name.hex()}.{process_id}.tmp").write_bytes(b"half")
    assert list(files.scan()) == []
    assert [path.name for path in folder.iterdir()] == [f"{name.hex()}.{os.getppid()}.tmp"]


def test_what_is_not_ours_is_left_alone(tmp_path: Path):
    """Other names, folders in place of files, links."""
    files, name = build_files(tmp_path), build_chain(1)[0].name
    files.write(name, b"x")
    folder = files.path(name).parent
    (folder / "notes.txt").write_text("mine")
    (folder / f"{'0' * 64}.kv").mkdir()
    (folder / f"{'1' * 64}.kv").symlink_to(files.path(name))
    (files.folder / "stray.kv").write_bytes(b"")
    assert [found.name for found in files.scan()] == [name]
    assert (folder / "notes.txt").exists()


def test_what_goes_while_it_is_listed_is_not_there(tmp_path: Path):
    """Another worker on the same folder makes room; that must not keep this one from starting."""
    files = build_files(tmp_path)
    names = [bytes(31) + bytes([number]) for number in range(3)]
    for name in names:
        files.write(name, b"x")
    listing = files.scan()
    there = next(listing).name
    for name in names:
        files.remove(name)
    assert list(listing) == []
    assert there in names


def test_nobody_else_may_look_into_the_folder(tmp_path: Path):
    """K/V hold what prompts said; also after a reset."""
    files, name = BlockFiles(tmp_path / "deep" / "root", "smollm2", DIGEST), build_chain(1)[0].name
    for _ in range(2):
        files.write(name, b"x")
        assert files.folder.stat().st_mode & 0o077 == 0
        files.set_aside()


def test_setting_aside_empties_the_folder_at_once(tmp_path: Path):
    """Deleting comes later, by this process or the next one."""
    files, name = build_files(tmp_path), build_chain(1)[0].name
    files.write(name, b"x")
    files.set_aside()
    assert list(files.scan()) == []
    files.write(name, b"new")
    BlockFiles(tmp_path, "smollm2", DIGEST).delete_set_aside()
    assert [found.size_bytes for found in files.scan()] == [3]
    assert [path.name for path in tmp_path.iterdir()] == [files.folder.name]


def test_setting_aside_nothing_is_nothing(tmp_path: Path):
    """No folder, no error."""
    BlockFiles(tmp_path, "smollm2", DIGEST).set_aside()
    assert list(tmp_path.iterdir()) == []
