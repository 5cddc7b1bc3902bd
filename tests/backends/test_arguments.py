"""The command line: vLLM's names, and keys that are never printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backends.arguments import build_parser, parse_arguments

SOURCE = "\n".join(path.read_text() for path in (Path(__file__).parents[2] / "backends").rglob("*.py"))

VLLM_FLAGS = [
    *("--model", "--host", "--port", "--gpu-memory-utilization", "--max-model-len", "--enable-prefix-caching"),
    *("--no-enable-prefix-caching", "--block-size", "--max-num-seqs", "--max-num-batched-tokens", "--dtype", "--seed"),
    *("--num-gpu-blocks-override", "--served-model-name", "--api-key", "--enable-prompt-tokens-details"),
    *("--enable-request-id-headers", "--max-num-queued-reqs", "--max-num-queued-tokens", "--shutdown-timeout"),
    *("--max-logprobs", "--scheduling-policy", "--long-prefill-token-threshold", "--kv-cache-metrics"),
    *("--kv-cache-metrics-sample", "--kv-events-config", "--kv-offloading-size", "--prefix-caching-hash-algo"),
]


@pytest.mark.parametrize("flag", VLLM_FLAGS)
def test_vllms_flags_are_known(flag: str):
    """Whoever starts vLLM can start this."""
    assert flag in build_parser().format_help()


def test_defaults_are_a_small_and_safe_worker():
    """Loopback, caching on, cached tokens told, no key."""
    options = parse_arguments([])
    assert (options.model, options.host, options.port, options.block_size) == ("smollm2", "127.0.0.1", 8000, 16)
    assert options.enable_prefix_caching
    assert options.enable_prompt_tokens_details
    assert options.api_key == []
    assert not options.enable_dev_routes


def test_a_key_from_the_environment_guards_and_is_not_printed(monkeypatch):
    """VLLM_API_KEY, as vLLM."""
    monkeypatch.setenv("VLLM_API_KEY", "environment-key")
    assert parse_arguments([]).api_key == ["environment-key"]
    assert parse_arguments(["--api-key", "a", "b"]).api_key == ["a", "b"]
    assert "environment-key" not in build_parser().format_help()


def test_an_empty_key_is_a_mistake(capsys):
    """As from an unset variable: else a bare `Authorization: Bearer` would be let in."""
    for keys in ([""], ["a", " "]):
        with pytest.raises(SystemExit) as caught:
            parse_arguments(["--api-key", *keys])
        assert caught.value.code == 2
        assert "a key must not be empty" in capsys.readouterr().err


def test_developers_routes_come_with_vllms_variable(monkeypatch):
    """VLLM_SERVER_DEV_MODE=1."""
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    assert parse_arguments([]).enable_dev_routes
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "0")
    assert not parse_arguments([]).enable_dev_routes


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "-1"],
        ["--port", "x"],
        ["--gpu-memory-utilization", "0"],
        ["--gpu-memory-utilization", "1.5"],
        ["--max-model-len", "0"],
        ["--max-model-len", "1"],
        ["--shutdown-timeout", "-1"],
        ["--shutdown-timeout", "inf"],
        ["--simulated", "--simulated-prefill-tokens-per-second", "0"],
        ["--dtype", "int3"],
        ["--max-logprobs", "-2"],
        ["--pin-quota", "1.5"],
        ["--eviction-policy", "random"],
        ["--scheduling-policy", "lottery"],
        ["--num-preallocate-tokens", "-1"],
        ["--long-prefill-token-threshold", "x"],
        ["--kv-cache-metrics-sample", "2"],
    ],
)
def test_a_value_that_cannot_be_exits_2_and_names_its_option(arguments: list[str], capsys):
    """Argparse's way, with a sentence."""
    with pytest.raises(SystemExit) as caught:
        parse_arguments(arguments)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert arguments[-2] in said
    assert "invalid _" not in said  # the name of a function here is no news to anyone


def test_simulation_options_without_simulation_are_a_mistake(capsys):
    """Else a real model would be loaded by surprise."""
    with pytest.raises(SystemExit):
        parse_arguments(["--simulated-seconds-per-token", "0.1"])
    assert "need --simulated" in capsys.readouterr().err


def options() -> list[str]:
    """The name under which each option is read."""
    return sorted(action.dest for action in build_parser()._actions if action.dest != "help")


@pytest.mark.parametrize("name", options())
def test_every_option_is_read_by_somebody(name: str):
    """An option that changes nothing would be a lie."""
    assert re.search(rf"\b(options|parsed)\.{name}\b", SOURCE), name


def test_every_option_says_what_it_is_for():
    """In `--help`, and so in docs/worker.md."""
    assert [action.dest for action in build_parser()._actions if not action.help] == []


def test_partitions_are_given_one_by_one():
    """--cache-partition may be repeated."""
    parsed = parse_arguments(
        ["--cache-partition", "a=0.1:0.5", "--cache-partition", "b=0:1", "--eviction-policy", "slru"]
    )
    assert (parsed.cache_partition, parsed.eviction_policy) == (["a=0.1:0.5", "b=0:1"], "slru")
