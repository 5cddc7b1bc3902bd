"""The disk tier against the world: killed while it writes, a full disk, a folder that cannot be written to."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.tiers.builders import build_chain, build_disk, loaded, payload_of, store_all, wait_until
from tests.backends.tiers.child import BLOCKS

ROOT = Path(__file__).parents[3]


def start_child(mode: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.backends.tiers.child", mode, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def run_child(mode: str, folder: Path) -> list[int]:
    out, _ = start_child(mode, folder).communicate(timeout=60)
    return [int(word) for word in out.split()]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own cannot be."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_process_killed_while_it_writes_leaves_no_broken_hit(tmp_path: Path):
    """kill -9 at random moments: every file that is there opens, and no half file stays."""
    blocks, generator = build_chain(BLOCKS), random.Random(0)
    for life in range(4):
        folder, written = tmp_path / str(life), generator.randrange(20, 50)
        child = start_child("kill", folder)
        wait_until(lambda folder=folder, written=written: len(list(folder.rglob("*.kv"))) >= written, seconds=30)
        child.send_signal(signal.SIGKILL)
        child.wait()
        disk = build_disk(folder, blocks=BLOCKS)
        there = [block for block in blocks if disk.holds(block.name)]
        assert len(there) >= 20
        assert all(loaded(disk, [block]) == [payload_of(block)] for block in there)
        assert disk.counters.broken == 0
        assert list(folder.rglob("*.tmp")) == []
        disk.check_integrity()


def build_folder(folder: Path) -> None:
    """Blocks 0, 1, 2 and a broken 4."""
    disk, blocks = build_disk(folder), build_chain(5)
    store_all(disk, [*blocks[:3], blocks[4]])
    path = disk.files.path(blocks[4].name)
    path.write_bytes(bytes(path.stat().st_size))


def test_a_full_disk_skips_stores_and_goes_on_loading(tmp_path: Path):
    """The write fails half-way: counted, nothing left of it, what is there stays readable."""
    build_folder(tmp_path)
    found, broken_loads, stores, failed_stores, broken, left = run_child("full", tmp_path)
    assert (found, broken_loads) == (3, 0)
    assert (stores, failed_stores, broken, left) == (0, 1, 1, 0)
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_folder_that_became_read_only_skips_stores_and_goes_on_loading(open_folder: Path):
    """Not even a broken file can be removed: it is forgotten, and a reset still forgets everything in this run."""
    build_folder(open_folder)
    before = sorted(path for path in open_folder.rglob("*") if path.is_file())
    for path in (open_folder, *open_folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        found, broken_loads, stores, failed_stores, broken, left = run_child("read-only", open_folder)
    finally:
        for path in (open_folder, *(path for path in open_folder.rglob("*") if path.is_dir())):
            path.chmod(0o755)
    assert (found, broken_loads) == (3, 0)
    assert (stores, failed_stores, broken, left) == (0, 1, 1, 0)
    assert sorted(path for path in open_folder.rglob("*") if path.is_file()) == before


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(tmp_path: Path):
    """That is a wrong option, not a fault of the disk."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        build_disk(tmp_path / "file" / "below")
