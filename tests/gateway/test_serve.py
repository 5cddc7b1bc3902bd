"""`homing serve` as a process: it starts, says where it listens, obeys signals, and fails in words."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from gateway.cli import main
from gateway.commands import serve as serve_command
from tests.gateway.builders import ENVIRON, running_worker, write_config_data
from tests.gateway.test_probes import free_port

ROOT = Path(__file__).parents[2]
FREE = ("--port", "0", "--admin-port", "0")


class Served:
    """A running `homing serve` and the log lines it wrote."""

    def __init__(self, process):
        self.process = process
        self.lines = []

    async def line(self, event):
        """The next log line of this event, as a mapping; EOFError when the process ends first."""
        async with asyncio.timeout(30):
            while True:
                raw = await self.process.stderr.readline()
                if not raw:
                    raise EOFError(f"no {event!r} in {self.lines}")
                self.lines.append(raw.decode())
                if raw.startswith(b"{") and json.loads(raw)["event"] == event:
                    return json.loads(raw)

    async def ended(self):
        """The exit code, and everything it said."""
        async with asyncio.timeout(30):
            rest = await self.process.stderr.read()
            return await self.process.wait(), "".join(self.lines) + rest.decode()


@asynccontextmanager
async def serve(*arguments, environ=None):
    """`python -m gateway serve …`, ended at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "serve", *arguments,
        cwd=ROOT, env={**os.environ, **(environ or {})}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Served(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_first_try_starts_answers_and_leaves_at_sigterm():
    """One command, no file."""
    async with running_worker() as worker, serve("--worker", worker.url, *FREE) as served:
        told = await served.line("homing is listening")
        async with aiohttp.ClientSession() as client:
            asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            async with client.post(f"http://{told['api']}/v1/chat/completions", json=asked) as answer:
                assert answer.status == 200
            async with client.get(f"http://{told['admin']}/readyz") as answer:
                assert answer.status == 200
        served.process.send_signal(signal.SIGTERM)
        code, said = await served.ended()
    assert code == 0
    assert '"event":"request"' in said
    assert "Traceback" not in said


async def test_a_configuration_file_from_the_environment(tmp_path):
    """$HOMING_CONFIG, with a port of the command line."""
    async with running_worker() as worker:
        path = write_config_data(tmp_path, models={"m": {"backends": {"static": [worker.url]}}})
        port = free_port()
        environ = {**ENVIRON, "HOMING_CONFIG": str(path)}
        async with serve("--port", str(port), environ=environ) as served:
            told = await served.line("homing is listening")
            assert told["api"] == f"127.0.0.1:{port}"
            assert told["workers"] == "1 of 1 up"


async def test_a_second_signal_ends_the_drain(tmp_path):
    """Ctrl-C twice, for somebody at a terminal."""
    async with running_worker() as worker:
        models = {"m": {"backends": {"static": [worker.url]}}}
        path = write_config_data(tmp_path, models=models, timeouts={"drain_delay_seconds": 60.0})
        async with serve("--config", str(path), environ=ENVIRON) as served:
            await served.line("homing is listening")
            served.process.send_signal(signal.SIGINT)
            await served.line("draining")
            served.process.send_signal(signal.SIGINT)
            code, said = await served.ended()
    assert code == 0
    assert "Traceback" not in said


async def test_a_signal_while_starting_is_obeyed():
    """A worker that accepts and says nothing keeps the first round waiting; the signal does not wait."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with serve("--worker", url, *FREE) as served:
            await served.line("worker joined")
            served.process.send_signal(signal.SIGTERM)
            code, said = await served.ended()
    assert code == 0
    assert "homing is listening" not in said


async def test_a_taken_port_is_a_problem_in_words():
    """What, where, and what next."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        worker = f"http://127.0.0.1:{free_port()}"
        async with serve("--worker", worker, "--port", port, "--admin-port", "0") as served:
            code, said = await served.ended()
    assert code == 1
    assert f"homing: cannot listen on 127.0.0.1:{port}" in said
    assert "choose another with --host, --port or --admin-port" in said
    assert "Traceback" not in said


async def test_a_tokenizer_that_is_none_is_a_wrong_configuration(tmp_path):
    """The file is there, but it is no tokenizer."""
    (tmp_path / "tokenizer.json").write_text("{}")
    model = {"tokenizer": str(tmp_path / "tokenizer.json"), "backends": {"static": [f"http://127.0.0.1:{free_port()}"]}}
    path = write_config_data(tmp_path, models={"m": model})
    async with serve("--config", str(path), environ=ENVIRON) as served:
        code, said = await served.ended()
    assert code == 2
    assert "tokenizer.json" in said
    assert "Traceback" not in said


def test_while_serving_full_searches_for_cycles_are_rare(monkeypatch, tmp_path):
    """They would stand still for 0.7 s at full size (bench/scale.py); afterwards all is as before."""
    seen = []

    def take(main):
        main.close()
        seen.append(gc.get_threshold())
        return 0

    monkeypatch.setattr(serve_command, "run_loop", take)
    monkeypatch.setattr(os, "environ", {**os.environ, **ENVIRON})
    path, usual = write_config_data(tmp_path), gc.get_threshold()
    assert main(["serve", "--config", str(path)]) == 0
    assert seen == [serve_command.COLLECTIONS]
    assert gc.get_threshold() == usual
