"""The dummy backend, the load generator and the request bodies: built, written, and run once for each figure."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.live.processes import ROOT, Child, ChildFailed, Command

NATIVE = ROOT / "bench" / "native"
KEY = "sk-bench-0123456789abcdef"
WORKERS = 4
SIZES = {"1 KB": ("1k", 1024), "32 KB": ("32k", 32 * 1024), "200 KB": ("200k", 200 * 1024)}
EVENTS = 64
GAP_MILLISECONDS = 20


@dataclass(frozen=True)
class Load:
    """What is sent: `requests` in a closed loop of `callers`, `bodies` one after the other, for `seconds` at most."""

    bodies: Sequence[Path]
    requests: int
    callers: int = 16
    seconds: float = 20.0


def build(directory: Path) -> None:
    """Compile both programs and write the bodies; SystemExit where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("bench/overhead.py compiles bench/native/*.c: install a C compiler (cc)")
    for name in ("backend", "lg"):
        subprocess.run(
            [compiler, "-O2", "-w", "-o", str(directory / name), str(NATIVE / f"{name}.c")], check=True, timeout=120
        )
    subprocess.run([sys.executable, str(NATIVE / "mkbodies.py")], cwd=directory, check=True, timeout=120)


def seen(directory: Path, size: str, kind: str = "json") -> list[Path]:
    """32 bodies that share 8 heads; `kind` json or sse20."""
    return sorted((directory / "bodies").glob(f"{kind}-{SIZES[size][0]}-*.json"))


def unseen(directory: Path, size: str, count: int, draw: int) -> list[Path]:
    """`count` bodies, each of text that no other body and no other `draw` has."""
    words = _words()
    folder = directory / f"unseen-{draw}"
    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(count):
        chooser = random.Random(f"{draw} {number}")
        text = " ".join(chooser.choices(words, k=SIZES[size][1] // 6))[: SIZES[size][1] - 150]
        cut = int(len(text) * 0.7)
        messages = [{"role": "system", "content": text[:cut]}, {"role": "user", "content": text[cut:]}]
        body = {"model": "dummy", "stream": False, "max_tokens": 64, "messages": messages}
        path = folder / f"{number}.json"
        path.write_text(json.dumps(body))
        paths.append(path)
    return paths


def _words() -> list[str]:
    chooser = random.Random(11)
    syllables = (
        "ta",
        "re",
        "mi",
        "lo",
        "ka",
        "ne",
        "su",
        "vi",
        "do",
        "pa",
        "ri",
        "ment",
        "tion",
        "ing",
        "the",
        "and",
        "of",
        "pro",
    )
    return ["".join(chooser.choices(syllables, k=chooser.choice((1, 2, 2, 3)))) for _ in range(5000)]


def backend_command(directory: Path, ports: Sequence[int]) -> Command:
    """The dummy workers, all in one process."""
    return Command(
        "the dummy workers",
        [str(directory / "backend"), *map(str, ports)],
        f"http://127.0.0.1:{ports[-1]}/health",
        directory / "backend.log",
    )


async def send(directory: Path, port: int, load: Load) -> dict[str, Any]:
    """Run the load against one port; what the generator counted. Raises ChildFailed when it could not."""
    options = ["-p", port, "-c", load.callers, "-n", load.requests, "-d", load.seconds]
    process = await asyncio.create_subprocess_exec(
        str(directory / "lg"),
        *map(str, options),
        "-H",
        f"authorization: Bearer {KEY}",
        *map(str, load.bodies),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaints = await process.communicate()
    if process.returncode != 0:
        raise ChildFailed(f"the load generator failed: {complaints.decode()}")
    counted: dict[str, Any] = json.loads(out)
    if not counted["ok"] or counted["err"] or counted["non200"]:
        raise ChildFailed(f"not every request was answered well: {out.decode().strip()} {complaints.decode()[:200]}")
    return counted


def cpu_seconds(child: Child) -> float:
    """CPU time of all threads in the child's group, to the nanosecond; threads that ended do not count."""
    return sum(_thread_seconds(pid) for pid in _group(child))


def resident_bytes(child: Child) -> int:
    """Memory of the child's group that is in RAM."""
    pages = [_read(f"/proc/{pid}/statm").split() for pid in _group(child)]
    return 4096 * sum(int(fields[1]) for fields in pages if fields)


def _group(child: Child) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _group_of(pid) == child.process.pid]


def _group_of(pid: int) -> int | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[2]) if fields else None


def _thread_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task")
    try:
        names = [task.name for task in tasks.iterdir()]
    except OSError:
        return 0.0
    counts = [_read(f"{tasks}/{name}/schedstat").split() for name in names]
    return sum(int(fields[0]) for fields in counts if fields) / 1e9


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
