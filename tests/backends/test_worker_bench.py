"""bench/worker.py in small: its baseline computes what the worker computes, its cells and bars hold figures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from backends.kernels.reference import ReferenceKernels
from backends.model.assembly import LoadedWeights
from backends.model.llama import Llama
from backends.runner import TorchRunner
from backends.types import Batch, ScheduledSequence
from bench.worker import BARS, CACHED_BAR, CELLS, FIRST_TOKENS, Bench, Speeds, bound, judge, measure_machine
from bench.worker_eager import Eager
from bench.worker_ours import Ours, Written
from tests.backends.tensor_builders import TINY, build_weights

PROMPT = 48
BLOCKS = 8 * 4 + 1


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build_systems() -> tuple[Eager, TorchRunner]:
    """The baseline and a runner over the same tiny weights."""
    weights = build_weights(dtype=torch.float32)
    return Eager(LoadedWeights(TINY, weights), BLOCKS), TorchRunner(Llama(TINY, weights, ReferenceKernels()))


def test_the_baseline_computes_what_the_worker_computes():
    """Prefill, a chunk behind it, and a batch of decodes give the same greedy tokens."""
    eager, runner = build_systems()
    runner.allocate(BLOCKS, 16)
    tables = [[1, 2, 3], [4, 5, 6]]
    ids = [[(7 * place + number) % 50 for place in range(33)] for number in (1, 2)]
    for start, end in ((0, 20), (20, 32), (32, 33)):
        written = [Written(tokens[:end], table) for tokens, table in zip(ids, tables, strict=True)]
        sampled = runner.execute(Batch([ScheduledSequence(each, start, end - start, True) for each in written]))
        got = eager.run(torch.tensor([tokens[start:end] for tokens in ids]), start, torch.tensor(tables))
        assert got.tolist() == [token.token_id for token in sampled if token is not None]


def test_every_cell_has_a_figure_for_every_system():
    """Without llama.cpp the others are measured all the same."""
    eager, runner = build_systems()
    bench = Bench(eager, Ours(runner, BLOCKS), None, TINY.vocab_size, prompt=PROMPT, steps=2)
    assert_figures(bench.prefill(32))
    assert_figures(bench.decode(8, 16))
    for figures in bench.first_token(cached=32).values():
        assert_figures(figures)


def assert_figures(figures: dict[str, float]) -> None:
    assert set(figures) == {"eager", "worker"}
    assert all(figure > 0 for figure in figures.values())


def test_bounds_follow_from_bytes_and_operations():
    """Decoding reads weights and cache once for the whole batch; prefill multiplies."""
    speeds = Speeds(bytes_per_second=1e9, operations_per_second=1e12)
    weight_bytes = 1_000_000
    one, eight = (bound(f"decode {batch} at 256", TINY, weight_bytes, speeds) for batch in (1, 8))
    cache_bytes = 256 * 4 * TINY.layers * TINY.kv_heads * TINY.head_size
    assert one == pytest.approx(1e9 / (weight_bytes + cache_bytes))
    assert one < eight < 8 * one
    assert bound("prefill 512", TINY, weight_bytes, speeds) > bound("prefill 2048", TINY, weight_bytes, speeds)
    assert all(figure > 0 for figure in measure_machine(size=1 << 16, side=64))


def test_bars_are_judged_the_right_way_round():
    """More tokens a second are better, more seconds worse; what was not measured is not judged."""
    medians = {cell: {"eager": 1.0, "worker": 10.0, "llama.cpp": 20.0} for cell in CELLS}
    cold, cached = FIRST_TOKENS
    medians |= {cold: {"worker": 24.0, "llama.cpp": 48.0}, cached: {"worker": 2.0, "llama.cpp": 1.0}}
    judged = {bar["bar"]: bar for bar in judge(medians)}
    assert len(judged) == len(BARS) + 1
    assert judged["decode 8 at 2048, against eager"]["reached"] == 10.0
    assert judged["decode 1 at 256, against llama.cpp"]["pass"] is False
    assert judged["first token cold, against llama.cpp"]["reached"] == 2.0
    assert judged["first token cached, against llama.cpp"]["pass"] is False
    assert judged["first token, cold / cached"] == {
        "bar": "first token, cold / cached", "needs": CACHED_BAR, "reached": 12.0, "pass": True
    }  # fmt: skip
    for figures in medians.values():
        del figures["llama.cpp"]
    assert not any("llama.cpp" in bar["bar"] for bar in judge(medians))
