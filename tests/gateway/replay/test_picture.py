"""The picture of a sweep: drawn without a display, and what stands in the way is said before anything is replayed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.replay.picture import NoPicture, check_drawable, draw
from gateway.replay.plan import Points
from tests.gateway.replay.replay_builders import build_result

POINTS = Points(
    {name: {load: build_result(load * times) for load in (0.5, 0.9)} for name, times in (("homing", 1), ("ring", 2))},
    {name: {cache: build_result(1.0, cache / 99) for cache in (16, 32)} for name in ("homing", "ring")},
)


def test_a_picture_is_written(tmp_path: Path):
    """Both panels, as the file's ending says; in an SVG the words can be read."""
    check_drawable(tmp_path / "p.png")
    draw(POINTS, tmp_path / "p.png", "load")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    draw(POINTS, tmp_path / "p.svg", "load of a test")
    drawn = (tmp_path / "p.svg").read_text()
    assert all(words in drawn for words in ("load of a test", "cache of each worker", "token hit rate", "homing"))


def test_a_folder_or_an_ending_that_is_none_is_said(tmp_path: Path):
    """With the endings that there are."""
    with pytest.raises(NoPicture, match=r"p\.jpgg: pictures end in .*\.png"):
        check_drawable(tmp_path / "p.jpgg")
    with pytest.raises(NoPicture, match="there is no folder"):
        check_drawable(tmp_path / "nowhere" / "p.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(NoPicture, match=r"folder\.png: it cannot be written there"):
        check_drawable(tmp_path / "folder.png")


def test_without_matplotlib_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is an extra, and only a picture asks for it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NoPicture, match=r"pip install 'homing\[plot\]'"):
        check_drawable(tmp_path / "p.png")
