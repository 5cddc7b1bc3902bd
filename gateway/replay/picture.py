"""A sweep as a picture: time to first token against load, hit rate against cache size. Needs matplotlib."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from gateway.replay.plan import Points

INSTALL: Final = "pip install 'homing[plot]'"
SIZE_INCHES: Final = (11.0, 4.2)
DOTS_PER_INCH: Final = 120


class NoPicture(Exception):
    """There is no way to draw; the message says what would put it right."""


def check_drawable(path: Path) -> None:
    """Raises NoPicture for what would stand in the way of drawing to `path`, before anything is replayed."""
    formats = _matplotlib("matplotlib.figure").Figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise NoPicture(f"{path}: pictures end in {', '.join(f'.{name}' for name in sorted(formats))}")
    if not path.parent.is_dir():
        raise NoPicture(f"{path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise NoPicture(f"{path}: it cannot be written there")


def draw(points: Points, path: Path, load_name: str) -> None:
    """Write the two panels to `path`; the ending says the format. OSError when it cannot be written."""
    # A Figure by itself needs no display and leaves no state behind, as pyplot would.
    figure = _matplotlib("matplotlib.figure").Figure(figsize=SIZE_INCHES, layout="constrained")
    loads, caches = figure.subplots(1, 2)
    for name, by_load in points.by_load.items():
        seconds = [result.figures.ttft_mean_seconds for result in by_load.values() if result.figures is not None]
        loads.plot(list(by_load), seconds, marker="o", label=name)
    for name, by_cache in points.by_cache.items():
        shares = [100 * result.figures.token_hit_rate for result in by_cache.values() if result.figures is not None]
        caches.plot(list(by_cache), shares, marker="o", label=name)
        caches.set_xscale("log")
        caches.set_xticks(list(by_cache), [f"{blocks:,}" for blocks in by_cache], minor=False)
        caches.minorticks_off()
    loads.set_yscale("log")
    loads.yaxis.set_major_formatter("{x:g}")
    loads.yaxis.set_minor_formatter("{x:g}")
    _dress(loads, load_name, "mean TTFT, simulated seconds")
    _dress(caches, "cache of each worker, blocks", "token hit rate, %")
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _dress(axes: Any, x_name: str, y_name: str) -> None:
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    axes.grid(alpha=0.3)
    axes.legend()


def _matplotlib(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise NoPicture(f"a picture needs matplotlib, which is not installed: {INSTALL}") from None
