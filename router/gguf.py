"""Reads the head of a GGUF file (metadata and where each tensor lies) without reading the tensors.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian. The file is
mapped, not loaded; an array of the metadata (a vocabulary, the merges) is decoded when it is first asked for.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Self

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT_BYTES = 32
MAX_DIMENSIONS = 8
MAX_NESTING = 4

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}
"""GGUF value type → struct and array code."""

_BLOCKS: dict[int, tuple[int, int]] = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    30: (1, 2),  # BF16
}
"""ggml type → (elements, bytes) of one block, for the types whose size is checked."""


class GgufError(ValueError):
    """The file is no GGUF file that can be read here; the message names the file and the place."""


class TensorInfo(NamedTuple):
    """Where a tensor lies: `shape` has the outermost dimension first, `offset_bytes` counts from the file's start."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset_bytes: int

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the tensor's data; None for a ggml type that is not in our table."""
        block = _BLOCKS.get(self.ggml_type)
        return None if block is None else prod(self.shape) // block[0] * block[1]


class _Deferred(NamedTuple):
    """An array that was stepped over: where its elements start, of which type, how many."""

    element_type: int
    start: int
    length: int


class _Metadata(Mapping[str, Any]):
    """The file's key-values; an array is decoded at its first use and kept."""

    def __init__(self, values: dict[str, Any], decode: Callable[[_Deferred], Any]) -> None:
        self._values = values
        self._decode = decode

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, _Deferred):
            value = self._values[key] = self._decode(value)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class GgufFile:
    """The head of one GGUF file, mapped into memory; close it, or use it with `with`.

    `metadata` maps a key to bool, int, float, str, a list of str or bool, an `array` of numbers, or nested lists.
    `tensors` maps a name to its TensorInfo. An array that nobody asked for before `close()` is gone after it.
    """

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self._data = data
        reader = _Reader(path, data)
        self.version, tensor_count, key_count = reader.header()
        self.metadata: Mapping[str, Any] = _Metadata(reader.key_values(key_count), reader.decode)
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT_BYTES)
        self.tensors: Mapping[str, TensorInfo] = reader.tensors(tensor_count, alignment)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map `path` and read its head; GgufError when it is foreign or truncated, OSError when it cannot be read."""
        path = Path(path)
        with path.open("rb") as file:
            try:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise GgufError(f"{path}: the file is empty, not a GGUF file") from error
        try:
            return cls(path, data)
        except BaseException:
            data.close()
            raise

    def close(self) -> None:
        """Unmap the file; what was decoded stays usable."""
        self._data.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: str | Path) -> GgufFile:
    """`GgufFile.open`, as a function."""
    return GgufFile.open(path)


def is_gguf(path: Path) -> bool:
    """Whether `path` is a file that begins like a GGUF file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class _Reader:
    """A cursor over the mapped head; every step is checked against the file's end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data, self._at, self._end = path, data, 0, len(data)

    def header(self) -> tuple[int, int, int]:
        """Version, number of tensors, number of key-values."""
        if self._data[:4] != MAGIC:
            raise GgufError(f"{self._path}: not a GGUF file (it does not begin with 'GGUF')")
        self._at = 4
        version = self._number("I")
        if version not in VERSIONS:
            raise GgufError(f"{self._path}: GGUF version {version} is not read here, only little-endian 2 and 3")
        return version, self._number("Q"), self._number("Q")

    def key_values(self, count: int) -> dict[str, Any]:
        """All key-values; arrays are stepped over."""
        return {self._string(): self._value(self._number("I")) for _ in range(count)}

    def tensors(self, count: int, alignment: Any) -> dict[str, TensorInfo]:
        """All tensor entries, with offsets made absolute and checked against the file's size."""
        if not isinstance(alignment, int) or alignment <= 0:
            raise GgufError(f"{self._path}: general.alignment {alignment!r} is no positive number")
        entries = [self._tensor() for _ in range(count)]
        base = -(-self._at // alignment) * alignment
        infos = [entry._replace(offset_bytes=base + entry.offset_bytes) for entry in entries]
        for info in infos:
            if info.offset_bytes + (info.size_bytes or 0) > self._end:
                raise GgufError(f"{self._path}: truncated: tensor {info.name!r} ends after the file's last byte")
        return {info.name: info for info in infos}

    def decode(self, deferred: _Deferred) -> Any:
        """The elements of an array that was stepped over."""
        kind, self._at, count = deferred
        if kind == _STRING:
            return self._strings(count)
        if kind == _ARRAY:
            return [self._nested() for _ in range(count)]
        code = _SCALARS[kind]
        size_bytes = struct.calcsize("<" + code) * count
        raw = self._data[self._at : self._at + size_bytes]
        self._at += size_bytes
        return [byte != 0 for byte in raw] if kind == _BOOL else _numbers(code, raw)

    def _nested(self) -> Any:
        kind, count = self._number("I"), self._number("Q")
        return self.decode(_Deferred(kind, self._at, count))

    def _tensor(self) -> TensorInfo:
        name, dimensions = self._string(), self._number("I")
        if dimensions > MAX_DIMENSIONS:
            raise GgufError(f"{self._path}: tensor {name!r} has {dimensions} dimensions: the file is damaged")
        innermost_first = [self._number("Q") for _ in range(dimensions)]
        return TensorInfo(name, tuple(reversed(innermost_first)), self._number("I"), self._number("Q"))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._step_over_array()
        return self._number(self._code(kind))

    def _step_over_array(self, depth: int = 0) -> _Deferred:
        kind, count = self._number("I"), self._number("Q")
        if depth >= MAX_NESTING:
            raise GgufError(f"{self._path}: arrays nested deeper than {MAX_NESTING} at byte {self._at}")
        deferred = _Deferred(kind, self._at, count)
        if kind == _STRING:
            self._step_over_strings(count)
        elif kind == _ARRAY:
            for _ in range(count):
                self._step_over_array(depth + 1)
        else:
            self._advance(struct.calcsize("<" + self._code(kind)) * count)
        return deferred

    def _step_over_strings(self, count: int) -> None:
        data, at, length_at = self._data, self._at, struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                at += 8 + length_at(data, at)[0]
        except (struct.error, OverflowError) as error:
            raise self._truncated() from error
        self._advance(at - self._at)

    def _strings(self, count: int) -> list[str]:
        data, at, length_at = self._data, self._at, struct.Struct("<Q").unpack_from
        out: list[str] = []
        for _ in range(count):
            start = at + 8
            at = start + length_at(data, at)[0]
            out.append(data[start:at].decode("utf-8", "replace"))
        self._at = at
        return out

    def _string(self) -> str:
        length = self._number("Q")
        start = self._at
        self._advance(length)
        return self._data[start : self._at].decode("utf-8", "replace")

    def _number(self, code: str) -> Any:
        start = self._at
        self._advance(struct.calcsize("<" + code))
        return struct.unpack_from("<" + code, self._data, start)[0]

    def _advance(self, size_bytes: int) -> None:
        self._at += size_bytes
        if self._at > self._end:
            raise self._truncated()

    def _code(self, kind: int) -> str:
        code = _SCALARS.get(kind)
        if code is None:
            raise GgufError(f"{self._path}: unknown value type {kind} at byte {self._at}: the file is damaged")
        return code

    def _truncated(self) -> GgufError:
        return GgufError(f"{self._path}: truncated: the head goes on after the file's last byte ({self._end})")


def _numbers(code: str, raw: bytes) -> array[Any]:
    """Little-endian `raw` as an array of `code`."""
    values: array[Any] = array(code)
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values
