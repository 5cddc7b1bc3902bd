"""What a worker is sent: the same prompt, salt and share of the cache, and the least of an answer."""

from __future__ import annotations

import json

from gateway.prewarm.bodies import carries_media, compute_path, one_token_body, pull_body, request_head
from gateway.wire import Endpoint
from tests.gateway.prewarm.prewarm_builders import build_body

KEPT = {
    "model": "m", "messages": [{"role": "user", "content": "CANARY hello"}], "cache_salt": "salt",
    "tools": [{"type": "function", "function": {"name": "f"}}], "vllm_xargs": {"cache_partition": "p"},
    "chat_template_kwargs": {"x": 1},
}  # fmt: skip


def test_one_token_all_at_once_of_the_same_prompt():
    """What makes an answer long, multiple or costly is left out; what makes the prompt stays as it was."""
    body = build_body(
        **KEPT, stream=True, stream_options={"include_usage": True}, max_completion_tokens=900, max_tokens=900, n=4,
        min_tokens=20, logprobs=True, top_logprobs=5, prompt_logprobs=1, response_format={"type": "json_object"},
        priority=-9, kv_transfer_params={"do_remote_prefill": True},
    )  # fmt: skip
    assert json.loads(one_token_body(body)) == {**KEPT, "max_tokens": 1}


def test_what_is_more_than_text_is_known_by_its_keys():
    """Whatever the text says of itself."""
    for part in ({"image_url": {"url": "http://h/i.png"}}, {"input_audio": {"data": ""}}, {"video_url": {"url": "x"}}):
        assert carries_media(build_body(messages=[{"role": "user", "content": [{"type": "x", **part}]}]))
    for text in ("CANARY", '{"image_url": {"url": "x"}}', "image_url", '"input_audio":'):
        assert not carries_media(build_body(messages=[{"role": "user", "content": text}]))


def test_values_travel_byte_for_byte():
    """A number is not read and written anew."""
    assert b'"x":1.0000000000000000001' in one_token_body(b'{"model":"m","x":1.0000000000000000001}')


def test_a_pull_names_the_source_and_is_otherwise_the_same():
    """The worker reads the prompt as it would read the request."""
    assert json.loads(pull_body(build_body(**KEPT), "http://10.0.0.1:8000")) == {**KEPT, "from": "http://10.0.0.1:8000"}


def test_the_head_has_the_workers_key_and_nothing_of_a_client():
    """Host, length, key."""
    head = request_head("h:1", "/base/v1/x", "worker-key", 7).decode()
    assert head.startswith("POST /base/v1/x HTTP/1.1\r\nhost: h:1\r\n")
    assert "authorization: Bearer worker-key\r\n" in head
    assert head.endswith("\r\n\r\n")
    assert "authorization" not in request_head("h:1", "/x", None, 7).decode()


def test_each_endpoint_keeps_its_path():
    """Below the worker's own."""
    assert compute_path("/base", Endpoint.COMPLETIONS) == "/base/v1/completions"
