"""The head of a stream of blocks: what it promises is checked before anything is read."""

from __future__ import annotations

import pytest

from backends.exchange.block_stream import HEAD_BYTES, BrokenStreamError, Head, decode_head, encode_head

HEAD = Head("0123456789ab", 368_800, 7)


def test_a_head_comes_back():
    """Its bytes are frozen: workers of different versions meet."""
    data = encode_head(HEAD)
    assert data.hex() == "484f4d494e474b58" + "0100" + "303132333435363738396162" + "a0a0050000000000" + "07000000"
    assert len(data) == HEAD_BYTES == 34
    assert decode_head(data, HEAD._replace(entries=9)) == 7
    assert decode_head(encode_head(HEAD._replace(entries=0)), HEAD) == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (encode_head(HEAD)[:-1], "truncated"),
        (b"X" + encode_head(HEAD)[1:], "not_blocks"),
        (encode_head(HEAD)[:8] + b"\x02\x00" + encode_head(HEAD)[10:], "not_blocks"),
        (encode_head(HEAD._replace(config_digest="ba9876543210")), "foreign_config"),
        (encode_head(HEAD._replace(entry_bytes=368_801)), "foreign_config"),
        (encode_head(HEAD._replace(entries=8)), "too_many"),
    ],
)
def test_anything_else_is_refused(data, reason):
    """Another form, another config, another size, more than was asked for."""
    with pytest.raises(BrokenStreamError) as caught:
        decode_head(data, HEAD)
    assert caught.value.reason == reason
