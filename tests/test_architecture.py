"""The house rules that a machine can check: who imports whom, how long a room is, what it says of itself."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "router", "backends")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FILE_LINES = 300
FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 8
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def body_lines(function: Function) -> int:
    """Lines of a function without its docstring."""
    docstring = ast.get_docstring(function, clean=False)
    return function.end_lineno - function.lineno + 1 - (len(docstring.splitlines()) if docstring else 0)


def test_imports_go_one_way():
    """gateway -> router <- backends, and router imports neither clock nor socket."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_one_room_and_says_which(path):
    """At most 300 lines, and a first line that says what it is for."""
    source = path.read_text()
    assert source.count("\n") <= FILE_LINES
    docstring = ast.get_docstring(ast.parse(source))
    assert docstring
    assert len(docstring.splitlines()[0]) > 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_longer_than_a_screen(path):
    """60 lines at most, docstring not counted."""
    long = {
        function.name: body_lines(function) for function in functions(path) if body_lines(function) > FUNCTION_LINES
    }
    assert not long


def test_functions_are_short():
    """The median function of the whole product has at most 8 lines."""
    lengths = [body_lines(function) for path in FILES for function in functions(path)]
    assert statistics.median(lengths) <= MEDIAN_FUNCTION_LINES


def test_there_are_at_least_as_many_lines_of_test_as_of_code():
    """Tests are half of the product."""
    code = sum(path.read_text().count("\n") for path in FILES)
    tests = sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py"))
    assert tests >= code


TENSOR_ROOMS = ("backends.kernels", "backends.model", "backends.runner", "backends.sampler", "backends.step_tensors")


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_starts_nothing(package):
    """No import-time work: importing every module starts no thread and, but for the model's rooms, loads no torch."""
    program = (
        "import importlib, pkgutil, sys, threading\n"
        f"package = importlib.import_module('{package}')\n"
        f"for module in pkgutil.walk_packages(package.__path__, '{package}.'):\n"
        f"    if not module.name.startswith({(*TENSOR_ROOMS, 'gateway.__main__')!r}):\n"
        "        importlib.import_module(module.name)\n"
        "print(threading.active_count(), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "False"]


def test_nothing_outside_the_checkout_is_read():
    """No path of somebody's machine and no folder beside the checkout appears in code, tests or benches."""
    marks = ("../" + "shared", "/" + "work/", "/" + "root/")
    folders = (*PACKAGES, "tests", "bench", "deploy", "docs", "examples")
    named = [
        (path.relative_to(ROOT), mark)
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".sh", ".toml")
        for mark in marks
        if mark in path.read_text(errors="replace")
    ]
    assert not named
