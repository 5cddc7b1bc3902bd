"""Where Redis is: the URL in the configuration, or behind the reference that stands there because of its password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from gateway.secrets import SecretError, read_secret

_SCHEMES: Final = ("redis", "rediss", "unix")


def read_redis_url(setting: str, environ: Mapping[str, str]) -> str:
    """The URL that `setting` is or refers to; `SecretError`, which never quotes a password, says what is wrong."""
    refers = setting.startswith(("env:", "file:"))
    url = read_secret(setting, environ).decode(errors="replace").strip() if refers else setting
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (reading it checks it)
    except ValueError:
        raise SecretError("this is no URL; write redis://HOST:PORT") from None
    if parts.scheme not in _SCHEMES or not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise SecretError("Redis is at redis://HOST:PORT, rediss://HOST:PORT (TLS) or unix:///PATH")
    if parts.query or parts.fragment:
        raise SecretError("the URL of Redis ends with a number of a database at the most, without `?` or `#`")
    if parts.password is not None and not refers:
        raise SecretError("a URL with a password is given as env:NAME or file:PATH, never itself")
    return url
