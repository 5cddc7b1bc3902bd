"""Digests: equal where replicas understand each other, different wherever they would not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.shared import agreement
from gateway.shared.agreement import model_digest, new_replica, news_key, worker_digest
from gateway.shared.wire import MARK_BYTES
from router.template import ChatTemplate
from router.tokenise import bytes_text, load_tokeniser
from tests.router.gguf_builder import write_gguf
from tests.router.text_builders import tiny_pairs

TEXT = bytes_text("a test")


def test_the_same_text_and_blocks_agree():
    """Whatever the reason that bytes stand in."""
    assert model_digest("m", TEXT, 64) == model_digest("m", bytes_text("another reason"), 64)
    assert len(model_digest("m", TEXT, 64)) == MARK_BYTES


def test_another_template_block_size_or_model_does_not():
    """Each would hash the same prompt into other blocks, or mean another fleet."""
    template = ChatTemplate(TEXT.template.source + " ")
    others = [
        model_digest("m", TEXT, 128),
        model_digest("n", TEXT, 64),
        model_digest("m", replace(TEXT, template=template), 64),
    ]
    assert len({model_digest("m", TEXT, 64), *others}) == 4


@pytest.mark.parametrize("fact", ["HASH_VERSION", "POINT_SEED", "POINTS_PER_WORKER"])
def test_another_hash_or_ring_does_not(monkeypatch, fact):
    """A release that changes one of them is not heard by the one before."""
    before = model_digest("m", TEXT, 64)
    monkeypatch.setattr(agreement, fact, 999)
    assert model_digest("m", TEXT, 64) != before


def test_another_tokeniser_does_not(tmp_path):
    """A vocabulary read from a file against bytes."""
    text = load_tokeniser(write_gguf(tmp_path, tiny_pairs("smollm"), "a.gguf"))
    assert model_digest("m", text, 64) != model_digest("m", replace(text, tokeniser=TEXT.tokeniser), 64)


def test_the_key_follows_from_the_salt_secret_and_is_not_it():
    """Who knows the key cannot derive salts; without a secret there is only a checksum."""
    secret = b"s" * 32
    assert news_key(secret) != news_key(b"t" * 32)
    assert secret not in news_key(secret)
    assert news_key(None) == b""


def test_replicas_and_workers_are_told_apart():
    """At random, and by name."""
    assert new_replica() != new_replica()
    assert worker_digest("w1") != worker_digest("w2")
    assert len(worker_digest("w1")) == len(new_replica()) == MARK_BYTES
