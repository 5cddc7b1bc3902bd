"""Readers of option values: a number that fits, or argparse's error, which names the option."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from typing import TypeVar

Number = TypeVar("Number", int, float)

OnOff = argparse.BooleanOptionalAction
"""`--thing` and `--no-thing`."""


def positive(text: str) -> int:
    """A whole number above 0."""
    return within(text, int, lambda value: value >= 1, "is not a whole number above 0")


def length(text: str) -> int:
    """A length in tokens with room for a prompt and an answer."""
    return within(text, int, lambda value: value >= 2, "is too short: a prompt and its answer have a token each")


def port(text: str) -> int:
    """A TCP port; 0 is any free one."""
    return within(text, int, lambda value: 0 <= value <= 65535, "is no port (0 to 65535)")


def seconds(text: str) -> float:
    """A time in seconds, 0 or more."""
    return within(text, float, lambda value: 0 <= value < inf, "is no number of seconds")


def rate(text: str) -> float:
    """A number above 0."""
    return within(text, float, lambda value: 0 < value < inf, "is not a positive number")


def fraction(text: str) -> float:
    """Above 0 and at most 1."""
    return within(text, float, lambda value: 0 < value <= 1, "must be above 0 and at most 1")


def count(text: str) -> int:
    """A whole number, 0 or more."""
    return within(text, int, lambda value: value >= 0, "is not a whole number, 0 or more")


def share(text: str) -> float:
    """From 0 to 1."""
    return within(text, float, lambda value: 0 <= value <= 1, "must be from 0 to 1")


def bound(text: str) -> int:
    """A whole number; -1 stands for no bound."""
    return within(text, int, lambda value: value >= -1, "is not a whole number, 0 or more, or -1 for no bound")


def within(text: str, read: Callable[[str], Number], fits: Callable[[Number], bool], fault: str) -> Number:
    """`text` as a number that fits; argparse's error else, which names the option."""
    try:
        value = read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} {fault}") from None
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text} {fault}")
    return value
