"""Writes small GGUF files for tests: the format's other half, written from the specification."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

STRING, ARRAY = 8, 9
F32 = 0


def text(value: str) -> bytes:
    """A length-prefixed string."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind: int, content: Any) -> bytes:
    """A typed value: a string, an array `(element kind, elements)`, or a scalar given by its struct code."""
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        element_kind, elements = content
        head = struct.pack("<IQ", element_kind, len(elements))
        return head + b"".join(value(element_kind, element) for element in elements)
    code = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind]
    return struct.pack("<" + code, content)


def build_gguf(
    pairs: dict[str, tuple[int, Any]],
    tensors: dict[str, tuple[list[int], list[float]]] | None = None,
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A GGUF file: `pairs` name → (kind, content); `tensors` name → (shape outermost first, F32 values)."""
    tensors = tensors or {}
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, (kind, content) in pairs.items():
        head += text(key) + struct.pack("<I", kind) + value(kind, content)
    data = b""
    for name, (shape, values) in tensors.items():
        data += b"\0" * (-len(data) % alignment)
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", F32, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
    return head + b"\0" * (-len(head) % alignment) + data


def write_gguf(folder: Path, pairs: dict[str, tuple[int, Any]], name: str = "model.gguf") -> Path:
    """A GGUF file without tensors in `folder`."""
    path = folder / name
    path.write_bytes(build_gguf(pairs))
    return path
