"""`homing replay` as it is typed: table, JSON, picture, and words for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli import MISUSE, PROBLEMS, WELL, main
from gateway.replay.desk import POLICY_NAMES, Job
from gateway.replay.processes import Processes
from router.replay.traces import load_trace
from tests.gateway.recording.recording_builders import build_chain, build_served, recorded_trace, write_recording
from tests.gateway.replay.replay_builders import write_chats, write_sessions
from tests.router.replay.trace_builders import range_row, write_rows

SMALL = ("--workers", "3", "--cache-blocks", "60", "--processes", "1")


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    return write_chats(tmp_path / "chats.jsonl.gz")


def test_json_has_the_policies_and_the_parameters(chats: Path, capsys):
    """Nothing else goes to standard output, progress goes to the other."""
    words = [
        "--policy",
        "homing,least_loaded,oracle,ideal",
        "--json",
        "--limit",
        "50",
        "--seed",
        "7",
        "--gateways",
        "2",
    ]
    assert main(["replay", "--trace", str(chats), *SMALL, *words, "--gateways", "2"]) == WELL
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert set(told) == {"parameters", "policies"}
    assert set(told["policies"]) == {"homing", "least_loaded", "oracle", "ideal"}
    homing, parameters = told["policies"]["homing"], told["parameters"]
    assert {"token_hit_rate", "ttft_s", "busy_max_over_mean", "requests_max_over_mean", "slo_share"} <= set(homing)
    assert set(homing["ttft_s"]) == {"mean", "p50", "p90", "p99"}
    assert {"ttft_over_oracle", "ttft_over_ideal"} <= set(homing)
    assert (parameters["requests"], parameters["workers"], parameters["load"], parameters["seed"]) == (50, 3, 0.9, 7)
    assert parameters["gateways"] == 2
    assert parameters["sustained_requests_per_second"] > 0
    assert "1 of 1: what least_loaded sustains" in shown.err
    assert "4 of 4" in shown.err


def test_a_recording_tells_the_honest_saving(chats: Path, tmp_path: Path, capsys):
    """At its own pace: what it was, what a plain balancer would have computed, and what homing would."""
    path = recorded_trace(load_trace(chats), tmp_path / "recorded.jsonl")
    assert main(["replay", "--trace", str(path), *SMALL, "--load", "recorded", "--policy", "homing"]) == WELL
    shown = capsys.readouterr().out
    lines = {line.split("  ")[0]: line for line in shown.splitlines() if line}
    assert "at 1 times the trace's own pace" in shown
    assert {"homing", "as recorded", "round_robin", "least_loaded"} <= set(lines)
    assert lines["homing"].endswith("1.00")
    assert float(lines["round_robin"].split()[-1]) > 1.0


def test_a_sample_says_what_cache_all_of_the_traffic_would_need(tmp_path: Path, capsys):
    """As much larger as the sample is smaller."""
    path = write_recording(tmp_path / "r", [build_served(build_chain(1, 2))], sample=0.25)
    assert main(["replay", "--trace", str(path), *SMALL, "--load", "recorded", "--policy", "ring"]) == WELL
    assert "with all of the traffic, workers would need 240 blocks each" in capsys.readouterr().out


def test_a_recordings_sessions_may_wait_for_their_answers(chats: Path, tmp_path: Path, capsys):
    """Then a slow fleet is asked less, and nothing queues up without end."""
    path, means = recorded_trace(load_trace(chats), tmp_path / "recorded.jsonl"), []
    for more in ((), ("--sessions-wait",)):
        words = ["--policy", "homing", "--prefill-rate", "900", "--load", "recorded", "--json", *more]
        assert main(["replay", "--trace", str(path), *SMALL, *words]) == WELL
        means.append(json.loads(capsys.readouterr().out)["policies"]["homing"]["ttft_s"]["mean"])
    assert means[1] < means[0] / 2


def test_sessions_that_wait_for_answers_are_started_more_often(tmp_path: Path, capsys):
    """There is no sustained rate to be relative to."""
    path = write_sessions(tmp_path / "s.jsonl")
    assert main(["replay", "--trace", str(path), *SMALL, "--load", "1.5", "--policy", "ring", "--json"]) == WELL
    told = json.loads(capsys.readouterr().out)["parameters"]
    assert (told["closed_loop"], told["load"], told["time_scale"]) == (True, 1.5, 1 / 1.5)
    assert told["sustained_requests_per_second"] is None


def test_a_picture_is_drawn_after_the_table(chats: Path, tmp_path: Path, capsys):
    """It takes more replays, whose progress is told as well."""
    path = tmp_path / "p.png"
    assert main(["replay", "--trace", str(chats), *SMALL, "--policy", "homing", "--png", str(path)]) == WELL
    shown = capsys.readouterr()
    assert "homing" in shown.out
    assert "8 of 8" in shown.err
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "homin"], ("no policy is called 'homin'; did you mean `homing`?", ", ".join(POLICY_NAMES))),
        (["--policy", ","], ("--policy names nobody",)),
        (["--workers", "0"], ("--workers: a whole number from 1 is wanted, to 4096 at most, got '0'",)),
        (["--workers", "two"], ("--workers: a whole number from 1 is wanted",)),
        (["--load", "0"], ("--load: a number above 0 is wanted, to 1e+09 at most, got '0'",)),
        (["--workers", "9" * 5000], ("--workers: a whole number from 1 is wanted, to 4096 at most",)),
        (["--gateways", "1000000"], ("--gateways: a whole number from 1 is wanted, to 256 at most",)),
        (["--load", "1e308"], ("--load: a number above 0 is wanted, to 1e+09 at most",)),
        (["--load", "nan"], ("--load: a number above 0 is wanted",)),
        (["--prefill-rate", "-5"], ("--prefill-rate: a number above 0 is wanted",)),
        (["--prefill-fixed", "x"], ("--prefill-fixed: a number from 0 is wanted",)),
        (["--news-delay", "never"], ("--news-delay: a number from 0 is wanted",)),
        (["--engine", "C"], ("invalid choice: 'C'",)),
        (["--model", "m"], ("--model is for recordings of the gateway",)),
        (["--sessions-wait"], ("--sessions-wait is for recordings of the gateway",)),
        (["--png", "x.doc"], ("--png: x.doc: pictures end in",)),
        (["--trace", "/nowhere"], ("/nowhere: No such file or directory", "docs/replay.md")),
        (["--trace", str(Path(__file__))], ("test_replay_command.py, line 1: this is no JSON",)),
        ([], ("usage: homing replay",)),
    ],
)  # fmt: skip
def test_misuse_says_what_there_is(chats: Path, capsys, words: list[str], said: tuple[str, ...]):
    """Two, before anything is replayed, and no traceback."""
    trace = [] if not words or "--trace" in words else ["--trace", str(chats)]
    assert main(["replay", *trace, *words]) == MISUSE
    error = capsys.readouterr().err
    assert all(words in error for words in said)
    assert "Traceback" not in error


def test_a_trace_without_a_pace_can_be_replayed_at_its_own(tmp_path: Path, capsys):
    """All at one moment: a load means nothing."""
    path = write_rows(tmp_path / "t.jsonl", [range_row(3.0), range_row(3.0)])
    path.write_text(path.read_text().replace('"t": 3.0', '"t": 0'))
    assert main(["replay", "--trace", str(path), *SMALL]) == MISUSE
    assert "--load recorded" in capsys.readouterr().err


def test_a_replay_that_fails_is_a_problem(chats: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    """One, with what failed and why."""

    def asks_for_nobody(self, jobs):
        return run(self, [Job("nobody", 60, 1.0) for _ in jobs])

    run = Processes.run
    monkeypatch.setattr(Processes, "run", asks_for_nobody)
    assert main(["replay", "--trace", str(chats), *SMALL]) == PROBLEMS
    assert "replaying nobody with 60 blocks" in capsys.readouterr().err
