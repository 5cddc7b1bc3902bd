"""Child processes of the demonstration are waited for and never left behind."""

from __future__ import annotations

import os
import socket

import pytest

from gateway.demo.processes import ChildFailed, free_port, running


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_child_is_ready_inside_the_block_and_gone_after_it(tmp_path):
    """Python's own file server stands in for a worker: a real process on a real port."""
    port = free_port()
    arguments = ["http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    async with running("files", arguments, f"http://127.0.0.1:{port}/", tmp_path / "log"):
        assert is_listening(port)
    assert not is_listening(port)


async def test_a_child_that_dies_is_reported_with_the_end_of_its_log(tmp_path):
    """Somebody without torch must see the ImportError, not a time-out."""
    (tmp_path / "broken_child.py").write_text("raise SystemExit('no such flag: --colour')")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        with pytest.raises(ChildFailed, match=r"(?s)worker 1 is not ready.*no such flag: --colour"):
            async with running("worker 1", ["broken_child"], "http://127.0.0.1:1/health", tmp_path / "log"):
                pytest.fail("a dead child is never ready")
    finally:
        del os.environ["PYTHONPATH"]


async def test_a_child_ends_also_when_the_block_fails(tmp_path):
    """An exception in the run does not leave a server behind."""
    port = free_port()
    arguments = ["http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with pytest.raises(ZeroDivisionError):
        async with running("files", arguments, f"http://127.0.0.1:{port}/", tmp_path / "log"):
            raise ZeroDivisionError
    assert not is_listening(port)
