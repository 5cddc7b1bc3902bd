"""The command line: vLLM's names, and keys that are never printed."""

from __future__ import annotations

import pytest

from backends.arguments import build_parser, parse_arguments

VLLM_FLAGS = [
    *("--model", "--host", "--port", "--gpu-memory-utilization", "--max-model-len", "--enable-prefix-caching"),
    *("--no-enable-prefix-caching", "--block-size", "--max-num-seqs", "--max-num-batched-tokens", "--dtype", "--seed"),
    *("--num-gpu-blocks-override", "--served-model-name", "--api-key", "--enable-prompt-tokens-details"),
    *("--enable-request-id-headers", "--max-num-queued-reqs", "--max-num-queued-tokens", "--shutdown-timeout"),
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
