"""What cells have come to, kept on disk by code, trace and parameters: an interrupted run goes on where it was."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from xxhash import xxh3_128

from bench.bars.cells import FILES, NEWS_DELAY_SECONDS, ROOT, Cell, Workload
from bench.bars.fingerprint import simulator_fingerprint
from bench.bars.run import Figures
from bench.peers.registry import PEERS

RUN_CODE = (
    "bench/bars/run.py", "bench/bars/hot_head.py", "router/replay/figures.py", "router/replay/saturation.py",
    "router/replay/block_names.py", "router/replay/trace*.py",
)  # fmt: skip
PEER_CODE = ("bench/peers/*.py",)
ROUTER_CODE = ("router/*.py", "router/replay/choosers.py", "bench/bars/newcomer.py", "bench/peers/routing_keys.py")


class Store:
    """Figures in a folder, one file for each cell.

    Whoever changes a policy's code leaves the others' figures valid; of the simulator it counts what it does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, about: Cell | Workload) -> Figures | None:
        """What it came to under this code, if it was run."""
        try:
            kept: dict[str, float] = json.loads(self._path(about).read_text())["figures"]
        except (FileNotFoundError, ValueError):
            return None
        return kept

    def keep(self, about: Cell | Workload, figures: Figures) -> None:
        """Write it down, whole or not at all."""
        path = self._path(about)
        written = path.with_suffix(".tmp")
        written.write_text(json.dumps({"about": about.label, "figures": figures}))
        written.replace(path)

    def _path(self, about: Cell | Workload) -> Path:
        about_code = f"{simulator_fingerprint()} {code_digest(_code_of(about))}"
        workload = about.workload if isinstance(about, Cell) else about
        given = f"{trace_digest(workload.trace)} {about!r}"
        if isinstance(about, Cell) and about.gateways > 1:
            given += f" {NEWS_DELAY_SECONDS}"
        name = xxh3_128(f"{about_code} {given}".encode()).hexdigest()
        return self.folder / f"{name}.json"


@cache
def code_digest(patterns: tuple[str, ...]) -> str:
    """One hash over what all files that match do: comments and layout do not count."""
    digest = xxh3_128()
    for path in _files(patterns):
        digest.update(f"{path.relative_to(ROOT)}\n{ast.dump(ast.parse(path.read_text()))}\n".encode())
    return digest.hexdigest()


@cache
def trace_digest(trace: str) -> str:
    """One hash over a trace's file; nothing of one that is made."""
    path = FILES.get(trace)
    return xxh3_128(path.read_bytes()).hexdigest() if path is not None else ""


def _files(patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)})


def _code_of(about: Cell | Workload) -> tuple[str, ...]:
    if isinstance(about, Workload) or about.policy in ("oracle", "ideal"):
        return RUN_CODE
    return RUN_CODE + (PEER_CODE if about.policy in PEERS else ROUTER_CODE)
