"""Replays side by side in processes: the same results as here, and no process that outlives the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.replay.desk import Job, Setup, Source
from gateway.replay.processes import Processes, ReplayFailed
from router.replay.core import EngineSettings
from tests.gateway.replay.replay_builders import Here, build_setup, write_chats
from tests.router.replay.trace_builders import CONVERSATION, ROOT, range_row, write_rows

JOBS = [Job("homing", 60, 1.0), Job("random", 60, 1.0), Job("least_loaded", 30, 1.0), Job(None, 60)]


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def group_lives(group_id: int) -> bool:
    try:
        os.killpg(group_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_find_what_one_would_and_end_with_the_command(tmp_path: Path):
    """More jobs than processes; each is given the next as soon as it is free."""
    setup = build_setup(write_chats(tmp_path / "t.jsonl"))
    with Processes(setup, 2) as processes:
        results = dict(processes.run(JOBS))
        ids = [worker.process.pid for worker in processes._workers]
        assert dict(processes.run(JOBS[:1])) == {JOBS[0]: results[JOBS[0]]}
        assert len(ids) == 2
        assert all(map(alive, ids))
    assert not any(map(alive, ids))
    assert results == dict(Here(setup).run(JOBS))


def test_a_replay_that_fails_says_which_and_why(tmp_path: Path):
    """The process lives on, the command ends; a process that dies is told with how it died."""
    setup = build_setup(write_chats(tmp_path / "t.jsonl"))
    with Processes(setup, 1) as processes, pytest.raises(ReplayFailed, match=r"replaying nobody with 60 .*ValueError"):
        list(processes.run([Job("nobody", 60, 1.0)]))
    slow = Setup(Source(CONVERSATION), EngineSettings())
    with Processes(slow, 1) as processes:
        running = processes.run([Job("homing", 4000, 1.0)])
        processes._give(Job("homing", 4000, 1.0))
        processes._workers[0].process.kill()
        with pytest.raises(ReplayFailed, match=r"that replayed homing .* was ended by SIGKILL; perhaps memory"):
            list(running)


def test_control_c_ends_every_process_at_once(tmp_path: Path):
    """The whole group of a terminal gets the signal; nobody prints a traceback and nobody stays."""
    trace = write_rows(tmp_path / "t.jsonl", [range_row(number, [[2 * number, 2]]) for number in range(15_000)])
    # So many that it cannot be over before the signal, however late this process goes on.
    many = "homing,ring,chwbl,random,session,round_robin,least_loaded,oracle,ideal"
    program = [sys.executable, "-m", "gateway", "replay", "--trace", str(trace), "--policy", many]
    pipe = subprocess.PIPE
    command = subprocess.Popen(program, cwd=ROOT, stdout=pipe, stderr=pipe, start_new_session=True)
    assert command.stderr is not None
    told = command.stderr.readline() + command.stderr.readline()
    os.killpg(command.pid, signal.SIGINT)
    out, error = command.communicate(timeout=60)
    assert b"what least_loaded sustains" in told
    assert (command.returncode, out) == (130, b"")
    assert b"Traceback" not in error
    deadline = time.monotonic() + 30
    while group_lives(command.pid):
        assert time.monotonic() < deadline, "a process of the group is still there"
        time.sleep(0.01)
