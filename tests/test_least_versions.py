"""No library is used, or let in, in a version with a weakness that is known and mended."""

from __future__ import annotations

import re
import tomllib
from importlib import util
from importlib.metadata import version
from pathlib import Path

import pytest
from aiohttp.http import HttpRequestParser
from aiohttp.http_parser import HttpRequestParserPy

ROOT = Path(__file__).parent.parent
LEAST = tomllib.loads((ROOT / "tests/data/least_versions.toml").read_text(encoding="utf-8"))
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:4])


@pytest.mark.parametrize("name", LEAST)
def test_a_known_weakness_is_not_installed(name):
    """What runs here is at least the mended version."""
    assert numbers(version(name)) >= numbers(LEAST[name]["least"]), LEAST[name]["because"]


@pytest.mark.parametrize("name", LEAST)
def test_a_known_weakness_cannot_be_installed(name):
    """The bound in pyproject.toml keeps older ones out."""
    bound = next(line for line in DEPENDENCIES if line.lower().startswith(name.lower()))
    assert numbers(bound.partition(">=")[2].partition(";")[0]) >= numbers(LEAST[name]["least"])


def test_aiohttps_parser_is_the_compiled_one():
    """Its pure-Python parser is the one that smuggling bugs were found in."""
    assert util.find_spec("aiohttp._http_parser") is not None
    assert HttpRequestParser is not HttpRequestParserPy
