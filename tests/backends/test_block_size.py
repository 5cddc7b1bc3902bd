"""`--block-size auto`: what is chosen for which load, and that it says why."""

from __future__ import annotations

import logging
import random

import pytest

from backends.arguments import parse_arguments
from backends.block_size import BLOCK_SIZES, choose_block_size, resolve_block_size
from backends.hashing import pack
from backends.loading import StartError, load
from backends.request_profile import ProfiledRequest, RequestRecorder
from tests.backends.server_builders import running_worker


def build_profile(prompt_tokens: tuple[int, int], reused_share: float, count: int = 300) -> list[ProfiledRequest]:
    """Prompts of random length in a range, with about such a share of each known before."""
    generator = random.Random(6)
    profile = []
    for _ in range(count):
        prompt = generator.randint(*prompt_tokens)
        reused = int(prompt * min(1.0, reused_share * generator.uniform(0.8, 1.2)))
        profile.append(ProfiledRequest(prompt, reused // 8 * 8))
    return profile


@pytest.mark.parametrize(
    ("prompt_tokens", "reused_share", "expected"),
    [
        ((40, 80), 0.6, 8),  # short prompts: most of a large block would be lost
        ((2000, 6000), 0.5, 16),
        ((8_000, 20_000), 0.5, 32),
        ((20_000, 100_000), 0.95, 32),  # thousands of blocks each
        ((4_000, 20_000), 0.0, 64),  # nothing is reused: as few blocks as may be
        ((10, 60), 0.0, 8),  # nothing is reused, but large blocks would stay half empty
    ],
)
def test_each_load_gets_its_size(prompt_tokens, reused_share, expected):
    """From short shared prompts to long ones that share nothing."""
    assert choose_block_size(build_profile(prompt_tokens, reused_share)).block_tokens == expected


def test_reuse_is_rounded_down_to_whole_blocks():
    """40 tokens in common are 40, 32, 32 and none."""
    choice = choose_block_size([ProfiledRequest(100, 40)])
    assert [estimate.reused_tokens for estimate in choice.estimates] == [40, 32, 32, 0]
    assert [estimate.blocks for estimate in choice.estimates] == [13, 7, 4, 2]
    assert [estimate.empty_slots for estimate in choice.estimates] == [3.5, 7.5, 15.5, 31.5]


def test_the_last_token_is_never_reused():
    """A prompt that is known to its end still computes one block."""
    choice = choose_block_size([ProfiledRequest(64, 64)])
    assert [estimate.reused_tokens for estimate in choice.estimates] == [56, 48, 32, 0]


def test_an_empty_slot_costs_what_is_reused_of_a_slot():
    """With all of the prompts reused, a slot is worth a token."""
    low, high = (choose_block_size([ProfiledRequest(1000, reused)]).estimates[3] for reused in (0, 992))
    assert low.saved_tokens - low.reused_tokens == pytest.approx(-31.5 * 0.1 - 16 * 0.03)
    assert high.saved_tokens - high.reused_tokens == pytest.approx(-31.5 * 0.992 - 16 * 0.03)


def test_the_reason_is_a_sentence_with_the_figures():
    """What was compared, and by how much the others lose."""
    reason = choose_block_size([ProfiledRequest(100, 40)] * 3).reason
    assert reason.startswith("in blocks of 8, 3 recorded requests of 100 tokens on average gain")
    for size in BLOCK_SIZES[1:]:
        assert f"{size}: " in reason


def test_nothing_is_chosen_from_nothing():
    """An empty profile is an error."""
    with pytest.raises(ValueError, match="no request was recorded"):
        choose_block_size([])


def test_a_number_is_taken_as_it_is():
    """Without auto, nothing is read."""
    assert resolve_block_size(24, None) == 24


def build_recorded(tmp_path):
    path = tmp_path / "profile.jsonl"
    recorder = RequestRecorder(path)
    for number in range(20):
        recorder.record(b"", pack([*range(40), number]))
    recorder.close()
    return path


def test_auto_decides_the_size_of_a_worker_and_logs_why(tmp_path, caplog):
    """From the command line to the engine's configuration."""
    caplog.set_level(logging.INFO)
    options = parse_arguments(
        ["--simulated", "--block-size", "auto", "--request-profile", str(build_recorded(tmp_path))]
    )
    loaded = load(options)
    assert loaded.config.block_tokens == 8
    assert loaded.budget.block_tokens == 8
    assert "--block-size auto: in blocks of 8, 20 recorded requests" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--block-size", "auto"], "--block-size auto needs --request-profile PATH"),
        (["--block-size", "16", "--request-profile", "x"], "--request-profile is for --block-size auto, not for 16"),
        (["--block-size", "auto", "--request-profile", "not there"], "No such file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, complaint):
    """With what to do about it."""
    with pytest.raises(StartError, match=complaint):
        load(parse_arguments(["--simulated", *arguments]))


def test_no_other_word_is_a_block_size():
    """A number, or auto."""
    with pytest.raises(SystemExit):
        parse_arguments(["--block-size", "automatic"])


async def test_a_worker_records_what_it_serves(tmp_path):
    """A start with --record-request-profile, three requests, and a second start that chooses by them."""
    path = tmp_path / "profile.jsonl"
    async with running_worker("--record-request-profile", str(path), answer_tokens=1) as worker:
        worker.gate.open()
        for number in range(3):
            await worker.complete([*range(1, 41), number], max_tokens=1)
    arguments = ["--simulated", "--block-size", "auto", "--request-profile", str(path)]
    assert load(parse_arguments(arguments)).config.block_tokens == 8


async def test_a_profile_that_cannot_be_written_stops_the_start(tmp_path):
    """Said before serving, not after."""
    with pytest.raises(StartError, match="No such file or directory"):
        async with running_worker("--record-request-profile", str(tmp_path / "no" / "folder")):
            pass
