"""Two hundred bad configurations, one after another, for a gateway that runs: the good one stays, with reasons."""

from __future__ import annotations

import copy
import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.reload import APPLIED, REFUSED
from tests.gateway.builders import key_line
from tests.gateway.reloading import admin_page, build_data, gateway_from, replace_data, replace_file, status_with
from tests.gateway.scripted_worker import scripted_worker

WRONG_VALUES = ({"odd": 1}, [[]], -1, "\u2028 odd", 1e300, None, "file:/nowhere", "sha256:00")
SWAPPED_TEXTS = (("{", "["), (":", ""), (",", ",,"), ('"', ""), ("\n", "\n\t- "), ("127.0.0.1", "http://"), ("}", ""))
BAD = 200


def places(data: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every place inside plain data."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in inside:
        yield (*path, step)
        yield from places(value, (*path, step))


def at(data: Any, path: tuple) -> Any:
    for step in path:
        data = data[step]
    return data


def mutated(data: dict, chance: random.Random) -> str:
    """The text of the configuration with one thing wrong: a value, a name, what is missing, a character, its end."""
    kind = chance.randrange(6)
    changed = copy.deepcopy(data)
    path = chance.choice(list(places(changed)))
    text = json.dumps(data, indent=1)
    if kind == 0:
        at(changed, path[:-1])[path[-1]] = chance.choice(WRONG_VALUES)
    elif kind == 1 and isinstance(path[-1], str):
        holder = at(changed, path[:-1])
        holder[f"{path[-1]}x"] = holder.pop(path[-1])
    elif kind == 2:
        del at(changed, path[:-1])[path[-1]]
    elif kind == 3:
        return text[: chance.randrange(len(text) - 1)]
    elif kind == 4:
        old, new = chance.choice(SWAPPED_TEXTS)
        return text.replace(old, new, 1 + chance.randrange(3))
    else:
        position = chance.randrange(len(text))
        return text[:position] + chance.choice("\x00\x07{}[]:&*!|>%@`\u2028\ud7ff") + text[position:]
    return json.dumps(changed, indent=1)


@pytest.mark.row("H1", smoke=True)
async def test_two_hundred_bad_configurations_change_nothing(tmp_path: Path, caplog):
    """H1: each is refused with the file's name and a place; those that happen to be right are taken and taken back."""
    path = tmp_path / "homing.yaml"
    chance = random.Random(20260)
    caplog.set_level(logging.CRITICAL, "homing")
    async with scripted_worker() as worker:
        good = build_data(worker.port, limits={"body_bytes": 10_000}, salt_secret="k1")
        good["tenants"]["globex"] = {"keys": [key_line("globex-key")], "isolation": "group:g", "models": ["m"]}
        replace_data(path, good)
        async with gateway_from(path) as running:
            reloader, refused = running.gateway.reloader, 0
            page = (await admin_page(running, "/config"))[1]
            while refused < BAD:
                replace_file(path, mutated(good, chance))
                result = await reloader.reload()
                if result != REFUSED:
                    replace_data(path, good)
                    assert await reloader.reload() != REFUSED
                    continue
                refused += 1
                assert reloader.refusal.reasons[0].startswith(f"{path}"), reloader.refusal
                assert "cannot be used" not in reloader.refusal.reasons[0], (reloader.refusal, path.read_text())
                if refused % 20 == 0:
                    assert [await status_with(running, key) for key in ("acme-key", "globex-key")] == [200, 200]
            assert reloader.counts[REFUSED] >= BAD
            told = (await admin_page(running, "/config"))[1]
            assert told["digest"] == page["digest"]
            assert told["refused"]["reasons"]
            assert running.count("config_last_reload_successful") == 0
            replace_data(path, good)
            assert await reloader.reload() != REFUSED
            assert reloader.refusal is None


async def test_a_file_that_is_cut_short_is_refused_until_it_is_whole(tmp_path: Path):
    """A write that stopped half-way, at every tenth byte."""
    path = tmp_path / "homing.yaml"
    data = build_data(8001)
    replace_data(path, data)
    async with gateway_from(path) as running:
        whole = path.read_bytes()
        for length in range(0, len(whole) - 1, max(1, len(whole) // 10)):
            path.write_bytes(whole[:length])
            assert await running.gateway.reloader.reload() == REFUSED
        path.write_bytes(whole.replace(b"acme", b"acne"))
        assert await running.gateway.reloader.reload() == APPLIED


async def test_what_is_no_text_and_what_is_no_file_is_refused(tmp_path: Path):
    """Bytes, a folder, nothing, and nesting without end."""
    path = tmp_path / "homing.yaml"
    replace_data(path, build_data(8001))
    async with gateway_from(path) as running:
        reloader = running.gateway.reloader
        for content in (b"\xff\xfe\x00", b"", b"[" * 600, b"&a [*a, *a]", b"\x00" * 100):
            path.write_bytes(content)
            assert await reloader.reload() == REFUSED
        path.unlink()
        assert await reloader.reload() == REFUSED
        assert "cannot be read" in reloader.refusal.reasons[0]
        path.mkdir()
        assert await reloader.reload() == REFUSED
        assert running.gateway.tenants.names == ("acme",)
