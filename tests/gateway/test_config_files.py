"""Which files a configuration depends on, and when they have changed and come to rest."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gateway.config_files import MOST_RESTLESS_LOOKS, FileStamp, Rest, merged, referenced_files, stamp_of
from gateway.settings import Config
from tests.gateway.builders import build_config_data, key_line

A, B, C = ((FileStamp("f", "f", number),) for number in range(3))


def test_every_reference_to_a_file_is_found():
    """Wherever it stands, once, and without the end of a key; a digest and a variable are no files."""
    tenants = {
        "acme": {"keys": [key_line("k"), "file:/keys/acme expires=2026-12-31", "file:/keys/acme"]},
        "odd": {"keys": ["file:/keys/odd expires=never"]},
    }
    backend = {"url": "http://h:1", "api_key": "file:/keys/worker"}
    data = build_config_data(
        tenants=tenants,
        models={"m": {"backends": {"static": [backend]}, "tokenizer": "file:/models/m"}},
        salt_secrets={"k1": "file:/salt", "k2": "env:SALT"},
        revoked_keys="file:/revoked",
    )
    found = referenced_files(msgspec.convert(data, Config))
    assert sorted(map(str, found)) == [
        "/keys/acme", "/keys/odd expires=never", "/keys/worker", "/models/m", "/revoked", "/salt",
    ]  # fmt: skip


def test_a_stamp_changes_with_a_file(tmp_path: Path):
    """Written, replaced by another of the same size and time, gone; a path that cannot be one is just not there."""
    path = tmp_path / "f"
    stamps = [stamp_of((path,))]
    path.write_text("one")
    os.utime(path, ns=(5, 5))
    stamps.append(stamp_of((path,)))
    assert stamp_of((path,)) == stamps[-1]
    (tmp_path / "new").write_text("two")
    os.utime(tmp_path / "new", ns=(5, 5))
    os.replace(tmp_path / "new", path)
    stamps.append(stamp_of((path,)))
    path.write_text("longer")
    stamps.append(stamp_of((path,)))
    path.unlink()
    assert stamp_of((path,)) == stamps[0]
    assert len(set(stamps)) == 4
    assert stamp_of((Path("odd\0path"),))[0].inode is None


def test_a_stamp_changes_with_the_rights(tmp_path: Path):
    """A list that nobody could read is read when its owner has set that right, which leaves its time as it was."""
    path = tmp_path / "revoked"
    path.write_text("one")
    path.chmod(0o200)
    before = stamp_of((path,))
    path.chmod(0o640)
    assert stamp_of((path,)) != before


def test_a_stamp_sees_into_folders_and_through_links(tmp_path: Path):
    """A file that comes, and `..data` that points elsewhere."""
    for name in ("..one", "..two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(name)
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "key").symlink_to("..data/key")
    first = stamp_of((tmp_path, tmp_path / "key"))
    (tmp_path / "..new").symlink_to("..two")
    os.replace(tmp_path / "..new", tmp_path / "..data")
    second = stamp_of((tmp_path, tmp_path / "key"))
    assert first != second
    (tmp_path / "another").write_text("k")
    assert len(stamp_of((tmp_path,))) == 3


def test_files_are_read_when_they_rest():
    """Two looks in a row see the same, and it is not what was read."""
    rest = Rest(A)
    assert [rest.to_be_read(stamp) for stamp in (A, B, C, C, C, B, B, B)] == [
        False, False, False, True, False, False, True, False,
    ]  # fmt: skip


def test_files_that_come_back_are_not_read():
    """An editor's swap file, a write taken back."""
    rest = Rest(A)
    assert not any(rest.to_be_read(stamp) for stamp in (B, A, A, B, A))


def test_files_that_never_rest_are_read_all_the_same():
    """Somebody who writes all the time must not keep a revocation out."""
    rest = Rest(A)
    looks = [rest.to_be_read((FileStamp("f", "f", number),)) for number in range(1, 2 * MOST_RESTLESS_LOOKS + 1)]
    assert looks.count(True) == 2


def test_what_was_read_is_known_by_how_it_was_before():
    """A file that changed while it was read is read again; one that was not watched before is taken as it is."""
    before = (FileStamp("a", "a", 1), FileStamp("gone", "gone", 1))
    after = (FileStamp("a", "a", 2), FileStamp("new", "new", 5))
    assert merged(before, after) == (FileStamp("a", "a", 1), FileStamp("new", "new", 5))
