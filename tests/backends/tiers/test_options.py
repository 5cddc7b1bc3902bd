"""The tiers' options: each one is read, and does what it says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from backends.tiers.options import build_offload
from backends.tiers.rates import Rates
from tests.backends.tiers.builders import (
    BLOCK_TOKENS,
    DIGEST,
    PAYLOAD_BYTES,
    BlockMemory,
    TierNotes,
    build_chain,
    payloads_of,
    wait_until,
)
from tests.backends.tiers.options_builder import build_options
from tests.backends.tiers.redis_server import RedisServer

GIB = 1 << 30


def build(flags: list[str], **settings):
    """Started, over a memory that holds a chain of four in blocks 1 to 4."""
    memory = BlockMemory()
    memory.hold(build_chain(4))
    offload = build_offload(
        build_options(flags), memory, model="a/model", block_tokens=BLOCK_TOKENS, clock=time.monotonic, **settings
    )
    offload.start()
    return offload


def compute(offload) -> None:
    for block_id, block in enumerate(build_chain(4), 1):
        offload.stored(block.key, block_id)


def give_up(offload) -> None:
    for block_id, block in enumerate(build_chain(4), 1):
        offload.overwritten(block.key, block_id)


def test_without_options_there_are_no_tiers():
    """The policy alone makes none."""
    options = build_options(["--kv-write-policy", "write-through"])
    assert build_offload(options, BlockMemory(), model="m", block_tokens=16, clock=time.monotonic) is None


def test_the_host_tiers_size_is_in_gib():
    """A part of one, too."""
    (host,) = build(["--kv-offloading-size", "0.5"]).stats()
    assert (host.name, host.limit_bytes) == ("host", GIB // 2)


def test_the_disks_folder_and_size(tmp_path: Path):
    """A folder per model and config below the one given."""
    offload = build(["--kv-disk", str(tmp_path / "new" / "folder"), "--kv-disk-size", "2"])
    (disk,) = offload.stats()
    assert (disk.name, disk.limit_bytes) == ("disk", 2 * GIB)
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == [f"a-model_{DIGEST}"]
    offload.close()


def test_a_disk_has_sixteen_gib_if_nothing_is_said(tmp_path: Path):
    """A bound there always is."""
    (disk,) = build(["--kv-disk", str(tmp_path)]).stats()
    assert disk.limit_bytes == 16 * GIB


def test_the_write_policy(tmp_path: Path):
    """Computed blocks are copied at once with write-through, with the default when they are given up."""
    early = build(["--kv-offloading-size", "1", "--kv-write-policy", "write-through"])
    compute(early)
    assert early.stats()[0].blocks == 4
    late = build(["--kv-offloading-size", "1"])
    compute(late)
    assert late.stats()[0].blocks == 0
    give_up(late)
    assert late.stats()[0].blocks == 4
    selective = build(["--kv-offloading-size", "1", "--kv-write-policy", "selective"])
    compute(selective)
    give_up(selective)
    assert selective.stats()[0].blocks == 0


def test_the_redis_url_and_the_time_to_live(redis_server: RedisServer):
    """Keys name the config and the block, and end by themselves."""
    offload = build(["--kv-redis-url", redis_server.url, "--kv-redis-ttl", "50"])
    compute(offload)
    give_up(offload)
    wait_until(lambda: redis_server.client.dbsize() == 4)
    names = {f"homing:kv:{DIGEST}:{block.name.hex()}" for block in build_chain(4)}
    assert {key.decode() for key in redis_server.client.keys("*")} == names
    assert all(40 < redis_server.client.ttl(name) <= 50 for name in names)
    offload.close()


def test_all_tiers_at_once_the_fastest_first(tmp_path: Path, redis_server: RedisServer):
    """What the host drops goes to both below it, and comes back."""
    size = str(PAYLOAD_BYTES / GIB)
    flags = ["--kv-offloading-size", size, "--kv-disk", str(tmp_path), "--kv-redis-url", redis_server.url]
    offload = build(flags)
    assert [stats.name for stats in offload.stats()] == ["host", "disk", "redis"]
    give_up(offload)
    wait_until(lambda: redis_server.client.dbsize() == 3)
    offload.close()
    again = build(flags)
    keys = [block.key for block in build_chain(3)]
    wait_until(lambda: again.fetch("a", keys).payloads)
    assert [bytes(payload) for payload in again.fetch("a", keys).payloads] == payloads_of(build_chain(3))
    again.close()


def test_the_journal_and_the_rates_are_passed_on():
    """Events hear of the tiers, and whoever measures by the same steps shares what is measured."""
    notes, rates = TierNotes(), Rates()
    offload = build(["--kv-offloading-size", "1"], journal=notes, rates=rates)
    give_up(offload)
    offload.stepped(1000, 0.5)
    assert len(notes.kept["CPU"]) == 4
    assert rates.prefill_tokens_per_second == 2000


def test_tiers_need_the_prefix_cache():
    """Nothing would ever be found."""
    options = build_options(["--kv-offloading-size", "1"], prefix_caching=False)
    with pytest.raises(ValueError, match="--enable-prefix-caching"):
        build_offload(options, BlockMemory(), model="m", block_tokens=16, clock=time.monotonic)


def test_a_folder_that_cannot_be_had_is_named(tmp_path: Path):
    """With what to do."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match=r"--kv-disk .*file.*give a folder"):
        build(["--kv-disk", str(tmp_path / "file")])


@pytest.mark.parametrize(
    "flags",
    [
        ["--kv-offloading-size", "0"],
        ["--kv-offloading-size", "-1"],
        ["--kv-offloading-size", "much"],
        ["--kv-disk-size", "inf"],
        ["--kv-disk-size", "nan"],
        ["--kv-redis-ttl", "0"],
        ["--kv-redis-ttl", "1.5"],
        ["--kv-redis-url", "http://host"],
        ["--kv-redis-url", "host:6379"],
        ["--kv-write-policy", "never"],
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(flags: list[str], capsys: pytest.CaptureFixture[str]):
    """The option stands in the message."""
    with pytest.raises(SystemExit):
        build_options(flags)
    assert flags[0] in capsys.readouterr().err


def test_a_redis_password_is_not_printed(capsys: pytest.CaptureFixture[str]):
    """Not even of a URL that is refused."""
    with pytest.raises(SystemExit):
        build_options(["--kv-redis-url", "redis://:hunter2@host:port/0"])
    assert "hunter2" not in capsys.readouterr().err
