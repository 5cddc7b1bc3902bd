"""A sweep as a picture: time to first token against load, hit rate against cache size. Needs matplotlib."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from gateway.replay.plan import Points

INSTALL: Final = "pip install 'homing[plot]'"
SIZE_INCHES: Final = (11.0, 4.2)
DOTS_PER_INCH: Final = 120


class NoPicture(Exception):
    """matplotlib is not here."""


def check_drawable() -> None:
    """Raises NoPicture while nothing has been replayed yet."""
    _matplotlib("matplotlib.figure")


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
    _dress(loads, load_name, "mean TTFT, simulated s", y_log=True)
    _dress(caches, "cache of each worker, blocks", "token hit rate, %", x_log=True)
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _dress(axes: Any, x_name: str, y_name: str, *, x_log: bool = False, y_log: bool = False) -> None:
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    if x_log:
        axes.set_xscale("log", base=2)
    if y_log:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()


def _matplotlib(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise NoPicture("a picture needs matplotlib, which is not installed") from None
