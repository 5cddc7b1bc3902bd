"""bench/overhead.py: the bars are judged as they are written, and the page has the figures that it says it has."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from bench.costs.bars import BARS, CELLS, EVENTS, OURS, UNSEEN, judge, table, verdicts
from bench.costs.document import BEGIN, END, PAGE, figures_on_page, figures_text
from bench.costs.load import cpu_seconds, resident_bytes, unseen
from bench.costs.routers import ROUTERS, Absent, Stage, nginx_lua
from bench.live.processes import Child, Command


def build_costs(**peers: float) -> dict:
    """Every cell alike: ours at 100 µs, each peer at what is said."""
    return {OURS: dict.fromkeys(CELLS, 100.0), **{name: dict.fromkeys(CELLS, cost) for name, cost in peers.items()}}


def test_the_bars_are_those_of_the_issue():
    """Against each peer, cell by cell."""
    bars = {(bar.peer, bar.cell): bar.most for bar in BARS}
    assert [bars["sglang-router", cell] for cell in CELLS] == [1.2, 0.8, 0.6, 3.0, 1.1]
    assert [bars["smg", cell] for cell in CELLS[:3]] == [0.8, 0.5, 0.4]
    assert {bars["vllm-router", cell] for cell in CELLS[:3]} == {0.4}
    assert {bars["litellm", cell] for cell in CELLS[:3]} == {0.01}
    assert len(bars) == 14
    assert {peer for peer, _ in bars} <= set(ROUTERS)


def test_a_bar_is_met_missed_or_its_peer_is_absent():
    """Absent peers miss nothing: they are told."""
    found = judge(build_costs(smg=1000.0, **{"vllm-router": 200.0}))
    by_peer = {each.bar.peer: each.verdict for each in found if each.bar.cell == "200 KB"}
    assert by_peer == {"sglang-router": "absent", "smg": "ok", "vllm-router": "MISSED", "litellm": "absent"}
    assert [line.split()[0] for line in verdicts(found).splitlines()] == [each.verdict for each in found]
    assert judge({}) == []


def test_the_table_has_a_line_for_each_router():
    """And a dash where there is no figure."""
    lines = table({"a": {"1 KB": 12.4, EVENTS: 3.456}, "b": {"1 KB": 1234.5}}).splitlines()
    assert lines[2:] == ["| a | 12 | 3.46 |", "| b | 1,234 | – |"]


def test_the_page_shows_the_figures_it_holds():
    """docs/overhead.md: the tables are made of the data beside them, and of a run with everything that installs."""
    page = PAGE.read_text()
    found = figures_on_page()
    assert page.partition(BEGIN)[2].partition(END)[0].strip() == figures_text(found).strip()
    assert set(found["cpu_us"]) | set(found["absent"]) == set(ROUTERS)
    assert set(found["cpu_us"][OURS]) == set(CELLS)
    assert found["unseen_split_us"]["tokenise"] < found["cpu_us"][OURS][UNSEEN]


def test_unseen_bodies_have_no_text_in_common(tmp_path):
    """Neither with each other nor with another draw's."""
    paths = [path for draw in (0, 1) for path in unseen(tmp_path, "1 KB", 3, draw)]
    texts = [json.loads(path.read_bytes())["messages"][0]["content"] for path in paths]
    assert len({text[:24] for text in texts}) == 6


async def test_cpu_time_is_that_of_the_whole_group():
    """A child's child is counted: two of the routers start one."""
    busy = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ninput()"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    child = Child(Command("busy", [], "", PAGE), process)
    await process.stdout.readline()
    assert 0.1 <= cpu_seconds(child) < 5.0
    assert resident_bytes(child) > 2**20
    process.stdin.close()
    await process.wait()
    assert cpu_seconds(child) == 0.0


def test_a_router_that_is_not_installed_says_what_to_do(monkeypatch, tmp_path):
    """Instead of a trace."""
    monkeypatch.setattr("bench.costs.routers.PROXIES", tmp_path)
    if os.path.exists("/usr/lib/nginx/modules/ngx_http_lua_module.so"):
        pytest.skip("nginx with Lua is installed on this machine")
    with pytest.raises(Absent, match="make bench-overhead"):
        nginx_lua(Stage(tmp_path, [1]), "nginx + Lua")
