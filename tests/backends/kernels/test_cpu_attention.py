"""What is the C++ attention's own: parts of a long sequence, instruction sets, tiles of query rows, bfloat16."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.instruction_sets import INSTRUCTION_SETS, find_set, supported_sets
from backends.kernels.reference import ReferenceKernels
from tests.backends.kernels.conftest import build_cpu_kernels
from tests.backends.tensor_builders import RaggedCase, build_ragged_case, naive_attention

FLOAT32_TOLERANCE = 2e-6
SET_NAMES = [each.name for each in INSTRUCTION_SETS]
MIXED = ([1, 1, 7, 40], [530, 3, 64, 90])


def attend(case: RaggedCase, instruction_set: str | None = None, parts: int | None = None) -> torch.Tensor:
    kernels = build_cpu_kernels(instruction_set, parts=parts)
    return kernels.paged_attention(case.query, case.cache, case.step)


@pytest.fixture(scope="module")
def mixed() -> tuple[RaggedCase, torch.Tensor]:
    """Decodes of a long and a short sequence beside chunks, and their attention by its definition."""
    case = build_ragged_case(*MIXED)
    return case, naive_attention(case)


@pytest.mark.parametrize("instruction_set", SET_NAMES)
@pytest.mark.parametrize("parts", range(1, 17))
def test_any_number_of_parts_gives_the_same(mixed: tuple[RaggedCase, torch.Tensor], instruction_set: str, parts: int):
    """One to sixteen parts, some of them without a key: a sequence of three tokens has thirteen empty ones."""
    case, want = mixed
    assert (attend(case, instruction_set, parts).double() - want).abs().max() <= FLOAT32_TOLERANCE


def test_instruction_sets_agree(mixed: tuple[RaggedCase, torch.Tensor]):
    """AVX-512, AVX2 and the reference in float32, two by two."""
    case, _ = mixed
    answers = [attend(case, each.name) for each in supported_sets()]
    answers.append(ReferenceKernels().paged_attention(case.query, case.cache, case.step))
    for first in answers:
        for second in answers:
            assert (first - second).abs().max() <= FLOAT32_TOLERANCE


@pytest.mark.parametrize("instruction_set", SET_NAMES)
@pytest.mark.parametrize("rows", [2, 15, 21, 22, 43])
def test_tiles_of_query_rows_end_anywhere(instruction_set: str, rows: int):
    """21 rows of three heads are a tile; one fewer, one more and several tiles are as right."""
    case = build_ragged_case([rows], [rows + 50])
    assert (attend(case, instruction_set).double() - naive_attention(case)).abs().max() <= FLOAT32_TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("instruction_set", SET_NAMES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size"), [(71, 1, 64), (2, 1, 256), (5, 5, 32), (28, 4, 128), (3, 1, 80)]
)
def test_unusual_heads(instruction_set: str, heads: int, kv_heads: int, head_size: int, dtype: torch.dtype):
    """More heads to a key than a tile has columns, the largest head, one that no tile of the matrix units fits."""
    case = build_ragged_case([1, 3], [70, 20], heads=heads, kv_heads=kv_heads, head_size=head_size, dtype=dtype)
    error = (attend(case, instruction_set, parts=3).double() - naive_attention(case)).abs().max()
    assert error <= (FLOAT32_TOLERANCE if dtype == torch.float32 else 0.02)


@pytest.mark.parametrize("instruction_set", SET_NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_bfloat16_errs_no_more_than_plain_torch_does(instruction_set: str, seed: int):
    """flash-attention's rule: twice the error of a plain bfloat16 run, and what rounding the result alone costs."""
    case = build_ragged_case([1, 30, 1, 9], [600, 30, 17, 200], dtype=torch.bfloat16, seed=seed)
    exact = naive_attention(case)
    plain = ReferenceKernels().paged_attention(case.query, case.cache, case.step).double()
    rounding = 2 * ((exact + 0.3).bfloat16().double() - 0.3 - exact).abs().max()
    allowed = 2 * (plain - exact).abs().max() + rounding
    assert (attend(case, instruction_set).double() - exact).abs().max() <= allowed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("instruction_set", SET_NAMES)
def test_poison_does_not_leak_into_parts(instruction_set: str, dtype: torch.dtype):
    """NaN behind a sequence's end and in blocks of nobody, whichever part reads the last keys."""
    case = build_ragged_case([1, 5], [161, 70], dtype=dtype)
    clean = attend(case, instruction_set, parts=5)
    used = torch.zeros(case.cache.keys.shape[:2], dtype=torch.bool).view(-1)
    used[case.used_slots] = True
    for part in case.cache:
        part.view(-1, *part.shape[2:])[~used] = float("nan")
    assert torch.equal(clean, attend(case, instruction_set, parts=5))


@pytest.mark.parametrize("instruction_set", SET_NAMES)
def test_neighbours_and_threads_change_no_bit(instruction_set: str):
    """How a long sequence is cut depends on its length alone."""
    together = build_ragged_case([1, 1, 30], [1200, 40, 90])
    both = attend(together, instruction_set)
    torch.set_num_threads(2)
    assert torch.equal(attend(together, instruction_set), both)
    alone = build_ragged_case([1], [1200], permuted=False)
    table = together.step.block_tables[0].long()
    for part, scattered in zip(alone.cache, together.cache, strict=True):
        part[1 : 1 + len(table)] = scattered[table]
    kernels = build_cpu_kernels(instruction_set)
    assert torch.equal(kernels.paged_attention(together.query[:1], alone.cache, alone.step), both[:1])


def test_a_score_far_below_the_others_counts_nothing():
    """Exponentials that underflow are zeros, not noise; scores near the largest float16 do not overflow."""
    case = build_ragged_case([1], [40], heads=1, kv_heads=1)
    case.cache.keys.mul_(1000.0)
    for each in supported_sets():
        assert (attend(case, each.name).double() - naive_attention(case)).abs().max() <= 1e-4


def test_a_set_that_the_machine_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch):
    """The message says what there is; nothing is built for it."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "fma3": True, "f16c": True})
    assert [each.name for each in supported_sets()] == ["avx2"]
    with pytest.raises(OSError, match=r"cannot run kernels for avx512 \(it can run: avx2\)"):
        find_set("avx512")
