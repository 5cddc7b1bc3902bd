"""Which replays a run consists of, and what they are known by."""

import pytest

from bench.bars import store as store_module
from bench.bars.cells import ROOT, Cell, Workload, full_cells, quick_cells
from bench.bars.hot_head import hot_head
from bench.bars.run import run_cell
from bench.bars.store import Store
from bench.peers.registry import PEERS, STRONGEST
from tests.bench.bars.builders import CHAT

LISTED = (
    "round_robin least_requests power_of_two kubeai_chwbl cache_aware_cli smg_gate prefix_hash llmd_approximate "
    "llmd_exact llmd_sticky aibrix_deployed dynamo_events lmetric_own preble production_stack_prefix ray"
)


def test_the_peers_that_the_bench_promises_are_there():
    """By name; the strongest are six of them."""
    assert set(LISTED.split()) <= set(PEERS)
    assert set(STRONGEST) <= set(PEERS)
    assert len(set(STRONGEST)) == 6


def test_the_full_run_contains_the_quick_one():
    """So that one fills the other's folder."""
    assert set(quick_cells((1, 2))) <= set(full_cells((1, 2)))


def test_oracle_and_ideal_are_replayed_once():
    """Seeds are for those that draw lots."""
    seeds = {(cell.policy, cell.seed) for cell in full_cells((1, 2)) if cell.policy in ("oracle", "ideal", "homing")}
    assert seeds == {("oracle", 1), ("ideal", 1), ("homing", 1), ("homing", 2)}


def test_the_hot_head_is_in_every_prompt():
    """Two common blocks, an own one, 40 a second."""
    trace = hot_head(400)
    assert len({block for request in trace.requests for block in request.prompt.exact_blocks[:2]}) == 2
    assert len({request.prompt.exact_blocks[2] for request in trace.requests}) == 400
    assert 30 < 400 / trace.requests[-1].at_seconds < 50
    assert all(2 * 512 < request.prompt.tokens < 3 * 512 for request in trace.requests)


def test_a_cell_is_found_again_and_another_is_not(tmp_path):
    """By all of its parameters."""
    store, cell = Store(tmp_path), Cell(CHAT, "llmd_sticky", 2)
    store.keep(cell, {"ttft_mean_seconds": 1.5})
    assert store.find(cell) == {"ttft_mean_seconds": 1.5}
    assert store.find(cell._replace(seed=1)) is None
    assert store.find(cell._replace(workload=CHAT._replace(load=0.7))) is None


def test_a_change_of_the_router_leaves_the_peers_figures_valid(tmp_path, monkeypatch):
    """And makes homing's unknown."""
    store = Store(tmp_path)
    for policy in ("homing", "oracle", "llmd_sticky"):
        store.keep(Cell(CHAT, policy), {"ttft_mean_seconds": 1.0})
    monkeypatch.setattr(store_module, "ROUTER_CODE", ("router/ring.py",))
    assert [policy for policy in ("homing", "oracle", "llmd_sticky") if store.find(Cell(CHAT, policy))] == [
        "oracle",
        "llmd_sticky",
    ]


@pytest.mark.parametrize("path", ["figures", "saturation", "trace_sessions", "trace_mooncake"])
def test_code_that_makes_a_figure_what_it_is_belongs_to_every_cell(path: str):
    """Percentiles, what is sustained, how a trace is read: none of it shows in what the simulator does."""
    code = ROOT / f"router/replay/{path}.py"
    assert all(code in store_module._files(store_module._code_of(about)) for about in (CHAT, Cell(CHAT, "oracle")))


def test_another_trace_or_another_delay_is_another_cell(tmp_path, monkeypatch):
    """A trace is known by its bytes, not by its name; the delay counts where there are replicas."""
    store, alone = Store(tmp_path), Cell(CHAT, "homing")
    four = alone._replace(gateways=4)
    for cell in (alone, four):
        store.keep(cell, {"ttft_mean_seconds": 1.0})
    monkeypatch.setattr(store_module, "NEWS_DELAY_SECONDS", 0.5)
    assert (store.find(alone) is None, store.find(four) is None) == (False, True)
    (tmp_path / "trace").write_bytes(b"other")
    monkeypatch.setitem(store_module.FILES, CHAT.trace, tmp_path / "trace")
    store_module.trace_digest.cache_clear()
    assert store.find(alone) is None
    store_module.trace_digest.cache_clear()


def test_a_file_cut_off_in_the_middle_is_run_again(tmp_path):
    """It holds no figures."""
    store, cell = Store(tmp_path), Cell(CHAT, "homing")
    store.keep(cell, {"ttft_mean_seconds": 1.0})
    next(tmp_path.iterdir()).write_text('{"figures": {"ttft')
    assert store.find(cell) is None


def test_a_cell_is_replayed_to_figures():
    """The smallest there is, at a quarter of what is sustained."""
    found = run_cell(Cell(Workload("synthetic", 2_000, 0.25), "least_requests"), 4.2)
    assert 1.0 < found["ttft_mean_seconds"] < 3.0
    assert found["cpu_seconds"] > 0
