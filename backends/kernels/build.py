"""Builds the C++ kernels once per machine and instruction set: kept in the user's cache, named by all that went in."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

SOURCES = Path(__file__).with_name("cpu_source")
CPU_INFO = Path("/proc/cpuinfo")
COMPILERS = ("c++", "g++", "clang++")
BUILD_SECONDS = 120.0
FLAGS = (
    "-O3", "-std=c++17", "-fopenmp", "-shared", "-fPIC",
    "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math",
)  # fmt: skip
"""Sums may be reordered, so that they vectorise; infinities keep their meaning."""


def build_library(machine_flags: tuple[str, ...] = ()) -> Path:
    """The shared library for the instructions that `machine_flags` allow, built if there is none yet.

    OSError says why there can be none.
    """
    compiler = find_compiler()
    flags = (*FLAGS, *machine_flags)
    name = f"cpu-{_fingerprint(compiler, flags)}.so"
    folder = _private_folder()
    if folder is None:
        return _compile(compiler, flags, Path(tempfile.mkdtemp(prefix="homing-kernels-")) / name)
    library = folder / name
    return library if library.exists() else _compile(compiler, flags, library)


def find_compiler() -> str:
    """The C++ compiler: $CXX, or the first of the usual names on the PATH. OSError when there is none."""
    for name in (os.environ.get("CXX", ""), *COMPILERS):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    raise OSError("no C++ compiler on the PATH (install g++, or set CXX)")


def _compile(compiler: str, flags: tuple[str, ...], library: Path) -> Path:
    """Compile beside the final name, then move there: a process that looks meanwhile sees all of it or nothing."""
    partial = library.with_name(f"{library.name}.{os.getpid()}")
    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    command = [compiler, *flags, *sources, "-o", str(partial)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{compiler} took longer than {BUILD_SECONDS:.0f} s to build the CPU kernels") from error
    if done.returncode != 0:
        complaint = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise OSError(f"{compiler} could not build the CPU kernels: {complaint}")
    partial.replace(library)
    return library


def _private_folder() -> Path | None:
    """Where libraries are kept; None where it cannot be made, or where others could write a library for us to load."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if base else Path.home() / ".cache") / "homing" / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):
        return None
    others_may_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ours = status.st_uid == os.geteuid() and os.access(folder, os.W_OK)
    return folder if ours and not others_may_write else None


def _fingerprint(compiler: str, flags: tuple[str, ...]) -> str:
    """Changes with the sources, the compiler, the flags or the CPU's features."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.iterdir()) if path.suffix in (".cpp", ".h")]
    parts = [*sources, compiler, *flags, platform.machine(), *_cpu_features()]
    return sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cpu_features() -> list[str]:
    """The CPU's model and feature lines on Linux; elsewhere its name must do."""
    if not CPU_INFO.exists():
        return [platform.processor()]
    lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    return sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
