"""Peers and their secret on the command line."""

from __future__ import annotations

import pytest

from backends.arguments import parse_arguments
from backends.exchange.options import ExchangeSettings, read_exchange_settings
from tests.backends.exchange.exchange_builders import TOKEN, token_file


def read(*arguments: str) -> ExchangeSettings:
    return read_exchange_settings(parse_arguments(["--simulated", *arguments]))


def test_nothing_is_exchanged_by_default():
    """No routes, no peers, no secret."""
    assert read() == ExchangeSettings(False, (), None)


def test_peers_may_be_several(tmp_path):
    """Each with its URL, without a slash at the end; the secret without the line's end."""
    arguments = ("--enable-cache-routes", "--peer-token-file", token_file(tmp_path))
    peers = ("--peer", "http://10.0.0.7:8000/", "--peer", "https://worker-2.example")
    settings = read(*arguments, *peers)
    assert settings == ExchangeSettings(True, ("http://10.0.0.7:8000", "https://worker-2.example"), TOKEN)


@pytest.mark.parametrize(
    "url",
    [
        "10.0.0.7:8000",
        "ftp://a",
        "http://",
        "http://user:secret@a",
        "http://:secret@a",
        "http://a?b=c",
        "http://a#b",
        "http://a:99999",
        "http://[::1",
        "file:///etc",
    ],
)
def test_a_peer_that_is_no_workers_url_is_refused(url, capsys):
    """argparse's error, which names the option and repeats no password."""
    with pytest.raises(SystemExit):
        read("--enable-cache-routes", "--peer", url)
    told = capsys.readouterr().err
    assert "argument --peer: " in told
    assert "secret" not in told


def test_a_token_that_is_no_text_is_refused(tmp_path):
    """The message names the file."""
    path = tmp_path / "token"
    path.write_bytes(bytes(range(128, 160)))
    with pytest.raises(Exception, match=f"--peer-token-file {path}: not ASCII text"):
        read("--enable-cache-routes", "--peer-token-file", str(path))
