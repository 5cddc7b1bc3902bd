"""Where a worker listens: what a worker's URL may hold, and what it may not."""

from __future__ import annotations

import pytest

from gateway.addresses import WorkerAddress, is_loopback, parse_worker_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://gpu-1:8000", WorkerAddress("gpu-1", 8000, "")),
        ("http://gpu-1:8000/", WorkerAddress("gpu-1", 8000, "")),
        ("http://gpu-1", WorkerAddress("gpu-1", 80, "")),
        ("http://gpu-1:8000/v1", WorkerAddress("gpu-1", 8000, "")),
        ("http://gpu-1:8000/serving/m/v1/", WorkerAddress("gpu-1", 8000, "/serving/m")),
        ("http://[::1]:8000", WorkerAddress("::1", 8000, "")),
        ("HTTP://GPU-1:8000", WorkerAddress("gpu-1", 8000, "")),
    ],
)
def test_the_usual_forms_are_read(url, expected):
    """With and without a port, a slash, a prefix, `/v1`."""
    assert parse_worker_url(url) == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("gpu-1:8000", "http://"),
        ("https://gpu-1:8000", "plain HTTP"),
        ("file:///etc/passwd", "http://"),
        ("http://w@evil/", "no user or password"),
        ("http://user:secret@gpu-1", "no user or password"),
        ("http://gpu-1:8000?x=1", "no query"),
        ("http://gpu-1:8000#top", "no fragment"),
        ("http://", "names a host"),
        ("http://:8000", "names a host"),
        ("http://gpu-1:0", "1 to 65535"),
        ("http://gpu-1:99999", "1 to 65535"),
        ("http://gpu-1:eight", "1 to 65535"),
        ("http://169.254.169.254/", "link-local"),
        ("http://[::ffff:169.254.169.254]/", "link-local"),
        ("http://[fe80::1]:8000", "link-local"),
        ("http://[::1", "Invalid IPv6"),
        ("http://2852039166/", "link-local"),
        ("http://0xa9.0376.0xa9fe", "link-local"),
        ("http://gpu-1:8000/a b", "ASCII without spaces"),
        ("http://user:secret @gpu-1", "ASCII without spaces"),
        ("http://gpu-1:8000/a\r\nx: y", "ASCII without spaces"),
        ("http://gpu-1:8000/\u2603", "ASCII without spaces"),
        ("http://g\ud800:8000", "ASCII without spaces"),
    ],
)
def test_what_no_worker_lives_at_is_refused(url, reason):
    """F-06: other schemes, credentials, metadata addresses, ports that are none."""
    with pytest.raises(ValueError, match=reason) as refusal:
        parse_worker_url(url)
    assert "secret" not in str(refusal.value)


def test_an_address_writes_itself_back():
    """What was read comes out as it stands in a Host header and in a URL."""
    assert parse_worker_url("http://[::1]:8000/p/v1").url == "http://[::1]:8000/p"
    assert parse_worker_url("http://gpu-1").netloc == "gpu-1:80"


def test_loopback_is_told_from_the_rest():
    """What an open tenant may listen on."""
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "gpu-1", ""))
