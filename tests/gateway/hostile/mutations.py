"""Messages made of other messages: damaged, spliced, repeated, by a seed that repeats them."""

# ruff: noqa: E501 - a table

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

MOST_BYTES = 100_000
MOST_STEPS = 3
GOOD_SHARE = 0.8

SHARP = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\x00", b" ", b"\t", b":", b";", b",", b"_", b"\x7f", b"\xff", b"0\r\n\r\n", b"5\r\n",
    b"content-length: 5\r\n", b"Content-Length: 0\r\n", b"transfer-encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"host: b\r\n",
    b"connection: close\r\n", b"connection: keep-alive\r\n", b"expect: 100-continue\r\n", b"upgrade: h2c\r\n", b"content-encoding: gzip\r\n",
    b"HTTP/1.1", b"HTTP/1.0", b"GET ", b"POST ", b"HEAD ", b"CONNECT ", b"/v1/models", b"/v1/completions", b'"stream":true,', b"[[[[", b"{", b"1e999",
]  # fmt: skip
"""What parsers go by."""

Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _at(chance: random.Random, wire: bytes) -> int:
    """Somewhere; more often in the head, where most is decided."""
    end = wire.find(b"\r\n\r\n") + 4
    return (
        chance.randrange(min(end, len(wire)) + 1)
        if end > 3 and chance.random() < 0.7
        else chance.randrange(len(wire) + 1)
    )


def flip(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    place = _at(chance, wire)
    return wire[:place] + bytes([chance.randrange(256)]) + wire[place + 1 :]


def insert(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    place = _at(chance, wire)
    return wire[:place] + chance.choice(SHARP) + wire[place:]


def insert_line(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    """Between two lines, so that the head stays one."""
    places = [place + 2 for place in range(len(wire) - 2) if wire[place : place + 2] == b"\r\n"]
    place = chance.choice(places) if places else 0
    return wire[:place] + chance.choice(SHARP) + wire[place:]


def remove(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    place = _at(chance, wire)
    return wire[:place] + wire[place + chance.choice((1, 1, 2, 4, 16, 64)) :]


def repeat(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    place, size = _at(chance, wire), chance.choice((1, 2, 8, 32, 128))
    return wire[:place] + wire[place : place + size] * chance.choice((2, 3, 50)) + wire[place + size :]


def swap_lines(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    lines = wire.split(b"\r\n")
    first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\r\n".join(lines)


def splice(chance: random.Random, wire: bytes, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)
    return wire[: _at(chance, wire)] + other[_at(chance, other) :]


def follow(chance: random.Random, wire: bytes, others: Sequence[bytes]) -> bytes:
    return wire + chance.choice(others)


def cut(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    return wire[: _at(chance, wire)]


def change_case(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    place = _at(chance, wire)
    return wire[:place] + wire[place : place + 20].swapcase() + wire[place + 20 :]


def change_number(chance: random.Random, wire: bytes, _others: Sequence[bytes]) -> bytes:
    digits = [place for place in range(len(wire)) if wire[place : place + 1].isdigit()]
    if not digits:
        return wire
    place = chance.choice(digits)
    return wire[:place] + chance.choice((b"0", b"9", b"00", b"-1", b"+", b"f", b"99999999999")) + wire[place + 1 :]


CHANGES: tuple[Change, ...] = (
    flip, insert, insert_line, insert_line, remove, repeat, swap_lines, splice, follow, cut, change_case, change_number,
)  # fmt: skip


def mutated(good: Sequence[bytes], bad: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """So many messages, most of them of good ones: what is bad already is seldom made worse."""
    chance, bases = random.Random(seed), [*good, *bad]
    for _ in range(count):
        wire = chance.choice(good if chance.random() < GOOD_SHARE else bad)
        for _ in range(chance.randint(1, MOST_STEPS)):
            wire = chance.choice(CHANGES)(chance, wire, bases)[:MOST_BYTES]
        yield wire
