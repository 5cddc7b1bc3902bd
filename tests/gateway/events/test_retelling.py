"""The body that asks a worker to tell again: one key more, and everything else as it was."""

from __future__ import annotations

import json

import pytest

from gateway.events.retelling import asking_to_tell_again


@pytest.mark.parametrize("given", [b"", b', "vllm_xargs": null', b', "vllm_xargs": {"cache_partition": "a"}'])
def test_the_key_is_added_and_the_rest_is_left(given):
    """With other extras beside it, with none, and where they are null."""
    body = b'{"model": "m", "prompt": [1, 2],  "temperature": 1e-3' + given + b"}"
    asked = asking_to_tell_again(body)
    before, after = json.loads(body), json.loads(asked)
    assert after.pop("vllm_xargs") == {**(before.pop("vllm_xargs", None) or {}), "kv_cache_report_mode": "full"}
    assert after == before
    assert b"1e-3" in asked


def test_a_callers_own_mode_is_left():
    """Whoever asks for one knows why."""
    body = b'{"vllm_xargs": {"kv_cache_report_mode": "incremental"}}'
    assert asking_to_tell_again(body) is body
