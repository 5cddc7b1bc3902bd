"""The GGUF reader: what it reads of real and hand-made files, and what it says of broken ones."""

from __future__ import annotations

import struct
import time
from array import array
from pathlib import Path

import pytest

from router.gguf import GgufError, GgufFile, TensorInfo, is_gguf, read
from router.tokenise import find_smollm2
from tests.router.gguf_builder import ARRAY, STRING, build_gguf

PAIRS = {
    "general.architecture": (STRING, "llama"),
    "general.alignment": (4, 64),
    "a.byte": (0, 200),
    "a.small": (1, -5),
    "a.real": (6, 0.5),
    "a.double": (12, 0.1),
    "a.long": (11, -(2**40)),
    "a.flag": (7, True),
    "a.words": (ARRAY, (STRING, ["one", "zwei", "三"])),
    "a.numbers": (ARRAY, (5, [1, -2, 3])),
    "a.flags": (ARRAY, (7, [True, False])),
    "a.nested": (ARRAY, (ARRAY, [(4, [1, 2]), (STRING, ["x"])])),
    "a.empty": (ARRAY, (4, [])),
}
TENSORS = {"grid": ([2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), "line": ([4], [7.0, 8.0, 9.0, 10.0])}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A hand-made file with every kind of value."""
    path = tmp_path / "small.gguf"
    path.write_bytes(build_gguf(PAIRS, TENSORS, alignment=64))
    return path


def test_every_kind_of_value_is_read(small: Path) -> None:
    """Scalars, strings and arrays come back as Python values."""
    with GgufFile.open(small) as file:
        kept = dict(file.metadata)
    assert kept["general.architecture"] == "llama"
    assert (kept["a.byte"], kept["a.small"], kept["a.real"], kept["a.double"]) == (200, -5, 0.5, 0.1)
    assert (kept["a.long"], kept["a.flag"]) == (-(2**40), True)
    assert kept["a.words"] == ["one", "zwei", "三"]
    assert kept["a.numbers"] == array("i", [1, -2, 3])
    assert kept["a.flags"] == [True, False]
    assert kept["a.nested"] == [array("I", [1, 2]), ["x"]]
    assert len(kept["a.empty"]) == 0


def test_a_tensor_is_found_at_its_absolute_offset(small: Path) -> None:
    """Shapes have the outermost dimension first, and the offset points at the data."""
    with read(small) as file:
        grid, line = file.tensors["grid"], file.tensors["line"]
    assert grid.shape == (2, 3)
    assert grid.offset_bytes % 64 == line.offset_bytes % 64 == 0
    assert grid.size_bytes == 24
    raw = small.read_bytes()
    assert struct.unpack_from("<6f", raw, grid.offset_bytes) == (1, 2, 3, 4, 5, 6)
    assert struct.unpack_from("<4f", raw, line.offset_bytes) == (7, 8, 9, 10)


def test_version_2_is_read_like_version_3(tmp_path: Path) -> None:
    """The two versions differ in byte order marks only."""
    path = tmp_path / "two.gguf"
    path.write_bytes(build_gguf(PAIRS, version=2))
    assert read(path).version == 2


def test_arrays_are_decoded_once_and_only_when_asked_for(small: Path) -> None:
    """The same list object comes back; one that was never asked for is gone after close."""
    file = read(small)
    words = file.metadata["a.words"]
    assert file.metadata["a.words"] is words
    assert "a.numbers" in file.metadata
    assert len(file.metadata) == len(PAIRS)
    file.close()
    assert file.metadata["a.words"] == words
    with pytest.raises(ValueError, match="closed"):
        _ = file.metadata["a.numbers"]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 something else", "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(16), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "version"),
        (b"GGUF\x03\0\0\0", "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "truncated"),
        (build_gguf({"a": (STRING, "b")})[:30], "truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 77), "unknown value type 77"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 2**62), "truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQQ", 9, 8, 2, 2**64 - 1), "truncated"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<I", 99), "99 dimensions"),
        (build_gguf({"general.alignment": (STRING, "x")}), "alignment"),
        (build_gguf({"d": (ARRAY, (9, [(9, [(9, [(9, [(4, [1])])])])]))}), "nested"),
    ],
)
def test_a_foreign_or_broken_file_is_refused_with_its_name_and_the_place(tmp_path: Path, raw: bytes, says: str) -> None:
    """Never a struct.error or an endless loop: a GgufError that says what is wrong."""
    path = tmp_path / "odd.gguf"
    path.write_bytes(raw)
    with pytest.raises(GgufError, match=says) as caught:
        read(path)
    assert "odd.gguf" in str(caught.value)


def test_a_file_cut_anywhere_is_refused(small: Path, tmp_path: Path) -> None:
    """Whatever byte a download stopped at, the reader says so."""
    whole = small.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(1, len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(GgufError):
            read(cut)


def test_the_beginning_of_a_file_tells_whether_it_is_gguf(small: Path, tmp_path: Path) -> None:
    """Folders, missing files and JSON are not."""
    other = tmp_path / "tokenizer.json"
    other.write_text("{}")
    assert is_gguf(small)
    assert not any(map(is_gguf, (other, tmp_path, tmp_path / "none")))


def test_an_unknown_tensor_type_has_no_size() -> None:
    """New quantisations appear; the reader still lists them."""
    assert TensorInfo("t", (32, 2), 99, 0).size_bytes is None
    assert TensorInfo("t", (64, 2), 3, 0).size_bytes == 80


def test_smollm2_is_read_in_a_tenth_of_a_second() -> None:
    """The whole vocabulary and all merges, by CPU time, best of three; the last tensor ends with the file."""
    path = find_smollm2()
    assert path is not None
    best = min(_seconds_to_parse(path) for _ in range(3))
    assert best < 0.2, best
    file = read(path)
    assert file.tensors["token_embd.weight"].shape == (49152, 576)
    assert file.tensors["token_embd.weight"].ggml_type == 8
    ends = [info.offset_bytes + (info.size_bytes or 0) for info in file.tensors.values()]
    assert max(ends) == path.stat().st_size


def _seconds_to_parse(path: Path) -> float:
    started = time.process_time()
    with read(path) as file:
        assert len(file.metadata["tokenizer.ggml.tokens"]) == 49152
        assert len(file.metadata["tokenizer.ggml.merges"]) == 48900
    return time.process_time() - started
