"""Building the C++ kernels: once, atomically, only where nobody else could slip a library in; else the reference."""

from __future__ import annotations

import ctypes
import logging
import os
from pathlib import Path

import pytest
import torch

from backends.kernels import build
from backends.kernels.build import build_library, find_compiler
from backends.kernels.choose import choose_kernels
from backends.kernels.cpu import MOST_HEAD_SIZE, CpuKernels
from backends.kernels.instruction_sets import supported_sets
from tests.backends.tensor_builders import build_ragged_case, naive_attention


@pytest.fixture
def small_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources that build in no time, and an empty cache."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "answer.h").write_text("constexpr int ANSWER = 42;\n")
    source = folder / "small.cpp"
    source.write_text('#include "answer.h"\nextern "C" int answer() { return ANSWER; }\n')
    monkeypatch.setattr(build, "SOURCES", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    try:
        find_compiler()
    except OSError as error:
        pytest.skip(str(error))
    return source


def test_a_library_is_built_and_kept(small_source: Path, tmp_path: Path):
    """The second call finds the first one's file; nothing half-written stays."""
    library = build_library()
    built_at = library.stat().st_mtime_ns
    assert build_library() == library
    assert library.stat().st_mtime_ns == built_at
    assert ctypes.CDLL(str(library)).answer() == 42
    assert [path.name for path in (tmp_path / "cache" / "homing" / "kernels").iterdir()] == [library.name]


def test_another_source_compiler_flag_or_cpu_is_another_library(
    small_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A shared home folder serves machines of different kinds."""
    first = build_library()
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text("flags\t\t: avx2 avx512f\n")
    monkeypatch.setattr(build, "CPU_INFO", cpu_info)
    other_cpu = build_library()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    other_flags = build_library()
    other_instructions = build_library(("-DINSTRUCTIONS",))
    header = small_source.with_name("answer.h")
    header.write_text(header.read_text() + "// changed\n")
    assert len({first, other_cpu, other_flags, other_instructions, build_library()}) == 5


def test_a_cache_that_others_may_write_to_is_not_used(small_source: Path, tmp_path: Path):
    """Loading a library runs it: a folder open to others is passed by, and a private one used this once."""
    folder = tmp_path / "cache" / "homing" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    library = build_library()
    assert library.parent != folder
    assert library.parent.stat().st_mode & 0o077 == 0
    assert list(folder.iterdir()) == []


def test_a_cache_that_cannot_be_made_is_done_without(
    small_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A read-only home still gets its kernels."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build_library().exists()


def test_a_compiler_that_fails_says_why(small_source: Path, monkeypatch: pytest.MonkeyPatch):
    """The first line of its complaint, and no library."""
    small_source.write_text("this is no C++\n")
    with pytest.raises(OSError, match=r"could not build the CPU kernels: .*small\.cpp"):
        build_library()


def test_cxx_names_the_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """$CXX comes before the usual names; one that is not there is passed by."""
    mine = tmp_path / "my-c++"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("CXX", str(mine))
    assert find_compiler() == str(mine)


def test_without_a_compiler_the_reference_runs_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Nothing fails; one line names what is missing and how to get it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with caplog.at_level(logging.WARNING):
        assert choose_kernels().name == "reference"
    assert len(caplog.records) == 1
    assert "no C++ compiler on the PATH (install g++, or set CXX)" in caplog.text


@pytest.fixture
def cpu_kernels() -> CpuKernels:
    """The C++ kernels, where they can be built."""
    try:
        return CpuKernels()
    except OSError as error:
        pytest.skip(str(error))


def test_with_a_compiler_the_cpu_kernels_run(cpu_kernels: CpuKernels):
    """The choice of this machine."""
    assert choose_kernels().name == cpu_kernels.name == f"cpu-{supported_sets()[0].name}"


def test_heads_too_large_for_its_buffers_go_to_the_reference(cpu_kernels: CpuKernels):
    """Slower, never wrong."""
    case = build_ragged_case([1, 3], [20, 9], heads=2, kv_heads=1, head_size=MOST_HEAD_SIZE + 64)
    got = cpu_kernels.paged_attention(case.query, case.cache, case.step)
    assert (got.double() - naive_attention(case)).abs().max() <= 4e-6


def test_a_tensor_that_does_not_lie_end_to_end_is_refused(cpu_kernels: CpuKernels):
    """C++ would read something else."""
    with pytest.raises(ValueError, match="not contiguous"):
        cpu_kernels.gated_silu(torch.zeros(8, 4).T)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_threads_change_no_bit(cpu_kernels: CpuKernels):
    """Each task's arithmetic is its own."""
    case = build_ragged_case([1, 1, 1, 5], [300, 17, 64, 90])
    alone = cpu_kernels.paged_attention(case.query, case.cache, case.step)
    torch.set_num_threads(2)
    assert torch.equal(cpu_kernels.paged_attention(case.query, case.cache, case.step), alone)
