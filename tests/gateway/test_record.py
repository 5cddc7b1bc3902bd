"""A running gateway records what it serves, tells nothing that it must not, and never suffers from it."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.accounting import Accounts, Bill
from gateway.cli import MISUSE, WELL, main
from gateway.metrics import Metrics
from gateway.record import Recorder
from gateway.recording.lines import LineWriter, Served
from gateway.settings import Record
from router.core import FleetView, WorkerView
from router.replay.traces import TraceError, load_recording, load_trace
from router.router import Router
from tests.gateway.builders import SALT_SECRET, write_config_data
from tests.gateway.recording.recording_builders import build_chain, build_served, write_recording
from tests.gateway.running_gateway import Running, running_gateway
from tests.gateway.scripted_worker import scripted_worker, until
from tests.gateway.test_accounting import USAGE, build_call, build_prompt

CANARY = "canary-7Qx-the-secret-plan"
LONG = [{"role": "user", "content": f"{CANARY} " + "many words make many blocks " * 40}]


def written(running: Running, outcome: str = "written") -> float:
    return running.count("recorded_requests_total", outcome=outcome)


@contextmanager
def full_disk() -> Iterator[None]:
    """Files cannot grow; what is written already stays."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
async def test_what_was_served_can_be_replayed(tmp_path: Path, name: str):
    """Streams and whole answers, with the worker's own counts; the same prompt again has the same blocks."""
    path = tmp_path / name
    async with scripted_worker() as worker, running_gateway(worker, record=Record(str(path))) as running:
        began = time.time()
        await running.ask(messages=LONG, stream=True)
        await running.ask(messages=LONG)
        await running.ask(messages=[*LONG, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "go"}])
        await until(lambda: written(running) == 3)
        recording = load_recording(path)
    one, same, longer = recording.trace.requests
    assert abs(recording.at_seconds - began) < 60
    assert [request.prompt.tokens for request in recording.trace.requests] == [100, 100, 100]
    assert [request.output_tokens for request in recording.trace.requests] == [3, 3, 3]
    assert one.prompt.exact_blocks == same.prompt.exact_blocks
    assert len(one.prompt.exact_blocks) > 1
    assert longer.prompt.exact_blocks[: len(one.prompt.exact_blocks) - 1] == one.prompt.exact_blocks[:-1]
    streamed, whole, _ = recording.reported
    assert (streamed.worker, streamed.code, streamed.cached_tokens) == ("w1", 200, 64)
    assert streamed.ttft_seconds is not None
    assert 0 < streamed.ttft_seconds < streamed.total_seconds < 60
    assert whole.ttft_seconds is None
    assert recording.model == "m"


async def test_no_text_key_tenant_or_hash_of_the_wire_is_in_the_file(tmp_path: Path):
    """Whatever a request says of itself; two tenants' equal prompts have nothing in common, nor have two files."""
    texts = []
    for name in ("one", "other"):
        path = tmp_path / name
        async with scripted_worker() as worker, running_gateway(worker, record=Record(str(path))) as running:
            raw = overheard_blocks(running)
            for key in ("acme-key", "shared-key", "curious-key"):
                await running.ask(
                    messages=LONG, key=key, user=f"user-{CANARY}", headers={"x-request-id": CANARY, "x-session": CANARY}
                )
            await until(lambda: written(running) == 3)
        texts.append(path.read_text())
        assert len(raw) > 8
        assert not any(block.hex() in texts[-1] or block[:8].hex() in texts[-1] for block in raw)
    for text in texts:
        for secret in (CANARY, "many words", "acme", "shared", "curious", SALT_SECRET, "sha256"):
            assert secret not in text
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    blocks = [block for row in rows for block in (*row.get("exact", ()), *row.get("key", ()))]
    assert len(blocks) == len(set(blocks)) > 8
    assert {row["after"] for row in rows if "after" in row} == {""}


def overheard_blocks(running: Running) -> set[bytes]:
    """Fills with the raw hashes of every request from now on."""
    accounts = running.gateway.server._proxy._accounts
    record, blocks = accounts.record, set()

    def listen(bill: Bill, now: float) -> None:
        blocks.update((*bill.prompt.exact_blocks, *bill.prompt.key_blocks))
        record(bill, now)

    accounts.record = listen
    return blocks


async def test_requests_that_no_worker_saw_are_not_recorded(tmp_path: Path):
    """A wrong key, a wrong body, an unknown model; a request whose worker failed is one, with its code."""
    path = tmp_path / "r.jsonl"

    async def failing(exchange: Any) -> None:
        await exchange.send_json(b'{"error": {"message": "no"}}', "400 Bad Request")

    async with scripted_worker(failing) as worker, running_gateway(worker, record=Record(str(path))) as running:
        await running.ask(key="wrong")
        await running.ask(body=b"{")
        await running.ask(model="nobody")
        assert (await running.ask(messages=LONG)).status == 400
        await until(lambda: written(running) == 1)
        recording = load_recording(path)
    assert [one.code for one in recording.reported] == [400]
    assert recording.trace.requests[0].output_tokens == 0


async def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path: Path):
    """No file, no thread, no count."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        await running.ask()
        assert running.gateway._recorder is None
        assert written(running) == 0


async def test_a_sample_leaves_whole_families_out(tmp_path: Path):
    """Each request is counted, written or not; a family's later requests follow its first."""
    path = tmp_path / "r.jsonl"
    record = Record(str(path), sample=0.5)
    async with scripted_worker() as worker, running_gateway(worker, record=record, policy="ring") as running:
        for number in range(16):
            for _ in range(2):
                await running.ask(messages=[{"role": "user", "content": f"family {number} " + "talks on " * 99}])
        await until(lambda: written(running) + written(running, "not_sampled") == 32)
        recording = load_recording(path)
    lines = len(recording.trace.requests)
    assert 0 < lines == written(running) < 32
    assert recording.sample == 0.5
    firsts = [request.prompt.key_blocks[-1] for request in recording.trace.requests]
    assert {firsts.count(first) for first in firsts} == {2}


async def test_a_new_start_and_a_full_file_begin_another(tmp_path: Path):
    """Each with a head and hashes of its own; the oldest go."""
    path = tmp_path / "r.jsonl"
    record = Record(str(path), file_bytes=4096, files=3)
    for _ in range(2):
        async with scripted_worker() as worker, running_gateway(worker, record=record) as running:
            for number in range(2):
                content = f"{number} " + "words " * 12_000
                await running.ask(messages=[{"role": "user", "content": content}])
                await until(lambda number=number: written(running) == number + 1)
    names = sorted(os.listdir(tmp_path))
    assert names == ["r.jsonl", "r.jsonl.1", "r.jsonl.2"]
    seen: set[bytes] = set()
    for name in names:
        blocks = {block for request in load_trace(tmp_path / name).requests for block in request.prompt.exact_blocks}
        assert blocks.isdisjoint(seen)
        seen |= blocks


async def test_a_full_disk_is_said_once_and_requests_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Lost lines are counted; when there is room again, recording goes on and the file is whole: blocks that only lost
    lines listed are listed again."""
    caplog.set_level(logging.INFO, "homing.record")
    path, new = tmp_path / "r.jsonl", [{"role": "user", "content": "new " * 400}]
    async with scripted_worker() as worker, running_gateway(worker, record=Record(str(path))) as running:
        await running.ask(messages=LONG)
        await until(lambda: written(running) == 1)
        with full_disk():
            for number in range(1, 4):
                assert (await running.ask(messages=new)).status == 200
                await until(lambda number=number: written(running, "write_failed") == number)
        await running.ask(messages=new)
        await until(lambda: written(running) == 2)
    told = [record.getMessage() for record in caplog.records if record.name == "homing.record"]
    assert told == ["recording fails; requests go on", "recording goes on"]
    assert all(len(request.prompt.exact_blocks) >= 4 for request in load_trace(path).requests)


async def test_a_folder_that_went_is_no_reason_to_stop(tmp_path: Path):
    """It is tried again with each batch of lines."""
    folder = tmp_path / "here"
    folder.mkdir()
    record = Record(str(folder / "r.jsonl"))
    async with scripted_worker() as worker, running_gateway(worker, record=record) as running:
        folder.rename(tmp_path / "gone")
        await running.ask()
        await until(lambda: written(running, "write_failed") == 1)
        folder.mkdir()
        await running.ask()
        await until(lambda: written(running) == 1)


async def test_a_fault_of_our_own_costs_lines_and_not_the_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The thread lives on; what the fault said of a request stays out of the log."""
    path, line, faults = tmp_path / "r.jsonl", LineWriter.line, [ValueError(CANARY)]

    def faulty_line(self: LineWriter, served: Served) -> bytes:
        if faults:
            raise faults.pop()
        return line(self, served)

    monkeypatch.setattr(LineWriter, "line", faulty_line)
    async with scripted_worker() as worker, running_gateway(worker, record=Record(str(path))) as running:
        await running.ask()
        await until(lambda: written(running, "write_failed") == 1)
        await running.ask()
        await until(lambda: written(running) == 1)
    assert len(load_trace(path).requests) == 1
    assert CANARY not in caplog.text


async def test_the_last_lines_are_written_when_the_gateway_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Nobody waits for the thread's next round; `homing replay` then says what it would have been."""
    path = tmp_path / "r.jsonl"
    async with scripted_worker() as worker, running_gateway(worker, record=Record(str(path))) as running:
        for _ in range(5):
            await running.ask(messages=LONG)
    assert len(load_trace(path).requests) == 5
    words = ["replay", "--trace", str(path), "--policy", "homing", "--load", "recorded", "--processes", "1", "--json"]
    assert await asyncio.to_thread(main, words) == WELL
    told = json.loads(capsys.readouterr().out)
    assert told["recorded"]["token_hit_rate"] == 0.64
    assert told["policies"]["homing"]["token_hit_rate"] > 0.5


def test_a_full_queue_drops_and_counts(tmp_path: Path):
    """The event loop does not wait for the thread, which here never runs."""
    metrics = Metrics(CollectorRegistry())
    recorder = Recorder(Record(str(tmp_path / "r.jsonl")), metrics, lambda model: model)
    recorder._queue._most_requests = 3
    bill = Accounts(metrics, lambda: 0.0).open("r1")
    bill.asked(build_call())
    assert recorder._served(bill, 0.0) is None
    bill.prompt = build_prompt()
    bill.placed(Router().place(bill.prompt, FleetView((WorkerView("w1"),)), 0.0, request_id="r1"), Router())
    began = time.perf_counter()
    for _ in range(1000):
        recorder.record(bill, 0.0)
    assert time.perf_counter() - began < 2.0
    dropped = metrics.registry.get_sample_value("homing_recorded_requests_total", {"outcome": "queue_full"})
    assert dropped == 997


def test_of_a_batch_only_the_routers_own_counts_are_recorded(tmp_path: Path):
    """Its usage is that of all its prompts; the router saw the first."""
    metrics = Metrics(CollectorRegistry())
    recorder = Recorder(Record(str(tmp_path / "r.jsonl")), metrics, lambda model: f"base of {model}", lambda: 1000.0)
    served = []
    for batch in (False, True):
        bill = Accounts(metrics, lambda: 5.0).open("r1")
        bill.asked(build_call(batch=batch))
        bill.prompt = build_prompt()
        bill.placed(Router().place(bill.prompt, FleetView((WorkerView("w1"),)), 0.0, request_id="r1"), Router())
        bill.answered(200, USAGE)
        served.append(recorder._served(bill, 7.0))
    one, batched = served
    assert (one.prompt_tokens, one.output_tokens, one.cached_tokens) == (128, 5, 64)
    assert (batched.prompt_tokens, batched.output_tokens, batched.cached_tokens) == (128, None, None)
    assert (one.at_seconds, one.model, one.asked_model) == (998.0, "base of m", "m")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"path": "nowhere/r.jsonl"}, "$.record.path"),
        ({"path": "precious.txt"}, "is no recording"),
        ({"path": "precious"}, "precious.1 is there and is no recording"),
        ({"path": "r.jsonl", "files": 10**9}, "$.record.files"),
        ({"path": "r.jsonl", "sample": 0}, "$.record.sample"),
        ({"path": "r.jsonl", "file_bytes": 5}, "$.record.file_bytes"),
        ({"sample": 0.5}, "$.record"),
    ],
)
def test_a_wrong_setting_says_where_and_what(tmp_path, monkeypatch, capsys, record, said):
    """Above all nobody's file is moved away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SALT", SALT_SECRET)
    for name in ("precious.txt", "precious.1"):
        (tmp_path / name).write_text("precious")
    path = write_config_data(tmp_path, record=record)
    assert main(["serve", "--config", str(path)]) == MISUSE
    assert said in capsys.readouterr().err
    assert {path.read_text() for path in tmp_path.glob("precious*")} == {"precious"}


def test_a_recording_of_an_earlier_start_is_no_mistake(tmp_path, monkeypatch, capsys):
    """It is moved to PATH.1 when the gateway starts; another mistake still stops it here."""
    monkeypatch.setenv("SALT", SALT_SECRET)
    earlier = tmp_path / "r.jsonl.gz"
    plain = write_recording(tmp_path / "r.jsonl", [build_served(build_chain(1))])
    earlier.write_bytes(gzip.compress(plain.read_bytes()))
    path = write_config_data(tmp_path, record={"path": str(earlier)}, salt_secret="missing")
    assert main(["serve", "--config", str(path)]) == MISUSE
    assert "$.record" not in capsys.readouterr().err


def test_a_damaged_recording_says_so(tmp_path: Path):
    """Something else was written into it."""
    path = write_recording(tmp_path / "r.jsonl", [build_served(build_chain(1, 2))])
    path.write_bytes(path.read_bytes()[:-20] + b"\n")
    with pytest.raises(TraceError, match=r"r\.jsonl, line 2: this is no JSON"):
        load_trace(path)


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_recording_whose_gateway_was_killed_is_read_up_to_its_last_whole_line(tmp_path: Path, name: str):
    """The file ends in the middle of a write."""
    served = [build_served(build_chain(number, number + 100)) for number in range(1, 4)]
    plain = write_recording(tmp_path / "r.jsonl", served).read_bytes()
    head, *lines = plain.splitlines(keepends=True)
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(head + lines[0] + lines[1]) + pack(lines[2])[:-40])
    assert len(load_trace(tmp_path / name).requests) == 2
