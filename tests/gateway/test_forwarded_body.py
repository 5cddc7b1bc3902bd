"""What the gateway adds to a body stands at its end, and everything before it is the caller's own bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import Endpoint, forward_body, parse_call

MESSAGES = b'"messages":[{"role":"user","content":"a } b"}]'


def forwarded(body: bytes, *, salt: str | None = "s", ask_usage: bool = False) -> bytes:
    """The body for the worker."""
    return forward_body(parse_call(Endpoint.CHAT, body), salt=salt, ask_usage=ask_usage)


@pytest.mark.parametrize("around", [(b"", b""), (b" \r\n", b"\n\t "), (b"\n", b"")])
def test_the_callers_bytes_stay_as_they_are(around):
    """Space before and behind the object included."""
    body = around[0] + b'{ "model" : "m", ' + MESSAGES + b' ,"x":1.0e5 }' + around[1]
    sent = forwarded(body, ask_usage=True)
    assert sent.startswith(body.rstrip()[:-1])
    assert json.loads(sent) == {
        **json.loads(body),
        "cache_salt": "s",
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    "field",
    [b'"cache_salt":null', b'"cache_salt":"mine"', b'"cache\\u005fsalt":null', b'"cache_\\u0073alt":"mine"'],
)
def test_a_salt_of_the_callers_never_comes_behind_ours(field):
    """However its name is spelt: the worker reads one salt, and it is ours."""
    for body in (b'{"model":"m",' + MESSAGES + b"," + field + b"}", b"{" + field + b',"model":"m",' + MESSAGES + b"}"):
        pairs = json.loads(forwarded(body), object_pairs_hook=list)
        assert [value for name, value in pairs if name == "cache_salt"] == ["s"]


def test_options_that_the_caller_gave_are_kept_and_added_to():
    """`null` too: there is one `stream_options` in what is sent."""
    for options in (b"null", b'{"x":1}'):
        body = b'{"model":"m","stream":true,"stream_options":' + options + b"," + MESSAGES + b"}"
        pairs = json.loads(forwarded(body, ask_usage=True), object_pairs_hook=list)
        assert len([name for name, _ in pairs if name == "stream_options"]) == 1
        assert json.loads(forwarded(body, ask_usage=True))["stream_options"]["include_usage"] is True


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.text(min_size=1, max_size=20))
def test_whatever_else_is_in_it(extra, salt):
    """A body with any other fields: read again, it is the same with a salt."""
    asked = {**{f"x{name}": value for name, value in extra.items()}, "model": "m"}
    asked["messages"] = [{"role": "user", "content": salt}]
    for text in (json.dumps(asked), json.dumps(asked, indent=1, ensure_ascii=False)):
        try:
            body = text.encode()
        except UnicodeEncodeError:  # half a surrogate pair is no JSON text
            continue
        assert json.loads(forwarded(body, salt="ours")) == {**asked, "cache_salt": "ours"}
