"""Secrets: read by reference, refused when useless, and salts that cannot be mistaken for one another."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.secrets import (
    SecretError,
    check_salt_secret,
    derive_salt,
    fingerprint,
    key_digest,
    read_secret,
)
from tests.gateway.builders import SALT_SECRET, key_line

SECRET = SALT_SECRET.encode()


def test_a_secret_comes_from_a_file_or_the_environment(tmp_path):
    """A line end that an editor left is not part of it."""
    (tmp_path / "k").write_bytes(b"abc\r\n")
    assert read_secret(f"file:{tmp_path / 'k'}", {}) == b"abc"
    assert read_secret("env:K", {"K": "def"}) == b"def"


@pytest.mark.parametrize("reference", ["env:K", "file:/nowhere/k", "file:", "env:", "s3cr3t-value", ""])
def test_a_missing_secret_says_which_and_never_itself(reference):
    """What stands where a reference should be may be the secret: it is not repeated."""
    with pytest.raises(SecretError) as error:
        read_secret(reference, {})
    assert "s3cr3t" not in str(error.value)


def test_an_empty_secret_is_none(tmp_path):
    """An empty file is a mount that went wrong."""
    (tmp_path / "k").write_bytes(b"\n")
    with pytest.raises(SecretError, match="is empty"):
        read_secret(f"file:{tmp_path / 'k'}", {})


@pytest.mark.parametrize("secret", [b"short", b"a" * 64, b"abababab" * 8, b"this-is-an-example-secret-0123456789"])
def test_weak_salt_secrets_are_refused(secret):
    """Short, repetitive, or out of an example."""
    with pytest.raises(SecretError):
        check_salt_secret(secret)
    check_salt_secret(SECRET)


def test_a_salt_is_always_the_same():
    """A golden value (made with openssl): changing the derivation would empty every cache at the next release."""
    assert derive_salt(SECRET, group="tenant:acme", model="m") == "GwQHsH6ASQI-pNRbznFt7hfxkC_Y_EuNEixdjUPC4wo"


def test_a_salt_suits_every_vllm():
    """At most 128 characters and none of `@ / \\ NUL`."""
    salt = derive_salt(SECRET, group="tenant:a@b/c\\d\0", model="org/model@v1", sub=b"\0/")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", salt)


def test_fields_do_not_run_into_each_other():
    """Length prefixes: ("org_1", "2345") is not ("org_12345", "")."""
    salts = {
        derive_salt(SECRET, group="org_1", model="2345"),
        derive_salt(SECRET, group="org_12345", model=""),
        derive_salt(SECRET, group="org_1", model="23", sub=b"45"),
        derive_salt(SECRET, group="org_1", model="", sub=b"2345"),
    }
    assert len(salts) == 4


@given(
    first=st.tuples(st.text(max_size=8), st.text(max_size=8), st.binary(max_size=8)),
    second=st.tuples(st.text(max_size=8), st.text(max_size=8), st.binary(max_size=8)),
)
def test_different_triples_have_different_salts(first, second):
    """And equal ones the same."""
    salts = [derive_salt(SECRET, group=group, model=model, sub=sub) for group, model, sub in (first, second)]
    assert (salts[0] == salts[1]) == (first == second)


def test_a_fingerprint_is_short_and_of_the_digest():
    """Enough to tell keys apart in a log, and found in the configuration."""
    digest = key_digest("acme-key")
    assert fingerprint(digest) == digest.hex()[:12]
    assert key_line("acme-key").startswith(f"sha256:{fingerprint(digest)}")
